"""Packing: operands of a matrix product, from wherever they lie in memory, into the panels that micro-kernels read.

The left operand is packed row after row with k running fastest; the right one in slivers as wide as a tile, with
columns running fastest. Elements are converted to the engine's packed type on the way.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from xlakit.cpu.kernels.gemm_engine import Engine, stored_as_packed, to_packed
from xlakit.cpu.kernels.gemm_micro import NO_UNROLL
from xlakit.cpu.llvm import I16, I32, I64, Function, Loop, Module, Value, vector
from xlakit.cpu.scalars.memory import memory_type
from xlakit.data.primitive import PrimitiveType

# Distances of so many runs of k are looked up at most.
_LONGEST_TABLE = 4096

# Emits the loading of an element: row or column, and step of k. Gives it as it is stored (parts of a complex one).
Load = Callable[[Function, Value, Value], "tuple[Value, ...]"]


@dataclass(frozen=True, slots=True)
class Steps:
    """A direction through an array: (size, stride) for each dimension, the last running fastest."""

    dims: tuple[tuple[int, int], ...]

    @property
    def size(self) -> int:
        """How many elements there are in this direction."""
        return math.prod(size for size, _ in self.dims)

    @property
    def run(self) -> int:
        """How many of them lie at the same distance from one another."""
        return self.dims[-1][0] if self.dims else 1

    @property
    def stride(self) -> int:
        """That distance."""
        return self.dims[-1][1] if self.dims else 0

    @property
    def outer(self) -> Steps:
        """The direction from run to run."""
        return Steps(self.dims[:-1])

    def offset(self, fn: Function, index: Value) -> Value:
        """The distance of an element from the first."""
        total = fn.i64(0)
        for position, (size, stride) in reversed(list(enumerate(self.dims))):
            last = position == 0
            total = total + (index if last else index.integer("urem", size)) * stride
            index = index if last else index.integer("udiv", size)
        return total


@dataclass(frozen=True, slots=True)
class Matrix:
    """An operand: the type of its elements, its direction along rows or columns, and that along k.

    first: where its first element is. in_place: it is small for what is read of it, as elements are read again and
    again (windows over an array), and packing would make it large.
    """

    kind: PrimitiveType
    across: Steps
    along: Steps
    load: Load | None = None
    first: int = 0
    in_place: bool = False


@dataclass(slots=True)
class Block:
    """Part of k: ``runs`` runs from run ``run`` on, of each ``steps`` steps from ``step`` on."""

    run: Value
    runs: Value | int
    step: Value
    steps: Value | int


def _table(module: Module, steps: Steps) -> str:
    """The distances along a direction as constants of the module; gives their name."""
    offsets = np.zeros(1, dtype=np.int64)
    for size, stride in steps.dims:
        offsets = (offsets[:, None] + np.arange(size, dtype=np.int64) * stride).ravel()
    name = "_".join(["offsets", *(f"{size}x{stride}" for size, stride in steps.dims)]).replace("-", "m")
    return module.shared_data(name, offsets.tobytes())


def joined(steps: Steps) -> Steps:
    """The same direction with neighbouring dimensions made one where they lie evenly."""
    dims: list[tuple[int, int]] = []
    for size, stride in steps.dims:
        if dims and dims[-1][1] == size * stride:
            dims[-1] = (dims[-1][0] * size, stride)
        elif size != 1:
            dims.append((size, stride))
    return Steps(tuple(dims))


@dataclass(slots=True)
class Packer:
    """Packs one operand in one function."""

    fn: Function
    engine: Engine
    matrix: Matrix
    base: Value
    result: PrimitiveType

    # -- elements --------------------------------------------------------------------------------

    def packed(self, stored: Value) -> Value:
        """A part of an element as it is packed."""
        if stored_as_packed(self.engine, self.matrix.kind):
            return stored
        return to_packed(self.fn, self.engine, self.matrix.kind, self.result, stored)

    def elements(self, offset: Value, count: int) -> list[Value]:
        """The parts of ``count`` elements that lie one after another."""
        fn, kind = self.fn, self.matrix.kind
        type = memory_type(kind)
        if kind.is_complex:
            pairs = fn.load(vector(type, 2 * count), fn.at(self.base, type, offset * 2), align=type.bytes)
            if count == 1:
                return [self.packed(fn.lane(pairs, part)) for part in (0, 1)]
            return [self.packed(fn.shuffle(pairs, pairs, range(part, 2 * count, 2))) for part in (0, 1)]
        found = [self.packed(fn.load(vector(type, count), fn.at(self.base, type, offset), align=type.bytes))]
        if self.engine.parts == 2:
            found.append(fn.constant(found[0].type, 0))
        return found

    def element(self, across: Value, run: Value, step: Value) -> list[Value]:
        """The parts of one element."""
        matrix = self.matrix
        if matrix.load is not None:
            k = run * matrix.along.run + step
            found = [self.packed(stored) for stored in matrix.load(self.fn, across, k)]
            if len(found) < self.engine.parts:
                found.append(self.fn.constant(found[0].type, 0))
            return found
        offset = self.across(across) + self.runs(run) + step * matrix.along.stride
        return self.elements(offset, 1)

    def across(self, index: Value) -> Value:
        """How far a row or column is from the first."""
        return self.matrix.across.offset(self.fn, index)

    def runs(self, run: Value) -> Value:
        """How far a run of k is from the first."""
        outer = joined(self.matrix.along.outer)
        if len(outer.dims) > 1 and outer.size <= _LONGEST_TABLE and run.constant is None:
            # Looked up: divisions would take as long as short runs do.
            fn = self.fn
            return fn.load(I64, fn.at(fn.address(_table(fn.module, outer)), I64, run), invariant=True)
        return outer.offset(self.fn, run)

    @property
    def along_is_contiguous(self) -> bool:
        """Whether steps of k are neighbours in memory."""
        along = self.matrix.along
        return self.matrix.load is None and (along.stride == 1 or along.run == 1)

    def across_is_contiguous(self, width: int) -> bool:
        """Whether ``width`` rows or columns, from a multiple of it on, are neighbours in memory."""
        across = self.matrix.across
        return (
            self.matrix.load is None
            and (across.stride == 1 or across.run == 1)
            and (len(across.dims) <= 1 or across.run % width == 0)
        )


# -- the left operand ----------------------------------------------------------------------------


def pack_rows(packer: Packer, target: Value, length: int, first: Value, rows: Value, block: Block) -> None:
    """Pack ``rows`` rows from ``first`` on; they stand ``length`` elements apart in ``target``."""
    fn, engine = packer.fn, packer.engine
    parts = engine.parts
    lanes = engine.lanes
    if not packer.along_is_contiguous and packer.across_is_contiguous(lanes) and parts == 1:
        _pack_rows_across(packer, target, length, first, rows, block)
        return
    with fn.loop(0, rows, hints=NO_UNROLL) as row:
        own = fn.at(target, engine.packed, row.index * (length * parts))
        if engine.group == 2 and not (isinstance(block.steps, int) and block.steps % 2 == 0):
            count = _steps(fn, block)
            # An odd last step is paired with nothing.
            fn.store(fn.constant(engine.packed, 0), fn.at(own, engine.packed, count))
        base = (
            None if packer.matrix.load else packer.across(first + row.index) + block.step * packer.matrix.along.stride
        )
        with fn.loop(0, block.runs, hints=NO_UNROLL) as run:
            start = None if base is None else base + packer.runs(block.run + run.index)
            into = run.index * block.steps
            with fn.loop(0, block.steps, independent=True) as step:
                if start is None:
                    found = packer.element(first + row.index, block.run + run.index, block.step + step.index)
                else:
                    found = packer.elements(start + step.index * packer.matrix.along.stride, 1)
                place = fn.at(own, engine.packed, (into + step.index) * parts)
                for part, value in enumerate(found):
                    fn.store(value, fn.at(place, engine.packed, part))


def _pack_rows_across(packer: Packer, target: Value, length: int, first: Value, rows: Value, block: Block) -> None:
    """Pack rows that are neighbours in memory: squares are turned in registers."""
    fn, engine = packer.fn, packer.engine
    lanes, group, stride = engine.lanes, engine.group, packer.matrix.along.stride
    steps = fn.i64(block.steps) if isinstance(block.steps, int) else block.steps
    whole_rows, whole_steps = rows & -lanes, steps & -(lanes * group)
    with fn.loop(0, block.runs, hints=NO_UNROLL) as run:
        base = packer.runs(block.run + run.index) + block.step * stride
        into = run.index * steps

        def place(row: Value, step: Value) -> Value:
            return fn.at(target, engine.packed, row * length + into + step)

        with fn.loop(0, whole_rows, lanes, hints=NO_UNROLL) as row:
            start = packer.across(first + row.index) + base

            def column(step: Value, start: Value = start) -> Value:
                return packer.elements(start + step * stride, lanes)[0]

            with fn.loop(0, whole_steps, lanes * group, hints=NO_UNROLL) as step:
                if group == 2:
                    square = [
                        paired(fn, column(step.index + k), column(step.index + (k + 1))) for k in range(0, 2 * lanes, 2)
                    ]
                else:
                    square = [column(step.index + k) for k in range(lanes)]
                for k, value in enumerate(transposed(fn, square)):
                    fn.store(value, place(row.index + k, step.index), align=engine.packed.bytes)
            with fn.loop(whole_steps, steps, hints=NO_UNROLL) as step:
                value = column(step.index)
                for k in range(lanes):
                    fn.store(fn.lane(value, k), place(row.index + k, step.index))
        with fn.loop(whole_rows, rows, hints=NO_UNROLL) as row, fn.loop(0, steps, hints=NO_UNROLL) as step:
            value = packer.elements(packer.across(first + row.index) + base + step.index * stride, 1)[0]
            fn.store(value, place(row.index, step.index))
    if group == 2 and not (isinstance(block.steps, int) and block.steps % 2 == 0):
        with fn.loop(0, rows, hints=NO_UNROLL) as row:
            own = row.index * length + _steps(fn, block)
            fn.store(fn.constant(engine.packed, 0), fn.at(target, engine.packed, own))


# -- the right operand ---------------------------------------------------------------------------


def pack_slivers(
    packer: Packer, target: Value, distance: int, first: Value, slivers: Value | int, width: int, block: Block
) -> None:
    """Pack columns from ``first`` on into slivers, ``distance`` elements apart, of ``width`` columns of a tile each."""
    fn = packer.fn
    along = joined(packer.matrix.along)
    if packer.matrix.load is None and len(along.dims) <= 1 < len(packer.matrix.along.dims):
        # Runs of k that follow on one another in this operand are one run.
        run = packer.matrix.along.run
        packer = replace(packer, matrix=replace(packer.matrix, along=along))
        block = Block(fn.i64(0), 1, block.run * run + block.step, times(fn, block.runs, block.steps))
    if packer.across_is_contiguous(packer.engine.columns):
        _pack_across(packer, target, distance, first, slivers, width, block)
        return
    with fn.loop(0, slivers, hints=NO_UNROLL) as sliver:
        own = fn.at(target, packer.engine.packed, sliver.index * distance)
        column = first + sliver.index * packer.engine.columns
        if packer.along_is_contiguous and packer.engine.parts == 1 and len(packer.matrix.across.dims) <= 1:
            _pack_along(packer, own, column, width, block)
        else:
            _pack_singly(packer, own, column, width, block)


def _pack_across(
    packer: Packer, target: Value, distance: int, first: Value, slivers: Value | int, width: int, block: Block
) -> None:
    """Rows of k one after another, each for all slivers, as they lie in memory."""
    fn, engine = packer.fn, packer.engine
    columns, group, parts = engine.columns, engine.group, engine.parts
    stride = packer.matrix.along.stride
    steps = fn.i64(block.steps) if isinstance(block.steps, int) else block.steps

    def rows(run: Loop, begin: Value | int, end: Value | int, *, odd: bool = False) -> None:
        base = packer.runs(block.run + run.index) + block.step * stride
        with fn.loop(begin, end, hints=NO_UNROLL) as step, fn.loop(0, slivers, hints=NO_UNROLL) as sliver:
            start = packer.across(first + sliver.index * columns) + base

            def row(number: Value) -> list[Value]:
                return [_widened(fn, v, columns) for v in packer.elements(start + number * stride, width)]

            own = fn.at(target, engine.packed, sliver.index * distance + run.index * steps * (columns * parts))
            if group == 2:
                low = row(step.index * 2)[0]
                high = fn.constant(low.type, 0) if odd else row(step.index * 2 + 1)[0]
                _store_pairs(fn, own, step.index, (low, high))
                return
            for part, value in enumerate(row(step.index)):
                place = (step.index * parts + part) * columns
                fn.store(value, fn.at(own, engine.packed, place), align=engine.packed.bytes)

    with fn.loop(0, block.runs, hints=NO_UNROLL) as run:
        if group == 1:
            rows(run, 0, steps)
            return
        rows(run, 0, steps >> 1)
        if not (isinstance(block.steps, int) and block.steps % 2 == 0):
            rows(run, steps >> 1, (steps + 1) >> 1, odd=True)


def _store_pairs(fn: Function, target: Value, pair: Value, both: tuple[Value, Value]) -> None:
    lanes = both[0].type.lanes
    fn.store(paired(fn, *both), fn.at(target, I16, pair * (2 * lanes)), align=2)


def _pack_along(packer: Packer, target: Value, first: Value, width: int, block: Block) -> None:
    """Columns whose steps of k are neighbours in memory: squares are turned in registers."""
    fn, engine = packer.fn, packer.engine
    columns, group, lanes = engine.columns, engine.group, engine.lanes
    # A step of the loops takes ``group`` steps of k; pairs of 16 bits move as 32.
    unit = I32 if group == 2 else engine.packed
    steps = fn.i64(block.steps) if isinstance(block.steps, int) else block.steps
    whole = (steps >> 1) & -lanes if group == 2 else steps & -lanes
    stride = packer.matrix.across.stride
    with fn.loop(0, block.runs, hints=NO_UNROLL) as run:
        start = packer.across(first) + packer.runs(block.run + run.index) + block.step
        own = fn.at(target, engine.packed, run.index * steps * columns)
        with (
            fn.loop(0, -(-width // lanes) * lanes, lanes, hints=NO_UNROLL) as column,
            fn.loop(0, whole, lanes, hints=NO_UNROLL) as step,
        ):
            square: list[Value] = []
            for c in range(lanes):
                number = column.index + c
                if width % lanes:
                    # Beyond the last column it is read again.
                    number = fn.intrinsic("llvm.smin", I64, number, fn.i64(width - 1))
                square.append(packer.elements(start + number * stride + step.index * group, lanes * group)[0])
            if group == 2:
                square = [v.bits_as(vector(I32, lanes)) for v in square]
            for k, value in enumerate(transposed(fn, square)):
                place = fn.at(own, unit, (step.index + k) * columns + column.index)
                fn.store(value, place, align=engine.packed.bytes)
        with fn.loop(whole * group, steps, hints=NO_UNROLL) as step, fn.loop(0, width, hints=NO_UNROLL) as column:
            value = packer.elements(start + column.index * stride + step.index, 1)[0]
            fn.store(value, _place(fn, engine, own, step.index, column.index))
        _pad_pair(packer, own, steps, block)


def _pack_singly(packer: Packer, target: Value, first: Value, width: int, block: Block) -> None:
    fn, engine = packer.fn, packer.engine
    steps = fn.i64(block.steps) if isinstance(block.steps, int) else block.steps
    with fn.loop(0, block.runs, hints=NO_UNROLL) as run:
        own = fn.at(target, engine.packed, run.index * steps * (engine.columns * engine.parts))
        with fn.loop(0, width, hints=NO_UNROLL) as column, fn.loop(0, steps, independent=True) as step:
            found = packer.element(first + column.index, block.run + run.index, block.step + step.index)
            for part, value in enumerate(found):
                fn.store(value, _place(fn, engine, own, step.index, column.index, part))
        _pad_pair(packer, own, steps, block)


def _pad_pair(packer: Packer, own: Value, steps: Value, block: Block) -> None:
    """An odd last step of k is paired with zeros."""
    fn, engine = packer.fn, packer.engine
    if engine.group == 1 or (isinstance(block.steps, int) and block.steps % 2 == 0):
        return
    with fn.if_((steps & 1).ne(0)), fn.loop(0, engine.columns) as column:
        fn.store(fn.constant(engine.packed, 0), _place(fn, engine, own, steps, column.index))


def _place(fn: Function, engine: Engine, own: Value, step: Value, column: Value, part: int = 0) -> Value:
    """Where an element stands in a sliver."""
    if engine.group == 2:
        return fn.at(own, engine.packed, (step >> 1) * (2 * engine.columns) + column * 2 + (step & 1))
    return fn.at(own, engine.packed, (step * engine.parts + part) * engine.columns + column)


# -- helpers -------------------------------------------------------------------------------------


def transposed(fn: Function, rows: Sequence[Value]) -> list[Value]:
    """The transpose of a square of lanes, by turning squares of squares."""
    square, size = list(rows), len(rows)
    half = 1
    while half < size:
        for i in range(size):
            if i & half:
                continue
            a, b = square[i], square[i + half]
            low = [lane if not lane & half else size + lane - half for lane in range(size)]
            high = [lane + half if not lane & half else size + lane for lane in range(size)]
            square[i], square[i + half] = fn.shuffle(a, b, low), fn.shuffle(a, b, high)
        half *= 2
    return square


def _widened(fn: Function, value: Value, lanes: int) -> Value:
    """The vector with zeros after its lanes."""
    count = value.type.lanes
    if count == lanes:
        return value
    if count == 1:
        return fn.with_lane(fn.constant(vector(value.type, lanes), 0), 0, value)
    return fn.shuffle(value, fn.constant(value.type, 0), [*range(count), *[count] * (lanes - count)])


def paired(fn: Function, a: Value, b: Value) -> Value:
    """Lanes of two vectors of I16 side by side; each pair moves as one I32 from here on."""
    lanes = a.type.lanes
    mixed = fn.shuffle(a, b, [n for lane in range(lanes) for n in (lane, lane + lanes)])
    return mixed.bits_as(vector(I32, lanes))


def times(fn: Function, a: Value | int, b: Value | int) -> Value | int:
    """A product, known now where both numbers are."""
    if isinstance(a, int):
        return a * b if isinstance(b, int) else b * a
    return a * b


def _steps(fn: Function, block: Block) -> Value:
    """How many steps of k a block has."""
    found = times(fn, block.runs, block.steps)
    return fn.i64(found) if isinstance(found, int) else found
