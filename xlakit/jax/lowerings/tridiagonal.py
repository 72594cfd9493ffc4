"""Tridiagonal systems in JAX's own operations: elimination with partial pivoting, for a whole batch at once."""

from __future__ import annotations

from typing import Any

# The coefficients of a row on its own column and the next, and its right-hand sides.
_Row = tuple[Any, Any, Any]


def tridiagonal_solve(below: Any, diagonal: Any, above: Any, right: Any, *, perturb_singular: bool) -> Any:
    """The solution for diagonals ``[..., m]`` and right-hand sides ``[..., m, k]``.

    A singular matrix gives NaN. With ``perturb_singular`` its pivots are perturbed instead, by the least amount that
    makes the solution finite, as LAPACK's LAGTS does for inverse iteration.
    """
    import jax.numpy as jnp
    from jax import lax

    size = diagonal.shape[-1]
    if size == 0:
        return right
    # Rows first, and coefficients as wide as a row of right-hand sides.
    below, diagonal, above = (jnp.moveaxis(a, -1, 0)[..., None] for a in (below, diagonal, above))
    right = jnp.moveaxis(right, -2, 0)
    # The last row has no element above the diagonal; the value given for it is ignored.
    above = above.at[-1].set(0)
    rows = below[1:], diagonal[1:], above[1:], right[1:]
    last, upper = lax.scan(_eliminate, (diagonal[0], above[0], right[0]), rows)
    end = last[0], last[1], jnp.zeros_like(last[1]), last[2]
    pivots, first, second, sums = (jnp.concatenate([part, final[None]]) for part, final in zip(upper, end, strict=True))
    largest = jnp.maximum(abs(pivots), jnp.maximum(abs(first), abs(second))).max(0)

    def substitute(known: tuple[Any, Any], row: tuple[Any, ...]) -> tuple[tuple[Any, Any], Any]:
        pivot, one, two, sums = row
        rest = sums - one * known[0] - two * known[1]
        if perturb_singular:
            pivot = _perturbed_pivot(pivot, rest, largest)
        solution = rest / pivot
        return (solution, known[0]), solution

    nothing = jnp.zeros_like(right[0])
    _, solutions = lax.scan(substitute, (nothing, nothing), (pivots, first, second, sums), reverse=True)
    if not perturb_singular:
        solutions = jnp.where((pivots == 0).any(0), jnp.nan, solutions)
    return jnp.moveaxis(solutions, 0, -2)


def _eliminate(current: _Row, row: tuple[Any, Any, Any, Any]) -> tuple[_Row, tuple[Any, Any, Any, Any]]:
    """Eliminate a column; gives the next row to eliminate with, and the finished row of U with its right-hand sides."""
    import jax.numpy as jnp

    pivot, beside, sums = current
    below, diagonal, above, right = row
    is_swapped = _size(below) > _size(pivot)
    finished = (
        jnp.where(is_swapped, below, pivot),
        jnp.where(is_swapped, diagonal, beside),
        jnp.where(is_swapped, above, 0),
        jnp.where(is_swapped, right, sums),
    )
    smaller = jnp.where(is_swapped, pivot, below)
    # Where both are zero, there is nothing to eliminate.
    factor = jnp.where(smaller == 0, 0, smaller / finished[0])
    following = (
        jnp.where(is_swapped, beside, diagonal) - factor * finished[1],
        jnp.where(is_swapped, 0, above) - factor * finished[2],
        jnp.where(is_swapped, sums, right) - factor * finished[3],
    )
    return following, finished


def _size(values: Any) -> Any:
    """The magnitude by which LAPACK chooses pivots."""
    import jax.numpy as jnp

    return abs(jnp.real(values)) + abs(jnp.imag(values)) if jnp.iscomplexobj(values) else abs(values)


def _perturbed_pivot(pivot: Any, rest: Any, largest: Any) -> Any:
    """The pivot, perturbed until a row of right-hand sides can be divided by it without overflow."""
    import jax.numpy as jnp
    from jax import lax

    limits = jnp.finfo(pivot.dtype)
    greatest = abs(rest).max(-1, keepdims=True, initial=0)
    step = jnp.maximum(limits.eps * largest, limits.tiny)
    step = jnp.where(jnp.real(pivot) < 0, -step, step).astype(pivot.dtype)

    def overflows(pivot: Any) -> Any:
        size = abs(pivot)
        return (size < 1) & ((size == 0) | (greatest * limits.tiny > size))

    def move(state: tuple[Any, Any]) -> tuple[Any, Any]:
        pivot, step = state
        return jnp.where(overflows(pivot), pivot + step, pivot), step * 2

    return lax.while_loop(lambda state: overflows(state[0]).any(), move, (pivot, step))[0]
