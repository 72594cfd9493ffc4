"""Functions for F16 and BF16, with fewer terms, because the result is rounded again; most need no special cases."""

from __future__ import annotations

from typing import Final

from xlakit.cpu.llvm.values import Value
from xlakit.cpu.math.arithmetic import (
    SINGLE,
    absolute,
    at_least,
    at_most,
    bits_of,
    float_of,
    fma,
    horner,
    or_sign_of,
)
from xlakit.cpu.math.coefficients import ERF_BF16, ERF_F16, EXP2_F16, LOG_BF16, LOG_F16, TANH_BF16, TANH_F16
from xlakit.cpu.math.logarithm import normal, split, with_ends
from xlakit.data.primitive import PrimitiveType

_F16, _BF16 = PrimitiveType.F16, PrimitiveType.BF16
# The coefficients, and an argument from which on the function rounds to 1.
_ERF: Final = {_F16: (ERF_F16, 2.63), _BF16: (ERF_BF16, 2.2)}
_TANH: Final = {_F16: (TANH_F16, 4.53), _BF16: (TANH_BF16, 3.5)}
_LOG: Final = {_F16: LOG_F16, _BF16: LOG_BF16}

# The leading coefficient. Most F16 and BF16 numbers are so small that only this term counts, so it must be precise.
_TWICE_ROOT_OF_INVERSE_PI: Final = 1.1283792257308960
_LOG2_E: Final = 1.4426950216293335
# For lesser arguments the result is 0: see ``exponential._Constants.least``.
_LEAST: Final = -88.0


def erf(kind: PrimitiveType, x: Value) -> Value:
    """The error function."""
    coefficients, bound = _ERF[kind]
    size = at_most(absolute(x), bound)
    return or_sign_of(size * horner(size * size, (_TWICE_ROOT_OF_INVERSE_PI, *coefficients)), x)


def tanh(kind: PrimitiveType, x: Value) -> Value:
    """The hyperbolic tangent."""
    # x coth x is approximated well by a polynomial of x^2 in a larger interval than tanh x / x, which has poles nearer
    # to 0.
    coefficients, bound = _TANH[kind]
    size = at_most(absolute(x), bound)
    return or_sign_of(size / horner(size * size, coefficients), x)


def exp(kind: PrimitiveType, x: Value) -> Value:
    """e^x."""
    if kind is _F16:
        return _power(at_least(at_most(x, 12.0), _LEAST), _LOG2_E)
    # BF16 has the exponents of F32; the square root of any result has the exponent of a normal number.
    root = _root(x, 89.0)
    return root * root


def logistic(kind: PrimitiveType, x: Value) -> Value:
    """1 / (1 + e^-x)."""
    if kind is _F16:
        # Beyond these bounds the result rounds to 0 or 1.
        return 1.0 / (_power(at_least(at_most(x, 20.0), -20.0), -_LOG2_E) + 1.0)
    # With r^2 = e^x, subnormal results are products of normal numbers.
    root = _root(x, 20.0)
    return root * (root / fma(root, root, 1.0))


def _root(x: Value, most: float) -> Value:
    """e^(x/2)."""
    return _power(at_least(at_most(x, most), 2 * _LEAST), _LOG2_E / 2)


def _power(x: Value, factor: float) -> Value:
    """2^(x factor), for x at or above the argument at which the result is 0."""
    # The low bits of the shifted number are the biased exponent.
    rounder = SINGLE.rounder + SINGLE.bias
    shifted = fma(x, factor, rounder)
    fraction = fma(x, factor, rounder - shifted)
    return horner(fraction, EXP2_F16) * float_of(bits_of(shifted) << SINGLE.fraction)


def log(kind: PrimitiveType, x: Value) -> Value:
    """The natural logarithm."""
    # Subnormal numbers of F16 are normal numbers of F32.
    scaled, shift = (x, None) if kind is _F16 else normal(x)
    m, _, n = split(scaled)
    f = m - 1.0
    result = fma(n if shift is None else n + shift, 0.6931471824645996, f * horner(f, _LOG[kind]))
    return with_ends(result, x, x)
