"""The representation of elements in memory and in registers, and the conversions between the two."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, Final, Union

import numpy as np

from xlakit.cpu.declined import DeclinedError
from xlakit.cpu.llvm import F16, F32, F64, I1, I8, I16, Function, Type, Value, integer, vector
from xlakit.cpu.math.narrow import as_bf16, bf16_bits, from_f32, stored_again, to_f32
from xlakit.data.primitive import PrimitiveType
from xlakit.dataclass import dataclass
from xlakit.options import current

Scalar = Union[Value, "tuple[Value, Value]"]

# Strides of elements that are picked from vectors. LLVM picks them, too, but where the loop's first iteration is that
# of a task, it cannot tell that addresses do not overflow, and loads one element after the other.
PICKED: Final = (2, 4)


@cache
def register_type(kind: PrimitiveType) -> Type:
    """The type in which a real element, or one part of a complex one, is computed."""
    if kind is PrimitiveType.PRED:
        return I1
    if kind.is_integral:
        return integer(max(8, kind.bit_width))
    if kind in (PrimitiveType.F64, PrimitiveType.C128):
        return F64
    if kind.is_floating or kind is PrimitiveType.C64:
        return F32
    raise DeclinedError(f"{kind.hlo_name} has no elements to compute with")


@cache
def memory_type(kind: PrimitiveType) -> Type:
    """The type in which a real element, or one part of a complex one, is stored."""
    if kind is PrimitiveType.F16:
        return F16
    if kind is PrimitiveType.BF16:
        return I16
    if kind is PrimitiveType.PRED or (kind.is_floating and kind.bit_width <= 8):
        return I8
    return register_type(kind)


@cache
def element_type(kind: PrimitiveType) -> Type:
    """A type with the size of an element in memory; for a complex element, the pair of its parts."""
    return vector(memory_type(kind), 2) if kind.is_complex else memory_type(kind)


@cache
def is_narrow(kind: PrimitiveType) -> bool:
    """Whether elements are computed in F32 and rounded to fewer bits."""
    return kind.is_floating and kind.bit_width <= 16


def from_stored(fn: Function, kind: PrimitiveType, stored: Value) -> Value:
    """Convert a real element from its stored form to the type in which it is computed."""
    if kind is PrimitiveType.PRED:
        return stored.ne(0)
    if is_narrow(kind):
        return to_f32(fn, kind, stored)
    return wrap(kind, stored)


def to_stored(fn: Function, kind: PrimitiveType, value: Value) -> Value:
    """Convert a real element to its stored form."""
    if kind is PrimitiveType.PRED:
        return value.cast("zext", value.type.with_element(I8))
    if is_narrow(kind):
        return stored_again(fn, kind, value)
    return value


def wrap(kind: PrimitiveType, value: Value) -> Value:
    """Wrap an integer of fewer than 8 bits, computed in a byte, into its range."""
    if not kind.is_integral or kind.bit_width >= 8:
        return value
    unused = 8 - kind.bit_width
    return (value << unused).integer("ashr" if kind.is_signed else "lshr", unused)


def rounded(fn: Function, kind: PrimitiveType, value: Value) -> Value:
    """Round or wrap a result to the values of its element type."""
    if is_narrow(kind):
        return to_f32(fn, kind, from_f32(fn, kind, value))
    return wrap(kind, value)


def rounded_result(fn: Function, kind: PrimitiveType, value: Value) -> Value:
    """Round the result of arithmetic on elements of a type; NaNs may have bits other than those that are stored."""
    return as_bf16(value) if kind is PrimitiveType.BF16 else rounded(fn, kind, value)


def load(fn: Function, kind: PrimitiveType, array: Value, index: Value, lanes: int = 1) -> Scalar:
    """Element ``index`` of an array, or ``lanes`` consecutive elements from there."""
    type = memory_type(kind)
    if kind.is_complex:
        pair = fn.at(array, type, index * 2)
        if lanes == 1:
            return fn.load(type, pair), fn.load(type, fn.at(pair, type, 1))
        pairs = fn.load(vector(type, 2 * lanes), pair)
        real, imaginary = (fn.shuffle(pairs, pairs, range(part, 2 * lanes, 2)) for part in (0, 1))
        return real, imaginary
    return from_stored(fn, kind, fn.load(vector(type, lanes), fn.at(array, type, index)))


def load_every(
    fn: Function, kind: PrimitiveType, first: tuple[Value, Value], stride: int, lanes: int, *, ends: bool
) -> Scalar:
    """``lanes`` elements, each ``stride`` after the one before.

    Near ones are picked from vectors of neighbors, others read one by one. first: the array, and the index of the first
    element. ends: whether the array may end behind the last one.
    """
    if stride not in PICKED or kind.is_complex:
        return _load_apart(fn, kind, first, stride, lanes)
    type, half, gap = memory_type(kind), lanes // 2, stride - 1
    low = fn.at(first[0], type, first[1])
    if not ends:
        every = fn.load(vector(type, lanes * stride), low)
        return from_stored(fn, kind, fn.shuffle(every, every, range(0, lanes * stride, stride)))
    # The second vector ends with the last element.
    span = half * stride
    pair = fn.load(vector(type, span), low), fn.load(vector(type, span), fn.at(low, type, span - gap))
    return from_stored(fn, kind, fn.shuffle(*pair, [n * stride + (gap if n >= half else 0) for n in range(lanes)]))


def _load_apart(fn: Function, kind: PrimitiveType, first: tuple[Value, Value], stride: int, lanes: int) -> Scalar:
    # All lanes are at constant distances from one address: sums of the index would take LLVM half of its time.
    type, width = memory_type(kind), 2 if kind.is_complex else 1
    begin = fn.at(first[0], type, first[1] * width)
    found: list[Value] = []
    for part in range(width):
        stored = fn.constant(vector(type, lanes), 0)
        for n in range(lanes):
            place = fn.at(begin, type, n * stride * width + part)
            stored = fn.with_lane(stored, n, fn.load(type, place))
        found.append(stored if kind.is_complex else from_stored(fn, kind, stored))
    return from_parts(tuple(found))


def store(
    fn: Function,
    kind: PrimitiveType,
    scalar: Scalar,
    array: Value,
    index: Value,
    step: int = 1,
    *,
    is_rounded: bool = False,
) -> None:
    """Write element ``index`` of an array; if ``scalar`` is a vector, further ones, each ``step`` after the one before.

    is_rounded: whether the scalar is exact in the element type.
    """
    lanes = parts(scalar)[0].type.lanes
    if step != 1 and lanes > 1:
        begin = fn.at(array, memory_type(kind), index * len(parts(scalar)))
        for n in range(lanes):
            one = from_parts(tuple(fn.lane(part, n) for part in parts(scalar)))
            store(fn, kind, one, begin, fn.i64(n * step), is_rounded=is_rounded)
        return
    type = memory_type(kind)
    if isinstance(scalar, tuple):
        pair, lanes = fn.at(array, type, index * 2), scalar[0].type.lanes
        if lanes > 1:
            fn.store(fn.shuffle(*scalar, [n // 2 + lanes * (n % 2) for n in range(2 * lanes)]), pair)
            return
        fn.store(scalar[0], pair)
        fn.store(scalar[1], fn.at(pair, type, 1))
    else:
        stored = bf16_bits(scalar) if is_rounded and kind is PrimitiveType.BF16 else to_stored(fn, kind, scalar)
        fn.store(stored, fn.at(array, type, index))


def constant(fn: Function, kind: PrimitiveType, number: Any) -> Scalar:
    """A constant element, from a NumPy scalar."""
    type = register_type(kind)
    if kind.is_complex:
        value = complex(number)
        return _real_constant(fn, type, value.real), _real_constant(fn, type, value.imag)
    if kind is PrimitiveType.PRED or kind.is_integral:
        return fn.constant(type, int(number))
    wide = np.float64(number)
    if np.isnan(wide) and type is F32 and kind is PrimitiveType.F32:
        # The payload and the sign of a NaN are preserved.
        return fn.constant(integer(32), int(np.asarray(number).view(np.uint32))).bits_as(F32)
    return _real_constant(fn, type, float(wide))


def _real_constant(fn: Function, type: Type, number: float) -> Value:
    """A constant; where it is subnormal and the program flushes it to zero, one that LLVM does not know.

    LLVM's code generation computes operations on constants without flushing, whatever the function's attributes say.
    """
    least_normal = 2.0**-126 if type is F32 else 2.0**-1022
    if not 0 < abs(number) < least_normal or not current().flush_subnormals:
        return fn.constant(type, number)
    bits = integer(type.bits)
    packed = int.from_bytes(struct.pack("<f" if type is F32 else "<d", number), "little")
    unknown = fn.emit(bits, f'call {bits.name} asm "", "=r,0"({bits.name} {packed})', first=True)
    return fn.emit(type, f"bitcast {bits.name} {unknown.text} to {type.name}", first=True)


def select(fn: Function, condition: Value, yes: Scalar, no: Scalar) -> Scalar:
    """``yes`` where the condition holds, else ``no``."""
    if isinstance(yes, tuple) and isinstance(no, tuple):
        return fn.select(condition, yes[0], no[0]), fn.select(condition, yes[1], no[1])
    return fn.select(condition, as_real(yes), as_real(no))


def as_real(scalar: Scalar) -> Value:
    """A scalar that must be real; raises DeclinedError for a complex one."""
    if isinstance(scalar, tuple):
        raise DeclinedError("a complex element stands where a real one must")
    return scalar


def parts(scalar: Scalar) -> tuple[Value, ...]:
    """The one or two values that a scalar consists of."""
    return scalar if isinstance(scalar, tuple) else (scalar,)


def from_parts(values: tuple[Value, ...]) -> Scalar:
    """The scalar that consists of these values."""
    return (values[0], values[1]) if len(values) == 2 else values[0]


def all_parts(scalars: Iterable[Scalar]) -> list[Value]:
    """The values that scalars consist of, as loops carry them."""
    return [value for scalar in scalars for value in parts(scalar)]


def regrouped(values: Sequence[Value], like: Sequence[Scalar]) -> list[Scalar]:
    """The scalars that consist of these values, real or complex as those of ``like``."""
    remaining = iter(values)
    return [from_parts(tuple(itertools.islice(remaining, len(parts(scalar))))) for scalar in like]


@dataclass(frozen=True, slots=True)
class Accumulators:
    """Accumulators in memory, in the types in which they are computed: for each kind an array, or one for each part.

    Truth values are bytes: loops may divide an array into vectors in different ways, and LLVM packs the bits of each.
    """

    fn: Function
    kinds: Sequence[PrimitiveType]
    arrays: Sequence[Sequence[Value]]

    @staticmethod
    def of(fn: Function, kinds: Sequence[PrimitiveType], count: int) -> Accumulators:
        """``count`` accumulators of each kind, on the stack."""
        each = ((_accumulated(register_type(k)), 1 + k.is_complex) for k in kinds)
        return Accumulators(fn, kinds, [[fn.alloca(t, count, align=64) for _ in range(n)] for t, n in each])

    def get(self, index: Value, lanes: int = 1) -> list[Scalar]:
        """Load one accumulator of each kind, or vectors from ``index`` on."""
        return [
            from_parts(tuple(self._load(register_type(kind), array, index, lanes) for array in arrays))
            for kind, arrays in zip(self.kinds, self.arrays, strict=True)
        ]

    def _load(self, type: Type, array: Value, index: Value, lanes: int) -> Value:
        kept = _accumulated(type)
        value = self.fn.load(vector(kept, lanes), self.fn.at(array, kept, index))
        return value if kept is type else value.ne(0)

    def put(self, index: Value, values: Sequence[Scalar]) -> None:
        """Store values of the form that :meth:`get` gives."""
        for arrays, value in zip(self.arrays, values, strict=True):
            for array, part in zip(arrays, parts(value), strict=True):
                kept = _accumulated(part.type.element)
                value = part if kept is part.type.element else part.cast("zext", part.type.with_element(kept))
                self.fn.store(value, self.fn.at(array, kept, index))


def _accumulated(type: Type) -> Type:
    """The type of accumulators in memory."""
    return I8 if type is I1 else type
