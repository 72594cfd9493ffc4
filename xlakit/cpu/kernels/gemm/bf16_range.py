"""Whether a product of packed BF16 can have subnormal numbers, or overflow.

A number of BF16 with the exponent e (as it is stored) is a multiple of 2^(e-134). So all products of two operands are
multiples of 2^(a+b-268), where a and b are the least exponents of numbers in them that are not zero; so are sums of
products, which F32 rounds to multiples of larger powers of two. Where that power is normal in F32, hence a + b is 142
or more, and no operand is subnormal, a product or sum that is subnormal is zero. Where the greatest exponents add up to
379 or less, no product is beyond the range.
"""

from __future__ import annotations

from collections.abc import Sequence

from xlakit.cpu.kernels.gemm.micro_kernel import NO_UNROLL
from xlakit.cpu.llvm import I16, I32, Function, Value, vector
from xlakit.dataclass import dataclass

_LANES = 32
_MAGNITUDE = 0x7FFF
_FRACTION = 7
_LEAST_SUM, _GREATEST_SUM, _NO_NUMBER = 142, 379, 255


@dataclass(slots=True)
class Seen:
    """The range of magnitudes seen so far, as bits: the least that is not 0, minus 1, and the greatest.

    Both have a vector, with a lane for each of several numbers, and a scalar for the remaining numbers.
    """

    state: list[Value]

    @staticmethod
    def none(fn: Function) -> Seen:
        """The range before any number."""
        types = vector(I16, _LANES), I16
        return Seen([fn.constant(type, number) for type in types for number in (-1, 0)])

    def in_order(self, fn: Function, start: Value, count: Value) -> Seen:
        """With so many numbers more, which lie one after another, from a pointer on."""
        whole = count & -_LANES
        with fn.loop(0, whole, _LANES, carried=self.state[:2], hints=NO_UNROLL) as loop:
            bits = fn.load(vector(I16, _LANES), fn.at(start, I16, loop.index), align=2)
            loop.next(*_with(loop.carried, bits))
        with fn.loop(whole, count, carried=self.state[2:], hints=NO_UNROLL) as rest:
            rest.next(*_with(rest.carried, fn.load(I16, fn.at(start, I16, rest.index))))
        return Seen([*loop.results, *rest.results])

    def exponents(self, fn: Function) -> tuple[Value, Value]:
        """The least exponent of numbers that are not zero, and the greatest; the least of none is beyond all others."""
        least, greatest, *single = self.state
        least = fn.intrinsic("llvm.vector.reduce.umin", I16, least, of=least.type)
        greatest = fn.intrinsic("llvm.vector.reduce.umax", I16, greatest, of=greatest.type)
        least = least.umin(single[0])
        greatest = greatest.umax(single[1])
        return (least.cast("zext", I32) + 1) >> _FRACTION, greatest.cast("zext", I32) >> _FRACTION


def _with(before: Sequence[Value], bits: Value) -> tuple[Value, Value]:
    """The range with one number more in each lane."""
    magnitude = bits & _MAGNITUDE
    # Minus 1, zero becomes the greatest of all.
    least = before[0].umin(magnitude - 1)
    return least, before[1].umax(magnitude)


def flushing_is_exact(left: tuple[Value, Value], right: tuple[Value, Value]) -> Value:
    """Whether products of operands of these exponents have the same bits where subnormal numbers are taken for zero."""
    (a, c), (b, d) = left, right
    normal = (a > 0) & (b > 0) & (a + b >= _LEAST_SUM)
    return normal & (c < _NO_NUMBER) & (d < _NO_NUMBER) & (c + d <= _GREATEST_SUM)
