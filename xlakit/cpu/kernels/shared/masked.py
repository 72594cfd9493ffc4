"""Masked loads and stores: lanes that are not in the mask are neither read nor written."""

from __future__ import annotations

from xlakit.cpu.llvm import I32, PTR, VOID, Function, Type, Value
from xlakit.options import current
from xlakit.target import has_feature, vector_bytes


def has_masks() -> bool:
    """Whether the processor has masked instructions for elements of all sizes."""
    # The sanitizer has no bounds checks for masked accesses.
    return not current().sanitize and vector_bytes() == 64 and has_feature("avx512bw") and has_feature("avx512vl")


def first_lanes_mask(fn: Function, lanes: int, number: Value) -> Value:
    """The mask of the first ``number`` lanes, at most all of them."""
    numbers = fn.counted(I32, lanes)
    return numbers.compare("ult", fn.splat(number.smin(lanes).cast("trunc", I32), lanes))


def masked_load(fn: Function, type: Type, pointer: Value, mask: Value) -> Value:
    """Load a vector; lanes that are not in the mask are zero."""
    name = f"llvm.masked.load.{type.mangled}.p0"
    fn.module.declare(name, type, [PTR, I32, mask.type, type])
    return fn.call(name, type, pointer, fn.i32(type.element.bytes), mask, fn.constant(type, 0))


def masked_store(fn: Function, value: Value, pointer: Value, mask: Value) -> None:
    """Store the lanes of the mask."""
    name = f"llvm.masked.store.{value.type.mangled}.p0"
    fn.module.declare(name, VOID, [value.type, PTR, I32, mask.type])
    fn.call(name, VOID, value, pointer, fn.i32(value.type.element.bytes), mask)
