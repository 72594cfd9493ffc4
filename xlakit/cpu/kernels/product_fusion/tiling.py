"""Divides the products of a fusion into rectangles of results, each of which is completed before its epilogue runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from xlakit import machine
from xlakit.cpu.declined import DeclinedError
from xlakit.cpu.kernels.conv.convolution import plan_convolution
from xlakit.cpu.kernels.conv.pad import Padded
from xlakit.cpu.kernels.dot.dot import dot_product, plan_product
from xlakit.cpu.kernels.gemm.blocking import Blocking, plan_gemm, task_count
from xlakit.cpu.kernels.gemm.engine import stored_as_packed
from xlakit.cpu.kernels.gemm.operands import Direction
from xlakit.cpu.kernels.gemm.product import Product
from xlakit.data.layout import row_major_strides
from xlakit.dataclass import dataclass
from xlakit.ir.instruction import Instruction
from xlakit.ops.convolution import Convolution
from xlakit.ops.dot import Contraction
from xlakit.ops.movement import Transpose
from xlakit.options import knob, times
from xlakit.passes.analysis.cost_model import cost_model
from xlakit.passes.fusion.product_chain import Chain, Link

# The bytes of a rectangle of whole rows, which stays in the second-level cache because the epilogue reads and writes it
# several times. The cost of packing the other operand for each rectangle is negligible only with many rows, so the
# rectangle may be up to _MOST_TIMES times as large to have them.
_ROWS_BYTES = knob("product_cut.rows_bytes", lambda: machine.current().l2 // 2, 256, tries=(times(0.5), times(2)))
_MOST_TIMES = 4
_LARGEST_BLOCK = knob("product_cut.largest_block", lambda: machine.current().l2, 1 << 12)
# Blocks of fewer rows take longer to multiply, because the other operand is packed for each block.
_LEAST_ROWS = knob("product_cut.least_rows", 64, 1, 4)
_MANY_ROWS = knob("product_cut.many_rows", 256, 4)
# Fewer multiplications than this are not worth a separate task.
_TASK_PRODUCTS = knob("product_cut.task_products", 1 << 22, 100, tries=(times(0.25), times(4)))


@dataclass(frozen=True, slots=True)
class ProductTiling:
    """A product and its division into rectangles.

    copies: the copies of a convolution's operands that are made first.
    """

    product: Product
    blocking: Blocking
    copies: tuple[Padded, ...] = ()

    @property
    def tasks(self) -> int:
        """The number of tasks."""
        return task_count(self.product, self.blocking)

    @property
    def most(self) -> int:
        """The number of rows of the largest rectangle."""
        return min(self.blocking.mc, self.product.sizes[0])

    @property
    def width(self) -> int:
        """The stride of the rows of a local rectangle."""
        return self.blocking.local_width(self.product)

    @property
    def cost(self) -> float:
        """The estimated nanoseconds of all multiplications."""
        return self.product.batch * math.prod(self.product.sizes) * cost_model().multiplication

    @property
    def result(self) -> tuple[Direction, Direction, Direction]:
        """The directions through the result: of batches, rows and columns."""
        return self.product.batches[2], self.product.rows, self.product.columns


# -- first products --------------------------------------------------------------------------------


def tile_first(chain: Chain, *, reads_beside: bool) -> ProductTiling:
    """The division of the first product of a chain; raises DeclinedError if the product cannot call an epilogue.

    reads_beside: whether the epilogue reads other arrays of the size of the product's result.
    """
    if isinstance(chain.first.product.op, Convolution):
        return _tile_convolution(chain.first.product)
    product = product_of(chain.first)
    if chain.reduces:
        return _tile_rows(product)
    plan = plan_product(product, once=True)
    if plan.blocking is None:
        raise DeclinedError(f"nothing can follow a product of kind {plan.kernel}")
    blocking = plan_gemm(product, wide=True, once=True) if reads_beside else plan.blocking
    return ProductTiling(product, _with_smaller_blocks(product, blocking))


def product_of(link: Link) -> Product:
    """The product of a dot; its result has the strides of the value that is stored."""
    dot, stored = link.product, link.value
    strides: Sequence[int] = row_major_strides(stored.shape.dimensions)
    if stored is not dot:
        order = stored.op_as(Transpose).dimensions
        strides = [strides[order.index(d)] for d in range(len(order))]
    lhs, rhs = (o.shape for o in dot.operands)
    return dot_product(dot.op_as(Contraction), lhs, rhs, dot.shape, strides)


def _tile_convolution(convolution: Instruction) -> ProductTiling:
    lhs, rhs = (o.shape for o in convolution.operands)
    plan = plan_convolution(convolution.op_as(Convolution), lhs, rhs, convolution.shape)
    if plan.kind == "depthwise" or len(plan.products) != 1 or plan.products[0][0].first:
        raise DeclinedError(f"nothing can follow a convolution of kind {plan.kind} in {len(plan.products)} phases")
    product, blocking = plan.products[0]
    return ProductTiling(product, _with_smaller_blocks(product, blocking), plan.copies)


def _with_smaller_blocks(product: Product, blocking: Blocking) -> Blocking:
    """The blocking with blocks of rows whose results stay in the cache."""
    most = _LARGEST_BLOCK.value // (blocking.local_width(product) * product.result.byte_width)
    mc = max(4 * blocking.engine.mr, most // blocking.engine.mr * blocking.engine.mr)
    if mc >= blocking.mc or not (blocking.ahead or blocking.mc >= product.sizes[0]):
        return blocking
    return replace(blocking, mc=mc, ahead=True)


# -- whole rows ------------------------------------------------------------------------------------


def _tile_rows(product: Product) -> ProductTiling:
    """The division into rectangles of whole rows."""
    fitting = _ROWS_BYTES.value // (product.sizes[1] * product.result.byte_width)
    task_rows = _rows_at_once(product, max(fitting, min(_MANY_ROWS.value, _MOST_TIMES * fitting)))
    return ProductTiling(product, _with_whole_rows(product, plan_gemm(product), task_rows, task_rows))


def _rows_at_once(product: Product, most: int) -> int:
    """The rows of a block: about ``most``, or fewer so that there are tasks for all processors."""
    rows, columns, depth = product.sizes
    task_rows = min(rows, max(_LEAST_ROWS.value, most))
    target_tasks = min(machine.current().threads, product.batch * rows * columns * depth // _TASK_PRODUCTS.value)
    if product.batch * -(-rows // task_rows) < target_tasks:
        task_rows = max(min(rows, _LEAST_ROWS.value), -(-rows * product.batch // target_tasks))
    # Blocks of nearly equal size.
    blocks = -(-rows // task_rows)
    return (rows + 8 * blocks - 1) // (8 * blocks) * 8


def _with_whole_rows(product: Product, blocking: Blocking, mc: int, task_rows: int) -> Blocking:
    """A blocking with tasks of about ``task_rows`` rows and all columns, in blocks of at most ``mc`` rows."""
    rows, columns, _ = product.sizes
    engine = blocking.engine
    mc, task_rows = (-(-min(size, rows) // engine.mr) * engine.mr for size in (mc, task_rows))
    task_columns = -(-columns // engine.nr) * engine.nr
    return replace(
        blocking,
        task_columns=task_columns,
        column_tasks=1,
        task_rows=task_rows,
        row_tasks=-(-rows // task_rows),
        mc=mc,
        ahead=rows > mc,
    )


# -- second products -------------------------------------------------------------------------------


def product_of_rows(link: Link, weights: Instruction) -> Product:
    """The second product of a chain, with the rows of ``weights`` on the left."""
    whole = product_of(link)
    if link.product.operands[0] is weights:
        return whole
    a, b, c = whole.batches
    return Product(whole.rhs, whole.lhs, whole.result, whole.columns, whole.rows, (b, a, c))


def tile_second(whole: Product, rows: int, *, local: bool) -> ProductTiling:
    """The product of at most ``rows`` rows of a batch of a second product.

    It reads these rows as contiguous rows. It also writes ``local`` results row after row, other results to their final
    place. A task is a few rows.
    """
    _, columns, depth = whole.sizes
    lhs = replace(whole.lhs, across=Direction(((rows, depth),)), along=Direction(((depth, 1),)))
    rhs = whole.rhs
    if rhs.along.run != depth:
        # Both operands must have the same runs of k.
        lhs = replace(lhs, along=_runs(rhs.along))
    none = Direction(())
    part = replace(whole, lhs=lhs, rows=Direction(((rows, whole.rows.stride),)), batches=(none, none, none))
    if local:
        part = replace(part, rows=Direction(((rows, columns),)), columns=Direction(((columns, 1),)))
    blocking = plan_gemm(part)
    if blocking.engine.group == 1 and stored_as_packed(blocking.engine, part.lhs.kind):
        # The rows are in the cache, so they are read there without packing.
        blocking = replace(blocking, packs=(False, blocking.packs[1]))
    return ProductTiling(part, _with_whole_rows(part, blocking, blocking.mc, 4 * blocking.engine.mr))


def _runs(along: Direction) -> Direction:
    """The direction through a contiguous row of elements with the same dimensions as ``along``."""
    sizes = [size for size, _ in along.dims]
    return Direction(tuple(zip(sizes, row_major_strides(sizes), strict=True)))
