"""The error function."""

from __future__ import annotations

from xlakit.cpu.llvm.types import F32
from xlakit.cpu.llvm.values import Value
from xlakit.cpu.math.arithmetic import absolute, at_most, fma, horner, or_sign_of, polynomial, where, with_sign_of
from xlakit.cpu.math.coefficients import ERF_DOUBLE, ERF_SINGLE, ERFC_ROOT_SINGLE, LOG_ERFC_DOUBLE
from xlakit.cpu.math.exponential import exp_within


def erf(x: Value) -> Value:
    """The error function."""
    size = absolute(x)
    square = x * x
    if x.type.element is F32:
        small = fma(size, polynomial(square, ERF_SINGLE), size)
        # The fourth power needs no exponential; its error, and that of its root, counts by what is missing to 1. Beyond
        # the bound the result rounds to 1.
        root = horner(at_most(size, 4.05), ERFC_ROOT_SINGLE)
        half = root * root
        return or_sign_of(where(size < 1.1, small, fma(-half, half, 1.0)), x)
    small = fma(size, polynomial(square, ERF_DOUBLE), size)
    large = 1.0 - exp_within(polynomial(at_most(size, 5.93), LOG_ERFC_DOUBLE))
    return with_sign_of(where(size < 1.0, small, large), x)
