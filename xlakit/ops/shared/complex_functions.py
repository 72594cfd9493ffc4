"""The functions of complex numbers that NumPy lacks, or does not compute as XLA defines them.

The arguments are in a wider type than the result (see ``numerics.to_wider_complex``), so the formulas take care of
range and cancellation, but not of the last bit. Infinities, NaN, branch cuts and signed zeros follow C99's Annex G, or
XLA where its CPU backend and its evaluator agree on something else.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from xlakit.ir.operation import Array

Complex: TypeAlias = np.ndarray[Any, np.dtype[np.complexfloating[Any]]]


def compose(real: Array, imag: Array) -> Complex:
    """Complex numbers with exactly these parts; ``real + 1j * imag`` would be wrong for infinities and signed zeros."""
    real, imag = np.broadcast_arrays(real, imag)
    out: Complex = np.empty(real.shape, dtype=np.result_type(real.dtype, np.complex64))
    out.real, out.imag = real, imag
    return out


def _where(condition: Array, real: Array | float, imag: Array | float, otherwise: Complex) -> Complex:
    return compose(np.where(condition, real, otherwise.real), np.where(condition, imag, otherwise.imag))


def exp(z: Complex) -> Complex:
    """e^z. Its imaginary part is +0 for an angle of either 0; it is NaN at an infinite real part without an angle."""
    x, y = z.real, z.imag
    found: Complex = np.exp(z)
    found = compose(found.real, np.where(y == 0, 0.0, found.imag))
    return _where(np.isinf(x) & ~np.isfinite(y), np.nan, np.nan, found)


def sqrt(z: Complex) -> Complex:
    """The square root, of a number on the branch cut the one above it; a NaN makes both parts NaN."""
    found: Complex = np.sqrt(compose(z.real, z.imag + 0.0))
    return _where(np.isnan(z), np.nan, np.nan, found)


def log(z: Complex) -> Complex:
    """The principal logarithm; NaN if a part is."""
    return _where(np.isnan(z), np.nan, np.nan, np.log(z))


def log1p(z: Complex) -> Complex:
    """log(1 + z), accurate near 0; NaN if a part is."""
    x, y = z.real, z.imag
    near = np.hypot(x, y) < 0.5
    # |1 + z|^2 - 1
    excess = np.where(near, x * (2 + x) + y * y, 0)
    far = np.where(np.isnan(z), np.nan, np.log(np.hypot(1 + x, y)))
    return compose(np.where(near, np.log1p(excess) / 2, far), np.arctan2(y, 1 + x))


def expm1(z: Complex) -> Complex:
    """exp(z) - 1, accurate near 0, with the zeros and NaN of :func:`exp`, and 0 for -0."""
    x, y = z.real, z.imag
    e, half = exp(z), np.sin(y / 2)
    near = np.expm1(x) * np.cos(y) - 2 * half * half + 0.0
    return compose(np.where(np.isfinite(x) & (np.abs(x) < 1), near, e.real - 1), e.imag)


def logistic(z: Complex) -> Complex:
    """1 / (1 + exp(-z)), accurate also near its poles, the odd multiples of i*pi.

    Its imaginary part is +0 for a real number, and where it vanishes beside 1.
    """
    x, y = z.real, z.imag
    inner = np.clip(x, -50, 50)
    # |1 + exp(-z)|^2 exp(x) / 4, as a sum of two squares
    size = np.sinh(inner / 2) ** 2 + np.cos(y / 2) ** 2
    out = compose((np.expm1(inner) + 2 * np.cos(y / 2) ** 2) / (4 * size), np.sin(y) / (4 * size))
    left: Complex = np.exp(z)
    right: Complex = np.exp(-z)
    out = _where(x > 50, 1 - right.real, -right.imag + 0.0, out)
    out = _where(x < -50, left.real, np.where(np.isfinite(y), left.imag, 0.0), out)
    return compose(out.real, np.where((y == 0) & ~np.isnan(x), 0.0, out.imag))


def sinh(z: Complex) -> Complex:
    """The hyperbolic sine; NaN at infinity without an angle, as XLA's."""
    found: Complex = np.sinh(z)
    return compose(np.where(np.isinf(z.real) & ~np.isfinite(z.imag), np.nan, found.real), found.imag)


def cosh(z: Complex) -> Complex:
    """The hyperbolic cosine; NaN at infinity without an angle, as XLA's."""
    found: Complex = np.cosh(z)
    return compose(np.where(np.isinf(z.real) & ~np.isfinite(z.imag), np.nan, found.real), found.imag)


def tanh(z: Complex) -> Complex:
    """The hyperbolic tangent; NaN at the ends of the imaginary axis, as XLA's."""
    found: Complex = np.tanh(z)
    return compose(np.where((z.real == 0) & ~np.isfinite(z.imag), np.nan, found.real), found.imag)


def _swapped(z: Complex) -> Complex:
    return compose(z.imag, z.real)


def sin(z: Complex) -> Complex:
    """The sine, as :func:`sinh`."""
    return _swapped(sinh(_swapped(z)))


def cos(z: Complex) -> Complex:
    """The cosine, as :func:`cosh`."""
    return cosh(compose(-z.imag, z.real))


def tan(z: Complex) -> Complex:
    """The tangent, as :func:`tanh`."""
    return _swapped(tanh(_swapped(z)))


def rsqrt(z: Complex) -> Complex:
    """1 / sqrt(z); of zero it is (inf, NaN), as in XLA."""
    root: Complex = np.sqrt(z)
    out = divide(np.ones_like(z), root)
    # The inverse of a number is its conjugate times a positive number.
    out = compose(np.copysign(out.real, root.real), np.copysign(out.imag, -root.imag))
    infinite = np.isinf(z.real) | np.isinf(z.imag)
    out = _where(infinite, np.zeros_like(z.real), np.copysign(0, -z.imag), out)
    return _where(z == 0, np.inf, np.nan, out)


def sign(z: Complex) -> Complex:
    """The direction z / |z|, and 0 of 0."""
    size = np.abs(z)
    zero = size == 0
    size = np.where(zero, 1, size)
    return compose(z.real / size, z.imag / size)


def multiply(a: Complex, b: Complex) -> Complex:
    """The product by its plain formula, which XLA does not repair where parts are infinite."""
    return compose(a.real * b.real - a.imag * b.imag, a.real * b.imag + a.imag * b.real)


def divide(a: Complex, b: Complex) -> Complex:
    """The quotient, with XLA's results for zero denominators and infinite operands."""
    out: Complex = np.divide(a, b)
    zero = b == 0
    signed = np.copysign(np.inf, b.real)
    out = _where(zero, signed * a.real, signed * a.imag, out)

    lost = np.isnan(out.real) & np.isnan(out.imag) & ~zero
    # An infinite operand counts as the direction in which it is infinite.
    u, v = _direction(a), _direction(b)
    a_infinite, b_infinite = (np.isinf(t.real) | np.isinf(t.imag) for t in (a, b))
    a_finite, b_finite = (np.isfinite(t.real) & np.isfinite(t.imag) for t in (a, b))
    towards = multiply(u, b.conj())
    out = _where(lost & a_infinite & b_finite, np.inf * towards.real, np.inf * towards.imag, out)
    towards = multiply(a, v.conj())
    return _where(lost & a_finite & b_infinite, 0 * towards.real, 0 * towards.imag, out)


def _direction(z: Complex) -> Complex:
    return compose(np.copysign(np.isinf(z.real), z.real), np.copysign(np.isinf(z.imag), z.imag))


def power(a: Complex, b: Complex) -> Complex:
    """The power a^b, which is 1 wherever b is 0 or a is 1.

    Where an operand is not finite the power is computed from absolute value and angle: the C standard leaves those
    cases open, and C libraries give NaN for some infinite bases to the power -1.
    """
    out: Complex = np.where(np.isfinite(a) & np.isfinite(b), np.power(a, b), _polar_power(a, b))
    real_exponent = b.imag == 0
    out = _where((a == 0) & (b.real > 0), 0.0, 0.0, out)
    infinite = (a.real == np.inf) & (a.imag == 0) & real_exponent
    out = _where(infinite & (b.real > 0), np.inf, 0.0, out)
    out = _where(infinite & (b.real < 0), 0.0, 0.0, out)
    return _where((b == 0) | (a == 1), 1.0, 0.0, out)


def _polar_power(a: Complex, b: Complex) -> Complex:
    """|a|^c e^(-d arg a), with the phase c arg a + d log |a|, for b = c + id; 0 has no argument."""
    size: Array = np.abs(a)
    angle: Array = np.angle(a)
    c, d = b.real, b.imag
    length: Array = np.power(size, c)
    radius: Array = np.where((length == 0) & ~np.isinf(d), length, length * np.exp(-d * angle))
    phase: Array = np.where(radius == 0, 0.0, c * angle + np.where(d == 0, 0.0, d * np.log(size)))
    return compose(radius * np.cos(phase), radius * np.sin(phase))


def atan2(y: Complex, x: Complex) -> Complex:
    """-i log((x + iy) / sqrt(x^2 + y^2))."""
    # That is arctan(y / x), or a quarter turn less arctan(x / y), up to half a turn: the square root is x (or y)
    # times sqrt(1 + t^2), up to its sign.
    flat = np.abs(y) < np.abs(x)
    low, high = np.where(flat, y, x), np.where(flat, x, y)
    t = divide(low, high)
    angle: Complex = np.arctan(t)
    root = multiply(high, np.sqrt(1 + multiply(t, t)))
    forwards = (root.real > 0) | ((root.real == 0) & (root.imag >= 0))
    half_turn = 2 * np.arctan2(np.ones_like(angle.real), 0)
    flat_angle = angle.real + np.where(forwards, 0, np.where(angle.real > 0, -half_turn, half_turn))
    steep_angle = np.where(forwards, half_turn / 2, -half_turn / 2) - angle.real
    out = compose(np.where(flat, flat_angle, steep_angle), np.where(flat, angle.imag, -angle.imag))
    # Arguments without imaginary parts are those of the real function.
    plain = np.arctan2(y.real, x.real)
    return _where((x.imag == 0) & (y.imag == 0), plain, np.zeros_like(plain), out)
