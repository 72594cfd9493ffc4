"""The blocking of a product: tasks, blocks for the caches, the micro-tile, and which operands are packed.

The planner derives it from sizes, types and strides, and from the machine's caches and threads. ``check.py`` states the
preconditions of code generation.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace

from xlakit import machine
from xlakit.cpu.kernels.gemm.bf16_range import ranges_bytes
from xlakit.cpu.kernels.gemm.engine import AMX_ROWS, Engine, choose_engine, stored_as_packed, with_fewer_at_once
from xlakit.cpu.kernels.gemm.operands import Matrix, can_read_in_place, rounded_up
from xlakit.cpu.kernels.gemm.product import Product
from xlakit.cpu.kernels.gemm.tasks import (
    BLOCK_BYTES,
    LATENCY,
    MOST_SLIVERS_BYTES,
    block_of_rows,
    rectangle,
    step_time,
    sum_bytes,
)
from xlakit.dataclass import dataclass
from xlakit.options import knob, times

# The most bytes of a sliver of the right operand: a part of it is read from the second-level cache, which costs less
# than adding more blocks of k to the result.
_SLIVER_BYTES = knob("gemm.sliver_bytes", lambda: machine.current().l1, 1 << 10, tries=(times(0.5), times(2)))
# An operand of at most this size is read repeatedly without packing.
_NEAR_BYTES = knob("gemm.near_bytes", lambda: machine.current().l1 // 2, 1 << 10)
# The rows of a block whose slivers are packed for it alone.
_LARGE_BLOCK = knob("gemm.large_block", 768, 24)
# Batches that share cache lines are computed together; the data that they read stay in the second-level cache.
_LINE_BYTES = 128
_CACHE_LINE = 64
_SHARED_BYTES = knob("gemm.shared_bytes", lambda: machine.current().l2 // 4, 1 << 10)
# Addresses that differ by a multiple of this map to one set of the first-level cache, which holds _WAYS lines.
_PAGE_BYTES = 4 << 10
_WAYS = 8
# Overlapping windows are read unpacked, across their lines, for up to this many slivers: packing takes that long,
# because it writes each element once for every window that contains it.
_WINDOW_SLIVERS = knob("gemm.window_slivers", 8, 0, 1000, tries=(2, 16))
# Rows and vectors of the micro-tile for real numbers; 0 leaves the engine's.
_TILE_ROWS = knob("gemm.tile_rows", 0, 3, 5, tries=(6, 8, 10, 12, 14))
_TILE_VECTORS = knob("gemm.tile_vectors", 0, 1, 3, tries=(1, 2, 3, 4))
# The most rows of tiles that are narrower than the engine's.
_MOST_ROWS = 12
# The most slivers of a tile that is wider than the engine's.
_FEW_SLIVERS = 4
# AMX multiplies full tile registers, padded with zeros, at 8 to 16 times the rate of vectors. It is used for products
# whose padding increases the multiplications by at most this factor.
_TILE_WASTE = knob("gemm.tile_waste", 4, 0, 1 << 20, tries=(0, 1 << 20))


@dataclass(frozen=True, slots=True)
class Blocking:
    """The blocking of a product.

    A block of k has ``runs`` runs of ``kc`` steps each; if it has several runs, each is complete. k_blocks: the number
    of blocks. task_rows, task_columns: the rectangle of a task; row_tasks, column_tasks: the number of tasks. mc: the
    rows packed at a time; nc is task_columns. packs: which operands are packed; ahead: the right one is packed
    completely before the first block of rows. batches_inner: the same rows of all batches come before the next rows.
    packs_once: the right operand is packed before all tasks, which share it (``packed_once.py``).
    """

    engine: Engine
    runs: int
    kc: int
    k_blocks: int
    task_rows: int
    row_tasks: int
    task_columns: int
    column_tasks: int
    mc: int
    packs: tuple[bool, bool]
    ahead: bool
    batches_inner: bool = False
    packs_once: bool = False

    @property
    def packed_kc(self) -> int:
        """The steps of k that packed operands have room for, a multiple of those a micro-kernel takes at a time."""
        wholes = -(-self.runs * self.kc // self.engine.steps)
        # A tile register loads 16 rows: an odd number of cache lines apart, they are in different cache sets.
        return (wholes | 1 if self.engine.amx else wholes) * self.engine.steps

    @property
    def is_mixed(self) -> bool:
        """Whether one operand is packed and the other is not."""
        return self.packs[0] != self.packs[1]

    @property
    def in_panels(self) -> bool:
        """Whether the left operand is packed in panels, the rows of a micro-tile together (``panels.py``)."""
        return self.packs[0] and self.engine.group == self.engine.parts == 1

    @property
    def left_step(self) -> int:
        """The distance between steps of k of the packed left operand, in elements."""
        return self.engine.mr if self.in_panels else 1

    @property
    def sliver_elements(self) -> int:
        """Elements of a packed sliver of the right operand, for the largest block of k, and of what follows it."""
        return self.packed_kc * self.engine.nr * self.engine.parts + self.engine.bias_elements

    def slivers(self, product: Product) -> int:
        """The number of slivers, of the engine's nr columns each, in a task."""
        return -(-min(self.task_columns, product.sizes[1]) // self.engine.nr)

    def partial_columns(self, product: Product) -> tuple[int, int]:
        """The columns of the partial sliver of the last task of a row, and of the others; 0 for none."""
        last = product.sizes[1] - (self.column_tasks - 1) * self.task_columns
        return last % self.engine.nr, self.task_columns % self.engine.nr

    def packed_once_bytes(self, product: Product) -> int:
        """The bytes of the right operand if it is packed once for all tasks, else 0."""
        if not self.packs_once:
            return 0
        of_task = self.k_blocks * self.slivers(product) * self.sliver_elements * self.engine.packed.bytes
        return self.column_tasks * of_task

    def local_width(self, product: Product) -> int:
        """The stride of the rows of a rectangle in temporary memory of a task."""
        return min(self.task_columns, max(1, product.sizes[1]))


def plan_gemm(product: Product, *, wide: bool = False, once: bool = False) -> Blocking:
    """The blocking of a product.

    wide: tasks have long rows, beside which other arrays are read. once: the right operand may be packed before all
    tasks, by a phase that the caller emits.
    """
    rows, columns, _ = product.sizes
    along = product.lhs.along
    engine = _engine_of(product)
    packs = _packs(engine, product)
    if not packs[0] and _straddles_lines(engine, product.lhs):
        engine = replace(engine, mr=_WAYS)
    runs, kc, k_blocks = _block_k(engine, product, packs)
    if rows <= engine.mr and not packs[1]:
        # No element of the right operand is read twice.
        runs, kc, k_blocks = along.outer.size, along.run, 1
    block_bytes = runs * kc * engine.packed_bytes
    once = once and product.batch == 1 and packs[1] and not ranges_bytes(engine, 1)
    task_rows, task_columns, packs_once = rectangle(
        engine, product, packs, (k_blocks, block_bytes), wide=wide, once=once
    )
    batches_inner = _batches_share_lines(product)
    if batches_inner:
        lhs, width = product.lhs, product.result.byte_width
        reach = abs(lhs.across.stride) * lhs.kind.byte_width + abs(product.rows.stride) * width
        task_rows = min(task_rows, max(_SHARED_BYTES.value // reach // engine.mr, 4) * engine.mr)
    # If rows are in runs, vectors of packed rows must not extend into the next run.
    row_multiple = math.lcm(engine.mr, engine.lanes) if len(product.lhs.across.dims) > 1 else engine.mr
    task_rows = task_rows if task_rows >= rows else rounded_up(task_rows, row_multiple)
    width = min(task_columns, rounded_up(columns, engine.nr))
    row_bytes = block_bytes + width * sum_bytes(engine)
    mc, ahead = _row_block(engine, rows, row_multiple, row_bytes, k_blocks * block_bytes * width)
    packs_once = packs_once and (task_rows < rows or ahead)
    if ahead:
        # Each block reads all slivers, however few rows it has.
        of_task = min(rows, task_rows)
        mc = rounded_up(-(-of_task // -(-of_task // mc)), row_multiple)
    return Blocking(
        engine,
        runs,
        kc,
        k_blocks,
        task_rows,
        row_tasks=max(1, -(-rows // task_rows)),
        task_columns=task_columns,
        column_tasks=max(1, -(-columns // task_columns)),
        mc=mc,
        packs=packs,
        ahead=ahead or packs_once,
        batches_inner=batches_inner,
        packs_once=packs_once,
    )


def _engine_of(product: Product) -> Engine:
    """The engine for the types of a product, with a micro-tile for its sizes and strides."""
    along = product.lhs.along
    kinds = product.lhs.kind, product.rhs.kind, product.result
    chosen = replace(choose_engine(*kinds, amx=fills_tiles(product)), interleaved=product.interleaved)
    engine = _fitted(_tiled(chosen), product)
    if engine.mr > _WAYS and engine.vectors == 1 and not engine.amx and _rows_conflict(product.lhs):
        engine = replace(engine, mr=_WAYS)
    while along.size != along.run and along.run % engine.group:
        # Groups of steps that a lane takes at once would straddle runs.
        engine = _fitted(with_fewer_at_once(engine), product)
    return engine


def fills_tiles(product: Product) -> bool:
    """Whether a product fills AMX's tile registers well enough to be faster than with vectors."""
    engine = choose_engine(product.lhs.kind, product.rhs.kind, product.result)
    if not engine.amx:
        return False
    real = padded = 1
    # Zeros along k count twice, because they are packed and loaded as well as multiplied.
    *across, depth = zip(product.sizes, (AMX_ROWS, AMX_ROWS, engine.steps), strict=True)
    for size, multiple in (*across, depth, depth):
        real, padded = real * size, padded * rounded_up(size, multiple)
    return padded <= _TILE_WASTE.value * real


def _row_block(engine: Engine, rows: int, row_multiple: int, row_bytes: int, slivers_bytes: int) -> tuple[int, bool]:
    """mc, and whether the right operand is packed ahead: if there are several blocks of rows, and its slivers fit.

    row_bytes: the bytes of one packed row for one block of k, and of its sums. slivers_bytes: those of a task's
    slivers.
    """
    mc = block_of_rows(engine, rows, row_multiple, row_bytes)
    if rows <= mc:
        return mc, False
    if slivers_bytes > MOST_SLIVERS_BYTES.value:
        return min(rounded_up(_LARGE_BLOCK.value, row_multiple), rounded_up(max(rows, 1), engine.mr)), False
    return mc, True


def _batches_share_lines(product: Product) -> bool:
    """Whether batches are innermost in memory, so that several of them share cache lines."""
    lhs, (of_lhs, _, of_result) = product.lhs, product.batches
    return product.batch > 1 and any(
        len(batches.dims) == 1
        and batches.size * batches.stride == rows.stride
        and 0 < batches.stride * kind.byte_width < _LINE_BYTES
        for batches, rows, kind in ((of_lhs, lhs.across, lhs.kind), (of_result, product.rows, product.result))
    )


def _tiled(engine: Engine) -> Engine:
    """The engine with the micro-tile that the knobs set."""
    if engine.group > 1 or engine.parts > 1:
        return engine
    return replace(engine, mr=_TILE_ROWS.value or engine.mr, vectors=_TILE_VECTORS.value or engine.vectors)


def _fitted(engine: Engine, product: Product) -> Engine:
    """The engine with the micro-tile that takes the least time for the sizes of a product."""
    rows, columns, _ = (max(1, size) for size in product.sizes)
    needed = -(-columns // engine.lanes)
    if engine.amx:
        return replace(engine, mr=min(engine.mr, rounded_up(rows, AMX_ROWS)), vectors=min(engine.vectors, needed))
    widest = engine.vectors
    if engine.group == engine.parts == 1:
        # Of few columns nothing may be left over with a vector more, which saves loads and shortens blocks of k. With
        # few rows, more columns give enough independent sums.
        widest += needed <= _FEW_SLIVERS * (widest + 1) and needed % (widest + 1) == 0
        widest = max(widest, LATENCY // rows) if 2 * rows <= engine.mr else widest
    widths = range(1, min(widest, needed) + 1)
    if _TILE_VECTORS.value:
        widths = [min(engine.vectors, needed)]
    for vectors in range(1, engine.vectors + 1):
        if len(product.rhs.across.dims) > 1 and can_read_in_place(replace(engine, vectors=vectors), product.rhs):
            # The right operand consists of slivers of this width.
            widths = [vectors]
    _, height, vectors = min(_tile_times(engine, rows, needed, widths))
    return replace(engine, mr=height, vectors=vectors)


def time_of_columns(engine: Engine, columns: int) -> float:
    """The time of one of ``columns`` columns of many rows, in multiply-adds."""
    rows = engine.mr * _MOST_ROWS
    widths = range(1, engine.vectors + 1)
    time, *_ = min(_tile_times(engine, rows, -(-columns // engine.lanes), widths))
    return time / (rows * max(1, columns))


def _tile_times(engine: Engine, rows: int, needed: int, widths: Iterable[int]) -> Iterator[tuple[float, int, int]]:
    """The time of a step of k for rows of ``needed`` vectors, and the rows and vectors of the micro-tile that takes it.

    widths: the numbers of vectors to choose from.
    """
    for vectors in widths:
        # The registers of sums, and of the row of the right operand.
        most = (engine.mr * engine.vectors + engine.vectors - vectors) // vectors
        if vectors == engine.vectors:
            most = engine.mr
        elif vectors < engine.vectors:
            # More rows would fit registers, but not the pointers to them.
            most = min(most, max(engine.mr, _MOST_ROWS))
        most = max(1, min(most, rows))
        for height in range(most, most // 2, -1):
            slivers = needed // vectors * step_time(height, vectors, engine.parts)
            if left_over := needed % vectors:
                slivers += step_time(height, left_over, engine.parts)
            yield -(-rows // height) * slivers, height, vectors


def _block_k(engine: Engine, product: Product, packs: tuple[bool, bool]) -> tuple[int, int, int]:
    """Runs and kc of a block of k, and the number of blocks."""
    along = product.lhs.along
    runs, run = along.outer.size, along.run
    if not runs:
        return 1, 0, 1
    # The sliver of the engine's own micro-tile: sums are in one order, however many columns choose another one.
    kinds = product.lhs.kind, product.rhs.kind, product.result
    sliver = _tiled(choose_engine(*kinds, amx=engine.amx)).nr * engine.packed_bytes
    most = max(32, min(_most_steps(engine, product.lhs, sliver, packed=packs[0]), 1024))
    if runs <= 1 or run > most:
        # Blocks of equal size: a small last one would cause as much memory traffic as a large one.
        count = max(1, -(-4 * run // (5 * most)))
        kc = min(run, rounded_up(-(-run // count), max(8, engine.steps)))
        return 1, kc, runs * (-(-run // kc) if run else 1)
    count = max(1, -(-4 * runs * run // (5 * most)))
    each = max(1, min(-(-runs // count), 5 * most // (4 * run)))
    return each, run, -(-runs // each)


def _most_steps(engine: Engine, lhs: Matrix, sliver: int, *, packed: bool) -> int:
    """The steps of k for which the data that a micro-tile reads stay near; ``sliver``: the bytes of a step of a sliver.

    If the left operand is read along its rows, these data are a sliver. If it is read across them, each step is in
    other cache lines, whose remaining elements belong to tiles of the next rows. No prefetcher fetches these lines, so
    they and the sliver must stay in the first-level cache.
    """
    if packed or lhs.along.stride in (1, engine.interleaved):
        return _SLIVER_BYTES.value // sliver
    # A group of adjacent rows may begin anywhere in a cache line.
    lines = -(-engine.mr * engine.packed_bytes // _CACHE_LINE) + 1 if lhs.across.stride == 1 else engine.mr
    return _NEAR_BYTES.value // (sliver + lines * _CACHE_LINE)


def _packs(engine: Engine, product: Product) -> tuple[bool, bool]:
    """Whether lhs and rhs are packed: if the engine cannot read them in place, or if they exceed the caches."""
    rows, columns, depth = product.sizes
    lhs = product.lhs
    if engine.interleaved > 1:
        return False, True
    plain = engine.group == 1
    left = plain and stored_as_packed(engine, lhs.kind)
    slivers = _WINDOW_SLIVERS.value if lhs.in_place else 2
    if left and not (lhs.in_place and lhs.along.stride == 1) and columns > slivers * engine.nr:
        near = lhs.along.stride == 1 or lhs.along.run == 1
        left = rows * depth * engine.packed_bytes <= (BLOCK_BYTES.value if near else _NEAR_BYTES.value)
        left = left or (near and not _rows_conflict(lhs))
    return not left, not _is_read_in_place(engine, product)


def _rows_conflict(lhs: Matrix) -> bool:
    """Whether the elements of a column map to the same set of the first-level cache, and evict each other."""
    return lhs.across.stride * lhs.kind.byte_width % _PAGE_BYTES == 0


def _straddles_lines(engine: Engine, lhs: Matrix) -> bool:
    """Whether elements that a tile reads in place for a step of k, side by side, may lie in two cache lines.

    A tile of fewer rows takes less time then, although it reads more of the right operand for each product.
    """
    rows_bytes = engine.mr * lhs.kind.byte_width
    is_chosen = _TILE_ROWS.value > 0
    return lhs.across.stride == 1 and engine.mr > _WAYS and _CACHE_LINE % rows_bytes != 0 and not is_chosen


def _is_read_in_place(engine: Engine, product: Product) -> bool:
    """Whether rhs is read without packing: for few rows, packing would take longer than the product."""
    rows, columns, depth = product.sizes
    rhs, across = product.rhs, product.rhs.across
    if not can_read_in_place(engine, rhs):
        return False
    if len(across.dims) > 1:
        return True
    if rhs.in_place:
        return True
    if stored_as_packed(engine, rhs.kind):
        return rows <= 2 * engine.mr or columns * depth * engine.packed_bytes <= _NEAR_BYTES.value
    return rows <= engine.mr


def task_count(product: Product, blocking: Blocking) -> int:
    """The number of tasks of a product; 0 for an empty result."""
    rows, columns, _ = product.sizes
    return product.batch * blocking.row_tasks * blocking.column_tasks if rows * columns else 0
