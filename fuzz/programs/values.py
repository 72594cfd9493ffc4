"""Element types by their HLO names, and values for arguments."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from xlakit.data.primitive import PrimitiveType

Array = npt.NDArray[Any]

SIGNED = ("s8", "s16", "s32", "s64", "s4", "s2")
UNSIGNED = ("u8", "u16", "u32", "u64", "u4", "u2")
INTEGERS = SIGNED + UNSIGNED
FLOATS = ("f16", "bf16", "f32", "f64")
NARROW_FLOATS = (
    "f8e5m2",
    "f8e4m3",
    "f8e4m3fn",
    "f8e4m3b11fnuz",
    "f8e5m2fnuz",
    "f8e4m3fnuz",
    "f8e3m4",
    "f4e2m1fn",
    "f8e8m0fnu",
)
# Those whose NaNs have a fraction of any bits.
MANY_NANS = (*FLOATS, "f8e5m2", "f8e4m3", "f8e3m4")
COMPLEX = ("c64", "c128")
ALL_TYPES = ("pred", *INTEGERS, *FLOATS, *NARROW_FLOATS, *COMPLEX)

# What of a type's range an argument shows.
EDGES = "edges"  # everything, with the special values often
FINITE = "finite"  # no infinities, no NaN
SMALL = "small"  # finite, of magnitude around 1 (integers: around 4), so that sums and products stay in range
UNIT = "unit"  # between -1 and 1
POSITIVE = "positive"  # at least 0.1
SPECIAL = "special"  # small, and often an infinity, a NaN, or a zero of either sign


def dtype_of(kind: str) -> np.dtype[Any]:
    """The NumPy dtype of an element type."""
    return PrimitiveType.from_name(kind).dtype


def bits_of(kind: str) -> int:
    """The width of an element type."""
    return PrimitiveType.from_name(kind).bit_width


def is_float(kind: str) -> bool:
    """Whether an element type is a real floating point type."""
    return PrimitiveType.from_name(kind).is_floating


def is_complex(kind: str) -> bool:
    """Whether an element type is complex."""
    return kind in COMPLEX


def make_values(rng: np.random.Generator, kind: str, dims: Sequence[int], style: str) -> Array:
    """An array of an element type."""
    dims, dtype = tuple(dims), dtype_of(kind)
    with np.errstate(all="ignore"):
        if kind == "pred":
            return np.asarray(rng.integers(0, 2, dims), dtype=np.bool_)
        if is_complex(kind):
            part = "f32" if kind == "c64" else "f64"
            real, imag = (_floats(rng, part, dims, style) for _ in range(2))
            both = np.empty(dims, dtype)
            both.real, both.imag = real, imag
            return both
        if is_float(kind):
            return _floats(rng, kind, dims, style).astype(dtype)
    return _integers(rng, kind, dims, style).astype(dtype)


def _integers(rng: np.random.Generator, kind: str, dims: tuple[int, ...], style: str) -> Array:
    bits, signed = bits_of(kind), kind[0] == "s"
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    if style in (SMALL, UNIT, POSITIVE):
        low, high = max(low, -4 if style == SMALL else -1 if style == UNIT else 1), min(high, 4)
    wide = np.int64 if signed else np.uint64
    values = np.asarray(rng.integers(low, high, dims, dtype=wide, endpoint=True))
    if style == EDGES:
        near = [low, low + 1, 0, 1, high, high - 1, *([-1] if signed else [])]
        edges = np.array(near, dtype=wide)
        few = np.asarray(rng.integers(max(low, -9), min(high, 9), dims, dtype=wide, endpoint=True))
        values = np.where(rng.random(dims) < 0.3, few, values)
        values = np.where(rng.random(dims) < 0.2, edges[rng.integers(0, len(edges), dims)], values)
    return values


def _floats(rng: np.random.Generator, kind: str, dims: tuple[int, ...], style: str) -> Array:
    if kind == "f8e8m0fnu":  # powers of two, nothing else
        values = np.exp2(rng.integers(-3, 4, dims).astype(np.float64))
        return np.where(rng.random(dims) < 0.1, np.nan, values) if style == EDGES else values
    values = np.asarray(rng.standard_normal(dims))
    if style == UNIT:
        return np.asarray(rng.uniform(-1, 1, dims))
    if style == POSITIVE:
        return np.abs(values) + 0.1
    if style == SMALL:
        return values
    if style == SPECIAL:
        special = np.array([0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan])
        return np.where(rng.random(dims) < 0.3, special[rng.integers(0, len(special), dims)], values)
    spread = math.log2(float(ml_dtypes.finfo(dtype_of(kind)).max)) * 0.9
    chance = rng.random(dims)
    values = np.where(chance < 0.3, values * np.exp2(rng.uniform(-spread, spread, dims)), values)
    values = np.where(chance > 0.9, np.round(values * 4) / 2, values)  # ties of the roundings
    if style == EDGES:
        edges = np.array(float_edges(kind))
        values = np.where(rng.random(dims) < 0.2, edges[rng.integers(0, len(edges), dims)], values)
    return values


def float_edges(kind: str) -> list[float]:
    """The special values of a floating point type; denormal numbers are among them."""
    info = ml_dtypes.finfo(dtype_of(kind))
    finite = [0.0, 1.0, 0.5, 2.0, float(info.max), float(info.tiny), float(info.smallest_subnormal), float(info.eps)]
    return [*finite, *(-v for v in finite), math.inf, -math.inf, math.nan]


def with_nans_of_all_bits(rng: np.random.Generator, values: Array) -> Array:
    """The same, but that some numbers are NaNs with a fraction of chance, where their type has several."""
    if values.dtype not in [dtype_of(kind) for kind in MANY_NANS]:
        return values
    raw = np.dtype(f"u{values.dtype.itemsize}")
    bits = np.array(values, order="C").reshape(-1).view(raw).reshape(values.shape)
    fractions = rng.integers(0, 1 << ml_dtypes.finfo(values.dtype).nmant, values.shape).astype(raw)
    infinity = np.asarray(math.inf, values.dtype).view(raw)
    found = np.where(rng.random(values.shape) < 0.2, bits | infinity | fractions, bits)
    return found.astype(raw).view(values.dtype)
