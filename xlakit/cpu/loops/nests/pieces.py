"""Concatenations of arrays as they are: runs of bytes, copied."""

from __future__ import annotations

import math

from xlakit.cpu.llvm import I8, Function, Module, Value
from xlakit.cpu.loops.emit.kernel import Phase, task_function
from xlakit.dataclass import dataclass
from xlakit.ir.instruction import Computation, Instruction
from xlakit.ops.movement import Concatenate, Reshape
from xlakit.options import knob, times
from xlakit.passes.analysis.cost_model import cost_model

# Runs of fewer bytes are left to a loop that can write several at once.
_SHORT_ROW = knob("pieces.short_row", 32, 1, 1000)
_TASK_BYTES = knob("pieces.task_bytes", 1 << 16, 64, 192, tries=(times(0.25), times(4)))
# Cycles in which a piece is begun, and a byte of it copied.
_PIECE_CYCLES = 8.0
_BYTE_CYCLES = 0.5


@dataclass(frozen=True, slots=True)
class _Piece:
    """One operand: its array, the bytes of a run, and where the run stands in a row of the result."""

    array: int
    bytes: int
    offset: int


def emit_pieces(module: Module, name: str, computation: Computation) -> Phase | None:
    """The kernel of a concatenation of parameters; None where the computation is something else."""
    root = computation.root
    arrays = {parameter: number for number, parameter in enumerate(computation.parameters)}
    if not isinstance(root.op, Concatenate) or any(_stored(o) not in arrays for o in root.operands):
        return None
    pieces = _pieces(root, root.op.dimension, arrays)
    row = sum(p.bytes for p in pieces)
    rows = math.prod(root.shape.dimensions[: root.op.dimension])
    if row < _SHORT_ROW.value:
        return None
    with task_function(module, name, len(arrays) + 1) as (fn, emitter, begin, end):
        if rows == 1:
            tasks = _write_long(fn, emitter.arrays, pieces, begin, end)
        else:
            tasks = _write_rows(fn, emitter.arrays, pieces, (rows, row), begin, end)
    return Phase(fn.name, tasks, cost_model().cycles(rows * (row * _BYTE_CYCLES + len(pieces) * _PIECE_CYCLES)))


def _stored(instruction: Instruction) -> Instruction:
    """What a reshape gives another shape to."""
    while isinstance(instruction.op, Reshape):
        instruction = instruction.operands[0]
    return instruction


def _pieces(root: Instruction, dimension: int, arrays: dict[Instruction, int]) -> list[_Piece]:
    found: list[_Piece] = []
    offset = 0
    for operand in root.operands:
        size = math.prod(operand.shape.dimensions[dimension:]) * operand.shape.element_type.byte_width
        if size:
            found.append(_Piece(arrays[_stored(operand)], size, offset))
        offset += size
    return found


def _write_rows(
    fn: Function, arrays: list[Value], pieces: list[_Piece], sizes: tuple[int, int], begin: Value, end: Value
) -> int:
    """Rows of a run from each operand; a task is some rows."""
    rows, row = sizes
    tasks = max(1, min(rows, rows * row // _TASK_BYTES.value))
    first, last = ((bound * rows).integer("udiv", tasks) for bound in (begin, end))
    with fn.loop(first, last) as loop:
        target = fn.at(arrays[-1], I8, loop.index * row)
        for piece in pieces:
            source = fn.at(arrays[piece.array], I8, loop.index * piece.bytes)
            fn.copy(fn.at(target, I8, piece.offset), source, piece.bytes)
    return tasks


def _write_long(fn: Function, arrays: list[Value], pieces: list[_Piece], begin: Value, end: Value) -> int:
    """One run from each operand; a task is a part of one."""
    first = 0
    for piece in pieces:
        tasks = -(-piece.bytes // _TASK_BYTES.value)
        low, high = ((b - first).smax(0).smin(tasks) for b in (begin, end))
        with fn.if_(low < high):
            at = low * _TASK_BYTES.value
            after = (high * _TASK_BYTES.value).umin(piece.bytes)
            target = fn.at(arrays[-1], I8, at + piece.offset)
            fn.copy(target, fn.at(arrays[piece.array], I8, at), after - at)
        first += tasks
    return first
