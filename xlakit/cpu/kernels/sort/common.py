"""The loops of sorts over all elements, as common functions whose code depends only on types, and calls of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar, TypeVar

from xlakit.cpu.kernels.shared import common
from xlakit.cpu.kernels.sort.digits import SortByDigits, counter_type, digits_of
from xlakit.cpu.kernels.sort.equal_keys import EqualKeys
from xlakit.cpu.kernels.sort.keys import (
    has_exceptions,
    is_exception,
    is_unchanged,
    load_bits,
    load_raw,
    raw_type,
    restored_bits,
    store_raw,
    stored_bits,
)
from xlakit.cpu.kernels.sort.quick import Order, sort_quickly, write_networks
from xlakit.cpu.kernels.sort.record import Record
from xlakit.cpu.llvm import I1, I8, I64, PTR, VOID, Effort, Function, Module, Type, Value, integer
from xlakit.cpu.llvm.loop import NO_UNROLL
from xlakit.data.primitive import PrimitiveType
from xlakit.dataclass import dataclass
from xlakit.passes.analysis.sort_order import Part, SortKey

T = TypeVar("T", bound="ByKey")


@dataclass(frozen=True, slots=True)
class ByKey:
    """A common function that reads records of ``record`` bits by one key, whose bits begin at bit ``offset``.

    exceptions: whether there may be keys whose bits do not have the order of the key; False for keys that have none.
    """

    family: ClassVar[str]
    parameters: ClassVar[Sequence[Type]]

    record: int
    offset: int
    key: SortKey
    exceptions: bool

    @classmethod
    def of(cls: type[T], record: Record, key: SortKey, *more: int, exceptions: bool) -> T:
        """The function for a key of a record."""
        field = record.field(key.operand, key.part)
        own = replace(key, operand=0, part=Part.WHOLE)
        return cls(record.bits, field.offset, own, exceptions and has_exceptions(key), *more)

    @property
    def kind(self) -> PrimitiveType:
        """The type of the key."""
        return self.key.kind

    def load(self, fn: Function, records: Value, index: Value) -> Value:
        """A record of an array."""
        return load_bits(fn, integer(self.record), records, index)


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

    ``source`` is not ``second`` if there may be exceptions. Behind the parameters of the other function there are its
    own address and that of :attr:`networks`. Its digits are those of keys without exceptions.
    """

    family: ClassVar[str] = "sort_quickly"
    parameters: ClassVar[Sequence[Type]] = (*SortByDigits.parameters, PTR, PTR)

    @property
    def networks(self) -> SortNetworks:
        """The function that sorts few records, the same one for records with exceptions and without."""
        order = self._order()
        return SortNetworks(order.bits, order.signed, order.descending)

    def write(self, fn: Function) -> None:
        """Write its body."""
        source, spare, records, count, digits, number, result, by_digits, networks = fn.parameters
        fn.store(source, result)
        fn.return_if(count < 2)
        # Partitions are written in vectors already.
        fn.effort = Effort.TIDY
        type, order = integer(self.record), self._order()
        equal, places = None, []
        if self.exceptions:
            # They are made like other keys before records are sorted.
            equal = EqualKeys(fn, self.key, order, source, count)
            places = equal.merge(records)
        else:
            with fn.if_(source.ne(records)):
                fn.copy(records, source, count * type.bytes)

        def in_vain(begin: Value, end: Value) -> None:
            first, second = (fn.at(buffer, type, begin) for buffer in (records, spare))
            fn.call_pointer(by_digits, VOID, first, second, first, end - begin, digits, number, result)
            sorted_records = fn.load(PTR, result)
            with fn.if_(sorted_records.ne(first)):
                fn.copy(first, sorted_records, (end - begin) * type.bytes)

        sort_quickly(fn, order, records, spare, count, networks, in_vain)
        fn.store(records, result)
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


class RecordSorter:
    """Writes calls of the functions that sort records of one layout: in vectors if ``quick``, else by digits."""

    def __init__(self, module: Module, record: Record, length: int, *, quick: bool = False) -> None:
        self.module = module
        self.record = record
        self.quick = quick
        self._by_digits = SortByDigits(record.bits, counter_type(length).bits)

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
        result = fn.alloca(PTR)
        if not self.quick:
            common.call(fn, self._by_digits, source, first, second, count, *self._digits(fn, exception), result)
            return fn.load(PTR, result)

        def call(exceptions: bool) -> None:
            begin = source
            if exceptions and kept is not None:
                fn.copy(kept, source, count * self.record.bytes)
                begin = kept
            (key,) = self.record.keys
            function = SortQuickly.of(self.record, key, exceptions=exceptions)
            digits = self._digits(fn, fn.constant(I1, 0))
            addresses = [fn.address(common.declared(fn.module, f)) for f in (self._by_digits, function.networks)]
            common.call(fn, function, begin, first, second, count, *digits, result, *addresses)

        if exception is None or not self.record.has_exceptions:
            call(self.record.has_exceptions)
        else:
            fn.if_else(exception, lambda: call(True), lambda: call(False))
        return fn.load(PTR, result)

    def _digits(self, fn: Function, exception: Value | None) -> tuple[Value, Value]:
        """The table of digits for records with exceptions or without, and the number of digits."""
        return digits_of(fn, self.record, exception), fn.i64(len(self.record.digits))
