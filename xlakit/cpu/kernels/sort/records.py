"""Code that makes records of elements, unpacks them, and sorts them by the digits of their keys."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xlakit.cpu.kernels.shared import common
from xlakit.cpu.kernels.sort.common import CountDigits, MoveByDigit, SortRecords, sort_by_digits
from xlakit.cpu.kernels.sort.keys import (
    has_exceptions,
    is_exception,
    load_raw,
    part_of,
    raw_type,
    restored_bits,
    store_raw,
    stored_bits,
)
from xlakit.cpu.kernels.sort.plan import INDEX, Field, Record, SortPlan
from xlakit.cpu.llvm import I1, I32, I64, PTR, Function, Module, Type, Value, integer
from xlakit.cpu.llvm.promises import NO_INLINE
from xlakit.data.primitive import PrimitiveType
from xlakit.passes.analysis.sort_order import Part, SortKey


def field_of(field: Field, record: Value) -> Value:
    """The contents of a field of a record."""
    return (record >> field.offset).resized(integer(field.bits))


def element_part(fn: Function, record: Record, field: Field, value: Value) -> Value:
    """The bits in memory of the element (or part) that a field of a record has."""
    key, stored = record.key(field), field_of(field, value)
    return stored if key is None else restored_bits(key, stored)


def make_record(fn: Function, record: Record, element: Callable[[int], Value], index: Value) -> tuple[Value, Value]:
    """The record of one element: ``element(k)`` gives the bits of operand k, ``index`` is its position in the row.

    Also gives whether one of its keys is an exception (-0 or NaN) to the order of the record's bits.
    """
    loaded: dict[int, Value] = {}
    exception = fn.constant(I1, 0)
    value = fn.constant(record.type, 0)
    for field in record.fields:
        if field.operand == INDEX:
            bits = index.resized(integer(field.bits))
        else:
            if field.operand not in loaded:
                loaded[field.operand] = element(field.operand)
            bits = part_of(field.part, loaded[field.operand])
            key = record.key(field)
            if key is not None:
                if has_exceptions(key):
                    exception = exception | is_exception(key, bits)
                bits = stored_bits(key, bits)
        value = value | (bits.resized(record.type) << field.offset)
    return value, exception


def unpack(
    fn: Function,
    record: Record,
    kinds: Sequence[PrimitiveType],
    value: Value,
    gather: Callable[[int, Value], Value],
) -> list[Value]:
    """The bits of each operand's element, from its record; ``gather(k, index)`` gives an element that is not in it."""
    index_field = record.find_field(INDEX)
    index = None if index_field is None else field_of(index_field, value).resized(I64)
    elements: list[Value] = []
    for operand, kind in enumerate(kinds):
        type = raw_type(kind)
        whole = record.find_field(operand)
        parts = record.find_field(operand, Part.REAL), record.find_field(operand, Part.IMAG)
        if whole is not None:
            elements.append(element_part(fn, record, whole, value))
        elif parts[0] is not None and parts[1] is not None:
            real, imag = (element_part(fn, record, part, value).resized(type) for part in parts if part)
            elements.append(real | (imag << (type.bits // 2)))
        elif index is not None:
            elements.append(gather(operand, index))
    return elements


class RecordSorter:
    """Calls the functions that sort records of one layout."""

    def __init__(self, module: Module, record: Record, length: int) -> None:
        self.module = module
        self.record = record
        self.counter: Type = I32 if length < 1 << 31 else I64
        self._sorts: dict[bool, Function] = {}

    def count(self, fn: Function, key: SortKey, *arguments: Value, exceptions: bool) -> None:
        """Write a call of CountDigits."""
        common.call(fn, CountDigits.of(self.record, key, exceptions=exceptions, counter=self.counter), *arguments)

    def move(self, fn: Function, key: SortKey, *arguments: Value, exceptions: bool) -> None:
        """Write a call of MoveByDigit."""
        common.call(fn, self._mover(key, exceptions), *arguments)

    def _mover(self, key: SortKey, exceptions: bool) -> MoveByDigit:
        return MoveByDigit.of(self.record, key, exceptions=exceptions, counter=self.counter)

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

        if exception is None or not self.record.has_exceptions:
            return call(self.record.has_exceptions)[0]
        return fn.if_else(exception, lambda: call(True), lambda: call(False))[0]

    def _sorted(self, fn: Function, exceptions: bool, *arguments: Value) -> Value:
        if len(self.record.keys) == 1:
            (key,) = self.record.keys
            result = fn.alloca(PTR)
            function = SortRecords.of(
                self.record, key, self.record.is_whole, exceptions=exceptions, counter=self.counter
            )
            common.call(fn, function, *arguments, result)
            return fn.load(PTR, result)
        if exceptions not in self._sorts:
            self._sorts[exceptions] = self._write_sort(exceptions)
        return fn.call(self._sorts[exceptions], PTR, *arguments)

    def _write_sort(self, exceptions: bool) -> Function:
        """``ptr(ptr source, ptr first, ptr second, i64 count)``, for records of several keys."""
        fn, *buffers, count = self.module.begin("sort_records", PTR, [PTR, PTR, PTR, I64], attributes=[NO_INLINE])
        fn.return_if(count < 2, buffers[0])
        digits = [(self._mover(key, exceptions), shift) for key, shift in self.record.digits]
        fn.ret(sort_by_digits(fn, digits, buffers, count, lambda by, *given: common.call(fn, by, *given)))
        return fn


class Rows:
    """The arrays of a sort as the code accesses them: element ``index`` of the row that begins at ``base``."""

    def __init__(self, fn: Function, plan: SortPlan, table: Value) -> None:
        self.fn = fn
        self.plan = plan
        count = len(plan.kinds)
        pointers = [fn.pointer(table, k) for k in range(2 * count + 1)]
        self.inputs, self.outputs, self.scratch = pointers[:count], pointers[count:-1], pointers[-1]

    def load(self, operand: int, base: Value, index: Value) -> Value:
        """The bits of an element of an operand."""
        return load_raw(self.fn, self.plan.kinds[operand], self.inputs[operand], base + index * self.plan.inner)

    def store(self, operand: int, bits: Value, base: Value, index: Value) -> None:
        """Write an element of a result."""
        store_raw(self.fn, bits, self.outputs[operand], base + index * self.plan.inner)

    def record(self, record: Record, base: Value, index: Value) -> tuple[Value, Value]:
        """The record of an element, and whether one of its keys is an exception."""
        return make_record(self.fn, record, lambda k: self.load(k, base, index), index)

    def unpack(self, record: Record, value: Value, base: Value, index: Value) -> None:
        """Write the element of a record as element ``index`` of the results."""
        plan = self.plan
        elements = unpack(self.fn, record, plan.kinds, value, lambda k, i: self.load(k, base, i))
        for operand, bits in enumerate(elements):
            self.store(operand, bits, base, index)
