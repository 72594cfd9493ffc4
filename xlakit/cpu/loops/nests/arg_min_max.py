"""Reductions that find the position of the greatest or the least element of a row.

They are reductions of (elements, their positions) by comparisons. First the greatest of each block is found, many
elements at once; then, in the best block only, its first position. Both loops are divided into the same vectors, so
that an element is computed by the same code in both: the second loop searches for the exact bits that the first one
has found.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from xlakit.cpu.declined import DeclinedError
from xlakit.cpu.llvm import I8, I32, I64, Effort, Module, Value
from xlakit.cpu.loops.emit.accesses import Accesses, Nest
from xlakit.cpu.loops.emit.emitter import Emitter
from xlakit.cpu.loops.emit.kernel import TASK_NANOSECONDS, Kernel, Phase, Split, nest, store_all, task_function
from xlakit.cpu.loops.emit.lanes import lanes_of, reduce_iterations
from xlakit.cpu.loops.emit.levels import Level, Output
from xlakit.cpu.loops.ir.cost import element_cost
from xlakit.cpu.loops.ir.index import Node, Variable
from xlakit.cpu.loops.ir.nodes import Constant, Position, indices_of
from xlakit.cpu.loops.ir.reducer import Reducer, is_neutral, trace_reducer
from xlakit.cpu.loops.ir.space import Group, Space, merged, with_splits
from xlakit.cpu.loops.ir.tracer import Source, Tracer
from xlakit.cpu.loops.nests.reduced import Reduced, given_source
from xlakit.cpu.scalars import Scalar, constant, load, register_type, store
from xlakit.cpu.scalars.memory import as_real
from xlakit.data.primitive import PrimitiveType
from xlakit.dataclass import dataclass
from xlakit.ir.instruction import Computation, Instruction
from xlakit.ir.operation import Op
from xlakit.ops.elementwise.binary import Maximum, Minimum
from xlakit.options import knob
from xlakit.passes.analysis.arg_min_max import arg_min_max_of
from xlakit.passes.analysis.cost_model import cost_model
from xlakit.passes.core.computation_builder import binary_computation
from xlakit.passes.core.framework import PassContext

# Cycles to keep the best element, beside the comparison.
_KEPT_CYCLES = 0.4
# From so many cycles on, those of a division, an element has enough to do for a processor: one vector is computed at a
# time, and few elements are computed again to find the first position.
_LONG_CYCLES = knob("arg_min_max.long_cycles", 2.4, 0.0, 1e9)
_SHORT_BLOCK = knob("arg_min_max.short_block", 128, 8, tries=(32, 512))
_BLOCK = knob("arg_min_max.block", 1024, 8, 32)
_POSITION = PrimitiveType.S32
_NO_POSITION = (1 << 31) - 1
_FEW_ROWS = knob("arg_min_max.few_rows", 8, 1000)
_MOST_PARTS = knob("arg_min_max.most_parts", 32, 3)
# Fewer elements are reduced like any others.
_LEAST_ROW = knob("arg_min_max.least_row", 17, 2)


# -- the kernel ----------------------------------------------------------------------------------


@dataclass(slots=True)
class _Plan:
    """One such reduction, and the elements that are stored for each row."""

    op: Maximum | Minimum
    reducer: Reducer
    rows: list[Variable]
    row: Group
    stores: list[Output]
    # The identity, the reduction of the elements alone, and the reduction of the positions that have the best element.
    start: object
    best: Reducer
    first: Reducer

    @property
    def element(self) -> Node:
        """The node that is compared."""
        return self.reducer.inputs[0]

    @property
    def kind(self) -> PrimitiveType:
        """The element type that is compared."""
        return self.element.kind

    @property
    def nodes(self) -> list[Node]:
        """All nodes that a row needs."""
        return [self.element, *(n for o in self.stores for n in o.nodes)]

    @property
    def statement(self) -> Nest:
        """What is read and written for a row: the element is read again when its position is known."""
        return (Accesses.of(self.stores, [self.element]),)

    @property
    def lanes(self) -> int:
        """The lanes of the vectors of the loops over a row; 1 if LLVM is to vectorize them."""
        if self.kind is PrimitiveType.PRED:
            return 1
        return lanes_of(self.row, [self.element], (), [self.best, self.first])

    @property
    def has_long_elements(self) -> bool:
        """Whether computing an element costs more than comparing it."""
        return self.cost > cost_model().cycles(_LONG_CYCLES.value) * self.row.extent

    @property
    def block(self) -> int:
        """The number of elements that are searched for the first position of the best one."""
        return min(_BLOCK.value, _SHORT_BLOCK.value) if self.has_long_elements else _BLOCK.value

    @property
    def cost(self) -> float:
        """The cost of a row."""
        return (element_cost([self.element]) + cost_model().cycles(_KEPT_CYCLES)) * self.row.extent

    def is_better(self, new: Value, old: Value) -> Value:
        """Whether an element is better than one before it."""
        greater = isinstance(self.op, Maximum)
        if self.kind.is_floating:
            return new.compare("ugt" if greater else "ult", old) & ~old.is_nan()
        sign = "s" if self.kind.is_signed else "u"
        return new.compare(sign + ("gt" if greater else "lt"), old)


def emit_arg_min_max(module: Module, name: str, sources: dict[Instruction, Source], reduced: Reduced) -> Kernel | None:
    """A kernel for rows whose result is the position of the greatest or least element; None for other fusions."""
    if len(reduced.reduces) != 1 or not reduced.roots_alike():
        return None
    (reduce,) = reduced.reduces
    (size, *others) = sorted((reduced.sizes[d] for d in reduced.over), reverse=True)
    if len(reduce.operands) != 4 or math.prod(others) != 1 or size < _LEAST_ROW.value:
        return None
    op = arg_min_max_of(reduce.op.called_computations[0])
    if op is None:
        return None
    try:
        plan = with_splits(lambda space: _plan(space, sources, reduced, op))
    except DeclinedError:
        return None
    rows = math.prod(v.extent for v in plan.rows)
    parts = min(
        _MOST_PARTS.value, plan.row.extent // _BLOCK.value, int(plan.cost * rows / (2 * TASK_NANOSECONDS.value))
    )
    if rows < _FEW_ROWS.value and parts > 1:
        shared = _Shared(plan, rows, parts)
        return shared.emit(module, name, reduced.arrays + len(reduced.roots))
    return Kernel((_rows(module, name, reduced.arrays + len(reduced.roots), plan),))


def _plan(space: Space, sources: dict[Instruction, Source], reduced: Reduced, op: Maximum | Minimum) -> _Plan:
    (reduce,) = reduced.reduces
    loops = reduced.loops(space)
    reducer = trace_reducer(Tracer(dict(sources), space), reduce, loops.full)
    element, position = reducer.inputs
    groups = merged(loops.over, indices_of([element, position]))
    wanted = {loops.full[d] for d in reduced.over if reduced.sizes[d] > 1}
    start, first = reducer.initial
    if not (
        len(groups) == 1
        and isinstance(position, Position)
        and position.index in wanted
        and isinstance(start, Constant)
        and is_neutral(op, start.value, start.kind)
        and isinstance(first, Constant)
        and first.value == 0
    ):
        raise DeclinedError("not the position of a minimum or maximum")
    known = {**sources, reduce: given_source(reduce, loops.row, frozenset(loops.outer))}
    stores = reduced.epilogue(Tracer(known, space), loops.row)
    best = Reducer(reduce, _combination(op, element.kind), (element,), (start,))
    places = Position(_POSITION, position.index)
    first_place = Reducer(reduce, _combination(Minimum(), _POSITION), (places,), (Constant(_POSITION, _NO_POSITION),))
    return _Plan(op, reducer, loops.outer, groups[0], stores, start.value, best, first_place)


def _combination(op: Op, kind: PrimitiveType) -> Computation:
    return binary_computation(op.opcode, op, kind, PassContext())


def _rows(module: Module, name: str, arrays: int, plan: _Plan) -> Phase:
    groups = merged(plan.rows, indices_of(plan.nodes, [o.offset for o in plan.stores]))
    split = Split.of(groups, plan.cost)
    fn, emitter, begin, end = task_function(module, name, arrays, plan.lanes)
    # LLVM vectorizes the search for the position.
    fn.effort = Effort.ALL
    with split.tasks(fn, emitter, begin, end, plan.nodes) as levels:

        def body() -> None:
            row = _Row(emitter, plan)
            row.store(row.best(fn.i64(0), fn.i64(plan.row.extent))[1])

        nest(emitter, levels, plan.nodes, body, independent=False)
    cost = plan.cost * math.prod(g.extent for g in groups)
    return Phase(fn.name, split.count, cost, nests=(plan.statement,))


@dataclass(frozen=True, slots=True)
class _Row:
    """Writes the search in a row, or a part of it, into a function."""

    emitter: Emitter
    plan: _Plan

    def store(self, position: Value) -> None:
        """Store what a row has, given the position that was found."""
        emitter, plan = self.emitter, self.plan
        fn, kinds = emitter.fn, plan.reducer.kinds
        with emitter.scope():
            emitter.bind_group(plan.row, position)
            element = emitter.value(plan.element)
        number = register_type(kinds[1])
        emitter.bind((plan.reducer.instruction, 0), element)
        emitter.bind(
            (plan.reducer.instruction, 1),
            position if number is I64 else fn.emit(number, f"trunc i64 {position.text} to {number.name}"),
        )
        store_all(emitter, plan.stores)

    def best(self, begin: Value, end: Value) -> tuple[Value, Value]:
        """The best element of a part of a row, and its first position."""
        emitter, plan, fn = self.emitter, self.plan, self.emitter.fn
        emitter.hoist([plan.element], frozenset(plan.rows))
        start = as_real(constant(fn, plan.kind, plan.start))

        def best_of_block(begin: Value, end: Value) -> Value:
            return self._reduced(plan.best, (begin, end), start, lambda: emitter.lane_values(plan.element))

        if begin.constant is not None and end.constant is not None and end.constant - begin.constant <= plan.block:
            best = best_of_block(begin, end)
            return best, self._first(begin, end, best)
        with fn.loop(begin, end, plan.block, carried=[start, begin]) as loop:
            best, block = loop.carried
            last = (loop.index + plan.block).smin(end)
            found = best_of_block(loop.index, last)
            better = plan.is_better(found, best)
            loop.next(fn.select(better, found, best), fn.select(better, loop.index, block))
        best, block = loop.results
        last = (block + plan.block).smin(end)
        return best, self._first(block, last, best)

    def _first(self, begin: Value, end: Value, best: Value) -> Value:
        """The first position of the best element, which is near ``begin``."""
        emitter, plan, fn = self.emitter, self.plan, self.emitter.fn
        # Positions are counted from ``begin``, in 32 bits; a row may have more elements than these can count.
        origin = begin.cast("trunc", I32)

        def position() -> Value:
            element, own, wanted, start = as_real(emitter.lane_values(plan.element)), best, fn.i32(_NO_POSITION), origin
            if emitter.width > 1:
                own, wanted, start = (fn.splat(v, emitter.width) for v in (own, wanted, start))
            found = element.eq(own)
            if plan.kind.is_floating:
                # If the best element is a number, the block has no NaN; if it is NaN, no element is equal to it.
                found = found | element.is_nan()
            place = as_real(emitter.lane_values(plan.first.inputs[0]))
            return fn.select(found, place - start, wanted)

        nowhere = fn.i32(_NO_POSITION)
        return self._reduced(plan.first, (begin, end), nowhere, position).cast("zext", I64) + begin

    def _reduced(
        self, reducer: Reducer, span: tuple[Value, Value], start: Value, element: Callable[[], Scalar]
    ) -> Value:
        """A reduction over a part of a row, in vectors if the loop has them."""
        emitter, plan = self.emitter, self.plan

        def iteration(running: Sequence[Scalar]) -> Sequence[Scalar]:
            return emitter.combined(reducer.computation, list(running), [element()])

        if emitter.lanes > 1:
            low, high = (v if v.constant is None else int(v.constant) for v in span)
            width = emitter.lanes * (1 if plan.has_long_elements else 4)
            level = Level(plan.row, low, high)
            (found,) = reduce_iterations(emitter, level, [(reducer, start)], [plan.element], (), width, iteration)
            return as_real(found)
        with emitter.fn.loop(*span, carried=[start], independent=True) as loop, emitter.scope():
            emitter.bind_group(plan.row, loop.index)
            loop.next(*map(as_real, iteration(loop.carried)))
        return loop.results[0]


@dataclass(frozen=True, slots=True)
class _Shared:
    """Few long rows: each task reduces a part of all rows, then one task compares the parts.

    The argmax of f32[4000000] takes half the time on two threads.
    """

    plan: _Plan
    rows: int
    parts: int

    @property
    def positions(self) -> int:
        """The offset of the positions in scratch memory, behind the elements."""
        return -(-self.rows * self.parts * self.plan.kind.byte_width // 64) * 64

    def emit(self, module: Module, name: str, arrays: int) -> Kernel:
        """Write the functions of the two phases."""
        phases = (self._parts(module, name, arrays), self._joined(module, name, arrays))
        return Kernel(phases, scratch_bytes=self.positions + 8 * self.rows * self.parts)

    def _levels(self) -> list[Level]:
        return [Level(Group([v]), 0, v.extent) for v in self.plan.rows]

    def _row_number(self, emitter: Emitter) -> Value:
        number = emitter.fn.i64(0)
        for variable in self.plan.rows:
            number = number * variable.extent + emitter.variable(variable)
        return number

    def _parts(self, module: Module, name: str, arrays: int) -> Phase:
        plan = self.plan
        fn, emitter, begin, end = task_function(module, name, arrays + 1, plan.lanes)
        fn.effort = Effort.ALL
        with fn.loop(begin, end) as task, emitter.scope():
            low, high = ((n * plan.row.extent).integer("udiv", self.parts) for n in (task.index, task.index + 1))

            def body() -> None:
                best, position = _Row(emitter, plan).best(low, high)
                at = self._row_number(emitter) * self.parts + task.index
                store(fn, plan.kind, best, emitter.arrays[-1], at)
                fn.store(position, fn.at(fn.at(emitter.arrays[-1], I8, self.positions), I64, at))

            nest(emitter, self._levels(), [plan.element], body, independent=False)
        return Phase(fn.name, self.parts, plan.cost * self.rows, nests=((Accesses.of((), [plan.element]),),))

    def _joined(self, module: Module, name: str, arrays: int) -> Phase:
        plan = self.plan
        fn, emitter, _, __ = task_function(module, name + ".parts", arrays + 1)

        def body() -> None:
            first = self._row_number(emitter) * self.parts
            positions = fn.at(emitter.arrays[-1], I8, self.positions)
            best = as_real(load(fn, plan.kind, emitter.arrays[-1], first))
            with fn.loop(1, self.parts, carried=[best, first]) as loop:
                found = as_real(load(fn, plan.kind, emitter.arrays[-1], first + loop.index))
                better = plan.is_better(found, loop.carried[0])
                loop.next(
                    fn.select(better, found, loop.carried[0]),
                    fn.select(better, first + loop.index, loop.carried[1]),
                )
            _Row(emitter, plan).store(fn.load(I64, fn.at(positions, I64, loop.results[1])))

        nest(emitter, self._levels(), plan.nodes, body, independent=False)
        cost = cost_model().cycles(40.0 * self.rows * self.parts)
        return Phase(fn.name, 1, cost, nests=(plan.statement,))
