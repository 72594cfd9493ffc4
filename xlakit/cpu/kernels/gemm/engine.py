"""What a matrix product is computed with: the type of its sums, the shape of its micro-kernel, and the conversions.

An operand is converted once, while it is packed; sums have a wide type; the result is rounded once.

Processors with AVX512-BF16 add two products of BF16 at a time to a sum of F32, with the bits that two fused operations
give, but that subnormal operands, products and sums are zero. An operand that is nearly zero may meet one that is huge,
so that is beyond any rounding. So tiles look first whether anything subnormal can come of their operands
(``bf16_range.py``), and take fused operations if it can, with the same packed operands and the same bits. With the
option ``flush_subnormals`` they do not look.

Products of integers of up to 16 bits go in pairs, which LLVM makes VNNI's vpdpwssd of where there is that; their sums
are exact. Those of 8 bits go in fours where there is VNNI's vpdpbusd, which multiplies numbers without a sign by
numbers with one. Where both operands have a sign, 128 is added to elements of the left one as they are packed, and
each tile has one more row of sums, of 128 times the right operand, which are subtracted in the end.

Processors with AMX do both with sums in tile registers (``gemm/amx.py``), for operands with and without signs alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

from xlakit import options
from xlakit.cpu.llvm import F32, F64, I8, I16, I32, I64, Function, Type, Value, integer, vector
from xlakit.cpu.math.narrow import from_f32, from_f64, to_f32
from xlakit.cpu.scalars.memory import is_narrow, memory_type, register_type, wrap
from xlakit.data.primitive import PrimitiveType
from xlakit.dataclass import dataclass
from xlakit.target import Processor, has_feature, processor, vector_bytes

_TYPES = {type.name: type for type in (F32, F64, I8, I16, I32, I64)}
# Rows of a tile register of AMX, and columns of 32 bits.
AMX_ROWS = 16


@dataclass(frozen=True, slots=True)
class Engine:
    """How products are summed.

    packed: the type of packed elements. acc: that of sums. group: how many steps of k one lane takes at once.
    parts: 2 for complex numbers, whose parts are summed apart. The micro-tile, whose sums are in registers, has
    mr rows of so many ``vectors``. flushes: whether subnormal numbers may be taken for zero. unsigned: of products in
    fours, the operand whose packed elements have no sign: ``right``, ``left``, or ``biased`` for a left one to which
    128 was added; with AMX, whose instructions take all signs, also ``both`` or none. amx: whether micro-tiles are in
    AMX's registers.
    """

    name: str
    packed: Type
    acc: Type
    group: int
    parts: int
    mr: int
    vectors: int
    flushes: bool = False
    unsigned: str = ""
    amx: bool = False

    @property
    def steps(self) -> int:
        """Steps of k in what micro-kernels multiply at a time, a power of two: packed operands have whole ones."""
        return self.group * (AMX_ROWS if self.amx else 1)

    @property
    def lanes(self) -> int:
        """Sums in one register."""
        return vector_bytes() // self.acc.bytes

    @property
    def nr(self) -> int:
        """Columns of a micro-tile."""
        return self.lanes * self.vectors

    @property
    def packed_bytes(self) -> int:
        """Bytes of one packed element."""
        return self.packed.bytes * self.parts

    @property
    def is_biased(self) -> bool:
        """Whether 128 is added to packed elements of the left operand."""
        return self.unsigned == "biased"

    def one_by_one(self) -> Engine:
        """The engine with the same sums whose lanes take one step of k at a time."""
        if self.group == 1:
            return self
        return replace(self, packed=self.acc, group=1, flushes=False, unsigned="", amx=False)

    def encoded(self) -> str:
        """The engine in the names of the functions that depend on it."""
        parts = [self.packed.name, self.acc.name, self.group, self.parts, self.mr, self.vectors]
        return "_".join(map(str, [*parts, int(self.flushes), self.unsigned, int(self.amx)]))

    @staticmethod
    def decoded(text: str) -> Engine:
        """The inverse of :meth:`encoded`."""
        packed, acc, group, parts, rows, vectors, flushes, unsigned, amx = text.split("_")
        types, numbers = (_TYPES[packed], _TYPES[acc]), map(int, (group, parts, rows, vectors))
        return Engine("common", *types, *numbers, flushes=flushes == "1", unsigned=unsigned, amx=amx == "1")


def choose_engine(lhs: PrimitiveType, rhs: PrimitiveType, result: PrimitiveType, *, amx: bool = True) -> Engine:
    """The engine for operands and a result of these types; ``amx`` is False for one without AMX."""
    # Accesses of tile registers are not among those that the sanitizer checks.
    made_for = processor() if amx and not options.current().sanitize else _without_amx(processor())
    only = lhs is rhs is PrimitiveType.BF16 and result in (PrimitiveType.BF16, PrimitiveType.F32)
    in_tiles = has_amx(made_for, "amx-bf16")
    if only and (in_tiles or has_pairs_of_bf16(lhs, rhs, result)):
        # Packed elements are BF16's bits.
        flushes = bool(options.current().flush_subnormals)
        mr = 2 * AMX_ROWS if in_tiles else 12
        return Engine("bf16", I16, F32, group=2, parts=1, mr=mr, vectors=2, flushes=flushes, amx=in_tiles)
    return _engine((lhs, rhs), result, made_for)


def has_pairs_of_bf16(lhs: PrimitiveType, rhs: PrimitiveType, result: PrimitiveType) -> bool:
    """Whether there is an instruction for two products at a time of numbers of BF16."""
    only = lhs is rhs is PrimitiveType.BF16 and result in (PrimitiveType.BF16, PrimitiveType.F32)
    return only and has_feature("avx512bf16") and vector_bytes() == 64


def has_amx(made_for: Processor, feature: str) -> bool:
    """Whether there is AMX, with a feature of it."""
    return (
        made_for.vector_bytes == 64 and made_for.registers == 1 and made_for.has("amx-tile") and made_for.has(feature)
    )


@cache
def _without_amx(made_for: Processor) -> Processor:
    return made_for.without("amx")


@cache
def _engine(kinds: tuple[PrimitiveType, PrimitiveType], result: PrimitiveType, made_for: Processor) -> Engine:
    # Processors with vectors of 64 bytes have 32 of them; others 16.
    has_32_registers = made_for.vector_bytes == 64
    if result.is_complex:
        wide = PrimitiveType.C128 in (*kinds, result) or any(_needs_double(k) for k in kinds)
        part = F64 if wide else F32
        mr = 12 if has_32_registers else 5
        return Engine("c128" if wide else "c64", part, part, group=1, parts=2, mr=mr, vectors=1)
    if result.is_integral and not any(k.real_part.is_floating for k in kinds):
        return _integer_engine(kinds, result, made_for, has_32_registers=has_32_registers)
    wide = result is not PrimitiveType.PRED and any(_needs_double(k) for k in (*kinds, result))
    part = F64 if wide else F32
    return Engine(part.name, part, part, group=1, parts=1, mr=12 if has_32_registers else 6, vectors=2)


def _needs_double(kind: PrimitiveType) -> bool:
    return kind.real_part is PrimitiveType.F64 or (kind.is_integral and kind.bit_width >= 32)


def _integer_engine(
    kinds: tuple[PrimitiveType, PrimitiveType], result: PrimitiveType, made_for: Processor, *, has_32_registers: bool
) -> Engine:
    if result.bit_width > 32:
        return Engine("i64", I64, I64, group=1, parts=1, mr=8 if has_32_registers else 4, vectors=1)
    # Modulo the width of the result, operands may be cut to it first; what fits 16 bits with a sign goes in pairs.
    unsigned = _unsigned_operand(kinds, result)
    if has_amx(made_for, "amx-int8") and (result.bit_width <= 8 or all(map(_fits_bytes, kinds))):
        sides = "both" if _are_unsigned(kinds) else "" if unsigned == "biased" else unsigned
        return Engine("i8", I8, I32, group=4, parts=1, mr=2 * AMX_ROWS, vectors=2, unsigned=sides, amx=True)
    if unsigned and has_fours(made_for):
        return Engine("i8", I8, I32, group=4, parts=1, mr=12, vectors=2, unsigned=unsigned)
    fits = all(result.bit_width <= 16 or _fits_i16(kind) for kind in kinds)
    if fits and made_for.has("avx2"):
        return _pairs(made_for)
    return Engine("i32", I32, I32, group=1, parts=1, mr=12 if has_32_registers else 4, vectors=2)


def _pairs(made_for: Processor) -> Engine:
    return Engine("i16", I16, I32, group=2, parts=1, mr=12 if made_for.vector_bytes == 64 else 6, vectors=2)


def has_fours(made_for: Processor) -> bool:
    """Whether there is an instruction for four products at a time of integers of 8 bits."""
    return made_for.vector_bytes == 64 and made_for.registers == 1 and made_for.has("avx512vnni")


def _unsigned_operand(kinds: tuple[PrimitiveType, PrimitiveType], result: PrimitiveType) -> str:
    """Which operand has no sign where products go in fours; empty where they cannot."""
    if result.bit_width <= 8:
        # Modulo 256 a sign makes no difference.
        return "biased"
    if not all(map(_fits_bytes, kinds)):
        return ""
    fits_unsigned = [kind is PrimitiveType.PRED or not kind.is_signed for kind in kinds]
    fits_signed = [kind is not PrimitiveType.U8 for kind in kinds]
    if fits_unsigned[0] and fits_signed[1]:
        return "left"
    if fits_unsigned[1] and fits_signed[0]:
        return "right"
    return "biased" if all(fits_signed) else ""


def _fits_bytes(kind: PrimitiveType) -> bool:
    return kind is PrimitiveType.PRED or kind.bit_width <= 8


def _are_unsigned(kinds: tuple[PrimitiveType, PrimitiveType]) -> bool:
    """Whether no operand has a sign, so that U8 with U8 is among what products in fours take."""
    return all(kind is PrimitiveType.PRED or not kind.is_signed for kind in kinds)


def with_fewer_at_once(engine: Engine) -> Engine:
    """The engine with the same sums whose lanes take fewer steps of k at once."""
    if engine.group > 2:
        return _pairs(processor())
    tile = engine.mr if engine.acc.is_float else 4
    return replace(engine.one_by_one(), name=engine.acc.name, mr=tile)


def _fits_i16(kind: PrimitiveType) -> bool:
    return kind is PrimitiveType.PRED or kind.bit_width <= 8 or kind is PrimitiveType.S16


# -- conversions ---------------------------------------------------------------------------------


def takes_pairs_of_bf16(engine: Engine) -> bool:
    """Whether packed elements are pairs of BF16's bits."""
    return engine.group == 2 and engine.acc.is_float


def stored_as_packed(engine: Engine, kind: PrimitiveType) -> bool:
    """Whether elements in memory are packed elements already."""
    if engine.parts == 2:
        return kind.is_complex and memory_type(kind) is engine.packed
    if takes_pairs_of_bf16(engine):
        return kind is PrimitiveType.BF16
    if engine.group == 4:
        return kind in (PrimitiveType.S8, PrimitiveType.U8)
    if kind is PrimitiveType.PRED or kind.is_complex:
        return False
    return memory_type(kind) is engine.packed and not is_narrow(kind)


def to_packed(fn: Function, engine: Engine, kind: PrimitiveType, result: PrimitiveType, stored: Value) -> Value:
    """An element, or a vector of them, from memory; of a complex one, a part."""
    target = stored.type.with_element(engine.packed)
    if result is PrimitiveType.PRED:
        # The sum of what is not zero is not zero.
        value = to_f32(fn, kind, stored) if is_narrow(kind) else stored
        return value.ne(0).cast("uitofp", target)
    if kind is PrimitiveType.PRED:
        return stored.ne(0).cast("uitofp" if target.is_float else "zext", target)
    if is_narrow(kind):
        value = to_f32(fn, kind, stored)
        return value.cast("fpext", target)
    if kind.is_integral:
        value = wrap(kind, stored)
        if target.is_float:
            return value.cast("sitofp" if kind.is_signed else "uitofp", target)
        return _resized(value, target, signed=kind.is_signed)
    return stored.cast("fpext", target)


def to_result(fn: Function, kind: PrimitiveType, sums: Sequence[Value]) -> tuple[Value, ...]:
    """Sums (one, or the parts of a complex one) as a result is stored, rounded once."""
    if kind.is_complex:
        return tuple(_narrowed(fn, s, kind.real_part) for s in sums)
    return (_narrowed(fn, sums[0], kind),)


def _narrowed(fn: Function, value: Value, kind: PrimitiveType) -> Value:
    type = value.type
    if kind is PrimitiveType.PRED:
        return value.ne(0).cast("zext", type.with_element(I8))
    if is_narrow(kind):
        return from_f64(fn, kind, value) if type.element is F64 else from_f32(fn, kind, value)
    target = type.with_element(register_type(kind))
    if kind.is_integral:
        if type.is_float:
            return _saturated(fn, value, kind)
        return wrap(kind, _resized(value, target, signed=True))
    if type.is_int:
        return value.cast("sitofp", target)
    return value.cast("fptrunc" if target.bits < type.bits else "fpext", target)


def _saturated(fn: Function, value: Value, kind: PrimitiveType) -> Value:
    """A float as the nearest integer towards zero that a type has."""
    letter = "s" if kind.is_signed else "u"
    narrow = integer(kind.bit_width)
    target = value.type.with_element(narrow)
    shape = f"v{value.type.lanes}" if value.type.lanes > 1 else ""
    name = f"llvm.fpto{letter}i.sat.{shape}{narrow.name}.{shape}f{value.type.element.bits}"
    fn.module.declare(name, target, [value.type])
    found = fn.call(name, target, value)
    if kind.bit_width >= 8:
        return found
    return found.cast("sext" if kind.is_signed else "zext", value.type.with_element(I8))


def _resized(value: Value, target: Type, *, signed: bool) -> Value:
    if target.bits < value.type.bits:
        return value.cast("trunc", target)
    return value.cast("sext" if signed else "zext", target)


def vectors_of(engine: Engine, width: int) -> list[tuple[int, int]]:
    """Columns [0, width) as pieces that fit registers: (first column, how many)."""
    return [(c, min(engine.lanes, width - c)) for c in range(0, width, engine.lanes)]


def acc_vector(engine: Engine, lanes: int | None = None) -> Type:
    """A register of sums."""
    return vector(engine.acc, lanes or engine.lanes)
