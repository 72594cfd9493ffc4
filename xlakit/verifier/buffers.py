"""Rules for buffers, values that stand for memory: which operations take them, and that no two operations write to one.

Source: the checks of OpenXLA's HLO verifier for buffers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from xlakit.data.shape import Shape
from xlakit.ir.instruction import Computation, Instruction
from xlakit.ops.communication.asynchronous import Async, AsyncStart
from xlakit.ops.control import Call, Conditional, Fusion, While
from xlakit.ops.custom_call import CustomCall
from xlakit.ops.data import GetTupleElement, Parameter, Tuple
from xlakit.ops.dynamic import DynamicUpdateSlice
from xlakit.verifier.faults import Fault, Program

# These operations forward buffers unchanged; the uses of their results are checked instead of them.
_HANDING_ON = (GetTupleElement, Tuple, Async)
_WRITERS = (Call, CustomCall, Fusion, While, Conditional, DynamicUpdateSlice, AsyncStart)
_STREAM_MARKER = "_xla_stream_annotation"

_Index = tuple[int, ...]


def buffer_faults(program: Program) -> Iterator[Fault]:
    """Faults of instructions that take or give buffers."""
    # Most programs have no buffer.
    if not any(_buffers_in(instruction.shape) for _, instruction in program.instructions()):
        return
    for computation, instruction in program.instructions():
        shapes = [instruction.shape, *(o.shape for o in instruction.operands)]
        if any(_buffers_in(shape) for shape in shapes):
            rule = _fault(program, computation, instruction)
            if rule:
                yield Fault(computation, instruction, rule, _remedy(instruction))


def _remedy(instruction: Instruction) -> str:
    if isinstance(instruction.op, CustomCall):
        return "alias each buffer that goes in with the one that comes out, and use each once"
    if isinstance(instruction.op, (While, Parameter, DynamicUpdateSlice)):
        return "let one instruction write to a buffer, and the next use what that one gives"
    return "turn a buffer into an array with the custom call Unpin, an array into a buffer with Pin"


def _fault(program: Program, computation: Computation, instruction: Instruction) -> str:
    """The rule that is broken, or nothing."""
    op = instruction.op
    if isinstance(op, CustomCall):
        return _custom_call_fault(program, instruction)
    wrapped = any(isinstance(c.op, AsyncStart) for c in program.callers.get(computation, []))
    streamed = isinstance(op, Call) and _STREAM_MARKER in dict(instruction.annotations.frontend_attributes)
    if isinstance(op, _HANDING_ON) or wrapped or streamed:
        return ""
    writes_first = isinstance(op, DynamicUpdateSlice) and instruction.operands[0].shape.is_buffer
    if writes_first and instruction.shape.is_buffer:
        other = any(_buffers_in(o.shape) for o in instruction.operands[1:])
        return "only its first operand can be a buffer" if other else _writers_fault(program, instruction)
    if isinstance(op, While) or (isinstance(op, Parameter) and computation is not program.module.entry):
        return _writers_fault(program, instruction)
    return "can neither take nor give a buffer"


def _buffers_in(shape: Shape) -> list[_Index]:
    """The tuple indices of the buffers in a shape."""
    if shape.is_buffer:
        return [()]
    if not shape.is_tuple:
        return []
    return [(i, *index) for i, element in enumerate(shape.tuple_shapes) for index in _buffers_in(element)]


# -- custom calls ----------------------------------------------------------------------------------


def _custom_call_fault(program: Program, call: Instruction) -> str:
    op: Any = call.op
    target, aliases = op.custom_call_target, op.output_to_operand_aliasing
    if target in ("Pin", "Unpin"):
        return _cast_fault(call, target, len(aliases)) or _writers_fault(program, call)
    if target == "CreateBuffer":
        if call.operands or not call.shape.is_buffer:
            return "CreateBuffer takes nothing and gives one buffer"
        return _writers_fault(program, call)
    taken = Counter((a.operand_number, a.operand_index) for a in aliases)
    given = Counter(a.output_index for a in aliases)
    for number, operand in enumerate(call.operands):
        if any(taken[number, index] != 1 for index in _buffers_in(operand.shape)):
            return f"each buffer in operand {number} must be in output_to_operand_aliasing once"
    if any(given[index] != 1 for index in _buffers_in(call.shape)):
        return "each buffer of the result must be in output_to_operand_aliasing once"
    return _writers_fault(program, call)


def _cast_fault(call: Instruction, target: str, aliases: int) -> str:
    if len(call.operands) != 1:
        return f"{target} takes one operand, got {len(call.operands)}"
    array, buffer = call.operands[0].shape, call.shape
    if target == "Unpin":
        array, buffer = buffer, array
    if not buffer.is_buffer or not array.is_array or not array.compatible(buffer.tuple_shapes[0]):
        return f"{target} is between an array and a buffer of it, not from {call.operands[0].shape} to {call.shape}"
    return "" if aliases == 1 else f"{target} has one pair in output_to_operand_aliasing, got {aliases}"


# -- writers ---------------------------------------------------------------------------------------


def _writers_fault(program: Program, source: Instruction) -> str:
    for index in _buffers_in(source.shape):
        writers = _writers(program, source, index)
        if len(writers) > 1 and writers[0] is writers[1]:
            return f"'{writers[0].name}' takes its buffer twice and writes to it"
        if len(writers) > 1:
            return f"'{writers[0].name}' and '{writers[1].name}' both write to its buffer"
    return ""


def _writers(program: Program, source: Instruction, index: _Index) -> list[Instruction]:
    """The instructions that may write to, or free, the buffer at a tuple index of a value, once for each operand."""
    found: list[Instruction] = []
    stack = [(source, index)]
    while stack:
        node, index = stack.pop()
        for user in program.users.get(node, []):
            places = [i for i, operand in enumerate(user.operands) if operand is node]
            if isinstance(user.op, _WRITERS):
                found.extend(user for _ in places)
            elif isinstance(user.op, GetTupleElement) and index and user.op.index == index[0]:
                stack.append((user, index[1:]))
            elif isinstance(user.op, Tuple):
                computation = program.computation_of[user]
                if user is not computation.root:
                    stack.extend((user, (place, *index)) for place in places)
                elif any(isinstance(c.op, While) for c in program.callers.get(computation, [])):
                    # The root of a loop's body: the next iteration may write to the buffer.
                    found.extend(user for _ in places)
    return found
