"""TopK: the first elements of each row in sorted order, and where they were.

A few are kept in a short sorted list while the row goes by; blocks of elements that are all behind the last one of the
list cost a comparison each. For many, the row's elements are counted by the first bits of their keys, which tells
where the last one must be; only those up to there are sorted.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

from xlakit.cpu.kernels.sort_keys import load_raw, narrowed, ordered_bits, raw_type, store_raw, stored_bits
from xlakit.cpu.kernels.sort_order import Part, SortKey, recognise_order
from xlakit.cpu.kernels.sort_plan import MOST_TASKS, Record, make_layout
from xlakit.cpu.kernels.sort_radix import index_of, task_function
from xlakit.cpu.kernels.sort_records import NO_UNROLL, RecordSorter, load_record, make_record
from xlakit.cpu.llvm import I1, I8, I32, I64, PTR, VOID, Function, Module, Type, Value, integer, vector
from xlakit.cpu.loops.kernel import Emitted, Phase
from xlakit.data.primitive import PrimitiveType
from xlakit.data.shape import Shape
from xlakit.errors import ShapeError, UnsupportedError
from xlakit.ir.instruction import Instruction
from xlakit.ops.data import Iota
from xlakit.ops.movement import Broadcast
from xlakit.ops.sort import Sort, TopK

# Up to so many elements are kept in a list that new ones are inserted into.
FEW = 32
# So many elements are compared at once with the last one of the list.
BLOCK = 64
# How many of a key's first bits many elements are counted by.
COUNTED_BITS = 12
# From so many elements on a few long rows are cut up between tasks.
LONG_ROW = 1 << 17
CHUNK = 1 << 16


class Method(Enum):
    """How the first elements are found."""

    NOTHING = "nothing"  # none are wanted, or there are none
    LIST = "list"  # by a sorted list of them
    CHUNKED_LIST = "chunked list"  # the same for each chunk of a row, and again for what they give
    SORT = "sort"  # by sorting those that may be among them


@dataclass(frozen=True, slots=True)
class TopKPlan:
    """How the first ``k`` elements of rows are found."""

    method: Method
    key: SortKey
    rows: int
    length: int
    k: int
    tasks: int
    scratch_bytes: int

    @property
    def chunks(self) -> int:
        """In how many tasks a row is cut up."""
        return self.tasks // self.rows if self.method is Method.CHUNKED_LIST else 1

    @property
    def record(self) -> Record:
        """An element's key and its place in the row."""
        return make_layout([self.key], [self.key.kind], self.length, frozenset(), alone=False)

    @property
    def cost(self) -> float:
        """About how many nanoseconds it takes on one processor."""
        if self.method is Method.SORT:
            return self.rows * (3.0 * self.length + 15.0 * self.k)
        return self.rows * (self.length * 0.1 * self.key.kind.byte_width + self.k * 30.0)

    @property
    def phases(self) -> str:
        """The plan in words."""
        order = "largest" if self.key.descending else "smallest"
        kind = self.key.kind.hlo_name
        return f"{self.method.value}: {self.k} {order} {kind} of {self.rows} rows of {self.length}, {self.tasks} tasks"


def plan_top_k(op: TopK, operand: Shape, key: SortKey | None = None) -> TopKPlan:
    """How to find the first elements; by ``key`` if one is given, else by TopK's total order.

    Raises UnsupportedError for types without an order, ShapeError for shapes without a size.
    """
    kind = operand.element_type
    if kind.is_complex:
        raise UnsupportedError(f"{kind.hlo_name} has no order")
    if operand.is_dynamic:
        raise ShapeError(f"a kernel takes arrays of known sizes, not {operand}", hint="pad the array to its bound")
    *outer, length = operand.dimensions
    rows = math.prod(outer)
    key = key or SortKey(0, kind, descending=op.largest)
    tasks, scratch = min(rows, MOST_TASKS), 0
    bytes = make_layout([key], [kind], length, frozenset(), alone=False).bytes
    if rows == 0 or op.k == 0:
        method = Method.NOTHING
    elif op.k > FEW:
        method, scratch = Method.SORT, tasks * 2 * length * bytes
    elif length >= LONG_ROW and rows <= MOST_TASKS // 4:
        method, tasks = Method.CHUNKED_LIST, rows * min(MOST_TASKS // rows, length // CHUNK)
        scratch = tasks * op.k * bytes
    else:
        method = Method.LIST
    return TopKPlan(method, key, rows, length, op.k, tasks, scratch)


def top_k_kernel(module: Module, instruction: Instruction) -> Emitted:
    """The phases of a topk instruction, no updates, and the bytes of scratch memory. Raises as ``plan_top_k``."""
    plan = plan_top_k(instruction.op_as(TopK), instruction.operands[0].shape)
    return tuple(emit_top_k(module, plan)), {}, plan.scratch_bytes


def emit_top_k(module: Module, plan: TopKPlan) -> list[Phase]:
    """Write the task functions, which run one after another.

    Their table holds the operand, the values, the indices (S32) and the scratch memory of ``plan.scratch_bytes`` bytes,
    aligned to 64. The values may not have the memory of the operand.
    """
    if plan.method is Method.NOTHING:
        return []
    if plan.method is Method.SORT:
        return [_emit_sorted(module, plan)]
    chosen = _List(module, plan)
    if plan.method is Method.LIST:
        return [chosen.emit_rows()]
    return [chosen.emit_chunks(), chosen.emit_joined()]


def recognise_top_k(sort: Instruction) -> SortKey | None:
    """The key by which a sort of (values, indices) sorts, if its first elements are what a kernel of TopK gives.

    That is a sort along the last dimension by its first operand, of which the second one holds the index as S32.
    """
    op = sort.op_as(Sort)
    if len(sort.operands) != 2 or op.dimension != sort.operands[0].shape.rank - 1:
        return None
    order = recognise_order(op.to_apply)
    values, indices = sort.operands
    if order is None or len(order) != 1 or order[0].operand != 0 or order[0].part is not Part.WHOLE:
        return None
    if order[0].kind is not values.shape.element_type or indices.shape.element_type is not PrimitiveType.S32:
        return None
    dimension = op.dimension
    while isinstance(indices.op, Broadcast):
        if dimension not in indices.op.dimensions:
            return None
        dimension = list(indices.op.dimensions).index(dimension)
        indices = indices.operands[0]
    return order[0] if isinstance(indices.op, Iota) and indices.op.iota_dimension == dimension else None


class _Arrays:
    """The operand and the results as code sees them."""

    def __init__(self, fn: Function, plan: TopKPlan) -> None:
        self.fn = fn
        self.plan = plan
        self.kind = plan.key.kind
        count = 3 + bool(plan.scratch_bytes)
        pointers = [fn.load(PTR, fn.at(fn.parameters[0], PTR, n), invariant=True) for n in range(count)]
        self.operand, self.values, self.indices = pointers[:3]
        self.scratch = pointers[-1]

    def row(self, row: Value) -> Value:
        """The row's elements."""
        return self.fn.at(self.operand, raw_type(self.kind), row * self.plan.length)

    def store(self, row: Value, place: Value, index: Value) -> None:
        """Write a result: the element of the row that stands at ``index``."""
        target = row * self.plan.k + place
        store_raw(self.fn, load_raw(self.fn, self.kind, self.row(row), index), self.values, target)
        self.fn.store(narrowed(index, I32), self.fn.at(self.indices, I32, target))


def _ordered(fn: Function, key: SortKey, bits: Value) -> Value:
    """Unsigned integers of which the least is that of the first element."""
    return ordered_bits(fn, key, stored_bits(fn, key, bits), exceptions=True)


def _signed(ordered: Value) -> Value:
    """Signed integers that order as unsigned ones: processors compare vectors of these."""
    return ordered ^ (-1 << (ordered.type.element.bits - 1))


# -- few elements ------------------------------------------------------------------------------------


class _List:
    """A sorted list of an element's key, above, and its index, below, in one integer each: the least come first."""

    def __init__(self, module: Module, plan: TopKPlan) -> None:
        self.module = module
        self.plan = plan
        self.key_type = raw_type(plan.key.kind)
        self.index_bits = plan.record.bits - self.key_type.bits
        self.type: Type = integer(plan.record.bits)
        self.insert = self._write_insert()
        self.scan = self._write_scan()

    def emit_rows(self) -> Phase:
        """Each row in one task."""
        plan, fn = self.plan, task_function(self.module, "top_k_rows")
        arrays = _Arrays(fn, plan)
        kept = fn.alloca(self.type, plan.k, align=64)
        _, begin, end = fn.parameters
        first, last = (bound * plan.rows // plan.tasks for bound in (begin, end))
        with fn.loop(first, last) as loop:
            fn.call(self.scan, VOID, arrays.row(loop.index), fn.i64(0), fn.i64(plan.length), kept)
            self._store(arrays, loop.index, kept)
        fn.ret()
        return Phase(fn.name, plan.tasks, plan.cost)

    def emit_chunks(self) -> Phase:
        """The first elements of each chunk of a row."""
        plan, fn = self.plan, task_function(self.module, "top_k_chunks")
        arrays = _Arrays(fn, plan)
        _, begin, end = fn.parameters
        with fn.loop(begin, end) as loop:
            row, chunk = loop.index // plan.chunks, loop.index % plan.chunks
            low, high = (part * plan.length // plan.chunks for part in (chunk, chunk + 1))
            kept = fn.at(arrays.scratch, self.type, loop.index * plan.k)
            fn.call(self.scan, VOID, arrays.row(row), low, high, kept)
        fn.ret()
        return Phase(fn.name, plan.tasks, plan.cost)

    def emit_joined(self) -> Phase:
        """The first of what a row's chunks gave; they stay in the first chunk's list."""
        plan, fn = self.plan, task_function(self.module, "top_k_join")
        arrays = _Arrays(fn, plan)
        _, begin, end = fn.parameters
        with fn.loop(begin, end) as loop:
            kept = fn.at(arrays.scratch, self.type, loop.index * (plan.chunks * plan.k))
            with fn.loop(plan.k, plan.chunks * plan.k, hints=NO_UNROLL) as others:
                self._offer(fn, kept, self._load(fn, kept, others.index))
            self._store(arrays, loop.index, kept)
        fn.ret()
        return Phase(fn.name, plan.rows, plan.rows * plan.chunks * plan.k * 10.0)

    def _store(self, arrays: _Arrays, row: Value, kept: Value) -> None:
        fn = arrays.fn
        with fn.loop(0, self.plan.k, hints=NO_UNROLL) as loop:
            own = self._load(fn, kept, loop.index) & ((1 << self.index_bits) - 1)
            arrays.store(row, loop.index, narrowed(own, I64))

    def _load(self, fn: Function, kept: Value, index: Value | int) -> Value:
        return fn.load(self.type, fn.at(kept, self.type, index), align=8)

    def _offer(self, fn: Function, kept: Value, record: Value) -> None:
        """Insert a record if it is before the last one that is kept."""
        with fn.if_(record.compare("ult", self._load(fn, kept, self.plan.k - 1))):
            fn.call(self.insert, VOID, kept, fn.i64(self.plan.k - 1), record)

    def _write_insert(self) -> Function:
        """``void(ptr kept, i64 count, record)``: put a record into its place among ``count``, and the rest behind."""
        fn = self.module.function("top_k_insert", VOID, [PTR, I64, self.type])
        kept, count, record = fn.parameters

        def behind(place: Value) -> Value:
            before = fn.select(place > 0, place - 1, place)
            return (place > 0) & record.compare("ult", self._load(fn, kept, before))

        with fn.while_([count], lambda step: behind(step.carried[0])) as step:
            (place,) = step.carried
            store_raw(fn, self._load(fn, kept, place - 1), kept, place)
            step.next(place - 1)
        store_raw(fn, record, kept, step.results[0])
        fn.ret()
        return fn

    def _write_scan(self) -> Function:
        """``void(ptr row, i64 begin, i64 end, ptr kept)``: the first elements of a part of a row."""
        fn = self.module.function("top_k_scan", VOID, [PTR, I64, I64, PTR], attributes=["noinline"])
        row, begin, end, kept = fn.parameters
        plan = self.plan
        filled = begin + plan.k
        with fn.loop(begin, filled, hints=NO_UNROLL) as loop:
            record = self._record(fn, row, loop.index)
            fn.call(self.insert, VOID, kept, loop.index - begin, record)
        blocks = (end - filled) // BLOCK
        wide = vector(self.key_type, BLOCK)
        with fn.loop(0, blocks, hints=NO_UNROLL) as loop:
            start = filled + loop.index * BLOCK
            last = narrowed(self._load(fn, kept, plan.k - 1) >> self.index_bits, self.key_type)
            elements = fn.load(wide, fn.at(row, self.key_type, start))
            ahead = _signed(_ordered(fn, plan.key, elements)) < fn.splat(_signed(last), BLOCK)
            found = ahead.bits_as(integer(BLOCK))
            with fn.if_(found.ne(0), likely=False), fn.while_([found], lambda step: step.carried[0].ne(0)) as step:
                (left,) = step.carried
                lane = fn.intrinsic("llvm.cttz", I64, left, fn.constant(I1, 1))
                self._offer(fn, kept, self._record(fn, row, start + lane))
                step.next(left & (left - 1))
        with fn.loop(filled + blocks * BLOCK, end, hints=NO_UNROLL) as loop:
            self._offer(fn, kept, self._record(fn, row, loop.index))
        fn.ret()
        return fn

    def _record(self, fn: Function, row: Value, index: Value) -> Value:
        ordered = _ordered(fn, self.plan.key, load_raw(fn, self.plan.key.kind, row, index))
        return (narrowed(ordered, self.type) << self.index_bits) | narrowed(index, self.type)


# -- many elements -----------------------------------------------------------------------------------


def _emit_sorted(module: Module, plan: TopKPlan) -> Phase:
    """Sort those elements of each row that may be among the first."""
    sorter = RecordSorter(module, plan.record, plan.length)
    collect = _write_collect(module, plan)
    fn = task_function(module, "top_k_sorted")
    arrays = _Arrays(fn, plan)
    _, begin, end = fn.parameters
    size = plan.length * plan.record.bytes
    own = fn.at(arrays.scratch, I8, begin * (2 * size))
    other = fn.at(own, I8, size)
    first, last = (bound * plan.rows // plan.tasks for bound in (begin, end))
    with fn.loop(first, last) as loop:
        count = fn.call(collect, I64, arrays.row(loop.index), own)
        done = sorter.sort(fn, own, other, own, count, fn.constant(I1, 1))
        with fn.loop(0, plan.k, hints=NO_UNROLL) as results:
            value = load_record(fn, plan.record, done, results.index)
            arrays.store(loop.index, results.index, index_of(fn, plan.record, value))
    fn.ret()
    return Phase(fn.name, plan.tasks, plan.cost)


def _write_collect(module: Module, plan: TopKPlan) -> Function:
    """``i64(ptr row, ptr records)``: make records of at least the first k elements of a row; gives how many."""
    fn = module.function("top_k_collect", I64, [PTR, PTR], attributes=["noinline"])
    row, records = fn.parameters
    type = raw_type(plan.key.kind)
    digits = 1 << min(COUNTED_BITS, type.bits)
    counts = fn.alloca(I64, digits, align=64)
    fn.fill(counts, 0, 8 * digits)

    def digit(bits: Value) -> Value:
        return narrowed(_ordered(fn, plan.key, bits) >> (type.bits - digits.bit_length() + 1), I64)

    with fn.loop(0, plan.length) as loop:
        address = fn.at(counts, I64, digit(load_raw(fn, plan.key.kind, row, loop.index)))
        fn.store(fn.load(I64, address) + 1, address)
    with fn.while_([fn.i64(0), fn.load(I64, counts)], lambda step: step.carried[1] < plan.k) as step:
        following = step.carried[0] + 1
        step.next(following, step.carried[1] + fn.load(I64, fn.at(counts, I64, following)))
    last = step.results[0]
    with fn.loop(0, plan.length, carried=[fn.i64(0)]) as loop:
        (place,) = loop.carried
        bits = load_raw(fn, plan.key.kind, row, loop.index)
        record, _ = make_record(fn, plan.record, lambda _: bits, loop.index)
        # It is written in any case, and overwritten by the next one if it does not count.
        store_raw(fn, record, records, place)
        loop.next(place + (digit(bits) <= last).cast("zext", I64))
    fn.ret(loop.results[0])
    return fn
