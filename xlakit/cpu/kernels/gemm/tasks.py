"""The tasks of a product: rectangles of its result that threads take, within which it is computed block by block."""

from __future__ import annotations

import math

from xlakit import machine
from xlakit.cpu.kernels.gemm.engine import Engine
from xlakit.cpu.kernels.gemm.operands import rounded_up
from xlakit.cpu.kernels.gemm.product import Product
from xlakit.options import knob, times

# The most bytes of a block of rows of the left operand and its sums, which stay in the second-level cache; and of the
# slivers of a task, in a thread's share of the third-level cache: wider tasks pack the left operand less often. Slivers
# that exceed half of the third-level cache are packed again for each block of rows, which is then larger.
BLOCK_BYTES = knob(
    "gemm.block_bytes",
    lambda: 3 * machine.current().l2 // 8,
    1 << 10,
    4 << 10,
    tries=(times(0.25), times(0.5), times(2)),
)
_SLIVERS_BYTES = knob(
    "gemm.slivers_bytes",
    lambda: machine.current().l3 // max(2, machine.current().threads),
    1 << 12,
    tries=(times(0.25), times(4)),
)
MOST_SLIVERS_BYTES = knob("gemm.most_slivers_bytes", lambda: machine.current().l3 // 2, 1 << 12)
# The most columns of a task; 0 for any number.
_MOST_COLUMNS = knob("gemm.most_columns", 0, 64, 128, tries=(256, 512, 1024))
# Prefetchers need several lines of each row of an array to foresee the next ones.
_LONG_ROW_BYTES = 1 << 10
# The least number of products of a task, and the largest number of tasks.
_TASK_PRODUCTS = knob("gemm.task_products", 1 << 19, 64, 1000, tries=(times(0.25), times(4), times(16)))
_MOST_TASKS = knob("gemm.most_tasks", lambda: 8 * max(2, machine.current().threads), 2, 64)
# The least number of tiles in a column of a task, and of slivers in a row, if the result has so many.
_LEAST_TILES = knob("gemm.least_tiles", 16, 1)
LEAST_SLIVERS = knob("gemm.least_slivers", 4, 1)
# The least number of tiles in a column of a block.
_LEAST_BLOCK = 4
# The costs of packing an element for one more task, and of reading it again unpacked, in multiply-adds: the time of
# copying its bytes. The bytes of a plain read come from a cache, and out-of-order execution hides most of the time.
PACKING = knob("gemm.packing", lambda: _packing_products(machine.current()), 0.0, 1000.0, tries=(times(0.3), times(3)))
_HIDDEN = 12.5
_READING = knob("gemm.reading", lambda: _packing_products(machine.current()) / _HIDDEN, 0.1, 1000.0)
# The multiply-adds that must be independent to hide their latency: two units, of four cycles each.
LATENCY = 8
# The nanoseconds that a phase costs in which threads pack an operand together, beside packing: shorter phases run on
# one thread.
_TOGETHER = knob("gemm.together", lambda: 3 * machine.current().wake_nanoseconds, 0.0, 1e12, tries=(0.0, 1e12))


def _packing_products(described: machine.Machine) -> float:
    """The multiply-adds of F32 in the time in which a core copies an element; other types have others of both."""
    copied = described.rate("copy_bytes_per_nanosecond_one_thread")
    return described.rate("fused_per_nanosecond_f32") * 4 / copied


def rectangle(
    engine: Engine, product: Product, packs: tuple[bool, bool], blocks: tuple[int, int], *, wide: bool, once: bool
) -> tuple[int, int, bool]:
    """Rows and columns of a task, and whether the right operand is packed once for all tasks, which ``once`` permits.

    blocks: the number of blocks of k, and the bytes of a packed row of one.
    """
    rows, columns, _ = product.sizes
    # Tasks have whole slivers, for any width of the micro-tile.
    widest = rounded_up(max(columns, 1), engine.nr)
    if _MOST_COLUMNS.value:
        widest = min(widest, max(1, _MOST_COLUMNS.value // engine.nr) * engine.nr)
    # Columns that are contiguous are divided at any register, others where slivers begin.
    is_divisible = len(product.columns.dims) <= 1 and len(product.rhs.across.dims) <= 1 and not engine.amx
    unit = engine.lanes if is_divisible else engine.nr
    # The sums of the fewest rows of a block stay in the second-level cache, the slivers in the third-level one.
    room = (BLOCK_BYTES.value // (_LEAST_BLOCK * engine.mr) - blocks[1]) // sum_bytes(engine)
    if packs[1]:
        room = min(room, _SLIVERS_BYTES.value // max(1, blocks[0] * blocks[1]))
    widest = min(widest, max(room // engine.nr, 4) * engine.nr)
    # Tasks of a row are equally wide: the last one would otherwise have what the others leave.
    widest = rounded_up(-(-max(columns, 1) // -(-max(columns, 1) // widest)), engine.nr)
    narrowest = min(widest, engine.nr * _least_slivers(engine, product, wide=wide))
    tasks = min(_MOST_TASKS.value, product.batch * rows * columns * product.lhs.along.size // _TASK_PRODUCTS.value)
    tasks_of_batch = -(-tasks // max(1, product.batch))
    left, right = (PACKING.value if is_packed else _READING.value for is_packed in packs)
    sizes, widths = (product.batch, rows, columns), (narrowest, widest, unit)
    limits = tasks_of_batch, blocks[1]
    time, task_rows, task_columns = _task_sizes(engine, sizes, widths, (left, right), limits)
    described = machine.current()
    threads = described.threads
    if once and threads > 1 and blocks[0] * blocks[1] * columns <= MOST_SLIVERS_BYTES.value:
        # The threads share the packing, wait for each other once more, and read what the others have packed: lines that
        # another core has modified go to the last-level cache and come from there.
        nanoseconds = _TOGETHER.value / max(1, product.sizes[2])
        others_part = columns * engine.packed_bytes * (threads - 1) / threads
        nanoseconds += 2 * others_part / described.rate("read_bytes_per_nanosecond_l3")
        packing = columns * right / threads + nanoseconds * described.rate("fused_per_nanosecond_f32")
        other_time, *others = _task_sizes(engine, sizes, widths, (left, 0.0), limits)
        if other_time + packing < time:
            return others[0], others[1], True
    return task_rows, task_columns, False


def _least_slivers(engine: Engine, product: Product, *, wide: bool) -> int:
    """The least number of slivers in a row of a task: fewer where threads would otherwise get no task.

    Half of them are enough where the right operand is in the second-level cache, and no prefetcher is needed.
    """
    rows, columns, depth = product.sizes
    least = LEAST_SLIVERS.value
    if columns * depth * engine.packed_bytes <= machine.current().l2:
        least = -(-least // 2)
    slivers = max(least, -(-_LONG_ROW_BYTES // (engine.nr * product.result.byte_width))) if wide else least
    row_tasks = product.batch * -(-rows // (_LEAST_TILES.value * engine.mr))
    while slivers > -(-least // 2) and row_tasks * -(-columns // (slivers * engine.nr)) < machine.current().threads:
        slivers = -(-slivers // 2)
    return slivers


def _task_sizes(
    engine: Engine,
    sizes: tuple[int, int, int],
    widths: tuple[int, int, int],
    costs: tuple[float, float],
    limits: tuple[int, int],
) -> tuple[float, int, int]:
    """The least time of a step of k, and rows and columns of a task with which a product takes it.

    sizes: batches, rows and columns. widths: the bounds of the columns of a task, and what they are multiples of.
    costs: those of an element of the left and of the right operand for each task, in multiply-adds. limits: the most
    tasks of a batch, and the bytes of a packed row for one block of k.

    Each row task packs or reads the right operand again, and each column task the left one, but more tasks balance the
    load better. The right operand is also read for each block of rows. Such a block and its sums fill a part of the
    second-level cache, so that wider tasks have fewer rows in a block.
    """
    batch, rows, columns = (max(1, size) for size in sizes)
    threads = machine.current().threads
    least = min(rounded_up(rows, engine.mr), _LEAST_TILES.value * engine.mr)
    most_tasks, packed_row = limits
    best = math.inf, rows, widths[1]
    for column_tasks in range(-(-columns // widths[1]), most_tasks + 1):
        width = max(widths[0], min(widths[1], rounded_up(-(-columns // column_tasks), widths[2])))
        computed = _computed(engine, min(width, columns))
        for row_tasks in range(1, most_tasks // column_tasks + 1):
            task_rows = rows if row_tasks == 1 else max(least, rounded_up(-(-rows // row_tasks), engine.mr))
            block = block_of_rows(engine, task_rows, engine.mr, packed_row + width * sum_bytes(engine))
            again = (-(-task_rows // block) - 1) * computed * _READING.value
            again += task_rows * costs[0] + computed * costs[1]
            tasks = batch * -(-rows // task_rows) * -(-columns // width)
            # The other threads wait for the last task; a single one multiplies as much, whatever the tasks.
            time = (-(-tasks // threads) + 0.125) * (task_rows * computed + again) if threads > 1 else tasks * again
            best = min(best, (time, task_rows, width))
    return best


def _computed(engine: Engine, width: int) -> float:
    """The columns of whole slivers that take as long as those of a task, whose last sliver may have fewer registers."""
    whole, left_over = divmod(-(-width // engine.lanes), engine.vectors)
    if not left_over:
        return whole * engine.nr
    part = step_time(engine.mr, left_over, engine.parts) / step_time(engine.mr, engine.vectors, engine.parts)
    return (whole + part) * engine.nr


def step_time(rows: int, vectors: int, parts: int) -> float:
    """The time of a step of k of a micro-tile, in multiply-adds: loads take half a one, and overlap."""
    return max(rows * vectors * parts, LATENCY) + (rows + vectors) * parts / 2


def block_of_rows(engine: Engine, rows: int, row_multiple: int, row_bytes: int) -> int:
    """The number of rows that, with their sums, stay in the second-level cache."""
    mc = BLOCK_BYTES.value // max(1, row_bytes) // row_multiple * row_multiple
    least = rounded_up(_LEAST_BLOCK * engine.mr, row_multiple)
    return min(max(mc, least), rounded_up(max(rows, 1), engine.mr))


def sum_bytes(engine: Engine) -> int:
    """The bytes of a sum."""
    return engine.acc.bytes * engine.parts
