"""Depthwise convolutions, in which each feature depends on one feature of the input, with contiguous features.

Lanes are features. Placements without padding are computed a few at a time, so that the kernel's elements are loaded
once for all of them; at the edges, the taps that fall on padding are left out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from xlakit.cpu.kernels.conv.geometry import Axis, Geometry
from xlakit.cpu.kernels.gemm.micro_kernel import NO_UNROLL
from xlakit.cpu.kernels.gemm.operands import Direction, Matrix, Packer
from xlakit.cpu.kernels.gemm.store import Output
from xlakit.cpu.kernels.shared.engine import Engine, acc_vector, choose_engine, to_result, vectors_of
from xlakit.cpu.kernels.shared.preconditions import require
from xlakit.cpu.llvm import I64, PTR, VOID, Effort, Function, Module, Value
from xlakit.dataclass import dataclass

# Outputs computed at the same time, and registers of features.
_OUTPUTS_AT_ONCE = 4
_VECTORS = 2


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
    """The engine of the sums."""
    return replace(choose_engine(*geometry.kinds).one_by_one(), mr=1, vectors=_VECTORS)


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
    fn = module.function(name, VOID, [PTR, I64, I64])
    fn.effort = Effort.CODE
    table, begin, end = fn.parameters
    arrays = [fn.load(PTR, fn.at(table, PTR, n)) for n in range(3)]
    engine = depthwise_engine(geometry)
    features = geometry.groups.size
    blocks = -(-features // engine.nr)
    with fn.loop(begin, end, hints=NO_UNROLL) as task:
        block, rest = task.index.integer("urem", blocks), task.index.integer("udiv", blocks)
        positions: list[Value] = []
        for axis in reversed(axes[:-1]):
            positions.insert(0, rest.integer("urem", axis.outputs))
            rest = rest.integer("udiv", axis.outputs)
        # Taps in the order of the input.
        forward = [a if a.dilation > 0 else a.with_reversed_taps() for a in axes]
        emitter = _Line(fn, engine, geometry, forward, arrays, rest, positions, block * engine.nr)
        tail = features % engine.nr
        if features >= engine.nr:
            with fn.if_(((block + 1) * engine.nr).compare("sle", features)):
                emitter.emit(engine.nr)
        if tail:
            with fn.if_(((block + 1) * engine.nr).compare("sgt", features)):
                emitter.emit(tail)
    fn.ret()
    return fn


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
        """The loop over placements, several at a time where no tap falls on padding."""
        fn, geometry = self.fn, self.geometry
        if not self.axes:
            self._placements(fn.i64(0), 1, width, whole=True)
            return
        last = self.axes[-1]
        reach = (last.taps - 1) * last.dilation
        # The placements without padding along this axis.
        low = min(last.outputs, max(0, -(last.shift // last.stride)))
        high = max(low, min(last.outputs, (last.size - 1 - reach - last.shift) // last.stride + 1))
        if high - low < _OUTPUTS_AT_ONCE or not geometry.inputs.size:
            with fn.loop(0, last.outputs, hints=NO_UNROLL) as position:
                self._placements(position.index, 1, width, whole=low == 0 and high == last.outputs)
            return
        with fn.while_([fn.i64(0)], lambda loop: loop.carried[0] < last.outputs) as loop:
            position = loop.carried[0]
            several = position.compare("sge", low) & position.compare("sle", high - _OUTPUTS_AT_ONCE)

            def some() -> list[Value]:
                self._placements(position, _OUTPUTS_AT_ONCE, width, whole=True)
                return [fn.i64(_OUTPUTS_AT_ONCE)]

            def one() -> list[Value]:
                self._placements(position, 1, width, whole=False)
                return [fn.i64(1)]

            loop.next(position + fn.if_else(several, some, one)[0])

    def _placements(self, position: Value, count: int, width: int, *, whole: bool) -> None:
        fn, engine = self.fn, self.engine
        pieces = vectors_of(engine, width)
        zeros = [fn.constant(acc_vector(engine, lanes), 0) for _ in range(count) for _, lanes in pieces]
        sums = self._inputs(position, count, pieces, zeros, whole=whole)
        kind = self.geometry.kinds[2]
        output = Output(fn, engine, kind, Direction(()), Direction(()), self.arrays[2])
        start = self.feature + self.batch * self.geometry.batch.output
        indices = [*self.positions, position] if self.axes else []
        for axis, index in zip(self.axes, indices, strict=True):
            start = start + index * axis.output + axis.first_output
        for p in range(count):
            for n, (first, _) in enumerate(pieces):
                offset = start + (first + (p * self.axes[-1].output if p else 0))
                output.store_elements(to_result(fn, kind, [sums[p * len(pieces) + n]]), offset)

    def _inputs(
        self, position: Value, count: int, pieces: list[tuple[int, int]], sums: list[Value], *, whole: bool
    ) -> list[Value]:
        """The sums over the input features of a group (the batch, in gradients) and over the window."""
        fn, geometry = self.fn, self.geometry
        image = self.feature + self.batch * geometry.batch.input
        kernel = self.feature + sum(axis.first_kernel for axis in self.axes)
        size = geometry.inputs.size
        with fn.loop(0, size, carried=sums, hints=NO_UNROLL) as loop:
            start = image + loop.index * geometry.inputs.input, kernel + loop.index * geometry.inputs.kernel
            loop.next(*self._taps(0, start, position, count, pieces, list(loop.carried), whole=whole))
        return list(loop.results)

    def _taps(
        self,
        number: int,
        start: tuple[Value, Value],
        position: Value,
        count: int,
        pieces: list[tuple[int, int]],
        sums: list[Value],
        *,
        whole: bool,
    ) -> list[Value]:
        fn = self.fn
        if number == len(self.axes):
            return self._add(start, count, pieces, sums)
        axis = self.axes[number]
        is_last = number == len(self.axes) - 1
        index = position if is_last else self.positions[number]
        base = index * axis.stride + axis.shift
        low, high = (fn.i64(0), fn.i64(axis.taps)) if is_last and whole else _taps_inside(fn, axis, base)
        with fn.loop(low, high, carried=sums, hints=NO_UNROLL) as loop:
            at = start[0] + (base + loop.index * axis.dilation) * axis.input, start[1] + loop.index * axis.kernel
            loop.next(*self._taps(number + 1, at, position, count, pieces, list(loop.carried), whole=whole))
        return list(loop.results)

    def _add(
        self, start: tuple[Value, Value], count: int, pieces: list[tuple[int, int]], sums: list[Value]
    ) -> list[Value]:
        """Add the products at one tap."""
        fn, engine = self.fn, self.engine
        kinds = self.geometry.kinds
        nothing = Direction(())
        image, kernel = (
            Packer(fn, engine, Matrix(kind, nothing, nothing), array, kinds[2])
            for kind, array in zip(kinds[:2], self.arrays[:2], strict=True)
        )
        step = self.axes[-1].stride * self.axes[-1].input if self.axes else 0
        made = list(sums)
        for n, (first, lanes) in enumerate(pieces):
            weights = kernel.elements(start[1] + first, lanes)[0]
            for p in range(count):
                elements = image.elements(start[0] + (first + p * step), lanes)[0]
                register = p * len(pieces) + n
                if elements.type.is_int:
                    made[register] = made[register] + elements * weights
                else:
                    made[register] = fn.intrinsic("llvm.fmuladd", elements.type, elements, weights, made[register])
        return made


def _taps_inside(fn: Function, axis: Axis, base: Value) -> tuple[Value, Value]:
    """The range of taps that read elements of the input, not padding, if tap 0 is at ``base``."""

    def rounded_up(distance: Value) -> Value:
        bounded = distance.smax(0)
        taps = (bounded + (axis.dilation - 1)).integer("udiv", axis.dilation)
        return taps.smin(axis.taps)

    return rounded_up(-base), rounded_up(fn.i64(axis.size) - base)
