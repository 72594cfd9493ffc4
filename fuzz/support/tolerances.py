"""How far xlakit's result may be from another implementation's, by operation and type.

Five kinds. BITS: bit for bit, for what only moves. EXACT: the same, any NaN being equal to any other. ULPS: units in
the last place of the expected value, of its absolute value for complex numbers. TERMS: units of the type's epsilon
times the sum of the absolute values of what was added, for sums in no fixed order. NORM: the same times the largest
absolute value of the output, or 1 where that is more, for algorithms on whole arrays of values about 1.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from fuzz.programs.values import Array
from xlakit.data.primitive import PrimitiveType


class Measure(enum.Enum):
    """How an error is measured."""

    BITS = enum.auto()
    EXACT = enum.auto()
    ULPS = enum.auto()
    TERMS = enum.auto()
    NORM = enum.auto()


@dataclass(frozen=True, slots=True)
class Tolerance:
    """A measure and how much of it is allowed; integers and PRED are exact under all of them."""

    measure: Measure
    units: float = 0.0


BITS = Tolerance(Measure.BITS)
EXACT = Tolerance(Measure.EXACT)
SUMS = Tolerance(Measure.TERMS, 4)
MATRIX = Tolerance(Measure.NORM, 256)

# Elementary functions in 32 and 64 bits: XLA's CPU backend evaluates polynomials of its own or LLVM's. The bound for
# narrower types is NARROW_ULPS, since XLA computes those in 32 bits and rounds.
ELEMENTARY_ULPS = {
    "exponential": 2,
    "exponential-minus-one": 4,
    "log": 3,
    "log-plus-one": 4,
    "sine": 2,
    "cosine": 2,
    "tan": 4,
    "tanh": 8,
    "logistic": 4,
    "sqrt": 1,
    "rsqrt": 2,
    "cbrt": 3,
    "erf": 8,
    "power": 4,
    "atan2": 4,
    "acos": 4,
    "acosh": 4,
    "asin": 4,
    "asinh": 4,
    "atanh": 4,
    "cosh": 4,
    "sinh": 4,
}
NARROW_ULPS = 1.0
# Where XLA's own formula is less exact in one type: the narrow type is computed in itself, or digits cancel.
LESS_EXACT_ULPS = {("exponential-minus-one", "f16"): 4, ("logistic", "f16"): 2, ("log-plus-one", "f64"): 128}
# Complex functions are compositions of real ones; XLA's go through logarithms near 1, where digits cancel, in some.
COMPLEX_ULPS = 16.0
CANCELLING_COMPLEX_ULPS = {"atan2": 256, "log": 256, "log-plus-one": 256}


def elementary(opcode: str, kind: str) -> Tolerance:
    """The tolerance of an elementary function on an element type."""
    if kind in ("c64", "c128"):
        return Tolerance(Measure.ULPS, CANCELLING_COMPLEX_ULPS.get(opcode, COMPLEX_ULPS))
    general = ELEMENTARY_ULPS[opcode] if kind in ("f32", "f64") else NARROW_ULPS
    return Tolerance(Measure.ULPS, LESS_EXACT_ULPS.get((opcode, kind), general))


def mismatches(actual: Any, expected: Any, tolerance: Tolerance, terms: Array | None = None) -> Array:
    """Where two arrays of one dtype and shape are further apart than allowed, as booleans.

    ``terms`` is the sum of the absolute values of what was added to each element, where the measure needs it.
    """
    kind = PrimitiveType.from_dtype(expected.dtype)
    if not (kind.is_floating or kind.is_complex):
        return np.asarray(actual != expected)
    if kind.is_complex:
        return _complex_mismatches(actual, expected, tolerance, terms)
    if tolerance.measure is Measure.BITS:
        return ~_same_bits(actual, expected)
    both_nan = np.isnan(actual.astype(np.float64)) & np.isnan(expected.astype(np.float64))
    if tolerance.measure is Measure.EXACT:
        return ~(both_nan | _same_bits(actual, expected))
    a, b = _wide(actual), _wide(expected)
    with np.errstate(all="ignore"):
        same = (a == b) & ((a != 0) | (np.signbit(a) == np.signbit(b)) | (tolerance.measure is not Measure.ULPS))
        allowed = tolerance.units * _unit(np.abs(b), tolerance.measure, kind, terms)
        return ~(both_nan | same | ((np.abs(a - b) <= allowed) & (a != b)))


def _complex_mismatches(actual: Array, expected: Array, tolerance: Tolerance, terms: Array | None) -> Array:
    if tolerance.measure in (Measure.BITS, Measure.EXACT):
        parts = (mismatches(part(actual), part(expected), tolerance) for part in (np.real, np.imag))
        return np.logical_or(*parts)
    kind = PrimitiveType.from_dtype(expected.dtype).real_part
    wide = np.clongdouble if kind is PrimitiveType.F64 else np.complex128
    a, b = actual.astype(wide), expected.astype(wide)
    with np.errstate(all="ignore"):
        # Infinity and NaN in one part: the other part says nothing.
        special = ~(np.isfinite(a) | np.isfinite(b))
        allowed = tolerance.units * _unit(np.abs(b), tolerance.measure, kind, terms)
        return ~(special | (a == b) | (np.abs(a - b) <= allowed))


def _wide(array: Array) -> Array:
    """The values where a difference is exact enough, an infinity being the next value after the largest."""
    wide = array.astype(np.longdouble)
    info = ml_dtypes.finfo(array.dtype)
    beyond = np.exp2(np.longdouble(np.floor(np.log2(float(info.max))) + 1))
    return np.where(np.isinf(wide), np.copysign(beyond, wide), wide)


def _unit(size: Array, measure: Measure, kind: PrimitiveType, terms: Array | None) -> Array:
    info = ml_dtypes.finfo(kind.dtype)
    eps, tiny = float(info.eps), float(info.smallest_normal)
    if measure is Measure.TERMS:
        if terms is None:
            raise ValueError("a tolerance in terms needs the terms")
        scale = np.asarray(terms).astype(np.longdouble)
        return np.where(np.isfinite(scale), np.maximum(scale, tiny), np.inf) * eps
    if measure is Measure.NORM:
        finite = size[np.isfinite(size)]
        return np.full(size.shape, max(1.0, float(finite.max()) if finite.size else 0.0) * eps)
    exponent = np.floor(np.log2(np.maximum(size, tiny)))
    return np.exp2(np.where(np.isfinite(exponent), exponent, 0)) * eps


def _same_bits(actual: Array, expected: Array) -> Array:
    raw = np.dtype(f"u{expected.dtype.itemsize}")
    left, right = (np.array(x, order="C").reshape(-1).view(raw).reshape(x.shape) for x in (actual, expected))
    return np.asarray(left == right)
