"""The loops of sorts over all elements, as common functions: their code depends only on types."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import ClassVar, TypeVar

from xlakit.cpu.kernels.sort.equal_keys import EqualKeys
from xlakit.cpu.kernels.sort.keys import (
    has_exceptions,
    is_exception,
    is_unchanged,
    load_bits,
    load_raw,
    ordered_bits,
    raw_type,
    restored_bits,
    store_raw,
    stored_bits,
)
from xlakit.cpu.kernels.sort.plan import COUNTS_BYTES, RADIX, RADIX_BITS, Record
from xlakit.cpu.kernels.sort.quick import Order, has_compress, sort_quickly
from xlakit.cpu.llvm import I1, I8, I64, PTR, VOID, Effort, Function, Type, Value, integer
from xlakit.cpu.llvm.loop import NO_UNROLL
from xlakit.cpu.llvm.promises import NO_INLINE
from xlakit.data.primitive import PrimitiveType
from xlakit.dataclass import dataclass
from xlakit.passes.analysis.sort_order import Part, SortKey

# Loops that count or move records gain from unrolling; most others do not, and stay rolled to be compiled fast.
UNROLL = ('"llvm.loop.unroll.count", i32 4',)

T = TypeVar("T", bound="ByKey")


@dataclass(frozen=True, slots=True)
class ByKey:
    """A common function that reads records of ``record`` bits by one key, whose bits begin at bit ``offset``.

    exceptions: whether there may be keys whose bits do not have the order of the key. counter: the bits of a count of
    records.
    """

    family: ClassVar[str]
    parameters: ClassVar[Sequence[Type]]

    record: int
    offset: int
    key: SortKey
    exceptions: bool
    counter: int

    @classmethod
    def of(cls: type[T], record: Record, key: SortKey, *more: int, exceptions: bool, counter: Type) -> T:
        """The function for a key of a record."""
        field = record.field(key.operand, key.part)
        own = replace(key, operand=0, part=Part.WHOLE)
        return cls(record.bits, field.offset, own, exceptions, counter.bits, *more)

    @property
    def kind(self) -> PrimitiveType:
        """The type of the key."""
        return self.key.kind

    def load(self, fn: Function, records: Value, index: Value) -> Value:
        """A record of an array."""
        return load_bits(fn, integer(self.record), records, index)

    def digit(self, fn: Function, value: Value, shift: Value | int) -> Value:
        """The digit of a record's key that begins at bit ``shift``."""
        stored = (value >> self.offset).resized(raw_type(self.kind))
        ordered = ordered_bits(fn, self.key, stored, exceptions=self.exceptions)
        if isinstance(shift, Value):
            shift = shift.resized(ordered.type)
        return ((ordered >> shift) & (RADIX - 1)).resized(I64)

    def increment(self, fn: Function, counts: Value, digit: Value) -> Value:
        """Count a digit; gives its count before."""
        type = integer(self.counter)
        address = fn.at(counts, type, digit)
        before = fn.load(type, address)
        fn.store(before + 1, address)
        return before


@dataclass(frozen=True, slots=True)
class CountDigits(ByKey):
    """``void(ptr records, i64 begin, i64 end, i64 shift, ptr counts)``: add to the count of each digit."""

    family: ClassVar[str] = "sort_count"
    parameters: ClassVar[Sequence[Type]] = (PTR, I64, I64, I64, PTR)

    def write(self, fn: Function) -> None:
        """Write its body."""
        records, begin, end, shift, counts = fn.parameters
        with fn.loop(begin, end, hints=UNROLL) as loop:
            self.increment(fn, counts, self.digit(fn, self.load(fn, records, loop.index), shift))


@dataclass(frozen=True, slots=True)
class MoveByDigit(ByKey):
    """``void(ptr source, ptr target, i64 begin, i64 end, i64 shift, ptr positions)``: move records by a digit.

    ``positions`` has, for each digit, the position of the next record with it, and is updated.
    """

    family: ClassVar[str] = "sort_move"
    parameters: ClassVar[Sequence[Type]] = (PTR, PTR, I64, I64, I64, PTR)

    def write(self, fn: Function) -> None:
        """Write its body."""
        source, target, begin, end, shift, positions = fn.parameters
        with fn.loop(begin, end, hints=UNROLL) as loop:
            value = self.load(fn, source, loop.index)
            position = self.increment(fn, positions, self.digit(fn, value, shift))
            store_raw(fn, value, target, position.resized(I64))


@dataclass(frozen=True, slots=True)
class SortRecords(ByKey):
    """``void(ptr source, ptr first, ptr second, i64 count, ptr result)``: sort records, stably.

    The address of the one of the three buffers that has the sorted records is written to ``result``. ``source`` is only
    read, unless it is ``second`` as well, which it is not if there may be exceptions and records are sorted quickly.
    whole: whether a record is its key alone, and has the order of an integer.
    """

    family: ClassVar[str] = "sort_records"
    parameters: ClassVar[Sequence[Type]] = (PTR, PTR, PTR, I64, PTR)

    whole: bool

    def write(self, fn: Function) -> None:
        """Write its body."""
        move = fn.module.function("move_by_digit", VOID, MoveByDigit.parameters, attributes=[NO_INLINE])
        quick = self.whole and has_compress(self.record)
        # Exceptions are made like other keys before records are sorted quickly.
        exceptions = self.exceptions and not quick
        MoveByDigit(self.record, self.offset, self.key, exceptions, self.counter).write(move)

        def call(_: ByKey, *arguments: Value) -> None:
            fn.call(move, VOID, *arguments)

        *buffers, count, result = fn.parameters
        fn.store(buffers[0], result)
        fn.return_if(count < 2)
        digits = [(self, shift) for shift in range(0, 8 * self.kind.byte_width, RADIX_BITS)]
        if not quick:
            fn.store(sort_by_digits(fn, digits, buffers, count, call), result)
            return
        # Partitions and the network are written in vectors already; only few records, or unusual ones, are sorted by
        # digits.
        fn.effort = Effort.TIDY
        source, spare, records = buffers
        type, order = integer(self.record), self._order()
        equal, places = None, []
        if self.exceptions:
            equal = EqualKeys(fn, self.key, order, source, count)
            places = equal.merge(records)
            digits = [(replace(self, exceptions=False), shift) for _, shift in digits]
        else:
            with fn.if_(source.ne(records)):
                fn.copy(records, source, count * type.bytes)

        def by_digits(begin: Value, end: Value) -> None:
            range_records, range_spare = (fn.at(buffer, type, begin) for buffer in (records, spare))
            sorted_records = sort_by_digits(fn, digits, [range_records, range_spare, range_records], end - begin, call)
            with fn.if_(sorted_records.ne(range_records)):
                fn.copy(range_records, sorted_records, (end - begin) * type.bytes)

        fn.store(records, result)
        sort_quickly(fn, order, records, spare, count, by_digits)
        if equal is not None:
            equal.restore(records, places)

    def _order(self) -> Order:
        # The bits of floats are stored in the order of unsigned integers.
        plain = is_unchanged(self.key)
        return Order(self.record, plain and self.kind.is_signed, plain and self.key.descending)


@dataclass(frozen=True, slots=True)
class PackRecords(ByKey):
    """``void(ptr keys, ptr others, i64 begin, i64 end, ptr records, ptr exception)``: make records of some elements.

    Below its key, a record has the element of ``others``, of ``along`` bits; none if that is 0. The byte at
    ``exception`` becomes 1 if a key is an exception.
    """

    family: ClassVar[str] = "sort_pack"
    parameters: ClassVar[Sequence[Type]] = (PTR, PTR, I64, I64, PTR, PTR)

    along: int

    def write(self, fn: Function) -> None:
        """Write its body."""
        keys, payload, begin, end, records, exception = fn.parameters
        with fn.loop(begin, end, independent=True, carried=[fn.constant(I1, 0)], hints=NO_UNROLL) as loop:
            bits = load_raw(fn, self.kind, keys, loop.index)
            record = stored_bits(self.key, bits).resized(integer(self.record)) << self.offset
            if self.along:
                record = record | load_bits(fn, integer(self.along), payload, loop.index).resized(record.type)
            store_raw(fn, record, records, loop.index)
            is_exceptional = is_exception(self.key, bits) if has_exceptions(self.key) else fn.constant(I1, 0)
            loop.next(loop.carried[0] | is_exceptional)
        fn.store(loop.results[0].cast("zext", I8), exception)


@dataclass(frozen=True, slots=True)
class UnpackRecords(ByKey):
    """``void(ptr records, i64 begin, i64 end, ptr keys, ptr others)``: the inverse of PackRecords."""

    family: ClassVar[str] = "sort_unpack"
    parameters: ClassVar[Sequence[Type]] = (PTR, I64, I64, PTR, PTR)

    along: int

    def write(self, fn: Function) -> None:
        """Write its body."""
        records, begin, end, keys, payload = fn.parameters
        with fn.loop(begin, end, independent=True, hints=NO_UNROLL) as loop:
            record = self.load(fn, records, loop.index)
            stored = (record >> self.offset).resized(raw_type(self.kind))
            store_raw(fn, restored_bits(self.key, stored), keys, loop.index)
            if self.along:
                store_raw(fn, record.resized(integer(self.along)), payload, loop.index)


def sort_by_digits(
    fn: Function,
    digits: Sequence[tuple[ByKey, int]],
    buffers: Sequence[Value],
    count: Value,
    move: Callable[..., None],
) -> Value:
    """Write a sort of at least one record by digits, the least significant first; gives the buffer with the result.

    buffers: the records, which are only read unless the third buffer is the same, and two buffers to move them to.
    ``move(by, ..)`` writes a call of MoveByDigit for a key.
    """
    source, first, second = buffers
    key = digits[0][0]
    counter = integer(key.counter)
    counts = fn.alloca(counter, RADIX * len(digits), align=64)
    fn.fill(counts, 0, RADIX * len(digits) * counter.bytes)
    with fn.loop(0, count, hints=NO_UNROLL) as loop:
        value = key.load(fn, source, loop.index)
        for number, (key, shift) in enumerate(digits):
            key.increment(fn, fn.at(counts, counter, RADIX * number), key.digit(fn, value, shift))
    example = key.load(fn, source, fn.i64(0))
    current, following, other = source, first, second
    for number, (key, shift) in enumerate(digits):
        digit_counts = fn.at(counts, counter, RADIX * number)
        alike = fn.load(counter, fn.at(digit_counts, counter, key.digit(fn, example, shift)))
        varied = alike.ne(count.resized(counter))
        with fn.if_(varied):
            _make_positions(fn, digit_counts, counter)
            move(key, current, following, fn.i64(0), count, fn.i64(shift), digit_counts)
        current, following, other = (
            fn.select(varied, following, current),
            fn.select(varied, other, following),
            fn.select(varied, following, other),
        )
    return current


def _make_positions(fn: Function, counts: Value, counter: Type) -> None:
    """Turn the counts of digits into positions: where the first record with each digit goes."""
    with fn.loop(0, RADIX, carried=[fn.constant(counter, 0)], hints=NO_UNROLL) as loop:
        address = fn.at(counts, counter, loop.index)
        number = fn.load(counter, address)
        fn.store(loop.carried[0], address)
        loop.next(loop.carried[0] + number)


@dataclass(frozen=True, slots=True)
class ChunkPositions:
    """``void(ptr counts, i64 chunk, i64 chunks, ptr positions, ptr largest)``: the positions of a chunk's records.

    ``counts`` has the counts of all chunks of a row, COUNTS_BYTES each. The number of records with the most frequent
    digit is stored to ``largest``.
    """

    family: ClassVar[str] = "sort_chunk_positions"
    parameters: ClassVar[Sequence[Type]] = (PTR, I64, I64, PTR, PTR)

    counter: int

    def write(self, fn: Function) -> None:
        """Write its body."""
        all_counts, chunk, count, positions, largest = fn.parameters
        type = integer(self.counter)
        totals = fn.alloca(type, RADIX, align=64)
        for sums in (totals, positions):
            fn.fill(sums, 0, RADIX * type.bytes)
        with fn.loop(0, count, hints=NO_UNROLL) as chunks:
            counts = fn.at(all_counts, I8, chunks.index * COUNTS_BYTES)
            before = (chunks.index < chunk).cast("sext", type)
            with fn.loop(0, RADIX, independent=True, hints=NO_UNROLL) as loop:
                number = fn.load(type, fn.at(counts, type, loop.index))
                for sums, part in ((totals, number), (positions, number & before)):
                    address = fn.at(sums, type, loop.index)
                    fn.store(fn.load(type, address) + part, address)
        none = fn.constant(type, 0)
        with fn.loop(0, RADIX, carried=[none, none], hints=NO_UNROLL) as loop:
            start, most = loop.carried
            total = fn.load(type, fn.at(totals, type, loop.index))
            address = fn.at(positions, type, loop.index)
            fn.store(fn.load(type, address) + start, address)
            loop.next(start + total, fn.select(total > most, total, most))
        fn.store(loop.results[1], largest)
