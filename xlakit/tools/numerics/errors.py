"""The errors of an array against its values in F64."""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes
import numpy as np

from xlakit.ir.operation import Array
from xlakit.ops.shared.numerics import to_widest


@dataclass(frozen=True, slots=True)
class ErrorSize:
    """The largest error of an array's elements.

    absolute: in the array's unit. relative: over the exact element, or over the mean of all finite ones where that is
    larger; at most 1, where no digit is right. Both are infinite where one of the two elements is a NaN or an infinity,
    and the other is not the same.
    """

    absolute: float
    relative: float

    def __str__(self) -> str:
        return f"{self.relative:.3g} relative, {self.absolute:.3g} absolute"


def error_size(array: Array, exact: Array) -> ErrorSize:
    """The error of an array against the same array in F64 or C128."""
    if not array.size:
        return ErrorSize(0.0, 0.0)
    exact, error = np.asarray(exact), difference(array, exact)
    finite = np.isfinite(exact)
    with np.errstate(all="ignore"):
        sizes = np.where(finite, np.abs(exact), 0.0)
        mean = sizes.sum() / max(int(finite.sum()), 1)
        scale = np.maximum(sizes, mean)
        relative = np.where(error == 0, 0.0, np.where(scale > 0, np.minimum(error / scale, 1.0), 1.0))
        relative = np.where(np.isinf(error), np.inf, relative)
    return ErrorSize(float(error.max()), float(relative.max()))


def difference(array: Array, exact: Array) -> Array:
    """The absolute errors of the elements; 0 where both are NaN, infinite where only one is, or infinities differ."""
    wide = to_widest(array)
    with np.errstate(all="ignore"):
        same = (wide == exact) | (np.isnan(wide) & np.isnan(exact))
        error = np.where(same, 0.0, np.abs(wide - exact))
    return np.where(np.isnan(error), np.inf, error)


def ulps(array: Array, exact: Array) -> float:
    """The largest error in units in the last place that the exact element has in the array's type.

    An infinity where the exact value is above the largest finite number counts as right, as rounding gives it.
    """
    if not array.size:
        return 0.0
    info = ml_dtypes.finfo(np.real(array).dtype)
    error = difference(array, exact)
    with np.errstate(all="ignore"):
        sizes = np.abs(exact)
        overflows = ~np.isfinite(to_widest(array)) & np.isfinite(exact) & (sizes >= float(info.max))
        exponents = np.frexp(np.where(np.isfinite(sizes), sizes, 1.0))[1]
        units = np.maximum(np.ldexp(1.0, exponents - 1 - info.nmant), float(info.smallest_subnormal))
        return float(np.where(overflows, 0.0, error / units).max())


def unit_roundoff(array: Array) -> float:
    """Half of the distance from 1 to the next larger number of the array's type."""
    return float(ml_dtypes.finfo(np.real(array).dtype).eps) / 2
