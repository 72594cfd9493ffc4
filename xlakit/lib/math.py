"""Functions of elements that are few operations each.

Source: ``xla/hlo/builder/lib/math.h``. Its other functions are operations here, or in :mod:`xlakit.lib.special`.
"""

from __future__ import annotations

from collections.abc import Sequence

from xlakit.errors import ShapeError
from xlakit.lib.constants import full_like, zeros_like
from xlakit.ops.elementwise.binary import add, mul, sub
from xlakit.ops.elementwise.compare import eq_total_order
from xlakit.ops.elementwise.unary import conj, round_nearest_even
from xlakit.ops.handle import XlaOp, building
from xlakit.ops.shared.elementwise import FLOATING


@building
def is_neg_zero(operand: XlaOp) -> XlaOp:
    """PRED: which floats are -0. Raises ShapeError for other types. Source: IsNegZero."""
    FLOATING.check(operand.shape)
    return eq_total_order(operand, full_like(operand, -0.0))


@building
def round_to_even(x: XlaOp) -> XlaOp:
    """The nearest whole number, of two the even one. Raises ShapeError but for floats. Source: RoundToEven."""
    return round_nearest_even(x)


@building
def maybe_conjugate(x: XlaOp, conjugate: bool) -> XlaOp:
    """The complex conjugate of complex ``x`` where ``conjugate`` is True, otherwise ``x``. Source: MaybeConjugate."""
    return conj(x) if conjugate and x.shape.element_type.is_complex else x


@building
def evaluate_polynomial(x: XlaOp, coefficients: Sequence[float]) -> XlaOp:
    """A polynomial of floating point or complex ``x``, by Horner's rule in its type.

    coefficients: that of the highest power first; none for the polynomial 0.

    Raises ShapeError. Source: EvaluatePolynomial.
    """
    _check_numbers(x)
    result = zeros_like(x)
    for number, c in enumerate(coefficients):
        here = full_like(x, float(c))
        result = add(mul(result, x), here) if number else here
    return result


@building
def evaluate_chebyshev_polynomial(x: XlaOp, coefficients: Sequence[float]) -> XlaOp:
    """A series of Chebyshev polynomials as Cephes' chbevl has it, by Clenshaw's recurrence in the type of ``x``.

    x: floating point or complex numbers, twice the argument of the Chebyshev polynomials: from -2 to 2.
    coefficients: that of the highest order first; half of that of order 0 counts.

    Raises ShapeError. Source: EvaluateChebyshevPolynomial.
    """
    _check_numbers(x)
    first = second = third = zeros_like(x)
    for c in coefficients:
        first, second, third = add(sub(mul(x, first), second), full_like(x, float(c))), first, second
    return mul(full_like(x, 0.5), sub(first, third))


def _check_numbers(x: XlaOp) -> None:
    kind = x.shape.element_type
    if not (kind.is_floating or kind.is_complex):
        raise ShapeError(f"takes floating point or complex numbers, got {x.shape}", hint="use convert_element_type")
