"""Where xlakit means to differ from jaxlib's CPU backend: one table, with the reason of each.

A difference explains a mismatch only where it reproduces it: most rows change what xlakit was given, or gave, in the
one way that the reason says, and the result must then agree.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from proofs.programs.draft import Program
from proofs.programs.values import Array

Leaves = list[Array]


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A program whose results differ: xlakit's, jaxlib's, and the means to try again."""

    program: Program
    actual: Leaves
    expected: Leaves
    # xlakit's result for other arguments.
    rerun: Callable[[tuple[tuple[Array, ...], ...]], Leaves]
    # Whether leaves agree with jaxlib's within the program's tolerance.
    agree: Callable[[Leaves, Leaves], bool]


@dataclass(frozen=True, slots=True)
class Difference:
    """One intended difference."""

    reason: str
    explains: Callable[[Mismatch], bool]


def _flushed(array: Array) -> Array:
    """The array with denormal numbers replaced by zeros of their sign."""
    if array.dtype.kind == "c":
        both = np.array(array)
        both.real, both.imag = _flushed(both.real), _flushed(both.imag)
        return both
    if not _flushes(array.dtype):
        return array
    tiny = float(ml_dtypes.finfo(array.dtype).smallest_normal)
    wide = array.astype(np.float64)
    with np.errstate(all="ignore"):
        return np.where(np.abs(wide) < tiny, np.copysign(0.0, wide), wide).astype(array.dtype)


def _flushes(dtype: Any) -> bool:
    return dtype in (np.dtype(np.float32), np.dtype(np.float64), np.dtype(ml_dtypes.bfloat16))


def _denormals(mismatch: Mismatch) -> bool:
    """Try flushing the result, the arguments, and both, on either side."""
    flat = [_flushed(leaf) for leaf in mismatch.actual]
    expected = [_flushed(leaf) for leaf in mismatch.expected]
    if mismatch.agree(flat, expected):
        return True
    arguments = tuple(tuple(_flushed(a) for a in values) for values in mismatch.program.arguments)
    again = [_flushed(leaf) for leaf in mismatch.rerun(arguments)]
    return mismatch.agree(again, expected)


DIFFERENCES: dict[str, Difference] = {
    "denormals": Difference(
        "jaxlib's CPU backend runs with denormal f32 and f64 numbers flushed to zero (bf16 is computed in f32); xlakit "
        "keeps them, as IEEE 754 has it",
        _denormals,
    ),
}


def explanation(mismatch: Mismatch) -> str | None:
    """The name of the difference that explains a mismatch, if one does."""
    for name, difference in DIFFERENCES.items():
        if difference.explains(mismatch):
            return name
    return None
