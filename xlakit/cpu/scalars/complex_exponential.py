"""Complex exponentials, logarithms and powers."""

from __future__ import annotations

import math

from xlakit.cpu.llvm import Value
from xlakit.cpu.math import math_function
from xlakit.cpu.math.arithmetic import absolute, at_least, at_most, constant, fma, square_root, where, with_sign_of
from xlakit.cpu.scalars.complex_arithmetic import (
    INFINITY,
    Complex,
    choose,
    has_infinity,
    is_infinite,
    magnitude,
    scaled,
    square_size,
)

_LOG_OF_STEP = 600 * math.log(2)
# exp of greater numbers may overflow, although its product with a sine or a cosine does not.
_GREAT = 700.0
_TAKEN = 512.0


def function(name: str, *arguments: Value) -> Value:
    """A real elementary function."""
    return math_function(arguments[0].function, name, *arguments)


def reduced(x: Value) -> tuple[Value, Value]:
    """An argument whose exponential is finite, and the factor to multiply the final result by."""
    great = x > _GREAT
    return where(great, x - _TAKEN, x), where(great, constant(x, math.exp(_TAKEN)), 1.0)


def exp(a: Complex) -> Complex:
    """e^z, whose imaginary part is +0 for an angle of either 0, as XLA's."""
    x, y = a
    less, factor = reduced(x)
    size = function("exp", less)
    result = size * function("cos", y) * factor, size * function("sin", y) * factor
    return result[0], where(y.eq(0.0), 0.0, result[1])


def expm1(a: Complex) -> Complex:
    """e^z - 1, accurate near 0, with zeros of the signs that XLA gives them."""
    x, y = a
    far = exp(a)
    half = function("sin", y * 0.5)
    # Adding 0 makes a difference of -0 and 0 be 0.
    near = fma(function("expm1", x), function("cos", y), half * half * -2.0) + 0.0
    return where(absolute(x) < 1.0, near, far[0] - 1.0), far[1]


def log_of_size(a: Complex) -> Value:
    """Log |z|, accurate also if |z| is near 1; NaN if a part is, as XLA's."""
    number, count, _ = scaled(a)
    total, lost = square_size(number)
    # log(total + lost) is log(total) + lost / total, up to terms below the last bit.
    correction = where((total > 0.0) & (total < INFINITY), lost / total, 0.0)
    result = fma(count, -_LOG_OF_STEP, (function("log", total) + correction) * 0.5)
    return where(has_infinity(a), absolute(a[0]) + absolute(a[1]), result)


def log(a: Complex) -> Complex:
    """The principal logarithm: its imaginary part is between -pi and pi."""
    return log_of_size(a), function("atan2", a[1], a[0])


def log1p(a: Complex) -> Complex:
    """log(1 + z), accurate near 0."""
    x, y = a
    near = magnitude(a) < 0.5
    excess = fma(x, x + 2.0, y * y)
    close = function("log1p", where(near, excess, 0.0)) * 0.5
    return where(near, close, log_of_size((x + 1.0, y))), function("atan2", y, x + 1.0)


def logistic(a: Complex) -> Complex:
    """1 / (1 + e^-z), accurate also near its poles, the odd multiples of i*pi."""
    x, y = a
    inner = at_most(at_least(x, -50.0), 50.0)
    growth = function("expm1", inner)
    sine, cosine, half = function("sin", y), function("cos", y), function("cos", y * 0.5)
    square = half * half
    small = function("exp", -absolute(x))
    # 4 sinh(x/2)^2 + 4 cos(y/2)^2, which is |1 + e^-z|^2 e^x
    size = growth * growth / where(x < 0.0, at_least(small, 1e-30), growth + 1.0) + square * 4.0
    result = fma(square, 2.0, growth) / size, sine / size
    # For large |x| one of the two terms of the denominator dominates.
    ends = is_infinite(x)
    lost = sine.is_nan()
    along = where(ends, where(lost, small, with_sign_of(small, cosine)), small * cosine)
    across = where(ends, with_sign_of(small, where(lost, 0.0, sine)), small * sine)
    # Beside 1 the quotient's imaginary part loses the sign of a zero.
    result = choose(x > 50.0, (1.0 - along, across + 0.0), result)
    result = choose(x < -50.0, (along, across), result)
    return result[0], where(y.eq(0.0) & ~x.is_nan(), 0.0, result[1])


def power(a: Complex, b: Complex) -> Complex:
    """a^b, which is 1 wherever b is 0 or a is 1."""
    (x, y), (c, d) = a, b
    number, _, inverse = scaled(a)
    total, lost = square_size(number)
    root = square_root(total)
    # The relative rounding error of the root of the squares as |a|.
    correction = fma(-root, root, total) + lost
    correction = where((total > 0.0) & (total < INFINITY), correction / (total + total), 0.0)
    size = where(has_infinity(a), INFINITY, root * inverse)
    angle = function("atan2", y, x)
    spread = function("exp", -d * angle) * where(absolute(c) < 2.0**40, fma(c, correction, 1.0), 1.0)
    turn = c * angle + where(d.eq(0.0), 0.0, d * (function("log", size) + correction))
    length = function("pow", size, c)
    # A zero length stays 0 for any factor, unless d is infinite; at radius 0 the angle is undefined.
    radius = where(length.eq(0.0) & ~is_infinite(d), length, length * spread)
    turn = where(radius.eq(0.0), 0.0, turn)
    result = radius * function("cos", turn), radius * function("sin", turn)

    real = d.eq(0.0)
    zero, one, infinite, nothing = (constant(x, number) for number in (0.0, 1.0, INFINITY, math.nan))
    nil = x.eq(0.0) & y.eq(0.0)
    result = choose(nil & (c > 0.0), (zero, zero), result)
    # At its pole a power has no direction.
    result = choose(nil & (c < 0.0), (nothing, nothing), result)
    pole = x.eq(INFINITY) & y.eq(0.0) & real
    result = choose(pole & (c > 0.0), (infinite, zero), result)
    result = choose(pole & (c < 0.0), (zero, zero), result)
    unit = (c.eq(0.0) & real) | (x.eq(1.0) & y.eq(0.0))
    return choose(unit, (one, zero), result)
