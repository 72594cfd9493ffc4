"""Scatter, in place: windows of updates are combined into an array, one after the other.

Updates of one element are applied in their order, except that private results are accumulated separately.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial, reduce

from xlakit.cpu.declined import DeclinedError
from xlakit.cpu.kernels.scatter.plan import (
    IndexPart,
    ScatterLoop,
    ScatterPlan,
    Sharing,
    neutral,
    plan_scatter,
)
from xlakit.cpu.kernels.shared.preconditions import require
from xlakit.cpu.llvm import I8, I64, Effort, Function, Module, Value
from xlakit.cpu.loops.emit.accesses import Accesses
from xlakit.cpu.loops.emit.cancellation import in_strips, iterations_between
from xlakit.cpu.loops.emit.emitter import Emitter
from xlakit.cpu.loops.emit.kernel import Kernel, Phase, task_function
from xlakit.cpu.scalars import Scalar, constant, load, store
from xlakit.cpu.scalars.convert import convert
from xlakit.cpu.scalars.memory import as_real, memory_type, register_type
from xlakit.data.primitive import PrimitiveType
from xlakit.dataclass import dataclass
from xlakit.ir.instruction import Instruction
from xlakit.options import knob
from xlakit.passes.analysis.cost_model import cost_model

# Cycles to combine an element of a private result.
_COMBINED_CYCLES = 0.4
_ALIGNMENT = 64
# Updates of single elements that cost more are compiled at lower effort, apart from the entry: LLVM could not vectorize
# them.
_CODE_NANOSECONDS = knob("scatter.code_nanoseconds", 1_000.0, 0.0)
# This many consecutive updates of one element are combined in registers, so that none waits for the store of the update
# before it. A smaller number would serve shorter runs, but would add a branch that is hard to predict with random
# indices. To find runs, indices are compared once for this many groups.
_RUN, _GROUPS = 8, 4


def scatter_kernel(module: Module, instruction: Instruction) -> Kernel:
    """The kernel of a scatter, whose results are its operands updated in place.

    Raises DeclinedError if its computation cannot be compiled.
    """
    plan = plan_scatter(instruction)
    check_plan(plan)
    count = len(plan.kinds)
    in_place = {number: number for number in range(count)}
    if not plan.count * plan.window_elements:
        return Kernel((), in_place)
    if plan.sharing is not Sharing.PARTS:
        return Kernel((_emit_updates(module, plan),), in_place)
    phases = _emit_parts(module, plan), _emit_total(module, plan)
    return Kernel(phases, in_place, plan.tasks * _part_bytes(plan))


def check_plan(plan: ScatterPlan) -> None:
    """Raise InternalError if tasks could write to the same elements."""
    sharing, tasks = plan.sharing, plan.tasks
    parallel, window = sharing is Sharing.UPDATES, sharing is Sharing.WINDOW
    require(
        f"a scatter by {sharing.name} in {tasks} tasks",
        [
            ("one that is not shared has one task", tasks > 0 and (tasks == 1 or sharing is not Sharing.ALONE)),
            ("positions are counted modulo a power of two", sharing is not Sharing.TARGETS or tasks & (tasks - 1) == 0),
            ("a dimension tells positions apart", sharing is not Sharing.TARGETS or plan.shared_component is not None),
            ("each task has updates", not parallel or (bool(plan.updates) and tasks <= plan.updates[0].extent)),
            ("a shared window stays where it is", not window or (bool(plan.window) and plan.window[-1].still)),
            ("private results are of one array", sharing is not Sharing.PARTS or len(plan.kinds) == 1),
        ],
    )


# -- phases: their table has operands, indices, updates, results, and scratch ----------------------


def _emit_updates(module: Module, plan: ScatterPlan) -> Phase:
    """The phase that applies updates to the results."""
    count = len(plan.kinds)
    fn, emitter, begin, end = task_function(module, "scatter", 3 * count + 1)
    if not plan.window and plan.cost > _CODE_NANOSECONDS.value:
        fn.effort = Effort.CODE
    outer_bounds = window_bounds = None
    if plan.window:
        window_bounds = (fn.i64(0), fn.i64(plan.window[-1].extent))
    if plan.sharing is Sharing.UPDATES:
        outer_bounds = _share(plan, begin, end, plan.updates[0].extent)
    elif plan.sharing is Sharing.WINDOW:
        window_bounds = _share(plan, begin, end, plan.window[-1].extent)
    tasks = (begin, end) if plan.sharing is Sharing.TARGETS else None
    results = emitter.arrays[2 * count + 1 : 3 * count + 1]
    _Writer(plan, emitter, results, plan.kinds, tasks).write(outer_bounds, window_bounds)
    nests = ((Accesses.in_place(range(count, 2 * count + 1), range(2 * count + 1, 3 * count + 1)),),)
    return Phase(fn.name, plan.tasks, plan.cost, nests=nests)


def _emit_parts(module: Module, plan: ScatterPlan) -> Phase:
    """The phase in which each task fills a private result with the identity, and applies its updates."""
    kind = plan.part_kind
    value = neutral(plan.computation, plan.kinds[0])
    if value is None:
        raise DeclinedError("a computation that changes every element has no private results")
    fn, emitter, begin, end = task_function(module, "scatter.parts", 5)
    with fn.loop(begin, end) as task, emitter.scope():
        part = fn.at(emitter.arrays[4], I8, task.index * _part_bytes(plan))
        start = constant(fn, kind, value)
        with fn.loop(0, plan.elements, independent=True) as loop:
            store(fn, kind, start, part, loop.index)
        share = _share(plan, task.index, task.index + 1, plan.updates[0].extent)
        _Writer(plan, emitter, [part], [kind]).write(share, None)
    return Phase(fn.name, plan.tasks, plan.cost, nests=((Accesses.anywhere([1, 2]),),))


def _emit_total(module: Module, plan: ScatterPlan) -> Phase:
    """The phase that combines the private results into the operand."""
    kind = plan.part_kind
    fn, emitter, begin, end = task_function(module, "scatter.total", 5)
    result, parts = emitter.arrays[3:]
    blocks = max(1, plan.elements // 1024)
    first, last = ((n * plan.elements).integer("udiv", blocks) for n in (begin, end))
    with fn.loop(first, last, independent=True) as loop, emitter.scope():
        total = [load(fn, plan.kinds[0], result, loop.index)]
        for number in range(plan.tasks):
            part = fn.at(parts, I8, number * _part_bytes(plan))
            total = emitter.combined(plan.computation, total, [load(fn, kind, part, loop.index)])
        store(fn, plan.kinds[0], total[0], result, loop.index)
    cost = plan.elements * plan.tasks * cost_model().cycles(_COMBINED_CYCLES)
    return Phase(fn.name, blocks, cost, nests=((Accesses.in_place([], [3]),),))


def _part_bytes(plan: ScatterPlan) -> int:
    """The bytes of a private result."""
    return -(-plan.elements * plan.part_kind.byte_width // _ALIGNMENT) * _ALIGNMENT


def _share(plan: ScatterPlan, begin: Value, end: Value, extent: int) -> tuple[Value, Value]:
    """The part of a loop that belongs to a range of tasks."""
    return (begin * extent).integer("udiv", plan.tasks), (end * extent).integer("udiv", plan.tasks)


# -- updates ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Writer:
    """Writes the code of a phase that applies updates to some arrays: the results, or a private result.

    targets, kinds: the addresses of the arrays, and the types of their elements. tasks: the range of tasks, if each
    applies the updates that start at some of the positions; else None.
    """

    plan: ScatterPlan
    emitter: Emitter
    targets: Sequence[Value]
    kinds: Sequence[PrimitiveType]
    tasks: tuple[Value, Value] | None = None

    @property
    def fn(self) -> Function:
        """The function."""
        return self.emitter.fn

    @property
    def count(self) -> int:
        """The number of arrays."""
        return len(self.plan.kinds)

    def write(self, outer_bounds: tuple[Value, Value] | None, window_bounds: tuple[Value, Value] | None) -> None:
        """Write the nested loops over updates, and inside of the innermost one the loops over the window.

        outer_bounds: of the outermost loop; None for all of it. window_bounds: of the window's innermost loop.
        """
        fn, updates = self.fn, self.plan.updates

        def nest(number: int, update: Value, index: Value, operand: Value) -> None:
            if number == len(updates):
                window = self.plan.window
                self._at_position((index, operand), lambda at: self._window(window, (at, update), window_bounds))
                return
            loop = updates[number]
            bounds = outer_bounds if outer_bounds is not None and number == 0 else (fn.i64(0), fn.i64(loop.extent))

            def strip(begin: Value, end: Value, _: Sequence[Value]) -> None:
                if number == len(updates) - 1 and self._may_have_runs():
                    begin = self._in_runs(loop, (update, index, operand), (begin, end), nest)
                with fn.loop(begin, end) as iteration, self.emitter.scope():
                    update_number = iteration.index
                    nest(
                        number + 1,
                        update + update_number * loop.update,
                        index + update_number * loop.index,
                        operand + update_number * loop.operand,
                    )

            iterations = iterations_between(
                self.plan.cost / self.plan.count * math.prod(u.extent for u in updates[number + 1 :])
            )
            if loop.extent < 2 * iterations:
                strip(*bounds, ())
            else:
                in_strips(fn, bounds, iterations, (), strip)

        zero = fn.i64(0)
        nest(0, zero, zero, zero)

    def _may_have_runs(self) -> bool:
        """Whether consecutive updates may have one element, whose values are the same in registers and memory."""
        plan = self.plan
        if plan.window or not plan.components or plan.sharing is Sharing.UPDATES or plan.updates[-1].operand:
            return False
        return all(k.bit_width >= 8 and not k.is_complex and register_type(k) is memory_type(k) for k in self.kinds)

    def _in_runs(
        self,
        loop: ScatterLoop,
        offsets: tuple[Value, Value, Value],
        bounds: tuple[Value, Value],
        single: Callable[[int, Value, Value, Value], None],
    ) -> Value:
        """Apply updates in strips of four groups of eight, equal groups at once; gives the end of the strips.

        Groups are compared only in strips whose first index equals the one seven further on, as in sorted indices::

            3 3 3 3 3 3 3 3   one load, eight times the computation, one store
            3 3 3 4 4 4 4 4   one after the other, by ``single``
        """
        fn = self.fn
        update, index, operand = offsets
        begin, end = bounds

        def one_by_one(first: Value, count: int) -> None:
            with fn.loop(0, count) as iteration, self.emitter.scope():
                update_number = first + iteration.index
                single(
                    len(self.plan.updates),
                    update + update_number * loop.update,
                    index + update_number * loop.index,
                    operand,
                )

        def group(first: Value) -> None:
            update_of, index_of = update + first * loop.update, index + first * loop.index

            def at_once() -> None:
                with self.emitter.scope():
                    write = partial(self._run, (update_of, loop.update))
                    self._at_position((index_of, operand), write)

            fn.if_else(self._same(loop, index_of, range(1, _RUN)), at_once, lambda: one_by_one(first, _RUN))

        def with_runs() -> None:
            with fn.loop(0, _GROUPS) as iteration, self.emitter.scope():
                group(first + iteration.index * _RUN)

        def without() -> None:
            one_by_one(first, _GROUPS * _RUN)

        strips = (end - begin).integer("udiv", _GROUPS * _RUN)
        with fn.loop(0, strips) as strip, self.emitter.scope():
            first = begin + strip.index * (_GROUPS * _RUN)
            fn.if_else(self._same(loop, index + first * loop.index, [_RUN - 1]), with_runs, without)
        return begin + strips * (_GROUPS * _RUN)

    def _same(self, loop: ScatterLoop, index: Value, numbers: Sequence[int]) -> Value:
        """Whether the index vectors with these numbers equal the one at ``index``."""

        def word(number: int, part: IndexPart) -> Value:
            offset = index + (number * loop.index + part.offset)
            return as_real(load(self.fn, self.plan.index_kind, self.emitter.arrays[self.count], offset))

        equal = [word(0, part).eq(word(n, part)) for n in numbers for part in self.plan.components]
        return reduce(lambda a, b: a & b, equal)

    def _run(self, updates: tuple[Value, int], position: Value) -> None:
        """Apply updates of one element in their order; ``updates`` are the offset of the first, and the stride."""
        fn, (first, stride) = self.fn, updates
        old = [as_real(load(fn, k, a, position)) for k, a in zip(self.kinds, self.targets, strict=True)]
        with fn.loop(0, _RUN, carried=old) as iteration, self.emitter.scope():
            new = self._new(first + iteration.index * stride)
            iteration.next(*map(as_real, self._combined(iteration.carried, new)))
        for kind, array, value in zip(self.kinds, self.targets, iteration.results, strict=True):
            store(fn, kind, value, array, position)

    def _at_position(self, offsets: tuple[Value, Value], write: Callable[[Value], None]) -> None:
        """Call ``write`` at an update's position, if it is inside; ``offsets`` are of its index and operand."""
        fn, kind = self.fn, self.plan.index_kind
        index, operand = offsets
        is_inside: Value | None = None
        for number, part in enumerate(self.plan.components):
            start = as_real(load(fn, kind, self.emitter.arrays[self.count], index + part.offset))
            start = start.resized(I64, signed=kind.is_signed)
            fits = start.compare("ule", part.limit)
            is_inside = fits if is_inside is None else is_inside & fits
            if number == self.plan.shared_component and self.tasks is not None:
                owner = start & (self.plan.tasks - 1)
                is_inside = is_inside & (owner >= self.tasks[0]) & (owner < self.tasks[1])
            operand = operand + start * part.stride

        if is_inside is None:
            write(operand)
        else:
            with fn.if_(is_inside, likely=True if self.tasks is None else None):
                write(operand)

    def _window(
        self, loops: Sequence[ScatterLoop], offsets: tuple[Value, Value], window_bounds: tuple[Value, Value] | None
    ) -> None:
        fn = self.fn
        if not loops:
            self._element(offsets)
            return
        loop, *inner = loops
        begin, end = window_bounds if window_bounds is not None and not inner else (fn.i64(0), fn.i64(loop.extent))
        with fn.loop(begin, end, independent=not inner) as iteration, self.emitter.scope():
            following = (offsets[0] + iteration.index * loop.operand, offsets[1] + iteration.index * loop.update)
            self._window(inner, following, window_bounds)

    def _element(self, offsets: tuple[Value, Value]) -> None:
        fn = self.fn
        with self.emitter.scope():
            old = [load(fn, k, a, offsets[0]) for k, a in zip(self.kinds, self.targets, strict=True)]
            combined = self._combined(old, self._new(offsets[1]))
            for kind, array, value in zip(self.kinds, self.targets, combined, strict=True):
                store(fn, kind, value, array, offsets[0])

    def _new(self, offset: Value) -> list[Scalar]:
        updates = self.emitter.arrays[self.count + 1 : 2 * self.count + 1]
        return [load(self.fn, k, a, offset) for k, a in zip(self.plan.kinds, updates, strict=True)]

    def _combined(self, old: Sequence[Scalar], new: Sequence[Scalar]) -> list[Scalar]:
        """The computation applied to elements of the results, which may have a wider type, and of the updates."""
        fn, computation = self.fn, self.plan.computation
        if tuple(self.kinds) != self.plan.kinds:
            return self.emitter.combined(computation, list(old), list(new))
        parameter_types = [p.shape.element_type for p in computation.parameters]
        arguments_with_types = [*zip(self.kinds, old, strict=True), *zip(self.plan.kinds, new, strict=True)]
        arguments = [
            convert(fn, kind, parameter_type, value)
            for (kind, value), parameter_type in zip(arguments_with_types, parameter_types, strict=True)
        ]
        results = self.emitter.called(computation, arguments)
        shape = computation.root.shape
        shapes = shape.tuple_shapes_or_self
        return [
            convert(fn, s.element_type, kind, value) for s, kind, value in zip(shapes, self.kinds, results, strict=True)
        ]
