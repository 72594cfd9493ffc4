"""Checks the preconditions of a product's code before it is emitted.

Micro-kernels store whole tiles and whole registers without checks. A blocking that violates one of these rules would
write beyond the memory of a task, or beyond a result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from xlakit.cpu.kernels.gemm.bf16_range import ranges_bytes
from xlakit.cpu.kernels.gemm.engine import stored_as_packed
from xlakit.cpu.kernels.gemm.operands import can_read_in_place
from xlakit.cpu.kernels.gemm.store import is_stored_by_tiles
from xlakit.cpu.kernels.shared.preconditions import Rule, require

if TYPE_CHECKING:
    from xlakit.cpu.kernels.gemm.blocking import Blocking
    from xlakit.cpu.kernels.gemm.product import Product


def check_blocking(product: Product, blocking: Blocking, *, covers_k: bool = True) -> None:
    """Raise InternalError if the blocking of a product is invalid.

    covers_k: whether the blocks must cover k; emitters with blocks that are computed at run time pass False.
    """
    rules = [
        *_tiles(product, blocking),
        *_operands(product, blocking),
        *(_steps if covers_k else _steps_of_others)(product, blocking),
    ]
    require(f"a product of {product.sizes} in blocks as {blocking}", rules)


def _tiles(product: Product, blocking: Blocking) -> list[Rule]:
    """The rules of rows and columns."""
    rows, columns, _ = product.sizes
    engine = blocking.engine
    # The rules below divide by these.
    if engine.mr < 1 or engine.nr < 1:
        return [("tiles have rows and columns", False)]
    return [
        ("tiles are whole tile registers", not engine.amx or (engine.mr in (16, 32) and engine.vectors <= 2)),
        ("tasks' columns are whole slivers, or whole registers of one run", _columns_hold(product, blocking)),
        (
            "tasks have all columns",
            blocking.task_columns > 0 and blocking.column_tasks == max(1, -(-columns // blocking.task_columns)),
        ),
        (
            "tasks have all rows",
            blocking.task_rows > 0 and blocking.row_tasks == max(1, -(-rows // blocking.task_rows)),
        ),
        # Rows past the end of a block are computed like its last row: the block's tables have room for whole tiles.
        ("blocks of rows are whole tiles", blocking.mc > 0 and blocking.mc % engine.mr == 0),
        ("rows of all batches together are of several batches", not blocking.batches_inner or product.batch > 0),
    ]


def _columns_hold(product: Product, blocking: Blocking) -> bool:
    """Whether a task stores nothing of the next one: only the last sliver of the result has a partial register."""
    engine = blocking.engine
    if blocking.column_tasks == 1 or blocking.task_columns % engine.nr == 0:
        return True
    # Where columns are in runs, slivers begin at their multiples; a tile register is always stored whole.
    is_one_run = len(product.columns.dims) <= 1 and len(product.rhs.across.dims) <= 1
    return is_one_run and not engine.amx and blocking.task_columns % engine.lanes == 0


def _operands(product: Product, blocking: Blocking) -> list[Rule]:
    engine, lhs, rhs = blocking.engine, product.lhs, product.rhs
    plain = engine.group == 1 and stored_as_packed(engine, lhs.kind)
    return [
        ("a left operand that is not packed lies as packed elements do", blocking.packs[0] or plain),
        (
            "a right operand that is not packed lies in whole slivers",
            blocking.packs[1] or can_read_in_place(engine, rhs),
        ),
        ("tile registers are loaded from packed operands", not engine.amx or all(blocking.packs)),
        (
            "a right operand that is packed once is packed whole, of one batch, and its ranges are not needed",
            not blocking.packs_once
            or (blocking.packs[1] and blocking.ahead and product.batch == 1 and not ranges_bytes(engine, 1)),
        ),
        ("operands have the same runs of k", [n for n, _ in lhs.along.dims] == [n for n, _ in rhs.along.dims]),
        ("rows are those of the result", lhs.across.size == product.rows.size),
        ("columns are those of the result", rhs.across.size == product.columns.size),
        ("batches are those of the result", len({direction.size for direction in product.batches}) == 1),
        ("lines are of one batch, and of whole images", _lines_hold(product)),
        (
            "interleaved products fill a register of sums, which is stored as it is",
            _interleaved_holds(product, blocking),
        ),
    ]


def _lines_hold(product: Product) -> bool:
    lines = product.lines
    if lines is None:
        return True
    of_image = lines.rows * lines.steps
    last = (lines.steps - 1) * lines.stride + lines.low + lines.reach
    whole = of_image > 0 and product.sizes[0] % of_image == 0 and lines.low >= 0 and last <= lines.image
    is_one = not any(stride for _, stride in product.batches[0].dims)
    has_batches = not lines.batches.dims or lines.batches.size == product.batch
    return whole and is_one and has_batches and lines.chunk > 0


def _interleaved_holds(product: Product, blocking: Blocking) -> bool:
    engine = blocking.engine
    count = engine.interleaved
    if count != product.interleaved or count == 1:
        return count == product.interleaved
    fills = engine.nr == engine.lanes == product.sizes[1] and engine.lanes % count == 0
    plain = engine.group == engine.parts == 1 and blocking.packs == (False, True)
    return fills and plain and is_stored_by_tiles(engine, product.result, product.columns, local=False)


def _steps(product: Product, blocking: Blocking) -> list[Rule]:
    """The rules of blocks of k."""
    along = product.lhs.along
    runs, run = along.outer.size, along.run
    whole = blocking.runs > 1 or blocking.kc == run
    blocks = -(-runs // max(1, blocking.runs)) if whole else runs * -(-run // max(1, blocking.kc))
    return [
        ("blocks of several runs have whole runs", blocking.runs == 1 or blocking.kc == run),
        (
            "blocks have all steps of k",
            not runs * run or (blocking.runs > 0 and blocking.kc > 0 and blocking.k_blocks == blocks),
        ),
        (
            "pairs of steps are in one run",
            blocking.engine.group == 1 or blocking.runs == 1 or blocking.kc % blocking.engine.group == 0,
        ),
    ]


def _steps_of_others(product: Product, blocking: Blocking) -> list[Rule]:
    """The rules of blocks of k that may begin at any step of a run, in any number."""
    return [
        ("blocks that begin anywhere are of one run", blocking.runs == 1),
        (
            "blocks that begin anywhere have whole groups of steps",
            blocking.kc > 0 and blocking.kc % blocking.engine.group == 0,
        ),
        ("sums of any number of blocks are added up in memory", blocking.k_blocks > 1),
        ("blocks that begin anywhere are packed one at a time", not blocking.ahead),
    ]
