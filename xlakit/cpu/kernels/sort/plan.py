"""Decides how rows are sorted: by which method and keys, in which records, and by how many tasks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from enum import Enum
from typing import NamedTuple

from xlakit import machine
from xlakit.cpu.kernels.sort.keys import has_exceptions, is_unchanged, raw_type
from xlakit.cpu.kernels.sort.quick import has_compress, network_sizes
from xlakit.cpu.llvm import Type, integer
from xlakit.data.primitive import PrimitiveType
from xlakit.data.shape import Shape
from xlakit.dataclass import dataclass
from xlakit.errors import InternalError, ShapeError
from xlakit.ops.sort import Sort
from xlakit.options import knob, times
from xlakit.passes.analysis.cost_model import cost_model
from xlakit.passes.analysis.sort_order import KeyOrder, Part, SortKey, recognize_order
from xlakit.target import vector_bytes

# Few rows of at least this length are divided among tasks, into chunks that are long against the tables of counts that
# each of them has for each digit.
LONG_ROW = knob("sort_plan.long_row", 1 << 17, 40, 300, tries=(times(0.25), times(4)))
CHUNK = knob("sort_plan.chunk", 1 << 16, 16, 100, tries=(times(0.25), times(4)))
# The most tasks that share the work. Fixed, so that results and buffers do not depend on the machine.
MOST_TASKS = knob("sort_plan.most_tasks", 32, 8)
CACHE_LINE = 64
RADIX_BITS = 8
RADIX = 1 << RADIX_BITS
# Rows of up to this many elements are sorted by counting, for each element, those before it. For each byte of a key
# these are n * n / vector_bytes() comparisons; sorting by digits clears and adds up RADIX counts for it, and that takes
# longest in short rows.
RANKED_ROW = knob("sort_plan.ranked_row", lambda: math.isqrt(RADIX * vector_bytes()), 0, 2, 16, tries=(16, 512))
# The memory of a chunk's counts of digits.
COUNTS_BYTES = 8 * RADIX


class Method(Enum):
    """How rows are sorted."""

    NOTHING = "nothing"  # no elements
    RANKS = "ranks"  # short rows: count for each element those before it
    RADIX = "radix"  # by digits of the keys, each row in one task
    PARALLEL_RADIX = "parallel radix"  # the same, a row's chunks being tasks
    MERGE = "merge"  # by calling the comparator, each row in one task


class Field(NamedTuple):
    """Bits of a record: of an operand's element (or of a part of it), or of the element's position in its row."""

    operand: int  # INDEX for the position in the row
    part: Part
    offset: int
    bits: int


INDEX = -1


def digits_of(key: SortKey) -> int:
    """The number of digits of a key."""
    return 8 * key.kind.byte_width // RADIX_BITS


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
    def is_quick(self) -> bool:
        """Whether records are sorted by quicksort in vectors."""
        return self.is_whole and has_compress(self.bits)

    @property
    def digits(self) -> list[tuple[SortKey, int]]:
        """The digits to sort by, the least significant first: a key, and the number of its bits below the digit."""
        digits: list[tuple[SortKey, int]] = []
        for key in reversed(self.keys):
            digits.extend((key, RADIX_BITS * number) for number in range(digits_of(key)))
        return digits


@dataclass(frozen=True, slots=True)
class SortPlan:
    """The method, the records and the tasks of a sort.

    Each operand is ``outer`` times ``inner`` rows of ``length`` elements; those of a row are ``inner`` elements apart.
    records: the integers by which rows are sorted: one layout, or several if the keys do not fit in one; then rows are
    sorted by each in turn, and the last one has the first keys. in_place: which results may have the memory of their
    operand.
    """

    method: Method
    kinds: tuple[PrimitiveType, ...]
    outer: int
    length: int
    inner: int
    order: KeyOrder | None
    records: tuple[Record, ...]
    tasks: int
    columns: int  # rows that a task takes at a time, so that it uses whole cache lines
    in_place: tuple[bool, ...]
    scratch_bytes: int

    @property
    def rows(self) -> int:
        """The number of rows."""
        return self.outer * self.inner

    @property
    def chunks(self) -> int:
        """The number of tasks that share a long row."""
        return self.tasks // self.rows

    @property
    def tiles_across(self) -> int:
        """The number of groups of ``columns`` neighboring rows that cover ``inner``."""
        return -(-self.inner // self.columns)

    @property
    def is_direct(self) -> bool:
        """Whether a record is the element of a single contiguous operand."""
        return (
            len(self.kinds) == len(self.records) == self.inner == 1
            and self.records[0].bits == raw_type(self.kinds[0]).bits
            and self.records[0].find_field(0) is not None
            and is_unchanged(self.records[0].keys[0])
        )

    @property
    def keeps_records(self) -> bool:
        """Whether records are kept as they are while they are sorted, for those whose keys are exceptions."""
        return self.records[0].is_quick and self.records[0].has_exceptions

    @property
    def slot_bytes(self) -> int:
        """The scratch memory of a task that sorts whole rows."""
        if self.method is Method.RADIX:
            buffers = 1 if self.is_direct else self.columns + 1 + self.keeps_records
            return _aligned(buffers * self.length * max(r.bytes for r in self.records))
        if self.method is Method.MERGE:
            buffers = 1 if self.inner == 1 else self.columns + 1
            return buffers * self.buffer_bytes
        return 0

    @property
    def cost(self) -> float:
        """The estimated nanoseconds of the whole sort on one processor."""
        if self.method is Method.RANKS:
            each = 12.0 + 0.4 * self.length * len(self.records)
        elif self.method is Method.RADIX and self.records[0].is_quick:
            each = _quick_cycles(self.records[0], self.length)
        elif self.records:
            each = sum(map(_digit_cycles, self.records))
        else:
            each = (40.0 + 20.0 * math.log2(max(2, self.length))) * len(self.kinds)
        return cost_model().cycles(self.rows * self.length * each)

    @property
    def buffer_bytes(self) -> int:
        """The memory of one row of all operands, each aligned."""
        return sum(self.column_bytes(k) for k in range(len(self.kinds)))

    def column_bytes(self, operand: int) -> int:
        """The memory of one row of an operand, aligned."""
        return _aligned(self.length * raw_type(self.kinds[operand]).bytes)

    @property
    def phases(self) -> str:
        """The plan in words."""
        keys = ", ".join(
            f"{k.kind.hlo_name} of operand {k.operand}{' descending' * k.descending}" for k in self.order or ()
        )
        order = f"by {keys}" if keys else "by its comparator"
        return f"{self.method.value} sort of {self.rows} rows of {self.length} {order}, in {self.tasks} tasks"


def _digit_cycles(record: Record) -> float:
    """The cycles of a record that is sorted by digits."""
    return 8.0 + 8.0 * len(record.digits)


def _quick_cycles(record: Record, length: int) -> float:
    """The cycles of a record that quicksort in vectors sorts: its creation, a window's network, and partitions."""
    return 4.0 + record.bits / 64 * math.log2(max(2, length))


def _aligned(size: int) -> int:
    return -(-size // CACHE_LINE) * CACHE_LINE


def plan_sort(op: Sort, operand_shapes: Sequence[Shape]) -> SortPlan:
    """The plan for arrays of these shapes. Raises ShapeError for shapes without a size."""
    shape = operand_shapes[0]
    if shape.is_dynamic:
        raise ShapeError(f"a kernel sorts arrays of known sizes, not {shape}", hint="pad the array to its bound")
    kinds = tuple(s.element_type for s in operand_shapes)
    outer = math.prod(shape.dimensions[: op.dimension])
    length = shape.dimensions[op.dimension]
    inner = math.prod(shape.dimensions[op.dimension + 1 :])
    order = recognize_order(op.to_apply)
    if order is not None and not _fits(order, kinds):
        order = None
    return plan_rows(kinds, outer, length, inner, order)


def _fits(order: KeyOrder, kinds: Sequence[PrimitiveType]) -> bool:
    """Whether the keys have the operands' own types: the comparator may take floats of another precision."""
    return all(key.kind is kinds[key.operand].real_part for key in order)


def plan_rows(
    kinds: tuple[PrimitiveType, ...],
    outer: int,
    length: int,
    inner: int,
    order: KeyOrder | None,
) -> SortPlan:
    """The plan for ``outer * inner`` rows of elements ``inner`` apart, sorted by ``order`` or else by a comparator."""
    rows = outer * inner
    widest = max(raw_type(k).bytes for k in kinds)
    columns = max(1, min(inner, CACHE_LINE // min(widest, CACHE_LINE)))
    records = _records(order, kinds, length)
    method = _method(rows, length, order, records)
    in_place = (True,) * len(kinds)
    if records and method in (Method.RADIX, Method.PARALLEL_RADIX):
        in_place = tuple(carried(records[-1], k, kind) for k, kind in enumerate(kinds))
    if method is Method.PARALLEL_RADIX:
        tasks = rows * max(2, min(MOST_TASKS.value // rows, -(-length // CHUNK.value)))
    else:
        tasks = min(outer * -(-inner // columns), MOST_TASKS.value)
    plan = SortPlan(method, kinds, outer, length, inner, order, records, tasks, columns, in_place, 0)
    return with_scratch(plan)


def _method(rows: int, length: int, order: KeyOrder | None, records: Sequence[Record]) -> Method:
    if rows == 0 or length == 0:
        return Method.NOTHING
    if order is None:
        return Method.MERGE
    # A network takes less time than comparisons of each with each where it is not mostly filled up.
    in_networks = records[0].is_quick and length >= network_sizes(records[0].bits)[0]
    if length <= RANKED_ROW.value and not in_networks:
        return Method.RANKS
    long = length >= LONG_ROW.value and rows <= MOST_TASKS.value // 4
    if long and records[0].is_quick:
        # Quicksort of each row on one thread, which makes fewer passes, against a radix sort of each row on all
        # threads.
        threads = machine.current().threads
        long = _digit_cycles(records[0]) * min(rows, threads) < _quick_cycles(records[0], length) * threads
    return Method.PARALLEL_RADIX if long else Method.RADIX


def with_scratch(plan: SortPlan) -> SortPlan:
    """The plan with the scratch memory of its method."""
    parallel = plan.method is Method.PARALLEL_RADIX
    return replace(plan, scratch_bytes=parallel_radix_layout(plan).bytes if parallel else plan.tasks * plan.slot_bytes)


class ParallelLayout(NamedTuple):
    """The scratch memory of a parallel radix sort: the offsets of its parts, in bytes."""

    records: int  # the size of one buffer with the records of all rows
    first: int
    second: int
    counts: int
    passes: int
    exceptions: int
    bytes: int


def parallel_radix_layout(plan: SortPlan) -> ParallelLayout:
    """The scratch memory of a parallel radix sort: one or two buffers of records, the counts, the passes made."""
    widest = max(r.bytes for r in plan.records)
    records = _aligned(plan.rows * plan.length * widest)
    counts = records * (1 if plan.is_direct else 2)
    passes = counts + plan.tasks * COUNTS_BYTES
    digits = sum(len(r.digits) for r in plan.records)
    exceptions = passes + _aligned(((digits + 1) * plan.rows + 2) * 8)
    return ParallelLayout(records, 0, records, counts, passes, exceptions, exceptions + _aligned(plan.tasks))


# -- records -----------------------------------------------------------------------------------------


def carried(record: Record, operand: int, kind: PrimitiveType) -> bool:
    """Whether a record has an operand's whole element."""
    if kind.is_complex and record.find_field(operand, Part.REAL):
        return record.find_field(operand, Part.IMAG) is not None
    return record.find_field(operand) is not None


def _records(order: KeyOrder | None, kinds: Sequence[PrimitiveType], length: int) -> tuple[Record, ...]:
    """The layouts to sort by, first those of the least significant keys; a layout has keys of up to 64 bits."""
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
