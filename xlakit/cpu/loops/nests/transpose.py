"""Transposition of a small block of memory, in registers."""

from __future__ import annotations

from collections.abc import Sequence

from xlakit.cpu.llvm import I64, PTR, VOID, Effort, Function, Module, Type, Value, integer, vector
from xlakit.cpu.llvm.promises import NO_INLINE

# Registers of any width consist of 128-bit lanes.
_LANE_BYTES = 16
# The elements along a side of square blocks, by the bytes of an element.
_SQUARE = {1: 16, 2: 8, 4: 8, 8: 4}


def block_transposer(module: Module, width: int) -> Function:
    """``void(ptr source, i64 source_stride, ptr target, i64 target_stride, i64 rows, i64 columns)``.

    Copies element (row, column) of the source to (column, row) of the target. The strides (of rows in the source, of
    columns in the target) count elements of ``width`` bytes. Source and target may not overlap.
    """
    name = f"transpose_block_{8 * width}"
    if name in module.functions:
        return module.functions[name]
    fn = module.function(name, VOID, [PTR, I64, PTR, I64, I64, I64], attributes=[NO_INLINE])
    fn.effort = Effort.CODE
    fn.never_overlap(0, 2)
    square = _SQUARE.get(width)
    if square is None:
        _by_elements(fn, width)
    else:
        rows, columns = fn.parameters[4:]
        is_large = (rows >= square) & (columns >= square)
        fn.if_else(is_large, lambda: _by_squares(fn, width, square), lambda: _by_elements(fn, width))
    return fn


def _by_elements(fn: Function, width: int) -> None:
    source, source_stride, target, target_stride, rows, columns = fn.parameters
    type = integer(8 * width) if width <= 8 else vector(I64, width // 8)
    with fn.loop(0, columns) as column, fn.loop(0, rows) as row:
        read = fn.at(source, type, row.index * source_stride + column.index)
        written = fn.at(target, type, column.index * target_stride + row.index)
        fn.store(fn.load(type, read), written)


def _by_squares(fn: Function, width: int, square: int) -> None:
    """If sizes are no multiples, the last squares of a row or a column overlap those before them."""
    source, source_stride, target, target_stride, rows, columns = fn.parameters
    element = integer(8 * width)
    row_type = vector(element, square)
    with fn.loop(0, rows, square) as down:
        row = down.index.smin(rows - square)
        with fn.loop(0, columns, square) as along:
            column = along.index.smin(columns - square)
            read = fn.at(source, element, row * source_stride + column)
            written = fn.at(target, element, column * target_stride + row)
            loaded: list[Value] = []
            for _ in range(square):
                loaded.append(fn.load(row_type, read))
                read = fn.at(read, element, source_stride)
            for made in transposed(fn, loaded):
                fn.store(made, written)
                written = fn.at(written, element, target_stride)


def transposed(fn: Function, rows: Sequence[Value]) -> list[Value]:
    """The columns of a square matrix that is given by its rows, each a vector of one or two 128-bit lanes."""
    square = len(rows)
    lane = min(square, _LANE_BYTES // rows[0].type.element.bytes)
    groups = [_transposed_lanes(fn, rows[first : first + lane], lane) for first in range(0, square, lane)]
    if len(groups) == 1:
        return groups[0]
    low, high = groups
    halves = [list(range(start, start + lane)) for start in (0, lane)]
    return [
        fn.shuffle(a, b, [*half, *(square + n for n in half)])
        for half in halves
        for a, b in zip(low, high, strict=True)
    ]


def _transposed_lanes(fn: Function, rows: Sequence[Value], lane: int) -> list[Value]:
    """Within each lane, the columns of the square of which the rows are there.

    Interleaving the first half of the rows with the second half rotates the bits of an element's position by one; after
    as many times as a row number has bits, rows and columns are exchanged.
    """
    found = list(rows)
    for _ in range(lane.bit_length() - 1):
        half = len(found) // 2
        pairs = list(zip(found[:half], found[half:], strict=True))
        found = [fn.shuffle(a, b, _interleaving(a.type, lane, part)) for a, b in pairs for part in (0, 1)]
    return found


def _interleaving(type: Type, lane: int, part: int) -> list[int]:
    """Elements of two vectors alternately, from the lower or the upper half of each lane."""
    positions = [start + part * lane // 2 + n for start in range(0, type.lanes, lane) for n in range(lane // 2)]
    return [position + other for position in positions for other in (0, type.lanes)]
