"""Diagonals, triangles and transposes of matrices. All dimensions of an operand but the last two count matrices.

Source: ``xla/hlo/builder/lib/matrix.h``; its products are in :mod:`xlakit.lib.products`.
"""

from __future__ import annotations

import numpy as np

from xlakit.data.primitive import PrimitiveType
from xlakit.data.shape import make_shape
from xlakit.errors import ShapeError
from xlakit.ops.data import constant, iota
from xlakit.ops.elementwise.binary import add, complex
from xlakit.ops.elementwise.compare import eq, le
from xlakit.ops.elementwise.convert import convert_element_type
from xlakit.ops.elementwise.select import select
from xlakit.ops.elementwise.unary import conj, real
from xlakit.ops.handle import Builder, XlaOp, building
from xlakit.ops.movement import broadcast_in_dim, pad, reshape, slice as slice_part, transpose


@building
def matrix_diagonal(a: XlaOp, k: int = 0) -> XlaOp:
    """The elements [..., i, i + k]: of [..., m, n] the min(m, n - k) or min(m + k, n) on the diagonal ``k``.

    k: 0 for the main diagonal, above it positive, below it negative.

    Raises ShapeError for what has no matrices, and where there is no such diagonal.
    Source: GetMatrixDiagonal of XLA's client library.
    """
    batch, rows, columns = _sizes(a)
    length = min(rows, columns - k) if k >= 0 else min(rows + k, columns)
    if length <= 0:
        raise ShapeError(f"{a.shape} has no diagonal {k}", hint=f"give {1 - rows} to {columns - 1}")
    start = k if k >= 0 else -k * columns
    zeros, ones = [0] * len(batch), [1] * len(batch)
    flat = reshape(a, new_sizes=[*batch, rows * columns])
    limit = start + (length - 1) * (columns + 1) + 1
    return slice_part(flat, [*zeros, start], [*batch, limit], [*ones, columns + 1])


@building
def lower_triangle(a: XlaOp, k: int = 0) -> XlaOp:
    """The elements on the diagonal ``k`` and below it; zeros elsewhere. Raises ShapeError. Source: LowerTriangle."""
    return _triangle(a, k, lower=True)


@building
def upper_triangle(a: XlaOp, k: int = 0) -> XlaOp:
    """The elements on the diagonal ``k`` and above it; zeros elsewhere. Raises ShapeError. Source: UpperTriangle."""
    return _triangle(a, k, lower=False)


@building
def triangle(a: XlaOp, lower: bool) -> XlaOp:
    """:func:`lower_triangle` or :func:`upper_triangle` with the main diagonal. Source: Triangle."""
    return _triangle(a, 0, lower=lower)


@building
def triangle_mask(a: XlaOp, diagonal: int) -> XlaOp:
    """PRED of the sizes of ``a``: true on a diagonal and below it. Raises ShapeError. Source: TriangleMask."""
    columns, border = _places(a, diagonal)
    return le(columns, border)


@building
def diagonal_mask(a: XlaOp, diagonal: int = 0) -> XlaOp:
    """PRED of the sizes of ``a``: true on a diagonal alone. Raises ShapeError. Source: GetDiagonalMask."""
    columns, border = _places(a, diagonal)
    return eq(columns, border)


@building
def identity_matrix(builder: Builder, type: PrimitiveType, m: int, n: int) -> XlaOp:
    """The matrix [m, n] of a type with 1 on the diagonal, 0 elsewhere. Raises ShapeError. Source: IdentityMatrix."""
    index = make_shape(PrimitiveType.S32, [m, n])
    return convert_element_type(eq(iota(builder, index, 0), iota(builder, index, 1)), type)


@building
def set_matrix_diagonal(matrix: XlaOp, diag: XlaOp, k: int = 0) -> XlaOp:
    """``matrix`` with ``diag`` on the diagonal ``k``.

    diag: elements of the type of ``matrix``, of the shape that :func:`matrix_diagonal` gives.

    Raises ShapeError. Source: SetMatrixDiagonal.
    """
    wanted = matrix_diagonal(matrix, k).shape
    if not diag.shape.compatible(wanted):
        raise ShapeError(f"{diag.shape} is not the diagonal {k} of {matrix.shape}", hint=f"give {wanted}")
    batch, rows, columns = _sizes(matrix)
    # In row-major order a diagonal lies at steps of one row and one element.
    start = k if k >= 0 else -k * columns
    count = diag.shape.dimensions[-1]
    reach = start + (count - 1) * (columns + 1) + 1
    nothing = constant(matrix.builder, np.zeros((), matrix.shape.element_type.dtype))
    around = [*[(0, 0, 0)] * len(batch), (start, rows * columns - reach, columns)]
    spread = reshape(pad(diag, nothing, around), new_sizes=matrix.shape.dimensions)
    return select(diagonal_mask(matrix, k), spread, matrix)


@building
def symmetrize(a: XlaOp, lower: bool) -> XlaOp:
    """Symmetric (or Hermitian) matrices of one triangle of ``a`` and its mirror image.

    a: square matrices. lower: whether the lower triangle counts, otherwise the upper one. Imaginary parts on the
        diagonal of complex matrices become 0.

    Raises ShapeError. Source: Symmetrize.
    """
    _, rows, columns = _sizes(a)
    if rows != columns:
        raise ShapeError(f"takes square matrices, got {a.shape}", hint="the last two dimensions must be equal")
    mirrored = transpose_in_minor_dims(a)
    if a.shape.element_type.is_complex:
        mirrored = conj(mirrored)
        on_diagonal = real(a)
        zero = constant(a.builder, np.zeros((), on_diagonal.shape.element_type.dtype))
        nothing = broadcast_in_dim(zero, a.shape.dimensions, ())
        a = select(diagonal_mask(a), complex(on_diagonal, nothing), a)
    return select(triangle_mask(a, 0), a, mirrored) if lower else select(triangle_mask(a, -1), mirrored, a)


@building
def transpose_in_minor_dims(a: XlaOp) -> XlaOp:
    """All matrices transposed. Raises ShapeError for what has none. Source: TransposeInMinorDims."""
    batch, _, _ = _sizes(a)
    rank = len(batch) + 2
    return transpose(a, [*range(rank - 2), rank - 1, rank - 2])


@building
def maybe_transpose_in_minor_dims(a: XlaOp, transpose: bool) -> XlaOp:
    """The matrices transposed where ``transpose`` is True, otherwise ``a``. Source: MaybeTransposeInMinorDims."""
    return transpose_in_minor_dims(a) if transpose else a


def _places(a: XlaOp, k: int) -> tuple[XlaOp, XlaOp]:
    """For each element its column, and the column in which its row meets a diagonal."""
    _sizes(a)
    index = make_shape(PrimitiveType.S32, a.shape.dimensions)
    rows, columns = (iota(a.builder, index, a.shape.rank - n) for n in (2, 1))
    return columns, add(rows, constant(a.builder, np.int32(k)))


def _triangle(a: XlaOp, k: int, *, lower: bool) -> XlaOp:
    columns, border = _places(a, k)
    zero = constant(a.builder, np.zeros((), a.shape.element_type.dtype))
    kept = le(columns, border) if lower else le(border, columns)
    return select(kept, a, broadcast_in_dim(zero, a.shape.dimensions, ()))


def _sizes(a: XlaOp) -> tuple[tuple[int, ...], int, int]:
    """The batch dimensions, rows and columns of an operand."""
    shape = a.shape
    if not shape.is_array or shape.rank < 2 or shape.is_dynamic:
        raise ShapeError(f"takes matrices of static dimensions, got {shape}", hint="add dimensions")
    *batch, rows, columns = shape.dimensions
    return tuple(batch), rows, columns
