"""The HLO dot as a matrix product: merges its dimensions, and chooses its kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from xlakit.cpu.declined import DeclinedError
from xlakit.cpu.kernels.dot.few_rows import MOST_ROWS, columns_per_task, emit_few_rows
from xlakit.cpu.kernels.dot.matrix_vector import emit_matrix_vector, fits_vectors, rows_at_once
from xlakit.cpu.kernels.gemm.blocking import Blocking, fills_tiles, plan_gemm, task_count
from xlakit.cpu.kernels.gemm.driver import emit_gemm
from xlakit.cpu.kernels.gemm.engine import Engine, choose_engine
from xlakit.cpu.kernels.gemm.operands import Direction, Matrix
from xlakit.cpu.kernels.gemm.product import Dims, Product, make_product, merged
from xlakit.cpu.llvm import Function, Module
from xlakit.data.layout import row_major_strides
from xlakit.data.primitive import PrimitiveType
from xlakit.data.shape import Shape
from xlakit.dataclass import dataclass
from xlakit.ops.dot import Contraction
from xlakit.ops.shared.contraction import free_dimensions
from xlakit.ops.shared.nibbles import is_packed
from xlakit.options import knob, times

# The least size of a matrix for the kernels of few rows and of few vectors, which stream it.
_STREAMED = knob("dot.streamed", 1 << 16, 1)
# Elements of the matrix in one task of a product with a vector.
_VECTOR_TASK = knob("dot.vector_task", 1 << 17, 8, 64, tries=(times(0.25), times(4)))


@dataclass(frozen=True, slots=True)
class DotPlan:
    """The kernel of a dot, and its blocking.

    tasks: the size of the task space; 0 if the result is empty. cost: the number of multiplications. task_rows: the
    rows of a task of "matrix_vector". swapped: whether the operands of ``product`` are the dot's in reversed order.
    """

    kernel: Literal["gemm", "matrix_vector", "few_rows"]
    product: Product
    tasks: int
    cost: int
    blocking: Blocking | None = None
    engine: Engine | None = None
    task_rows: int = 0
    swapped: bool = False


def plan_dot(op: Contraction, lhs: Shape, rhs: Shape, result: Shape, *, once: bool = False) -> DotPlan:
    """The plan of a dot of these shapes (row-major, of static sizes); raises DeclinedError. once: see ``plan_gemm``."""
    for shape in (lhs, rhs, result):
        if shape.is_dynamic:
            raise DeclinedError(f"a dot of the dynamic shape {shape}")
    if is_packed(op):
        raise DeclinedError("a dot of packed nibbles that no pass has expanded")
    return plan_product(dot_product(op, lhs, rhs, result), once=once)


def dot_product(
    op: Contraction, lhs: Shape, rhs: Shape, result: Shape, strides: Sequence[int] | None = None
) -> Product:
    """The matrix product of a dot; ``strides`` are those of its result if it is not row-major."""
    left, right = row_major_strides(lhs.dimensions), row_major_strides(rhs.dimensions)
    if result.element_type.is_complex is False:
        # Real results of complex operands depend on the real parts only.
        lhs, left = real_parts(lhs, left)
        rhs, right = real_parts(rhs, right)
    if result.element_type is PrimitiveType.PRED and (lhs.element_type.is_complex or rhs.element_type.is_complex):
        raise DeclinedError("a dot of complex numbers has no result of type pred")
    out = row_major_strides(result.dimensions) if strides is None else strides
    lhs_free = free_dimensions(lhs.rank, op.lhs_batch_dims, op.lhs_contracting_dims)
    rhs_free = free_dimensions(rhs.rank, op.rhs_batch_dims, op.rhs_contracting_dims)
    batch: Dims = []
    for k, (a, b) in enumerate(zip(op.lhs_batch_dims, op.rhs_batch_dims, strict=True)):
        batch.append((lhs.dimensions[a], (left[a], right[b], out[k])))
    done = len(batch)
    rows: Dims = [(lhs.dimensions[d], (left[d], out[done + n])) for n, d in enumerate(lhs_free)]
    done += len(rows)
    columns: Dims = [(rhs.dimensions[d], (right[d], out[done + n])) for n, d in enumerate(rhs_free)]
    pairs = zip(op.lhs_contracting_dims, op.rhs_contracting_dims, strict=True)
    along: Dims = [(lhs.dimensions[a], (left[a], right[b])) for a, b in pairs]
    # A sum may have any order: the dimension of stride 1 should be innermost.
    along.sort(key=lambda dim: (-min(dim[1]), dim[1]))
    return make_product(
        (lhs.element_type, rhs.element_type, result.element_type),
        merged(batch),
        merged(rows),
        merged(columns),
        merged(along),
    )


def real_parts(shape: Shape, strides: tuple[int, ...]) -> tuple[Shape, tuple[int, ...]]:
    """The shape of the real parts of a complex array, and their strides in its memory."""
    if not shape.element_type.is_complex:
        return shape, strides
    return shape.with_element_type(shape.element_type.real_part), tuple(2 * s for s in strides)


def plan_product(product: Product, *, once: bool = False) -> DotPlan:
    """The kernel of a matrix product, and its blocking. once: see ``plan_gemm``."""
    rows, columns, depth = product.sizes
    cost = product.batch * rows * columns * depth
    if not product.batch * rows * columns:
        return DotPlan("gemm", product, 0, 0, plan_gemm(product))
    in_tiles = fills_tiles(product)
    with_vectors = None if in_tiles else _with_vectors_last(product)
    if with_vectors is not None:
        engine = _vector_engine(with_vectors)
        size, vectors, deep = with_vectors.sizes
        whole = 2 * rows_at_once(engine, vectors)
        task_rows = min(size, whole * max(1, -(-_VECTOR_TASK.value // max(1, deep) // whole)))
        tasks = product.batch * -(-size // task_rows)
        return DotPlan(
            "matrix_vector", with_vectors, tasks, cost, engine=engine, task_rows=task_rows, swapped=columns > rows
        )
    if not in_tiles and _is_streamed(product):
        engine = _vector_engine(product)
        tasks = product.batch * -(-columns // columns_per_task(engine, rows, columns))
        return DotPlan("few_rows", product, tasks, cost, engine=engine)
    blocking = plan_gemm(product, once=once)
    return DotPlan("gemm", product, task_count(product, blocking), cost, blocking)


def _is_streamed(product: Product) -> bool:
    """Whether this is a product of a few rows and a large row-major matrix, which is streamed."""
    rows, columns, depth = product.sizes
    across = product.rhs.across
    return (
        rows * choose_engine(product.lhs.kind, product.rhs.kind, product.result).parts <= MOST_ROWS.value
        and depth >= 16
        and columns * depth >= _STREAMED.value
        and len(across.dims) == 1
        and across.stride == 1
    )


def _vector_engine(product: Product) -> Engine:
    return choose_engine(product.lhs.kind, product.rhs.kind, product.result).one_by_one()


def _with_vectors_last(product: Product) -> Product | None:
    """The product with the matrix on the left, if it is one of contiguous rows and a few vectors; else None."""
    rows, columns, depth = product.sizes
    matrix = product.lhs if columns <= rows else product.rhs
    if depth < 2 or len(matrix.along.dims) > 1 or matrix.along.stride != 1:
        return None
    exchanged, is_complex = product, product.result.is_complex
    if columns > rows:
        left, right, out = product.batches
        exchanged = Product(matrix, product.lhs, product.result, product.columns, product.rows, (right, left, out))
    if is_complex:
        if {matrix.kind, exchanged.rhs.kind} != {exchanged.result}:
            return None
        exchanged = _of_real_numbers(exchanged)
    rows, vectors, depth = exchanged.sizes
    if vectors > 1 and rows * depth < _STREAMED.value and not is_complex:
        return None
    return exchanged if fits_vectors(_vector_engine(exchanged), vectors, depth, is_complex=is_complex) else None


def _of_real_numbers(product: Product) -> Product:
    """A product of a complex matrix and vectors as a product of real numbers; the vectors are packed as real ones.

    The parts of an element of the matrix are two steps of k, and the parts of a result are two columns.
    """

    def doubled(direction: Direction) -> Direction:
        return Direction(tuple((size, 2 * stride) for size, stride in direction.dims))

    kind, matrix = product.result.real_part, product.lhs
    left, right, out = product.batches
    along = Direction(((2 * matrix.along.size, 1),))
    real = Matrix(kind, doubled(matrix.across), along, 2 * matrix.first)
    columns = Direction((*doubled(product.columns).dims, (2, 1)))
    return Product(real, product.rhs, kind, doubled(product.rows), columns, (doubled(left), right, doubled(out)))


def emit_dot(module: Module, plan: DotPlan) -> Function:
    """The task function of a plan; its table is lhs, rhs, result.

    A task acquires its scratch itself, see ``kernels/shared/scratch.py``.
    """
    if plan.kernel == "matrix_vector" and plan.engine is not None:
        arrays = (1, 0) if plan.swapped else (0, 1)
        return emit_matrix_vector(module, plan.engine, plan.product, arrays, plan.task_rows)
    if plan.kernel == "few_rows" and plan.engine is not None:
        return emit_few_rows(module, plan.engine, plan.product)
    return emit_gemm(module, plan.product, plan.blocking, name="dot")
