"""Logic: rules for and, or, not, comparisons and selects. No result here is rounded."""

from __future__ import annotations

import dataclasses
import math
from functools import cache

import numpy as np

from xlakit.data.primitive import PrimitiveType
from xlakit.ir.enums import ComparisonDirection, ComparisonType
from xlakit.ir.instruction import Instruction
from xlakit.ops.elementwise.compare import Compare
from xlakit.ops.elementwise.select import Select
from xlakit.ops.elementwise.unary import Abs, Not
from xlakit.ops.shared.numerics import highest, lowest
from xlakit.passes.core.matching import (
    as_integer,
    as_real,
    is_all_ones,
    same_bits,
    same_value,
    uniform,
)
from xlakit.passes.core.rewriter import Rewriter
from xlakit.passes.core.rules import Rules

LOGIC = Rules("logic")
_rule = LOGIC.rule

_INVERSE = {
    ComparisonDirection.EQ: ComparisonDirection.NE,
    ComparisonDirection.NE: ComparisonDirection.EQ,
    ComparisonDirection.LT: ComparisonDirection.GE,
    ComparisonDirection.GE: ComparisonDirection.LT,
    ComparisonDirection.GT: ComparisonDirection.LE,
    ComparisonDirection.LE: ComparisonDirection.GT,
}
_SWAPPED_SIDES = {
    ComparisonDirection.LT: ComparisonDirection.GT,
    ComparisonDirection.GT: ComparisonDirection.LT,
    ComparisonDirection.LE: ComparisonDirection.GE,
    ComparisonDirection.GE: ComparisonDirection.LE,
}
# The least normal number of F32.
_LEAST_F32 = 2.0**-126
_HOLDS_OF_EQUALS = (ComparisonDirection.EQ, ComparisonDirection.GE, ComparisonDirection.LE)


# -- bits ------------------------------------------------------------------------------------------


@_rule("and")
def and_constant(x: Instruction, make: Rewriter) -> Instruction | None:
    """x and 0 -> 0, x and all ones -> x."""
    left, right = x.operands
    number = uniform(right)
    if as_integer(number) == 0:
        return right
    return left if is_all_ones(number) else None


@_rule("or")
def or_constant(x: Instruction, make: Rewriter) -> Instruction | None:
    """x or 0 -> x, x or all ones -> all ones."""
    left, right = x.operands
    number = uniform(right)
    if as_integer(number) == 0:
        return left
    return right if is_all_ones(number) else None


@_rule("not", of=Not)
def not_twice(x: Instruction, make: Rewriter) -> Instruction | None:
    """not not x -> x."""
    return x.operands[0].operands[0]


# -- comparisons -----------------------------------------------------------------------------------


def _is_exactly_ordered(x: Instruction) -> bool:
    """Whether exactly one of <, = and > holds between any two compared values: no NaN, or NaN in the total order."""
    kind = x.operands[0].shape.element_type
    return kind.is_integral or kind is PrimitiveType.PRED or x.op_as(Compare).type is ComparisonType.TOTALORDER


@_rule("compare")
def compare_with_itself(x: Instruction, make: Rewriter) -> Instruction | None:
    """x = x, x <= x -> true, x != x -> false for types without NaN; x < x -> false always, NaN included."""
    left, right = x.operands
    if left is not right:
        return None
    direction = x.op_as(Compare).direction
    if _is_exactly_ordered(x):
        return make.full(direction in _HOLDS_OF_EQUALS, x.shape)
    return make.full(False, x.shape) if direction in (ComparisonDirection.LT, ComparisonDirection.GT) else None


@_rule("compare")
def compare_constant_on_the_right(x: Instruction, make: Rewriter) -> Instruction | None:
    """c < x -> x > c, so that other rules have one form to match."""
    left, right = x.operands
    if uniform(left) is None or uniform(right) is not None:
        return None
    op = x.op_as(Compare)
    return make.add(dataclasses.replace(op, direction=_SWAPPED_SIDES.get(op.direction, op.direction)), right, left)


@_rule("compare")
def compare_with_limit(x: Instruction, make: Rewriter) -> Instruction | None:
    """x < lowest -> false, x >= lowest -> true, x > highest -> false, x <= highest -> true, of integers and PRED."""
    left, right = x.operands
    kind = left.shape.element_type
    number = uniform(right)
    if number is None or not (kind.is_integral or kind is PrimitiveType.PRED):
        return None
    direction = x.op_as(Compare).direction
    for bound, never, always in (
        (lowest(kind), ComparisonDirection.LT, ComparisonDirection.GE),
        (highest(kind), ComparisonDirection.GT, ComparisonDirection.LE),
    ):
        if bound is not None and same_bits(bound, number) and direction in (never, always):
            return make.full(direction is always, x.shape)
    return None


@_rule("compare")
def compare_pred_with_constant(x: Instruction, make: Rewriter) -> Instruction | None:
    """x = true -> x, x != false -> x, x = false -> not x, x != true -> not x, of PRED."""
    left, right = x.operands
    number = uniform(right)
    direction = x.op_as(Compare).direction
    if number is None or left.shape.element_type is not PrimitiveType.PRED:
        return None
    if direction not in (ComparisonDirection.EQ, ComparisonDirection.NE):
        return None
    return left if bool(number) == (direction is ComparisonDirection.EQ) else make.apply("not", left)


@_rule("compare", of=Abs)
def compare_complex_magnitude(x: Instruction, make: Rewriter) -> Instruction | None:
    """|z| < c -> Re(z)^2 + Im(z)^2 < t in F64, z of C64, without a square root; and so for <=, > and >=.

    |z| is the root of that sum, rounded to F64 and then to F32. Both roundings are monotone, so the sums whose root is
    less than c are those below one number t, which a binary search finds. The squares are exact, as they are for |z|.
    With a NaN the sum is NaN and no comparison holds, but |z| of an infinity and a NaN is infinite, so > and >= also
    test the parts for infinity.
    """
    magnitude, bound = x.operands
    if make.uses(magnitude) > 1:
        return None
    (z,) = magnitude.operands
    number, op = as_real(uniform(bound)), x.op_as(Compare)
    # Whether a subnormal bound is zero depends on the mode of the processor.
    if z.shape.element_type is not PrimitiveType.C64 or number is None or 0 < abs(number) < _LEAST_F32:
        return None
    if op.type is ComparisonType.TOTALORDER or op.direction not in _SWAPPED_SIDES or not math.isfinite(number):
        return None
    below = op.direction in (ComparisonDirection.LT, ComparisonDirection.GE)
    limit = _least_square_sum(number, reaches=below)
    parts = [make.apply("real", z), make.apply("imag", z)]
    real, imag = (make.convert(part, PrimitiveType.F64) for part in parts)
    total = make.apply("add", make.apply("multiply", real, real), make.apply("multiply", imag, imag))
    limits = make.full(limit, total.shape)
    if op.direction in (ComparisonDirection.LT, ComparisonDirection.LE):
        return make.compare(total, limits, "LT")
    comparison = make.compare(total, limits, "GE")
    for part in parts:
        infinite = make.compare(make.apply("abs", part), make.full(math.inf, part.shape), "EQ")
        comparison = make.apply("or", comparison, infinite)
    return comparison


@cache
def _least_square_sum(bound: float, *, reaches: bool) -> float:
    """The least F64 whose square root, rounded to F64 and to F32, exceeds, or ``reaches``, the bound."""

    def is_enough(bits: int) -> bool:
        with np.errstate(over="ignore"):
            root = np.float32(np.sqrt(np.int64(bits).view(np.float64)))
        return bool(root >= np.float32(bound) if reaches else root > np.float32(bound))

    # Positive floats have the order of their bits as integers.
    few, enough = -1, int(np.float64(math.inf).view(np.int64))
    while enough - few > 1:
        middle = (few + enough) // 2
        few, enough = (few, middle) if is_enough(middle) else (middle, enough)
    return float(np.int64(enough).view(np.float64))


@_rule("not", of=Compare)
def not_comparison(x: Instruction, make: Rewriter) -> Instruction | None:
    """not (x = y) -> x != y, and back, NaN included; not (x < y) -> x >= y for types without NaN."""
    (inner,) = x.operands
    op = inner.op_as(Compare)
    if op.direction not in (ComparisonDirection.EQ, ComparisonDirection.NE) and not _is_exactly_ordered(inner):
        return None
    return make.add(dataclasses.replace(op, direction=_INVERSE[op.direction]), *inner.operands)


# -- selects ---------------------------------------------------------------------------------------


@_rule("select")
def select_same(x: Instruction, make: Rewriter) -> Instruction | None:
    """select(p, x, x) -> x."""
    _, left, right = x.operands
    return left if same_value(left, right) else None


@_rule("select")
def select_constant(x: Instruction, make: Rewriter) -> Instruction | None:
    """select(true, x, y) -> x, select(false, x, y) -> y."""
    chooser, left, right = x.operands
    number = uniform(chooser)
    if number is None:
        return None
    return left if bool(number) else right


@_rule("select", of=Not)
def select_by_not(x: Instruction, make: Rewriter) -> Instruction | None:
    """select(not p, x, y) -> select(p, y, x)."""
    chooser, left, right = x.operands
    return make.on(x, chooser.operands[0], right, left)


@_rule("select")
def select_again(x: Instruction, make: Rewriter) -> Instruction | None:
    """select(p, select(p, x, y), z) -> select(p, x, z), and the same for z."""
    chooser, left, right = x.operands
    if not _same_types(x):
        return None
    if isinstance(left.op, Select) and left.operands[0] is chooser and _same_types(left):
        return make.on(x, chooser, left.operands[1], right)
    if isinstance(right.op, Select) and right.operands[0] is chooser and _same_types(right):
        return make.on(x, chooser, left, right.operands[2])
    return None


def _same_types(x: Instruction) -> bool:
    return all(o.shape.element_type is x.shape.element_type for o in x.operands[1:])


@_rule("select")
def select_of_pred(x: Instruction, make: Rewriter) -> Instruction | None:
    """select(p, true, false) -> p, select(p, false, true) -> not p, select(p, true, q) -> p or q,
    select(p, q, false) -> p and q.
    """
    chooser, left, right = x.operands
    if x.shape.element_type is not PrimitiveType.PRED or chooser.shape.dimensions != x.shape.dimensions:
        return None
    first, second = uniform(left), uniform(right)
    if first is not None and second is not None:
        return chooser if bool(first) else make.apply("not", chooser)
    if first is not None and bool(first):
        return make.apply("or", chooser, right)
    if second is not None and not bool(second):
        return make.apply("and", chooser, left)
    return None
