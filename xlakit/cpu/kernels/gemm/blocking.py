"""The blocking of a product: tasks, blocks for the caches, the micro-tile, and which operands are packed.

The planner derives it from sizes, types and strides, and from the machine's caches and threads. ``check.py`` states the
preconditions of code generation.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace

from xlakit import machine
from xlakit.cpu.kernels.gemm.engine import AMX_ROWS, Engine, choose_engine, stored_as_packed, with_fewer_at_once
from xlakit.cpu.kernels.gemm.operands import Matrix, can_read_in_place, rounded_up
from xlakit.cpu.kernels.gemm.product import Product
from xlakit.dataclass import dataclass
from xlakit.options import knob, times

# The most bytes of a sliver of the right operand: a part of it is read from the second-level cache, which costs less
# than adding more blocks of k to the result; of a block of rows of the left operand and its sums, which stay in the
# second-level cache; and of the slivers of a task, in its share of the third-level cache. Slivers that exceed half of
# the third-level cache are packed again for each block of rows, which is then larger.
_SLIVER_BYTES = knob("gemm.sliver_bytes", lambda: machine.current().l1, 1 << 10, tries=(times(0.5), times(2)))
_BLOCK_BYTES = knob(
    "gemm.block_bytes",
    lambda: 3 * machine.current().l2 // 8,
    1 << 10,
    4 << 10,
    tries=(times(0.25), times(0.5), times(2)),
)
_SLIVERS_BYTES = knob("gemm.slivers_bytes", lambda: machine.current().l3 // 8, 1 << 12, tries=(times(0.25), times(4)))
# An operand of at most this size is read repeatedly without packing.
_NEAR_BYTES = knob("gemm.near_bytes", lambda: machine.current().l1 // 2, 1 << 10)
_MOST_SLIVERS_BYTES = knob("gemm.most_slivers_bytes", lambda: machine.current().l3 // 2, 1 << 12)
_LARGE_BLOCK = knob("gemm.large_block", 768, 24)

# The most columns of a task; 0 leaves it to _most_columns().
_MOST_COLUMNS = knob("gemm.most_columns", 0, 64, 128, tries=(256, 512, 1024))
# Batches that share cache lines are computed together; the data that they read stay in the second-level cache.
_LINE_BYTES = 128
_CACHE_LINE = 64
_SHARED_BYTES = knob("gemm.shared_bytes", lambda: machine.current().l2 // 4, 1 << 10)
# Addresses that differ by a multiple of this map to one set of the first-level cache, which holds _WAYS lines.
_PAGE_BYTES = 4 << 10
_WAYS = 8
# Prefetchers need several lines of each row of an array to foresee the next ones.
_LONG_ROW_BYTES = 16 * _CACHE_LINE
# The least number of products of a task, and the largest number of tasks.
_TASK_PRODUCTS = knob("gemm.task_products", 1 << 19, 64, 1000, tries=(times(0.25), times(4), times(16)))
# The least number of tiles in a column of a task, and of slivers in a row, if the result has so many.
_LEAST_TILES = knob("gemm.least_tiles", 16, 1)
_LEAST_SLIVERS = knob("gemm.least_slivers", 4, 1)
# The costs of packing an element for one more task, and of reading it again unpacked, in multiply-adds: the time of
# copying its bytes. The bytes of a plain read come from a cache, and out-of-order execution hides most of the time.
_PACKING = knob("gemm.packing", lambda: _packing_products(machine.current()), 0.0, 1000.0, tries=(times(0.3), times(3)))
_HIDDEN = 12.5
_READING = knob("gemm.reading", lambda: _packing_products(machine.current()) / _HIDDEN, 0.1, 1000.0)
# Overlapping windows are read unpacked, across their lines, for up to this many slivers: packing takes that long,
# because it writes each element once for every window that contains it.
_WINDOW_SLIVERS = knob("gemm.window_slivers", 8, 0, 1000, tries=(2, 16))
# Rows and vectors of the micro-tile for real numbers; 0 leaves the engine's.
_TILE_ROWS = knob("gemm.tile_rows", 0, 3, 5, tries=(6, 8, 10, 12, 14))
_TILE_VECTORS = knob("gemm.tile_vectors", 0, 1, 3, tries=(1, 2, 3, 4))
# The multiply-adds that must be independent to hide their latency: two units, of four cycles each. The most rows of
# tiles that are narrower than the engine's.
_LATENCY = 8
_MOST_ROWS = 12
# The most slivers of a tile that is wider than the engine's.
_FEW_SLIVERS = 4
# AMX multiplies full tile registers, padded with zeros, at 8 to 16 times the rate of vectors. It is used for products
# whose padding increases the multiplications by at most this factor.
_TILE_WASTE = knob("gemm.tile_waste", 4, 0, 1 << 20, tries=(0, 1 << 20))
_MOST_TASKS = knob("gemm.most_tasks", lambda: 8 * max(2, machine.current().threads), 2, 64)


def _packing_products(described: machine.Machine) -> float:
    """The multiply-adds of F32 in the time in which a core copies an element; other types have others of both."""
    copied = described.rate("copy_bytes_per_nanosecond_one_thread")
    return described.rate("fused_per_nanosecond_f32") * 4 / copied


@dataclass(frozen=True, slots=True)
class Blocking:
    """The blocking of a product.

    A block of k has ``runs`` runs of ``kc`` steps each; if it has several runs, each is complete. k_blocks: the number
    of blocks. task_rows, task_columns: the rectangle of a task; row_tasks, column_tasks: the number of tasks. mc: the
    rows packed at a time; nc is task_columns. packs: which operands are packed; ahead: the right one is packed
    completely before the first block of rows. batches_inner: the same rows of all batches come before the next rows.
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

    def local_width(self, product: Product) -> int:
        """The stride of the rows of a rectangle in temporary memory of a task."""
        return min(self.task_columns, max(1, product.sizes[1]))


def plan_gemm(product: Product, *, wide: bool = False) -> Blocking:
    """The blocking of a product. ``wide``: tasks have long rows, beside which other arrays are read."""
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
    task_rows, task_columns = _rectangle(engine, product, packs, (k_blocks, block_bytes), wide=wide)
    batches_inner = _batches_share_lines(product)
    if batches_inner:
        lhs, width = product.lhs, product.result.byte_width
        reach = abs(lhs.across.stride) * lhs.kind.byte_width + abs(product.rows.stride) * width
        task_rows = min(task_rows, max(_SHARED_BYTES.value // reach // engine.mr, 4) * engine.mr)
    # If rows are in runs, vectors of packed rows must not extend into the next run.
    row_multiple = math.lcm(engine.mr, engine.lanes) if len(product.lhs.across.dims) > 1 else engine.mr
    task_rows = task_rows if task_rows >= rows else rounded_up(task_rows, row_multiple)
    width = min(task_columns, rounded_up(columns, engine.nr))
    row_bytes = block_bytes + width * _sum_bytes(engine)
    mc, ahead = _row_block(engine, rows, row_multiple, row_bytes, k_blocks * block_bytes * width)
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
        ahead=ahead,
        batches_inner=batches_inner,
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


def _rectangle(
    engine: Engine, product: Product, packs: tuple[bool, bool], blocks: tuple[int, int], *, wide: bool
) -> tuple[int, int]:
    """Rows and columns of a task; ``blocks``: the number of blocks of k, and the bytes of a packed row of one."""
    rows, columns, _ = product.sizes
    # Tasks have whole slivers, for any width of the micro-tile.
    most = max(1, _most_columns(engine, rows, packs) // engine.nr) * engine.nr
    widest = min(rounded_up(max(columns, 1), engine.nr), most)
    if packs[1]:
        room = _SLIVERS_BYTES.value // max(1, blocks[0] * blocks[1])
        widest = min(widest, max(room // engine.nr, 4) * engine.nr)
    # Tasks of a row are equally wide: the last one would otherwise have what the others leave.
    widest = rounded_up(-(-max(columns, 1) // -(-max(columns, 1) // widest)), engine.nr)
    narrowest = min(widest, engine.nr * _least_slivers(engine, product, wide=wide))
    tasks = min(_MOST_TASKS.value, product.batch * rows * columns * product.lhs.along.size // _TASK_PRODUCTS.value)
    tasks_of_batch = -(-tasks // max(1, product.batch))
    return _task_sizes(engine, packs, (rows, columns), (narrowest, widest), tasks_of_batch)


def _least_slivers(engine: Engine, product: Product, *, wide: bool) -> int:
    """The least number of slivers in a row of a task: fewer where threads would otherwise get no task."""
    rows, columns, _ = product.sizes
    least = _LEAST_SLIVERS.value
    slivers = max(least, -(-_LONG_ROW_BYTES // (engine.nr * product.result.byte_width))) if wide else least
    row_tasks = product.batch * -(-rows // (_LEAST_TILES.value * engine.mr))
    while slivers > -(-least // 2) and row_tasks * -(-columns // (slivers * engine.nr)) < machine.current().threads:
        slivers = -(-slivers // 2)
    return slivers


def _most_columns(engine: Engine, rows: int, packs: tuple[bool, bool]) -> int:
    """The most columns of a task.

    The left operand is packed or read again for each task along a row, and the right one read for each block of rows.
    The block and its sums fill a part of the second-level cache, so that wider tasks have fewer rows in a block: with w
    columns, the time is about a / w + b * w / block for the two costs a and b, unless all rows are in one block.
    """
    again = _PACKING.value if packs[0] else _READING.value
    block = _BLOCK_BYTES.value // _sum_bytes(engine)
    least = math.isqrt(int(block * again / max(_READING.value, 1e-3)))
    return _MOST_COLUMNS.value or max(least, block // max(1, rows))


def _sum_bytes(engine: Engine) -> int:
    return engine.acc.bytes * engine.parts


def _row_block(engine: Engine, rows: int, row_multiple: int, row_bytes: int, slivers_bytes: int) -> tuple[int, bool]:
    """mc, and whether the right operand is packed ahead: if there are several blocks of rows, and its slivers fit.

    row_bytes: the bytes of one packed row for one block of k, and of its sums. slivers_bytes: those of a task's
    slivers.
    """
    all_rows = rounded_up(max(rows, 1), engine.mr)
    mc = _BLOCK_BYTES.value // max(1, row_bytes) // row_multiple * row_multiple
    mc = min(max(mc, rounded_up(4 * engine.mr, row_multiple)), all_rows)
    if rows <= mc:
        return mc, False
    if slivers_bytes > _MOST_SLIVERS_BYTES.value:
        return min(rounded_up(_LARGE_BLOCK.value, row_multiple), all_rows), False
    return mc, True


def _task_sizes(
    engine: Engine, packs: tuple[bool, bool], sizes: tuple[int, int], widths: tuple[int, int], most_tasks: int
) -> tuple[int, int]:
    """Rows and columns of a task, within bounds of its width; a batch is divided into up to ``most_tasks`` tasks.

    Each row task packs or reads the right operand again, and each column task the left one, but more tasks balance the
    load better.
    """
    rows, columns = max(1, sizes[0]), max(1, sizes[1])
    threads = machine.current().threads
    least = min(rounded_up(rows, engine.mr), _LEAST_TILES.value * engine.mr)
    costs = [_PACKING.value if is_packed else _READING.value for is_packed in packs]
    best, best_sizes = math.inf, (rows, widths[1])
    for column_tasks in range(-(-columns // widths[1]), most_tasks + 1):
        width = max(widths[0], min(widths[1], rounded_up(-(-columns // column_tasks), engine.nr)))
        for row_tasks in range(1, most_tasks // column_tasks + 1):
            task_rows = rows if row_tasks == 1 else max(least, rounded_up(-(-rows // row_tasks), engine.mr))
            tasks = -(-rows // task_rows) * -(-columns // width)
            again = task_rows * costs[0] + min(width, columns) * costs[1]
            # The other threads wait for the last task; a single one multiplies as much, whatever the tasks.
            time = (-(-tasks // threads) + 0.125) * (task_rows * width + again) if threads > 1 else tasks * again
            if time < best:
                best, best_sizes = time, (task_rows, width)
    return best_sizes


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
        widest = max(widest, _LATENCY // rows) if 2 * rows <= engine.mr else widest
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
            slivers = needed // vectors * _step_time(height, vectors, engine.parts)
            if left_over := needed % vectors:
                slivers += _step_time(height, left_over, engine.parts)
            yield -(-rows // height) * slivers, height, vectors


def _step_time(rows: int, vectors: int, parts: int) -> float:
    """The time of a step of k of a micro-tile, in multiply-adds: loads take half a one, and overlap."""
    return max(rows * vectors * parts, _LATENCY) + (rows + vectors) * parts / 2


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
        left = rows * depth * engine.packed_bytes <= (_BLOCK_BYTES.value if near else _NEAR_BYTES.value)
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
