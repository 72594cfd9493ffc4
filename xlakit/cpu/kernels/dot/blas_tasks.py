"""Matrix products by BLAS: a task is one call for a rectangle of the result."""

from __future__ import annotations

import struct

from xlakit.cpu.kernels.gemm.epilogue import EpilogueCall, Rectangle
from xlakit.cpu.kernels.gemm.operands import Direction, smaller
from xlakit.cpu.kernels.gemm.product import Product
from xlakit.cpu.kernels.shared import blas
from xlakit.cpu.kernels.shared.preconditions import require
from xlakit.cpu.kernels.shared.scratch import acquire, release
from xlakit.cpu.llvm import I64, PTR, VOID, Effort, Function, Module, Value
from xlakit.cpu.llvm.loop import AS_WRITTEN
from xlakit.cpu.scalars.memory import memory_type
from xlakit.data.primitive import PrimitiveType
from xlakit.dataclass import dataclass
from xlakit.errors import InternalError

_LARGEST = 2**31 - 1
# A call of BLAS cannot be interrupted. With so many multiplications of F32 it takes a few tenths of a second.
_LONGEST_CALL = 1 << 33


@dataclass(frozen=True, slots=True)
class Stored:
    """A matrix in BLAS's form: whether it is transposed, and its leading dimension."""

    transposed: bool
    leading: int


def as_stored(across: Direction, along: Direction) -> Stored | None:
    """A matrix with rows ``across`` and columns ``along`` for column-major BLAS; None for what BLAS cannot read.

    It is ``transposed`` where ``along`` has stride 1.
    """
    if len(across.dims) > 1 or len(along.dims) > 1:
        return None
    (rows, row), (columns, column) = (d.dims[0] if d.dims else (1, 1) for d in (across, along))
    if max(rows, columns, row, column) > _LARGEST:
        return None
    if (row == 1 or rows == 1) and (column >= rows or columns == 1):
        return Stored(False, max(column, rows, 1))
    if (column == 1 or columns == 1) and (row >= columns or rows == 1):
        return Stored(True, max(row, columns, 1))
    return None


def fits_blas(product: Product) -> bool:
    """Whether BLAS can compute a product with the strides of its matrices."""
    lhs, rhs, kind = product.lhs, product.rhs, product.result
    return (
        kind in blas.LETTERS
        and lhs.kind is rhs.kind is kind
        and all(product.sizes)
        and as_stored(rhs.across, rhs.along) is not None
        and as_stored(lhs.across, lhs.along) is not None
        and (result := as_stored(product.columns, product.rows)) is not None
        and not result.transposed
    )


def cut_for_blas(product: Product, least: int, most: int) -> tuple[int, int]:
    """Rows and columns of a task, for tasks of at least ``least`` multiplications, and about ``most`` of them at most.

    More are made where a task would take so long that Ctrl-C is noticed late. The longer side is halved, columns
    before rows: BLAS takes longest to pack what is the right operand here.
    """
    rows, columns, depth = product.sizes
    total = product.batch * rows * columns * depth
    wanted = max(min(most, total // least), total * product.result.byte_width // (4 * _LONGEST_CALL))
    wanted = max(1, wanted // product.batch)
    task_rows, task_columns = rows, columns
    while -(-rows // task_rows) * -(-columns // task_columns) < wanted and max(task_rows, task_columns) > 64:
        # A task has no fewer than 32 columns.
        if task_rows >= 4 * task_columns or task_columns <= 32:
            task_rows = -(-task_rows // 32) * 16
        else:
            task_columns = -(-task_columns // 64) * 32
    return task_rows, task_columns


def emit_blas(
    module: Module,
    product: Product,
    task_rows: int,
    task_columns: int,
    name: str = "gemm",
    epilogue_call: EpilogueCall | None = None,
) -> Function:
    """A task function that calls BLAS; its table is lhs, rhs, result. The caller sets BLAS to one thread.

    ``epilogue_call`` is called after each rectangle, see :class:`EpilogueCall`.
    """
    rows, columns, depth = product.sizes
    require(
        f"a product of {product.sizes} by BLAS, {task_rows} rows and {task_columns} columns a task",
        [
            ("the product fits BLAS", fits_blas(product)),
            ("a task has rows and columns", task_rows > 0 and task_columns > 0),
        ],
    )
    fn = module.function(name, VOID, [PTR, I64, I64])
    _, begin, end = fn.parameters
    row_tasks, column_tasks = -(-rows // task_rows), -(-columns // task_columns)
    kind = product.result
    routine = Routine(fn, kind)
    arrays = [fn.load(PTR, fn.at(fn.parameters[0], PTR, n)) for n in range(3)]
    parts = 2 if kind.is_complex else 1
    rhs, lhs = (as_stored(m.across, m.along) for m in (product.rhs, product.lhs))
    result = as_stored(product.columns, product.rows)
    if rhs is None or lhs is None or result is None:
        raise InternalError("the product does not fit BLAS")
    local = epilogue_call is not None and epilogue_call.local
    distance = min(task_columns, columns) if local else result.leading
    memory = acquire(fn, min(task_rows, rows) * distance * kind.byte_width) if local else fn.null()
    with fn.loop(begin, end, hints=AS_WRITTEN) as task:
        rest = task.index.integer("udiv", row_tasks)
        row = task.index.integer("urem", row_tasks) * task_rows
        column = rest.integer("urem", column_tasks) * task_columns
        batch = rest.integer("udiv", column_tasks)
        offsets = [direction.offset(fn, batch) for direction in product.batches]
        offsets[0] = offsets[0] + product.lhs.across.offset(fn, row)
        offsets[1] = offsets[1] + product.rhs.across.offset(fn, column)
        offsets[2] = offsets[2] + product.rows.offset(fn, row) + column
        pointers = [fn.at(a, memory_type(kind), o * parts) for a, o in zip(arrays, offsets, strict=True)]
        if local:
            pointers[2] = memory
        sizes = (_size(fn, row, task_rows, rows), _size(fn, column, task_columns, columns), depth)
        routine.call((pointers[0], lhs), (pointers[1], rhs), (pointers[2], distance), sizes)
        if epilogue_call is not None:
            last_row, last_column = (
                smaller(row + task_rows, fn.i64(rows)),
                smaller(column + task_columns, fn.i64(columns)),
            )
            base = memory if local else arrays[2]
            epilogue_call.call(fn, Rectangle(base, batch, (row, last_row), (column, last_column)))
    if local:
        release(fn, memory)
    fn.ret()
    fn.effort = Effort.LITTLE
    return fn


def _size(fn: Function, first: Value, size: int, total: int) -> Value | int:
    """The number of rows or columns of a rectangle."""
    return size if total % size == 0 else smaller(fn.i64(total) - first, fn.i64(size))


class Routine:
    """The matrix product of BLAS, called from one function."""

    def __init__(self, fn: Function, kind: PrimitiveType) -> None:
        letter, parts = blas.LETTERS[kind], 2 if kind.is_complex else 1
        self._fn = fn
        self._name = blas.declare(fn.module, f"{letter}gemm", 13)
        self._arguments = blas.Arguments(fn)
        self._one = self._arguments.data(struct.pack(blas.FACTORS[letter], *(1.0, 0.0)[:parts]))
        self._zero = self._arguments.data(struct.pack(blas.FACTORS[letter], *(0.0, 0.0)[:parts]))

    def call(
        self,
        lhs: tuple[Value, Stored],
        rhs: tuple[Value, Stored],
        result: tuple[Value, int],
        sizes: tuple[Value | int, Value | int, int],
    ) -> None:
        """The product of two matrices, given as where they begin and how they are stored.

        result: where it begins, and how far its rows are apart. sizes: its rows and columns, and the steps of k.
        """
        arguments = self._arguments
        rows, columns, depth = sizes
        # Row-major results are the transposes of column-major ones: result' = rhs' lhs'.
        self._fn.call(
            self._name,
            VOID,
            arguments.letter("T" if rhs[1].transposed else "N"),
            arguments.letter("N" if lhs[1].transposed else "T"),
            self._number("columns", columns),
            self._number("rows", rows),
            arguments.integer(depth),
            self._one,
            rhs[0],
            arguments.integer(rhs[1].leading),
            lhs[0],
            arguments.integer(lhs[1].leading),
            self._zero,
            result[0],
            arguments.integer(result[1]),
        )

    def _number(self, name: str, number: Value | int) -> Value:
        if isinstance(number, int):
            return self._arguments.integer(number)
        return self._arguments.computed(name, number)
