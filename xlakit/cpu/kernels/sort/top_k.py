"""The first elements of each row in sorted order, and their positions: TopK, and sorts whose other results are unused.

Few elements are collected in a short sorted list in one pass over the row; blocks of elements that are all behind the
last one of the list cost a comparison each. For many, the row's elements are counted by the first bits of their keys,
which bounds the last element wanted; only elements up to the bound are sorted.

The last elements in sorted order are the first ones in the opposite order of the row read backwards; this also keeps
the order of equal elements.
"""

from __future__ import annotations

import math
from dataclasses import replace
from enum import Enum
from typing import NamedTuple, TypeVar

from xlakit.cpu.declined import DeclinedError
from xlakit.cpu.kernels.shared import common
from xlakit.cpu.kernels.shared.preconditions import require
from xlakit.cpu.kernels.sort.common import RecordSorter
from xlakit.cpu.kernels.sort.keys import load_bits, load_raw, raw_type, store_raw
from xlakit.cpu.kernels.sort.plan import MOST_TASKS
from xlakit.cpu.kernels.sort.record import INDEX, Record, index_of, make_layout
from xlakit.cpu.kernels.sort.top_k_common import CollectFirst, JoinFirst, KeepFirst, RowKeys
from xlakit.cpu.llvm import I8, I64, Effort, Module, Value
from xlakit.cpu.llvm.loop import NO_UNROLL
from xlakit.cpu.loops.emit.kernel import Kernel, Phase, kernel_function
from xlakit.data.primitive import PrimitiveType
from xlakit.data.shape import Shape
from xlakit.dataclass import dataclass
from xlakit.errors import ShapeError
from xlakit.ir.instruction import Computation, Instruction
from xlakit.ops.data import Parameter
from xlakit.ops.sort import Sort, TopK
from xlakit.options import knob
from xlakit.passes.analysis.cost_model import cost_model
from xlakit.passes.analysis.sort_order import SortKey
from xlakit.passes.simplify.partial_sorts import is_index, partial_sort

# Up to this many elements are collected in a list, by insertion.
FEW = knob("top_k.few", 32, 0, 3)
# Few rows of at least this length are divided among tasks, into chunks that are long against the number of elements
# found in each of them; these elements are then sorted together.
LONG_ROW = knob("top_k.long_row", 1 << 17, 40, 300)
CHUNK = knob("top_k.chunk", 1 << 16, 64, 320)
# Rows are not divided if more than one in this many elements of a chunk is wanted: for each that is found, whose digits
# are counted and moved once more, as many could be compared with the bound.
WANTED_OF_CHUNK = knob("top_k.wanted_of_chunk", 400, 2)


_RowFunction = TypeVar("_RowFunction", bound=RowKeys)


class Method(Enum):
    """How the first elements are found."""

    NOTHING = "nothing"  # none are wanted, or there are none
    LIST = "list"  # by a sorted list of them
    CHUNKED_LIST = "chunked list"  # the same for each chunk of a row, and again for what they give
    RADIX_SELECT = "radix select"  # by sorting those up to a bound, which is found by counting digits
    CHUNKED_RADIX_SELECT = "chunked radix select"  # the same for each chunk of a row; what they give is sorted again

    @property
    def is_chunked(self) -> bool:
        """Whether several tasks share a row."""
        return self in (Method.CHUNKED_LIST, Method.CHUNKED_RADIX_SELECT)

    @property
    def sorts(self) -> bool:
        """Whether records are sorted, in buffers."""
        return self in (Method.RADIX_SELECT, Method.CHUNKED_RADIX_SELECT)


class Column(NamedTuple):
    """A result: the elements of an array at the positions found, or these positions (INDEX)."""

    kind: PrimitiveType
    array: int


@dataclass(frozen=True, slots=True)
class TopKPlan:
    """How the first ``k`` elements of rows are found, or the ``last`` ones.

    key: the key by which the wanted elements are first; for the last elements, the opposite of the key that rows are
    sorted by. Its operand is the number of its array. arrays: the number of arrays given. columns: the contents of the
    results.
    """

    method: Method
    key: SortKey
    arrays: int
    columns: tuple[Column, ...]
    rows: int
    length: int
    k: int
    last: bool
    tasks: int
    scratch_bytes: int

    @property
    def chunks(self) -> int:
        """The number of tasks that share a row."""
        return self.tasks // self.rows if self.method.is_chunked else 1

    @property
    def buffer_bytes(self) -> int:
        """The bytes of one of a task's two buffers for sorting: of records of all elements that the task reads."""
        return -(-self.length // self.chunks) * self.record.bytes

    @property
    def record(self) -> Record:
        """An element's key and its position in the row."""
        return _record_layout(self.key, self.length)

    def common(self, function: type[_RowFunction]) -> _RowFunction:
        """A common function over the keys of rows or over records, for the types of this plan."""
        return function(replace(self.key, operand=0), self.record.bits, self.record.field(INDEX).bits, self.last)

    @property
    def cost(self) -> float:
        """The estimated nanoseconds on one processor."""
        if self.method.sorts:
            # In rows that are long against k, most elements are only compared.
            cycles = min(12.0 * self.length + 60.0 * self.k, 2.0 * self.length + 600.0 * self.k)
        else:
            cycles = self.length * 0.4 * self.key.kind.byte_width + self.k * 120.0
        return cost_model().cycles(self.rows * cycles)

    @property
    def phases(self) -> str:
        """The plan in words."""
        order = "largest" if self.key.descending else "smallest"
        kind = self.key.kind.hlo_name
        return f"{self.method.value}: {self.k} {order} {kind} of {self.rows} rows of {self.length}, {self.tasks} tasks"


def _record_layout(key: SortKey, length: int) -> Record:
    return make_layout([replace(key, operand=0)], [key.kind], length, alone=False)


def plan_top_k(op: TopK, operand: Shape) -> TopKPlan:
    """The plan of a TopK, by its total order.

    Raises DeclinedError for types without an order, ShapeError for shapes without a size.
    """
    kind = operand.element_type
    if kind.is_complex:
        raise DeclinedError(f"{kind.hlo_name} has no order")
    columns = Column(kind, 0), Column(PrimitiveType.S32, INDEX)
    return _plan(SortKey(0, kind, descending=op.largest), operand, op.k, 1, columns)


def plan_partial_sort(computation: Computation) -> TopKPlan | None:
    """The plan of a fusion that sorts rows and takes their first or last elements; None for others."""
    partial = partial_sort(computation)
    if partial is None:
        return None
    operands = partial.sort.operands
    numbers = {n: o.op.number for n, o in enumerate(operands) if isinstance(o.op, Parameter)}
    dimension = partial.sort.op_as(Sort).dimension
    if partial.key.operand not in numbers or any(
        n not in numbers and not is_index(operands[n], dimension) for n in partial.results
    ):
        return None
    columns = tuple(Column(operands[n].shape.element_type, numbers.get(n, INDEX)) for n in partial.results)
    key = replace(
        partial.key, operand=numbers[partial.key.operand], descending=partial.key.descending is not partial.last
    )
    shape = operands[partial.key.operand].shape
    return _plan(key, shape, partial.count, len(computation.parameters), columns, last=partial.last)


def _plan(
    key: SortKey, shape: Shape, k: int, arrays: int, columns: tuple[Column, ...], *, last: bool = False
) -> TopKPlan:
    if shape.is_dynamic:
        raise ShapeError(f"a kernel takes arrays of known sizes, not {shape}", hint="pad the array to its bound")
    *outer, length = shape.dimensions
    rows = math.prod(outer)
    bytes = _record_layout(key, length).bytes
    is_long = (
        length >= max(LONG_ROW.value, CHUNK.value)
        and 0 < rows <= MOST_TASKS.value // 4
        and k * WANTED_OF_CHUNK.value <= CHUNK.value
    )
    tasks = rows * min(MOST_TASKS.value // rows, length // CHUNK.value) if is_long else min(rows, MOST_TASKS.value)
    scratch = tasks * k * bytes if is_long else 0
    if rows == 0 or k == 0:
        method = Method.NOTHING
    elif k <= FEW.value:
        method = Method.CHUNKED_LIST if is_long else Method.LIST
    else:
        method = Method.CHUNKED_RADIX_SELECT if is_long else Method.RADIX_SELECT
        chunk = -(-length * rows // tasks) if is_long else length
        scratch += 2 * tasks * chunk * bytes
    return TopKPlan(method, key, arrays, columns, rows, length, k, last, tasks, scratch)


def top_k_kernel(module: Module, instruction: Instruction) -> Kernel:
    """The kernel of a topk instruction. Raises as ``plan_top_k``."""
    plan = plan_top_k(instruction.op_as(TopK), instruction.operands[0].shape)
    return Kernel(tuple(emit_top_k(module, plan)), scratch_bytes=plan.scratch_bytes)


def emit_partial_sort(module: Module, computation: Computation) -> Kernel | None:
    """The kernel of a fusion that sorts rows and takes their first or last elements; None for other fusions."""
    plan = plan_partial_sort(computation)
    return None if plan is None else Kernel(tuple(emit_top_k(module, plan)), scratch_bytes=plan.scratch_bytes)


def emit_top_k(module: Module, plan: TopKPlan) -> list[Phase]:
    """Write the task functions, which run one after another.

    Their table has the arrays given, the results and the scratch memory of ``plan.scratch_bytes`` bytes, aligned to 64.
    Results may not have the memory of the arrays given.
    """
    check_plan(plan)
    if plan.method is Method.NOTHING:
        return []
    if plan.method.is_chunked:
        return [_emit_chunks(module, plan), _emit_joined(module, plan)]
    return [_emit_rows(module, plan)]


def check_plan(plan: TopKPlan) -> None:
    """Raise InternalError if lists or the buffers for sorting would be too short."""
    if plan.method is Method.NOTHING:
        return
    lists = plan.tasks * plan.k * plan.record.bytes if plan.method.is_chunked else 0
    buffers = 2 * plan.tasks * plan.buffer_bytes if plan.method.sorts else 0
    require(
        f"the first {plan.k} of {plan.rows} rows of {plan.length} in {plan.tasks} tasks",
        [
            ("there are rows and tasks", plan.rows > 0 and plan.tasks > 0),
            ("rows are whole numbers of chunks", not plan.method.is_chunked or plan.tasks % plan.rows == 0),
            ("each chunk has as many elements as are wanted", 0 < plan.k <= plan.length // max(1, plan.chunks)),
            ("all positions fit a record", plan.length <= 1 << 32 or plan.record.bits > 64),
            ("scratch is as long", plan.scratch_bytes >= lists + buffers),
        ],
    )


class _Rows:
    """Rows as the code of a phase accesses them: their keys, their first elements, and their results.

    The position of an element in its row is given by its rank in reading order: rows are read backwards if their last
    elements are wanted.
    """

    def __init__(self, module: Module, name: str, effort: Effort, plan: TopKPlan) -> None:
        self._sorter = RecordSorter(module, plan.record, plan.length) if plan.method.sorts else None
        self.fn, table, self.begin, self.end = kernel_function(module, name)
        fn = self.fn
        fn.effort = effort
        self.plan = plan
        count = plan.arrays + len(plan.columns) + bool(plan.scratch_bytes)
        pointers = [fn.pointer(table, n) for n in range(count)]
        self.given, self.results = pointers[: plan.arrays], pointers[plan.arrays :][: len(plan.columns)]
        self.scratch = pointers[-1]

    def row(self, row: Value) -> Value:
        """The address of the row's keys."""
        return self.fn.at(self.given[self.plan.key.operand], raw_type(self.plan.key.kind), row * self.plan.length)

    def first(self, row: Value, begin: Value, end: Value, records: Value) -> Value:
        """The address of the records of the first ``k`` elements of a range of ranks, in order.

        records: memory for ``k`` of them; if they are sorted, the two buffers of a task.
        """
        plan, fn = self.plan, self.fn
        chunk = self.row(row), fn.i64(plan.length), begin, end
        if self._sorter is None:
            common.call(fn, plan.common(KeepFirst), *chunk, fn.i64(plan.k), records)
            return records
        count = fn.alloca(I64)
        common.call(fn, plan.common(CollectFirst), *chunk, fn.i64(plan.k), records, count)
        return self._sorter.sort(fn, records, fn.at(records, I8, plan.buffer_bytes), records, fn.load(I64, count))

    def joined(self, lists: Value, other: Value) -> Value:
        """The address of the records of a row's first elements, given the lists of its chunks and as much memory."""
        plan, fn = self.plan, self.fn
        if self._sorter is not None:
            return self._sorter.sort(fn, lists, other, lists, fn.i64(plan.chunks * plan.k))
        common.call(fn, plan.common(JoinFirst), lists, fn.i64(plan.chunks), fn.i64(plan.k))
        return lists

    def store(self, row: Value, records: Value) -> None:
        """Write the results of a row, by the records of its first elements in order."""
        plan, fn = self.plan, self.fn
        with fn.loop(0, plan.k, hints=NO_UNROLL) as loop:
            rank = index_of(fn, plan.record, load_bits(fn, plan.record.type, records, loop.index))
            index = plan.length - 1 - rank if plan.last else rank
            target = row * plan.k + (plan.k - 1 - loop.index if plan.last else loop.index)
            for column, result in zip(plan.columns, self.results, strict=True):
                if column.array == INDEX:
                    bits = index.resized(raw_type(column.kind))
                else:
                    bits = load_raw(fn, column.kind, self.given[column.array], row * plan.length + index)
                store_raw(fn, bits, result, target)


def _emit_rows(module: Module, plan: TopKPlan) -> Phase:
    """The phase that finds the first elements of each row in one task."""
    rows = _Rows(module, "top_k_rows", Effort.CODE, plan)
    fn = rows.fn
    if plan.method.sorts:
        memory = fn.at(rows.scratch, I8, rows.begin * (2 * plan.buffer_bytes))
    else:
        memory = fn.alloca(plan.record.type, plan.k, align=64)
    first, last = (bound * plan.rows // plan.tasks for bound in (rows.begin, rows.end))
    with fn.loop(first, last) as loop:
        rows.store(loop.index, rows.first(loop.index, fn.i64(0), fn.i64(plan.length), memory))
    return Phase(fn.name, plan.tasks, plan.cost)


def _emit_chunks(module: Module, plan: TopKPlan) -> Phase:
    """The phase that finds the first elements of each chunk of a row, and writes them to a list."""
    rows = _Rows(module, "top_k_chunks", Effort.LITTLE, plan)
    fn = rows.fn
    list_bytes = plan.k * plan.record.bytes
    buffers = fn.at(rows.scratch, I8, plan.tasks * list_bytes)
    with fn.loop(rows.begin, rows.end) as loop:
        chunk = _chunk(plan, loop.index)
        target = fn.at(rows.scratch, I8, loop.index * list_bytes)
        if plan.method.sorts:
            records = rows.first(*chunk, fn.at(buffers, I8, loop.index * (2 * plan.buffer_bytes)))
            fn.copy(target, records, list_bytes)
        else:
            rows.first(*chunk, target)
    return Phase(fn.name, plan.tasks, plan.cost)


def _emit_joined(module: Module, plan: TopKPlan) -> Phase:
    """The phase that joins the lists of a row's chunks, and writes the results."""
    rows = _Rows(module, "top_k_joined", Effort.CODE if plan.method.sorts else Effort.LITTLE, plan)
    fn = rows.fn
    count = plan.chunks * plan.k
    buffers = fn.at(rows.scratch, I8, plan.rows * count * plan.record.bytes)
    with fn.loop(rows.begin, rows.end) as loop:
        lists, other = (fn.at(memory, plan.record.type, loop.index * count) for memory in (rows.scratch, buffers))
        rows.store(loop.index, rows.joined(lists, other))
    cycles = 60.0 if plan.method.sorts else 40.0
    return Phase(fn.name, plan.rows, cost_model().cycles(cycles * plan.rows * count))


def _chunk(plan: TopKPlan, task: Value) -> tuple[Value, Value, Value]:
    """The row of a task that has a chunk of it, and the ranks at which the chunk begins and ends."""
    row, chunk = task // plan.chunks, task % plan.chunks
    begin, end = (part * plan.length // plan.chunks for part in (chunk, chunk + 1))
    return row, begin, end
