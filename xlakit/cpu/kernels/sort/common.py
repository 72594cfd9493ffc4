"""The loops of sorts over all elements, as common functions whose code depends only on types, and calls of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import ClassVar, TypeVar

from xlakit.cpu.kernels.shared import common
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
from xlakit.cpu.kernels.sort.quick import Order, sort_quickly, write_networks
from xlakit.cpu.kernels.sort.record import COUNTS_BYTES, RADIX, RADIX_BITS, Record
from xlakit.cpu.llvm import I1, I8, I32, I64, PTR, VOID, Effort, Function, Module, Type, Value, integer
from xlakit.cpu.llvm.loop import NO_UNROLL
from xlakit.cpu.llvm.promises import NO_INLINE
from xlakit.data.primitive import PrimitiveType
from xlakit.dataclass import dataclass
from xlakit.passes.analysis.sort_order import Part, SortKey

# Loops that count or move records gain from unrolling; most others do not, and stay rolled to be compiled fast.
UNROLL = ('"llvm.loop.unroll.count", i32 4',)

T = TypeVar("T", bound="ByKey")


def counter_type(length: int) -> Type:
    """The type of counts of the records of a row."""
    return I32 if length < 1 << 31 else I64


@dataclass(frozen=True, slots=True)
class ByKey:
    """A common function that reads records of ``record`` bits by one key, whose bits begin at bit ``offset``.

    exceptions: whether there may be keys whose bits do not have the order of the key; False for keys that have none.
    counter: the bits of a count of records.
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
        return cls(record.bits, field.offset, own, exceptions and has_exceptions(key), counter.bits, *more)

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
class SortByDigits(ByKey):
    """``void(ptr source, ptr first, ptr second, i64 count, ptr result)``: sort records, stably.

    The address of the one of the three buffers that has the sorted records is written to ``result``. ``source`` is only
    read, unless it is ``second`` as well.
    """

    family: ClassVar[str] = "sort_by_digits"
    parameters: ClassVar[Sequence[Type]] = (PTR, PTR, PTR, I64, PTR)

    def write(self, fn: Function) -> None:
        """Write its body."""
        move = self.write_move(fn.module)
        *buffers, count, result = fn.parameters
        fn.store(buffers[0], result)
        fn.return_if(count < 2)
        fn.store(sort_by_digits(fn, self.digits, buffers, count, move), result)

    def write_move(self, module: Module) -> Callable[..., None]:
        """Write the function that moves records by a digit of this key; gives what writes a call of it."""
        move = module.function("move_by_digit", VOID, MoveByDigit.parameters, attributes=[NO_INLINE])
        MoveByDigit(self.record, self.offset, self.key, self.exceptions, self.counter).write(move)
        return lambda fn, _, *arguments: fn.call(move, VOID, *arguments)

    @property
    def digits(self) -> list[tuple[ByKey, int]]:
        """The digits to sort by, the least significant first: the key, and the number of its bits below the digit."""
        return [(self, shift) for shift in range(0, 8 * self.kind.byte_width, RADIX_BITS)]


@dataclass(frozen=True, slots=True)
class SortNetworks:
    """``void(ptr records, i64 number)``: sort as few records as a network takes, in place."""

    family: ClassVar[str] = "sort_networks"
    parameters: ClassVar[Sequence[Type]] = (PTR, I64)

    bits: int
    signed: bool
    descending: bool

    def write(self, fn: Function) -> None:
        """Write its body."""
        fn.effort = Effort.TIDY
        write_networks(fn, Order(self.bits, self.signed, self.descending), *fn.parameters)


@dataclass(frozen=True, slots=True)
class SortQuickly(ByKey):
    """As :class:`SortByDigits`, in vectors: for records that are a key alone, and have the order of an integer.

    ``source`` is not ``second`` if there may be exceptions. Behind the parameters of the other function there is the
    address of :attr:`networks`, which takes longer to compile than the rest.
    """

    family: ClassVar[str] = "sort_quickly"
    parameters: ClassVar[Sequence[Type]] = (*SortByDigits.parameters, PTR)

    @property
    def networks(self) -> SortNetworks:
        """The function that sorts few records, the same one for records with exceptions and without."""
        order = self._order()
        return SortNetworks(order.bits, order.signed, order.descending)

    def write(self, fn: Function) -> None:
        """Write its body."""
        # Exceptions are made like other keys before records are sorted.
        digits = SortByDigits(self.record, self.offset, self.key, exceptions=False, counter=self.counter)
        move = digits.write_move(fn.module)
        source, spare, records, count, result, networks = fn.parameters
        fn.store(source, result)
        fn.return_if(count < 2)
        # Partitions are written in vectors already; only few records, or unusual ones, are sorted by
        # digits.
        fn.effort = Effort.TIDY
        type, order = integer(self.record), self._order()
        equal, places = None, []
        if self.exceptions:
            equal = EqualKeys(fn, self.key, order, source, count)
            places = equal.merge(records)
        else:
            with fn.if_(source.ne(records)):
                fn.copy(records, source, count * type.bytes)

        def by_digits(begin: Value, end: Value) -> None:
            range_records, range_spare = (fn.at(buffer, type, begin) for buffer in (records, spare))
            buffers = [range_records, range_spare, range_records]
            sorted_records = sort_by_digits(fn, digits.digits, buffers, end - begin, move)
            with fn.if_(sorted_records.ne(range_records)):
                fn.copy(range_records, sorted_records, (end - begin) * type.bytes)

        fn.store(records, result)
        sort_quickly(fn, order, records, spare, count, networks, by_digits)
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
    ``move(fn, by, ..)`` writes a call of MoveByDigit for a key.
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
            move(fn, key, current, following, fn.i64(0), count, fn.i64(shift), digit_counts)
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


class RecordSorter:
    """Writes calls of the functions that sort records of one layout: in vectors if ``quick``, else by digits."""

    def __init__(self, module: Module, record: Record, length: int, *, quick: bool = False) -> None:
        self.module = module
        self.record = record
        self.counter = counter_type(length)
        self._of_one_key: type[SortQuickly] | type[SortByDigits] = SortQuickly if quick else SortByDigits
        self._of_keys: Function | None = None

    def sort(
        self,
        fn: Function,
        source: Value,
        first: Value,
        second: Value,
        count: Value,
        exception: Value | None = None,
        kept: Value | None = None,
    ) -> Value:
        """Sort records, stably; gives the one of the three buffers that has them afterwards.

        ``source`` is only read, unless it is ``second`` as well. ``exception``: whether one of the keys is an
        exception; without it, some may be. ``kept``: where records that are sorted quickly are kept as they are, for
        those that have exceptions.
        """

        def call(exceptions: bool) -> list[Value]:
            begin = source
            if exceptions and kept is not None:
                fn.copy(kept, source, count * self.record.bytes)
                begin = kept
            return [self._sorted(fn, exceptions, begin, first, second, count)]

        if exception is None or not self.record.has_exceptions or len(self.record.keys) > 1:
            return call(self.record.has_exceptions)[0]
        return fn.if_else(exception, lambda: call(True), lambda: call(False))[0]

    def _sorted(self, fn: Function, exceptions: bool, *arguments: Value) -> Value:
        if len(self.record.keys) == 1:
            (key,) = self.record.keys
            result = fn.alloca(PTR)
            function = self._of_one_key.of(self.record, key, exceptions=exceptions, counter=self.counter)
            networks = (
                [fn.address(common.declared(fn.module, function.networks))] if isinstance(function, SortQuickly) else []
            )
            common.call(fn, function, *arguments, result, *networks)
            return fn.load(PTR, result)
        self._of_keys = self._of_keys or self._write_sort(exceptions)
        return fn.call(self._of_keys, PTR, *arguments)

    def _write_sort(self, exceptions: bool) -> Function:
        """``ptr(ptr source, ptr first, ptr second, i64 count)``, for records of several keys.

        There is one for all rows: one for those without exceptions takes as long to run.
        """
        fn, *buffers, count = self.module.begin("sort_records", PTR, [PTR, PTR, PTR, I64], attributes=[NO_INLINE])
        # The loop that counts does not gain from LLVM's own passes; those that move records are common functions.
        fn.effort = Effort.TIDY
        fn.return_if(count < 2, buffers[0])
        digits = [
            (MoveByDigit.of(self.record, key, exceptions=exceptions, counter=self.counter), shift)
            for key, shift in self.record.digits
        ]
        fn.ret(sort_by_digits(fn, digits, buffers, count, common.call))
        return fn
