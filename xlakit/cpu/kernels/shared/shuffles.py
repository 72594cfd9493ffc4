"""Shuffles of vectors in registers: transposed squares, interleaved lanes, wider vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from xlakit.cpu.llvm import F32, F64, I32, Function, Value, vector

# Squares of fewer rows are compiled as fast without a fence.
_FENCED: Final = 8


def transposed(fn: Function, rows: Sequence[Value]) -> list[Value]:
    """The transpose of a square of vectors, recursively by blocks.

    Where LLVM selects instructions it looks from each shuffle through all those that it is made of, which took half of
    the time for squares of 16 rows. It does not look past a fence, which is no instruction.
    """
    square, size = list(rows), len(rows)
    half = 1
    while half < size:
        if half * 4 == size >= _FENCED:
            square = [_fenced(fn, row) for row in square]
        for i in range(size):
            if i & half:
                continue
            a, b = square[i], square[i + half]
            low = [lane if not lane & half else size + lane - half for lane in range(size)]
            high = [lane + half if not lane & half else size + lane for lane in range(size)]
            square[i], square[i + half] = fn.shuffle(a, b, low), fn.shuffle(a, b, high)
        half *= 2
    return square


def _fenced(fn: Function, value: Value) -> Value:
    """The same vector. LLVM has fences of floats only, and keeps all bits, as no instruction is made of them."""
    kind = {32: F32, 64: F64}.get(value.type.element.bits)
    if kind is None:
        return value
    type = vector(kind, value.type.lanes)
    return fn.intrinsic("llvm.arithmetic.fence", type, value.bits_as(type)).bits_as(value.type)


def widened(fn: Function, value: Value, lanes: int) -> Value:
    """The vector, extended with zeros to ``lanes`` lanes."""
    count = value.type.lanes
    if count == lanes:
        return value
    if count == 1:
        return fn.with_lane(fn.constant(vector(value.type, lanes), 0), 0, value)
    return fn.shuffle(value, fn.constant(value.type, 0), [*range(count), *[count] * (lanes - count)])


def grouped(fn: Function, steps: Sequence[Value]) -> Value:
    """The lanes of two vectors of I16, or of four of I8, interleaved; from here on each group moves as one I32."""
    return interleaved(fn, steps).bits_as(vector(I32, steps[0].type.lanes))


def interleaved(fn: Function, vectors: Sequence[Value]) -> Value:
    """The lanes of vectors, as many as a power of two, interleaved."""
    mixed = list(vectors)
    while len(mixed) > 1:
        # Of four vectors: the first with the third, the second with the fourth, then both results.
        half, lanes = len(mixed) // 2, mixed[0].type.lanes
        order = [n for lane in range(lanes) for n in (lane, lane + lanes)]
        mixed = [fn.shuffle(a, b, order) for a, b in zip(mixed[:half], mixed[half:], strict=True)]
    return mixed[0]
