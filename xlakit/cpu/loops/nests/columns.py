"""Reductions that keep the minor dimension: a strip of results is accumulated in a loop over the reduced dimensions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from xlakit import machine
from xlakit.cpu.declined import DeclinedError
from xlakit.cpu.llvm import Module, Value
from xlakit.cpu.loops.emit.accesses import Accesses
from xlakit.cpu.loops.emit.cancellation import in_strips, iterations_between
from xlakit.cpu.loops.emit.emitter import Emitter
from xlakit.cpu.loops.emit.kernel import Kernel, Phase, store_all, task_function
from xlakit.cpu.loops.emit.lanes import LEAST_LANES, lanes_of, write_iterations
from xlakit.cpu.loops.emit.levels import Level, Output
from xlakit.cpu.loops.ir.cost import element_cost, reducer_cost
from xlakit.cpu.loops.ir.index import Node, Variable, of
from xlakit.cpu.loops.ir.nodes import indices_of
from xlakit.cpu.loops.ir.reducer import Reducer, trace_reducer
from xlakit.cpu.loops.ir.space import Group, Space, merged, with_splits
from xlakit.cpu.loops.ir.tracer import Source, Tracer
from xlakit.cpu.loops.nests.reduced import Parts, Reduced, bind_results, count_parts, given_source, reduce_once
from xlakit.cpu.scalars import Scalar, register_type
from xlakit.cpu.scalars.memory import Accumulators
from xlakit.dataclass import dataclass
from xlakit.ir.instruction import Instruction
from xlakit.options import knob, times
from xlakit.passes.analysis.cost_model import cost_model

# Cycles to load and store an accumulator.
_KEPT_CYCLES = 0.4
# The accumulators of a strip stay in the first-level cache, beside the rows that are read.
_STRIP_BYTES = knob("columns.strip_bytes", lambda: machine.current().l1 // 4, 1, 1024, tries=(times(0.5), times(2)))
# The iterations of the reduced loop for each load and store of an accumulator.
_AT_ONCE = 4


@dataclass(frozen=True, slots=True)
class _Plan:
    """The reductions, the stores, and the variables of their loops."""

    outer: list[Variable]
    over: list[Variable]
    reducers: list[Reducer]
    stores: list[Output]

    @property
    def inputs(self) -> list[Node]:
        return [n for f in self.reducers for n in f.inputs]

    @property
    def cost(self) -> float:
        """The nanoseconds to reduce one element."""
        return (
            element_cost(self.inputs)
            + cost_model().cycles(_KEPT_CYCLES)
            + sum(reducer_cost(f.computation) for f in self.reducers)
        )

    @property
    def initial(self) -> list[Node]:
        return [n for f in self.reducers for n in f.initial]

    @property
    def nodes(self) -> list[Node]:
        return self.inputs + self.initial + [n for o in self.stores for n in o.nodes]

    @property
    def strip(self) -> int:
        """The most results of a strip."""
        widths = sum(len(f.kinds) * max(register_type(k).bytes for k in f.kinds) for f in self.reducers)
        return max(64, _STRIP_BYTES.value // max(1, widths))


def emit_columns(module: Module, name: str, sources: dict[Instruction, Source], reduced: Reduced) -> Kernel | None:
    """A kernel that reduces in strips; None for fusions that it does not support."""
    if not reduced.roots_alike() or len(reduced.dependency_levels()) > 1:
        return None
    try:
        plan = with_splits(lambda space: _plan(space, sources, reduced))
    except DeclinedError:
        return None
    cost = plan.cost * math.prod(reduced.sizes)
    groups = merged(plan.outer, indices_of(plan.nodes, [o.offset for o in plan.stores]))
    parts = Parts(reduced, 1)
    if reduced.results <= 4 * plan.strip:
        extent = merged(plan.over, indices_of(plan.inputs))[0].extent
        parts = Parts(reduced, count_parts(reduced, plan.reducers, cost, extent))
    first = _write(module, name, parts, plan, groups, cost)
    if parts.count == 1:
        return Kernel((first,))
    return Kernel((first, parts.combine(module, name, sources)), scratch_bytes=parts.bytes)


def _plan(space: Space, sources: dict[Instruction, Source], reduced: Reduced) -> _Plan:
    """Two traces: of the reductions, at the full index; and of the stores, at the index of the kept dimensions.

    The second trace takes the reductions' results as given. The kept dimensions are the outer loops, the reduced ones
    the inner loops.
    """
    loops = reduced.loops(space)
    tracer = Tracer(dict(sources), space)
    reducers = [trace_reducer(tracer, reduce, loops.full) for reduce in reduced.reduces]
    known = dict(sources)
    for reduce in reduced.reduces:
        known[reduce] = given_source(reduce, loops.row, frozenset(loops.outer))
    return _Plan(loops.outer, loops.over, reducers, reduced.epilogue(Tracer(known, space), loops.row))


def _write(module: Module, name: str, parts: Parts, plan: _Plan, groups: list[Group], cost: float) -> Phase:
    """The phase that reduces columns: a task accumulates a strip of them, over all rows or a part of them."""
    *outer, last = groups
    strip = min(last.extent, plan.strip)
    blocks = -(-last.extent // strip)
    count = blocks * math.prod(g.extent for g in outer) * parts.count
    lanes = lanes_of(last, plan.nodes, plan.stores, plan.reducers)
    fn, emitter, begin, end = task_function(module, name, parts.arrays, lanes)
    accumulators = Accumulators.of(fn, [k for f in plan.reducers for k in f.kinds], strip)
    with fn.loop(begin, end) as task, emitter.scope():
        number = task.index
        low = number.integer("urem", blocks) * strip
        number = number.integer("udiv", blocks)
        level = Level.block(last, low, strip)
        for group in reversed(outer):
            emitter.bind_group(group, number.integer("urem", group.extent))
            number = number.integer("udiv", group.extent)
        columns = _Strip(emitter, plan, level, accumulators, number, parts)
        columns.accumulate()
        if parts.count == 1:
            columns.finish()
        else:
            columns.finish_part(outer)
    accumulated = Accesses.of((), [*plan.inputs, *plan.initial])
    nest = (accumulated, Accesses.of(plan.stores)) if parts.count == 1 else (accumulated,)
    return Phase(fn.name, count, cost, nests=(nest,))


@dataclass(frozen=True, slots=True)
class _Strip:
    """Writes the code of a strip of results, in accumulators.

    part: the number, among ``parts``, of the part of the reduced loop that the task executes.
    """

    emitter: Emitter
    plan: _Plan
    level: Level
    accumulators: Accumulators
    part: Value
    parts: Parts

    def accumulate(self) -> None:
        """Reduce into the accumulators, with long loops in strips of their own for cancellation checks."""
        emitter, plan, strip = self.emitter, self.plan, self.level.group
        known = frozenset(v for v in plan.outer if v not in strip.variables)
        emitter.hoist(plan.nodes, known)
        self._over((), lambda index: self.accumulators.put(index, list(map(emitter.lane_values, plan.initial))))
        groups = merged(plan.over, indices_of(plan.inputs))
        levels = [Level(g, 0, g.extent) for g in groups]
        if self.parts.count > 1:
            levels[0] = Level(groups[0], *self.parts.range(emitter.fn, self.part, groups[0].extent))
        level, *rest = levels
        iterations = iterations_between(
            plan.cost * min(plan.strip, strip.extent) * math.prod(g.extent for g in groups[1:])
        )
        if level.group.extent < 2 * iterations:
            self._reduce(levels, known)
            return

        def cut(begin: Value, end: Value, _: Sequence[Value]) -> None:
            own = level.strip(begin, end, iterations, even=level.divisor % iterations == 0)
            with emitter.scope():
                self._reduce([own, *rest], known)

        in_strips(emitter.fn, (level.begin, level.end), iterations, (), cut)

    def _over(self, outputs: Sequence[Output], body: Callable[[Value], None]) -> None:
        """A loop over the strip, whose body gets the number of an accumulator."""
        emitter, strip = self.emitter, self.level
        if emitter.lanes == 1:
            with emitter.fn.loop(0, strip.count or strip.end - strip.begin, independent=True) as loop, emitter.scope():
                emitter.bind_group(strip.group, loop.index + strip.begin)
                body(loop.index)
            return

        def iteration(running: Sequence[Scalar]) -> Sequence[Scalar]:
            body(emitter.variable(strip.group.variables[-1]) - strip.begin)
            return running

        write_iterations(emitter, strip, [o.node for o in outputs], outputs, emitter.lanes, iteration)

    def finish(self) -> None:
        """Compute and store the epilogue of the accumulated results."""

        def body(index: Value) -> None:
            bind_results(self.emitter, self.plan.reducers, self.accumulators.get(index, self.emitter.width))
            store_all(self.emitter, self.plan.stores)

        self._over(self.plan.stores, body)

    def finish_part(self, outer: list[Group]) -> None:
        """Store the accumulated results of one part for the phase that combines the parts."""
        emitter = self.emitter
        row, stride = emitter.fn.i64(0), self.level.group.extent
        for group in reversed(outer):
            row = row + emitter.index(of(group.variables[-1])) * stride
            stride *= group.extent
        base = self.part * self.parts.reduced.results + row + self.level.begin

        def body(index: Value) -> None:
            values = self.accumulators.get(index, emitter.width)
            self.parts.store(emitter, self.plan.reducers, base + index, values)

        self._over((), body)

    def _reduce(self, levels: list[Level], known: frozenset[Variable]) -> None:
        """Loops over the reduced levels, the innermost of which adds to the accumulators of the strip.

        The innermost loop is unrolled by _AT_ONCE, so that accumulators are loaded and stored less often. Those of a
        strip too short for vectors are in registers, as LLVM unrolls it; it makes vectors of this loop then, if its
        iterations read neighbors.
        """
        emitter, fn = self.emitter, self.emitter.fn
        level, *rest = levels
        group = level.group
        if rest:
            with fn.loop(level.begin, level.end) as loop, emitter.scope():
                emitter.bind_group(group, loop.index)
                inner = known | set(group.variables)
                emitter.hoist(self.plan.inputs, inner)
                self._reduce(rest, inner)
            return
        begin, end = (v if isinstance(v, Value) else fn.i64(v) for v in (level.begin, level.end))
        if self.level.group.extent < LEAST_LANES:
            with fn.loop(begin, end) as loop:
                self._add(group, loop.index, 1)
            return
        whole = end - ((end - begin) & (_AT_ONCE - 1))
        if level.iterations:
            whole = begin + level.iterations // _AT_ONCE * _AT_ONCE
        for first, after, step in ((begin, whole, _AT_ONCE), (whole, end, 1)):
            if first.constant is not None and first.constant == after.constant:
                continue
            with fn.loop(first, after, step) as loop:
                self._add(group, loop.index, step)

    def _add(self, group: Group, first: Value, count: int) -> None:
        """Over the strip: add ``count`` iterations of the reduced loop, from ``first`` on, to each accumulator."""
        emitter = self.emitter

        def body(index: Value) -> None:
            running = self.accumulators.get(index, emitter.width)
            for iteration in range(count):
                with emitter.scope():
                    emitter.bind_group(group, first + iteration)
                    running = reduce_once(emitter, self.plan.reducers, running)
            self.accumulators.put(index, running)

        self._over((), body)
