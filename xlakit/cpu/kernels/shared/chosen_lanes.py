"""Accesses of some lanes of a vector, which neither read nor write where the others would be."""

from __future__ import annotations

from xlakit.cpu.llvm import I32, PTR, VOID, Function, Type, Value
from xlakit.options import current
from xlakit.target import has_feature, vector_bytes


def has_chosen_lanes() -> bool:
    """Whether there are instructions for that, of elements of all sizes."""
    # The sanitizer has no bounds checks for such accesses.
    return not current().sanitize and vector_bytes() == 64 and has_feature("avx512bw") and has_feature("avx512vl")


def first_lanes(fn: Function, lanes: int, number: Value) -> Value:
    """So many first lanes, or all of them."""
    numbers = fn.counted(I32, lanes)
    return numbers.compare("ult", fn.splat(number.smin(lanes).cast("trunc", I32), lanes))


def load_chosen(fn: Function, type: Type, place: Value, chosen: Value) -> Value:
    """A vector from memory, zeros where lanes are not chosen."""
    name = f"llvm.masked.load.{type.mangled}.p0"
    fn.module.declare(name, type, [PTR, I32, chosen.type, type])
    return fn.call(name, type, place, fn.i32(type.element.bytes), chosen, fn.constant(type, 0))


def store_chosen(fn: Function, value: Value, place: Value, chosen: Value) -> None:
    """Write lanes to memory, only those that are chosen."""
    name = f"llvm.masked.store.{value.type.mangled}.p0"
    fn.module.declare(name, VOID, [value.type, PTR, I32, chosen.type])
    fn.call(name, VOID, value, place, fn.i32(value.type.element.bytes), chosen)
