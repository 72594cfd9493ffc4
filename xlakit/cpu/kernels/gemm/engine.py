"""The engine of a matrix product: the types of packed elements and sums, the shape of the micro-tile, and conversions.

An operand is converted once, while it is packed; sums have a wide type; the result is rounded once.

Processors with AVX512-BF16 add two products of BF16 at a time to a sum of F32, with the bits of two fused operations,
except that subnormal operands, products and sums are zero. That is no rounding error, because a nearly zero operand may
be multiplied by a huge one. So tiles first check whether their operands can give subnormal numbers
(``bf16_range.py``), and if so use fused operations, on the same packed operands and with the same bits. With the option
``flush_subnormals`` they do not check. On some processors the instruction takes longer than the fused operations of F32
that it replaces; BF16 becomes F32 there as it is packed.

Products of integers of up to 16 bits are added in pairs, which LLVM compiles to VNNI's vpdpwssd if it exists; their
sums are exact. Products of 8-bit integers are added in fours if there is VNNI's vpdpbusd, which multiplies unsigned by
signed numbers. If both operands are signed, 128 is added to elements of the left one as they are packed, and 128 times
the sum of each column of the right one, which stands behind the packed sliver, is subtracted from the sums.

Processors with AMX do both with sums in tile registers (``gemm/amx.py``), for signed and unsigned operands alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

from xlakit import machine, options
from xlakit.cpu.llvm import F32, F64, I8, I16, I32, I64, Function, Type, Value, integer, vector
from xlakit.cpu.math.narrow import from_f32, from_f64, to_f32
from xlakit.cpu.scalars.memory import is_narrow, memory_type, register_type, wrap
from xlakit.data.primitive import PrimitiveType
from xlakit.dataclass import dataclass
from xlakit.options import knob
from xlakit.target import Processor, has_feature, processor, vector_bytes

_TYPES = {type.name: type for type in (F32, F64, I8, I16, I32, I64)}
# The rows of an AMX tile register, and its columns of 32 bits.
AMX_ROWS = 16
# The factor by which products by pairs of BF16 are preferred to those of F32: 0 for never.
_PAIRS_OF_BF16 = knob("gemm.pairs_of_bf16", 1.0, 0.0, 1000.0, tries=(0.0, 1000.0))


@dataclass(frozen=True, slots=True)
class Engine:
    """The types and the micro-tile with which products are summed.

    packed: the type of packed elements. acc: that of sums. group: the steps of k that one lane takes at once. parts: 2
    for complex numbers, whose parts have separate sums. The micro-tile, whose sums are in registers, has mr rows of
    ``vectors`` registers. flushes: whether subnormal numbers may be taken for zero. unsigned: for products in fours,
    the operand whose packed elements are unsigned: ``right``, ``left``, or ``biased`` for a left one to which 128 was
    added; with AMX, whose instructions take all signs, also ``both``, or empty for none. amx: whether micro-tiles are
    in AMX's registers. interleaved: the number of products, of as many columns each, whose sums alternate in the lanes
    of a register; elements of their left operands lie side by side.
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
    interleaved: int = 1

    @property
    def steps(self) -> int:
        """The steps of k that micro-kernels take at a time, a power of two; packed operands have a multiple."""
        return self.group * (AMX_ROWS if self.amx else 1)

    @property
    def lanes(self) -> int:
        """The number of sums in one register."""
        return vector_bytes() // self.acc.bytes

    @property
    def nr(self) -> int:
        """The number of columns of a micro-tile."""
        return self.lanes * self.vectors

    @property
    def packed_bytes(self) -> int:
        """The bytes of one packed element."""
        return self.packed.bytes * self.parts

    @property
    def is_biased(self) -> bool:
        """Whether 128 is added to packed elements of the left operand."""
        return self.unsigned == "biased"

    @property
    def bias_elements(self) -> int:
        """The packed elements at the end of a sliver of the right operand that are a sum for each of its columns."""
        return self.nr * self.acc.bytes // self.packed.bytes if self.is_biased else 0

    def one_by_one(self) -> Engine:
        """The engine with the same sums whose lanes take one step of k at a time."""
        if self.group == 1:
            return self
        return replace(self, packed=self.acc, group=1, flushes=False, unsigned="", amx=False)

    def encoded(self) -> str:
        """The engine as a part of the names of functions that depend on it."""
        parts = [self.packed.name, self.acc.name, self.group, self.parts, self.mr, self.vectors]
        return "_".join(map(str, [*parts, int(self.flushes), self.unsigned, int(self.amx), self.interleaved]))

    @staticmethod
    def decoded(text: str) -> Engine:
        """The inverse of :meth:`encoded`."""
        packed, acc, group, parts, rows, vectors, flushes, unsigned, amx, interleaved = text.split("_")
        types, numbers = (_TYPES[packed], _TYPES[acc]), map(int, (group, parts, rows, vectors))
        engine = Engine("common", *types, *numbers, flushes=flushes == "1", unsigned=unsigned, amx=amx == "1")
        return replace(engine, interleaved=int(interleaved))


def choose_engine(lhs: PrimitiveType, rhs: PrimitiveType, result: PrimitiveType, *, amx: bool = True) -> Engine:
    """The engine for operands and a result of these types; ``amx`` is False for one without AMX."""
    # The sanitizer cannot check accesses of tile registers.
    made_for = processor() if amx and not options.current().sanitize else _without_amx(processor())
    only = lhs is rhs is PrimitiveType.BF16 and result in (PrimitiveType.BF16, PrimitiveType.F32)
    in_tiles = has_amx(made_for, "amx-bf16")
    if only and (in_tiles or has_pairs_of_bf16(lhs, rhs, result)):
        # Packed elements are the bits of BF16.
        flushes = bool(options.current().flush_subnormals)
        mr = 2 * AMX_ROWS if in_tiles else 12
        return Engine("bf16", I16, F32, group=2, parts=1, mr=mr, vectors=2, flushes=flushes, amx=in_tiles)
    return _engine((lhs, rhs), result, made_for)


def has_pairs_of_bf16(lhs: PrimitiveType, rhs: PrimitiveType, result: PrimitiveType) -> bool:
    """Whether products of these types take the instruction for pairs of BF16."""
    only = lhs is rhs is PrimitiveType.BF16 and result in (PrimitiveType.BF16, PrimitiveType.F32)
    if not only or not has_feature("avx512bf16") or vector_bytes() != 64:
        return False
    rate = machine.current().rate
    return rate("bf16_products_per_nanosecond") * _PAIRS_OF_BF16.value >= rate("fused_per_nanosecond_f32")


def has_amx(made_for: Processor, feature: str) -> bool:
    """Whether the processor has AMX with this feature."""
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
    rows, vectors = _tile_of(32 if has_32_registers else 16)
    return Engine(part.name, part, part, group=1, parts=1, mr=rows, vectors=vectors)


def _tile_of(registers: int) -> tuple[int, int]:
    """Rows and vectors of the micro-tile whose sums fit registers beside a row of the right operand and two elements.

    A step of k loads rows + vectors registers for rows * vectors multiply-adds. Wider tiles load less for each, and
    loads compete with the arrival of cache lines. Tiles that are less than twice as high as wide save few loads more,
    but more columns are left over.
    """

    def rows(vectors: int) -> int:
        return (registers - vectors - 2) // vectors

    vectors = max(v for v in range(1, registers) if rows(v) >= 2 * v)
    return rows(vectors), vectors


def _needs_double(kind: PrimitiveType) -> bool:
    return kind.real_part is PrimitiveType.F64 or (kind.is_integral and kind.bit_width >= 32)


def _integer_engine(
    kinds: tuple[PrimitiveType, PrimitiveType], result: PrimitiveType, made_for: Processor, *, has_32_registers: bool
) -> Engine:
    if result.bit_width > 32:
        return Engine("i64", I64, I64, group=1, parts=1, mr=8 if has_32_registers else 4, vectors=1)
    # The result is modulo its width, so operands may be truncated to it first; 16-bit signed numbers are added in
    # pairs.
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
    """Whether there is an instruction for four products of 8-bit integers."""
    return made_for.vector_bytes == 64 and made_for.registers == 1 and made_for.has("avx512vnni")


def _unsigned_operand(kinds: tuple[PrimitiveType, PrimitiveType], result: PrimitiveType) -> str:
    """Which operand is unsigned if products are added in fours; empty if they cannot be."""
    if result.bit_width <= 8:
        # Modulo 256 the sign makes no difference.
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
    """Whether both operands are unsigned, which AMX's products in fours also support."""
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
    """Whether packed elements are pairs of BF16 bits."""
    return engine.group == 2 and engine.acc.is_float


def stored_as_packed(engine: Engine, kind: PrimitiveType) -> bool:
    """Whether elements in memory already have the form of packed elements."""
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
    """Convert an element, or a vector of them, from memory to the packed type; of a complex element, one part."""
    target = stored.type.with_element(engine.packed)
    if result is PrimitiveType.PRED:
        # For logical results: any number other than zero counts as 1, so a sum is zero only if all products are.
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
        return value.resized(target.element, signed=kind.is_signed)
    return stored.cast("fpext", target)


def to_result(fn: Function, kind: PrimitiveType, sums: Sequence[Value]) -> tuple[Value, ...]:
    """Convert sums (one, or the two parts of a complex one) to the stored form of a result, rounded once."""
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
        return wrap(kind, value.resized(target.element, signed=True))
    if type.is_int:
        return value.cast("sitofp", target)
    return value.cast("fptrunc" if target.bits < type.bits else "fpext", target)


def _saturated(fn: Function, value: Value, kind: PrimitiveType) -> Value:
    """A float truncated to an integer, saturated at the bounds of the type."""
    letter = "s" if kind.is_signed else "u"
    narrow = integer(kind.bit_width)
    target = value.type.with_element(narrow)
    shape = f"v{value.type.lanes}" if value.type.lanes > 1 else ""
    name = f"llvm.fpto{letter}i.sat.{shape}{narrow.name}.{shape}f{value.type.element.bits}"
    fn.module.declare(name, target, [value.type])
    truncated = fn.call(name, target, value)
    if kind.bit_width >= 8:
        return truncated
    return truncated.cast("sext" if kind.is_signed else "zext", value.type.with_element(I8))


def vectors_of(engine: Engine, width: int) -> list[tuple[int, int]]:
    """Columns [0, width) as pieces that fit registers: (first column, number of columns)."""
    return [(c, min(engine.lanes, width - c)) for c in range(0, width, engine.lanes)]


def acc_vector(engine: Engine, lanes: int | None = None) -> Type:
    """The type of a register of sums."""
    return vector(engine.acc, lanes or engine.lanes)
