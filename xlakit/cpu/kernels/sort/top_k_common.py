"""The loops that find a row's first elements, as common functions: their code depends only on types.

The rank of an element is its number in reading order: rows are read from the first element on, or backwards from the
last one if the last elements in sorted order are wanted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, NamedTuple

from xlakit.cpu.kernels.sort.keys import load_bits, load_raw, ordered_bits, raw_type, store_raw, stored_bits
from xlakit.cpu.llvm import I1, I64, PTR, VOID, Function, Loop, Type, Value, integer, vector
from xlakit.cpu.llvm.loop import NO_UNROLL
from xlakit.data.primitive import PrimitiveType
from xlakit.dataclass import dataclass
from xlakit.passes.analysis.sort_order import SortKey

# The number of elements compared at once with the last one of the list.
BLOCK = 64
# The number of first bits of keys by which many elements are counted.
COUNTED_BITS = 12
# One block in this many is counted first, if there are at least the square of this times as many elements as are
# wanted.
SAMPLED = 8
# If the sample has more than the wanted elements and one in this many of all its elements up to the bound, more bits
# are examined: to sort the records of so many would take longer than to count the sample again.
SURPLUS = 32
# The bits of the keys loaded at once to find their range: a cache line.
RANGE_BITS = 512


@dataclass(frozen=True, slots=True)
class RowKeys:
    """A common function over the keys of a row, or over records of elements.

    key: the key by which elements are first. record_bits, rank_bits: the size of a record, and of the element's rank in
    it, which is below the element's key. last: whether rows are read backwards.
    """

    family: ClassVar[str]
    parameters: ClassVar[Sequence[Type]]

    key: SortKey
    record_bits: int
    rank_bits: int
    last: bool

    @property
    def kind(self) -> PrimitiveType:
        """The type of the keys."""
        return self.key.kind

    @property
    def type(self) -> Type:
        """The type of a record."""
        return integer(self.record_bits)

    def index(self, length: Value | int, rank: Value) -> Value:
        """The position in its row of the element with a rank."""
        return length - 1 - rank if self.last else rank

    def bits(self, fn: Function, row: Value, length: Value, rank: Value) -> Value:
        """The bits of the element with a rank."""
        return load_raw(fn, self.kind, row, self.index(length, rank))

    def ordered(self, fn: Function, bits: Value) -> Value:
        """Unsigned integers in the order of elements: the first element has the least one."""
        return ordered_bits(fn, self.key, stored_bits(self.key, bits))

    def load(self, fn: Function, records: Value, index: Value | int) -> Value:
        """A record of an array."""
        return load_bits(fn, self.type, records, index)

    def ahead(
        self, fn: Function, row: Value, length: Value, start: Value, bound: Value, *, inclusive: bool = False
    ) -> Value:
        """A bit for each rank of a block: whether its key is before a bound, which is in the form of :meth:`ordered`.

        inclusive: or equals the bound.
        """
        type = raw_type(self.kind)
        first = self.index(length, start + (BLOCK - 1)) if self.last else start
        elements = fn.load(vector(type, BLOCK), fn.at(row, type, first))
        keys, bounds = _signed(self.ordered(fn, elements)), fn.splat(_signed(bound), BLOCK)
        ahead = (keys <= bounds if inclusive else keys < bounds).bits_as(integer(BLOCK))
        # In a row that is read backwards, the last lane has the first rank.
        return fn.intrinsic("llvm.bitreverse", I64, ahead) if self.last else ahead

    def insert_function(self, fn: Function) -> Function:
        """``void(ptr records, i64 count, record)``: insert a record into a sorted list of ``count``."""
        insert, records, count, record = fn.module.begin("insert", VOID, [PTR, I64, self.type])

        def behind(position: Value) -> Value:
            before = insert.select(position > 0, position - 1, position)
            return (position > 0) & record.compare("ult", self.load(insert, records, before))

        with insert.while_([count], lambda step: behind(step.carried[0])) as step:
            (target,) = step.carried
            store_raw(insert, self.load(insert, records, target - 1), records, target)
            step.next(target - 1)
        store_raw(insert, record, records, step.results[0])
        return insert

    def offer(self, fn: Function, insert: Function, records: Value, k: Value, record: Value) -> None:
        """Insert a record if it is before the last one of ``k`` records."""
        with fn.if_(record.compare("ult", self.load(fn, records, k - 1))):
            fn.call(insert, VOID, records, k - 1, record)


@dataclass(frozen=True, slots=True)
class KeepFirst(RowKeys):
    """``void(ptr row, i64 length, i64 begin, i64 end, i64 k, ptr records)``: the first ``k`` elements of some ranks.

    Afterwards, ``records`` has their records in order. The range must have at least ``k`` ranks.
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
            last = (self.load(fn, records, k - 1) >> self.rank_bits).resized(raw_type(self.kind))
            found = self.ahead(fn, row, length, start, last)
            with fn.if_(found.ne(0), likely=False), fn.while_([found], lambda step: step.carried[0].ne(0)) as step:
                (left,) = step.carried
                rank = start + fn.intrinsic("llvm.cttz", I64, left, fn.constant(I1, 1))
                self.offer(fn, insert, records, k, self._record(fn, row, length, rank))
                step.next(left & (left - 1))
        with fn.loop(filled + blocks * BLOCK, end, hints=NO_UNROLL) as loop:
            self.offer(fn, insert, records, k, self._record(fn, row, length, loop.index))

    def _record(self, fn: Function, row: Value, length: Value, rank: Value) -> Value:
        ordered = self.ordered(fn, self.bits(fn, row, length, rank))
        return (ordered.resized(self.type) << self.rank_bits) | rank.resized(self.type)


def _signed(ordered: Value) -> Value:
    """Signed integers in the order of unsigned ones: processors compare vectors of signed integers."""
    return ordered ^ (-1 << (ordered.type.element.bits - 1))


@dataclass(frozen=True, slots=True)
class JoinFirst(RowKeys):
    """``void(ptr records, i64 lists, i64 k)``: join sorted lists of ``k`` records; the first list has the result."""

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

    These are at least the first ``k`` elements of the range of ranks: their ``count`` records are written in the order
    of ranks. ``records`` must have room for all ranks.
    """

    family: ClassVar[str] = "top_k_collect"
    parameters: ClassVar[Sequence[Type]] = (PTR, I64, I64, I64, I64, PTR, PTR)

    def write(self, fn: Function) -> None:
        """Write its body.

        Elements are counted by the first bits of their keys, which gives a bound that at least ``k`` elements are not
        behind. Of many elements, one block in eight is counted first: a bound for ``k`` elements of this sample holds
        for as many of all, and usually for eight times as many. If the sample's bound admits more than a fourth of all
        elements, because blocks are no sample of the row's order, all elements are counted.
        """
        _, _, begin, end, k, _, count = fn.parameters
        counts = fn.alloca(I64, self._digits + 1, align=64)
        size = end - begin
        most = size // 4

        def of_all() -> Sequence[Value]:
            part = self._counted(fn, counts, 1, self._all(fn))
            return [self._collected(fn, begin, part.greatest, fn.i64(0))]

        def of_sample() -> Sequence[Value]:
            found = self._collected_in_blocks(fn, self._bound_of_sample(fn, counts), most)
            return fn.if_else(found <= most, lambda: [found], of_all)

        is_long = (size >= k * (SAMPLED * SAMPLED)) & (size >= BLOCK * SAMPLED * SAMPLED)
        (found,) = fn.if_else(is_long, of_sample, of_all)
        fn.store(found, count)

    @property
    def _bits(self) -> int:
        return raw_type(self.kind).bits

    @property
    def _shift(self) -> int:
        return self._bits - min(COUNTED_BITS, self._bits)

    @property
    def _digits(self) -> int:
        return 1 << min(COUNTED_BITS, self._bits)

    def _all(self, fn: Function) -> _Part:
        """All keys."""
        _, _, begin, end, *_ = fn.parameters
        return _Part(fn.i64(0), fn.i64(self._bits), fn.i64(0), end - begin)

    def _bound_of_sample(self, fn: Function, counts: Value) -> Value:
        """A key that ``k`` elements of the sample have or are before, and not many more if their keys differ.

        A part of all keys that many elements of the sample have is divided again: the keys of rows that have few
        different numbers, or are in order, have similar first bits.
        """
        _, _, begin, end, k, *_ = fn.parameters
        enough = k + (end - begin) // (SAMPLED * SURPLUS)

        def is_coarse(part: _Part) -> Value:
            return (part.bits > 0) & (part.before + part.within > enough)

        first = self._counted(fn, counts, SAMPLED, self._all(fn))
        with fn.while_(first, lambda step: is_coarse(_Part(*step.carried))) as step:
            part = _Part(*step.carried)
            low, bits = self._range(fn, part)
            narrow = part._replace(low=low, bits=bits)
            # If no bits are left, all have the same key.
            step.next(*fn.if_else(bits > 0, lambda: self._counted(fn, counts, SAMPLED, narrow), lambda: narrow))
        return _Part(*step.results).greatest

    def _range(self, fn: Function, part: _Part) -> Sequence[Value]:
        """The least key in a part that elements of the sample have, and the number of bits in which others differ."""
        row, length, begin, end, *_ = fn.parameters
        type = raw_type(self.kind)
        lanes = min(BLOCK, RANGE_BITS // type.bits)
        low, past = (fn.splat(key.resized(type), lanes) for key in (part.low, part.greatest - part.low))
        none, all = (fn.splat(fn.constant(type, number), lanes) for number in (0, -1))
        with fn.loop(0, (end - begin) // (BLOCK * SAMPLED), carried=[all, none], hints=NO_UNROLL) as blocks:
            start = begin + blocks.index * (BLOCK * SAMPLED)
            first = self.index(length, start + (BLOCK - 1)) if self.last else start
            with fn.loop(0, BLOCK // lanes, carried=blocks.carried, hints=NO_UNROLL) as loop:
                elements = fn.load(vector(type, lanes), fn.at(row, type, first + loop.index * lanes))
                distance = self.ordered(fn, elements) - low
                # Keys before the part wrap around to great distances.
                within = distance.compare("ule", past)
                least, greatest = loop.carried
                loop.next(
                    least.umin(fn.select(within, distance, all)), greatest.umax(fn.select(within, distance, none))
                )
            blocks.next(*loop.results)
        least, greatest = (
            fn.intrinsic(f"llvm.vector.reduce.{name}", type, extremum, of=extremum.type).resized(I64)
            for name, extremum in zip(("umin", "umax"), blocks.results, strict=True)
        )
        return part.low + least, 64 - fn.intrinsic("llvm.ctlz", I64, greatest - least, fn.constant(I1, 0))

    def _counted(self, fn: Function, counts: Value, every: int, part: _Part) -> _Part:
        """Divide a part of all keys and count, in one block of ``every``; gives the division with element ``k``."""
        row, length, begin, end, k, *_ = fn.parameters
        is_first = part.bits.constant is not None
        bits = fn.i64(self._shift) if is_first else part.bits - part.bits.umin(COUNTED_BITS)
        fn.fill(counts, 0, 8 * (self._digits + 1))

        def counted(first: Value, past: Value) -> None:
            with fn.loop(first, past) as loop:
                key = self.ordered(fn, self.bits(fn, row, length, loop.index)).resized(I64)
                digit = (key - part.low) >> bits
                if not is_first:
                    # Keys outside of the part wrap around to digits beyond all of its own.
                    digit = digit.umin(self._digits)
                address = fn.at(counts, I64, digit)
                fn.store(fn.load(I64, address) + 1, address)

        if every == 1:
            counted(begin, end)
        else:
            with fn.loop(0, (end - begin) // (BLOCK * every), hints=NO_UNROLL) as blocks:
                first = begin + blocks.index * (BLOCK * every)
                counted(first, first + BLOCK)
        first = fn.i64(0), part.before, fn.load(I64, counts)
        with fn.while_(first, lambda step: step.carried[1] + step.carried[2] < k) as step:
            digit, before, within = step.carried
            step.next(digit + 1, before + within, fn.load(I64, fn.at(counts, I64, digit + 1)))
        digit, before, within = step.results
        return _Part(part.low + (digit << bits), bits, before, within)

    def _record(self, fn: Function, rank: Value) -> tuple[Value, Value]:
        """The record of the element with a rank, and the element's bits."""
        row, length, *_ = fn.parameters
        bits = self.bits(fn, row, length, rank)
        stored = stored_bits(self.key, bits).resized(self.type) << self.rank_bits
        return stored | rank.resized(self.type), bits

    def _collected(self, fn: Function, begin: Value, bound: Value, position: Value) -> Value:
        """Write the records of ranks from ``begin`` on with keys up to the bound; gives the position after them."""
        records = fn.parameters[5]
        limit = bound.resized(raw_type(self.kind))
        with fn.loop(begin, fn.parameters[3], carried=[position]) as loop:
            (end,) = loop.carried
            record, bits = self._record(fn, loop.index)
            # The record is always written; the next one overwrites it if its key is behind the bound.
            store_raw(fn, record, records, end)
            loop.next(end + self.ordered(fn, bits).compare("ule", limit).cast("zext", I64))
        return loop.results[0]

    def _collected_in_blocks(self, fn: Function, bound: Value, most: Value) -> Value:
        """As ``_collected``, from the first rank on; fast for few records, as a block without any is compared at once.

        Once there are ``k`` records, elements that equal the bound are no more collected. If there are more than
        ``most``, some may be missing.
        """
        _, _, begin, end, k, *_ = fn.parameters
        blocks = (end - begin) // BLOCK
        block, end_of_records = self._blocks(fn, (fn.i64(0), fn.i64(0)), blocks, bound, k - 1, inclusive=True)
        # Now there are ``k``, as the sample alone has so many. No key is before the bound 0.
        is_over = bound.eq(0)
        _, end_of_records = self._blocks(
            fn, (block, end_of_records), fn.select(is_over, block, blocks), bound, most, inclusive=False
        )
        uncollected = fn.select(is_over, end, begin + blocks * BLOCK)
        return self._collected(fn, uncollected, bound - 1, end_of_records)

    def _blocks(
        self, fn: Function, state: Sequence[Value], blocks: Value, bound: Value, most: Value, *, inclusive: bool
    ) -> Sequence[Value]:
        """Go through blocks, from one and the position of its records on, while there are no more than ``most``."""
        row, length, begin, _, _, records, _ = fn.parameters
        limit = bound.resized(raw_type(self.kind))

        def goes_on(loop: Loop) -> Value:
            return (loop.carried[0] < blocks) & (loop.carried[1] <= most)

        with fn.while_(state, goes_on) as loop:
            block, before = loop.carried
            start = begin + block * BLOCK
            ahead = self.ahead(fn, row, length, start, limit, inclusive=inclusive)
            with fn.while_([ahead, before], lambda step: step.carried[0].ne(0)) as step:
                left, end_of_records = step.carried
                rank = start + fn.intrinsic("llvm.cttz", I64, left, fn.constant(I1, 1))
                store_raw(fn, self._record(fn, rank)[0], records, end_of_records)
                step.next(left & (left - 1), end_of_records + 1)
            loop.next(block + 1, step.results[1])
        return loop.results


class _Part(NamedTuple):
    """A range of 2^bits keys from a low one on, each as 64 bits.

    before, within: the number of counted elements with keys before the range, and with keys in the range.
    """

    low: Value
    bits: Value
    before: Value
    within: Value

    @property
    def greatest(self) -> Value:
        """The last key of the range, if it has fewer than 2^64 keys."""
        return self.low + ~(self.low.function.i64(-1) << self.bits)
