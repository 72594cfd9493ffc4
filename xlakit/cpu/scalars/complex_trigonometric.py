"""Complex trigonometric and hyperbolic functions, and their inverses.

A trigonometric function is the hyperbolic one with the axes swapped: f(swap z) = swap g(z). The inverses follow Kahan,
"Branch cuts for complex elementary functions" (1987).
"""

from __future__ import annotations

import math

from xlakit.cpu.llvm import Value
from xlakit.cpu.math.arithmetic import absolute, at_most, constant, fma, where, with_sign_of
from xlakit.cpu.scalars.complex_arithmetic import (
    INFINITY,
    LARGE,
    Complex,
    choose,
    divide,
    has_infinity,
    is_infinite,
    larger_part,
    magnitude,
    multiply,
    scaled,
    sqrt,
)
from xlakit.cpu.scalars.complex_exponential import function, reduced


def _swapped(a: Complex) -> Complex:
    return a[1], a[0]


# -- sines and tangents --------------------------------------------------------------------------


def _hyperbolic(x: Value) -> tuple[Value, Value, Value]:
    """Sinh and cosh of x without a common factor, and the factor, by which the final result is to be multiplied."""
    less, factor = reduced(absolute(x))
    return with_sign_of(function("sinh", less), x), function("cosh", less), factor


def sinh(a: Complex) -> Complex:
    """The hyperbolic sine."""
    x, y = a
    sine, cosine, factor = _hyperbolic(x)
    turned = function("cos", y)
    result = sine * turned * factor, cosine * function("sin", y) * factor
    # On the axes, 0 times infinity is 0; 0 times NaN keeps the sign of the 0.
    return where(x.eq(0.0) & turned.is_nan(), x, result[0]), where(y.eq(0.0), y, result[1])


def cosh(a: Complex) -> Complex:
    """The hyperbolic cosine."""
    x, y = a
    sine, cosine, factor = _hyperbolic(x)
    result = cosine * function("cos", y) * factor, sine * function("sin", y) * factor
    lost = (y.eq(0.0) | x.eq(0.0)) & result[1].is_nan()
    return result[0], where(lost, with_sign_of(constant(x, 1.0), y) * with_sign_of(constant(x, 0.0), x), result[1])


def sin(a: Complex) -> Complex:
    """The sine."""
    return _swapped(sinh(_swapped(a)))


def cos(a: Complex) -> Complex:
    """The cosine."""
    return cosh((-a[1], a[0]))


# sinh^2 of greater numbers overflows; there the imaginary part of tanh is below the least normal number.
_TANH_LIMIT = 354.0


def tanh(a: Complex) -> Complex:
    """The hyperbolic tangent."""
    x, y = a
    size = at_most(absolute(x), _TANH_LIMIT)
    hyperbolic, companion = function("sinh", size), function("cosh", size)
    sine, cosine = function("sin", y), function("cos", y)
    # The parts of sinh(z) cosh(conj z), over |cosh z|^2.
    below = fma(hyperbolic, hyperbolic, cosine * cosine)
    real, imaginary = hyperbolic * companion / below, sine * cosine / below
    beyond = (absolute(x) > _TANH_LIMIT) & ~(sine.is_nan() & ~is_infinite(x))
    imaginary = where(beyond, with_sign_of(constant(y, 0.0), where(sine.is_nan(), y, sine * cosine)), imaginary)
    real = where(beyond, 1.0, real)
    return with_sign_of(real, x), where(y.eq(0.0), y, imaginary)


def tan(a: Complex) -> Complex:
    """The tangent."""
    return _swapped(tanh(_swapped(a)))


# -- inverse sines -------------------------------------------------------------------------------

# The scale for great numbers, beside which 1 still vanishes.
_SHRINK = 400


def _bounded(a: Complex) -> tuple[Complex, Value]:
    """``a``, scaled down if its square would overflow, made finite if infinite; and the logarithm of the scale."""
    x, y = a
    great = larger_part(a) > LARGE
    infinite = has_infinity(a)
    factor = where(great, 2.0**-_SHRINK, constant(x, 1.0))
    bounds = (_axis(part, infinite, part * factor) for part in a)
    lost = where(infinite, INFINITY, where(great, _SHRINK * math.log(2), constant(y, 0.0)))
    bounded = next(bounds), next(bounds)
    return bounded, lost


def _axis(part: Value, infinite: Value, otherwise: Value) -> Value:
    """``otherwise``; for an infinite number +-2^100 for an infinite part, and +-0 for a finite one."""
    zero = where(part.is_nan(), part, constant(part, 0.0))
    return where(infinite, with_sign_of(where(is_infinite(part), 2.0**100, zero), part), otherwise)


def _arcs(a: Complex) -> tuple[Value, Value, Value]:
    """The real parts of asin and acos, and the imaginary part of asin."""
    (x, y), lost = _bounded(a)
    # Negating instead of subtracting keeps the sign of 0, which tells the side of the branch cut.
    u, v = sqrt((1.0 - x, -y)), sqrt((x + 1.0, y))
    height = function("asinh", fma(u[0], v[1], -(u[1] * v[0])))
    along = function("atan2", x, fma(u[0], v[0], -(u[1] * v[1])))
    back = function("atan2", u[0], v[0]) * 2.0
    # On the imaginary axis and at infinity a NaN in one part leaves the other one its value.
    axis = a[0].eq(0.0) & a[1].is_nan()
    along, back = where(axis, a[0], along), where(axis, math.pi / 2, back)
    height = where(has_infinity(a), with_sign_of(lost, a[1]), height + with_sign_of(lost, height))
    return along, back, height


def asin(a: Complex) -> Complex:
    """The angle whose sine is z."""
    along, _, height = _arcs(a)
    return along, height


def acos(a: Complex) -> Complex:
    """The angle whose cosine is z."""
    _, back, height = _arcs(a)
    return back, -height


def asinh(a: Complex) -> Complex:
    """The number whose hyperbolic sine is z."""
    return _swapped(asin(_swapped(a)))


def acosh(a: Complex) -> Complex:
    """The number whose hyperbolic cosine is z."""
    _, back, height = _arcs(a)
    return absolute(height), with_sign_of(back, a[1])


# -- inverse tangents ----------------------------------------------------------------------------

_TINY_EXPONENT = 60


def atanh(a: Complex) -> Complex:
    """The number whose hyperbolic tangent is z."""
    x, y = absolute(a[0]), a[1]
    great = larger_part(a) > LARGE
    factor = where(great, 2.0**-600, constant(x, 1.0))
    u, v = x * factor, y * factor
    below = factor - u
    # Near the pole the square of y underflows: log(4 / y^2) is 2 log(1 / |y|) + log(4).
    tiny = x.eq(1.0) & (absolute(y) < 2.0**-500)
    ratio = u * 4.0 / fma(below, below, v * v) * factor
    ratio = where(tiny, 2.0**-_TINY_EXPONENT / absolute(y), ratio)
    growth = function("log1p", ratio)
    growth = where(tiny, growth * 2.0 + (2 * _TINY_EXPONENT + 2) * math.log(2), growth)
    angle = function("atan2", v * 2.0 * factor, fma(below, factor + u, -(v * v))) * 0.5
    quarter = where(y.is_nan(), y, with_sign_of(constant(y, math.pi / 2), y))
    infinite = has_infinity(a)
    real = where(infinite | x.eq(0.0), 0.0, growth * 0.25)
    return with_sign_of(real, a[0]), where(infinite, quarter, angle)


def atan(a: Complex) -> Complex:
    """The angle whose tangent is z."""
    return _swapped(atanh(_swapped(a)))


def atan2(y: Complex, x: Complex) -> Complex:
    """-i log((x + iy) / sqrt(x^2 + y^2))."""
    # The result is arctan(y / x), or a quarter turn minus arctan(x / y), up to half a turn. The square root is x (or y)
    # times sqrt(1 + t^2), up to its sign.
    flat = magnitude(y) < magnitude(x)
    low, high = choose(flat, y, x), choose(flat, x, y)
    t = divide(low, high)
    angle = atan(t)
    square = multiply(t, t)
    root = multiply(scaled(high)[0], sqrt((square[0] + 1.0, square[1])))
    forwards = (root[0] > 0.0) | (root[0].eq(0.0) & (root[1] >= 0.0))
    half = constant(angle[0], math.pi)
    back = where(angle[0] > 0.0, angle[0] - half, angle[0] + half)
    steep = where(forwards, half * 0.5, half * -0.5) - angle[0]
    result = where(flat, where(forwards, angle[0], back), steep), where(flat, angle[1], -angle[1])
    plain = function("atan2", y[0], x[0])
    return choose(x[1].eq(0.0) & y[1].eq(0.0), (plain, constant(plain, 0.0)), result)
