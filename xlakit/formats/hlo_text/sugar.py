"""``add-start(x, y)``, ``add-done(s)``: short for an asynchronous operation around a computation of one instruction.

The computation gets a generated name; only computations with such names are printed in the short form again, so that
nothing is lost. The shape of a start may lack operands and the result of the operation; they are then taken from the
shapes of the updates and the done.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from xlakit.data.shape import Shape, make_tuple_shape
from xlakit.formats.hlo_text.records import Bodies, Body, Callee, Record, table_of
from xlakit.ir.attributes import NO_ANNOTATIONS
from xlakit.ir.instruction import Instruction
from xlakit.ir.operation import OPERATIONS, Op
from xlakit.ops.communication.asynchronous import AsyncDone, AsyncStart, AsyncUpdate
from xlakit.ops.communication.collective_moves import CollectivePermute
from xlakit.ops.communication.collectives import AllGather, AllReduce
from xlakit.ops.communication.transfer import Recv, Send
from xlakit.ops.data import Constant, Copy, Parameter

# Operations whose start and done are opcodes of their own, not short forms.
_NOT_WRAPPED = (AllGather, AllReduce, CollectivePermute, Copy, Recv, Send)
_NAME = "async_wrapped"
_UNKNOWN = make_tuple_shape([])
_NAMES = re.compile(rf"{_NAME}(?:\.\d+)?")


def read_sugar(opcode: str) -> tuple[type[Op], type[Op]] | None:
    """The classes of the asynchronous operation and the wrapped one, if ``opcode`` is a short form; else None."""
    for step in ("start", "update", "done"):
        wrapped = opcode.removesuffix(f"-{step}")
        if wrapped == opcode or OPERATIONS.get(wrapped) in _NOT_WRAPPED or wrapped.startswith("async"):
            continue
        inner, outer = OPERATIONS.get(wrapped), OPERATIONS.get(f"async-{step}")
        return (outer, inner) if inner is not None and outer is not None else None
    return None


def unsugar(reader: Bodies, body: Body, record: Record, wrapped: type[Op], values: dict[str, Any], offset: int) -> None:
    """Make the computation that a start wraps; updates and done refer to it through their operand."""
    lexer = reader.lexer
    if record.cls is not AsyncStart:
        _check_follower(reader, record, wrapped, values, offset)
        return
    shape = record.shape
    parts = shape.tuple_shapes if shape is not None else ()
    if len(parts) < 2 or not parts[0].is_tuple:
        raise lexer.error(
            f"{wrapped.opcode}-start needs its shape before it: ((arguments...), result, contexts...)", offset
        )
    inner = Body(reader.unused_name(_NAME), offset, is_wrapper=True)
    root = Record("async_op", wrapped, offset, parts[1])
    root.values = values
    missing = [spec.text for spec in table_of(wrapped).required if spec.name not in values]
    if missing:
        raise lexer.error(f"{wrapped.opcode} lacks {', '.join(f'{name}=' for name in missing)}", offset)
    arguments = parts[0].tuple_shapes
    if wrapped.arity is not None and len(arguments) > wrapped.arity:
        raise lexer.error(f"{wrapped.opcode} takes {wrapped.arity} operands, got {len(arguments)}", offset)
    inner.records.append(root)
    inner.root = root
    _bind(inner, root, arguments, parts[1])
    _bind_callee(reader, inner, root)
    inner.thread = record.values.get("async_execution_thread", "main")
    inner.callees = [c for value in values.values() for c in _callees(value)]
    reader.add(inner)
    callee = Callee(inner.name, offset)
    body.callees.append(callee)
    record.values["calls"] = callee


def _bind(inner: Body, root: Record, arguments: Sequence[Shape], result: Shape) -> None:
    """Set the shapes of the wrapped operation's first operands and of its result; adds parameters that are missing."""
    for number, shape in enumerate(arguments):
        if number < len(root.operands):
            _settle(root.operands[number], shape)
            continue
        parameter = Record(inner.unused_name("async_param"), Parameter, root.offset, shape)
        parameter.values["number"] = number
        inner.names[parameter.name] = parameter
        inner.records.insert(number, parameter)
        root.operands.append(parameter)
    _settle(root, result)


def _settle(record: Record, shape: Shape) -> None:
    # A start or update that does not know the result yet is declared with () for it.
    known = record.shape
    if known is None or (not known.compatible(shape) and shape != _UNKNOWN):
        record.shape = shape


def _bind_callee(reader: Bodies, inner: Body, root: Record) -> None:
    """Take arguments and result from the callee of a wrapped call or fusion, if it has been read already."""
    callee = root.values.get({"call": "to_apply", "fusion": "calls"}.get(root.cls.opcode, ""))
    called = reader.bodies.get(callee.name) if isinstance(callee, Callee) else None
    if called is None:
        return
    parameters = sorted((r for r in called.records if r.cls is Parameter), key=lambda r: r.values["number"])
    shapes = [r.shape for r in parameters if r.shape is not None]
    result = (called.root or called.records[-1]).shape
    if len(shapes) == len(parameters) >= len(root.operands) and result is not None:
        _bind(inner, root, shapes, result)


def _callees(value: object) -> list[Callee]:
    if isinstance(value, Callee):
        return [value]
    return [c for c in value if isinstance(c, Callee)] if isinstance(value, tuple) else []  # pyright: ignore


def _check_follower(reader: Bodies, record: Record, wrapped: type[Op], values: dict[str, Any], offset: int) -> None:
    if not record.operands:
        raise reader.lexer.error(
            f"{wrapped.opcode}{record.cls.opcode.removeprefix('async')} takes what a start gave", offset
        )
    attributes = dict(values)
    values.clear()
    start = record.operands[0]
    while start.cls is AsyncUpdate and start.operands:
        start = start.operands[0]
    callee = start.values.get("calls")
    if start.cls is not AsyncStart or not isinstance(callee, Callee):
        return
    inner = reader.bodies.get(callee.name)
    root = inner.root if inner is not None else None
    if inner is not None and root is None:
        root = inner.records[-1]
    if inner is None or root is None:
        return
    if root.cls is not wrapped:
        raise reader.lexer.error(f"{wrapped.opcode}-{record.cls.opcode[6:]} follows {root.cls.opcode}-start", offset)
    # Old texts repeat the attributes of the start, which are dropped here; an update's own attributes are kept.
    own = {spec.name for spec in record.cls.attributes}
    record.values |= {n: value for n, value in attributes.items() if n in own and value != root.values.get(n)}
    if inner.is_wrapper:
        _bind_more(inner, root, record)


def _bind_more(inner: Body, root: Record, follower: Record) -> None:
    """Complete the wrapped operation's arguments and result from the shape of an update or a done."""
    shape = follower.shape
    if shape is None:
        return
    arguments: Sequence[Shape] = ()
    if follower.cls is AsyncUpdate:
        if len(shape.tuple_shapes) < 2:
            return
        arguments, shape = shape.tuple_shapes[0].tuple_shapes, shape.tuple_shapes[1]
    _bind(inner, root, arguments, shape)


# -- printing ----------------------------------------------------------------------------------------


def has_short_form(start: Instruction) -> bool:
    """Whether the asynchronous operation that begins with ``start`` can be printed in the short form without loss."""
    (computation,) = start.op.called_computations
    root = computation.root
    *parameters, last = computation.instructions
    return (
        _NAMES.fullmatch(computation.name) is not None
        and last is root
        and len(start.operands) == len(parameters)
        and root.name == "async_op"
        and tuple(parameters) == root.operands
        and type(root.op) not in (*_NOT_WRAPPED, Parameter, Constant)
        and root.annotations is NO_ANNOTATIONS
        and not root.control_predecessors
        and all(
            isinstance(p.op, Parameter) and p.annotations is NO_ANNOTATIONS and _is_nth(p, number)
            for number, p in enumerate(parameters)
        )
    )


def _is_nth(parameter: Instruction, number: int) -> bool:
    name = "async_param" + (f".{number}" if number else "")
    return parameter.op.number == number and parameter.name == name  # pyright: ignore


def start_of(instruction: Instruction) -> Instruction | None:
    """The start of an update's or a done's chain (or a start itself); None if the chain leaves these operations."""
    while not isinstance(instruction.op, AsyncStart):
        if not instruction.operands or not isinstance(instruction.op, (AsyncUpdate, AsyncDone)):
            return None
        instruction = instruction.operands[0]
    return instruction
