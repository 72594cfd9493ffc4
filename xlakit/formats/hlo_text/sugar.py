"""``add-start(x, y)``, ``add-done(s)``: short for an asynchronous operation around a computation of one instruction.

The computation gets a name that nobody wrote; only computations with such names are printed short again, so that
nothing is lost.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from xlakit.formats.hlo_text.records import Body, Callee, Record, table_of
from xlakit.ir.attributes import NO_ANNOTATIONS
from xlakit.ir.instruction import Computation, Instruction
from xlakit.ir.operation import OPERATIONS, Op

if TYPE_CHECKING:
    from xlakit.formats.hlo_text.reader import Reader

# These have opcodes of their own for their halves.
_NOT_WRAPPED = frozenset({"all-gather", "all-reduce", "collective-permute", "copy", "recv", "send"})
_NAME = "async_wrapped"
_NAMES = re.compile(rf"{_NAME}(?:\.\d+)?")


def read_sugar(opcode: str) -> tuple[type[Op], type[Op]] | None:
    """The asynchronous operation and the one that it wraps, where ``opcode`` is short for those."""
    for half in ("start", "update", "done"):
        wrapped = opcode.removesuffix(f"-{half}")
        if wrapped == opcode or wrapped in _NOT_WRAPPED or wrapped.startswith("async"):
            continue
        inner, outer = OPERATIONS.get(wrapped), OPERATIONS.get(f"async-{half}")
        return (outer, inner) if inner is not None and outer is not None else None
    return None


def unsugar(reader: Reader, body: Body, record: Record, wrapped: type[Op], values: dict[str, Any], offset: int) -> None:
    """Make the computation that a start wraps; updates and done refer to it through their operand."""
    lexer = reader.lexer
    if record.cls.opcode != "async-start":
        _check_follower(reader, record, wrapped, values, offset)
        return
    shape = record.shape
    parts = shape.tuple_shapes if shape is not None else ()
    if len(parts) < 2 or not parts[0].is_tuple:
        raise lexer.error(
            f"{wrapped.opcode}-start needs its shape before it: ((arguments...), result, contexts...)", offset
        )
    inner = Body(reader.unused_name(_NAME), offset)
    for number, argument in enumerate(parts[0].tuple_shapes):
        parameter = Record(inner.unused_name("async_param"), OPERATIONS["parameter"], offset, argument)
        parameter.values["number"] = number
        inner.names[parameter.name] = parameter
        inner.records.append(parameter)
    root = Record("async_op", wrapped, offset, parts[1])
    root.operands = list(inner.records)
    root.values = values
    missing = [spec.text for spec in table_of(wrapped).required if spec.name not in values]
    if missing:
        raise lexer.error(f"{wrapped.opcode} lacks {', '.join(f'{name}=' for name in missing)}", offset)
    if wrapped.arity is not None and len(root.operands) != wrapped.arity:
        raise lexer.error(f"{wrapped.opcode} takes {wrapped.arity} operands, got {len(root.operands)}", offset)
    inner.records.append(root)
    inner.root = root
    inner.thread = record.values.get("async_execution_thread", "main")
    inner.callees = [c for value in values.values() for c in _callees(value)]
    reader.add(inner)
    callee = Callee(inner.name, offset)
    body.callees.append(callee)
    record.values["calls"] = callee


def _callees(value: object) -> list[Callee]:
    if isinstance(value, Callee):
        return [value]
    return [c for c in value if isinstance(c, Callee)] if isinstance(value, tuple) else []  # pyright: ignore


def _check_follower(reader: Reader, record: Record, wrapped: type[Op], values: dict[str, Any], offset: int) -> None:
    if not record.operands:
        raise reader.lexer.error(
            f"{wrapped.opcode}{record.cls.opcode.removeprefix('async')} takes what a start gave", offset
        )
    # Old texts repeat the attributes of the start. They say nothing new.
    values.clear()
    start = record.operands[0]
    while start.cls.opcode == "async-update" and start.operands:
        start = start.operands[0]
    callee = start.values.get("calls")
    if start.cls.opcode != "async-start" or not isinstance(callee, Callee):
        return
    inner = reader.bodies.get(callee.name)
    root = inner.root if inner is not None else None
    if inner is not None and root is None:
        root = inner.records[-1]
    if root is not None and root.cls is not wrapped:
        raise reader.lexer.error(f"{wrapped.opcode}-{record.cls.opcode[6:]} follows {root.cls.opcode}-start", offset)


# -- printing ----------------------------------------------------------------------------------------


def sugared(computation: Computation) -> bool:
    """Whether an asynchronous operation around this computation can be printed short without loss."""
    root = computation.root
    *parameters, last = computation.instructions
    return (
        _NAMES.fullmatch(computation.name) is not None
        and last is root
        and root.name == "async_op"
        and tuple(parameters) == root.operands
        and root.opcode not in _NOT_WRAPPED
        and root.opcode not in ("parameter", "constant")
        and root.annotations is NO_ANNOTATIONS
        and not root.control_predecessors
        and all(
            p.opcode == "parameter" and p.annotations is NO_ANNOTATIONS and _is_nth(p, number)
            for number, p in enumerate(parameters)
        )
    )


def _is_nth(parameter: Instruction, number: int) -> bool:
    name = "async_param" + (f".{number}" if number else "")
    return parameter.op.number == number and parameter.name == name  # pyright: ignore


def wrapped_computation(instruction: Instruction) -> Computation | None:
    """What an asynchronous instruction runs, found at its start; None where the start is out of sight."""
    while instruction.opcode != "async-start":
        if not instruction.operands or instruction.opcode not in ("async-update", "async-done"):
            return None
        instruction = instruction.operands[0]
    return instruction.op.called_computations[0]
