"""Sine, cosine, tangent and their inverses."""

from __future__ import annotations

import math
from collections.abc import Callable

from xlakit.cpu.llvm.promises import NO_INLINE
from xlakit.cpu.llvm.types import F32, F64, I64
from xlakit.cpu.llvm.values import Value
from xlakit.cpu.math.angle import NEAR, Angle, reduce_double, reduce_near, reduce_single
from xlakit.cpu.math.arithmetic import (
    absolute,
    constant,
    fma,
    format_of,
    is_alone,
    narrowed,
    negate_if,
    polynomial,
    sign_of,
    square_root,
    where,
    widened,
    with_sign_of,
)
from xlakit.cpu.math.coefficients import (
    ASIN_DOUBLE,
    ASIN_WIDE,
    ATAN_DOUBLE,
    ATAN_WIDE,
    COS_DOUBLE,
    COS_SINGLE,
    COS_WIDE,
    SIN_DOUBLE,
    SIN_SINGLE,
    SIN_WIDE,
)

# -- sine, cosine, tangent -----------------------------------------------------------------------


def sin(x: Value) -> Value:
    """The sine."""
    if x.type.element is F32:
        return _turned_single(x, 0)
    return _near_or_far(x, lambda x, angle: _by_quadrant(x, *_sine_cosine_double(angle), angle.quarter, 0))


def cos(x: Value) -> Value:
    """The cosine."""
    if x.type.element is F32:
        return _turned_single(x, 1)
    return _near_or_far(x, lambda x, angle: _by_quadrant(x, *_sine_cosine_double(angle), angle.quarter, 1))


def _near_or_far(x: Value, evaluate: Callable[[Value, Angle], Value]) -> Value:
    """A function of the angle of an F64.

    The reduction of each element depends only on its own size, so that no result depends on other lanes. The one for
    far elements is long and reads a table: a vector with a far element calls a function that computes lane by lane.
    """
    fn, near, is_far = x.function, evaluate(x, reduce_near(x)), absolute(x) >= NEAR

    def with_far() -> list[Value]:
        name = f"{fn.name}.far"
        far_function = fn.module.function(name, x.type, [x.type], attributes=[NO_INLINE])
        far_function.effort = fn.effort
        lanes = far_function.alloca(x.type)
        far_function.store(far_function.parameters[0], lanes)
        with far_function.loop(0, x.type.lanes) as lane:
            element = far_function.at(lanes, F64, lane.index)
            number = far_function.load(F64, element)
            far_function.store(evaluate(number, reduce_double(number)), element)
        far_function.ret(far_function.load(x.type, lanes))
        return [where(is_far, fn.call(name, x.type, x), near)]

    return fn.if_else(is_far if x.type.lanes == 1 else is_far.any_lane(), with_far, lambda: [near], likely=False)[0]


def _turned_single(x: Value, quarters: int) -> Value:
    wide, quarter = reduce_single(x)
    return _by_quadrant(x, *_sine_cosine(narrowed(wide), SIN_SINGLE, COS_SINGLE), quarter, quarters)


def _by_quadrant(x: Value, sine: Value, cosine: Value, quarter: Value, quarters: int) -> Value:
    """The sine of ``x`` plus ``quarters`` quarter turns, 0 or 1, from the sine and cosine of the reduced angle."""
    quarter = quarter + quarters
    sign = (quarter << (format_of(x).int.bits - 2)) & format_of(x).sign_bit
    result = where((quarter & 1).ne(0), cosine, sine)
    if is_alone(x):
        # A choice between two registers: the way through one for integers takes as long as two operations.
        return where((sign if quarters else sign ^ sign_of(x)) < 0, -result, result)
    result = negate_if(result, sign)
    return result if quarters else negate_if(result, sign_of(x))


def tan(x: Value) -> Value:
    """The tangent."""
    if x.type.element is F32:
        wide, quarter = reduce_single(x)
        quarter = quarter.cast("zext", quarter.type.with_element(I64))
        return negate_if(narrowed(_quotient(*_sine_cosine(wide, SIN_WIDE, COS_WIDE), quarter)), sign_of(x))

    def of(x: Value, angle: Angle) -> Value:
        return negate_if(_quotient(*_sine_cosine_double(angle), angle.quarter), sign_of(x))

    return _near_or_far(x, of)


def _quotient(sine: Value, cosine: Value, quarter: Value) -> Value:
    odd = (quarter & 1).ne(0)
    return negate_if(where(odd, cosine, sine) / where(odd, sine, cosine), quarter << 63)


def _sine_cosine(r: Value, of_sine: tuple[float, ...], of_cosine: tuple[float, ...]) -> tuple[Value, Value]:
    z = r * r
    sine = fma(r * z, polynomial(z, of_sine), r)
    return sine, fma(z, fma(z, polynomial(z, of_cosine), -0.5), 1.0)


def sine_cosine_of_eighth(r: Value) -> tuple[Value, Value]:
    """The sine and the cosine of an F64 of magnitude at most pi/4."""
    z = r * r
    half = z * 0.5
    near = 1.0 - half
    rest = fma(z * z, polynomial(z, COS_DOUBLE), (1.0 - near) - half)
    return fma(r * z, polynomial(z, SIN_DOUBLE), r), near + rest


def _sine_cosine_double(angle: Angle) -> tuple[Value, Value]:
    r, low = angle.high, angle.low
    z = r * r
    half = z * 0.5
    near = 1.0 - half
    sine = r + fma(r * z, polynomial(z, SIN_DOUBLE), low * near)
    # This adds the rounding error of 1 - z/2.
    rest = fma(z * z, polynomial(z, COS_DOUBLE), ((1.0 - near) - half) - r * low)
    return sine, near + rest


# -- inverses --------------------------------------------------------------------------------------

_QUARTER_PI = (0.7853981633974483, 3.061616997868383e-17)
_HALF_PI = (1.5707963267948966, 6.123233995736766e-17)


def atan(x: Value) -> Value:
    """The angle, between -pi/2 and pi/2, whose tangent is x."""
    if x.type.element is F32:
        return narrowed(_arc(widened(x), None, ATAN_WIDE))
    return _arc(x, None, ATAN_DOUBLE)


def atan2(y: Value, x: Value) -> Value:
    """The angle, between -pi and pi, of the point (x, y)."""
    if x.type.element is F32:
        return narrowed(_arc(widened(y), widened(x), ATAN_WIDE))
    return _arc(y, x, ATAN_DOUBLE)


def _arc(y: Value, x: Value | None, coefficients: tuple[float, ...]) -> Value:
    """The angle of the point (x, y); x is 1 if it is None."""
    across, up = constant(y, 1.0) if x is None else absolute(x), absolute(y)
    steep = up > across
    less, more = where(steep, across, up), where(steep, up, across)
    if x is not None:
        less, more = _within_range(less, more)
    # atan(q) = pi/4 + atan((q - 1) / (q + 1)), where that is the smaller arc.
    wide = less > more * math.tan(math.pi / 8)
    q = where(wide, less - more, less) / where(wide, more + less, more)
    z = q * q
    arc = fma(q * z, polynomial(z, coefficients), q)
    eighths = where(wide, constant(y, 1.0), 0.0)
    arc, eighths = where(steep, -arc, arc), where(steep, 2.0 - eighths, eighths)
    if x is not None:
        left = sign_of(x).ne(0)
        arc, eighths = where(left, -arc, arc), where(left, 4.0 - eighths, eighths)
    return with_sign_of(fma(eighths, _QUARTER_PI[0], fma(eighths, _QUARTER_PI[1], arc)), y)


def _within_range(less: Value, more: Value) -> tuple[Value, Value]:
    """Two magnitudes scaled such that their quotient stays, their sum is finite, and the quotient is not NaN."""
    scale = where(more > 2.0**1000, constant(more, 2.0**-60), 1.0)
    both_infinite = less.eq(math.inf)
    both_infinite = both_infinite & more.eq(math.inf)
    less, more = less * scale, more * scale
    return where(both_infinite, 1.0, less), where(both_infinite, 1.0, where(more.eq(0.0), 1.0, more))


def asin(x: Value) -> Value:
    """The angle, between -pi/2 and pi/2, whose sine is x."""
    if x.type.element is F32:
        return narrowed(_arcsine(widened(x), ASIN_WIDE))
    return _arcsine(x, ASIN_DOUBLE)


def acos(x: Value) -> Value:
    """The angle, between 0 and pi, whose cosine is x."""
    if x.type.element is F32:
        return narrowed(_arccosine(widened(x), ASIN_WIDE))
    return _arccosine(x, ASIN_DOUBLE)


def _arcsine(x: Value, coefficients: tuple[float, ...]) -> Value:
    size = absolute(x)
    root, low, outer = _half_angle(size, coefficients)
    # pi/2 - 2 (root + low), with the rounding error of the first difference.
    first = _HALF_PI[0] - root * 2.0
    lost = (_HALF_PI[0] - first) - root * 2.0
    complement = first + (lost + fma(low, -2.0, _HALF_PI[1]))
    return with_sign_of(where(outer, complement, root + low), x)


def _arccosine(x: Value, coefficients: tuple[float, ...]) -> Value:
    root, low, outer = _half_angle(absolute(x), coefficients)
    negative = x < 0.0
    # Outside, 2 (root + low), or pi minus that; inside, pi/2 minus the arc sine, whose sign is that of x.
    base = where(outer, where(negative, constant(x, 2 * _HALF_PI[0]), 0.0), _HALF_PI[0])
    base_low = where(outer, where(negative, constant(x, 2 * _HALF_PI[1]), 0.0), _HALF_PI[1])
    factor = where(outer, constant(x, 2.0), 1.0)
    factor = where(_same(outer, negative), -factor, factor)
    high, low = root * factor, low * factor
    first = base + high
    lost = high - (first - base)
    return first + (lost + (low + base_low))


def _same(a: Value, b: Value) -> Value:
    return ~(a ^ b)


def _half_angle(size: Value, coefficients: tuple[float, ...]) -> tuple[Value, Value, Value]:
    """The arc sine of ``size``, or half the arc cosine if ``size`` is above 1/2, as a sum; and whether it is above."""
    outer = size > 0.5
    z = where(outer, fma(size, -0.5, 0.5), size * size)
    s = where(outer, square_root(z), size)
    tail = s * z * polynomial(z, coefficients)
    if coefficients is ASIN_WIDE:
        return s, tail, outer
    # The error of the root: (z - s^2) / (2 s).
    lack = fma(-s, s, z) * (0.5 / where(s.eq(0.0), 1.0, s))
    return s, tail + where(outer, lack, 0.0), outer
