"""Prefix sums and other scans: reduce-window with a window that extends from one end of a dimension to each element.

Sequences are computed side by side, one in each lane of vector registers. If the elements of a sequence are contiguous,
the lanes are rows (or, of a single row, pieces of it), which are transposed into a buffer and back; sums of a single
row need no buffer (:mod:`vectors`). Few long sequences are divided into segments: the totals of the segments are
computed first, and each segment then begins with the total of all before it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager

from xlakit.cpu.kernels.scan.vectors import RunningTotals, running_totals
from xlakit.cpu.kernels.shared.preconditions import require
from xlakit.cpu.llvm import I8, VOID, Module, Value
from xlakit.cpu.loops.emit.emitter import Emitter
from xlakit.cpu.loops.emit.kernel import Kernel, Phase, task_function
from xlakit.cpu.loops.nests.transpose import block_transposer
from xlakit.cpu.scalars import Scalar, load, register_type, store
from xlakit.cpu.scalars.memory import Accumulators, all_parts, as_real, regrouped
from xlakit.data.primitive import PrimitiveType
from xlakit.dataclass import dataclass
from xlakit.ir.attributes import WindowDimension
from xlakit.ir.instruction import Computation, Instruction
from xlakit.ops.windows import ReduceWindow
from xlakit.options import knob, times
from xlakit.passes.analysis.cost_model import cost_model

# Cycles for an element of the result.
_CYCLES = 2.0
# The rows of a buffer, and the sequences side by side in it.
_DEPTH = 128
_LANES = 16
# The most sequences side by side of a task, if they are adjacent in memory.
_STRIP = knob("prefix_sum.strip", 512, 16, 64, tries=(256, 1024))
_AT_ONCE = 4
_FEW_TASKS = knob("prefix_sum.few_tasks", 8, 0, 1000)
_MOST_SEGMENTS = knob("prefix_sum.most_segments", 32, 3)
# Sequences of this many blocks of registers are computed one by one: running sums of f32[64,60000] take 0.64 of the
# time.
_LONG = knob("prefix_sum.long", 4, 1)
_SEGMENT_ELEMENTS = knob("prefix_sum.segment_elements", 1 << 15, 4, 50, tries=(times(0.25), times(4)))


@dataclass(frozen=True, slots=True)
class ScanPlan:
    """A scan over the middle of three dimensions."""

    computation: Computation
    kinds: tuple[PrimitiveType, ...]
    outer: int
    length: int
    inner: int
    reverse: bool

    @property
    def strip(self) -> int:
        """The number of sequences side by side in a task."""
        return min(self.inner, _STRIP.value) if self.inner > 1 else min(self.outer, _LANES)

    @property
    def is_single(self) -> bool:
        """Whether each sequence is computed by itself: in pieces that are lanes, or in registers."""
        if self.inner > 1 or self.outer < _FEW_TASKS.value:
            return self.inner == 1
        return self.totals is not None and self.length >= _LONG.value * self.totals.block

    @property
    def totals(self) -> RunningTotals | None:
        """The computation of one sequence in registers; None if it has none."""
        if self.inner > 1 or len(self.kinds) != 1:
            return None
        return running_totals(self.computation, self.kinds[0], reverse=self.reverse)

    @property
    def groups(self) -> int:
        """The number of groups of sequences."""
        if self.inner > 1:
            return self.outer * -(-self.inner // self.strip)
        return self.outer if self.is_single else -(-self.outer // self.strip)

    @property
    def segments(self) -> int:
        """The number of segments of each sequence."""
        if self.groups >= _FEW_TASKS.value or (self.inner == 1 and not self.is_single):
            return 1
        lanes = self.strip if self.inner > 1 else 1
        segments = min(_MOST_SEGMENTS.value, self.length * lanes // _SEGMENT_ELEMENTS.value)
        # Each segment has elements, for any width of the strips.
        return max(1, min(segments, self.length))

    @property
    def cost(self) -> float:
        """The estimated nanoseconds on one processor."""
        return cost_model().cycles(_CYCLES) * self.outer * self.length * self.inner * len(self.kinds)

    @property
    def arrays(self) -> int:
        """The number of addresses in the kernel's table."""
        return 3 * len(self.kinds) + (self.segments > 1)

    @property
    def total_bytes(self) -> int:
        """The bytes of the segments' totals, for one result."""
        width = max(register_type(k).bytes * (1 + k.is_complex) for k in self.kinds)
        return self.outer * self.inner * self.segments * max(8, width)


def plan_prefix_sum(instruction: Instruction) -> ScanPlan | None:
    """The plan of a reduce-window that is a scan; None for others."""
    op = instruction.op_as(ReduceWindow)
    count = len(instruction.operands) // 2
    arrays, inits = instruction.operands[:count], instruction.operands[count:]
    kinds = tuple(a.shape.element_type for a in arrays)
    if any(kind is not init.shape.element_type for kind, init in zip(kinds, inits, strict=True)):
        return None
    sizes = arrays[0].shape.dimensions
    moving = [d for d, window in enumerate(op.window.dimensions) if window != WindowDimension(1)]
    if len(moving) != 1 or not math.prod(sizes):
        return None
    (axis,) = moving
    window, length = op.window.dimensions[axis], sizes[axis]
    plain = window.stride == window.window_dilation == window.base_dilation == 1
    if not plain or window.size < length:
        return None
    if (window.padding_low, window.padding_high) not in ((window.size - 1, 0), (0, window.size - 1)):
        return None
    return ScanPlan(
        op.to_apply, kinds, math.prod(sizes[:axis]), length, math.prod(sizes[axis + 1 :]), window.padding_low == 0
    )


def emit_prefix_sum(module: Module, plan: ScanPlan) -> Kernel:
    """The kernel of a scan; its table has arrays, initial values, results, and scratch."""
    require(
        f"a scan of {plan.outer} x {plan.length} x {plan.inner} elements",
        [
            ("there are elements", min(plan.outer, plan.length, plan.inner) > 0),
            ("a task has sequences", 0 < plan.strip <= max(_STRIP.value, _LANES)),
            ("each segment has elements", 0 < plan.segments <= plan.length),
            ("each array has a parameter for both sides", len(plan.computation.parameters) == 2 * len(plan.kinds)),
        ],
    )
    if plan.segments == 1:
        return Kernel((_emit_scan(module, plan),))
    phases = _emit_totals(module, plan), _emit_scan(module, plan)
    return Kernel(phases, scratch_bytes=plan.total_bytes * len(plan.kinds))


def _emit_totals(module: Module, plan: ScanPlan) -> Phase:
    """The phase that computes the total of each segment but the last."""
    tasks = plan.groups * (plan.segments - 1)
    fn, emitter, begin, end = task_function(module, "scan.totals", plan.arrays)
    writer = _Writer(plan, emitter, plan.strip if plan.inner > 1 else 1)
    with fn.loop(begin, end) as task, emitter.scope():
        writer.write_total(*(task.index.integer(op, plan.segments - 1) for op in ("udiv", "urem")))
    return Phase(fn.name, tasks, plan.cost / 2)


def _emit_scan(module: Module, plan: ScanPlan) -> Phase:
    """The phase that computes the results; each segment begins with the total of all segments before it."""
    fn, emitter, begin, end = task_function(module, "scan", plan.arrays)
    buffered = plan.inner == 1 and not (plan.is_single and plan.totals)
    writer = _Writer(plan, emitter, max(plan.strip, _LANES), buffered=buffered)
    with fn.loop(begin, end) as task, emitter.scope():
        writer.write_scan(*(task.index.integer(op, plan.segments) for op in ("udiv", "urem")))
    return Phase(fn.name, plan.groups * plan.segments, plan.cost)


# The addresses of one element in each array.
_Addresses = Sequence[Value]


class _Writer:
    """Writes the code of one task: of a segment of a group of sequences."""

    def __init__(self, plan: ScanPlan, emitter: Emitter, lanes: int, *, buffered: bool = False) -> None:
        """``lanes``: the number of accumulators. ``buffered``: whether sequences are transposed into buffers."""
        self.plan = plan
        self.emitter = emitter
        self.fn = fn = emitter.fn
        self.accumulators = Accumulators.of(fn, plan.kinds, lanes)
        count = len(plan.kinds)
        self.sources, self.initial, self.targets = (emitter.arrays[k * count : (k + 1) * count] for k in range(3))
        self.totals = plan.totals if plan.is_single else None
        self._buffers = (
            [fn.alloca(I8, _DEPTH * _LANES * k.byte_width, align=64) for k in plan.kinds] if buffered else []
        )

    def _combined(self, before: Sequence[Scalar], new: Sequence[Scalar]) -> list[Scalar]:
        """One step of the scan, with operands in the order of the window's elements."""
        first, second = (new, before) if self.plan.reverse else (before, new)
        with self.emitter.scope():
            return self.emitter.combined(self.plan.computation, list(first), list(second))

    def _load(self, arrays: _Addresses, position: Value) -> list[Scalar]:
        return [load(self.fn, k, a, position) for k, a in zip(self.plan.kinds, arrays, strict=True)]

    def _row_of(self, position: Value, length: int) -> Value:
        """The row in memory of a position of the scan."""
        return position.function.i64(length - 1) - position if self.plan.reverse else position

    # -- side by side ------------------------------------------------------------------------------

    def _rows(
        self,
        source: Callable[[Value], _Addresses],
        target: Callable[[Value], _Addresses] | None,
        positions: tuple[Value, Value],
        lanes: Value,
    ) -> None:
        """Fold rows into the accumulators of all lanes; with a target, store them to its rows after each step."""
        fn = self.fn
        begin, end = positions
        whole = begin + (end - begin).integer("udiv", _AT_ONCE) * _AT_ONCE
        for first, after, step in ((begin, whole, _AT_ONCE), (whole, end, 1)):
            with fn.loop(first, after, step) as loop:
                read = [source(loop.index + k) for k in range(step)]
                written = [target(loop.index + k) for k in range(step)] if target is not None else []
                with fn.loop(0, lanes, independent=True) as lane:
                    running = self.accumulators.get(lane.index)
                    for iteration in range(step):
                        running = self._combined(running, self._load(read[iteration], lane.index))
                        if written:
                            for kind, value, array in zip(self.plan.kinds, running, written[iteration], strict=True):
                                store(fn, kind, value, array, lane.index)
                    self.accumulators.put(lane.index, running)

    def _matrix(self, bases: _Addresses, stride: int, length: int) -> Callable[[Value], _Addresses]:
        """The addresses of the rows of matrices in memory, by position."""
        widths = [k.byte_width for k in self.plan.kinds]

        def row(position: Value) -> _Addresses:
            offset = self._row_of(position, length) * stride
            return [self.fn.at(b, I8, offset * w) for b, w in zip(bases, widths, strict=True)]

        return row

    def _shifted(self, arrays: _Addresses, position: Value) -> list[Value]:
        return [self.fn.at(a, I8, position * k.byte_width) for a, k in zip(arrays, self.plan.kinds, strict=True)]

    # -- the functions -----------------------------------------------------------------------------

    def _segment(self, number: Value) -> tuple[Value, Value]:
        """The first element of a segment of a row, and that of the next one."""
        following, plan = number + 1, self.plan
        first, end = ((n * plan.length).integer("udiv", plan.segments) for n in (number, following))
        return first, end

    def _totals(self) -> list[Value]:
        """The addresses of the segments' totals: by segment, then by sequence."""
        scratch = self.emitter.arrays[3 * len(self.plan.kinds)]
        return [self.fn.at(scratch, I8, k * self.plan.total_bytes) for k in range(len(self.plan.kinds))]

    def _group(self, number: Value) -> tuple[Value, Value, Value]:
        """The offset of a group of sequences, its first sequence, and its number of sequences."""
        fn, plan = self.fn, self.plan
        if plan.is_single:
            return number * plan.length, number, fn.i64(1)
        if plan.inner == 1:
            first = number * plan.strip
            return (
                first * plan.length,
                first,
                fn.i64(plan.strip).smin(fn.i64(plan.outer) - first),
            )
        blocks = -(-plan.inner // plan.strip)
        low = number.integer("urem", blocks) * plan.strip
        outer = number.integer("udiv", blocks)
        size = fn.i64(plan.strip).smin(fn.i64(plan.inner) - low)
        return outer * (plan.length * plan.inner) + low, outer * plan.inner + low, size

    def write_total(self, group: Value, segment: Value) -> None:
        """Compute and store the totals of a segment."""
        fn, plan = self.fn, self.plan
        base, first, lanes = self._group(group)
        low, high = self._segment(segment)
        source = self._matrix(self._shifted(self.sources, base), plan.inner, plan.length)
        if plan.is_single:
            self._fold(source, (low, high))
        else:
            with fn.loop(0, lanes, independent=True) as lane:
                self.accumulators.put(lane.index, self._load(source(low), lane.index))
            self._rows(source, None, (low + 1, high), lanes)
        position = segment * (plan.outer * plan.inner) + first
        with fn.loop(0, lanes, independent=True) as lane:
            self._total_parts(position).put(lane.index, self.accumulators.get(lane.index))

    def _fold(self, source: Callable[[Value], _Addresses], positions: tuple[Value, Value]) -> None:
        """Fold one sequence."""
        fn = self.fn
        zero = fn.i64(0)
        start = self._load(source(positions[0]), zero)
        with fn.loop(positions[0] + 1, positions[1], carried=all_parts(start), independent=True) as loop:
            running = regrouped(loop.carried, start)
            following = self._combined(running, self._load(source(loop.index), zero))
            loop.next(*all_parts(following))
        self.accumulators.put(zero, regrouped(loop.results, start))

    def _total_parts(self, position: Value) -> Accumulators:
        """The totals from a position on, as accumulators: all real parts come before all imaginary parts."""
        fn, plan = self.fn, self.plan
        pointers: list[list[Value]] = []
        for kind, total in zip(plan.kinds, self._totals(), strict=True):
            type = register_type(kind)
            behind = plan.outer * plan.inner * plan.segments
            pointers.append([fn.at(total, type, position + k * behind) for k in range(1 + kind.is_complex)])
        return Accumulators(fn, plan.kinds, pointers)

    def write_scan(self, group: Value, segment: Value) -> None:
        """Compute and store the results of a segment."""
        fn, plan = self.fn, self.plan
        base, first, lanes = self._group(group)
        initial = self._load(self.initial, fn.i64(0))
        with fn.loop(0, lanes, independent=True) as lane:
            self.accumulators.put(lane.index, initial)
        if plan.segments > 1:
            self._add_totals(segment, first, lanes)
        positions = self._segment(segment)
        arrays = self._shifted(self.sources, base), self._shifted(self.targets, base)
        if plan.inner > 1:
            read, written = (self._matrix(m, plan.inner, plan.length) for m in arrays)
            self._rows(read, written, positions, lanes)
        elif plan.is_single:
            self._single(arrays, positions)
        else:
            self._transposed_rows(arrays, lanes)

    def _add_totals(self, segment: Value, first: Value, lanes: Value) -> None:
        """Add the totals of all segments before ``segment`` to the accumulators; ``first``: the first sequence."""
        fn, plan = self.fn, self.plan
        with fn.loop(0, segment) as before:
            totals = self._total_parts(before.index * (plan.outer * plan.inner) + first)
            with fn.loop(0, lanes, independent=True) as lane:
                running = self.accumulators.get(lane.index)
                running = self._combined(running, totals.get(lane.index))
                self.accumulators.put(lane.index, running)

    # -- through a buffer --------------------------------------------------------------------------

    @contextmanager
    def _transposed(
        self, arrays: tuple[_Addresses, _Addresses], sizes: tuple[Value, Value], distance: Value
    ) -> Generator[Callable[[Value], _Addresses]]:
        """Transposes ``lanes`` sequences of ``depth`` steps, ``distance`` apart in memory, into the buffers.

        At the end of the block, the contents of the buffers are transposed to the targets.
        """
        fn, (lanes, depth), (sources, targets) = self.fn, sizes, arrays
        for kind, buffer, source in zip(self.plan.kinds, self._buffers, sources, strict=True):
            transposer = block_transposer(fn.module, kind.byte_width)
            fn.call(transposer, VOID, source, distance, buffer, fn.i64(_LANES), lanes, depth)
        yield self._buffer_rows(depth)
        for kind, buffer, target in zip(self.plan.kinds, self._buffers, targets, strict=True):
            transposer = block_transposer(fn.module, kind.byte_width)
            fn.call(transposer, VOID, buffer, fn.i64(_LANES), target, distance, depth, lanes)

    def _buffer_rows(self, depth: Value) -> Callable[[Value], _Addresses]:
        widths = [k.byte_width for k in self.plan.kinds]

        def row(position: Value) -> _Addresses:
            number = depth - 1 - position if self.plan.reverse else position
            return [self.fn.at(b, I8, number * (_LANES * w)) for b, w in zip(self._buffers, widths, strict=True)]

        return row

    def _transposed_rows(self, arrays: tuple[_Addresses, _Addresses], lanes: Value) -> None:
        """Scan sequences that are rows of memory."""
        fn, plan = self.fn, self.plan
        with fn.loop(0, plan.length, _DEPTH) as tile:
            depth = (fn.i64(plan.length) - tile.index).smin(_DEPTH)
            start = fn.i64(plan.length) - tile.index - depth if plan.reverse else tile.index
            sources, targets = (self._shifted(a, start) for a in arrays)
            transposed = self._transposed((sources, targets), (lanes, depth), fn.i64(plan.length))
            with transposed as rows:
                self._rows(rows, rows, (fn.i64(0), depth), lanes)

    def _single(self, arrays: tuple[_Addresses, _Addresses], positions: tuple[Value, Value]) -> None:
        """Scan one sequence; lane 0 of the accumulators has the total before it."""
        fn = self.fn
        begin, end = positions
        chunk = _DEPTH * _LANES if self.totals is None else self.totals.block
        whole = begin + (end - begin).integer("udiv", chunk) * chunk
        if self.totals is None:
            self._chunks(arrays, (begin, whole))
        else:
            (before,) = self.accumulators.get(fn.i64(0))
            (source,), (target,) = arrays
            after = self.totals.write(fn, (source, target), self.plan.length, (begin, whole), as_real(before))
            self.accumulators.put(fn.i64(0), [after])
        read, written = (self._matrix(m, 1, self.plan.length) for m in arrays)
        self._rows(read, written, (whole, end), fn.i64(1))

    def _chunks(self, arrays: tuple[_Addresses, _Addresses], positions: tuple[Value, Value]) -> None:
        """Scan whole chunks of one sequence, with a piece in each lane."""
        fn, plan = self.fn, self.plan
        chunk = _DEPTH * _LANES
        begin, whole = positions
        lanes, depth, zero = fn.i64(_LANES), fn.i64(_DEPTH), fn.i64(0)
        stride = fn.i64(-_DEPTH if plan.reverse else _DEPTH)
        with fn.loop(begin, whole, chunk) as loop:
            start = fn.i64(plan.length - _DEPTH) - loop.index if plan.reverse else loop.index
            sources, targets = (self._shifted(a, start) for a in arrays)
            with self._transposed((sources, targets), (lanes, depth), stride) as rows:
                before = self.accumulators.get(zero)
                with fn.loop(0, lanes, independent=True) as lane:
                    self.accumulators.put(lane.index, self._load(rows(zero), lane.index))
                self._rows(rows, None, (fn.i64(1), depth), lanes)
                after = self._prefixes(before)
                self._rows(rows, rows, (zero, depth), lanes)
            self.accumulators.put(zero, after)

    def _prefixes(self, before: list[Scalar]) -> list[Scalar]:
        """Replace the total of each lane by the total of all lanes before it; gives the overall total."""
        running = before
        for number in range(_LANES):
            lane = self.fn.i64(number)
            lane_total = self.accumulators.get(lane)
            self.accumulators.put(lane, running)
            running = self._combined(running, lane_total)
        return running
