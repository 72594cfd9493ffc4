"""Factorizations of matrices. All dimensions of an operand but the last two count matrices.

Each is a custom call of LAPACK that compiled programs make without Python. A factorization that fails gives NaN.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from xlakit.data.primitive import PrimitiveType
from xlakit.data.shape import Shape, make_shape, make_tuple_shape
from xlakit.errors import ShapeError
from xlakit.lib.matrix import identity_matrix
from xlakit.ops.control import while_
from xlakit.ops.custom_call import custom_call
from xlakit.ops.data import constant, get_tuple_element, iota, tuple_
from xlakit.ops.dynamic import dynamic_slice, dynamic_update_slice
from xlakit.ops.elementwise.binary import add, sub
from xlakit.ops.elementwise.compare import eq, le, lt
from xlakit.ops.elementwise.select import select
from xlakit.ops.elementwise.unary import conj
from xlakit.ops.handle import XlaOp, building
from xlakit.ops.movement import broadcast_in_dim, pad, reshape, slice as slice_part, transpose
from xlakit.ops.reduction import reduce

_PREFIXES = {PrimitiveType.F32: "s", PrimitiveType.F64: "d", PrimitiveType.C64: "c", PrimitiveType.C128: "z"}
_REAL = ("s", "d")


def _matrices(a: XlaOp, *, square: bool = False) -> tuple[str, tuple[int, ...], int, int]:
    """LAPACK's letter, the batch dimensions, rows and columns of an operand."""
    shape = a.shape
    prefix = _PREFIXES.get(shape.element_type)
    if prefix is None or len(shape.dimensions) < 2 or shape.is_dynamic:
        raise ShapeError(f"takes matrices of f32, f64, c64 or c128, got {shape}", hint="convert them, add dimensions")
    *batch, rows, columns = shape.dimensions
    if square and rows != columns:
        raise ShapeError(f"takes square matrices, got {shape}", hint="the last two dimensions must be equal")
    return prefix, tuple(batch), rows, columns


def _call(name: str, operands: Sequence[XlaOp], shapes: Sequence[Shape], config: str = "") -> list[XlaOp]:
    """The results of a routine."""
    builder = operands[0].builder
    result = custom_call(builder, name, list(operands), make_tuple_shape(shapes), config)
    return [get_tuple_element(result, i) for i in range(len(shapes))]


def _or_nan(value: XlaOp, status: XlaOp) -> XlaOp:
    """A value, NaN for those matrices whose status is not 0."""
    shape = value.shape
    succeeded = broadcast_in_dim(eq(status, 0), shape.dimensions, range(status.shape.rank))
    nan = constant(value.builder, np.asarray(np.nan, shape.element_type.dtype))
    return select(succeeded, value, broadcast_in_dim(nan, shape.dimensions, ()))


def _triangle(a: XlaOp, *, lower: bool) -> XlaOp:
    """The elements on the diagonal and below it, or above it; zeros elsewhere."""
    shape = a.shape
    index = make_shape(PrimitiveType.S32, shape.dimensions)
    rows, columns = (iota(a.builder, index, shape.rank - n) for n in (2, 1))
    kept = le(columns, rows) if lower else le(rows, columns)
    zero = constant(a.builder, np.zeros((), shape.element_type.dtype))
    return select(kept, a, broadcast_in_dim(zero, shape.dimensions, ()))


@building
def qr_decomposition(a: XlaOp) -> tuple[XlaOp, XlaOp]:
    """The QR factorization in LAPACK's form.

    a: matrices [.., m, n]. Gives matrices [.., m, n] of R and, below the diagonal, of the Householder vectors, and
    their factors [.., min(m, n)]. Raises ShapeError. Source: Qr.
    """
    prefix, batch, rows, columns = _matrices(a)
    kind = a.shape.element_type
    shapes = [make_shape(kind, (*batch, rows, columns)), make_shape(kind, (*batch, min(rows, columns)))]
    packed, taus = _call(f"lapack_{prefix}geqrf_ffi", [a], shapes)
    return packed, taus


@building
def product_of_elementary_householder_reflectors(a: XlaOp, taus: XlaOp) -> XlaOp:
    """The first columns of the product of Householder reflections.

    a: matrices [.., m, n] of Householder vectors below the diagonal, with m at least n.
    taus: their factors [.., k], with k at most n.

    Gives matrices [.., m, n]. Raises ShapeError. Source: ProductOfElementaryHouseholderReflectors.
    """
    prefix, batch, rows, columns = _matrices(a)
    count = taus.shape.dimensions[-1] if taus.shape.dimensions else 0
    if rows < columns or taus.shape.dimensions[:-1] != batch or count > columns:
        raise ShapeError(f"takes [.., m, n] and [.., k] with m >= n >= k, got {a.shape} and {taus.shape}")
    name = f"lapack_{prefix}{'orgqr' if prefix in _REAL else 'ungqr'}_ffi"
    return custom_call(a.builder, name, [a, taus], make_shape(a.shape.element_type, (*batch, rows, columns)))


@building
def qr(a: XlaOp, full_matrices: bool = True) -> tuple[XlaOp, XlaOp]:
    """Q and R, whose product is ``a``: an orthogonal (or unitary) and an upper triangular matrix.

    a: matrices [.., m, n].
    full_matrices: whether Q is [.., m, m] and R [.., m, n]; otherwise with k = min(m, n) they are [.., m, k] and
        [.., k, n].

    Raises ShapeError. Source: QrExplicit.
    """
    _, batch, rows, columns = _matrices(a)
    packed, taus = qr_decomposition(a)
    width = rows if full_matrices else min(rows, columns)
    vectors = packed
    if width > columns:
        zero = constant(a.builder, np.zeros((), a.shape.element_type.dtype))
        vectors = pad(packed, zero, [(0, 0, 0)] * (len(batch) + 1) + [(0, width - columns, 0)])
    elif width < columns:
        vectors = _corner(packed, rows, width)
    q = product_of_elementary_householder_reflectors(vectors, taus)
    return q, _triangle(_corner(packed, width, columns), lower=False)


def _corner(a: XlaOp, rows: int, columns: int) -> XlaOp:
    sizes = [*a.shape.dimensions[:-2], rows, columns]
    return slice_part(a, [0] * len(sizes), sizes)


@building
def lu(a: XlaOp) -> tuple[XlaOp, XlaOp, XlaOp]:
    """The LU factorization with partial pivoting.

    a: matrices [.., m, n]. Gives L below the diagonal and U from it on in one matrix [.., m, n], the rows that were
    exchanged with each row, S32[.., min(m, n)], and the permutation of the rows, S32[.., m]. Raises ShapeError.
    Source: LuDecomposition.
    """
    prefix, batch, rows, columns = _matrices(a)
    count = min(rows, columns)
    shapes = [
        make_shape(a.shape.element_type, (*batch, rows, columns)),
        make_shape(PrimitiveType.S32, (*batch, count)),
        make_shape(PrimitiveType.S32, batch),
    ]
    factors, pivots, _ = _call(f"lapack_{prefix}getrf_ffi", [a], shapes)
    zero_based = sub(pivots, constant(a.builder, np.ones((), np.int32)))
    return factors, zero_based, lu_pivots_to_permutation(zero_based, rows)


@building
def lu_pivots_to_permutation(pivots: XlaOp, rows: int) -> XlaOp:
    """The permutation S32[.., rows] that exchanging each row with its pivot makes, for all matrices at once.

    pivots: S32[.., k], the rows that the first k are exchanged with in turn, counted from zero. rows: at least k.

    Raises ShapeError. Source: LuDecomposition, its third result.
    """
    shape = pivots.shape
    if shape.element_type != PrimitiveType.S32 or not shape.rank or shape.dimensions[-1] > rows:
        raise ShapeError(f"takes s32[.., k] with k at most {rows}, got {shape}", hint="there is a pivot for a row")
    builder = pivots.builder
    *batch, count = pivots.shape.dimensions
    index = make_shape(PrimitiveType.S32, (*batch, rows))
    positions = iota(builder, index, len(batch))
    if not count:
        return positions
    start = tuple_(builder, constant(builder, np.zeros((), np.int32)), positions, pivots)

    def exchange(state: XlaOp) -> XlaOp:
        step, order, all_pivots = (get_tuple_element(state, i) for i in range(3))
        zeros = [constant(state.builder, np.zeros((), np.int32))] * len(batch)
        one = [*batch, 1]
        row = dynamic_slice(order, [*zeros, step], one)
        pivot = dynamic_slice(all_pivots, [*zeros, step], one)
        everywhere = list(range(len(batch) + 1))
        numbers = iota(state.builder, index, len(batch))
        wide = broadcast_in_dim(reshape(pivot, new_sizes=batch), (*batch, rows), everywhere[:-1])
        is_pivot = eq(numbers, wide)
        # The row at the pivot, of which there is one in each matrix.
        zero = broadcast_in_dim(constant(state.builder, np.zeros((), np.int32)), (*batch, rows), ())
        other = reduce(select(is_pivot, order, zero), 0, add, [len(batch)])
        here = broadcast_in_dim(reshape(row, new_sizes=batch), (*batch, rows), everywhere[:-1])
        moved = select(is_pivot, here, order)
        changed = dynamic_update_slice(moved, reshape(other, new_sizes=one), [*zeros, step])
        return tuple_(state.builder, add(step, constant(state.builder, np.ones((), np.int32))), changed, all_pivots)

    def goes_on(state: XlaOp) -> XlaOp:
        return lt(get_tuple_element(state, 0), constant(state.builder, np.asarray(count, np.int32)))

    return get_tuple_element(while_(goes_on, exchange, start), 1)


@building
def eigh(a: XlaOp, lower: bool = True, sort_eigenvalues: bool = True) -> tuple[XlaOp, XlaOp]:
    """Eigenvectors and eigenvalues of symmetric (or Hermitian) matrices.

    a: matrices [.., n, n]. lower: whether their lower triangle is read, otherwise the upper one.
    sort_eigenvalues: has no effect; they always come in ascending order.

    Gives vectors [.., n, n] in columns, and values [.., n]. Raises ShapeError. Source: SelfAdjointEig.
    """
    prefix, batch, _, size = _matrices(a, square=True)
    kind = a.shape.element_type
    shapes = [
        make_shape(kind, (*batch, size, size)),
        make_shape(kind.real_part, (*batch, size)),
        make_shape(PrimitiveType.S32, batch),
    ]
    name = f"lapack_{prefix}{'syevd' if prefix in _REAL else 'heevd'}_ffi"
    config = f"{{mode = {ord('V')} : ui8, uplo = {ord('L' if lower else 'U')} : ui8}}"
    vectors, values, status = _call(name, [a], shapes, config)
    return _or_nan(vectors, status), _or_nan(values, status)


@building
def svd(a: XlaOp) -> tuple[XlaOp, XlaOp, XlaOp]:
    """The singular value decomposition: a = u diag(d) v^H.

    a: matrices [.., m, n]. Gives u [.., m, m], d [.., min(m, n)] in descending order, and v [.., n, n].
    Raises ShapeError. Source: SVD.
    """
    prefix, batch, rows, columns = _matrices(a)
    kind = a.shape.element_type
    if not rows or not columns:
        # Empty matrices: any orthogonal matrices are a valid result, so LAPACK is not called.
        u, v = (
            broadcast_in_dim(identity_matrix(a.builder, kind, n, n), (*batch, n, n), [len(batch), len(batch) + 1])
            for n in (rows, columns)
        )
        return u, constant(a.builder, np.zeros((*batch, 0), kind.real_part.dtype)), v
    shapes = [
        make_shape(kind, (*batch, rows, columns)),
        make_shape(kind.real_part, (*batch, min(rows, columns))),
        make_shape(kind, (*batch, rows, rows)),
        make_shape(kind, (*batch, columns, columns)),
        make_shape(PrimitiveType.S32, batch),
    ]
    _, d, u, vh, status = _call(f"lapack_{prefix}gesdd_ffi", [a], shapes, f"{{mode = {ord('A')} : ui8}}")
    order = [*range(len(batch)), len(batch) + 1, len(batch)]
    v = transpose(vh if prefix in _REAL else conj(vh), order)
    return _or_nan(u, status), _or_nan(d, status), _or_nan(v, status)
