"""The reduction of angles: |x| = (n + f) pi/2 with an integer n and |f| <= 1/2, for every finite x.

x times 2/pi is computed to as many bits as the closest approach of a float to a multiple of pi/2 requires. Bits of 2/pi
that contribute only multiples of 4 to the product are left out, and so are bits far below. So a window of two doubles
(single precision) or four doubles (double precision) of the more than a thousand bits suffices; its position depends on
the exponent of x. In double precision, an x that is not large has a cheaper reduction: n times pi/2, as a sum of three
doubles, is subtracted.
"""

from __future__ import annotations

import math
import struct
from functools import cache
from typing import NamedTuple

from xlakit.cpu.llvm.types import F64, I32
from xlakit.cpu.llvm.values import Value
from xlakit.cpu.math.arithmetic import (
    DOUBLE,
    Pair,
    absolute,
    bits_of,
    constant,
    exact_product,
    exact_sum,
    exact_sum_ordered,
    fma,
    is_alone,
    where,
    widened,
)

_PI_HALF = (1.5707963267948966, 6.123233995736766e-17)


class Angle(NamedTuple):
    """The remainder of |x| after ``quarter`` quarter turns (modulo 4), as a sum of two numbers."""

    high: Value
    low: Value
    quarter: Value


@cache
def _two_over_pi() -> tuple[int, int]:
    """2/pi to 1,300 bits as numerator and denominator, by Machin's formula in integers."""
    bits = 1300

    def arctan_of_inverse(n: int) -> int:
        term = (1 << (bits + 32)) // n
        total, k = term, 1
        while term:
            term //= -n * n
            k += 2
            total += term // k
        return total

    pi = 16 * arctan_of_inverse(5) - 4 * arctan_of_inverse(239)
    return 2 << (bits + 32), pi


def _window(top: int, count: int, scale: int = 0) -> list[float]:
    """2/pi modulo 2^top, times 2^scale, as a sum of ``count`` doubles, each the rounded rest of those before."""
    numerator, denominator = _two_over_pi()
    # In units of 2^top.
    if top > 0:
        denominator <<= top
    else:
        numerator <<= -top
    numerator %= denominator
    # In units of 2^-scale.
    if top + scale > 0:
        numerator <<= top + scale
    else:
        denominator <<= -(top + scale)
    parts: list[float] = []
    for _ in range(count):
        # The quotient of two integers is rounded once.
        parts.append(numerator / denominator)
        above, below = parts[-1].as_integer_ratio()
        numerator, denominator = numerator * below - above * denominator, denominator * below
    return parts


# -- single precision ----------------------------------------------------------------------------

# From 2^start on, x is a multiple of 2^(start - 23), so a window may begin at 2^(25 - start). The starts are so close
# that the error of a window's first double moves f by less than 1/200 beyond 1/2.
_SINGLE_STARTS = (45, 66, 87, 108)


def reduce_single(x: Value) -> tuple[Value, Value]:
    """Reduce an F32 to (r, quarter): r is an F64 with at least 27 correct bits, quarter an I32."""
    size = widened(absolute(x))
    near = [constant(size, part) for part in _window(0, 2)]

    def far() -> list[Value]:
        first, second = near
        for start in _SINGLE_STARTS:
            beyond = size >= 2.0**start
            window = _window(25 - start, 2)
            first, second = where(beyond, window[0], first), where(beyond, window[1], second)
        return [first, second]

    is_far = size >= 2.0 ** _SINGLE_STARTS[0]
    first, second = x.function.if_else(is_far, far, lambda: near, likely=False) if is_alone(x) else far()
    shifted = fma(size, first, DOUBLE.rounder)
    f = fma(size, first, DOUBLE.rounder - shifted)
    return fma(size, second, f) * _PI_HALF[0], _as_i32(bits_of(shifted))


def _as_i32(bits: Value) -> Value:
    return bits.cast("trunc", bits.type.with_element(I32))


# -- double precision ----------------------------------------------------------------------------

# A row of the table serves 2^_STEP binary orders of magnitude; the first serves 0 to 2^64, with 2/pi from its first
# bit.
_STEP = 5
_FIRST = 64
# In the other rows the window is scaled up by this power of two, and x down, so that its lowest parts are normal
# numbers.
_SCALE = 160


@cache
def _table() -> bytes:
    rows = [_window(0, 4)]
    for start in range(_FIRST, 1024, 1 << _STEP):
        rows.append(_window(54 - start, 4, _SCALE))
    rows.append(rows[-1])  # infinities and NaN
    return b"".join(struct.pack("<4d", *row) for row in rows)


# Below this bound, the error of n pi/2 as three doubles is at most 2^30 2^-161, and no f is less than 2^-62.
NEAR = 2.0**30


@cache
def _half_pi() -> tuple[float, ...]:
    """pi/2 as a sum of three doubles."""
    denominator, numerator = _two_over_pi()
    parts: list[float] = []
    for _ in range(3):
        parts.append(numerator / denominator)
        above, below = parts[-1].as_integer_ratio()
        numerator, denominator = numerator * below - above * denominator, denominator * below
    return tuple(parts)


def reduce_near(x: Value) -> Angle:
    """An F64 of magnitude below NEAR as an Angle whose quarter is an I64; infinities and NaN give NaN."""
    size = absolute(x)
    first, second, third = _half_pi()
    shifted = fma(size, 2 / math.pi, DOUBLE.rounder)
    n = shifted - DOUBLE.rounder
    # Exact: a multiple of 2^-53 that is not much greater than pi/4.
    remainder = fma(n, -first, size)
    product, lost = exact_product(n, -second)
    high, low = exact_sum(remainder, product)
    return Angle(high, fma(n, -third, low + lost), bits_of(shifted))


def reduce_double(x: Value) -> Angle:
    """Any F64 as an Angle whose quarter is an I64."""
    fn = x.function
    size = absolute(x)
    # The exponent, but at least the one of the first row.
    least = DOUBLE.bias + _FIRST - (1 << _STEP)
    exponent = bits_of(size) >> DOUBLE.fraction
    row = (where(exponent < least, least, exponent) - least) >> _STEP
    table = fn.address(fn.module.shared_data("math.two_over_pi", _table()))
    parts = [fn.load(F64, fn.at(table, F64, (row << 2) + i)) for i in range(4)]
    scaled = where(size < 2.0**_FIRST, size, size * 2.0**-_SCALE)
    (p0, e0), (p1, e1), (p2, e2) = (exact_product(scaled, part) for part in parts[:3])
    s, t = exact_sum(_modulo_four(p0), _modulo_four(e0))
    s, u = exact_sum(s, _modulo_four(p1))
    shifted = s + DOUBLE.rounder
    v, w = exact_sum(e1, p2)
    f, low = exact_sum(s - (shifted - DOUBLE.rounder), v)
    f, lower = exact_sum(f, t + u)
    f, low = exact_sum_ordered(f, lower + (low + (w + fma(scaled, parts[3], e2))))
    high, low = _times_pi_half(f, low)
    # Small angles are their own remainder; angles whose product above would underflow are among them.
    small = size < 0.7853981633974483
    quarter = where(small, 0, bits_of(shifted))
    return Angle(where(small, size, high), where(small, 0.0, low), quarter)


def _modulo_four(x: Value) -> Value:
    """A number of magnitude at most 2 that differs from ``x`` by a multiple of 4; exact."""
    return fma(x.function.intrinsic("llvm.rint", x.type, x * 0.25), -4.0, x)


def _times_pi_half(high: Value, low: Value) -> Pair:
    product, lost = exact_product(high, _PI_HALF[0])
    return product, fma(low, _PI_HALF[0], fma(high, _PI_HALF[1], lost))
