"""The loops of finding a row's first elements, as functions that programs share: they depend on types alone.

The rank of an element says when it is read: rows are read from the first element on, or from the last one where the
last elements in order are wanted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from xlakit.cpu.kernels.sort.keys import load_raw, narrowed, ordered_bits, raw_type, store_raw, stored_bits
from xlakit.cpu.llvm import I1, I64, PTR, VOID, Function, Type, Value, integer, vector
from xlakit.cpu.llvm.loop import NO_UNROLL
from xlakit.data.primitive import PrimitiveType
from xlakit.dataclass import dataclass
from xlakit.passes.analysis.sort_order import NanOrder, SortKey

# So many elements are compared at once with the last one of the list.
BLOCK = 64
# How many of a key's first bits many elements are counted by.
COUNTED_BITS = 12


@dataclass(frozen=True, slots=True)
class RowKeys:
    """A common function over the keys of a row, or over records of elements.

    kind, descending, nan, zeros_equal: the type of the keys and their order, as in :class:`SortKey`.
    record_bits, rank_bits: the size of a record, and of the element's rank in it, which is below the element's key.
    last: whether rows are read from their last elements on.
    """

    family: ClassVar[str]
    parameters: ClassVar[Sequence[Type]]

    kind: PrimitiveType
    descending: bool
    nan: str
    zeros_equal: bool
    record_bits: int
    rank_bits: int
    last: bool

    @property
    def key(self) -> SortKey:
        """The key by which elements are first."""
        return SortKey(0, self.kind, descending=self.descending, nan=NanOrder(self.nan), zeros_equal=self.zeros_equal)

    @property
    def type(self) -> Type:
        """The type of a record."""
        return integer(self.record_bits)

    def index(self, length: Value | int, rank: Value) -> Value:
        """Where in its row the element of a rank stands."""
        return length - 1 - rank if self.last else rank

    def bits(self, fn: Function, row: Value, length: Value, rank: Value) -> Value:
        """The bits of the element of a rank."""
        return load_raw(fn, self.kind, row, self.index(length, rank))

    def ordered(self, fn: Function, bits: Value) -> Value:
        """Unsigned integers of which the least is that of the first element."""
        return ordered_bits(fn, self.key, stored_bits(self.key, bits), exceptions=True)

    def load(self, fn: Function, records: Value, index: Value | int) -> Value:
        """A record of an array of them."""
        return fn.load(self.type, fn.at(records, self.type, index), align=8)

    def insert_function(self, fn: Function) -> Function:
        """``void(ptr records, i64 count, record)``: insert a record into a sorted list of ``count``."""
        insert = fn.module.function("insert", VOID, [PTR, I64, self.type])
        records, count, record = insert.parameters

        def behind(position: Value) -> Value:
            before = insert.select(position > 0, position - 1, position)
            return (position > 0) & record.compare("ult", self.load(insert, records, before))

        with insert.while_([count], lambda step: behind(step.carried[0])) as step:
            (target,) = step.carried
            store_raw(insert, self.load(insert, records, target - 1), records, target)
            step.next(target - 1)
        store_raw(insert, record, records, step.results[0])
        insert.ret()
        return insert

    def offer(self, fn: Function, insert: Function, records: Value, k: Value, record: Value) -> None:
        """Insert a record if it is before the last one of ``k`` records."""
        with fn.if_(record.compare("ult", self.load(fn, records, k - 1))):
            fn.call(insert, VOID, records, k - 1, record)


@dataclass(frozen=True, slots=True)
class KeepFirst(RowKeys):
    """``void(ptr row, i64 length, i64 begin, i64 end, i64 k, ptr records)``: the first ``k`` elements of some ranks.

    Their records stand in ``records`` then, in order. The range must have as many ranks.
    """

    family: ClassVar[str] = "top_k_keep"
    parameters: ClassVar[Sequence[Type]] = (PTR, I64, I64, I64, I64, PTR)

    def write(self, fn: Function) -> None:
        """Write its body."""
        row, length, begin, end, k, records = fn.parameters
        insert = self.insert_function(fn)
        filled = begin + k
        with fn.loop(begin, filled, hints=NO_UNROLL) as loop:
            fn.call(insert, VOID, records, loop.index - begin, self._record(fn, row, length, loop.index))
        blocks = (end - filled) // BLOCK
        with fn.loop(0, blocks, hints=NO_UNROLL) as loop:
            start = filled + loop.index * BLOCK
            last = narrowed(self.load(fn, records, k - 1) >> self.rank_bits, raw_type(self.kind))
            found = self._ahead(fn, row, length, start, last)
            with fn.if_(found.ne(0), likely=False), fn.while_([found], lambda step: step.carried[0].ne(0)) as step:
                (left,) = step.carried
                rank = start + fn.intrinsic("llvm.cttz", I64, left, fn.constant(I1, 1))
                self.offer(fn, insert, records, k, self._record(fn, row, length, rank))
                step.next(left & (left - 1))
        with fn.loop(filled + blocks * BLOCK, end, hints=NO_UNROLL) as loop:
            self.offer(fn, insert, records, k, self._record(fn, row, length, loop.index))

    def _record(self, fn: Function, row: Value, length: Value, rank: Value) -> Value:
        ordered = self.ordered(fn, self.bits(fn, row, length, rank))
        return (narrowed(ordered, self.type) << self.rank_bits) | narrowed(rank, self.type)

    def _ahead(self, fn: Function, row: Value, length: Value, start: Value, last: Value) -> Value:
        """A bit for each rank of a block: whether its key is before ``last``."""
        type = raw_type(self.kind)
        first = self.index(length, start + (BLOCK - 1)) if self.last else start
        elements = fn.load(vector(type, BLOCK), fn.at(row, type, first))
        ahead = _signed(self.ordered(fn, elements)) < fn.splat(_signed(last), BLOCK)
        found = ahead.bits_as(integer(BLOCK))
        # The rank of the last lane may come first.
        return fn.intrinsic("llvm.bitreverse", I64, found) if self.last else found


def _signed(ordered: Value) -> Value:
    """Signed integers that order as unsigned ones: processors compare vectors of these."""
    return ordered ^ (-1 << (ordered.type.element.bits - 1))


@dataclass(frozen=True, slots=True)
class JoinFirst(RowKeys):
    """``void(ptr records, i64 lists, i64 k)``: the first ``k`` records of lists of as many, put into the first one."""

    family: ClassVar[str] = "top_k_join"
    parameters: ClassVar[Sequence[Type]] = (PTR, I64, I64)

    def write(self, fn: Function) -> None:
        """Write its body."""
        records, lists, k = fn.parameters
        insert = self.insert_function(fn)
        with fn.loop(k, lists * k, hints=NO_UNROLL) as others:
            self.offer(fn, insert, records, k, self.load(fn, records, others.index))


@dataclass(frozen=True, slots=True)
class CollectFirst(RowKeys):
    """``void(ptr row, i64 length, i64 begin, i64 end, i64 k, ptr records, ptr count)``: candidates for the first.

    These are at least the first ``k`` elements of the range of ranks: their ``count`` records, in the order of ranks.
    There must be room for all.
    """

    family: ClassVar[str] = "top_k_collect"
    parameters: ClassVar[Sequence[Type]] = (PTR, I64, I64, I64, I64, PTR, PTR)

    def write(self, fn: Function) -> None:
        """Write its body."""
        row, length, begin, end, k, records, count = fn.parameters
        type = raw_type(self.kind)
        digits = 1 << min(COUNTED_BITS, type.bits)
        counts = fn.alloca(I64, digits, align=64)
        fn.fill(counts, 0, 8 * digits)

        def digit(bits: Value) -> Value:
            return narrowed(self.ordered(fn, bits) >> (type.bits - digits.bit_length() + 1), I64)

        with fn.loop(begin, end) as loop:
            address = fn.at(counts, I64, digit(self.bits(fn, row, length, loop.index)))
            fn.store(fn.load(I64, address) + 1, address)
        with fn.while_([fn.i64(0), fn.load(I64, counts)], lambda step: step.carried[1] < k) as step:
            following = step.carried[0] + 1
            step.next(following, step.carried[1] + fn.load(I64, fn.at(counts, I64, following)))
        last = step.results[0]
        with fn.loop(begin, end, carried=[fn.i64(0)]) as loop:
            (position,) = loop.carried
            bits = self.bits(fn, row, length, loop.index)
            stored = narrowed(stored_bits(self.key, bits), self.type) << self.rank_bits
            # It is written in any case, and overwritten by the next one if it does not count.
            store_raw(fn, stored | narrowed(loop.index, self.type), records, position)
            loop.next(position + (digit(bits) <= last).cast("zext", I64))
        fn.store(loop.results[0], count)
