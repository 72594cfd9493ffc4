"""Concatenations and pads of unchanged arrays: runs of memory are copied, vectors of elements are spread."""

from __future__ import annotations

import math
from collections.abc import Mapping

from xlakit.cpu.llvm import I8, Function, Module, Type, Value, integer
from xlakit.cpu.loops.emit.kernel import Phase, task_function
from xlakit.dataclass import dataclass
from xlakit.ir.instruction import Computation, Instruction
from xlakit.ops.data import Constant
from xlakit.ops.movement import Concatenate, Pad, Reshape
from xlakit.options import knob, times
from xlakit.passes.analysis.cost_model import cost_model
from xlakit.target import vector_bytes

# Shorter runs (in bytes) are left to a loop that can write several at once.
_SHORT_ROW = knob("pieces.short_row", 32, 1, 1000)
_TASK_BYTES = knob("pieces.task_bytes", 1 << 16, 64, 192, tries=(times(0.25), times(4)))
# Cycles to begin a piece, and to copy a byte of it.
_PIECE_CYCLES = 8.0
_BYTE_CYCLES = 0.5


@dataclass(frozen=True, slots=True)
class _Piece:
    """One operand: its array, the bytes of a run, and the position of the run in a row of the result."""

    array: int
    bytes: int
    offset: int


def emit_pieces(module: Module, name: str, computation: Computation) -> Phase | None:
    """The kernel of a concatenation of parameters; None for other computations."""
    root = computation.root
    arrays = {parameter: number for number, parameter in enumerate(computation.parameters)}
    if not isinstance(root.op, Concatenate) or any(_stored(o) not in arrays for o in root.operands):
        return None
    pieces = _pieces(root, root.op.dimension, arrays)
    row = sum(p.bytes for p in pieces)
    rows = math.prod(root.shape.dimensions[: root.op.dimension])
    if row < _SHORT_ROW.value:
        return None
    fn, emitter, begin, end = task_function(module, name, len(arrays) + 1)
    if rows == 1:
        tasks = _write_long(fn, emitter.arrays, pieces, begin, end)
    else:
        tasks = _write_rows(fn, emitter.arrays, pieces, (rows, row), begin, end)
    return Phase(fn.name, tasks, cost_model().cycles(rows * (row * _BYTE_CYCLES + len(pieces) * _PIECE_CYCLES)))


def _stored(instruction: Instruction) -> Instruction:
    """The operand of reshapes."""
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
    """Write rows that have a run from each operand; a task is some rows."""
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
    """Write one run from each operand; a task is a part of one run."""
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


# The most results for each element of a vector that is spread; with larger steps, most written elements are padding.
_MOST_STEP = knob("spread.most_step", 4, 1)
_SPREAD_TASK_BYTES = knob("spread.task_bytes", 1 << 16, 64, 192, tries=(times(0.25), times(4)))


@dataclass(frozen=True, slots=True)
class _Spread:
    """A pad between the elements of each row of a parameter, and before and behind the row.

    before: the elements of a row but the last one, each of which ``step - 1`` padding elements follow. lanes: the
    elements of a vector that is spread. width: of a row of the result.
    """

    operand: Instruction
    value: Instruction
    kind: Type
    step: int
    low: int
    high: int
    rows: int
    before: int
    width: int
    lanes: int


def _spread_of(root: Instruction, arrays: Mapping[Instruction, int]) -> _Spread | None:
    """The pad between elements that an instruction is; None of any other, and where vectors gain nothing."""
    if not isinstance(root.op, Pad) or not root.op.padding or root.operands[0] not in arrays:
        return None
    operand, value = root.operands
    types = {root.shape.element_type, operand.shape.element_type, value.shape.element_type}
    if len(types) > 1 or root.shape.element_type.bit_width not in (8, 16, 32, 64):
        return None
    *outer, own = root.op.padding
    step, low, high = own.interior_padding + 1, own.edge_padding_low, own.edge_padding_high
    before = operand.shape.dimensions[-1] - 1
    rows, width = math.prod(root.shape.dimensions[:-1]), root.shape.dimensions[-1]
    is_plain = not any(p.edge_padding_low or p.edge_padding_high or p.interior_padding for p in outer)
    kind = integer(root.shape.element_type.bit_width)
    lanes = min(vector_bytes() // kind.bytes, 1 << max(0, before.bit_length() - 1))
    if not is_plain or not 1 < step <= _MOST_STEP.value or min(low, high) < 0 or not rows or lanes < 2 or before < 1:
        return None
    if value not in arrays and not isinstance(value.op, Constant):
        return None
    return _Spread(operand, value, kind, step, low, high, rows, before, width, lanes)


def emit_spread(module: Module, name: str, computation: Computation) -> Phase | None:
    """The kernel of a pad of a parameter between the elements of its rows; None for other computations."""
    arrays = {parameter: number for number, parameter in enumerate(computation.parameters)}
    spread = _spread_of(computation.root, arrays)
    if spread is None:
        return None
    kind, value, step, low, before = spread.kind, spread.value, spread.step, spread.low, spread.before
    rows, width, lanes = spread.rows, spread.width, spread.lanes
    # A task is some rows or, of a single row, a part in whole vectors.
    most = rows if rows > 1 else before // lanes
    tasks = max(1, min(most, rows * width * kind.bytes // _SPREAD_TASK_BYTES.value))
    fn, emitter, begin, end = task_function(module, name, len(arrays) + 1)
    source, target = emitter.arrays[arrays[spread.operand]], emitter.arrays[-1]
    if isinstance(value.op, Constant):
        between = fn.constant(kind, int.from_bytes(value.op.literal.to_numpy().tobytes(), "little"))
    else:
        between = fn.load(kind, emitter.arrays[arrays[value]])
    order = [lane // step if lane % step == 0 else lanes for lane in range(lanes * step)]
    filled = fn.splat(between, lanes)

    def fill(start: Value, first: int, count: int) -> None:
        with fn.loop(first, first + count, independent=True) as each:
            fn.store(between, fn.at(start, kind, each.index))

    def copy(elements: Value, results: Value, first: Value | int, last: Value | int) -> None:
        with fn.loop(first, last, lanes) as block:
            # The last vector may begin with elements of the vector before.
            number = block.index.smin(last - lanes)
            loaded = fn.load(filled.type, fn.at(elements, kind, number), align=kind.bytes)
            there = fn.at(results, kind, number * step + low)
            fn.store(fn.shuffle(loaded, filled, order), there, align=kind.bytes)

    def end_row(elements: Value, results: Value) -> None:
        fn.store(fn.load(kind, fn.at(elements, kind, before)), fn.at(results, kind, before * step + low))
        fill(results, before * step + low + 1, spread.high)

    if rows == 1:
        with fn.if_(begin.eq(0)):
            fill(target, 0, low)
        copy(source, target, *((bound * before).integer("udiv", tasks) for bound in (begin, end)))
        with fn.if_(end.eq(tasks)):
            end_row(source, target)
    else:
        first, last = ((bound * rows).integer("udiv", tasks) for bound in (begin, end))
        with fn.loop(first, last) as row:
            elements, results = (
                fn.at(source, kind, row.index * (before + 1)),
                fn.at(target, kind, row.index * width),
            )
            fill(results, 0, low)
            copy(elements, results, 0, before)
            end_row(elements, results)
    return Phase(fn.name, tasks, cost_model().cycles(rows * width * kind.bytes * 4 / vector_bytes()))
