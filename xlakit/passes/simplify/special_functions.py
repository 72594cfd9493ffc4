"""Replaces special functions that programs spell out operation by operation by formulas with fewer operations.

JAX and the converters of StableHLO have no operation for ``erfc`` and write formulas of Cephes in its place: each
element is computed for all ranges, and one result is selected. The rules recognize such a formula by its coefficients.
Unlike the rules of other tables they do not keep bits: the error bound of the function stays the same, which a test
measures.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from xlakit.data.primitive import PrimitiveType
from xlakit.ir.enums import ComparisonDirection
from xlakit.ir.instruction import Instruction
from xlakit.ops.elementwise.binary import Add, Divide, Multiply, Subtract
from xlakit.ops.elementwise.compare import Compare
from xlakit.ops.elementwise.elementary import Exponential
from xlakit.ops.elementwise.select import Select
from xlakit.ops.elementwise.unary import Abs, Negate
from xlakit.passes.core.matching import as_real, is_number, is_operation, is_zero, uniform
from xlakit.passes.core.rewriter import Rewriter
from xlakit.passes.core.rules import Rules

SPECIAL_FUNCTIONS = Rules("special-functions")
_rule = SPECIAL_FUNCTIONS.rule

# x exp(x^2) erfc(x) as polynomials of 1/x^2 below and above 2, as in Cephes' erfcf, the constant coefficient first.
_CEPHES_BELOW_2: Final = (
    0.563825965, -0.274112701, 0.340488, -0.494451523, 0.621000469, -0.582473278, 0.368742466, -0.138703942, 0.0232682,
)  # fmt: skip
_CEPHES_ABOVE_2: Final = (
    0.564189494, -0.282076746, 0.42184633, -1.01526523, 2.92101908, -7.49551868, 12.9772, -10.477664,
)  # fmt: skip
# (x + s) exp(x^2) erfc(x) as a polynomial of u = 1/(x + s), 1 <= x <= 9.5: beyond 9.42 erfc is less than any normal
# number. The shift is the multiple of 1/2 for which the least degree leaves a fifth of a unit in the last place.
_SHIFT: Final = 1.5
_ERFC_TAIL: Final = (
    0.5642198324203491, 0.8449249267578125, 1.013136386871338, 0.36508554220199585, 1.1563398838043213,
    -8.384742736816406, 11.151898384094238, -4.955362319946289,
)  # fmt: skip


@_rule("select")
def erfc_of_two_ranges(x: Instruction, make: Rewriter) -> Instruction | None:
    """erfc by P(1/x^2) for |x| < 2 and Q(1/x^2) beyond -> erfc by R(1/(|x| + s)), for |x| >= 1.

    This saves a division and a polynomial for each element; JAX's GELU takes 0.77 of the time. For |x| < 1, where the
    root selects another formula, and for NaN, results have the same bits; beyond, both formulas differ from the exact
    value by the effect of rounding x^2, and by at most 4.6 units in the last place.
    """
    if x.shape.element_type is not PrimitiveType.F32:
        return None
    near, small, beyond = x.operands
    if not _is_comparison(near, 1) or not isinstance(beyond.op, Select):
        return None
    size = near.operands[0]
    is_negative, reflected, tail = beyond.operands
    if not is_operation(size, Abs) or not isinstance(tail.op, Select) or not is_operation(reflected, Subtract):
        return None
    argument = size.operands[0]
    if not _is_comparison(is_negative, 0) or is_negative.operands[0] is not argument:
        return None
    if not is_number(uniform(reflected.operands[0]), 2) or reflected.operands[1] is not tail:
        return None
    underflows, nothing, product = tail.operands
    decay = _decay(product, argument, size)
    if decay is None or not is_zero(uniform(nothing)):
        return None
    u = make.apply("divide", make.full(1, x.shape), make.apply("add", size, make.full(_SHIFT, x.shape)))
    series = make.full(_ERFC_TAIL[-1], x.shape)
    for coefficient in reversed(_ERFC_TAIL[:-1]):
        series = make.apply("add", make.apply("multiply", u, series), make.full(coefficient, x.shape))
    shorter = make.apply("multiply", make.apply("multiply", decay, u), series)
    tail = make.on(tail, underflows, nothing, shorter)
    reflected = make.on(reflected, reflected.operands[0], tail)
    return make.on(x, near, small, make.on(beyond, is_negative, reflected, tail))


def _decay(product: Instruction, argument: Instruction, size: Instruction) -> Instruction | None:
    """The factor exp(-x^2) of ``product``, if that is exp(-x^2) * 1/|x| * Cephes' polynomials of 1/x^2; else None."""
    if not is_operation(product, Multiply) or not is_operation(product.operands[0], Multiply):
        return None
    (decay, inverse), polynomials = product.operands[0].operands, product.operands[1]
    if not is_operation(decay, Exponential) or not is_operation(decay.operands[0], Negate):
        return None
    square = decay.operands[0].operands[0]
    if not is_operation(square, Multiply) or any(o is not argument for o in square.operands):
        return None
    if not _is_inverse(inverse, size) or not isinstance(polynomials.op, Select):
        return None
    is_below, below, above = polynomials.operands
    if not _is_comparison(is_below, 2) or is_below.operands[0] is not size:
        return None
    for series, coefficients in ((below, _CEPHES_BELOW_2), (above, _CEPHES_ABOVE_2)):
        variable = _variable(series, coefficients)
        if variable is None or not _is_inverse(variable, square):
            return None
    return decay


def _is_comparison(x: Instruction, bound: int) -> bool:
    """Whether an instruction is ``y < bound`` of F32."""
    if not isinstance(x.op, Compare) or x.op.direction is not ComparisonDirection.LT:
        return False
    number = uniform(x.operands[1])
    return x.operands[0].shape.element_type is PrimitiveType.F32 and number is not None and as_real(number) == bound


def _is_inverse(x: Instruction, of: Instruction) -> bool:
    """Whether an instruction is 1 / ``of``."""
    return is_operation(x, Divide) and x.operands[1] is of and is_number(uniform(x.operands[0]), 1)


def _variable(series: Instruction, coefficients: Sequence[float]) -> Instruction | None:
    """The variable of a polynomial in Horner's form with these F32 coefficients; None if ``series`` is not that."""
    variable = None
    for number, coefficient in enumerate(coefficients[:-1]):
        if not is_operation(series, Add) or as_real(uniform(series.operands[1])) != float(np.float32(coefficient)):
            return None
        term = series.operands[0]
        if not is_operation(term, Multiply):
            return None
        # The innermost product has its constant on the right, as all others of numbers and constants.
        series, factor = term.operands if number < len(coefficients) - 2 else reversed(term.operands)
        variable = variable or factor
        if factor is not variable:
            return None
    return variable if as_real(uniform(series)) == float(np.float32(coefficients[-1])) else None
