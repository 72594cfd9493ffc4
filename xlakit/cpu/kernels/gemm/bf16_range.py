"""Decides whether a product of packed BF16 can have subnormal numbers, or overflow.

A number of BF16 with the stored exponent e is a multiple of 2^(e-134). So all products of two operands are multiples of
2^(a+b-268), where a and b are the least exponents of their non-zero numbers; so are sums of products, which F32 rounds
to multiples of larger powers of two. If that power is normal in F32, i.e. a + b is at least 142, and no operand is
subnormal, then a product or sum below the normal numbers is zero. If the greatest exponents add up to at most 379, no
product overflows.
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
    """The range of the magnitudes seen so far, as bits: the least that is not 0, minus 1, and the greatest.

    Each is kept in a vector, with a lane for each of several numbers, and in a scalar for the remaining numbers.
    """

    state: list[Value]

    @staticmethod
    def none(fn: Function) -> Seen:
        """The range before any number."""
        types = vector(I16, _LANES), I16
        return Seen([fn.constant(type, number) for type in types for number in (-1, 0)])

    def in_order(self, fn: Function, start: Value, count: Value) -> Seen:
        """The range extended by ``count`` contiguous numbers from a pointer on."""
        whole = count & -_LANES
        with fn.loop(0, whole, _LANES, carried=self.state[:2], hints=AS_WRITTEN) as loop:
            bits = fn.load(vector(I16, _LANES), fn.at(start, I16, loop.index), align=2)
            loop.next(*_with(loop.carried, bits))
        with fn.loop(whole, count, carried=self.state[2:], hints=AS_WRITTEN) as tail:
            tail.next(*_with(tail.carried, fn.load(I16, fn.at(start, I16, tail.index))))
        return Seen([*loop.results, *tail.results])

    def exponents(self, fn: Function) -> tuple[Value, Value]:
        """The least exponent of non-zero numbers, and the greatest; if all are zero, the least is above all others."""
        least, greatest, *single = self.state
        least = fn.intrinsic("llvm.vector.reduce.umin", I16, least, of=least.type)
        greatest = fn.intrinsic("llvm.vector.reduce.umax", I16, greatest, of=greatest.type)
        least = least.umin(single[0])
        greatest = greatest.umax(single[1])
        return (least.cast("zext", I32) + 1) >> _FRACTION, greatest.cast("zext", I32) >> _FRACTION


def _with(before: Sequence[Value], bits: Value) -> tuple[Value, Value]:
    """The range extended by one number in each lane."""
    magnitude = bits & _MAGNITUDE
    # Subtracting 1 makes zero the greatest unsigned number.
    least = before[0].umin(magnitude - 1)
    return least, before[1].umax(magnitude)


def flushing_is_exact(left: tuple[Value, Value], right: tuple[Value, Value]) -> Value:
    """Whether products of operands with these exponents keep their bits if subnormal numbers are taken for zero."""
    (a, c), (b, d) = left, right
    normal = (a > 0) & (b > 0) & (a + b >= _LEAST_SUM)
    return normal & (c < _NO_NUMBER) & (d < _NO_NUMBER) & (c + d <= _GREATEST_SUM)


@dataclass(frozen=True, slots=True)
class Exponents:
    """Writes the range of exponents in a packed operand of BF16.

    ``(ptr start, i64 pieces, i64 apart, i64 count, ptr range)``: the operand has ``pieces`` pieces of ``count``
    numbers, ``apart`` bytes apart. The least exponent of non-zero numbers and the greatest are written to ``range``.
    """

    family: ClassVar[str] = "gemm_exponents"
    parameters: ClassVar[Sequence[Type]] = (PTR, I64, I64, I64, PTR)

    def write(self, fn: Function) -> None:
        """Write its body."""
        fn.effort = Effort.TIDY
        start, pieces, piece_distance, count, exponents = fn.parameters
        with fn.loop(0, pieces, carried=Seen.none(fn).state, hints=AS_WRITTEN) as piece:
            piece_start = fn.at(start, I8, piece.index * piece_distance)
            piece.next(*Seen(list(piece.carried)).in_order(fn, piece_start, count).state)
        for n, exponent in enumerate(Seen(list(piece.results)).exponents(fn)):
            fn.store(exponent, fn.at(exponents, I32, n))


# The bytes of a range.
_RANGE = 8


def _is_needed(engine: Engine) -> bool:
    return takes_pairs_of_bf16(engine) and not engine.flushes


def ranges_bytes(engine: Engine, blocks: int) -> int:
    """The bytes for the ranges of a product that keeps ``blocks`` packed blocks of the right operand."""
    return _RANGE * (1 + blocks) if _is_needed(engine) else 0


@dataclass(slots=True)
class Ranges:
    """The ranges, in memory, of a packed block of the left operand and of each packed block of the right one.

    For engines of BF16 they are computed once for each packed block; for others they are not needed.
    """

    fn: Function
    engine: Engine
    memory: Value

    def note_left(self, start: Value, rows: Value, length: int, block: Block) -> None:
        """Compute the range of packed rows that are ``length`` elements apart."""
        self._note(start, rows, length, self._padded(block), self.memory)

    def note_right(self, start: Value, slivers: Value, length: int, block: Block, number: Value) -> None:
        """Compute the range of packed slivers that are ``length`` elements apart: kept block ``number``."""
        self._note(start, slivers, length, self._padded(block) * self.engine.nr, self._of_right(number))

    def flushing_is_exact(self, number: Value) -> Value:
        """1 if products of the left block and a right one may take subnormal numbers for zero, else 0."""
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
        """The steps of k in a packed block, including the zeros at its end."""
        steps, most = times(block.runs, block.kc), self.engine.steps
        steps = self.fn.i64(steps) if isinstance(steps, int) else steps
        return in_groups(steps + (most - 1), most) * most

    def _note(self, start: Value, pieces: Value, length: int, count: Value, exponents: Value) -> None:
        fn = self.fn
        if _is_needed(self.engine):
            piece_distance = fn.i64(length * self.engine.packed.bytes)
            common.call(fn, Exponents(), start, pieces, piece_distance, count, exponents)
