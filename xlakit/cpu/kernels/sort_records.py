"""Code that makes records of elements, takes them apart again, and sorts them by the digits of their keys."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xlakit.cpu.kernels.sort_keys import (
    has_exceptions,
    is_exception,
    load_raw,
    narrowed,
    ordered_bits,
    part_of,
    raw_type,
    restored_bits,
    store_raw,
    stored_bits,
)
from xlakit.cpu.kernels.sort_order import Part, SortKey
from xlakit.cpu.kernels.sort_plan import INDEX, RADIX, Field, Record, SortPlan
from xlakit.cpu.llvm import I1, I32, I64, PTR, VOID, Function, Module, Type, Value, integer
from xlakit.data.primitive import PrimitiveType


def field_of(fn: Function, field: Field, record: Value) -> Value:
    """What a field of a record holds."""
    return narrowed(record >> field.offset, integer(field.bits))


def element_part(fn: Function, record: Record, field: Field, value: Value) -> Value:
    """The bits in memory that a field of a record stands for."""
    key, stored = record.key(field), field_of(fn, field, value)
    return stored if key is None else restored_bits(fn, key, stored)


def make_record(fn: Function, record: Record, element: Callable[[int], Value], index: Value) -> tuple[Value, Value]:
    """The record of one element: ``element(k)`` gives the bits of operand k, ``index`` is its place in the row.

    Also gives whether a key of it is an exception (-0 or NaN) to the order of the record's bits.
    """
    loaded: dict[int, Value] = {}
    exception = fn.constant(I1, 0)
    made = fn.constant(record.type, 0)
    for field in record.fields:
        if field.operand == INDEX:
            bits = narrowed(index, integer(field.bits))
        else:
            if field.operand not in loaded:
                loaded[field.operand] = element(field.operand)
            bits = part_of(fn, field.part, loaded[field.operand])
            key = record.key(field)
            if key is not None:
                if has_exceptions(key):
                    exception = exception | is_exception(fn, key, bits)
                bits = stored_bits(fn, key, bits)
        made = made | (narrowed(bits, record.type) << field.offset)
    return made, exception


def take_apart(
    fn: Function,
    record: Record,
    kinds: Sequence[PrimitiveType],
    value: Value,
    gather: Callable[[int, Value], Value],
    iotas: frozenset[int] = frozenset(),
) -> list[Value]:
    """The bits of each operand's element, from its record; ``gather(k, index)`` gives one that is not in it."""
    index_field = record.field(INDEX)
    index = None if index_field is None else narrowed(field_of(fn, index_field, value), I64)
    found: list[Value] = []
    for operand, kind in enumerate(kinds):
        type = raw_type(kind)
        whole = record.field(operand)
        parts = record.field(operand, Part.REAL), record.field(operand, Part.IMAG)
        if whole is not None:
            found.append(element_part(fn, record, whole, value))
        elif parts[0] is not None and parts[1] is not None:
            real, imag = (narrowed(element_part(fn, record, part, value), type) for part in parts if part)
            found.append(real | (imag << (type.bits // 2)))
        elif index is not None:
            found.append(narrowed(index, type) if operand in iotas else gather(operand, index))
    return found


# The loops that move records gain from several turns at once, all others only from being compiled soon.
_UNROLL = ('"llvm.loop.unroll.count", i32 4',)
NO_UNROLL = ('"llvm.loop.unroll.disable"',)


class RecordSorter:
    """Functions that sort records of one layout; each is written when it is first asked for."""

    def __init__(self, module: Module, record: Record, length: int) -> None:
        self.module = module
        self.record = record
        self.counter: Type = I32 if length < 1 << 31 else I64
        self._functions: dict[object, Function] = {}

    def load(self, fn: Function, records: Value, index: Value) -> Value:
        """A record of an array of them."""
        return load_record(fn, self.record, records, index)

    def digit(self, fn: Function, key: SortKey, value: Value, shift: Value | int, *, exceptions: bool) -> Value:
        """The digit of a record's key that begins at bit ``shift``."""
        field = self.record.field(key.operand, key.part)
        assert field is not None, "a record has the fields of its keys"
        ordered = ordered_bits(fn, key, field_of(fn, field, value), exceptions=exceptions)
        if isinstance(shift, Value):
            shift = narrowed(shift, ordered.type)
        return narrowed((ordered >> shift) & (RADIX - 1), I64)

    def count(self, key: SortKey, *, exceptions: bool) -> Function:
        """``void(ptr records, i64 begin, i64 end, i64 shift, ptr counts)``: add up how often each digit is there."""
        return self._once(("count", key, exceptions), lambda: self._write_count(key, exceptions))

    def _once(self, name: object, write: Callable[[], Function]) -> Function:
        if name not in self._functions:
            self._functions[name] = write()
        return self._functions[name]

    def _write_count(self, key: SortKey, exceptions: bool) -> Function:
        fn = self.module.function("sort_count", VOID, [PTR, I64, I64, I64, PTR], attributes=["noinline"])
        records, begin, end, shift, counts = fn.parameters
        with fn.loop(begin, end, hints=_UNROLL) as loop:
            value = self.load(fn, records, loop.index)
            self._increment(fn, counts, self.digit(fn, key, value, shift, exceptions=exceptions))
        fn.ret()
        return fn

    def scatter(self, key: SortKey, *, exceptions: bool) -> Function:
        """``void(ptr source, ptr target, i64 begin, i64 end, i64 shift, ptr places)``: move each to its digit's place.

        ``places`` says where the next record of each digit goes, and is counted up.
        """
        return self._once(("scatter", key, exceptions), lambda: self._write_scatter(key, exceptions))

    def _write_scatter(self, key: SortKey, exceptions: bool) -> Function:
        fn = self.module.function("sort_scatter", VOID, [PTR, PTR, I64, I64, I64, PTR], attributes=["noinline"])
        source, target, begin, end, shift, places = fn.parameters
        with fn.loop(begin, end, hints=_UNROLL) as loop:
            value = self.load(fn, source, loop.index)
            place = self._increment(fn, places, self.digit(fn, key, value, shift, exceptions=exceptions))
            store_raw(fn, value, target, narrowed(place, I64))
        fn.ret()
        return fn

    def _increment(self, fn: Function, counts: Value, digit: Value) -> Value:
        address = fn.at(counts, self.counter, digit)
        before = fn.load(self.counter, address)
        fn.store(before + 1, address)
        return before

    def places(self, fn: Function, counts: Value, begin: Value) -> None:
        """Make counts of digits places: where the first record with each digit goes."""
        with fn.loop(0, RADIX, carried=[begin], hints=NO_UNROLL) as loop:
            address = fn.at(counts, self.counter, loop.index)
            number = fn.load(self.counter, address)
            fn.store(loop.carried[0], address)
            loop.next(loop.carried[0] + number)

    def sort(self, fn: Function, source: Value, first: Value, second: Value, count: Value, exception: Value) -> Value:
        """Sort records, stably; gives in which of the three buffers they are then.

        ``source`` is only read, unless it is ``second`` as well. ``exception``: whether there is one among the keys.
        """

        def call(exceptions: bool) -> list[Value]:
            function = self._once(("sort", exceptions), lambda: self._write_sort(exceptions))
            return [fn.call(function, PTR, source, first, second, count)]

        if not self.record.has_exceptions:
            return call(False)[0]
        return fn.if_else(exception, lambda: call(True), lambda: call(False))[0]

    def _write_sort(self, exceptions: bool) -> Function:
        fn = self.module.function("sort_records", PTR, [PTR, PTR, PTR, I64], attributes=["noinline"])
        source, first, second, count = fn.parameters
        digits = self.record.digits
        counts = fn.alloca(self.counter, RADIX * len(digits), align=64)
        fn.fill(counts, 0, RADIX * len(digits) * self.counter.bytes)
        fn.return_if(count < 2, source)
        with fn.loop(0, count, hints=NO_UNROLL) as loop:
            value = self.load(fn, source, loop.index)
            for number, (key, shift) in enumerate(digits):
                mine = fn.at(counts, self.counter, RADIX * number)
                self._increment(fn, mine, self.digit(fn, key, value, shift, exceptions=exceptions))
        example = self.load(fn, source, fn.i64(0))
        now, following, other = source, first, second
        for number, (key, shift) in enumerate(digits):
            mine = fn.at(counts, self.counter, RADIX * number)
            digit = self.digit(fn, key, example, shift, exceptions=exceptions)
            alike = fn.load(self.counter, fn.at(mine, self.counter, digit))
            varied = alike.ne(narrowed(count, self.counter))
            with fn.if_(varied):
                self.places(fn, mine, fn.constant(self.counter, 0))
                scatter = self.scatter(key, exceptions=exceptions)
                fn.call(scatter, VOID, now, following, fn.i64(0), count, fn.i64(shift), mine)
            now, following, other = (
                fn.select(varied, following, now),
                fn.select(varied, other, following),
                fn.select(varied, following, other),
            )
        fn.ret(now)
        return fn


def load_record(fn: Function, record: Record, records: Value, index: Value) -> Value:
    """Record ``index`` of an array of them."""
    return fn.load(record.type, fn.at(records, record.type, index), align=min(8, record.bytes))


class Rows:
    """The arrays of a sort as code sees them: element ``index`` of the row that begins at ``base``."""

    def __init__(self, fn: Function, plan: SortPlan, table: Value) -> None:
        self.fn = fn
        self.plan = plan
        count = len(plan.kinds)
        pointers = [fn.load(PTR, fn.at(table, PTR, k), invariant=True) for k in range(2 * count + 1)]
        self.inputs, self.outputs, self.scratch = pointers[:count], pointers[count:-1], pointers[-1]

    def load(self, operand: int, base: Value, index: Value) -> Value:
        """The bits of an element of an operand."""
        if operand in self.plan.iotas:
            return narrowed(index, raw_type(self.plan.kinds[operand]))
        return load_raw(self.fn, self.plan.kinds[operand], self.inputs[operand], base + index * self.plan.inner)

    def store(self, operand: int, bits: Value, base: Value, index: Value) -> None:
        """Write an element of a result."""
        store_raw(self.fn, bits, self.outputs[operand], base + index * self.plan.inner)

    def record(self, record: Record, base: Value, index: Value) -> tuple[Value, Value]:
        """The record of an element, and whether it has an exception among its keys."""
        return make_record(self.fn, record, lambda k: self.load(k, base, index), index)

    def unpack(self, record: Record, value: Value, base: Value, index: Value) -> None:
        """Write the element that a record stands for as element ``index`` of the results."""
        plan = self.plan
        found = take_apart(self.fn, record, plan.kinds, value, lambda k, i: self.load(k, base, i), plan.iotas)
        for operand, bits in enumerate(found):
            self.store(operand, bits, base, index)
