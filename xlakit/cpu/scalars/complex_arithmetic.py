"""Complex magnitudes, signs, products, quotients and roots, and the order of complex numbers."""

from __future__ import annotations

from xlakit.cpu.llvm import Value
from xlakit.cpu.math.arithmetic import (
    absolute,
    bits_of,
    constant,
    exact_product,
    float_of,
    fma,
    negate_if,
    sign_of,
    square_root,
    where,
    with_sign_of,
)

Complex = tuple[Value, Value]

INFINITY = float("inf")
# Numbers of magnitudes between these two have squares that neither overflow nor lose bits.
LARGE, SMALL = 2.0**500, 2.0**-450
# Numbers outside of that range are multiplied by two to this power, or its negative.
_STEP = 600


def choose(condition: Value, yes: Complex, no: Complex) -> Complex:
    """One of two complex numbers."""
    return where(condition, yes[0], no[0]), where(condition, yes[1], no[1])


def conjugate(a: Complex) -> Complex:
    """The complex conjugate."""
    return a[0], -a[1]


def is_infinite(a: Value) -> Value:
    """Whether a real number is one of the infinities."""
    return absolute(a).eq(INFINITY)


def has_infinity(a: Complex) -> Value:
    """Whether a part is infinite."""
    return is_infinite(a[0]) | is_infinite(a[1])


def is_finite(a: Complex) -> Value:
    """Whether both parts are neither infinite nor NaN."""
    return (absolute(a[0]) < INFINITY) & (absolute(a[1]) < INFINITY)


def multiply(a: Complex, b: Complex) -> Complex:
    """The product; each part has an error of one or two roundings, even if it is a small difference."""
    return _sum_of_products(a[0], b[0], -a[1], b[1]), _sum_of_products(a[0], b[1], a[1], b[0])


def _sum_of_products(a: Value, b: Value, c: Value, d: Value) -> Value:
    """``a * b + c * d`` without cancellation (Kahan)."""
    product = c * d
    # Subtracting this error keeps a sum of -0, to which adding an error of +0 would give +0.
    excess = fma(-c, d, product)
    return fma(a, b, product) - excess


# -- magnitude -----------------------------------------------------------------------------------


def larger_part(a: Complex) -> Value:
    """The larger of the magnitudes of the parts; NaN if one is NaN."""
    x, y = absolute(a[0]), absolute(a[1])
    return x.function.intrinsic("llvm.maximum", x.type, x, y)


def scaled(a: Complex) -> tuple[Complex, Value, Value]:
    """``a`` times 2^-600, 1 or 2^600, such that squares neither overflow nor lose bits; the count; the inverse factor.

    The count is the exponent of the factor divided by 600: -1, 0 or 1, as a float.
    """
    size = larger_part(a)
    big, small = size > LARGE, size < SMALL
    count = where(big, -1.0, where(small, constant(size, 1.0), 0.0))
    factor = where(big, 2.0**-_STEP, where(small, constant(size, 2.0**_STEP), 1.0))
    inverse = where(big, 2.0**_STEP, where(small, constant(size, 2.0**-_STEP), 1.0))
    return (a[0] * factor, a[1] * factor), count, inverse


def square_size(a: Complex) -> tuple[Value, Value]:
    """``x^2 + y^2`` of a scaled number, and its rounding error."""
    x, y = absolute(a[0]), absolute(a[1])
    low, high = where(x < y, x, y), where(x < y, y, x)
    big, big_lost = exact_product(high, high)
    little, little_lost = exact_product(low, low)
    total = big + little
    return total, (little - (total - big)) + (big_lost + little_lost)


def magnitude(a: Complex) -> Value:
    """The absolute value; infinite if one of the parts is, even if the other one is NaN."""
    number, _, inverse = scaled(a)
    size = square_root(fma(number[0], number[0], number[1] * number[1])) * inverse
    return where(has_infinity(a), INFINITY, size)


def magnitude_narrow(a: Complex) -> Value:
    """As :func:`magnitude`, of a number that was F32."""
    size = square_root(fma(a[0], a[0], a[1] * a[1]))
    return where(has_infinity(a), INFINITY, size)


def sign(a: Complex) -> Complex:
    """The direction z / |z|, or 0 for 0."""
    number, _, _ = scaled(a)
    size = square_root(fma(number[0], number[0], number[1] * number[1]))
    size = where(size.eq(0.0), 1.0, where(has_infinity(a), INFINITY, size))
    return number[0] / size, number[1] / size


# -- quotient ------------------------------------------------------------------------------------


def divide_narrow(a: Complex, b: Complex) -> Complex:
    """As :func:`divide`, for numbers that were F32: their squares are safe, and their products exact.

    Both parts are NaN in all cases for which XLA has special rules: a zero denominator gives 0 times infinity; other
    cases have infinite operands. So vectors compute these rules only if a lane needs them.
    """
    turned, sign = _sign_removed(b, b)
    inverse = negate_if(1.0 / fma(b[0], b[0], b[1] * b[1]), sign)
    product = plain_product(a, conjugate(turned))
    quotient = product[0] * inverse, product[1] * inverse
    if inverse.type.lanes == 1:
        return _with_special_quotients(a, b, quotient)
    fn, is_special = inverse.function, (quotient[0].is_nan() & quotient[1].is_nan()).any_lane()
    corrected = fn.if_else(is_special, lambda: _with_special_quotients(a, b, quotient), lambda: quotient)
    return corrected[0], corrected[1]


def divide(a: Complex, b: Complex) -> Complex:
    """The quotient, with XLA's results for zero denominators and infinite operands."""
    top, top_exponent = _normalized(a)
    bottom, bottom_exponent = _normalized(b)
    bottom, sign = _sign_removed(bottom, bottom)
    size = negate_if(fma(bottom[0], bottom[0], bottom[1] * bottom[1]), sign)
    # Rounding errors of infinite products are NaN.
    product = choose(has_infinity(a), plain_product(top, conjugate(bottom)), multiply(top, conjugate(bottom)))
    # 2^exponent may overflow although the result does not.
    exponent = top_exponent - bottom_exponent
    half = exponent.integer("ashr", 1)
    first, second = _power_of_two(half), _power_of_two(exponent - half)
    quotient = product[0] / size * first * second, product[1] / size * first * second
    return _with_special_quotients(a, b, quotient)


def _with_special_quotients(a: Complex, b: Complex, quotient: Complex) -> Complex:
    zero = b[0].eq(0.0) & b[1].eq(0.0)
    pole = with_sign_of(constant(b[0], INFINITY), b[0])
    quotient = choose(zero, (pole * a[0], pole * a[1]), quotient)
    lost = quotient[0].is_nan() & quotient[1].is_nan() & ~zero
    towards = plain_product(_direction(a), conjugate(b))
    far = towards[0] * INFINITY, towards[1] * INFINITY
    quotient = choose(lost & has_infinity(a) & is_finite(b), far, quotient)
    # XLA divides by the larger part only if the other one is finite.
    one, has_finite = constant(b[0], 1.0), (absolute(b[0]) < INFINITY) | (absolute(b[1]) < INFINITY)
    turned, sign = _sign_removed(_direction(b), choose(has_finite, b, (one, one)))
    towards = plain_product(a, conjugate(turned))
    nothing = negate_if(constant(b[0], 0.0), sign)
    near = towards[0] * nothing, towards[1] * nothing
    return choose(lost & is_finite(a) & has_infinity(b), near, quotient)


def _sign_removed(a: Complex, leading: Complex) -> tuple[Complex, Value]:
    """``a``, or -a if the larger part of ``leading`` is negative, and the sign bit that was taken away.

    XLA divides by the larger part of the denominator last, so parts of a quotient that cancel have its sign.
    """
    larger = where(absolute(leading[0]) >= absolute(leading[1]), leading[0], leading[1])
    sign = sign_of(larger)
    return (negate_if(a[0], sign), negate_if(a[1], sign)), sign


def _normalized(a: Complex) -> tuple[Complex, Value]:
    """The number divided by a power of two, with its larger part between 1 and 4, and the exponent of that power."""
    # A subnormal number's exponent depends on its fraction, so it is scaled to a normal number first.
    size = larger_part(a)
    tiny = size < 2.0**-1000
    lift = where(tiny, 2.0**_STEP, constant(size, 1.0))
    exponent = ((bits_of(size * lift) >> 52) & 0x7FF) - 1023
    # Zero, infinities and NaN stay unchanged.
    ordinary = (exponent > -1023) & (exponent < 1024)
    # 2^-1023 is not a normal number.
    exponent = where(ordinary, exponent.smin(1022), 0)
    factor = _power_of_two(-exponent)
    lifted = where(tiny, exponent - _STEP, exponent)
    return (a[0] * lift * factor, a[1] * lift * factor), lifted


def _power_of_two(exponent: Value) -> Value:
    """2^exponent for exponents of normal numbers; exponents below these give 0."""
    bounded = exponent.smin(1024).smax(-1023)
    return float_of((bounded + 1023) << 52)


def plain_product(a: Complex, b: Complex) -> Complex:
    """The product by the textbook formula, which gives NaN for some infinite operands, as XLA does."""
    return a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]


def _direction(a: Complex) -> Complex:
    """Each part replaced by 1 if it is infinite, else by 0, with its sign."""
    one, zero = constant(a[0], 1.0), constant(a[0], 0.0)
    x, y = (with_sign_of(where(is_infinite(part), one, zero), part) for part in a)
    return x, y


# -- roots ---------------------------------------------------------------------------------------


def _scaled_root(a: Complex) -> tuple[Complex, Value, Value]:
    """The root of the scaled number, the factor to multiply it by, and the inverse of the factor."""
    number, _, inverse = scaled(a)
    x, y = number
    length = square_root(fma(x, x, y * y))
    t = square_root((absolute(x) + length) * 0.5)
    other = absolute(y) / where(t.eq(0.0), 1.0, t + t)
    left = x < 0.0
    root = where(left, other, t), with_sign_of(where(left, t, other), y)
    half = _STEP // 2
    back = where(inverse > 1.0, 2.0**half, where(inverse < 1.0, constant(x, 2.0**-half), 1.0))
    forth = where(inverse > 1.0, 2.0**-half, where(inverse < 1.0, constant(x, 2.0**half), 1.0))
    return root, back, forth


def sqrt(a: Complex) -> Complex:
    """The square root with a real part >= 0; the branch cut is the negative real axis."""
    x, y = a
    root, back, _ = _scaled_root(a)
    result = root[0] * back, root[1] * back
    infinity, zero = constant(x, INFINITY), constant(x, 0.0)
    # For an infinite real part the other part is 0 or infinite, or NaN if the imaginary part is.
    right = infinity, where(y.is_nan(), y, with_sign_of(zero, y))
    left = where(y.is_nan(), y, zero), with_sign_of(infinity, y)
    result = choose(is_infinite(x), choose(x > 0.0, right, left), result)
    return choose(is_infinite(y), (infinity, y), result)


def sqrt_above_cut(a: Complex) -> Complex:
    """As :func:`sqrt`, but -0 counts as the imaginary part 0, and a NaN makes both parts NaN, as in XLA."""
    nothing = constant(a[0], float("nan"))
    return choose(a[0].is_nan() | a[1].is_nan(), (nothing, nothing), sqrt((a[0], a[1] + 0.0)))


def rsqrt(a: Complex) -> Complex:
    """1 / sqrt(z); for zero it is (inf, NaN), as in XLA."""
    x, y = a
    (u, v), _, forth = _scaled_root(a)
    size = fma(u, u, v * v)
    result = u / size * forth, -v / size * forth
    result = choose(has_infinity(a), (constant(x, 0.0), with_sign_of(constant(x, 0.0), -y)), result)
    nan = constant(x, float("nan"))
    return choose(x.eq(0.0) & y.eq(0.0), (constant(x, INFINITY), nan), result)


# -- order ---------------------------------------------------------------------------------------


def maximum(a: Complex, b: Complex) -> Complex:
    """The greater number, by the real, then by the imaginary part; the first operand with a NaN if there is one."""
    first = (a[0] > b[0]) | (a[0].eq(b[0]) & (a[1] >= b[1]))
    return _unless_nan(a, b, first)


def minimum(a: Complex, b: Complex) -> Complex:
    """The lesser number, by the real, then by the imaginary part; the first operand with a NaN if there is one."""
    first = (a[0] < b[0]) | (a[0].eq(b[0]) & (a[1] <= b[1]))
    return _unless_nan(a, b, first)


def _unless_nan(a: Complex, b: Complex, first: Value) -> Complex:
    lost = b[0].is_nan() | b[1].is_nan()
    return choose(a[0].is_nan() | a[1].is_nan() | (first & ~lost), a, b)
