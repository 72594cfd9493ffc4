"""Statistics of an array: its range, mean, NaNs and infinities."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from xlakit.ir.operation import Array
from xlakit.ops.shared.numerics import to_widest


@dataclass(frozen=True, slots=True)
class Statistics:
    """Of one array, or of several together.

    ``minimum``, ``maximum`` and ``mean`` are those of the finite elements, NaN where there are none; of PRED they count
    true as 1, of complex numbers they are those of the absolute value.
    """

    count: int
    minimum: float
    maximum: float
    mean: float
    nans: int
    infinities: int

    @property
    def finite(self) -> int:
        """How many elements are finite."""
        return self.count - self.nans - self.infinities

    def joined(self, other: Statistics) -> Statistics:
        """Of the elements of both."""
        mine, others = self.finite, other.finite
        if not mine or not others:
            low, high, mean = (
                (self.minimum, self.maximum, self.mean) if mine else (other.minimum, other.maximum, other.mean)
            )
        else:
            low, high = min(self.minimum, other.minimum), max(self.maximum, other.maximum)
            share = others / (mine + others)
            mean = self.mean * (1 - share) + other.mean * share
        return Statistics(
            self.count + other.count, low, high, mean, self.nans + other.nans, self.infinities + other.infinities
        )

    def as_dict(self) -> dict[str, float | int | None]:
        """For JSON, which has no NaN: None stands for it."""
        named: dict[str, float] = {"min": self.minimum, "max": self.maximum, "mean": self.mean}
        numbers = {name: None if math.isnan(value) else value for name, value in named.items()}
        return {"count": self.count, **numbers, "nan": self.nans, "inf": self.infinities}


def statistics_of(array: Array) -> Statistics:
    """The statistics of an array of any element type."""
    wide = to_widest(array)
    if wide.dtype.kind == "c":
        with np.errstate(all="ignore"):
            nans, infinities = np.isnan(wide), np.isinf(wide)
            wide = np.abs(wide)
        # inf + NaN i is infinite, as its absolute value is.
        nans &= ~infinities
    else:
        nans, infinities = np.isnan(wide), np.isinf(wide)
    finite = wide[np.isfinite(wide)]
    if not finite.size:
        low = high = mean = math.nan
    else:
        low, high = float(finite.min()), float(finite.max())
        with np.errstate(over="ignore"):
            mean = float(finite.mean())
        if not math.isfinite(mean):
            mean = float((finite / finite.size).sum())
    return Statistics(array.size, low, high, mean, int(nans.sum()), int(infinities.sum()))
