"""Replaces special functions that programs spell out operation by operation by formulas with fewer operations.

JAX and the converters of StableHLO have no operation for ``erfc`` and write formulas of Cephes in its place: each
element is computed for all ranges, and one result is selected. A rule recognizes such a formula by its coefficients.
Unlike the rules of other tables they do not keep bits: the error bound of the function is no greater, which a test
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
from xlakit.ops.elementwise.elementary import Exponential, Tanh
from xlakit.ops.elementwise.select import Select
from xlakit.ops.elementwise.unary import Abs, Negate
from xlakit.passes.core.matching import as_real, is_number, is_operation, is_zero, one_type, uniform
from xlakit.passes.core.rewriter import Rewriter
from xlakit.passes.core.rules import Rules

SPECIAL_FUNCTIONS = Rules("special-functions")
_rule = SPECIAL_FUNCTIONS.rule

_LONG: Final = (PrimitiveType.F32, PrimitiveType.F64)

# x exp(x^2) erfc(x) as polynomials of 1/x^2 below and above 2, as in Cephes' erfcf, the constant coefficient first.
_CEPHES_BELOW_2: Final = (
    0.563825965, -0.274112701, 0.340488, -0.494451523, 0.621000469, -0.582473278, 0.368742466, -0.138703942, 0.0232682,
)  # fmt: skip
_CEPHES_ABOVE_2: Final = (
    0.564189494, -0.282076746, 0.42184633, -1.01526523, 2.92101908, -7.49551868, 12.9772, -10.477664,
)  # fmt: skip
# erf(x) / x as a polynomial of x^2 below 1, as in Cephes' erff.
_CEPHES_ERF: Final = (
    1.12837911, -0.37612626, 0.112835854, -0.0268538129, 0.00518832775, -0.000801019371, 7.85386146e-05,
)  # fmt: skip
# (x + s) exp(x^2) erfc(x) as a polynomial of u = 1/(x + s), 0 <= x <= 9.6: beyond 9.42 erfc is less than any normal
# number. Remez' polynomial of least relative error, with coefficients rounded in turn (``fuzz.minimax.rounded``). The
# shift is the multiple of 1/16 with the least errors of those at which erfc(0) is 1, with fused operations and without.
_SHIFT: Final = 1.75
# Below this, exp has no normal number of F32.
_LEAST_EXPONENT: Final = -87.34
_ERFC: Final = (
    0.5641953349113464, 0.987244188785553, 1.443217396736145, 1.627640962600708, -0.529285728931427, 5.104477882385254,
    -34.47626495361328, 65.01464080810547, -54.12510299682617, 17.598756790161133,
)  # fmt: skip


@_rule("multiply")
def half_of_tanh_plus_one(x: Instruction, make: Rewriter) -> Instruction | None:
    """0.5 * (tanh(y) + 1) -> logistic(2y), in F32 and F64, where nothing else uses tanh(y); and 2 (a c) is a (2c).

    JAX's GELU by tanh takes 0.7 of the operations. tanh(y) + 1 loses all bits of small results, those for y < 0, which
    the logistic function does not. Both give 0 and 1 for infinities, and NaN for NaN. Doubling is exact, and where it
    overflows both results are 0 or 1.
    """
    total, half = x.operands
    if x.shape.element_type not in _LONG or as_real(uniform(half)) != 0.5:
        return None
    if not is_operation(total, Add) or not is_number(uniform(total.operands[1]), 1) or not one_type(total):
        return None
    tangent = total.operands[0]
    if not is_operation(tangent, Tanh) or not one_type(tangent) or not one_type(x):
        return None
    if make.uses(total) > 1 or make.uses(tangent) > 1:
        return None
    y = tangent.operands[0]
    factor = as_real(uniform(y.operands[1])) if is_operation(y, Multiply) and one_type(y) else None
    if factor is not None and 1e-30 < abs(factor) < 1e30:
        twice = make.apply("multiply", y.operands[0], make.full(2 * factor, y.shape))
    else:
        twice = make.apply("add", y, y)
    return make.apply("logistic", twice)


@_rule("divide")
def inverse_of_one_and_exponential(x: Instruction, make: Rewriter) -> Instruction | None:
    """1 / (exp(-y) + 1) -> logistic(y), in F32 and F64, where nothing else uses the exponential function or the sum.

    That is JAX's sigmoid for a CPU. The logistic function takes three quarters of the operations, and where
    exp(-y) overflows, its result is not 0 before it rounds to that. Both give 0 and 1 for infinities, and NaN for NaN.
    In narrower types, results would be rounded once instead of three times, and differ by more than the last bit.
    """
    one, total = x.operands
    if x.shape.element_type not in _LONG or not is_number(uniform(one), 1) or not one_type(x):
        return None
    if not is_operation(total, Add) or not is_number(uniform(total.operands[1]), 1) or not one_type(total):
        return None
    power = total.operands[0]
    if not is_operation(power, Exponential) or not is_operation(power.operands[0], Negate):
        return None
    if not one_type(power) or not one_type(power.operands[0]) or make.uses(total) > 1 or make.uses(power) > 1:
        return None
    return make.apply("logistic", power.operands[0].operands[0])


@_rule("select")
def erfc_of_three_ranges(x: Instruction, make: Rewriter) -> Instruction | None:
    """1 - erf(x) for |x| < 1, P(1/x^2) for |x| < 2 and Q(1/x^2) beyond -> exp(-x^2) R(1/(|x| + s)), 2 less it if x < 0.

    This saves a division, two polynomials and four selections for each element. Results for x > 0 differ from the exact
    value by the effect of rounding x^2, and by at most 5.5 units in the last place, where the other formula has up to
    7.6; those for x < 0 by at most 3. NaN stays NaN, infinities give 0 and 2, and zeros 1.
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
    if not _is_complement_of_erf(small, argument):
        return None
    is_beyond, nothing, product = tail.operands
    decay = _decay(product, argument, size)
    if decay is None or not is_zero(uniform(nothing)) or not _is_below(is_beyond, decay.operands[0]):
        return None
    u = make.apply("divide", make.full(1, x.shape), make.apply("add", size, make.full(_SHIFT, x.shape)))
    series = make.full(_ERFC[-1], x.shape)
    for coefficient in reversed(_ERFC[:-1]):
        series = make.apply("add", make.apply("multiply", u, series), make.full(coefficient, x.shape))
    shorter = make.apply("multiply", make.apply("multiply", decay, u), series)
    return make.on(beyond, is_negative, make.on(reflected, reflected.operands[0], shorter), shorter)


def _is_complement_of_erf(x: Instruction, argument: Instruction) -> bool:
    """Whether an instruction is 1 - ``argument`` * Cephes' polynomial of its square."""
    if not is_operation(x, Subtract) or not is_number(uniform(x.operands[0]), 1):
        return False
    product = x.operands[1]
    if not is_operation(product, Multiply) or product.operands[0] is not argument:
        return False
    square = _variable(product.operands[1], _CEPHES_ERF)
    return square is not None and is_operation(square, Multiply) and all(o is argument for o in square.operands)


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


def _is_below(x: Instruction, exponent: Instruction) -> bool:
    """Whether an instruction is ``exponent < c`` of F32 with a number c for which exp(c) is no normal number."""
    if not isinstance(x.op, Compare) or x.op.direction is not ComparisonDirection.LT or x.operands[0] is not exponent:
        return False
    bound = as_real(uniform(x.operands[1]))
    return bound is not None and bound <= _LEAST_EXPONENT


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
