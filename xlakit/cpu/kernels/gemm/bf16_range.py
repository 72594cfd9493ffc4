"""Whether a product of packed BF16 can have subnormal numbers, or overflow.

A number of BF16 with the exponent e (as it is stored) is a multiple of 2^(e-134). So all products of two operands are
multiples of 2^(a+b-268), where a and b are the least exponents of numbers in them that are not zero; so are sums of
products, which F32 rounds to multiples of larger powers of two. Where that power is normal in F32, hence a + b is 142
or more, and no operand is subnormal, a product or sum that is subnormal is zero. Where the greatest exponents add up to
379 or less, no product is beyond the range.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from xlakit.cpu.kernels.gemm.engine import Engine, takes_pairs_of_bf16
from xlakit.cpu.kernels.gemm.operands import Block, in_groups, times
from xlakit.cpu.kernels.shared import common
from xlakit.cpu.llvm import I8, I16, I32, I64, PTR, Effort, Function, Type, Value, vector
from xlakit.cpu.llvm.loop import AS_WRITTEN
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
        with fn.loop(0, whole, _LANES, carried=self.state[:2], hints=AS_WRITTEN) as loop:
            bits = fn.load(vector(I16, _LANES), fn.at(start, I16, loop.index), align=2)
            loop.next(*_with(loop.carried, bits))
        with fn.loop(whole, count, carried=self.state[2:], hints=AS_WRITTEN) as rest:
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


@dataclass(frozen=True, slots=True)
class Exponents:
    """The range of exponents in a packed operand of BF16.

    ``(ptr start, i64 pieces, i64 apart, i64 count, ptr range)``: pieces of ``count`` numbers, so many bytes apart. The
    least exponent of numbers that are not zero and the greatest are written to ``range``.
    """

    family: ClassVar[str] = "gemm_exponents"
    parameters: ClassVar[Sequence[Type]] = (PTR, I64, I64, I64, PTR)

    def write(self, fn: Function) -> None:
        """Write its body."""
        fn.effort = Effort.TIDY
        start, pieces, apart, count, found = fn.parameters
        with fn.loop(0, pieces, carried=Seen.none(fn).state, hints=AS_WRITTEN) as piece:
            own = fn.at(start, I8, piece.index * apart)
            piece.next(*Seen(list(piece.carried)).in_order(fn, own, count).state)
        for n, exponent in enumerate(Seen(list(piece.results)).exponents(fn)):
            fn.store(exponent, fn.at(found, I32, n))


# The bytes of a range.
_RANGE = 8


def _is_needed(engine: Engine) -> bool:
    return takes_pairs_of_bf16(engine) and not engine.flushes


def ranges_bytes(engine: Engine, blocks: int) -> int:
    """The bytes for the ranges of a product that keeps so many packed blocks of the right operand."""
    return _RANGE * (1 + blocks) if _is_needed(engine) else 0


@dataclass(slots=True)
class Ranges:
    """The ranges of a packed block of the left operand, and of each packed block of the right one, in memory.

    They are found once for each packed block, for engines of BF16; for others nothing is done.
    """

    fn: Function
    engine: Engine
    memory: Value

    def note_left(self, start: Value, rows: Value, length: int, block: Block) -> None:
        """Note the range of packed rows, so many elements apart."""
        self._note(start, rows, length, self._padded(block), self.memory)

    def note_right(self, start: Value, slivers: Value, length: int, block: Block, number: Value) -> None:
        """Note the range of packed slivers, so many elements apart: block ``number`` of those that are kept."""
        self._note(start, slivers, length, self._padded(block) * self.engine.nr, self._of_right(number))

    def flushing_is_exact(self, number: Value) -> Value:
        """1 where products of the left block and a right one may take subnormal numbers for zero, else 0."""
        fn = self.fn
        if not _is_needed(self.engine):
            return fn.i64(0)
        left, right = (
            (fn.load(I32, range), fn.load(I32, fn.at(range, I32, 1))) for range in (self.memory, self._of_right(number))
        )
        return flushing_is_exact(left, right).cast("zext", I64)

    def _of_right(self, number: Value) -> Value:
        return self.fn.at(self.memory, I8, (number + 1) * _RANGE)

    def _padded(self, block: Block) -> Value:
        """The steps of k in a packed block, with the zeros at its end."""
        steps, most = times(block.runs, block.kc), self.engine.steps
        steps = self.fn.i64(steps) if isinstance(steps, int) else steps
        return in_groups(steps + (most - 1), most) * most

    def _note(self, start: Value, pieces: Value, length: int, count: Value, found: Value) -> None:
        fn = self.fn
        if _is_needed(self.engine):
            apart = fn.i64(length * self.engine.packed.bytes)
            common.call(fn, Exponents(), start, pieces, apart, count, found)
