"""Select-and-scatter, the gradient of pooling: windows side by side in the minor dimension, one lane each.

Of each window the chosen place is found first, going over its places; then, place by place, the source is combined
into the elements of those lanes that chose the place. At one place, lanes meet different elements.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from xlakit.cpu.llvm import I32, I64, Function, Module, Value
from xlakit.cpu.loops.emitter import Emitter, simple_fold
from xlakit.cpu.loops.kernel import Emitted, Phase, task_function
from xlakit.cpu.scalars import Scalar, load, register_type, select, store
from xlakit.cpu.scalars.convert import convert
from xlakit.cpu.scalars.memory import as_real
from xlakit.data.primitive import PrimitiveType
from xlakit.errors import UnsupportedError
from xlakit.ir.attributes import WindowDimension
from xlakit.ir.instruction import Instruction
from xlakit.ops.windows import SelectAndScatter

_STRIP = 256
# Tasks have whole cache lines.
_LEAST_STRIP = 16
_FEW_TASKS = 8
_PLACE_NANOSECONDS = 1.0


@dataclass(frozen=True, slots=True)
class _Dimension:
    """A dimension: its size, its placements, the window along it, and the strides of array and source."""

    size: int
    outputs: int
    window: WindowDimension
    stride: int
    source_stride: int

    @property
    def is_still(self) -> bool:
        """Whether each element is a placement of its own."""
        return self.window == WindowDimension(1)


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

    @property
    def strips(self) -> int:
        """Into how many strips the placements along the minor dimension are cut."""
        return -(-self.minor.outputs // self.strip)

    @property
    def tasks(self) -> int:
        """How many parts of the array meet windows of their own."""
        return math.prod(d.size for d in self.free) * (self.strips if self.minor.is_still else 1)

    @property
    def cost(self) -> float:
        """About how many nanoseconds it takes on one processor."""
        every = (*self.free, *self.moving, self.minor)
        return _PLACE_NANOSECONDS * math.prod(d.outputs * d.window.size for d in every)


def plan_select_and_scatter(instruction: Instruction) -> SelectPlan:
    """The loops; raises UnsupportedError for arrays with holes."""
    op = instruction.op_as(SelectAndScatter)
    array, source, init = (o.shape for o in instruction.operands)
    dimensions: list[_Dimension] = []
    stride = source_stride = 1
    for size, window in zip(reversed(array.dimensions), reversed(op.window.dimensions), strict=True):
        if window.base_dilation != 1:
            raise UnsupportedError("no kernel selects among holes")
        outputs = window.output_size(size)
        dimensions.insert(0, _Dimension(size, outputs, window, stride, source_stride))
        stride, source_stride = stride * size, source_stride * outputs
    minor = next((d for d in reversed(dimensions) if d.size > 1), _Dimension(1, 1, WindowDimension(1), 1, 1))
    others = [d for d in dimensions if d is not minor and (d.size > 1 or not d.is_still)]
    free, moving = (tuple(d for d in others if d.is_still == still) for still in (True, False))
    ordered = minor.is_still or simple_fold(op.scatter) is not None
    strip = min(_STRIP, minor.outputs) if ordered else 1
    if minor.is_still and math.prod(d.size for d in free) * -(-minor.outputs // strip) < _FEW_TASKS:
        strip = max(_LEAST_STRIP, minor.outputs // _FEW_TASKS // _LEAST_STRIP * _LEAST_STRIP)
    kinds = (array.element_type, source.element_type, init.element_type)
    return SelectPlan(op, *kinds, free, moving, minor, max(1, strip))


def select_and_scatter_kernel(module: Module, instruction: Instruction) -> Emitted:
    """The phase of a select-and-scatter. Raises UnsupportedError where a computation has no code."""
    plan = plan_select_and_scatter(instruction)
    with task_function(module, "select_and_scatter", 4) as (fn, emitter, begin, end):
        writer = _Writer(emitter, plan)
        with fn.loop(begin, end) as task, emitter.scope():
            writer.task(task.index)
    return (Phase(fn.name, plan.tasks, plan.cost),), {}, 0


@dataclass(frozen=True, slots=True)
class _Lanes:
    """Windows side by side: the first one's number in the minor dimension, how many, and where others stand."""

    first: Value
    count: Value
    element: Value
    source: Value


# What is done at one place of all lanes' windows: its number, the first lane and the one after the last that have it,
# and the address of an element.
_AtPlace = Callable[[Value, Value, Value, Callable[[Value], Value]], None]


class _Writer:
    """Writes the function of one select-and-scatter. Its table: array, source, initial value, result."""

    def __init__(self, emitter: Emitter, plan: SelectPlan) -> None:
        self.emitter = emitter
        self.fn: Function = emitter.fn
        self.plan = plan
        self.array, self.source, self.init, self.result = emitter.arrays
        self.compared = plan.op.select.parameters[0].shape.element_type
        self.best = self.fn.alloca(I64, plan.strip * (1 + self.compared.is_complex), align=64)
        self.chosen = self.fn.alloca(I32, plan.strip, align=64)

    def task(self, number: Value) -> None:
        """All windows of one part of the array."""
        fn, plan = self.fn, self.plan
        element = source = fn.i64(0)
        strip = fn.i64(0)
        if plan.minor.is_still:
            strip = number.integer("urem", plan.strips)
            number = number.integer("udiv", plan.strips)
        for dimension in reversed(plan.free):
            place = number.integer("urem", dimension.size)
            element, source = element + place * dimension.stride, source + place * dimension.source_stride
            number = number.integer("udiv", dimension.size)
        first = strip * plan.strip
        count = fn.intrinsic("llvm.smin", I64, fn.i64(plan.strip), fn.i64(plan.minor.outputs) - first)
        self._fill(element, (first, count) if plan.minor.is_still else (fn.i64(0), fn.i64(plan.minor.size)))
        with ExitStack() as loops:
            starts: list[Value] = []
            for dimension in plan.moving:
                loop = loops.enter_context(fn.loop(0, dimension.outputs))
                source = source + loop.index * dimension.source_stride
                starts.append(loop.index * dimension.window.stride - dimension.window.padding_low)
            if not plan.minor.is_still:
                strips = loops.enter_context(fn.loop(0, plan.minor.outputs, plan.strip))
                first = strips.index
                count = fn.intrinsic("llvm.smin", I64, fn.i64(plan.strip), fn.i64(plan.minor.outputs) - first)
            self._windows(_Lanes(first, count, element, source), starts)

    def _fill(self, element: Value, span: tuple[Value, Value]) -> None:
        """Begin with the initial value."""
        fn, plan = self.fn, self.plan
        start = convert(fn, plan.init_kind, plan.kind, load(fn, plan.init_kind, self.init, fn.i64(0)))
        with ExitStack() as loops:
            for dimension in plan.moving:
                element = element + loops.enter_context(fn.loop(0, dimension.size)).index * dimension.stride
            lane = loops.enter_context(fn.loop(0, span[1], independent=True)).index
            store(fn, plan.kind, start, self.result, element + (span[0] + lane) * plan.minor.stride)

    def _windows(self, lanes: _Lanes, starts: Sequence[Value]) -> None:
        fn = self.fn
        type = register_type(self.compared)
        with fn.loop(0, lanes.count, independent=True) as lane:
            for part in range(1 + self.compared.is_complex):
                fn.store(fn.constant(type, 0), fn.at(self.best, type, lane.index + part * self.plan.strip))
            fn.store(fn.constant(I32, -1), fn.at(self.chosen, I32, lane.index))
        self._places(lanes, starts, self._choose)

        def scatter(place: Value, begin: Value, end: Value, element: Callable[[Value], Value]) -> None:
            self._scatter(lanes, place, (begin, end), element)

        self._places(lanes, starts, scatter)

    def _places(self, lanes: _Lanes, starts: Sequence[Value], act: _AtPlace) -> None:
        """Go over the places of the windows that are inside of the array."""
        fn, minor = self.fn, self.plan.minor
        with ExitStack() as loops:
            base, number = lanes.element, fn.i64(0)
            for dimension, start in zip(self.plan.moving, starts, strict=True):
                place = loops.enter_context(self._inside(dimension, start))
                position = start + place * dimension.window.window_dilation
                base = base + position * dimension.stride
                number = number * dimension.window.size + place
            if minor.is_still:
                act(
                    number.cast("trunc", I32) if number.constant is None else fn.constant(I32, 0),
                    fn.i64(0),
                    lanes.count,
                    lambda lane: base + (lanes.first + lane) * minor.stride,
                )
                return
            window = minor.window
            place = loops.enter_context(fn.loop(0, window.size)).index
            number = (number * window.size + place).cast("trunc", I32)
            shift = place * window.window_dilation - window.padding_low
            # The lanes whose element is from 0 on and below the size.
            stride = window.stride
            low = _divided_up(fn.i64(0) - shift, stride) - lanes.first
            high = _divided_up(fn.i64(minor.size) - shift, stride) - lanes.first
            act(
                number,
                fn.intrinsic("llvm.smax", I64, low, fn.i64(0)),
                fn.intrinsic("llvm.smin", I64, high, lanes.count),
                lambda lane: base + ((lanes.first + lane) * stride + shift) * minor.stride,
            )

    @contextmanager
    def _inside(self, dimension: _Dimension, start: Value) -> Generator[Value]:
        """The loop over those places of a window at ``start`` that are inside along one dimension."""
        fn, window = self.fn, dimension.window
        low = fn.intrinsic("llvm.smax", I64, _divided_up(fn.i64(0) - start, window.window_dilation), fn.i64(0))
        high = _divided_up(fn.i64(dimension.size) - start, window.window_dilation)
        with fn.loop(low, fn.intrinsic("llvm.smin", I64, high, fn.i64(window.size))) as loop:
            yield loop.index

    def _choose(self, place: Value, begin: Value, end: Value, element: Callable[[Value], Value]) -> None:
        """Where the place's element is selected, remember it."""
        fn, kind = self.fn, self.compared
        with fn.loop(begin, end, independent=True) as lane, self.emitter.scope():
            new = convert(fn, self.plan.kind, kind, load(fn, self.plan.kind, self.array, element(lane.index)))
            old = self._get_best(lane.index)
            chosen = fn.load(I32, fn.at(self.chosen, I32, lane.index))
            stays = as_real(self.emitter.called(self.plan.op.select, [old, new])[0]) & (chosen >= 0)
            self._put_best(lane.index, select(fn, stays, old, new))
            fn.store(fn.select(stays, chosen, place), fn.at(self.chosen, I32, lane.index))

    def _get_best(self, lane: Value) -> Scalar:
        fn, type = self.fn, register_type(self.compared)
        parts = [
            fn.load(type, fn.at(self.best, type, lane + k * self.plan.strip))
            for k in range(1 + self.compared.is_complex)
        ]
        return (parts[0], parts[1]) if len(parts) == 2 else parts[0]

    def _put_best(self, lane: Value, value: Scalar) -> None:
        fn, type = self.fn, register_type(self.compared)
        for k, part in enumerate(value if isinstance(value, tuple) else (value,)):
            fn.store(part, fn.at(self.best, type, lane + k * self.plan.strip))

    def _scatter(
        self, lanes: _Lanes, place: Value, span: tuple[Value, Value], element: Callable[[Value], Value]
    ) -> None:
        """Combine the source into the place's elements of those lanes that chose it."""
        fn, plan = self.fn, self.plan
        taken = [p.shape.element_type for p in plan.op.scatter.parameters]
        given = plan.op.scatter.root.shape.element_type
        with fn.loop(*span, independent=True) as lane, self.emitter.scope():
            at = element(lane.index)
            source = load(
                fn, plan.source_kind, self.source, lanes.source + (lanes.first + lane.index) * plan.minor.source_stride
            )
            old = load(fn, plan.kind, self.result, at)
            arguments = [convert(fn, plan.kind, taken[0], old), convert(fn, plan.source_kind, taken[1], source)]
            new = convert(fn, given, plan.kind, self.emitter.called(plan.op.scatter, arguments)[0])
            chose = fn.load(I32, fn.at(self.chosen, I32, lane.index)).eq(place)
            store(fn, plan.kind, select(fn, chose, new, old), self.result, at)


def _divided_up(value: Value, divisor: int) -> Value:
    """The quotient, rounded up; of negative numbers, which round towards zero, a number that is not positive."""
    return value if divisor == 1 else (value + (divisor - 1)).integer("sdiv", divisor)
