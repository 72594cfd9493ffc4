"""Whether two peers gave the same result."""

from __future__ import annotations

from collections.abc import Sequence

import ml_dtypes
import numpy as np

from benchmarks.program import Array, Program

# Errors allowed, relative to the element plus the root mean square of its array, since each peer adds in another order.
_TOLERANCES = {
    np.dtype(np.float64): 1e-11,
    np.dtype(np.float32): 5e-5,
    np.dtype(np.float16): 4e-3,
    np.dtype(ml_dtypes.bfloat16): 3e-2,
    np.dtype(np.complex64): 5e-5,
    np.dtype(np.complex128): 1e-11,
}


def difference(
    actual: Sequence[Array], expected: Sequence[Array], program: Program, *, same_random: bool = True
) -> str:
    """A message that says how results differ; empty if they agree.

    actual, expected: the arrays that two peers gave; integers may be of another width.
    program: says how much its results may differ.
    same_random: whether both draw the same random numbers; if not, mean and deviation are compared.
    """
    if len(actual) != len(expected):
        return f"{len(actual)} results instead of {len(expected)}"
    for index, (a, b) in enumerate(zip(actual, expected, strict=True)):
        place = f"result {index}: " if len(expected) > 1 else ""
        if a.shape != b.shape:
            return f"{place}shape {list(a.shape)} instead of {list(b.shape)}"
        fault = _moments(a, b) if program.random and not same_random else _elements(a, b, program)
        if fault:
            return place + fault
    return ""


def _elements(actual: Array, expected: Array, program: Program) -> str:
    tolerance = _TOLERANCES.get(expected.dtype, 0.0) * program.tolerance
    wrong, error = _far(actual, expected, tolerance)
    count = int(np.count_nonzero(wrong))
    if count <= program.differing * expected.size:
        return ""
    first = np.unravel_index(int(np.argmax(wrong)), wrong.shape)
    place = ", ".join(str(int(i)) for i in first)
    return (
        f"{count:,} of {expected.size:,} elements differ, the first at [{place}]: "
        f"{actual[first]} instead of {expected[first]}; largest error {error:.3g}, tolerance {tolerance:.3g}"
    )


def _far(actual: Array, expected: Array, tolerance: float) -> tuple[Array, float]:
    """Where two arrays are too far apart, and the largest error relative to the root mean square."""
    if tolerance == 0.0:
        return np.asarray(actual != expected), float("inf")
    wide = np.complex128 if np.iscomplexobj(expected) else np.float64
    a, b = actual.astype(wide), expected.astype(wide)
    with np.errstate(all="ignore"):
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        size = np.abs(b)
        finite = size[np.isfinite(size)]
        scale = float(np.sqrt(np.mean(finite * finite))) if finite.size else 0.0
        apart = np.where(same, 0.0, np.abs(a - b))
        # Written so that a NaN or an infinity on one side alone counts as wrong.
        wrong = ~same & ~(np.isfinite(size) & (apart <= tolerance * (size + scale)))
    return np.asarray(wrong), float(np.max(apart, initial=0.0)) / (scale or 1.0)


def _moments(actual: Array, expected: Array) -> str:
    allowed = 5.0 * float(np.std(expected)) / max(expected.size, 1) ** 0.5 + 1e-6
    for name, moment in (("mean", np.mean), ("deviation", np.std)):
        a, b = float(moment(actual)), float(moment(expected))
        if abs(a - b) > 2 * allowed:
            return f"{name} {a:.5g} instead of {b:.5g}"
    return ""
