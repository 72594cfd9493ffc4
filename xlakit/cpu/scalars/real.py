"""Arithmetic on real elements: integers with XLA's special cases, floats with IEEE's."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import ml_dtypes
import numpy as np

from xlakit.cpu.llvm import F32, I1, Effort, Function, Value, integer
from xlakit.cpu.math import math_function
from xlakit.cpu.math.remainder import remainder as remainder_of_f32
from xlakit.cpu.scalars import division
from xlakit.data.primitive import PrimitiveType
from xlakit.ir.operation import Op
from xlakit.ops.data import Copy
from xlakit.ops.elementwise.binary import And, Maximum, Minimum, Or, Remainder
from xlakit.ops.elementwise.unary import (
    Abs,
    Ceil,
    CountLeadingZeros,
    Floor,
    Negate,
    PopulationCount,
    RoundNearestAfz,
    RoundNearestEven,
    Sign,
)

Binary = Callable[[Function, PrimitiveType, Value, Value], Value]
Unary = Callable[[Function, PrimitiveType, Value], Value]


def _is_bool(kind: PrimitiveType) -> bool:
    return kind is PrimitiveType.PRED


# -- integers ------------------------------------------------------------------------------------


def _remainder(fn: Function, kind: PrimitiveType, a: Value, b: Value) -> Value:
    if not kind.is_floating:
        return division.remainder(fn, kind, a, b)
    if kind is not PrimitiveType.F64:
        return remainder_of_f32(fn, a, b)
    return fn.call(fn.module.declare("fmod", a.type, [a.type, a.type]), a.type, a, b)


def _power(fn: Function, kind: PrimitiveType, a: Value, b: Value) -> Value:
    if kind.is_floating:
        return math_function(fn, "pow", a, b)
    one, zero = fn.constant(a.type, 1), fn.constant(a.type, 0)
    negative = b < 0 if kind.is_signed else fn.constant(I1, 0)
    if kind.is_signed:
        is_unit = a.eq(1) | a.eq(-1)
        base = fn.select(negative, fn.select(is_unit, a, zero), a)
        exponent = fn.select(negative, fn.select(is_unit, b & 1, one), b)
    else:
        base, exponent = a, b
    with fn.while_([one, base, exponent], lambda iteration: iteration.carried[2].ne(0)) as iteration:
        result, factor, left = iteration.carried
        odd = (left & 1).ne(0)
        iteration.next(fn.select(odd, result * factor, result), factor * factor, left >> 1)
    return iteration.results[0]


def _shift(opcode: str) -> Binary:
    def function(fn: Function, kind: PrimitiveType, a: Value, b: Value) -> Value:
        bits = kind.bit_width
        number = b.number
        # Random number generation has hundreds of constant shifts, which would take LLVM a while to simplify.
        if number is not None and 0 <= number < bits:
            return _moved(opcode, kind, a, b)
        is_in_range = b.compare("ult", bits)
        moved = _moved(opcode, kind, a, fn.select(is_in_range, b, fn.constant(b.type, 0)))
        if opcode != "ashr":
            outside = fn.constant(a.type, 0)
        elif kind.is_signed:
            outside = a.integer("ashr", a.type.bits - 1)
        else:
            outside = _unsigned_ashr(kind, a, fn.constant(a.type, bits - 1))
        return fn.select(is_in_range, moved, outside)

    return function


def _moved(opcode: str, kind: PrimitiveType, a: Value, amount: Value) -> Value:
    """A shift by less than the width."""
    if opcode == "ashr":
        return a.integer(opcode, amount) if kind.is_signed else _unsigned_ashr(kind, a, amount)
    if kind.bit_width < 8:
        # The unused upper bits of a small signed integer repeat its sign.
        a &= (1 << kind.bit_width) - 1
    return a.integer(opcode, amount)


def _unsigned_ashr(kind: PrimitiveType, a: Value, amount: Value) -> Value:
    spare = a.type.bits - kind.bit_width
    moved = (a << spare).integer("ashr", spare).integer("ashr", amount)
    return moved if not spare else moved & ((1 << kind.bit_width) - 1)


def _mulhi(fn: Function, kind: PrimitiveType, a: Value, b: Value) -> Value:
    wide = a.type.with_element(integer(2 * a.type.bits))
    extend = "sext" if kind.is_signed else "zext"
    product = a.cast(extend, wide) * b.cast(extend, wide)
    return (product >> kind.bit_width).cast("trunc", a.type)


# -- integers and floats ----------------------------------------------------------------------------------------


def _min_max(word: str) -> Binary:
    def function(fn: Function, kind: PrimitiveType, a: Value, b: Value) -> Value:
        if _is_bool(kind):
            return a | b if word == "max" else a & b
        if kind.is_floating and a.type.lanes == 1 and fn.effort is Effort.CODE:
            return _min_max_without_branch(fn, word, a, b)
        if kind.is_floating:
            # The greater one, with +0 over -0; NaN if an operand is NaN.
            return fn.intrinsic(f"llvm.{word}imum", a.type, a, b)
        letter = "s" if kind.is_signed else "u"
        return fn.intrinsic(f"llvm.{letter}{word}", a.type, a, b)

    return function


def _min_max_without_branch(fn: Function, word: str, a: Value, b: Value) -> Value:
    """The same for scalars in code that LLVM does not vectorize: it would branch on the sign, which is hard to predict.

    Each select is one instruction on x86, and gives its second operand if both are zeros or one is NaN. So the two
    selects differ only in these cases: of two zeros, the common bits are those of +0, and the united bits those of -0.
    """
    bits = a.type.with_element(integer(a.type.bits))
    first, second = (fn.select(x > y if word == "max" else x < y, x, y).bits_as(bits) for x, y in ((a, b), (b, a)))
    extremum = (first & second if word == "max" else first | second).bits_as(a.type)
    return fn.select(a.compare("uno", b), a + b, extremum)


def maximum(fn: Function, kind: PrimitiveType, a: Value, b: Value) -> Value:
    """The greater of two; NaN if one is NaN."""
    return _min_max("max")(fn, kind, a, b)


def minimum(fn: Function, kind: PrimitiveType, a: Value, b: Value) -> Value:
    """The lesser of two; NaN if one is NaN."""
    return _min_max("min")(fn, kind, a, b)


def _add(fn: Function, kind: PrimitiveType, a: Value, b: Value) -> Value:
    return a | b if _is_bool(kind) else a + b


def _multiply(fn: Function, kind: PrimitiveType, a: Value, b: Value) -> Value:
    return a & b if _is_bool(kind) else a * b


BINARY: dict[str, Binary] = {
    "add": _add,
    "subtract": lambda fn, kind, a, b: a - b,
    "multiply": _multiply,
    "divide": lambda fn, kind, a, b: a / b if kind.is_floating else division.divide(fn, kind, a, b),
    "remainder": _remainder,
    "maximum": maximum,
    "minimum": minimum,
    "power": _power,
    "atan2": lambda fn, kind, a, b: math_function(fn, "atan2", a, b),
    "and": lambda fn, kind, a, b: a & b,
    "or": lambda fn, kind, a, b: a | b,
    "xor": lambda fn, kind, a, b: a ^ b,
    "shift-left": _shift("shl"),
    "shift-right-logical": _shift("lshr"),
    "shift-right-arithmetic": _shift("ashr"),
    "mulhi": _mulhi,
}
# Operations whose result is exact in the type of their operands, without rounding or wrapping.
_EXACT = (
    *(Maximum, Minimum, And, Or, Abs, Negate, Sign, Floor, Ceil, RoundNearestAfz, RoundNearestEven),
    *(PopulationCount, CountLeadingZeros, Remainder, Copy),
)
# Of these, operations that give no zero with a sign, and nothing negative, of operands that have none.
_WITHOUT_SIGNS = (Maximum, Minimum, And, Or, Abs, Copy)
# Of these, operations whose results may be larger than every number of a type: 16 where 15.5 is the largest.
_OF_WHOLE_RESULT = (Floor, Ceil, RoundNearestAfz, RoundNearestEven)
# Of these, operations that wrap in integers of fewer than 8 bits, computed in a byte: the least has no negative.
_LARGER = (Abs, Negate, PopulationCount, CountLeadingZeros)


def is_exact(op: Op, kind: PrimitiveType) -> bool:
    """Whether an operation's result is exact in its type, so that it needs no rounding and no wrapping."""
    if kind.is_floating and kind.bit_width == 8 and not _has_zeros_of_both_signs(kind):
        return isinstance(op, _WITHOUT_SIGNS)
    if isinstance(op, _OF_WHOLE_RESULT) and not _has_a_whole_largest_number(kind):
        return False
    # The remainder of a division by zero.
    if isinstance(op, Remainder) and kind.is_floating and not _has_nan(kind):
        return False
    return isinstance(op, _EXACT) and not (isinstance(op, _LARGER) and kind.is_integral and kind.bit_width < 8)


@cache
def _has_zeros_of_both_signs(kind: PrimitiveType) -> bool:
    zero = np.asarray(-0.0, kind.dtype).astype(np.float64)
    return bool(zero == 0 and np.signbit(zero))


@cache
def _has_nan(kind: PrimitiveType) -> bool:
    return bool(np.isnan(np.asarray(np.nan, kind.dtype).astype(np.float64)))


@cache
def _has_a_whole_largest_number(kind: PrimitiveType) -> bool:
    return float(ml_dtypes.finfo(kind.dtype).max).is_integer()


# -- unary --------------------------------------------------------------------------------------


def _abs(fn: Function, kind: PrimitiveType, a: Value) -> Value:
    if kind.is_floating:
        return fn.intrinsic("llvm.fabs", a.type, a)
    return fn.select(a < 0, -a, a) if kind.is_signed else a


def _sign(fn: Function, kind: PrimitiveType, a: Value) -> Value:
    one = fn.constant(a.type, 1)
    if kind.is_floating:
        size = fn.intrinsic("llvm.copysign", a.type, one, a)
        # NaN stays, and so do zeros, with their signs; the sum makes zero of a subnormal number that counts as zero.
        return fn.select(a.compare("one", 0.0), size, a + a)
    zero = fn.constant(a.type, 0)
    above = fn.select(a.ne(0), one, zero)
    return fn.select(a < 0, fn.constant(a.type, -1), above) if kind.is_signed else above


def _intrinsic(name: str) -> Unary:
    return lambda fn, kind, a: fn.intrinsic(name, a.type, a) if kind.is_floating else a


def _round_away(fn: Function, kind: PrimitiveType, a: Value) -> Value:
    # Truncating |a| + (the greatest float below 1/2) is right for all |a| except integers beyond the mantissa.
    half = fn.constant(a.type, 0.49999997019767761 if a.type.element is F32 else 0.49999999999999994)
    size = fn.intrinsic("llvm.fabs", a.type, a)
    near = fn.intrinsic("llvm.trunc", a.type, size + half)
    limit = fn.constant(a.type, float(1 << (23 if a.type.element is F32 else 52)))
    return fn.intrinsic("llvm.copysign", a.type, fn.select(size.compare("olt", limit), near, size), a)


def _count_leading_zeros(fn: Function, kind: PrimitiveType, a: Value) -> Value:
    bits = kind.bit_width
    plain = a & ((1 << bits) - 1) if bits < 8 else a
    return fn.intrinsic("llvm.ctlz", a.type, plain, fn.constant(I1, 0)) - (a.type.bits - bits)


def _population_count(fn: Function, kind: PrimitiveType, a: Value) -> Value:
    plain = a & ((1 << kind.bit_width) - 1) if kind.bit_width < 8 else a
    return fn.intrinsic("llvm.ctpop", a.type, plain)


def _function(name: str) -> Unary:
    return lambda fn, kind, a: math_function(fn, name, a, kind=kind)


UNARY: dict[str, Unary] = {
    "abs": _abs,
    "negate": lambda fn, kind, a: -a,
    "sign": _sign,
    "not": lambda fn, kind, a: ~a,
    "popcnt": _population_count,
    "count-leading-zeros": _count_leading_zeros,
    "floor": _intrinsic("llvm.floor"),
    "ceil": _intrinsic("llvm.ceil"),
    "round-nearest-even": _intrinsic("llvm.roundeven"),
    "round-nearest-afz": _round_away,
    "copy": lambda fn, kind, a: a,
    "sqrt": _function("sqrt"),
    "exponential": _function("exp"),
    "exponential-minus-one": _function("expm1"),
    "log": _function("log"),
    "log-plus-one": _function("log1p"),
    "cosine": _function("cos"),
    "sine": _function("sin"),
    "logistic": _function("logistic"),
} | {
    name: _function(name)
    for name in (
        "rsqrt",
        "cbrt",
        "tan",
        "asin",
        "acos",
        "atan",
        "sinh",
        "cosh",
        "tanh",
        "asinh",
        "acosh",
        "atanh",
        "erf",
    )
}


def is_finite(fn: Function, a: Value) -> Value:
    """Whether a float is neither infinite nor NaN."""
    return fn.intrinsic("llvm.fabs", a.type, a).compare("olt", fn.constant(a.type, float("inf")))


def total_order_key(fn: Function, a: Value) -> Value:
    """A signed integer in the total order of floats, or of their bits: -NaN < -inf < ... < -0 < 0 < ... < NaN."""
    bits = a.bits_as(a.type.with_element(integer(a.type.bits)))
    flipped = bits ^ ((1 << (a.type.bits - 1)) - 1)
    return fn.select(bits < 0, flipped, bits)
