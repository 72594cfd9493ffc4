"""Integers in the order of a sort's keys: the bits of an element, changed so that their unsigned order is right."""

from __future__ import annotations

from functools import cache

import numpy as np

from xlakit.cpu.llvm import Function, Type, Value, integer
from xlakit.data.primitive import PrimitiveType
from xlakit.passes.analysis.sort_order import NanOrder, Part, SortKey


def raw_type(kind: PrimitiveType) -> Type:
    """The integer type of an element's bits in memory; a complex element has its real part in the low half."""
    return integer(8 * kind.byte_width)


def load_raw(fn: Function, kind: PrimitiveType, array: Value, index: Value) -> Value:
    """The bits of element ``index`` of an array."""
    return load_bits(fn, raw_type(kind), array, index)


def load_bits(fn: Function, type: Type, array: Value, index: Value | int) -> Value:
    """Load an integer, whose type may be wider than the alignment of its array."""
    return fn.load(type, fn.at(array, type, index), align=min(8, type.bytes))


def store_raw(fn: Function, bits: Value, array: Value, index: Value) -> None:
    """Write the bits of element ``index`` of an array."""
    fn.store(bits, fn.at(array, bits.type, index), align=min(8, bits.type.bytes))


def part_of(part: Part, bits: Value) -> Value:
    """The bits of a part of an element."""
    if part is Part.WHOLE:
        return bits
    half = bits.type.bits // 2
    return (bits >> half if part is Part.IMAG else bits).resized(integer(half))


def is_unchanged(key: SortKey) -> bool:
    """Whether records have a key's bits as in memory, because to compute their order later costs little."""
    return not key.kind.is_floating or key.kind.bit_width <= 8


def has_exceptions(key: SortKey) -> bool:
    """Whether the stored bits of some values do not have the order of the key."""
    return not is_unchanged(key) and key.merges


def is_exception(key: SortKey, bits: Value) -> Value:
    """Whether an element is one of those values: -0 or NaN."""
    top = 1 << (bits.type.element.bits - 1)
    is_nan = (bits & (top - 1)).compare("ugt", largest_magnitude(key.kind))
    return is_nan | bits.eq(-top)


def stored_bits(key: SortKey, bits: Value) -> Value:
    """The bits that a record has for a key: unchanged, or unsigned integers in its order, but for exceptions."""
    if is_unchanged(key):
        return bits
    ordered = _float_order(bits)
    return ~ordered if key.descending else ordered


def restored_bits(key: SortKey, stored: Value) -> Value:
    """The key's bits in memory from those that a record holds."""
    if is_unchanged(key):
        return stored
    ordered = ~stored if key.descending else stored
    width = ordered.type.element.bits
    return ordered ^ (~ordered.integer("ashr", width - 1) | (-1 << (width - 1)))


def ordered_bits(fn: Function, key: SortKey, stored: Value) -> Value:
    """Unsigned integers in the order of the key, from stored bits, exceptions included."""
    if is_unchanged(key):
        ordered = _small_order(fn, key, stored << (stored.type.element.bits - width_of(key.kind)))
        return ~ordered if key.descending else ordered
    width = stored.type.element.bits
    top, ordered = 1 << (width - 1), stored
    if key.zeros_equal:
        ordered = ordered + ordered.eq(top - 1).cast("zext", ordered.type)
    if key.nan is not NanOrder.BITS:
        ends = fn.constant(ordered.type, -1 if nans_are_last(key) else 0)
        ordered = fn.select(is_stored_nan(key, stored), ends, ordered)
    return ordered


def nans_are_last(key: SortKey) -> bool:
    """Whether NaNs come behind all numbers, and not before them."""
    return (key.nan is NanOrder.HIGH) is not key.descending


def is_stored_nan(key: SortKey, stored: Value) -> Value:
    """Whether stored bits, which are not unchanged ones, are a NaN."""
    # NaNs are at both ends of the bits' order. Subtracting the number of those at one end wraps these around to the
    # top, next to the others.
    payloads = (1 << (stored.type.element.bits - 1)) - 1 - largest_magnitude(key.kind)
    return (stored - payloads).compare("ugt", -1 - 2 * payloads)


def is_stored_zero(stored: Value) -> Value:
    """Whether stored bits, which are not unchanged ones, are 0 or -0."""
    return (stored - ((1 << (stored.type.element.bits - 1)) - 1)).compare("ult", 2)


def _float_order(bits: Value) -> Value:
    width = bits.type.element.bits
    return bits ^ (bits.integer("ashr", width - 1) | (-1 << (width - 1)))


def width_of(kind: PrimitiveType) -> int:
    """The bits of a type that have its order."""
    return 8 if kind is PrimitiveType.PRED else kind.bit_width


def _small_order(fn: Function, key: SortKey, bits: Value) -> Value:
    """Integers and one-byte floats as unsigned integers in ascending order; the sign bit is the highest of ``bits``."""
    kind, type = key.kind, bits.type
    width = type.element.bits
    top = 1 << (width - 1)
    if kind.is_signed:
        return bits ^ -top
    if not kind.is_floating:
        return bits
    if kind is PrimitiveType.F8E8M0FNU:
        # This type has no sign, and all ones for NaN: adding one wraps NaN around to the lowest.
        return bits + 1 if key.nan is NanOrder.LOW else bits
    ordered = _float_order(bits)
    position = fn.constant(type, -1 if key.nan is NanOrder.HIGH else 0)
    if kind.has_nan_for_negative_zero:
        # The bits of -0 are NaN, and are between the negative and the other numbers. One of these sides moves by one to
        # that place, which leaves room for NaN at its other end.
        if key.nan is NanOrder.HIGH:
            moved = ordered - (bits >= 0).cast("zext", type)
        else:
            moved = ordered + (bits < 0).cast("zext", type)
        return fn.select(bits.eq(-top), position, moved)
    if key.zeros_equal:
        ordered = ordered + ordered.eq(top - 1).cast("zext", type)
    if key.nan is not NanOrder.BITS:
        largest = largest_magnitude(kind) << (width - width_of(kind))
        ordered = fn.select((bits & (top - 1)).compare("ugt", largest), position, ordered)
    return ordered


@cache
def largest_magnitude(kind: PrimitiveType) -> int:
    """The largest bits, without the sign, that are not NaN."""
    if kind.bit_width > 8:
        infinity = np.array(np.inf, np.float64).astype(kind.dtype)
        return int(infinity.view(f"u{kind.byte_width}"))
    patterns = np.arange(1 << (kind.bit_width - 1), dtype=np.uint8)
    return int(patterns[~np.isnan(patterns.view(kind.dtype).astype(np.float32))].max())
