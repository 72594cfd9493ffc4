"""Random numbers of a distribution as a function of random bits: the semantics of rng.

The bits are those of Philox4x32. Each device has its own key, and each execution of an rng on it is a draw: draw n uses
the blocks from counter n * 2^64 on, and their words in order. Compiled programs compute the same numbers from the same
bits, except that the logarithms, sines and cosines of normal numbers may differ in the last places of double precision.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from xlakit.data.primitive import PrimitiveType
from xlakit.ir.operation import Array
from xlakit.ops.shared.numerics import from_double, to_double
from xlakit.ops.shared.random_bits import philox_bits


class Draw(NamedTuple):
    """One run of an rng on a device: the key of the device, and how many runs came before."""

    key: int
    number: int

    def words(self, count: int, width: int) -> Array:
        """So many random words of 32 or 64 bits."""
        return philox_bits(self.key, self.number << 64, (count,), width)[0]


def coins(draw: Draw, size: Sequence[int]) -> Array:
    """Booleans, true as often as false: the top bit of a word."""
    return (draw.words(math.prod(size), 32) >> np.uint32(31)).astype(np.bool_).reshape(size)


def uniform_integers(draw: Draw, low: int, high: int, kind: PrimitiveType, size: Sequence[int]) -> Array:
    """Integers of [low, high); low everywhere where that is empty.

    The number of values is multiplied with a random fraction of twice as many bits as the type has, 64 at least. So
    each value is as likely as another but for a part in 2^32, or in 2^64 for types of 64 bits.
    """
    values = np.uint64(max(high - low, 1))
    count = math.prod(size)
    with np.errstate(over="ignore"):
        if kind.bit_width == 64:
            words = draw.words(2 * count, 64).reshape(count, 2)
            below, above = _high_product(words[:, 0], values), words[:, 1] * values
            steps = _high_product(words[:, 1], values) + (below + above < above)
        else:
            steps = _high_product(draw.words(count, 64), values)
        found = np.uint64(low % 2**64) + steps
    if not kind.is_signed:
        return found.astype(kind.dtype).reshape(size)
    return found.view(np.int64).astype(kind.dtype).reshape(size)


def _high_product(words: Array, factor: np.uint64) -> Array:
    """The upper half of the 128 bits of each word times the factor."""
    half, mask = np.uint64(32), np.uint64(0xFFFFFFFF)
    low, high = words & mask, words >> half
    middle = high * (factor & mask) + (low * (factor & mask) >> half)
    other = low * (factor >> half) + (middle & mask)
    return high * (factor >> half) + (middle >> half) + (other >> half)


def uniform_floats(draw: Draw, low: np.generic, high: np.generic, kind: PrimitiveType, size: Sequence[int]) -> Array:
    """Numbers of [low, high), computed in double precision and rounded once to the type."""
    count = math.prod(size)
    if kind is PrimitiveType.F64:
        fractions = (draw.words(count, 64) >> np.uint64(11)).astype(np.float64) * 2.0**-53
    else:
        fractions = draw.words(count, 32).astype(np.float64) * 2.0**-32
    first, last = (to_double(np.asarray(bound)) for bound in (low, high))
    with np.errstate(all="ignore"):
        # Scaled by 1/2 where the difference of the bounds would overflow.
        scale = np.where(np.abs(last - first) < np.inf, 1.0, 0.5)
        values = (first * scale + (last * scale - first * scale) * fractions) * (1.0 / scale)
        rounded = from_double(values, kind.dtype)
        # Rounding may give the excluded bound; then the result is the next number below.
        reached = (to_double(rounded) >= last) & (first < last)
    return np.where(reached, _below(from_double(last, kind.dtype), kind), rounded).reshape(size)


def _below(bound: Array, kind: PrimitiveType) -> Array:
    """The number of a type before ``bound``, which is not the least."""
    bits, wide = int(bound.view(f"uint{max(8, kind.bit_width)}")), float(to_double(bound))
    least_negative = (1 << (kind.bit_width - 1)) | 1
    found = bits - 1 if wide > 0 else bits + 1 if wide < 0 else least_negative
    return np.array(found, f"uint{max(8, kind.bit_width)}").view(kind.dtype)


def normals(draw: Draw, mean: np.generic, deviation: np.generic, kind: PrimitiveType, size: Sequence[int]) -> Array:
    """Normal numbers, computed in double precision and rounded once to the type.

    Two random words are a point of the plane in polar coordinates, with the radius that the normal distribution asks
    for; its coordinates are two independent numbers (Box and Muller). For types of fewer bits than F64 the words have
    32 bits, and the radius goes up to 6.7; of 64 bits, it goes up to 9.4.
    """
    count = math.prod(size)
    bits = 64 if kind is PrimitiveType.F64 else 32
    words = draw.words(count + count % 2, bits).reshape(-1, 2)
    radius = np.sqrt(-2.0 * np.log((words[:, 0].astype(np.float64) + 0.5) * 2.0**-bits))
    # The angle: the top two bits count quarter turns, the others are an offset of at most an eighth of a turn.
    quarter = words[:, 1] >> words.dtype.type(bits - 2)
    rest = (words[:, 1] << words.dtype.type(2)).view(f"int{bits}").astype(np.float64)
    angle = rest * (2.0**-bits * (math.pi / 2))
    cosine, sine = np.cos(angle), np.sin(angle)
    is_odd, turned = (quarter & words.dtype.type(1)) == 1, quarter >= 2
    across = np.where(is_odd, -sine, cosine)
    up = np.where(is_odd, cosine, sine)
    points = np.stack([np.where(turned, -across, across), np.where(turned, -up, up)], axis=-1) * radius[:, None]
    first, factor = (to_double(np.asarray(number)) for number in (mean, deviation))
    with np.errstate(all="ignore"):
        values = first + factor * points.reshape(-1)[:count]
    return from_double(values, kind.dtype).reshape(size)
