"""Building blocks of elementary functions: formats, exact operations, polynomials.

Code of single numbers that may be inlined is free of branches, so that LLVM can vectorize a loop around it. That of
vectors is in loops that are not vectorized again, and may have some: see :func:`unless_any`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xlakit.cpu.llvm.promises import NO_INLINE
from xlakit.cpu.llvm.types import F32, F64, I32, I64, Type, integer
from xlakit.cpu.llvm.values import Operand, Value
from xlakit.dataclass import dataclass
from xlakit.errors import InternalError
from xlakit.target import fuses, has_feature


@dataclass(frozen=True, slots=True)
class Format:
    """A binary floating point format and the integers of its width."""

    float: Type
    int: Type
    # The bits of the fraction, and the bias of exponents.
    fraction: int
    bias: int

    @property
    def rounder(self) -> float:
        """Added to a number of moderate size, this rounds it to an integer, which is in the low bits of the sum."""
        return 1.5 * 2.0**self.fraction

    @property
    def sign_bit(self) -> int:
        """The sign bit, as the (negative) integer of the format's width."""
        return -(1 << (self.int.bits - 1))

    @property
    def fraction_mask(self) -> int:
        """The mask of the fraction's bits."""
        return (1 << self.fraction) - 1

    @property
    def tiniest_normal(self) -> float:
        """The least positive normal number."""
        return 2.0 ** (1 - self.bias)


SINGLE = Format(F32, I32, 23, 127)
DOUBLE = Format(F64, I64, 52, 1023)

_FORMATS = {F32: SINGLE, F64: DOUBLE}


def format_of(x: Value) -> Format:
    """The format of a value of F32 or F64, or of a vector of them."""
    return _FORMATS[x.type.element]


def is_alone(x: Value) -> bool:
    """Whether code for ``x`` is in a function that is called for one number: its caller waits for the result."""
    return x.type.lanes == 1 and NO_INLINE in x.function.attributes


# -- instructions --------------------------------------------------------------------------------


def constant(x: Value, number: float) -> Value:
    """A constant of the type of ``x``."""
    return x.function.constant(x.type, number)


def fma(a: Value, b: Operand, c: Operand) -> Value:
    """``a * b + c``, rounded once. Without FMA instructions, F32 is computed in F64 and so rounded twice.

    :func:`exact_product` stays exact either way, because the product of two F32 has 48 bits.
    """
    other, third = (v if isinstance(v, Value) else constant(a, v) for v in (b, c))
    if a.type.element is F32 and not fuses():
        # LLVM would call a function of a C library for every lane.
        return narrowed(widened(a) * widened(other) + widened(third))
    return a.function.intrinsic("llvm.fma", a.type, a, other, third)


def absolute(x: Value) -> Value:
    """The absolute value."""
    return x.function.intrinsic("llvm.fabs", x.type, x)


def with_sign_of(magnitude: Value, sign: Value) -> Value:
    """The magnitude of one number with the sign of another."""
    return magnitude.function.intrinsic("llvm.copysign", magnitude.type, magnitude, sign)


def or_sign_of(magnitude: Value, sign: Value) -> Value:
    """As :func:`with_sign_of` for a magnitude whose sign bit is 0, with one instruction less."""
    return float_of(bits_of(magnitude) | sign_of(sign))


def square_root(x: Value) -> Value:
    """The square root, correctly rounded."""
    return x.function.intrinsic("llvm.sqrt", x.type, x)


def floor(x: Value) -> Value:
    """The greatest integer that is not greater."""
    return x.function.intrinsic("llvm.floor", x.type, x)


def where(condition: Value, yes: Operand, no: Operand) -> Value:
    """``yes`` where the condition holds, else ``no``; at least one of the two is a Value."""
    if not isinstance(yes, Value):
        if not isinstance(no, Value):
            raise InternalError(f"a choice between the numbers {yes} and {no} has no type")
        yes = constant(no, yes)
    elif not isinstance(no, Value):
        no = constant(yes, no)
    return condition.function.select(condition, yes, no)


def unless_any(condition: Value, otherwise: Callable[[], Sequence[Value]], usual: Sequence[Value]) -> Sequence[Value]:
    """``usual``, or what ``otherwise`` computes if the condition holds for any lane of a vector.

    ``otherwise`` gives the results of all lanes. It is for arguments that programs seldom have, and takes a branch, as
    vectors of such arguments follow one another; of single numbers, which LLVM may vectorize, it is always computed.
    """
    fn, lanes = condition.function, condition.type.lanes
    if lanes == 1:
        return otherwise()
    return fn.if_else(any_of(condition), otherwise, lambda: usual, likely=False)


def any_of(condition: Value) -> Value:
    """Whether a condition holds for any lane of a vector."""
    return condition.bits_as(integer(condition.type.lanes)).ne(0)


def at_most(x: Value, bound: float) -> Value:
    """The lesser of ``x`` and the bound; NaN stays."""
    return where(x > bound, bound, x)


def at_least(x: Value, bound: float) -> Value:
    """The greater of ``x`` and the bound; NaN stays."""
    return where(x < bound, bound, x)


def bits_of(x: Value) -> Value:
    """The bits of a float, as an integer."""
    return x.bits_as(x.type.with_element(format_of(x).int))


def float_of(bits: Value) -> Value:
    """The float with an integer's bits."""
    return bits.bits_as(bits.type.with_element(F32 if bits.type.element is I32 else F64))


def sign_of(x: Value) -> Value:
    """The sign bit of a float, as an integer whose other bits are 0."""
    return bits_of(x) & format_of(x).sign_bit


def negate_if(x: Value, sign: Value) -> Value:
    """``x``, negated where the integer ``sign`` is the sign bit and not 0."""
    return float_of(bits_of(x) ^ sign)


def two_to(x: Value, exponent: Value) -> Value:
    """2^exponent for an integer, or what :func:`nearest` gives, within the range of normal numbers of x's type."""
    form = format_of(x)
    return float_of((exponent + form.bias) << form.fraction)


def nearest(x: Value, factor: float) -> tuple[Value, Value]:
    """The integer nearest to ``x * factor``, as a float and as n; it must be of moderate size.

    n exceeds the integer by :func:`bits_of_rounder`, whose low bits are 0: ``n << fraction`` needs no subtraction.
    """
    form = format_of(x)
    shifted = fma(x, factor, form.rounder)
    return shifted - form.rounder, bits_of(shifted)


def bits_of_rounder(form: Format) -> int:
    """The bits of a format's rounder."""
    return ((form.bias + form.fraction) << form.fraction) | (1 << (form.fraction - 1))


def scales(x: Value) -> bool:
    """Whether the processor has instructions for :func:`scaled_by_power` of a vector."""
    size = x.type.bytes
    if x.type.lanes == 1 or size & (size - 1) or size < 16:
        return False
    return has_feature("avx512f") and (size >= 64 or has_feature("avx512vl"))


def scaled_by_power(x: Value, whole: Value) -> Value:
    """``x * 2^whole`` for vectors of floats, rounded once, beyond the range, too.

    Subnormal results take processors as long as those of products, unless the mode of the thread makes them zero.
    """
    fn, type = x.function, x.type
    if type.bytes > 64:
        half = type.lanes // 2
        low, high = (
            scaled_by_power(fn.shuffle(x, x, lanes), fn.shuffle(whole, whole, lanes))
            for lanes in (range(half), range(half, type.lanes))
        )
        return fn.shuffle(low, high, range(type.lanes))
    name = f"llvm.x86.avx512.mask.scalef.p{'s' if type.element is F32 else 'd'}.{8 * type.bytes}"
    every = integer(max(type.lanes, 8))
    operands = [x, whole, x, fn.constant(every, -1)]
    if type.bytes == 64:
        # Rounded as the mode of the thread says.
        operands.append(fn.i32(4))
    fn.module.declare(name, type, [o.type for o in operands])
    return fn.call(name, type, *operands)


# -- polynomials ---------------------------------------------------------------------------------


def polynomial(x: Value, coefficients: Sequence[float]) -> Value:
    """The polynomial's value at ``x``; the coefficients begin with the constant.

    Long polynomials are split into even and odd powers, which halves the chain of dependent operations.
    """
    if len(coefficients) <= 6:
        return horner(x, coefficients)
    square = x * x
    return fma(horner(square, coefficients[1::2]), x, horner(square, coefficients[::2]))


def horner(x: Value, coefficients: Sequence[float]) -> Value:
    """The same in a single chain, which is slightly more accurate for long polynomials with terms of both signs."""
    total = constant(x, coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        total = fma(total, x, coefficient)
    return total


# -- sums and products without error ---------------------------------------------------------------

Pair = tuple[Value, Value]


def exact_sum(a: Value, b: Value) -> Pair:
    """``a + b``, and its rounding error."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def exact_sum_ordered(a: Value, b: Operand) -> Pair:
    """``a + b``, and its rounding error, if ``a`` is 0 or the greater in magnitude."""
    total = a + b
    return total, b - (total - a)


def exact_product(a: Value, b: Operand) -> Pair:
    """``a * b``, and its rounding error."""
    total = a * b
    return total, fma(a, b, -total)


def widened(x: Value) -> Value:
    """An F32, converted to F64."""
    return x.cast("fpext", x.type.with_element(F64))


def narrowed(x: Value) -> Value:
    """An F64 rounded to F32."""
    return x.cast("fptrunc", x.type.with_element(F32))
