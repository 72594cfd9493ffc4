"""Depthwise convolutions, in which each feature depends on one feature of the input, with contiguous features.

Lanes are features. Neighboring placements of a line, a strip, are computed together, with some taps of the last axis
at a time: an element of the kernel is loaded once for the whole strip, and an element of the input once for all taps
that read it. With three taps and stride 1:
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from xlakit.cpu.kernels.conv.geometry import Axis, Geometry
from xlakit.cpu.kernels.gemm.engine import Engine, acc_vector, choose_engine, to_result
from xlakit.cpu.kernels.gemm.operands import Direction, Matrix, OperandReader
from xlakit.cpu.kernels.gemm.store import Output
from xlakit.cpu.kernels.shared.preconditions import require
from xlakit.cpu.llvm import PTR, Effort, Function, Module, Value
from xlakit.cpu.llvm.loop import AS_WRITTEN
from xlakit.cpu.loops.emit.kernel import kernel_function
from xlakit.dataclass import dataclass
from xlakit.target import vector_bytes

# The most strips at the edges of a line that have code of their own, and their most taps on padding; other strips are
# computed placement by placement.
_MOST_EDGE_STRIPS = 4
_MOST_EDGE_TAPS = 16
# The only placement of a window without dimensions.
_NO_AXIS = Axis(1, 1, 1, 1, 0, 1, 0, 0, 0, 0, 0)


def is_depthwise(geometry: Geometry) -> bool:
    """Whether features are groups of one, contiguous in all arrays."""
    groups = geometry.groups
    return (
        groups.size > 1
        and geometry.features.size == 1
        and (groups.input, groups.kernel, groups.output) == (1, 1, 1)
        and not any(kind.is_complex for kind in geometry.kinds)
        and not any(geometry.holes)
    )


def depthwise_engine(geometry: Geometry) -> Engine:
    """The engine that computes the sums."""
    return replace(choose_engine(*geometry.kinds).one_by_one(), mr=1, vectors=1)


def depthwise_tasks(geometry: Geometry, axes: Sequence[Axis]) -> int:
    """Tasks of one phase: lines of placements times blocks of features."""
    blocks = -(-geometry.groups.size // depthwise_engine(geometry).nr)
    return geometry.batch.size * math.prod(a.outputs for a in axes[:-1]) * blocks


def emit_depthwise(module: Module, geometry: Geometry, axes: Sequence[Axis], name: str) -> Function:
    """A task function for one phase; its table is input, kernel, result."""
    require(
        "a convolution feature by feature",
        [
            ("features are groups of one, side by side in all arrays", is_depthwise(geometry)),
            ("a phase has an axis for each spatial dimension", all(len(axes) == len(a) for a in geometry.phases)),
        ],
    )
    fn, table, begin, end = kernel_function(module, name)
    fn.effort = Effort.CODE
    arrays = [fn.load(PTR, fn.at(table, PTR, n)) for n in range(3)]
    engine = depthwise_engine(geometry)
    features = geometry.groups.size
    blocks = -(-features // engine.nr)
    with fn.loop(begin, end, hints=AS_WRITTEN) as task:
        block, rest = task.index.integer("urem", blocks), task.index.integer("udiv", blocks)
        positions: list[Value] = []
        for axis in reversed(axes[:-1]):
            positions.insert(0, rest.integer("urem", axis.outputs))
            rest = rest.integer("udiv", axis.outputs)
        # Taps in the order of the input.
        forward = [a if a.dilation > 0 else a.with_reversed_taps() for a in axes or (_NO_AXIS,)]
        emitter = _Line(fn, engine, geometry, forward, arrays, rest, positions, block * engine.nr)
        tail = features % engine.nr
        if features >= engine.nr:
            with fn.if_(((block + 1) * engine.nr).compare("sle", features)):
                emitter.emit(engine.nr)
        if tail:
            with fn.if_(((block + 1) * engine.nr).compare("sgt", features)):
                emitter.emit(tail)
    return fn


@dataclass(frozen=True, slots=True)
class _Strip:
    """Neighboring placements along the last axis; taps ``low`` to ``high`` read the input at each, none padding.

    known: the first placement, if the code is only for this strip. In strips without it all taps read the input.
    """

    count: int
    low: int
    high: int
    known: int | None = None


@dataclass(slots=True)
class _Line:
    """The placements along the last axis of one line, for one block of features."""

    fn: Function
    engine: Engine
    geometry: Geometry
    axes: list[Axis]
    arrays: list[Value]
    batch: Value
    positions: list[Value]
    feature: Value

    def emit(self, width: int) -> None:
        """Compute strips without padding in a loop, and those at the edges one by one."""
        fn, axis = self.fn, self.axes[-1]
        # Half of the registers hold sums, the others taps: that minimizes the loads per product.
        count = -(-axis.outputs // -(-axis.outputs // (_registers() // 2))) if axis.outputs else 0
        # The last strip ends with the line, and may recompute placements of the strip before.
        firsts = [min(n, axis.outputs - count) for n in range(0, axis.outputs, count or 1)]
        strips = [_Strip(count, *_taps_of_all(axis, first, count), first) for first in firsts]
        edges = [strip for strip in strips if strip.high - strip.low < axis.taps]
        whole = [strip.known or 0 for strip in strips if strip not in edges]
        is_cut = len(edges) > _MOST_EDGE_STRIPS or any(axis.taps - e.high + e.low > _MOST_EDGE_TAPS for e in edges)
        if whole:
            begin = -(-whole[0] // count)
            with fn.loop(begin, begin + len(whole), hints=AS_WRITTEN) as number:
                first = (number.index * count).smin(axis.outputs - count)
                self._placements(first, _Strip(count, 0, axis.taps), width)
        if not is_cut:
            for strip in edges:
                self._placements(fn.i64(strip.known or 0), strip, width)
            return
        until, after = (whole[0], whole[-1] + count) if whole else (axis.outputs, axis.outputs)
        for begin, end in ((0, until), (after, axis.outputs)):
            if begin < end:
                with fn.loop(begin, end, hints=AS_WRITTEN) as position:
                    self._placements(position.index, None, width)

    def _placements(self, first: Value, strip: _Strip | None, width: int) -> None:
        """The results of a strip, or of one placement any of whose taps may read padding."""
        fn, engine = self.fn, self.engine
        count = 1 if strip is None else strip.count
        zeros = [fn.constant(acc_vector(engine, width), 0)] * count
        image = self.feature + self.batch * self.geometry.batch.input
        kernel = self.feature + sum(axis.first_kernel for axis in self.axes)
        # In gradients, the input features of a group are the batch.
        inputs = self.geometry.inputs
        with fn.loop(0, inputs.size, carried=zeros, hints=AS_WRITTEN) as loop:
            start = image + loop.index * inputs.input, kernel + loop.index * inputs.kernel
            loop.next(*self._taps(0, start, (first, strip), width, list(loop.carried)))
        kind = self.geometry.kinds[2]
        output = Output(fn, engine, kind, Direction(()), Direction(()), self.arrays[2])
        start = self.feature + self.batch * self.geometry.batch.output
        for axis, index in zip(self.axes, [*self.positions, first], strict=True):
            start = start + index * axis.output + axis.first_output
        for p, value in enumerate(loop.results):
            output.store_elements(to_result(fn, kind, [value]), start + p * self.axes[-1].output)

    def _taps(
        self,
        number: int,
        start: tuple[Value, Value],
        placements: tuple[Value, _Strip | None],
        width: int,
        sums: list[Value],
    ) -> list[Value]:
        """The sums, with the products of the taps of axes from ``number`` on added."""
        fn, axis = self.fn, self.axes[number]
        first, strip = placements
        is_last = number == len(self.axes) - 1
        base = (first if is_last else self.positions[number]) * axis.stride + axis.shift
        if is_last and strip is not None:
            return self._strip_taps((start[0] + base * axis.input, start[1]), strip, width, sums)
        with fn.loop(*_taps_inside(fn, axis, base), carried=sums, hints=AS_WRITTEN) as loop:
            offsets = start[0] + (base + loop.index * axis.dilation) * axis.input, start[1] + loop.index * axis.kernel
            carried = list(loop.carried)
            if is_last:
                loop.next(*self._add(offsets, _Strip(1, 0, 1), range(1), width, carried))
            else:
                loop.next(*self._taps(number + 1, offsets, placements, width, carried))
        return list(loop.results)

    def _strip_taps(self, start: tuple[Value, Value], strip: _Strip, width: int, sums: list[Value]) -> list[Value]:
        """The sums of a strip with the products of the last axis's taps added, as many at a time as fit registers."""
        fn, axis = self.fn, self.axes[-1]
        if strip.low:
            sums = self._add(start, strip, range(strip.low), width, sums)
        interior = strip.high - strip.low
        each = -(-interior // -(-interior // (_registers() - strip.count - 2))) if interior else 1
        chunks = interior // each
        whole = replace(strip, known=None)

        def chunk(number: Value, taps: int, sums: list[Value]) -> list[Value]:
            tap = number * each + strip.low
            offsets = start[0] + tap * (axis.dilation * axis.input), start[1] + tap * axis.kernel
            return self._add(offsets, whole, range(taps), width, sums)

        if chunks == 1:
            sums = chunk(fn.i64(0), each, sums)
        elif chunks:
            with fn.loop(0, chunks, carried=sums, hints=AS_WRITTEN) as loop:
                loop.next(*chunk(loop.index, each, list(loop.carried)))
            sums = list(loop.results)
        if interior % each:
            sums = chunk(fn.i64(chunks), interior % each, sums)
        if strip.high < axis.taps:
            sums = self._add(start, strip, range(strip.high, axis.taps), width, sums)
        return sums

    def _add(
        self, start: tuple[Value, Value], strip: _Strip, taps: range, width: int, sums: list[Value]
    ) -> list[Value]:
        """Add the products of some taps, column by column of the input; a known strip skips the columns on padding."""
        fn, axis = self.fn, self.axes[-1]
        image, kernel = (
            OperandReader(fn, self.engine, Matrix(kind, Direction(()), Direction(())), array, self.geometry.kinds[2])
            for kind, array in zip(self.geometry.kinds[:2], self.arrays[:2], strict=True)
        )
        columns: dict[int, list[tuple[int, int]]] = {}
        for tap in taps:
            for p in range(strip.count):
                column = p * axis.stride + tap * axis.dilation
                if strip.known is None or 0 <= strip.known * axis.stride + axis.shift + column < axis.size:
                    columns.setdefault(column, []).append((tap, p))
        weights = {tap: kernel.elements(start[1] + tap * axis.kernel, width)[0] for tap in taps}
        new_sums = list(sums)
        for column, products in sorted(columns.items()):
            elements = image.elements(start[0] + column * axis.input, width)[0]
            for tap, p in products:
                if elements.type.is_int:
                    new_sums[p] = new_sums[p] + elements * weights[tap]
                else:
                    new_sums[p] = fn.intrinsic("llvm.fmuladd", elements.type, elements, weights[tap], new_sums[p])
        return new_sums


def _registers() -> int:
    """The number of vector registers."""
    return 32 if vector_bytes() == 64 else 16


def _taps_of_all(axis: Axis, first: int, count: int) -> tuple[int, int]:
    """The range of taps that read the input, not padding, at each of ``count`` placements."""
    low = min(axis.taps, max(0, -((first * axis.stride + axis.shift) // axis.dilation)))
    last = axis.size - 1 - axis.shift - (first + count - 1) * axis.stride
    return low, max(low, min(axis.taps, last // axis.dilation + 1))


def _taps_inside(fn: Function, axis: Axis, base: Value) -> tuple[Value, Value]:
    """The range of taps that read the input, not padding, if tap 0 is at ``base``."""

    def rounded_up(distance: Value) -> Value:
        bounded = distance.smax(0)
        taps = (bounded + (axis.dilation - 1)).integer("udiv", axis.dilation)
        return taps.smin(axis.taps)

    return rounded_up(-base), rounded_up(fn.i64(axis.size) - base)
