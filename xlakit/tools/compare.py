"""Comparison of two results, leaf by leaf, within tolerances."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from xlakit.data.literal import Array
from xlakit.data.primitive import PrimitiveType
from xlakit.data.text_table import aligned
from xlakit.tools.inputs import flatten

# The relative error allowed for each type: about a hundred roundings, since sums of many terms have no fixed order.
TOLERANCES = {
    PrimitiveType.F64: 1e-10,
    PrimitiveType.C128: 1e-10,
    PrimitiveType.F32: 2e-4,
    PrimitiveType.C64: 2e-4,
    PrimitiveType.F16: 2e-2,
    PrimitiveType.BF16: 1e-1,
}
_NARROW = 0.5


@dataclass(frozen=True, slots=True)
class Tolerance:
    """The errors that an element of a float or complex result may have.

    An element differs if its error is larger than ``absolute`` and, relative to its scale, larger than ``relative``,
    which is by default that of the type in TOLERANCES. Integers and PRED are always compared exactly.
    """

    relative: float | None = None
    absolute: float = 0.0

    @property
    def options(self) -> str:
        """The options of the command line that ask for it."""
        relative = [] if self.relative is None else [f"--rtol {self.relative:g}"]
        return " ".join(relative + [f"--atol {self.absolute:g}"] * bool(self.absolute))


@dataclass(frozen=True, slots=True)
class LeafComparison:
    """One output compared: the largest absolute error, that error relative to the output's scale, mismatches."""

    name: str
    shape: str
    max_absolute: float
    max_relative: float
    mismatches: int
    count: int

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"output": self.name, **{key: value for key, value in asdict(self).items() if key != "name"}}

    @property
    def agrees(self) -> bool:
        """Whether every element is within the tolerance of its type."""
        return self.mismatches == 0


def compare(actual: Any, expected: Any, tolerance: Tolerance = Tolerance()) -> list[LeafComparison]:
    """Compare two results; integers and PRED must be equal, NaN equals NaN, infinities must be the same."""
    left, right = flatten(actual), flatten(expected)
    names = sorted({*left, *right}, key=_index_order)
    return [_compare_leaf(name, left.get(name), right.get(name), tolerance) for name in names]


def _index_order(name: str) -> list[int]:
    return [int(part) if part.isdigit() else -1 for part in name.split(".")]


def _compare_leaf(name: str, actual: Array | None, expected: Array | None, tolerance: Tolerance) -> LeafComparison:
    if actual is None or expected is None or actual.shape != expected.shape or actual.dtype != expected.dtype:
        shown = " and ".join("nothing" if a is None else f"{a.dtype}{list(a.shape)}" for a in (actual, expected))
        return LeafComparison(name, shown, np.inf, np.inf, 1, 1)
    kind = PrimitiveType.from_dtype(actual.dtype)
    shape = f"{kind.hlo_name}[{','.join(map(str, actual.shape))}]"
    wrong = int(np.count_nonzero(differing(actual, expected, tolerance)))
    if not (kind.is_floating or kind.is_complex):
        return LeafComparison(name, shape, float(wrong > 0), float(wrong > 0), wrong, actual.size)
    error, relative = _errors(actual, expected, kind)
    worst_absolute = float(error.max()) if error.size else 0.0
    worst_relative = float(relative.max()) if relative.size else 0.0
    return LeafComparison(name, shape, worst_absolute, worst_relative, wrong, actual.size)


def differing(actual: Array, expected: Array, tolerance: Tolerance = Tolerance()) -> Array:
    """For each element whether it differs by more than is allowed; the arrays have one type and one shape."""
    kind = PrimitiveType.from_dtype(actual.dtype)
    if not (kind.is_floating or kind.is_complex):
        return np.asarray(actual != expected)
    error, relative = _errors(actual, expected, kind)
    allowed = tolerance_of(kind) if tolerance.relative is None else tolerance.relative
    return (relative > allowed) & (error > tolerance.absolute)


def tolerance_of(kind: PrimitiveType) -> float:
    """The relative error that a floating point or complex type allows."""
    return TOLERANCES.get(kind, _NARROW)


def _errors(actual: Array, expected: Array, kind: PrimitiveType) -> tuple[Array, Array]:
    """The absolute errors of the elements; and the relative ones, to an element or the mean of all, the larger."""
    wide = np.complex128 if kind.is_complex else np.float64
    a, b = actual.astype(wide), expected.astype(wide)
    with np.errstate(all="ignore"):
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        error = np.where(same, 0.0, np.abs(a - b))
        error = np.where(np.isnan(error), np.inf, error)
        finite = np.abs(b[np.isfinite(b)])
        scale = np.maximum(np.abs(np.where(np.isfinite(b), b, 0.0)), float(np.mean(finite)) if finite.size else 0.0)
        relative = np.where(same, 0.0, error / np.where(scale > 0, scale, 1.0))
    return error, relative


def format_table(leaves: list[LeafComparison]) -> str:
    """The comparison as a table, one output a row."""
    rows = [("output", "shape", "max abs error", "max rel error", "mismatches", "")]
    rows.extend(
        (
            leaf.name,
            leaf.shape,
            f"{leaf.max_absolute:.3g}",
            f"{leaf.max_relative:.3g}",
            f"{leaf.mismatches}/{leaf.count}",
            "ok" if leaf.agrees else "DIFFERS",
        )
        for leaf in leaves
    )
    return aligned(rows)
