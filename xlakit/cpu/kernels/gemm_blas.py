"""Matrix products by BLAS: a task is one call for a rectangle of the result."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from xlakit.cpu.kernels import blas
from xlakit.cpu.kernels.gemm import Product, smaller
from xlakit.cpu.kernels.gemm_micro import NO_UNROLL
from xlakit.cpu.kernels.gemm_pack import Steps
from xlakit.cpu.llvm import I64, PTR, VOID, Function, Module, Value
from xlakit.cpu.scalars.memory import memory_type
from xlakit.data.primitive import PrimitiveType
from xlakit.errors import InternalError

_LETTERS = {PrimitiveType.F32: "s", PrimitiveType.F64: "d", PrimitiveType.C64: "c", PrimitiveType.C128: "z"}
_FACTORS = {"s": "<f", "d": "<d", "c": "<ff", "z": "<dd"}
_LARGEST = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Stored:
    """A matrix as BLAS takes it: whether its columns (of its rows) are far apart, and how far."""

    turned: bool
    distance: int


def as_stored(across: Steps, along: Steps) -> Stored | None:
    """A matrix with rows ``across`` and columns ``along`` for column-major BLAS; None for what BLAS cannot read.

    It is ``turned`` where ``along`` has stride 1.
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
    """Whether BLAS can compute a product from and to where the matrices lie."""
    lhs, rhs, kind = product.lhs, product.rhs, product.result
    return (
        kind in _LETTERS
        and lhs.kind is rhs.kind is kind
        and all(product.sizes)
        and as_stored(rhs.across, rhs.along) is not None
        and as_stored(lhs.across, lhs.along) is not None
        and as_stored(product.columns, product.rows) == Stored(False, max(product.columns.size, 1))
    )


def cut_for_blas(product: Product, least: int, most: int) -> tuple[int, int]:
    """Rows and columns of a task's rectangle, of at least ``least`` products; at most ``most`` tasks or so."""
    rows, columns, depth = product.sizes
    wanted = min(most, product.batch * rows * columns * depth // least)
    wanted = max(1, wanted // product.batch)
    unit, split = rows, columns
    while -(-rows // unit) * -(-columns // split) < wanted and max(unit, split) > 64:
        if unit >= split:
            unit = -(-unit // 32) * 16
        else:
            split = -(-split // 64) * 32
    return unit, split


def emit_blas(module: Module, product: Product, unit: int, split: int, name: str = "gemm") -> Function:
    """A task function that calls BLAS; its table is lhs, rhs, result. BLAS is meant to run on one thread then."""
    fn = module.function(name, VOID, [PTR, I64, I64])
    _, begin, end = fn.parameters
    rows, columns, depth = product.sizes
    units, splits = -(-rows // unit), -(-columns // split)
    kind = product.result
    letter = _LETTERS[kind]
    routine = blas.declare(module, f"{letter}gemm", 13)
    arrays = [fn.load(PTR, fn.at(fn.parameters[0], PTR, n), invariant=True) for n in range(3)]
    arguments = blas.Arguments(fn)
    parts = 2 if kind.is_complex else 1
    scale = _FACTORS[letter]
    one = arguments.data(struct.pack(scale, *(1.0, 0.0)[:parts]))
    zero = arguments.data(struct.pack(scale, *(0.0, 0.0)[:parts]))
    rhs, lhs = (as_stored(m.across, m.along) for m in (product.rhs, product.lhs))
    if rhs is None or lhs is None:
        raise InternalError("the product does not fit BLAS")
    with fn.loop(begin, end, hints=NO_UNROLL) as task:
        rest = task.index.integer("udiv", units)
        row = task.index.integer("urem", units) * unit
        column = rest.integer("urem", splits) * split
        batch = rest.integer("udiv", splits)
        offsets = [steps.offset(fn, batch) for steps in product.batches]
        offsets[0] = offsets[0] + product.lhs.across.offset(fn, row)
        offsets[1] = offsets[1] + product.rhs.across.offset(fn, column)
        offsets[2] = offsets[2] + product.rows.offset(fn, row) + column
        places = [fn.at(a, memory_type(kind), o * parts) for a, o in zip(arrays, offsets, strict=True)]
        # Row-major results are the transposes of column-major ones: result' = rhs' lhs'.
        fn.call(
            routine,
            VOID,
            arguments.letter("T" if rhs.turned else "N"),
            arguments.letter("N" if lhs.turned else "T"),
            _size(fn, arguments, "columns", column, split, columns),
            _size(fn, arguments, "rows", row, unit, rows),
            arguments.integer(depth),
            one,
            places[1],
            arguments.integer(rhs.distance),
            places[0],
            arguments.integer(lhs.distance),
            zero,
            places[2],
            arguments.integer(max(columns, 1)),
        )
    fn.ret()
    return fn


def _size(fn: Function, arguments: blas.Arguments, name: str, first: Value, size: int, total: int) -> Value:
    """How many rows or columns a rectangle has."""
    if total % size == 0:
        return arguments.integer(size)
    return arguments.computed(name, smaller(fn, fn.i64(total) - first, fn.i64(size)))
