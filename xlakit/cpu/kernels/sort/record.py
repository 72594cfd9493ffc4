"""The records of a sort: integers that are moved instead of elements, with the keys as their high bits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from xlakit.cpu.kernels.sort.keys import (
    has_exceptions,
    is_exception,
    is_unchanged,
    part_of,
    raw_type,
    restored_bits,
    stored_bits,
)
from xlakit.cpu.llvm import I1, I64, Function, Type, Value, integer
from xlakit.data.primitive import PrimitiveType
from xlakit.dataclass import dataclass
from xlakit.errors import InternalError
from xlakit.passes.analysis.sort_order import KeyOrder, Part, SortKey

RADIX_BITS = 8
RADIX = 1 << RADIX_BITS
# The memory of a chunk's counts of digits.
COUNTS_BYTES = 8 * RADIX


class Field(NamedTuple):
    """Bits of a record: of an operand's element (or of a part of it), or of the element's position in its row."""

    operand: int  # INDEX for the position in the row
    part: Part
    offset: int
    bits: int


INDEX = -1


@dataclass(frozen=True, slots=True)
class Record:
    """One integer that is moved instead of an element: its keys are the high bits, other fields the low ones."""

    bits: int
    fields: tuple[Field, ...]
    keys: KeyOrder  # the most significant one first

    @property
    def type(self) -> Type:
        """The integer type."""
        return integer(self.bits)

    @property
    def bytes(self) -> int:
        """The size of a record in memory."""
        return self.bits // 8

    def find_field(self, operand: int, part: Part = Part.WHOLE) -> Field | None:
        """The field of an operand's part, if the record has it."""
        return next((f for f in self.fields if (f.operand, f.part) == (operand, part)), None)

    def field(self, operand: int, part: Part = Part.WHOLE) -> Field:
        """The field of an operand's part, which the record must have."""
        field = self.find_field(operand, part)
        if field is None:
            raise InternalError(f"a record of {self.bits} bits has no field of operand {operand} ({part.name})")
        return field

    def key(self, field: Field) -> SortKey | None:
        """The key whose bits a field has."""
        return next((k for k in self.keys if (k.operand, k.part) == (field.operand, field.part)), None)

    @property
    def has_exceptions(self) -> bool:
        """Whether some values of its keys have bits in another order than the keys."""
        return any(has_exceptions(k) for k in self.keys)

    @property
    def is_whole(self) -> bool:
        """Whether a record is a key and nothing else, and has the order of an integer unless it is an exception.

        Equal records then have the same bits, so that a sort that exchanges them is stable too.
        """
        key, *others = self.keys
        alone = not others and len(self.fields) == 1 and key.part is Part.WHOLE and self.bits == 8 * key.kind.byte_width
        return alone and (not is_unchanged(key) or (not key.kind.is_floating and key.kind.bit_width == self.bits))

    @property
    def digits(self) -> list[tuple[SortKey, int]]:
        """The digits to sort by, the least significant first: a key, and the number of its bits below the digit."""
        digits: list[tuple[SortKey, int]] = []
        for key in reversed(self.keys):
            digits.extend((key, shift) for shift in range(0, 8 * key.kind.byte_width, RADIX_BITS))
        return digits


def carried(record: Record, operand: int, kind: PrimitiveType) -> bool:
    """Whether a record has an operand's whole element."""
    if kind.is_complex and record.find_field(operand, Part.REAL):
        return record.find_field(operand, Part.IMAG) is not None
    return record.find_field(operand) is not None


def layouts_of(order: KeyOrder | None, kinds: Sequence[PrimitiveType], length: int) -> tuple[Record, ...]:
    """The records to sort by, first those of the least significant keys; a layout has keys of up to 64 bits."""
    if order is None:
        return ()
    groups: list[list[SortKey]] = [[]]
    for key in order:
        widths = {(k.operand, k.part): 8 * k.kind.byte_width for k in (*groups[-1], key)}
        if groups[-1] and sum(widths.values()) > 64:
            groups.append([])
        groups[-1].append(key)
    if len(groups) == 1:
        return (make_layout(groups[0], kinds, length, alone=True),)
    layouts = [make_layout(group, kinds, length, alone=False) for group in reversed(groups)]
    # Records of each layout are stored over those of the one before.
    widest = max(r.bits for r in layouts)
    return tuple(replace(r, bits=widest) for r in layouts)


def make_layout(keys: Sequence[SortKey], kinds: Sequence[PrimitiveType], length: int, *, alone: bool) -> Record:
    """The record of some keys, with the other operands' elements if these fit, or else with the index."""
    parts = list(dict.fromkeys((k.operand, k.part) for k in keys))
    widths = [8 * kinds[o].real_part.byte_width for o, _ in parts]
    covered = {o for o, part in parts if part is Part.WHOLE or _both(parts, o)}
    payload = [k for k in range(len(kinds)) if k not in covered]
    index = 32 if length <= 1 << 32 else 64
    along = sum(8 * kinds[k].byte_width for k in payload)
    with_all, with_index = _round_up(sum(widths) + along), _round_up(sum(widths) + index)
    if alone and with_all <= max(with_index, 64):
        tail = [(k, Part.WHOLE, 8 * kinds[k].byte_width) for k in payload]
    else:
        tail = [(INDEX, Part.WHOLE, index)]
    contents = [(o, part, width) for (o, part), width in zip(parts, widths, strict=True)] + tail
    fields: list[Field] = []
    offset = 0
    for operand, part, width in reversed(contents):
        fields.append(Field(operand, part, offset, width))
        offset += width
    return Record(_round_up(offset), tuple(reversed(fields)), tuple(keys))


def _both(parts: Sequence[tuple[int, Part]], operand: int) -> bool:
    return (operand, Part.REAL) in parts and (operand, Part.IMAG) in parts


def _round_up(bits: int) -> int:
    return max(8, 1 << (bits - 1).bit_length())


# -- code ---------------------------------------------------------------------------------------------


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


def index_of(fn: Function, record: Record, value: Value) -> Value:
    """The position in its row of a record's element."""
    return field_of(record.field(INDEX), value).resized(I64)
