"""Matrix products of any element types, from and to any strides: packed, blocked for the caches, tiled for registers.

The result is cut into units of rows, and columns into splits; a task is one unit of one split of one batch. Tasks that
follow one another on the same columns are done together, so that the right operand is packed once for all of them. Each
result is summed in the same order whoever computes it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

from xlakit.cpu.kernels.gemm_engine import Engine, acc_vector, choose_engine, stored_as_packed
from xlakit.cpu.kernels.gemm_micro import NO_UNROLL, Columns, Rows, Sums, flatten, multiply, shaped, zeros
from xlakit.cpu.kernels.gemm_pack import Block, Matrix, Packer, Steps, pack_rows, pack_slivers, times
from xlakit.cpu.kernels.gemm_store import Epilogue, Output, store_tile
from xlakit.cpu.kernels.scratch import acquire, release
from xlakit.cpu.llvm import I8, I64, PTR, VOID, Function, Loop, Module, Value
from xlakit.cpu.scalars.memory import memory_type
from xlakit.data.primitive import PrimitiveType

# A sliver of the right operand stays in the first cache, a block of the left one in the second, all slivers in the
# third; where they are too many for that, they are packed again for each block of rows, which is larger then.
_SLIVER_BYTES = 16 << 10
_BLOCK_BYTES = 192 << 10
_SLIVERS_BYTES = 4 << 20
_MOST_SLIVERS_BYTES = 16 << 20
_LARGE_BLOCK = 768
_MOST_COLUMNS = 512
# Fewer products than this are not worth a task of their own, and more tasks than this are of no use.
_TASK_PRODUCTS = 1 << 19
_MOST_TASKS = 8 * max(2, os.cpu_count() or 1)


@dataclass(frozen=True, slots=True)
class Product:
    """result[b, i, j] = sum over k of lhs[b, i, k] * rhs[b, k, j].

    The operands' directions along k have the same sizes. ``batches`` are the directions through the batches of lhs,
    rhs and result.
    """

    lhs: Matrix
    rhs: Matrix
    result: PrimitiveType
    rows: Steps
    columns: Steps
    batches: tuple[Steps, Steps, Steps] = (Steps(()), Steps(()), Steps(()))
    # Where in the result the first element goes, and where lhs, rhs and result stand in the table.
    first: int = 0
    arrays: tuple[int, int, int] = (0, 1, 2)

    @property
    def batch(self) -> int:
        """The number of products."""
        return self.batches[2].size

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Rows and columns of the result, and steps of k."""
        return self.rows.size, self.columns.size, self.lhs.along.size


@dataclass(frozen=True, slots=True)
class Blocking:
    """How a product is cut.

    steps: steps of k in a block; runs: runs of k in a block (then each is whole). unit: rows of a task; split: columns
    of a task; block: rows that are packed at a time. packs: which operands are packed; ahead: the right one all at
    once, before the first block of rows.
    """

    engine: Engine
    runs: int
    steps: int
    k_blocks: int
    unit: int
    units: int
    split: int
    splits: int
    block: int
    packs: tuple[bool, bool]
    ahead: bool

    @property
    def depth(self) -> int:
        """Steps of k in the largest block, padded to the engine's group."""
        return -(-self.runs * self.steps // self.engine.group) * self.engine.group


def plan_gemm(product: Product) -> Blocking:
    """How a product is cut, from its sizes, types and strides."""
    rows, columns, _ = product.sizes
    along = product.lhs.along
    engine = _fitted(choose_engine(product.lhs.kind, product.rhs.kind, product.result), rows, columns)
    if engine.group == 2 and along.size != along.run and along.run % 2:
        # Pairs of steps would straddle runs.
        engine = _fitted(replace(engine, name="i32", packed=engine.acc, group=1, rows=4), rows, columns)
    packs = _packs(engine, product)
    runs, steps, k_blocks = _cut_k(engine, along)
    if rows <= engine.rows and not packs[1]:
        # Nothing is read twice.
        runs, steps, k_blocks = along.outer.size, along.run, 1
    split = min(_up(max(columns, 1), engine.columns), _MOST_COLUMNS)
    if packs[1]:
        room = _SLIVERS_BYTES // max(1, k_blocks * runs * steps * engine.packed_bytes)
        split = min(split, max(room // engine.columns, 4) * engine.columns)
    wanted = min(_MOST_TASKS, product.batch * rows * columns * along.size // _TASK_PRODUCTS)
    each = -(-wanted // max(1, product.batch))
    splits = max(1, -(-columns // split))
    unit = max(1, rows)
    if each > splits:
        least = min(_up(rows, engine.rows), 16 * engine.rows)
        unit = max(least, _up(-(-rows * splits // each), engine.rows))
        units = -(-rows // unit)
        unit = _up(-(-rows // units), engine.rows)
        if units * splits < each:
            # Few rows: columns are divided further.
            narrower = _up(-(-columns * units // each), engine.columns)
            split = min(split, max(narrower, 8 * engine.columns))
            splits = -(-columns // split)
    units = max(1, -(-rows // unit))
    block = _BLOCK_BYTES // max(1, runs * steps * engine.packed_bytes) // engine.rows * engine.rows
    every = _up(max(rows, 1), engine.rows)
    block = min(max(block, 4 * engine.rows), every)
    ahead = rows > block
    slivers = min(split, _up(columns, engine.columns)) * engine.packed_bytes
    if ahead and k_blocks * runs * steps * slivers > _MOST_SLIVERS_BYTES:
        ahead, block = False, min(_up(_LARGE_BLOCK, engine.rows), every)
    return Blocking(engine, runs, steps, k_blocks, unit, units, split, splits, block, packs, ahead)


def _fitted(engine: Engine, rows: int, columns: int) -> Engine:
    """The engine with the tile that wastes least on small sizes."""
    vectors = max(1, min(engine.vectors, -(-columns // engine.lanes)))
    if rows * 2 <= engine.rows and engine.group == engine.parts == 1:
        # Few rows: more columns, so that enough sums are under way.
        wide = min(8 // max(1, rows), -(-columns // engine.lanes))
        return replace(engine, rows=max(1, rows), vectors=max(vectors, wide))
    most = engine.rows if vectors == engine.vectors else max(engine.rows, 8)
    if rows <= most:
        return replace(engine, rows=max(1, rows), vectors=vectors)
    # A tile of fewer than four rows takes as long as one of four.
    choices = range(max(2, most // 2), most + 1)
    best = min(choices, key=lambda r: (-(-rows // r) * (max(r, 4) + 0.5), -r))
    return replace(engine, rows=best, vectors=vectors)


def _cut_k(engine: Engine, along: Steps) -> tuple[int, int, int]:
    """Runs and steps of a block of k, and how many blocks there are."""
    runs, run = along.outer.size, along.run
    most = max(32, min(_SLIVER_BYTES // (engine.columns * engine.packed_bytes), 1024))
    if runs <= 1 or run > most:
        # Blocks of like size: a small last one would cost as much traffic as a large one.
        count = max(1, -(-4 * run // (5 * most)))
        steps = min(run, _up(-(-run // count), 8))
        return 1, steps, runs * (-(-run // steps) if run else 1)
    count = max(1, -(-4 * runs * run // (5 * most)))
    each = -(-runs // count)
    return each, run, -(-runs // each)


def _packs(engine: Engine, product: Product) -> tuple[bool, bool]:
    """Whether lhs and rhs are packed: where they are not what the engine reads, or would not stay in the caches."""
    rows, columns, depth = product.sizes
    lhs = product.lhs
    plain = engine.group == 1
    left = plain and lhs.load is None and stored_as_packed(engine, lhs.kind)
    if left and not (lhs.in_place and lhs.along.stride == 1) and columns > 2 * engine.columns:
        near = lhs.along.stride == 1 or lhs.along.run == 1
        left = rows * depth * engine.packed_bytes <= (_BLOCK_BYTES if near else _SLIVER_BYTES)
    return not left, not _is_read_in_place(engine, product)


def _is_read_in_place(engine: Engine, product: Product) -> bool:
    """Whether rhs is read as it lies: for a few rows, packing it would take longer than the product."""
    rows, columns, depth = product.sizes
    rhs, across = product.rhs, product.rhs.across
    if engine.group > 1 or engine.parts > 1 or rhs.load is not None or rhs.kind.is_complex:
        return False
    if len(across.dims) > 1:
        # Slivers one after the other are as packing would leave them.
        return across.stride == 1 and across.run == engine.columns and stored_as_packed(engine, rhs.kind)
    if not (across.stride == 1 or across.run == 1):
        return False
    if rhs.in_place:
        return True
    if stored_as_packed(engine, rhs.kind):
        return rows <= 2 * engine.rows or columns * depth * engine.packed_bytes <= _SLIVER_BYTES
    return rows <= engine.rows


def _up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple


def task_count(product: Product, blocking: Blocking) -> int:
    """How many tasks a product is; none where there is no result."""
    rows, columns, _ = product.sizes
    return product.batch * blocking.units * blocking.splits if rows * columns else 0


def emit_gemm(
    module: Module,
    product: Product,
    blocking: Blocking | None = None,
    *,
    name: str = "gemm",
    epilogue: Epilogue | None = None,
) -> Function:
    """A task function for a product; its table is lhs, rhs, result.

    ``epilogue(fn, i, j, sums)`` emits what is done with the sums of row ``i`` and the columns from ``j`` on (one
    for each lane) before they are rounded and stored.
    """
    cut = blocking or plan_gemm(product)
    fn = module.function(name, VOID, [PTR, I64, I64])
    if task_count(product, cut):
        _Emitter(fn, product, cut, epilogue).emit()
    fn.ret()
    return fn


class _Emitter:
    """Writes one task function."""

    def __init__(self, fn: Function, product: Product, cut: Blocking, epilogue: Epilogue | None) -> None:
        self.fn, self.product, self.cut, self.engine = fn, product, cut, cut.engine
        self.rows, self.columns, _ = product.sizes
        self.arrays = [fn.load(PTR, fn.at(fn.parameters[0], PTR, n), invariant=True) for n in product.arrays]
        self.epilogue = epilogue
        engine, tile = self.engine, self.engine.rows * self.engine.columns
        self.several = cut.k_blocks > 1
        slivers = -(-min(cut.split, self.columns) // engine.columns)
        self.sliver = cut.depth * engine.columns * engine.parts
        self.block_of_slivers = slivers * self.sliver
        self.ahead = cut.ahead
        right = self.block_of_slivers * (cut.k_blocks if self.ahead else 1)
        left = cut.block * cut.depth * engine.parts
        sums = slivers * (cut.block // engine.rows) * tile * engine.parts if self.several else 0
        sizes = [
            left * engine.packed.bytes if cut.packs[0] else 0,
            right * engine.packed.bytes if cut.packs[1] else 0,
            sums * engine.acc.bytes,
        ]
        # Packing may write a little past the end.
        self.places = [_up(sum(sizes[:n]), 64) + 128 * n for n in range(3)]
        self.bytes = self.places[2] + sizes[2] + 128 if any(sizes) else 0

    def emit(self) -> None:
        """The loop over tasks."""
        fn, cut = self.fn, self.cut
        _, begin, end = fn.parameters
        scratch = acquire(fn, self.bytes) if self.bytes else fn.null()
        left, right, sums = (fn.at(scratch, I8, place) for place in self.places)
        self.left, self.right, self.sums = left, right, sums
        with fn.while_([begin], lambda loop: loop.carried[0] < end) as loop:
            task = loop.carried[0]
            unit, rest = task.integer("urem", cut.units), task.integer("udiv", cut.units)
            split, batch = rest.integer("urem", cut.splits), rest.integer("udiv", cut.splits)
            count = smaller(fn, end - task, fn.i64(cut.units) - unit)
            first = unit * cut.unit
            last = smaller(fn, first + count * cut.unit, fn.i64(self.rows))
            self._part(batch, split * cut.split, first, last)
            loop.next(task + count)
        if self.bytes:
            release(fn, scratch)

    def _part(self, batch: Value, column: Value, first: Value, last: Value) -> None:
        """Rows from ``first`` below ``last`` of one split."""
        fn, cut, product = self.fn, self.cut, self.product
        bases: list[Value] = []
        kinds = (product.lhs.kind, product.rhs.kind, product.result)
        firsts = (product.lhs.first, product.rhs.first, product.first)
        for array, kind, steps, start in zip(self.arrays, kinds, product.batches, firsts, strict=True):
            offset = (steps.offset(fn, batch) + start) * (2 if kind.is_complex else 1)
            bases.append(fn.at(array, memory_type(kind), offset))
        self.lhs = Packer(fn, self.engine, product.lhs, bases[0], product.result)
        self.rhs = Packer(fn, self.engine, product.rhs, bases[1], product.result)
        epilogue = self.epilogue
        self.output = Output(product.result, product.rows, product.columns, bases[2], epilogue)
        self.column = column
        self.whole, self.slivers, self.tail = self._slivers()
        if cut.packs[1] and self.ahead:
            with self._k_blocks() as block:
                self._pack_right(block.index)
        with fn.loop(first, last, cut.block, hints=NO_UNROLL) as rows:
            self._rows(rows.index, smaller(fn, rows.index + cut.block, last))

    def _slivers(self) -> tuple[Value | int, Value, int]:
        """Whole slivers of the split; all of them; the columns of one that is not whole (in the last split only)."""
        fn, engine, cut = self.fn, self.engine, self.cut
        tail = self.columns % engine.columns
        if cut.splits == 1:
            return self.columns // engine.columns, fn.i64(-(-self.columns // engine.columns)), tail
        width = smaller(fn, fn.i64(self.columns) - self.column, fn.i64(cut.split))
        whole = width.integer("udiv", engine.columns)
        every = (width + (engine.columns - 1)).integer("udiv", engine.columns) if tail else whole
        return whole, every, tail

    def _k_blocks(self) -> AbstractContextManager[Loop]:
        return self.fn.loop(0, self.cut.k_blocks, hints=NO_UNROLL)

    def _block(self, number: Value) -> Block:
        """Block ``number`` of k."""
        fn, cut, along = self.fn, self.cut, self.product.lhs.along
        if not self.several:
            return Block(fn.i64(0), cut.runs, fn.i64(0), cut.steps)
        if cut.runs > 1 or cut.steps == along.run:
            run = number * cut.runs
            total = along.outer.size
            runs = cut.runs if total % cut.runs == 0 else smaller(fn, fn.i64(total) - run, fn.i64(cut.runs))
            return Block(run, runs, fn.i64(0), cut.steps)
        per_run = -(-along.run // cut.steps)
        step = number.integer("urem", per_run) * cut.steps
        even = along.run % cut.steps == 0
        steps = cut.steps if even else smaller(fn, fn.i64(along.run) - step, fn.i64(cut.steps))
        return Block(number.integer("udiv", per_run), 1, step, steps)

    # -- packing ---------------------------------------------------------------------------------

    def _pack_right(self, number: Value) -> None:
        fn, engine = self.fn, self.engine
        block = self._block(number)
        if not isinstance(self.whole, int) or self.whole > 0:
            place = self._packed_sliver(number, fn.i64(0))
            pack_slivers(self.rhs, place, self.sliver, self.column, self.whole, engine.columns, block)

        def tail() -> None:
            whole = self._whole
            place = self._packed_sliver(number, whole)
            pack_slivers(self.rhs, place, self.sliver, self.column + whole * engine.columns, 1, self.tail, block)

        self._for_tail(tail)

    def _packed_sliver(self, number: Value, sliver: Value) -> Value:
        start = number * self.block_of_slivers if self.ahead else self.fn.i64(0)
        return self.fn.at(self.right, self.engine.packed, start + sliver * self.sliver)

    @property
    def _whole(self) -> Value:
        return self.whole if isinstance(self.whole, Value) else self.fn.i64(self.whole)

    def _for_tail(self, emit: Callable[[], None]) -> None:
        """What is done for the columns that do not fill a sliver."""
        if not self.tail:
            return
        if self.cut.splits == 1:
            emit()
            return
        with self.fn.if_(self._whole.ne(self.slivers)):
            emit()

    # -- tiles -----------------------------------------------------------------------------------

    def _rows(self, first: Value, last: Value) -> None:
        """One block of rows: for each block of k pack, then multiply tile by tile."""
        fn, cut, engine = self.fn, self.cut, self.engine
        count = last - first
        tiles = (count + (engine.rows - 1)).integer("udiv", engine.rows)
        if self.several:
            size = engine.rows * engine.columns * engine.parts * engine.acc.bytes
            fn.fill(self.sums, 0, self.slivers * tiles * size)
        with self._k_blocks() as loop:
            block = self._block(loop.index)
            if cut.packs[1] and not self.ahead:
                self._pack_right(loop.index)
            if cut.packs[0]:
                pack_rows(self.lhs, self.left, cut.depth, first, count, block)

            def tile(sliver: Value, row: Value, width: int) -> None:
                sums = self._multiply(loop.index, block, sliver, first, row, last, width)
                if self.several:
                    self._keep(sums, sliver, row, tiles)
                else:
                    self._finish(sums, sliver, first, row, last, width)

            self._tiles(tiles, tile)
        if self.several:
            self._tiles(tiles, lambda s, r, w: self._finish(self._kept(s, r, tiles, w), s, first, r, last, w))

    def _tiles(self, tiles: Value, tile: Callable[[Value, Value, int], None]) -> None:
        fn, engine = self.fn, self.engine
        if not isinstance(self.whole, int) or self.whole > 0:
            with fn.loop(0, self.whole, hints=NO_UNROLL) as sliver, fn.loop(0, tiles, hints=NO_UNROLL) as row:
                tile(sliver.index, row.index, engine.columns)

        def tail() -> None:
            with fn.loop(0, tiles, hints=NO_UNROLL) as row:
                tile(self._whole, row.index, self.tail)

        self._for_tail(tail)

    def _width(self, width: int) -> int:
        """How many columns are computed: packed slivers are padded, so that registers are full."""
        return _up(width, self.engine.lanes) if self.cut.packs[1] else width

    def _multiply(
        self, number: Value, block: Block, sliver: Value, first: Value, tile: Value, last: Value, width: int
    ) -> Sums:
        fn, cut, engine = self.fn, self.cut, self.engine
        wide = self._width(width)
        linear = cut.packs[0] and cut.packs[1]
        runs, steps = block.runs, block.steps
        if linear:
            runs, steps = 1, times(fn, runs, steps)
        if engine.group == 2:
            steps = (steps + 1) // 2 if isinstance(steps, int) else (steps + 1) >> 1
        left = self._left(block, first, tile, last, linear=linear)
        right = self._right(number, block, sliver, linear=linear)
        sums = zeros(fn, engine, engine.rows, wide)
        return multiply(fn, engine, left, right, sums, runs, steps)

    def _left(self, block: Block, first: Value, tile: Value, last: Value, *, linear: bool) -> Rows:
        fn, cut, engine = self.fn, self.cut, self.engine
        if cut.packs[0]:
            start = fn.at(self.left, engine.packed, tile * (engine.rows * cut.depth * engine.parts))
            pointers = [fn.at(start, engine.packed, r * cut.depth * engine.parts) for r in range(engine.rows)]
            return Rows(pointers, 1, None if linear else lambda run: run * block.steps)
        along = self.product.lhs.along
        begin = block.step * along.stride
        pointers: list[Value] = []
        for r in range(engine.rows):
            row = first + tile * engine.rows + r
            if self._may_overrun:
                # Rows past the end are computed and not stored.
                row = smaller(fn, row, last - 1)
            offset = self.lhs.across(row) + begin
            pointers.append(fn.at(self.lhs.base, engine.packed, offset * engine.parts))
        return Rows(pointers, along.stride, lambda run: self.lhs.runs(block.run + run))

    @property
    def _may_overrun(self) -> bool:
        return self.rows % self.engine.rows != 0

    def _right(self, number: Value, block: Block, sliver: Value, *, linear: bool) -> Columns:
        fn, engine = self.fn, self.engine
        width = engine.columns
        if self.cut.packs[1]:
            place = self._packed_sliver(number, sliver)
            offset = None if linear else lambda run: run * block.steps * width
            return Columns(place, width, offset, width)
        along = self.product.rhs.along
        start = self.rhs.across(self.column + sliver * width) + block.step * along.stride
        stored = memory_type(self.product.rhs.kind)
        place = fn.at(self.rhs.base, stored, start)
        convert = None if stored_as_packed(engine, self.product.rhs.kind) else self.rhs.packed
        return Columns(place, along.stride, lambda run: self.rhs.runs(block.run + run), 0, stored, convert)

    # -- sums over several blocks of k -----------------------------------------------------------

    def _place_of(self, sliver: Value, tile: Value, tiles: Value) -> Value:
        size = self.engine.rows * self.engine.columns * self.engine.parts
        return self.fn.at(self.sums, self.engine.acc, (sliver * tiles + tile) * size)

    def _keep(self, sums: Sums, sliver: Value, tile: Value, tiles: Value) -> None:
        fn, engine = self.fn, self.engine
        place = self._place_of(sliver, tile, tiles)
        for number, value in enumerate(flatten(sums)):
            # The sums of each block by themselves, then added up: that loses fewer digits than one long sum.
            own = fn.at(place, acc_vector(engine), number)
            before = fn.load(value.type, own, align=engine.acc.bytes)
            fn.store(before + value, own, align=engine.acc.bytes)

    def _kept(self, sliver: Value, tile: Value, tiles: Value, width: int) -> Sums:
        fn, engine = self.fn, self.engine
        place = self._place_of(sliver, tile, tiles)
        like = flatten(zeros(fn, engine, engine.rows, self._width(width)))
        flat = [
            fn.load(value.type, fn.at(place, acc_vector(engine), number), align=engine.acc.bytes)
            for number, value in enumerate(like)
        ]
        return shaped(engine, flat, engine.rows)

    def _finish(self, sums: Sums, sliver: Value, first: Value, tile: Value, last: Value, width: int) -> None:
        row = first + tile * self.engine.rows
        count = last - row if self._may_overrun else None
        column = self.column + sliver * self.engine.columns
        store_tile(self.fn, self.engine, self.output, sums, row, column, count, width)


def smaller(fn: Function, a: Value, b: Value) -> Value:
    """The smaller of two signed integers."""
    if a.constant is not None and b.constant is not None:
        return a if a.constant <= b.constant else b
    return fn.intrinsic("llvm.smin", a.type, a, b)
