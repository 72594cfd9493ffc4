"""Decides how rows are sorted, all of it before any code is written.

A :class:`SortPlan` says the method, the records, how these are made of elements, and the tasks; the emitters look at
nothing else. :func:`plan_rows` makes it, and its ``_method`` is where the method is chosen::

    no elements                               NOTHING
    the comparator compares no known keys     MERGE           merge.py
    short rows                                RANKS           ranks.py
    records are numbers that vectors sort     QUICK           rows.py, quick.py
    few long rows                             PARALLEL_RADIX  parallel_radix.py
    else                                      RADIX           rows.py
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from enum import Enum
from typing import NamedTuple

from xlakit import machine
from xlakit.cpu.kernels.sort.keys import is_unchanged, raw_type
from xlakit.cpu.kernels.sort.quick import has_compress, network_sizes
from xlakit.cpu.kernels.sort.record import COUNTS_BYTES, INDEX, RADIX, Record, carried, layouts_of
from xlakit.data.primitive import PrimitiveType
from xlakit.data.shape import Shape
from xlakit.dataclass import dataclass
from xlakit.errors import ShapeError
from xlakit.ops.sort import Sort
from xlakit.options import knob, times
from xlakit.passes.analysis.cost_model import cost_model
from xlakit.passes.analysis.sort_order import KeyOrder, Part, recognize_order
from xlakit.target import vector_bytes

# Few rows of at least this length are divided among tasks, into chunks that are long against the tables of counts that
# each of them has for each digit.
LONG_ROW = knob("sort_plan.long_row", 1 << 17, 40, 300, tries=(times(0.25), times(4)))
CHUNK = knob("sort_plan.chunk", 1 << 16, 16, 100, tries=(times(0.25), times(4)))
# The most tasks that share the work. Fixed, so that results and buffers do not depend on the machine.
MOST_TASKS = knob("sort_plan.most_tasks", 32, 8)
CACHE_LINE = 64
# Rows of up to this many elements are sorted by counting, for each element, those before it. For each byte of a key
# these are n * n / vector_bytes() comparisons; sorting by digits clears and adds up RADIX counts for it, and that takes
# longest in short rows.
RANKED_ROW = knob("sort_plan.ranked_row", lambda: math.isqrt(RADIX * vector_bytes()), 0, 2, 16, tries=(16, 512))


class Method(Enum):
    """How rows are sorted."""

    NOTHING = "nothing"  # no elements
    RANKS = "ranks"  # short rows: count for each element those before it
    QUICK = "quick"  # by partitions and networks in vectors, each row in one task
    RADIX = "radix"  # by digits of the keys, each row in one task
    PARALLEL_RADIX = "parallel radix"  # the same, a row's chunks being tasks
    MERGE = "merge"  # by calling the comparator, each row in one task

    @property
    def moves_records(self) -> bool:
        """Whether rows are sorted as records, of which elements are unpacked afterwards."""
        return self in (Method.QUICK, Method.RADIX, Method.PARALLEL_RADIX)


class Form(Enum):
    """How the records of a row are made of its elements."""

    ELEMENTS = "elements"  # the elements of the only operand are the records
    PACKED = "packed"  # of the only key, and the element of at most one other operand, in contiguous rows
    GATHERED = "gathered"  # of any keys and operands; rows that lie side by side are read together


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
    def form(self) -> Form:
        """How records are made."""
        (record, *others), key = self.records, self.records[0].keys[0]
        if others or self.inner > 1:
            return Form.GATHERED
        is_element = len(self.kinds) == 1 and record.bits == raw_type(self.kinds[0]).bits
        if is_element and record.find_field(0) is not None and is_unchanged(key):
            return Form.ELEMENTS
        has_pairs = len(self.kinds) == len(record.fields) <= 2 and record.find_field(INDEX) is None
        return Form.PACKED if has_pairs and len(record.keys) == 1 and key.part is Part.WHOLE else Form.GATHERED

    @property
    def keeps_records(self) -> bool:
        """Whether records are kept as they are while they are sorted, for those whose keys are exceptions."""
        return self.method is Method.QUICK and self.records[0].has_exceptions

    @property
    def slot_bytes(self) -> int:
        """The scratch memory of a task that sorts whole rows."""
        if self.method in (Method.QUICK, Method.RADIX):
            buffers = 1 if self.form is Form.ELEMENTS else self.columns + 1 + self.keeps_records
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
        elif self.method is Method.QUICK:
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
    records = layouts_of(order, kinds, length)
    method = _method(rows, length, order, records)
    in_place = (True,) * len(kinds)
    if method.moves_records:
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
    record, quick = records[0], is_quick(records)
    # A network takes less time than comparisons of each with each where it is not mostly filled up.
    if length <= RANKED_ROW.value and not (quick and length >= network_sizes(record.bits)[0]):
        return Method.RANKS
    is_shared = length >= LONG_ROW.value and rows <= MOST_TASKS.value // 4
    if is_shared and quick:
        # Quicksort of each row on one thread, which makes fewer passes, against a radix sort of each row on all
        # threads.
        threads = machine.current().threads
        is_shared = _digit_cycles(record) * min(rows, threads) < _quick_cycles(record, length) * threads
    if is_shared:
        return Method.PARALLEL_RADIX
    return Method.QUICK if quick else Method.RADIX


def is_quick(records: Sequence[Record]) -> bool:
    """Whether vectors can sort the records: there is one layout, which is a number, and there are instructions."""
    return len(records) == 1 and records[0].is_whole and has_compress(records[0].bits)


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
    counts = records * (1 if plan.form is Form.ELEMENTS else 2)
    passes = counts + plan.tasks * COUNTS_BYTES
    digits = sum(len(r.digits) for r in plan.records)
    exceptions = passes + _aligned(((digits + 1) * plan.rows + 2) * 8)
    return ParallelLayout(records, 0, records, counts, passes, exceptions, exceptions + _aligned(plan.tasks))
