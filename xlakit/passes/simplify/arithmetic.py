"""Arithmetic: rules for sums, products, negations and the like with a special operand, such as 0 or 1.

The laws hold bit by bit for floats, with -0, infinities and NaN (any NaN being equal to any other): both sides are
the same real number rounded once, or the same special value. Sums and products of floats are not regrouped.
"""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np

from xlakit.data.primitive import PrimitiveType
from xlakit.ir.enums import ComparisonDirection
from xlakit.ir.instruction import Instruction
from xlakit.ir.operation import Array, Op
from xlakit.ir.traits import Associative, Idempotent
from xlakit.ops.elementwise.binary import Add, And, Divide, Maximum, Minimum, Remainder
from xlakit.ops.elementwise.compare import Compare
from xlakit.ops.elementwise.unary import Negate, Sign
from xlakit.ops.shared.numerics import from_double, highest, lowest, to_integer, wrap
from xlakit.passes.core.matching import (
    as_integer,
    as_real,
    is_number,
    is_operation,
    is_zero,
    one_type,
    power_of_two,
    same_bits,
    uniform,
)
from xlakit.passes.core.rewriter import Rewriter
from xlakit.passes.core.rules import Rules

ARITHMETIC = Rules("arithmetic")
_rule = ARITHMETIC.rule

_LT, _NE = ComparisonDirection.LT, ComparisonDirection.NE


def _has_sign(kind: PrimitiveType) -> bool:
    """Whether a type has negative numbers, so that negation only flips the sign; f8e8m0fnu has none."""
    return kind is not PrimitiveType.F8E8M0FNU


@_rule(Associative)
def constant_on_the_right(x: Instruction, make: Rewriter) -> Instruction | None:
    """c + x -> x + c, so that other rules find constants on the right only.

    IEEE 754's sums and products commute, and so do XLA's maximum and minimum, which order -0 < 0 and propagate NaN.
    """
    left, right = x.operands
    if uniform(left) is None or uniform(right) is not None:
        return None
    return make.on(x, right, left)


# -- add and subtract ------------------------------------------------------------------------------


@_rule("add")
def add_zero(x: Instruction, make: Rewriter) -> Instruction | None:
    """x + (-0) -> x; of integers and PRED x + 0 -> x.

    -0 + (-0) is -0 and 0 + (-0) is 0; but -0 + 0 is 0, so +0 stays for floats. Complex numbers add part by part.
    """
    left, right = x.operands
    return left if is_zero(uniform(right), negative=True) else None


@_rule("subtract")
def subtract_zero(x: Instruction, make: Rewriter) -> Instruction | None:
    """x - 0 -> x.

    -0 - 0 is -0; but -0 - (-0) is 0, so -0 stays for floats. Complex numbers subtract part by part.
    """
    left, right = x.operands
    return left if is_zero(uniform(right), negative=False) else None


@_rule("subtract")
def subtract_from_zero(x: Instruction, make: Rewriter) -> Instruction | None:
    """-0 - x -> -x; of integers 0 - x -> -x.

    -0 - 0 is -0 and -0 - (-0) is 0, as negation has it; but 0 - 0 is 0, so +0 stays for floats.
    """
    left, right = x.operands
    if not one_type(x) or not is_zero(uniform(left), negative=True):
        return None
    return make.apply("negate", right)


@_rule("subtract")
def subtract_itself(x: Instruction, make: Rewriter) -> Instruction | None:
    """x - x -> 0, of integers. Of floats an infinity or NaN gives NaN."""
    left, right = x.operands
    if left is not right or not x.shape.element_type.is_integral:
        return None
    return make.full(0, x.shape)


@_rule("subtract")
def subtract_constant(x: Instruction, make: Rewriter) -> Instruction | None:
    """x - c -> x + (-c), of integers, which wrap; so that reassociation can combine constants."""
    left, right = x.operands
    number = uniform(right)
    if number is None or not x.shape.element_type.is_integral:
        return None
    return make.apply("add", left, make.full(wrap(-to_integer(number), number.dtype), right.shape))


@_rule("add")
def add_negated(x: Instruction, make: Rewriter) -> Instruction | None:
    """x + -y -> x - y, and -y + x -> x - y: IEEE 754 defines the difference as the sum with the negation."""
    left, right = x.operands
    if not one_type(x) or not _has_sign(x.shape.element_type):
        return None
    if is_operation(right, Negate):
        return make.apply("subtract", left, right.operands[0])
    if is_operation(left, Negate):
        return make.apply("subtract", right, left.operands[0])
    return None


# -- negate and abs --------------------------------------------------------------------------------


@_rule("negate")
def negate_twice(x: Instruction, make: Rewriter) -> Instruction | None:
    """-(-x) -> x: the sign is flipped twice; negation of integers modulo 2^n is its own inverse."""
    (inner,) = x.operands
    return inner.operands[0] if is_operation(inner, Negate) and _has_sign(x.shape.element_type) else None


@_rule("abs", of=Negate)
def abs_of_sign_change(x: Instruction, make: Rewriter) -> Instruction | None:
    """|-x| -> |x|: only the sign differs; the least integer is its own negation."""
    (inner,) = x.operands
    if not one_type(inner) or not _has_sign(inner.shape.element_type):
        return None
    return make.on(x, inner.operands[0])


# -- multiply --------------------------------------------------------------------------------------


@_rule("multiply", "divide")
def multiply_by_one(x: Instruction, make: Rewriter) -> Instruction | None:
    """x * 1 -> x and x / 1 -> x, of real numbers: exact. A complex product also adds 0 * x, NaN for infinite x."""
    left, right = x.operands
    return left if is_number(uniform(right), 1) else None


@_rule("multiply")
def multiply_by_zero(x: Instruction, make: Rewriter) -> Instruction | None:
    """x * 0 -> 0, of integers and PRED. Of floats infinity * 0 is NaN, and -1 * 0 is -0."""
    right = x.operands[1]
    return right if as_integer(uniform(right)) == 0 else None


@_rule("multiply", "divide")
def multiply_by_minus_one(x: Instruction, make: Rewriter) -> Instruction | None:
    """x * -1 -> -x and x / -1 -> -x, of real numbers: exact; the least integer is its own negation in both."""
    left, right = x.operands
    if not one_type(x) or not is_number(uniform(right), -1) or not _has_sign(x.shape.element_type):
        return None
    return make.apply("negate", left)


@_rule("multiply", "divide")
def negated_by_constant(x: Instruction, make: Rewriter) -> Instruction | None:
    """-x * c -> x * -c, and -x / c -> x / -c, of floats: the sign of the result is the same."""
    left, right = x.operands
    kind = x.shape.element_type
    number = uniform(right)
    if number is None or not kind.is_floating or not _has_sign(kind):
        return None
    if not one_type(x) or not is_operation(left, Negate):
        return None
    return make.on(x, left.operands[0], make.full(np.negative(number), right.shape))


@_rule("multiply")
def multiply_by_power_of_two(x: Instruction, make: Rewriter) -> Instruction | None:
    """x * 2^k -> x shifted left by k, of integers: both drop the bits above the width."""
    left, right = x.operands
    k = power_of_two(uniform(right))
    return None if k is None else make.apply("shift-left", left, make.full(k, right.shape))


# -- divide and remainder --------------------------------------------------------------------------


@_rule("divide")
def divide_by_power_of_two(x: Instruction, make: Rewriter) -> Instruction | None:
    """x / 2^k -> x * 2^-k, of floats, if 2^-k is a normal number: both round the same real number once.

    Unsigned integers: x / 2^k -> x shifted right by k.
    """
    left, right = x.operands
    kind = x.shape.element_type
    number = uniform(right)
    if number is None or not one_type(x):
        return None
    if kind.is_unsigned:
        k = power_of_two(number)
        return None if k is None else make.apply("shift-right-logical", left, make.full(k, right.shape))
    inverse = _exact_inverse(number)
    return None if inverse is None else make.apply("multiply", left, make.full(inverse, right.shape))


def _exact_inverse(number: Array) -> Array | None:
    """1 / number if both are powers of two and normal numbers of the type; else None."""
    value = as_real(number)
    if value is None or value == 0 or not math.isfinite(value) or abs(math.frexp(value)[0]) != 0.5:
        return None
    inverse = from_double(np.asarray(1 / value), number.dtype)
    # A processor that flushes subnormal numbers would take a subnormal one for 0.
    smallest = float(ml_dtypes.finfo(number.dtype).smallest_normal)
    return inverse if as_real(inverse) == 1 / value and min(abs(value), abs(1 / value)) >= smallest else None


@_rule("remainder")
def remainder_by_one(x: Instruction, make: Rewriter) -> Instruction | None:
    """x % 1 -> 0, of integers. Of floats it is the fraction."""
    return make.full(0, x.shape) if as_integer(uniform(x.operands[1])) == 1 else None


@_rule("remainder")
def remainder_by_power_of_two(x: Instruction, make: Rewriter) -> Instruction | None:
    """x % 2^k -> x and 2^k - 1, of unsigned integers. Signed remainders have the sign of x."""
    left, right = x.operands
    k = power_of_two(uniform(right))
    if k is None or not x.shape.element_type.is_unsigned:
        return None
    return make.apply("and", left, make.full((1 << k) - 1, right.shape))


@_rule("select")
def floor_remainder_by_power_of_two(x: Instruction, make: Rewriter) -> Instruction | None:
    """select(r < 0 and r != 0, r + 2^k, r) with r = y % 2^k -> y and 2^k - 1, of signed integers: the remainder of
    Python and of jnp.remainder, which has the sign of the divisor.
    """
    chooser, more, rest = x.operands
    k = _power_of(rest, Remainder)
    if k is None or not isinstance(more.op, Add) or more.operands[0] is not rest:
        return None
    if power_of_two(uniform(more.operands[1])) != k or not isinstance(chooser.op, And):
        return None
    if {_direction_to(rest, 0, condition) for condition in chooser.operands} != {_LT, _NE}:
        return None
    y = rest.operands[0]
    return make.apply("and", y, make.full((1 << k) - 1, y.shape))


@_rule("select")
def floor_divide_by_power_of_two(x: Instruction, make: Rewriter) -> Instruction | None:
    """select(sign(y) != 1 and y % 2^k != 0, y / 2^k - 1, y / 2^k) -> y shifted right by k with its sign, of signed
    integers: the quotient of Python and of jnp.floor_divide, which is rounded down.
    """
    chooser, less, quotient = x.operands
    k = _power_of(quotient, Divide)
    if k is None or not isinstance(less.op, Add) or less.operands[0] is not quotient:
        return None
    if as_integer(uniform(less.operands[1])) != -1 or not isinstance(chooser.op, And):
        return None
    y = quotient.operands[0]
    of_sign, of_rest = (c.operands[0] if isinstance(c.op, Compare) else None for c in chooser.operands)
    if of_sign is None or of_rest is None or not isinstance(of_sign.op, Sign) or of_sign.operands[0] is not y:
        return None
    if _power_of(of_rest, Remainder) != k or of_rest.operands[0] is not y:
        return None
    if (
        _direction_to(of_sign, 1, chooser.operands[0]) is not _NE
        or _direction_to(of_rest, 0, chooser.operands[1]) is not _NE
    ):
        return None
    return make.apply("shift-right-arithmetic", y, make.full(k, y.shape))


def _power_of(x: Instruction, kind: type[Op]) -> int | None:
    """k where an instruction is the quotient or the remainder of signed integers by 2^k, k > 0; else None."""
    if not isinstance(x.op, kind) or not x.shape.element_type.is_signed:
        return None
    return power_of_two(uniform(x.operands[1]))


def _direction_to(x: Instruction, number: int, condition: Instruction) -> ComparisonDirection | None:
    """The direction of a comparison of integers ``x`` with a number; None for other conditions."""
    if not isinstance(condition.op, Compare) or condition.operands[0] is not x:
        return None
    return condition.op.direction if as_integer(uniform(condition.operands[1])) == number else None


# -- power -----------------------------------------------------------------------------------------


@_rule("power")
def power_of_small_exponent(x: Instruction, make: Rewriter) -> Instruction | None:
    """x^1 -> x, x^0 -> 1, x^2 -> x * x, x^-1 -> 1 / x, of floats; of integers x^3 and x^4 are products, too.

    NaN^0 is 1 by XLA's rule; (-0)^2 is 0 and (-0)^-1 is -infinity, as x * x and 1 / x are, which round once.
    x * x * x of floats would round twice; x^0.5 is no sqrt: of -0 it is 0, of -infinity infinity, not -0 and NaN.
    """
    base, exponent = x.operands
    kind = x.shape.element_type
    number = uniform(exponent)
    if number is None or not one_type(x):
        return None
    value = as_integer(number) if kind.is_integral else as_real(number)
    if value == 0:
        return make.full(1, x.shape)
    if value == 1:
        return base
    if value == 2:
        return make.apply("multiply", base, base)
    if value == -1 and kind.is_floating:
        return make.apply("divide", make.full(1, x.shape), base)
    if kind.is_integral and value in (3, 4):
        square = make.apply("multiply", base, base)
        return make.apply("multiply", square, base if value == 3 else square)
    return None


# -- maximum and minimum ---------------------------------------------------------------------------


@_rule(Idempotent)
def combined_with_itself(x: Instruction, make: Rewriter) -> Instruction | None:
    """max(x, x) -> x, and so for min, and, or: these operations are idempotent."""
    left, right = x.operands
    return left if left is right else None


@_rule("maximum", "minimum")
def min_max_with_identity(x: Instruction, make: Rewriter) -> Instruction | None:
    """max(x, lowest) -> x, min(x, highest) -> x; the lowest float is -infinity. If x is NaN, both sides are NaN."""
    left, right = x.operands
    number = uniform(right)
    bound = (lowest if isinstance(x.op, Maximum) else highest)(right.shape.element_type)
    return left if number is not None and bound is not None and same_bits(number, bound) else None


@_rule("maximum", "minimum")
def min_max_with_absorbing_bound(x: Instruction, make: Rewriter) -> Instruction | None:
    """max(x, highest) -> highest, min(x, lowest) -> lowest, of integers and PRED. Of floats a NaN x gives NaN."""
    right = x.operands[1]
    number = uniform(right)
    kind = x.shape.element_type
    if number is None or kind.is_floating or kind.is_complex:
        return None
    bound = (highest if isinstance(x.op, Maximum) else lowest)(kind)
    return right if bound is not None and same_bits(number, bound) else None


@_rule(Associative)
def reassociate_constants(x: Instruction, make: Rewriter) -> Instruction | None:
    """(x + c) + d -> x + (c + d), of integers and PRED; of floats for maximum and minimum only, which do not round."""
    left, right = x.operands
    kind = x.shape.element_type
    if uniform(right) is None or type(left.op) is not type(x.op) or not (one_type(x) and one_type(left)):
        return None
    exact = kind.is_integral or kind is PrimitiveType.PRED
    if not exact and not (kind.is_floating and isinstance(x.op, (Maximum, Minimum))):
        return None
    inner, constant = left.operands
    if uniform(constant) is None:
        return None
    return make.on(x, inner, make.on(x, constant, right))
