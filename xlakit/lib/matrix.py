"""Diagonals and triangles of matrices. All dimensions of an operand but the last two count matrices."""

from __future__ import annotations

import numpy as np

from xlakit.data.primitive import PrimitiveType
from xlakit.data.shape import make_shape
from xlakit.errors import ShapeError
from xlakit.ops.data import constant, iota
from xlakit.ops.elementwise.binary import add
from xlakit.ops.elementwise.compare import le
from xlakit.ops.elementwise.select import select
from xlakit.ops.handle import XlaOp, building
from xlakit.ops.movement import broadcast_in_dim, reshape, slice as slice_part


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
    """The elements on the diagonal ``k`` and below it; zeros elsewhere. Raises ShapeError for what has no matrices."""
    return _triangle(a, k, lower=True)


@building
def upper_triangle(a: XlaOp, k: int = 0) -> XlaOp:
    """The elements on the diagonal ``k`` and above it; zeros elsewhere. Raises ShapeError for what has no matrices."""
    return _triangle(a, k, lower=False)


def _triangle(a: XlaOp, k: int, *, lower: bool) -> XlaOp:
    _sizes(a)
    shape = a.shape
    index = make_shape(PrimitiveType.S32, shape.dimensions)
    rows, columns = (iota(a.builder, index, shape.rank - n) for n in (2, 1))
    diagonal = add(rows, constant(a.builder, np.int32(k)))
    zero = constant(a.builder, np.zeros((), shape.element_type.dtype))
    kept = le(columns, diagonal) if lower else le(diagonal, columns)
    return select(kept, a, broadcast_in_dim(zero, shape.dimensions, ()))


def _sizes(a: XlaOp) -> tuple[tuple[int, ...], int, int]:
    """The batch dimensions, rows and columns of an operand."""
    shape = a.shape
    if not shape.is_array or shape.rank < 2 or shape.is_dynamic:
        raise ShapeError(f"takes matrices of static dimensions, got {shape}", hint="add dimensions")
    *batch, rows, columns = shape.dimensions
    return tuple(batch), rows, columns
