"""Sorts by digits, as common functions that depend on nothing but the width of a record: its digits are a table.

Most digits are a byte of the record in memory, with some bits inverted. A table says what else there is:

    types of a byte or less     a map from the byte to the digit
    floats with exceptions      the byte, but for -0, which has the digits of 0, and NaNs, which have those of an end
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import ClassVar, Final

import numpy as np

from xlakit.cpu.kernels.sort import keys
from xlakit.cpu.kernels.sort.record import COUNTS_BYTES, RADIX, RADIX_BITS, Record
from xlakit.cpu.llvm import I1, I8, I32, I64, PTR, Effort, Function, Type, Value, integer
from xlakit.cpu.llvm.loop import NO_UNROLL
from xlakit.data.primitive import PrimitiveType
from xlakit.dataclass import dataclass
from xlakit.passes.analysis.sort_order import NanOrder, SortKey

# So many digits are counted together: counts of one digit wait for each other where all records have the same.
_TOGETHER: Final = 4
# A record has keys of up to 64 bits.
_MOST_DIGITS: Final = 64 // RADIX_BITS
# Records that are moved in an iteration: each takes a few instructions, as many as the loop.
_MOVED: Final = 4


class Form(IntEnum):
    """How a digit is read."""

    BYTE = 0  # a byte of the record, with some bits inverted
    MAPPED = 1  # what a map has for that byte
    FLOAT = 2  # a byte of a float among which there are exceptions


class Word(IntEnum):
    """The words of a digit in a table."""

    FORM = 0
    BYTE = 1  # which byte of the record it is
    INVERTED = 2  # the bits of that byte that are inverted
    MAP = 3  # where the map is, in bytes from the begin of the digit
    # Of floats: the first bit of the key in the record, all of its bits, the bits of -0 and the digit of 0, the first
    # bits of NaNs, the number of NaNs, and their digit.
    SHIFT = 4
    MASK = 5
    NEGATIVE_ZERO = 6
    ZERO_DIGIT = 7
    NANS = 8
    NUMBER_OF_NANS = 9
    NAN_DIGIT = 10


_WORDS: Final = 11


# -- tables ----------------------------------------------------------------------------------------


def digits_of(fn: Function, record: Record, exception: Value | None) -> Value:
    """The table of a record's digits, the least significant first.

    ``exception``: whether one of the keys is an exception; without it, some may be.
    """
    if not record.has_exceptions:
        return _table(fn, record, exceptions=False)
    some = _table(fn, record, exceptions=True)
    return some if exception is None else fn.select(exception, some, _table(fn, record, exceptions=False))


def _table(fn: Function, record: Record, *, exceptions: bool) -> Value:
    digits = record.digits
    words = np.zeros((len(digits), _WORDS), np.uint64)
    maps = b""
    for own, (key, shift) in zip(words, digits, strict=True):
        offset = record.field(key.operand, key.part).offset
        own[Word.BYTE] = (offset + shift) // 8
        if keys.is_unchanged(key) and (key.kind.is_floating or keys.width_of(key.kind) < 8):
            own[Word.FORM] = Form.MAPPED
            own[Word.MAP] = words.nbytes + len(maps) - (own.ctypes.data - words.ctypes.data)
            maps += bytes(_small_order(key, bits) for bits in range(RADIX))
        elif keys.is_unchanged(key):
            is_top = shift + RADIX_BITS == key.kind.bit_width
            own[Word.INVERTED] = (0x80 if is_top and key.kind.is_signed else 0) ^ (0xFF if key.descending else 0)
        elif exceptions and keys.has_exceptions(key):
            _set_exceptions(own, key, offset, shift)
    data = words.tobytes() + maps
    return fn.address(fn.module.shared_data(f"digits_{hashlib.sha256(data).hexdigest()[:16]}", data))


def _set_exceptions(words: np.ndarray, key: SortKey, offset: int, shift: int) -> None:
    """Set the words of a digit of floats."""
    top = 1 << (key.kind.bit_width - 1)
    words[Word.FORM], words[Word.SHIFT], words[Word.MASK] = Form.FLOAT, offset, 2 * top - 1
    # If zeros are not equal, -0 has its own digit, and if NaNs are not, none is found.
    words[Word.NEGATIVE_ZERO] = top - 1
    words[Word.ZERO_DIGIT] = ((top if key.zeros_equal else top - 1) >> shift) & (RADIX - 1)
    if key.nan is not NanOrder.BITS:
        # They are at both ends of the order of bits, next to each other where these wrap around.
        payloads = top - 1 - keys.largest_magnitude(key.kind)
        words[Word.NANS], words[Word.NUMBER_OF_NANS] = 2 * top - payloads, 2 * payloads
        words[Word.NAN_DIGIT] = RADIX - 1 if keys.nans_are_last(key) else 0


def _small_order(key: SortKey, bits: int) -> int:
    """The place of a byte's bits among those of a type of a byte or less; unused bits do not matter."""
    kind = key.kind
    top = 1 << (keys.width_of(kind) - 1)
    bits &= 2 * top - 1
    place = bits
    if kind.is_signed:
        place = bits ^ top
    elif kind is PrimitiveType.F8E8M0FNU:
        # This type has no sign, and all ones for NaN: adding one to each wraps NaN around to the lowest.
        place = bits + 1 if key.nan is NanOrder.LOW else bits
    elif kind.is_floating:
        place = _order_of_float(key, bits, top)
    return (place % (2 * top)) ^ (2 * top - 1 if key.descending else 0)


def _order_of_float(key: SortKey, bits: int, top: int) -> int:
    is_negative = bits >= top
    ordered = bits ^ (2 * top - 1) if is_negative else bits ^ top
    end = 2 * top - 1 if key.nan is NanOrder.HIGH else 0
    if key.kind.has_nan_for_negative_zero:
        # The bits of -0 are NaN, and are between the negative and the other numbers. One of these sides moves by one to
        # that place, which leaves room for NaN at its other end.
        if bits == top:
            return end
        return ordered - (not is_negative) if key.nan is NanOrder.HIGH else ordered + is_negative
    if key.nan is not NanOrder.BITS and bits & (top - 1) > keys.largest_magnitude(key.kind):
        return end
    return ordered + (key.zeros_equal and ordered == top - 1)


# -- functions -------------------------------------------------------------------------------------


def counter_type(length: int) -> Type:
    """The type of counts of the records of a row."""
    return I32 if length < 1 << 31 else I64


@dataclass(frozen=True, slots=True)
class ByDigit:
    """A common function for records of ``record`` bits, of which counts have ``counter`` bits."""

    family: ClassVar[str]
    parameters: ClassVar[Sequence[Type]]

    record: int
    counter: int

    @property
    def count_type(self) -> Type:
        """The type of a count."""
        return integer(self.counter)

    def digit(self, fn: Function, table: Value, number: Value | int) -> Value:
        """The address of a digit in a table."""
        return fn.at(table, I64, number * _WORDS)

    def by_form(self, fn: Function, digit: Value, write: Callable[[Form], Sequence[Value]]) -> Sequence[Value]:
        """Write code for each form of a digit, which gives values of the same types."""
        form = _word(fn, digit, Word.FORM)

        def other() -> Sequence[Value]:
            is_mapped = form.eq(int(Form.MAPPED))
            return fn.if_else(is_mapped, lambda: write(Form.MAPPED), lambda: write(Form.FLOAT))

        return fn.if_else(form.eq(int(Form.BYTE)), lambda: write(Form.BYTE), other)

    def reader(self, fn: Function, records: Value, digit: Value, form: Form) -> Callable[[Value], Value]:
        """Load what a digit is; gives what writes the digit of the record at an index."""
        type = integer(self.record)
        bytes = fn.at(records, I8, _word(fn, digit, Word.BYTE))

        def byte(index: Value) -> Value:
            return fn.load(I8, fn.at(bytes, type, index)).resized(I64)

        if form is Form.BYTE:
            inverted = _word(fn, digit, Word.INVERTED)
            return lambda index: byte(index) ^ inverted
        if form is Form.MAPPED:
            map = fn.at(digit, I8, _word(fn, digit, Word.MAP))
            return lambda index: fn.load(I8, fn.at(map, I8, byte(index))).resized(I64)
        word = {w: _word(fn, digit, w) for w in Word}

        def of_float(index: Value) -> Value:
            value = keys.load_bits(fn, type, records, index)
            if self.record < 64:
                value = value.resized(I64)
            key = (value >> word[Word.SHIFT].resized(value.type)).resized(I64) & word[Word.MASK]
            is_nan = ((key - word[Word.NANS]) & word[Word.MASK]).compare("ult", word[Word.NUMBER_OF_NANS])
            number = fn.select(key.eq(word[Word.NEGATIVE_ZERO]), word[Word.ZERO_DIGIT], byte(index))
            return fn.select(is_nan, word[Word.NAN_DIGIT], number)

        return of_float

    def increment(self, fn: Function, counts: Value, digit: Value) -> Value:
        """Count a digit; gives its count before."""
        address = fn.at(counts, self.count_type, digit)
        before = fn.load(self.count_type, address)
        fn.store(before + 1, address)
        return before

    def write_histogram(
        self, fn: Function, records: Value, begin: Value, end: Value, digit: Value, counts: Value
    ) -> None:
        """Write the loop that adds to the count of each digit."""

        def count(form: Form) -> Sequence[Value]:
            read = self.reader(fn, records, digit, form)
            with fn.loop(begin, end, hints=NO_UNROLL) as loop:
                self.increment(fn, counts, read(loop.index))
            return ()

        self.by_form(fn, digit, count)

    def write_move(
        self, fn: Function, buffers: Sequence[Value], begin: Value, end: Value, digit: Value, positions: Value
    ) -> None:
        """Write the loop that moves records of the first buffer to the second one by a digit.

        ``positions`` has, for each digit, the position of the next record with it, and is updated.
        """
        source, target = buffers
        type = integer(self.record)

        def move(form: Form) -> Sequence[Value]:
            read = self.reader(fn, source, digit, form)
            together = _MOVED if form is Form.BYTE else 1
            whole = end - ((end - begin) & (together - 1))
            for first, last, step in ((begin, whole, together), (whole, end, 1))[: min(together, 2)]:
                with fn.loop(first, last, step, hints=NO_UNROLL) as loop:
                    for number in range(step):
                        index = loop.index + number
                        value = keys.load_bits(fn, type, source, index)
                        position = self.increment(fn, positions, read(index))
                        keys.store_raw(fn, value, target, position.resized(I64))
            return ()

        self.by_form(fn, digit, move)


@dataclass(frozen=True, slots=True)
class CountDigits(ByDigit):
    """``void(ptr records, i64 begin, i64 end, ptr digit, ptr counts)``: add to the count of each digit."""

    family: ClassVar[str] = "sort_count"
    parameters: ClassVar[Sequence[Type]] = (PTR, I64, I64, PTR, PTR)

    def write(self, fn: Function) -> None:
        """Write its body."""
        fn.effort = Effort.TIDY
        self.write_histogram(fn, *fn.parameters)


@dataclass(frozen=True, slots=True)
class MoveByDigit(ByDigit):
    """``void(ptr source, ptr target, i64 begin, i64 end, ptr digit, ptr positions)``: move records by a digit."""

    family: ClassVar[str] = "sort_move"
    parameters: ClassVar[Sequence[Type]] = (PTR, PTR, I64, I64, PTR, PTR)

    def write(self, fn: Function) -> None:
        """Write its body."""
        fn.effort = Effort.TIDY
        source, target, *others = fn.parameters
        self.write_move(fn, (source, target), *others)


@dataclass(frozen=True, slots=True)
class SortByDigits(ByDigit):
    """``void(ptr source, ptr first, ptr second, i64 count, ptr digits, i64 number, ptr result)``: sort records, stably.

    ``digits`` is a table of ``number`` digits. The address of the one of the three buffers that has the sorted records
    is written to ``result``. ``source`` is only read, unless it is ``second`` as well.
    """

    family: ClassVar[str] = "sort_by_digits"
    parameters: ClassVar[Sequence[Type]] = (PTR, PTR, PTR, I64, PTR, I64, PTR)

    def write(self, fn: Function) -> None:
        """Write its body."""
        fn.effort = Effort.TIDY
        *buffers, count, digits, number, result = fn.parameters
        fn.store(buffers[0], result)
        fn.return_if(count < 2)
        counts = fn.alloca(self.count_type, RADIX * _MOST_DIGITS, align=64)
        self._count(fn, buffers[0], count, digits, number, counts)
        with fn.loop(0, number, carried=buffers, hints=NO_UNROLL) as loop:
            loop.next(*self._pass(fn, loop.carried, loop.index, count, digits, counts))
        fn.store(loop.results[0], result)

    def _pass(
        self, fn: Function, buffers: Sequence[Value], number: Value, count: Value, digits: Value, counts: Value
    ) -> Sequence[Value]:
        """Move the records of the first buffer to the second one by a digit, unless all have the same.

        Gives the buffers in the order in which the next pass has them.
        """
        current, following, other = buffers
        digit, own = self.digit(fn, digits, number), fn.at(counts, self.count_type, number * RADIX)
        (example,) = self.by_form(fn, digit, lambda form: [self.reader(fn, current, digit, form)(fn.i64(0))])
        alike = fn.load(self.count_type, fn.at(own, self.count_type, example))

        def moved() -> list[Value]:
            self._make_positions(fn, own)
            self.write_move(fn, (current, following), fn.i64(0), count, digit, own)
            return [following, other, following]

        return fn.if_else(alike.ne(count.resized(self.count_type)), moved, lambda: [current, following, other])

    def _count(self, fn: Function, records: Value, count: Value, digits: Value, number: Value, counts: Value) -> None:
        """Count all digits: bytes together, then those that are left over or no bytes, one by one."""
        with fn.loop(0, number & -_TOGETHER, _TOGETHER, hints=NO_UNROLL) as group:
            self._count_bytes(fn, records, count, digits, group.index, _TOGETHER, counts)
        with fn.if_((number & 2).ne(0)):
            self._count_bytes(fn, records, count, digits, number & -_TOGETHER, 2, counts)
        with fn.loop(0, number, hints=NO_UNROLL) as loop:
            digit = self.digit(fn, digits, loop.index)
            with fn.if_(_word(fn, digit, Word.FORM).ne(int(Form.BYTE)) | (loop.index >= (number & -2))):
                own = fn.at(counts, self.count_type, loop.index * RADIX)
                fn.fill(own, 0, RADIX * self.count_type.bytes)
                self.write_histogram(fn, records, fn.i64(0), count, digit, own)

    def _count_bytes(
        self, fn: Function, records: Value, count: Value, digits: Value, first: Value, number: int, counts: Value
    ) -> None:
        """Count ``number`` digits, of which some are bytes; the counts of others do not matter."""
        own = fn.at(counts, self.count_type, first * RADIX)
        fn.fill(own, 0, number * RADIX * self.count_type.bytes)
        together = [self.digit(fn, digits, first + n) for n in range(number)]
        some = fn.constant(I1, 0)
        for digit in together:
            some = some | _word(fn, digit, Word.FORM).eq(int(Form.BYTE))
        with fn.if_(some):
            readers = [self.reader(fn, records, digit, Form.BYTE) for digit in together]
            with fn.loop(0, count, hints=NO_UNROLL) as loop:
                for n, read in enumerate(readers):
                    self.increment(fn, fn.at(own, self.count_type, RADIX * n), read(loop.index))

    def _make_positions(self, fn: Function, counts: Value) -> None:
        """Turn the counts of digits into positions: where the first record with each digit goes."""
        with fn.loop(0, RADIX, carried=[fn.constant(self.count_type, 0)], hints=NO_UNROLL) as loop:
            before = loop.carried[0]
            address = fn.at(counts, self.count_type, loop.index)
            number = fn.load(self.count_type, address)
            fn.store(before, address)
            loop.next(before + number)


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


def _word(fn: Function, digit: Value, word: Word) -> Value:
    return fn.load(I64, fn.at(digit, I64, int(word)))
