"""Reductions over the minor dimension, row by row, with an epilogue that is computed while the row is in the cache.

The stages of a row follow one another: each reduces the row in registers, and the last one stores the results of the
size of a row. Values that are expensive and used by two stages are kept in a scratch row.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import field

from xlakit import machine
from xlakit.cpu.declined import DeclinedError
from xlakit.cpu.llvm import I8, I64, PTR, VOID, Function, Module, Value
from xlakit.cpu.loops.emit.accesses import Accesses, Nest
from xlakit.cpu.loops.emit.cancellation import in_strips, iterations_between
from xlakit.cpu.loops.emit.emitter import INTERLEAVED, Emitter
from xlakit.cpu.loops.emit.kernel import (
    Kernel,
    Phase,
    Split,
    hints_for,
    hints_for_long_chains,
    nest,
    side_by_side,
    store_all,
    task_function,
)
from xlakit.cpu.loops.emit.lanes import lanes_of, reduce_iterations
from xlakit.cpu.loops.emit.levels import Level, Output, output
from xlakit.cpu.loops.emit.non_temporal import non_temporal, past_caches
from xlakit.cpu.loops.ir.cost import bytes_of, element_cost, reducer_cost
from xlakit.cpu.loops.ir.index import Affine, Node, Variable, linear
from xlakit.cpu.loops.ir.nodes import Load, Reduction, indices_of, walk
from xlakit.cpu.loops.ir.reducer import Reducer, trace_reducer
from xlakit.cpu.loops.ir.space import Group, Space, merged, with_splits
from xlakit.cpu.loops.ir.tracer import Index, Source, Tracer
from xlakit.cpu.loops.nests.reduced import (
    Parts,
    Reduced,
    bind_results,
    count_parts,
    given_source,
    needed_for,
    reduce_once,
    reduces_in_parts,
)
from xlakit.cpu.scalars import Scalar
from xlakit.cpu.scalars.memory import all_parts, regrouped
from xlakit.dataclass import dataclass
from xlakit.ir.instruction import Instruction
from xlakit.ir.traits import Expensive
from xlakit.options import knob, times

# A scratch row of at most this many bytes is on the stack.
_STACK_BYTES = knob("rows.stack_bytes", 1 << 15, 0, 64)
# Fewer rows than this, each long, are divided into parts.
_FEW_ROWS = knob("rows.few_rows", 8, 0, 1000, tries=(0, 1000))
_LONG_NANOSECONDS = knob("rows.long_nanoseconds", 50_000.0, 10.0)
# Larger arrays are read from beyond the second-level cache, where a jump costs more than the partial results; a small
# last-level cache, which programs share with others, bounds it as well.
_FAR_BYTES = knob(
    "rows.far_bytes", lambda: min(2 * machine.current().l2, machine.current().l3 // 8), 0, tries=(times(0.5), times(8))
)
# Processors follow about this many runs side by side, so rows of so few runs are read in any order.
_MOST_STREAMS = knob("rows.most_streams", 32, 1)
# Shorter runs leave too many partial results; longer ones are prefetched by the processor, which stops at pages.
_LEAST_RUN = knob("rows.least_run", 16, 2)
_PAGE_BYTES = 4096
_LINE_BYTES = 64
# Processors prefetch up to the end of a page, and wait for the first elements of the next: long rows are read in parts
# side by side, of which others go on then.
_STREAM_BYTES = knob("rows.stream_bytes", 4 * _PAGE_BYTES, 64, 1 << 40)
# An iteration that takes more nanoseconds than this keeps a processor busy by itself.
_LONG_ITERATION = 0.6


@dataclass(slots=True)
class Stage:
    """One pass over a row: its reductions and its stores. ahead: what is prefetched meanwhile."""

    reducers: list[Reducer] = field(default_factory=list)
    stores: list[Output] = field(default_factory=list)
    ahead: list[Load] = field(default_factory=list)

    @property
    def nodes(self) -> list[Node]:
        """All nodes that an iteration needs."""
        return [n for f in self.reducers for n in f.inputs] + [n for o in self.stores for n in o.nodes]

    @property
    def cost(self) -> float:
        """The nanoseconds of an iteration."""
        return element_cost(self.nodes) + sum(reducer_cost(f.computation) for f in self.reducers)


@dataclass(slots=True)
class Plan:
    """All stages of a row, and the outputs that are stored once for each row."""

    row_variables: list[Variable]
    inner_variables: list[Variable]
    stages: list[Stage]
    row_stores: list[Output]
    # The bytes of an element of each scratch row.
    scratch: list[int]

    @property
    def statement(self) -> Nest:
        """What is read and written for a row: all of a stage before the next one."""
        passes = (Accesses.of(s.stores, [*s.nodes, *(n for f in s.reducers for n in f.initial)]) for s in self.stages)
        return *passes, Accesses.of(self.row_stores)

    @property
    def nodes(self) -> list[Node]:
        """All nodes that a row needs, except the initial values of its reducers."""
        return [n for stage in self.stages for n in stage.nodes] + [n for o in self.row_stores for n in o.nodes]


def emit_rows(module: Module, name: str, sources: dict[Instruction, Source], reduced: Reduced) -> Kernel | None:
    """A kernel that reduces rows; None for fusions that it does not support."""
    try:
        plan = with_splits(lambda space: plan_rows(space, sources, reduced))
    except DeclinedError:
        return None
    iteration = sum(stage.cost for stage in plan.stages)
    row = iteration * math.prod(v.extent for v in plan.inner_variables)
    rows = math.prod(v.extent for v in plan.row_variables)
    parts = Parts(reduced, _parts(reduced, plan, row, rows))
    if parts.count > 1:
        first = _write_parts(module, name, plan, parts, row * rows)
        return Kernel((first, parts.combine(module, name, sources)), scratch_bytes=parts.bytes)
    return Kernel((_write(module, name, reduced, plan, row, rows),))


def _parts(reduced: Reduced, plan: Plan, row: float, rows: int) -> int:
    """The number of parts of each row: more than 1 if rows are few and long, or jump through memory."""
    stage, *more = plan.stages
    if more or stage.stores:
        return 1
    inner = merged(plan.inner_variables, indices_of(stage.nodes))
    if rows < _FEW_ROWS.value and row > _LONG_NANOSECONDS.value:
        return count_parts(reduced, stage.reducers, row * rows, inner[0].extent)
    if reduces_in_parts(reduced, stage.reducers) and _jumps(plan, inner):
        return inner[0].extent
    return 1


def _jumps(plan: Plan, inner: Sequence[Group]) -> bool:
    """Whether rows are many short runs of a large array, with runs of other rows between two of a row.

    Processors prefetch consecutive runs, so the first runs of all rows are read before the second runs.
    """
    loads = [n for n in walk(plan.stages[0].nodes) if isinstance(n, Load)]
    if len(inner) < 2 or not plan.row_variables or bytes_of(loads) <= _FAR_BYTES.value:
        return False
    first, *_, run = inner
    width = max(n.kind.byte_width for n in loads)
    if first.extent <= _MOST_STREAMS.value:
        return False
    if run.extent < _LEAST_RUN.value or run.extent * width > _PAGE_BYTES:
        return False
    jump, near = first.variables[-1], plan.row_variables[-1]
    return all(n.offset.factor_of(jump) > n.offset.factor_of(near) > 0 for n in loads if jump in n.variables)


def plan_rows(space: Space, sources: dict[Instruction, Source], reduced: Reduced) -> Plan:
    """The stages of a row; raises DeclinedError if a value is needed at another index than it is computed."""
    loops = reduced.loops(space)
    full, row, row_variables = loops.full, loops.row, loops.outer
    inner = linear([full[d] for d in sorted(reduced.over)], tuple(reduced.sizes[d] for d in sorted(reduced.over)))
    plan = Plan(row_variables, loops.over, [], [], [])
    levels = reduced.dependency_levels()
    wanted = _expensive(reduced, levels)
    known = dict(sources)
    first_scratch = reduced.arrays + len(reduced.roots)
    for members in [*levels, []]:
        tracer = Tracer(dict(known), space)
        stage = Stage([trace_reducer(tracer, reduce, full) for reduce in members])
        for reduce in members:
            known[reduce] = given_source(reduce, row, frozenset(row_variables))
        if not members:
            _add_roots(stage, plan, tracer, reduced, full, row)
        for instruction in wanted.pop(len(plan.stages), []):
            kind = instruction.shape.element_type
            array = first_scratch + len(plan.scratch)
            plan.scratch.append(kind.byte_width)
            stage.stores.append(output(array, inner, tracer.element(instruction, full)))
            known[instruction] = _scratch_source(instruction, array, full, inner)
        if stage.reducers or stage.stores:
            plan.stages.append(stage)
    return plan


def _scratch_source(instruction: Instruction, array: int, full: Index, inner: Affine) -> Source:
    def source(asked: Index, part: int) -> Node:
        if asked != full:
            raise DeclinedError("a scratch row is needed at another index")
        return Load(instruction.shape.element_type, array, inner)

    return source


def _add_roots(stage: Stage, plan: Plan, tracer: Tracer, reduced: Reduced, full: Index, row: Index) -> None:
    for number, (root, part, shape) in enumerate(reduced.roots):
        array = reduced.arrays + number
        if shape.num_elements == reduced.results and reduced.results != math.prod(reduced.sizes):
            index = tracer.reindexed(row, reduced.outer_dimensions, shape.dimensions)
            offset = linear(index, shape.dimensions)
            plan.row_stores.append(output(array, offset, tracer.element(root, index, part)))
        elif shape.num_elements == math.prod(reduced.sizes):
            index = tracer.reindexed(full, reduced.sizes, shape.dimensions)
            offset = linear(index, shape.dimensions)
            stage.stores.append(output(array, offset, tracer.element(root, index, part)))
        else:
            raise DeclinedError("a result of the fusion is neither of the size of a row nor of all rows")


def _expensive(reduced: Reduced, levels: Sequence[Sequence[Instruction]]) -> dict[int, list[Instruction]]:
    """By stage, the instructions of full size whose values the stage should keep for later stages."""
    full = [root for root, _, shape in reduced.roots if shape.num_elements == math.prod(reduced.sizes)]
    needed: dict[Instruction, set[int]] = {}
    for stage, members in enumerate([*levels, full]):
        for instruction in needed_for(members, set(reduced.reduces) - set(members)):
            needed.setdefault(instruction, set()).add(stage)
    found: dict[int, list[Instruction]] = {}
    for instruction, stages in needed.items():
        same_size = not instruction.shape.is_tuple and instruction.shape.dimensions == reduced.sizes
        if len(stages) > 1 and same_size and isinstance(instruction.op, Expensive):
            found.setdefault(min(stages), []).append(instruction)
    return found


# -- code ----------------------------------------------------------------------------------------


def _write(module: Module, name: str, reduced: Reduced, plan: Plan, row: float, rows: int) -> Phase:
    every = plan.nodes + [n for stage in plan.stages for f in stage.reducers for n in f.initial]
    offsets = [o.offset for stage in plan.stages for o in stage.stores] + [o.offset for o in plan.row_stores]
    indices = indices_of(every, offsets)
    split = Split.of(merged(plan.row_variables, indices), row)
    inner = merged(plan.inner_variables, indices)
    _plan_prefetches(plan, inner)
    length = math.prod(v.extent for v in plan.inner_variables)
    arrays, lanes = reduced.arrays + len(reduced.roots), lanes_of_rows(plan, every, inner)
    fn, emitter, begin, end = task_function(module, name, arrays, lanes)
    release = acquire_rows(fn, emitter.arrays, [size * length for size in plan.scratch])
    with split.tasks(fn, emitter, begin, end, every) as levels:
        nest(emitter, levels, every, lambda: write_row(emitter, plan, inner), independent=False)
    release()
    return Phase(fn.name, split.count, row * rows, nests=(plan.statement,))


def _plan_prefetches(plan: Plan, inner: Sequence[Group]) -> None:
    """While a stage between the first and the last computes, the next row comes, and what the last one writes to.

    The first and the last stage of a row of large arrays wait for memory, and processors prefetch no row before it is
    touched.
    """
    first, *later = plan.stages
    loads = [n for n in walk(first.nodes) if isinstance(n, Load)]
    if not later or len(inner) != 1 or not plan.row_variables or bytes_of(loads) <= _FAR_BYTES.value:
        return
    row, along = plan.row_variables[-1], inner[0].variables[-1]
    following = [
        Load(n.kind, n.array, n.offset + inner[0].extent)
        for n in loads
        if n.offset.factor_of(along) == 1 and n.offset.factor_of(row) == inner[0].extent
    ]
    max(later, key=lambda stage: stage.cost).ahead.extend(dict.fromkeys(following))
    if len(later) > 1:
        bypassing = past_caches(later[-1].stores, inner[0])
        written = [o for o in later[-1].stores if o not in bypassing and o.offset.factor_of(along) == 1]
        max(later[:-1], key=lambda stage: stage.cost).ahead.extend(Load(o.kind, o.array, o.offset) for o in written)


def lanes_of_rows(plan: Plan, nodes: Sequence[Node], inner: Sequence[Group]) -> int:
    """The lanes of the loops over a row; 1 if LLVM is to vectorize them."""
    if not inner or any(isinstance(n, Reduction) for n in walk(nodes)):
        return 1
    return min(lanes_of(inner[-1], s.nodes, s.stores, s.reducers) for s in plan.stages)


def _write_parts(module: Module, name: str, plan: Plan, parts: Parts, cost: float) -> Phase:
    """The phase in which each task reduces a part of the range of every row."""
    (stage,) = plan.stages
    nodes = stage.nodes + [n for f in stage.reducers for n in f.initial]
    outer, *inner = merged(plan.inner_variables, indices_of(nodes))
    rows = [Level(Group([v]), 0, v.extent) for v in plan.row_variables]
    strides = [math.prod(v.extent for v in plan.row_variables[i + 1 :]) for i in range(len(rows))]
    lanes = lanes_of_rows(plan, nodes, [outer, *inner])
    fn, emitter, begin, end = task_function(module, name, parts.arrays, lanes)
    even = 0 if outer.extent % parts.count else outer.extent // parts.count
    with fn.loop(begin, end) as task, emitter.scope():
        low, high = parts.range(fn, task.index, outer.extent)
        levels = [
            Level(outer, low, high, even, least=outer.extent // parts.count),
            *(Level(g, 0, g.extent) for g in inner),
        ]

        def body() -> None:
            known = frozenset(plan.row_variables)
            initial = [emitter.value(n) for f in stage.reducers for n in f.initial]
            emitter.hoist(stage.nodes, known)
            results = pass_over(emitter, stage, levels, initial, known)
            row = Affine(tuple(zip(plan.row_variables, strides, strict=True)))
            number = task.index * parts.reduced.results + emitter.index(row)
            parts.store(emitter, stage.reducers, number, results)

        nest(emitter, rows, nodes, body, independent=False)
    return Phase(fn.name, parts.count, cost, nests=((Accesses.of((), nodes),),))


def acquire_rows(fn: Function, arrays: list[Value], sizes: Sequence[int]) -> Callable[[], None]:
    """Allocate the scratch rows, which are added to the arrays; gives the function that writes their release."""
    total = sum(-(-size // 64) * 64 for size in sizes)
    if not total:
        return lambda: None
    if total <= _STACK_BYTES.value:
        base = fn.alloca(I8, total, align=64)
    else:
        fn.module.declare("xlakit_scratch_acquire", PTR, [I64])
        fn.module.declare("xlakit_scratch_release", VOID, [PTR])
        base = fn.call("xlakit_scratch_acquire", PTR, fn.i64(total))
    offset = 0
    for size in sizes:
        arrays.append(fn.at(base, I8, offset))
        offset += -(-size // 64) * 64
    return lambda: None if total <= _STACK_BYTES.value else _release(fn, base)


def _release(fn: Function, scratch: Value) -> None:
    fn.call("xlakit_scratch_release", VOID, scratch)


def write_row(emitter: Emitter, plan: Plan, inner: Sequence[Group]) -> None:
    """All stages of the row at the current values of the emitter's variables."""
    known = frozenset(plan.row_variables)
    for stage in plan.stages:
        initial = [emitter.value(n) for f in stage.reducers for n in f.initial]
        emitter.hoist(stage.nodes, known)
        results = pass_over(emitter, stage, [Level(g, 0, g.extent) for g in inner], initial, known)
        bind_results(emitter, stage.reducers, results)
    store_all(emitter, plan.row_stores)


def pass_over(
    emitter: Emitter, stage: Stage, levels: Sequence[Level], running: list[Scalar], known: frozenset[Variable]
) -> list[Scalar]:
    """The loops of one stage; gives the final values of its reductions."""
    if not levels:
        return _iteration(emitter, stage, running)
    level, *rest = levels
    extent = level.group.extent
    iterations = iterations_between(stage.cost * math.prod(r.group.extent for r in rest))
    if extent < 2 * iterations:
        return _pass(emitter, stage, levels, running, known)

    def strip(begin: Value, end: Value, before: Sequence[Value]) -> Sequence[Value]:
        own = level.strip(begin, end, iterations, even=level.divisor % iterations == 0)
        with emitter.scope():
            next_values = _pass(emitter, stage, [own, *rest], regrouped(before, running), known)
        return all_parts(next_values)

    after = in_strips(emitter.fn, (level.begin, level.end), iterations, all_parts(running), strip)
    return regrouped(after, running)


def _pass(
    emitter: Emitter, stage: Stage, levels: Sequence[Level], running: list[Scalar], known: frozenset[Variable]
) -> list[Scalar]:
    level, *rest = levels
    fn = emitter.fn
    hints = _interleaving(stage, level) if running and not rest else ()
    # The running values would have to be carried from strip to strip.
    outputs = stage.stores if not rest and not running else ()
    with non_temporal(emitter, level, outputs) as level:
        if emitter.lanes > 1 and not rest:
            return _iterations_in_lanes(emitter, stage, level, running)
        with fn.loop(level.begin, level.end, carried=all_parts(running), independent=not rest, hints=hints) as loop:
            with emitter.scope():
                emitter.bind_group(level.group, loop.index)
                known = known | set(level.group.variables)
                if rest:
                    emitter.hoist(stage.nodes, known)
                next_values = pass_over(emitter, stage, rest, regrouped(loop.carried, running), known)
                loop.next(*all_parts(next_values))
    return regrouped(loop.results, running)


def _iterations_in_lanes(emitter: Emitter, stage: Stage, level: Level, running: list[Scalar]) -> list[Scalar]:
    hints = _interleaving(stage, level) if running else hints_for(stage.nodes)
    width = emitter.lanes * side_by_side(hints)

    def iteration(running: Sequence[Scalar]) -> Sequence[Scalar]:
        _prefetch(emitter, stage.ahead)
        return _iteration(emitter, stage, list(running))

    reductions = list(zip(stage.reducers, running, strict=True))
    streams = _streams(stage, level, width // emitter.lanes)
    return reduce_iterations(emitter, level, reductions, stage.nodes, stage.stores, width, iteration, streams)


def _prefetch(emitter: Emitter, loads: Sequence[Load]) -> None:
    fn = emitter.fn
    for node in loads:
        width = node.kind.byte_width
        begin = fn.at(emitter.arrays[node.array], I8, emitter.index(node.offset) * width)
        for line in range(0, emitter.width * width, _LINE_BYTES):
            fn.prefetch(fn.at(begin, I8, line), level=2)


def _streams(stage: Stage, level: Level, most: int) -> int:
    """The number of parts of a long row that are read side by side."""
    loads = [n for n in walk(stage.nodes) if isinstance(n, Load) and n.variables & set(level.group.variables)]
    if stage.stores or not loads:
        return 1
    part = max(level.divisor, level.least) // most * min(n.kind.byte_width for n in loads)
    return most if part >= _STREAM_BYTES.value else 1


def _interleaving(stage: Stage, level: Level) -> Sequence[str]:
    """The number of interleaved reduction steps: long iterations fill the processor and its registers sooner."""
    is_long = element_cost(stage.nodes, level.group.variables) > _LONG_ITERATION
    return hints_for_long_chains(stage.nodes) if is_long else INTERLEAVED


def _iteration(emitter: Emitter, stage: Stage, running: list[Scalar]) -> list[Scalar]:
    next_values = reduce_once(emitter, stage.reducers, running)
    store_all(emitter, stage.stores)
    return next_values
