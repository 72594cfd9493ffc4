"""Select-and-scatter, the gradient of pooling: adjacent windows in the minor dimension are lanes.

The selected position of each window is found first, in a loop over its positions. Then, position by position, the
source is combined into the elements of those lanes that selected the position; at one position, lanes have different
elements. Small windows inside of the array are processed at once, with the selection in registers; others keep it in
memory between positions.

In a fusion, the array may be padded before and the result sliced to its size after: then the elements around the array
take part in the selection, and their results are dropped.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from xlakit.cpu.llvm import I32, I64, Function, Loop, Module, Value, integer
from xlakit.cpu.loops.emit.emitter import Emitter
from xlakit.cpu.loops.emit.kernel import Kernel, Phase, task_function
from xlakit.cpu.scalars import Scalar, load, register_type, select, store
from xlakit.cpu.scalars.convert import convert
from xlakit.cpu.scalars.memory import as_real, from_parts, parts
from xlakit.data.primitive import PrimitiveType
from xlakit.data.shape import Shape
from xlakit.dataclass import dataclass
from xlakit.ir.attributes import WindowDimension
from xlakit.ir.instruction import Computation, Instruction
from xlakit.ops.data import Parameter
from xlakit.ops.elementwise.binary import Add
from xlakit.ops.reduction import applied_op
from xlakit.ops.windows import SelectAndScatter
from xlakit.options import knob
from xlakit.passes.analysis.cost_model import cost_model
from xlakit.passes.simplify.pooling_gradients import padded_selection

# Cycles for an element of a window.
_PLACE_CYCLES = 4.0
_STRIP = knob("select_and_scatter.strip", 256, 16, 32)
# Tasks have whole cache lines.
_LEAST_STRIP = knob("select_and_scatter.least_strip", 16, 4)
_FEW_TASKS = knob("select_and_scatter.few_tasks", 8, 1000)
# Windows of at most this many positions are processed at once, unrolled.
_SMALL_WINDOW = knob("select_and_scatter.small_window", 16, 0, 100)


@dataclass(frozen=True, slots=True)
class _Dimension:
    """A dimension: its size, its placements, the window along it, and its strides in the array and the source.

    around: the number of padding elements before and behind the array that windows read.
    """

    size: int
    outputs: int
    window: WindowDimension
    stride: int
    source_stride: int
    around: tuple[int, int] = (0, 0)

    @property
    def is_still(self) -> bool:
        """Whether each element is a placement of its own."""
        return self.window == WindowDimension(1) and not any(self.around)

    @property
    def low(self) -> int:
        """The number of elements by which the first window begins before the array."""
        return self.window.padding_low + self.around[0]

    @property
    def holds_windows(self) -> bool:
        """Whether every window is inside of the array."""
        last = (self.outputs - 1) * self.window.stride - self.low + self.window.dilated_size
        return self.low <= 0 and last <= self.size


@dataclass(frozen=True, slots=True)
class SelectPlan:
    """The loops of a select-and-scatter."""

    op: SelectAndScatter
    kind: PrimitiveType
    source_kind: PrimitiveType
    init_kind: PrimitiveType
    free: tuple[_Dimension, ...]
    moving: tuple[_Dimension, ...]
    minor: _Dimension
    strip: int
    # The indices in the table of array, source, initial value and padding value, and of the result.
    arrays: tuple[int, int, int, int]
    result: int

    @property
    def is_small(self) -> bool:
        """Whether the lanes' windows are unrolled."""
        size = math.prod(d.window.size for d in self.moving)
        holes = any(d.window.base_dilation > 1 for d in self.moving)
        return self.minor.is_still and 0 < size <= _SMALL_WINDOW.value and not holes

    @property
    def strips(self) -> int:
        """The number of strips of placements along the minor dimension."""
        return -(-self.minor.outputs // self.strip)

    @property
    def tasks(self) -> int:
        """The number of parts of the array that have no window in common."""
        return math.prod(d.size for d in self.free) * (self.strips if self.minor.is_still else 1)

    @property
    def cost(self) -> float:
        """The estimated nanoseconds on one processor."""
        every = (*self.free, *self.moving, self.minor)
        return cost_model().cycles(_PLACE_CYCLES) * math.prod(d.outputs * d.window.size for d in every)


def _plan(
    op: SelectAndScatter,
    shapes: Sequence[Shape],
    around: Sequence[tuple[int, int]],
    arrays: tuple[int, int, int, int],
    result: int,
) -> SelectPlan:
    """The plan for these arrays.

    One dimension is computed in strips; tasks are the other dimensions along which windows do not move.
    """
    array, source, init = shapes
    dimensions: list[_Dimension] = []
    stride = source_stride = 1
    for size, window, edges in zip(
        reversed(array.dimensions), reversed(op.window.dimensions), reversed(around), strict=True
    ):
        outputs = window.output_size(size + sum(edges))
        dimensions.insert(0, _Dimension(size, outputs, window, stride, source_stride, edges))
        stride, source_stride = stride * size, source_stride * outputs
    none = _Dimension(1, 1, WindowDimension(1), 1, 1)
    minor = next((d for d in reversed(dimensions) if d.size > 1), none)
    if minor.window.base_dilation > 1:
        # Adjacent lanes would have the holes of the dilation at different positions.
        minor = none
    others = [d for d in dimensions if d is not minor and (d.size > 1 or not d.is_still)]
    free, moving = (tuple(d for d in others if d.is_still == still) for still in (True, False))
    ordered = minor.is_still or applied_op(op.scatter) is not None
    strip = min(_STRIP.value, minor.outputs) if ordered else 1
    if minor.is_still and math.prod(d.size for d in free) * -(-minor.outputs // strip) < _FEW_TASKS.value:
        strip = max(_LEAST_STRIP.value, minor.outputs // _FEW_TASKS.value // _LEAST_STRIP.value * _LEAST_STRIP.value)
    kinds = (array.element_type, source.element_type, init.element_type)
    return SelectPlan(op, *kinds, free, moving, minor, max(1, strip), arrays, result)


def select_and_scatter_kernel(module: Module, instruction: Instruction) -> Kernel:
    """The kernel of a select-and-scatter. Raises DeclinedError if a computation cannot be compiled."""
    shapes = [o.shape for o in instruction.operands]
    none = ((0, 0),) * shapes[0].rank
    return _emit(module, _plan(instruction.op_as(SelectAndScatter), shapes, none, (0, 1, 2, 2), 3))


def emit_padded_selection(module: Module, computation: Computation) -> Kernel | None:
    """The kernel of a fusion that pads, selects and slices; None for others."""
    selection = padded_selection(computation.root)
    if selection is None:
        return None
    operands = (selection.array, selection.source, selection.init, selection.value)
    numbers = [o.op.number for o in operands if isinstance(o.op, Parameter)]
    if len(numbers) != 4:
        return None
    array, source, init, value = numbers
    shapes = [o.shape for o in operands[:3]]
    arrays = array, source, init, value
    return _emit(module, _plan(selection.op, shapes, selection.around, arrays, len(computation.parameters)))


def _emit(module: Module, plan: SelectPlan) -> Kernel:
    fn, emitter, begin, end = task_function(module, "select_and_scatter", plan.result + 1)
    writer = _Writer(emitter, plan)
    with fn.loop(begin, end) as task, emitter.scope():
        writer.task(task.index)
    return Kernel((Phase(fn.name, plan.tasks, plan.cost),))


@dataclass(frozen=True, slots=True)
class _Lanes:
    """Adjacent windows: the first's number in the minor dimension, their count, and the array and source offsets."""

    first: Value
    count: Value
    element: Value
    source: Value


# Processes one position of all lanes' windows: its number, the first lane and the end of the lanes that have it, the
# offset of a lane's element, and whether the array has the position (None: always).
_AtPlace = Callable[[Value, Value, Value, Callable[[Value], Value], "Value | None"], None]


class _Writer:
    """Writes the function of one select-and-scatter."""

    def __init__(self, emitter: Emitter, plan: SelectPlan) -> None:
        self.emitter = emitter
        self.fn: Function = emitter.fn
        self.plan = plan
        self.array, self.source, self.init, self.value = (emitter.arrays[n] for n in plan.arrays)
        self.result = emitter.arrays[plan.result]
        self.compared = plan.op.select.parameters[0].shape.element_type
        self.best_type = register_type(self.compared)
        kinds = {plan.kind, plan.op.scatter.root.shape.element_type}
        kinds.update(p.shape.element_type for p in plan.op.scatter.parameters)
        self.adds = isinstance(applied_op(plan.op.scatter), Add) and len(kinds) == 1 and not plan.kind.is_complex
        self.best = self.fn.alloca(I64, plan.strip * (1 + self.compared.is_complex), align=64)
        self.chosen = self.fn.alloca(I32, plan.strip, align=64)

    def task(self, number: Value) -> None:
        """Process all windows of one part of the array."""
        fn, plan = self.fn, self.plan
        element = source = fn.i64(0)
        strip = fn.i64(0)
        if plan.minor.is_still:
            strip = number.integer("urem", plan.strips)
            number = number.integer("udiv", plan.strips)
        for dimension in reversed(plan.free):
            index = number.integer("urem", dimension.size)
            element, source = element + index * dimension.stride, source + index * dimension.source_stride
            number = number.integer("udiv", dimension.size)
        first = strip * plan.strip
        count = self._lanes_from(first)
        span = (first, count) if plan.minor.is_still else (fn.i64(0), fn.i64(plan.minor.size))
        if not plan.moving:
            self._fill(element, span, (fn.i64(0), fn.i64(1)))
        filling: Loop | None = None
        with ExitStack() as loops:
            starts: list[Value] = []
            for axis, dimension in enumerate(plan.moving):
                loop = loops.enter_context(fn.loop(0, dimension.outputs, carried=() if axis else (fn.i64(0),)))
                source = source + loop.index * dimension.source_stride
                starts.append(loop.index * dimension.window.stride - dimension.low)
                if axis == 0:
                    # Results are initialized just before the first window that reaches them, so that they are in the
                    # cache.
                    end = self._reached(dimension, starts[0], loop.carried[0])
                    self._fill(element, span, (loop.carried[0], end))
                    loop.next(end)
                    filling = loop
            if not plan.minor.is_still:
                strips = loops.enter_context(fn.loop(0, plan.minor.outputs, plan.strip))
                first = strips.index
                count = self._lanes_from(first)
            self._windows(_Lanes(first, count, element, source), starts)
        if filling is not None:
            self._fill(element, span, (filling.results[0], fn.i64(plan.moving[0].size)))

    def _lanes_from(self, first: Value) -> Value:
        """The number of lanes of the strip that begins at lane ``first``: the last one may be shorter."""
        fn, plan = self.fn, self.plan
        if plan.minor.outputs % plan.strip == 0:
            return fn.i64(plan.strip)
        return fn.i64(plan.strip).smin(fn.i64(plan.minor.outputs) - first)

    def _reached(self, dimension: _Dimension, start: Value, before: Value) -> Value:
        """The end of the elements reached by the windows at ``start`` and by earlier ones."""
        fn, window = self.fn, dimension.window
        if window.base_dilation > 1:
            return fn.i64(dimension.size)
        end = (start + window.dilated_size).smax(before)
        return end.smin(dimension.size)

    def _fill(self, element: Value, span: tuple[Value, Value], rows: tuple[Value, Value]) -> None:
        """Fill the result with the initial value in ``rows``, along the first dimension along which windows move."""
        fn, plan = self.fn, self.plan
        start = convert(fn, plan.init_kind, plan.kind, load(fn, plan.init_kind, self.init, fn.i64(0)))
        with ExitStack() as loops:
            for number, dimension in enumerate(plan.moving):
                bounds = (fn.i64(0), fn.i64(dimension.size)) if number else rows
                element = element + loops.enter_context(fn.loop(*bounds)).index * dimension.stride
            lane = loops.enter_context(fn.loop(0, span[1], independent=True)).index
            store(fn, plan.kind, start, self.result, element + (span[0] + lane) * plan.minor.stride)

    def _windows(self, lanes: _Lanes, starts: Sequence[Value]) -> None:
        fn = self.fn
        if not self.plan.is_small:
            self._position_by_position(lanes, starts)
            return
        is_inside: Value | None = None
        for dimension, start in zip(self.plan.moving, starts, strict=True):
            if not dimension.holds_windows:
                test = (start >= 0) & (start <= dimension.size - dimension.window.dilated_size)
                is_inside = test if is_inside is None else is_inside & test
        if is_inside is None:
            self._in_registers(lanes, starts)
            return
        with fn.if_(is_inside, likely=True):
            self._in_registers(lanes, starts)
        with fn.if_(~is_inside, likely=False):
            self._position_by_position(lanes, starts)

    def _in_registers(self, lanes: _Lanes, starts: Sequence[Value]) -> None:
        """Small windows without padding, unrolled: each lane selects a position of its window, and scatters."""
        fn, plan, kind = self.fn, self.plan, self.compared
        number = integer(max(8, register_type(kind).bits))
        base, distances = lanes.element, [0]
        for dimension, start in zip(plan.moving, starts, strict=True):
            base = base + start * dimension.stride
            step = dimension.window.window_dilation * dimension.stride
            distances = [d + position * step for d in distances for position in range(dimension.window.size)]
        with fn.loop(0, lanes.count, independent=True) as lane, self.emitter.scope():
            offset = base + (lanes.first + lane.index) * plan.minor.stride
            best, chosen = self._new(offset + distances[0]), fn.constant(number, 0)
            for candidate, distance in enumerate(distances[1:], 1):
                new = self._new(offset + distance)
                keeps_best = as_real(self.emitter.called(plan.op.select, [best, new])[0])
                best = select(fn, keeps_best, best, new)
                chosen = fn.select(keeps_best, chosen, fn.constant(number, candidate))
            source = self._source(lanes, lane.index)
            for candidate, distance in enumerate(distances):
                self._combine(offset + distance, source, chosen.eq(candidate))

    def _new(self, offset: Value) -> Scalar:
        """An element of the array, in the type in which it is compared."""
        return convert(self.fn, self.plan.kind, self.compared, load(self.fn, self.plan.kind, self.array, offset))

    def _source(self, lanes: _Lanes, lane: Value) -> Scalar:
        offset = lanes.source + (lanes.first + lane) * self.plan.minor.source_stride
        return load(self.fn, self.plan.source_kind, self.source, offset)

    def _combine(self, offset: Value, source: Scalar, chose: Value) -> None:
        """Combine the source into an element in lanes that have selected it."""
        fn, plan = self.fn, self.plan
        parameter_types = [p.shape.element_type for p in plan.op.scatter.parameters]
        result_type = plan.op.scatter.root.shape.element_type
        old = load(fn, plan.kind, self.result, offset)
        left, adds = (
            convert(fn, plan.kind, parameter_types[0], old),
            convert(fn, plan.source_kind, parameter_types[1], source),
        )
        if self.adds:
            # Other lanes add zero: storing only some lanes of a vector is slow.
            nothing = fn.constant(register_type(parameter_types[1]), -0.0 if parameter_types[1].is_floating else 0)
            adds = fn.select(chose, as_real(adds), nothing)
        new = convert(fn, result_type, plan.kind, self.emitter.called(plan.op.scatter, [left, adds])[0])
        store(fn, plan.kind, new if self.adds else select(fn, chose, new, old), self.result, offset)

    def _position_by_position(self, lanes: _Lanes, starts: Sequence[Value]) -> None:
        """Windows that may reach into padding: for each position of the window a loop over all lanes, twice.

        In the first pass each lane stores the position of the element that it selects, and in the second pass it
        scatters there.
        """
        fn = self.fn
        with fn.loop(0, lanes.count, independent=True) as lane:
            for address in self._best_parts(lane.index):
                fn.store(fn.constant(self.best_type, 0), address)
            fn.store(fn.constant(I32, -1), fn.at(self.chosen, I32, lane.index))
        self._positions(lanes, starts, self._choose, padded=True)

        def scatter(
            position: Value, begin: Value, end: Value, element: Callable[[Value], Value], _: Value | None
        ) -> None:
            with fn.loop(begin, end, independent=True) as lane, self.emitter.scope():
                chose = fn.load(I32, fn.at(self.chosen, I32, lane.index)).eq(position)
                self._combine(element(lane.index), self._source(lanes, lane.index), chose)

        self._positions(lanes, starts, scatter, padded=False)

    def _positions(self, lanes: _Lanes, starts: Sequence[Value], act: _AtPlace, *, padded: bool) -> None:
        """Loop over the positions of the windows inside of the array, or inside of the padded array."""
        fn, minor = self.fn, self.plan.minor
        with ExitStack() as loops:
            base, number = lanes.element, fn.i64(0)
            is_inside: Value | None = None
            for dimension, start in zip(self.plan.moving, starts, strict=True):
                around = dimension.around if padded else (0, 0)
                tap = loops.enter_context(self._inside(dimension, start, around))
                position = start + tap * dimension.window.window_dilation
                holes = dimension.window.base_dilation
                if holes > 1:
                    loops.enter_context(fn.if_(position.integer("urem", holes).eq(0)))
                    position = position.integer("udiv", holes)
                if any(around):
                    test = (position >= 0) & (position < dimension.size)
                    is_inside = test if is_inside is None else is_inside & test
                base = base + position * dimension.stride
                number = number * dimension.window.size + tap
            if minor.is_still:
                act(
                    number.cast("trunc", I32) if number.constant is None else fn.constant(I32, 0),
                    fn.i64(0),
                    lanes.count,
                    lambda lane: base + (lanes.first + lane) * minor.stride,
                    is_inside,
                )
                return
            window = minor.window
            tap = loops.enter_context(fn.loop(0, window.size)).index
            number = (number * window.size + tap).cast("trunc", I32)
            shift = tap * window.window_dilation - window.padding_low
            # The lanes whose element is at least 0 and below the size.
            stride = window.stride
            low = _divided_up(fn.i64(0) - shift, stride) - lanes.first
            high = _divided_up(fn.i64(minor.size) - shift, stride) - lanes.first
            act(
                number,
                low.smax(0),
                high.smin(lanes.count),
                lambda lane: base + ((lanes.first + lane) * stride + shift) * minor.stride,
                is_inside,
            )

    @contextmanager
    def _inside(self, dimension: _Dimension, start: Value, around: tuple[int, int]) -> Generator[Value]:
        """The loop over the positions of a window at ``start`` that are inside along one dimension."""
        fn, window = self.fn, dimension.window
        before = fn.i64(-around[0]) - start
        low = _divided_up(before, window.window_dilation).smax(0)
        extent = (dimension.size - 1) * window.base_dilation + 1 + around[1]
        high = _divided_up(fn.i64(extent) - start, window.window_dilation)
        with fn.loop(low, high.smin(window.size)) as loop:
            yield loop.index

    def _choose(
        self, position: Value, begin: Value, end: Value, element: Callable[[Value], Value], is_inside: Value | None
    ) -> None:
        """Store the position in lanes that select its element, which outside of the array is the padding value."""
        fn, plan = self.fn, self.plan
        if is_inside is None:
            self._compare(position, begin, end, lambda lane: self._new(element(lane)))
            return
        with fn.if_(is_inside):
            self._compare(position, begin, end, lambda lane: self._new(element(lane)))
        with fn.if_(~is_inside), self.emitter.scope():
            value = convert(fn, plan.kind, self.compared, load(fn, plan.kind, self.value, fn.i64(0)))
            self._compare(position, begin, end, lambda _: value)

    def _compare(self, position: Value, begin: Value, end: Value, new: Callable[[Value], Scalar]) -> None:
        fn = self.fn
        with fn.loop(begin, end, independent=True) as lane, self.emitter.scope():
            candidate, old = new(lane.index), self._get_best(lane.index)
            chosen = fn.load(I32, fn.at(self.chosen, I32, lane.index))
            keeps_best = as_real(self.emitter.called(self.plan.op.select, [old, candidate])[0]) & (chosen >= 0)
            self._put_best(lane.index, select(fn, keeps_best, old, candidate))
            fn.store(fn.select(keeps_best, chosen, position), fn.at(self.chosen, I32, lane.index))

    def _get_best(self, lane: Value) -> Scalar:
        return from_parts(tuple(self.fn.load(self.best_type, address) for address in self._best_parts(lane)))

    def _put_best(self, lane: Value, value: Scalar) -> None:
        for part, address in zip(parts(value), self._best_parts(lane), strict=True):
            self.fn.store(part, address)

    def _best_parts(self, lane: Value) -> Iterator[Value]:
        """The addresses of the parts of a lane's best element."""
        for part in range(1 + self.compared.is_complex):
            yield self.fn.at(self.best, self.best_type, lane + part * self.plan.strip)


def _divided_up(value: Value, divisor: int) -> Value:
    """The quotient rounded up; for negative numbers, a number that is not positive."""
    return value if divisor == 1 else (value + (divisor - 1)).integer("sdiv", divisor)
