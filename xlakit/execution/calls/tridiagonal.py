"""The call by which JAX solves tridiagonal systems that may be singular (``perturb_singular``), on CPUs and GPUs."""

from __future__ import annotations

import numpy as np

from xlakit.ir.operation import Array, Evaluation

TARGETS = ("tridiagonal_solve_perturbed_ffi", "cu_tridiagonal_solve_perturbed", "hip_tridiagonal_solve_perturbed")


def perturbed_solution(_: Evaluation, below: Array, diagonal: Array, above: Array, right: Array) -> Array:
    """The solution for diagonals ``[..., m]`` and right-hand sides ``[..., m, k]``.

    Elimination with partial pivoting. A pivot by which a division would overflow is perturbed by the least amount that
    avoids the overflow, as LAPACK's LAGTS does for inverse iteration.
    """
    solution = np.array(right)
    lower, pivots, first = (np.moveaxis(a, -1, 0)[..., None].copy() for a in (below, diagonal, above))
    second, sums = np.zeros_like(first), np.moveaxis(solution, -2, 0)
    if not len(pivots):
        return solution
    # The last row has no element above the diagonal; the value given for it is ignored.
    first[-1] = 0
    with np.errstate(all="ignore"):
        for row, below_row in zip(range(len(pivots)), range(1, len(pivots)), strict=False):
            upper = pivots[row], first[row], second[row], sums[row]
            under = lower[below_row], pivots[below_row], first[below_row], sums[below_row]
            is_swapped = _size(under[0]) > _size(upper[0])
            pivot_row = [np.where(is_swapped, b, a) for a, b in zip(upper, under, strict=True)]
            other = [np.where(is_swapped, a, b) for a, b in zip(upper, under, strict=True)]
            factor = np.where(other[0] == 0, 0, other[0] / pivot_row[0])
            pivots[row], first[row], second[row], sums[row] = pivot_row
            pivots[below_row], first[below_row], sums[below_row] = (
                b - factor * a for a, b in zip(pivot_row[1:], other[1:], strict=True)
            )
        largest = np.maximum(abs(pivots), np.maximum(abs(first), abs(second))).max(0)
        _substitute(pivots, first, second, sums, largest)
    return solution


def _substitute(pivots: Array, first: Array, second: Array, sums: Array, largest: Array) -> None:
    """Overwrite the right-hand sides with the solution."""
    limits = np.finfo(pivots.dtype)
    for row in reversed(range(len(pivots))):
        for beside, ahead in ((first, 1), (second, 2)):
            if row + ahead < len(pivots):
                sums[row] -= beside[row] * sums[row + ahead]
        greatest = abs(sums[row]).max(-1, keepdims=True, initial=0)
        step = np.maximum(limits.eps * largest, limits.tiny)
        step = np.where(pivots[row].real < 0, -step, step)
        while (moves := _overflows(pivots[row], greatest, limits.tiny)).any():
            pivots[row] += np.where(moves, step, 0)
            step *= 2
        sums[row] /= pivots[row]


def _overflows(pivot: Array, greatest: Array, tiny: float) -> Array:
    size = abs(pivot)
    return (size < 1) & ((size == 0) | (greatest * tiny > size))


def _size(values: Array) -> Array:
    """The magnitude by which LAPACK chooses pivots."""
    return abs(np.real(values)) + abs(np.imag(values))
