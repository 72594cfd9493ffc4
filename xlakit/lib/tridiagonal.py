"""Tridiagonal matrices: systems of equations and products.

Source: ``xla/hlo/builder/lib/tridiagonal.h``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

from xlakit.data.primitive import PrimitiveType
from xlakit.errors import ArgumentError, ShapeError
from xlakit.lib.constants import constant_r0_with_type, zeros_like
from xlakit.lib.loops import for_each_index
from xlakit.lib.slicing import slice_in_minor_dims
from xlakit.ops.dynamic import dynamic_slice, dynamic_update_slice
from xlakit.ops.elementwise.binary import add, div, mul, sub
from xlakit.ops.handle import XlaOp, building
from xlakit.ops.movement import broadcast_in_dim, concat_in_dim, reshape, slice_in_dim, transpose

_S32 = PrimitiveType.S32


@overload
def tridiagonal_solver(lower_diagonal: XlaOp, main_diagonal: XlaOp, upper_diagonal: XlaOp, rhs: XlaOp, /) -> XlaOp: ...


@overload
def tridiagonal_solver(diagonals: XlaOp, rhs: XlaOp, /) -> XlaOp: ...


@building
def tridiagonal_solver(*operands: XlaOp) -> XlaOp:
    """The solutions of tridiagonal systems of equations, by Thomas' algorithm: elimination without pivoting.

    ``tridiagonal_solver(lower_diagonal, main_diagonal, upper_diagonal, rhs)``, with diagonals [.., 1, m] whose element
    i stands in row i: the first of the lower and the last of the upper one do not count.
    ``tridiagonal_solver(diagonals, rhs)``, with the upper, the main and the lower diagonal in one array [.., 3, m].
    rhs: k right-hand sides for each system, [.., k, m], of the same floating point or complex type.

    Gives [.., k, m]. It is as exact as the system is well-conditioned where the matrix is diagonally dominant or
    symmetric and positive definite; a pivot of 0 gives infinities or NaN. Raises ShapeError. Source: TridiagonalSolver.
    """
    if len(operands) == 2:
        diagonals, rhs = operands
        if diagonals.shape.rank < 2 or diagonals.shape.dimensions[-2] != 3:
            raise ShapeError(
                f"takes three diagonals [.., 3, m], got {diagonals.shape}", hint="concatenate the diagonals"
            )
        size = diagonals.shape.dimensions[-1]
        upper, main, lower = (slice_in_minor_dims(diagonals, [i, 0], [i + 1, size]) for i in range(3))
    elif len(operands) == 4:
        lower, main, upper, rhs = operands
    else:
        raise ArgumentError(
            f"takes 2 or 4 arguments, got {len(operands)}", hint="give three diagonals, or one array of them, and rhs"
        )
    _check([lower, main, upper], rhs, rhs.shape.dimensions[-1:])
    last = rhs.shape.rank - 1
    size = rhs.shape.dimensions[last]
    if not size:
        return rhs
    # Equations first, so that each is one row.
    order = [last, *range(last)]
    lower, main, upper, rhs = (transpose(x, order) for x in (lower, main, upper, rhs))
    solution = _thomas(lower, main, upper, rhs, size)
    return transpose(solution, [*range(1, last + 1), 0])


def _thomas(lower: XlaOp, main: XlaOp, upper: XlaOp, rhs: XlaOp, size: int) -> XlaOp:
    """Elimination and substitution for arrays with the equations first."""

    def row(x: XlaOp, index: XlaOp) -> XlaOp:
        zeros = [0] * (x.shape.rank - 1)
        return dynamic_slice(x, [index, *zeros], [1, *x.shape.dimensions[1:]])

    def with_row(x: XlaOp, value: XlaOp, index: XlaOp) -> XlaOp:
        return dynamic_update_slice(x, value, [index, *[0] * (x.shape.rank - 1)])

    def wide(x: XlaOp, like: XlaOp) -> XlaOp:
        """A coefficient for all right-hand sides of its system."""
        *others, _ = range(like.shape.rank)
        return broadcast_in_dim(_without_last(x), like.shape.dimensions, others)

    def eliminate(index: XlaOp, values: Sequence[XlaOp]) -> list[XlaOp]:
        lower, upper, main, rhs, pivot, right = values
        here = add(index, 1)
        factor = div(row(lower, here), pivot)
        pivot = sub(row(main, here), mul(factor, row(upper, index)))
        right = sub(row(rhs, here), mul(wide(factor, right), right))
        return [lower, upper, with_row(main, pivot, here), with_row(rhs, right, here), pivot, right]

    def substitute(index: XlaOp, values: Sequence[XlaOp]) -> list[XlaOp]:
        upper, main, rhs, after = values
        here = sub(size - 2, index)
        known = mul(wide(row(upper, here), after), after)
        solution = div(sub(row(rhs, here), known), wide(row(main, here), after))
        return [upper, main, with_row(rhs, solution, here), solution]

    builder = rhs.builder
    first = [slice_in_dim(x, 0, 1, 1, 0) for x in (main, rhs)]
    state = [lower, upper, main, rhs, *first]
    _, upper, main, rhs, pivot, right = for_each_index(builder, size - 1, _S32, eliminate, state)
    end = div(right, wide(pivot, right))
    start = with_row(rhs, end, constant_r0_with_type(builder, _S32, size - 1))
    return for_each_index(builder, size - 1, _S32, substitute, [upper, main, start, end])[2]


def _without_last(x: XlaOp) -> XlaOp:
    return reshape(x, new_sizes=x.shape.dimensions[:-1])


def _check(diagonals: Sequence[XlaOp], rhs: XlaOp, size: Sequence[int]) -> None:
    shape = rhs.shape
    kind = shape.element_type
    fits = (kind.is_floating or kind.is_complex) and shape.rank >= 2 and not shape.is_dynamic
    wanted = (*shape.dimensions[:-2], 1, *size)
    if not fits or any(d.shape.dimensions != wanted or d.shape.element_type is not kind for d in diagonals):
        raise ShapeError(
            f"diagonals {', '.join(str(d.shape) for d in diagonals)} do not fit {shape}",
            hint="give diagonals [.., 1, m] of the type and the batch dimensions of the other matrix",
        )


@building
def tridiagonal_mat_mul(upper_diagonal: XlaOp, main_diagonal: XlaOp, lower_diagonal: XlaOp, rhs: XlaOp) -> XlaOp:
    """Products of tridiagonal matrices and others.

    upper_diagonal, main_diagonal, lower_diagonal: [.., 1, m]; element i stands in row i: the last of the upper and the
        first of the lower diagonal do not count.
    rhs: matrices [.., m, n] of the same floating point or complex type.

    Gives [.., m, n]. Raises ShapeError. Source: TridiagonalMatMul.
    """
    _check([lower_diagonal, main_diagonal, upper_diagonal], rhs, rhs.shape.dimensions[-2:-1])
    shape = rhs.shape
    rank, size = shape.rank, shape.dimensions[-2]

    def column(diagonal: XlaOp, start: int, end: int) -> XlaOp:
        """Elements of a diagonal, each for a row."""
        part = slice_in_minor_dims(diagonal, [0, start], [1, end])
        turned = transpose(part, [*range(rank - 2), rank - 1, rank - 2])
        sizes = (*shape.dimensions[:-2], end - start, shape.dimensions[-1])
        return broadcast_in_dim(_without_last(turned), sizes, list(range(rank - 1)))

    product = mul(column(main_diagonal, 0, size), rhs)
    if size < 2:
        return product
    columns = shape.dimensions[-1]
    nothing = zeros_like(slice_in_minor_dims(rhs, [0, 0], [1, columns]))
    above = mul(column(upper_diagonal, 0, size - 1), slice_in_minor_dims(rhs, [1, 0], [size, columns]))
    below = mul(column(lower_diagonal, 1, size), slice_in_minor_dims(rhs, [0, 0], [size - 1, columns]))
    product = add(product, concat_in_dim([above, nothing], rank - 2))
    return add(product, concat_in_dim([nothing, below], rank - 2))
