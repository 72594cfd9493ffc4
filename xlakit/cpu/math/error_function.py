"""The error function."""

from __future__ import annotations

from xlakit.cpu.llvm.types import F32
from xlakit.cpu.llvm.values import Value
from xlakit.cpu.math.arithmetic import absolute, at_most, fma, polynomial, where, with_sign_of
from xlakit.cpu.math.coefficients import ERF_DOUBLE, ERF_SINGLE, LOG_ERFC_DOUBLE, LOG_ERFC_SINGLE
from xlakit.cpu.math.exponential import exp_within


def erf(x: Value) -> Value:
    """The error function."""
    single = x.type.element is F32
    size = absolute(x)
    square = x * x
    small = fma(size, polynomial(square, ERF_SINGLE if single else ERF_DOUBLE), size)
    # Beyond the bound the result rounds to 1.
    bounded = at_most(size, 3.95 if single else 5.93)
    large = 1.0 - exp_within(polynomial(bounded, LOG_ERFC_SINGLE if single else LOG_ERFC_DOUBLE))
    return with_sign_of(where(size < 1.0, small, large), x)
