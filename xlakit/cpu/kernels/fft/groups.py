"""Transforms of many rows or columns: groups of as many as a vector has lanes."""

from __future__ import annotations

import numpy as np

from xlakit.cpu.kernels.fft.butterfly import swapped, tangle_ends, tangle_point, untangle_ends, untangle_point
from xlakit.cpu.kernels.fft.lanes import (
    is_moved,
    lane_count,
    lane_transform,
    splat_point,
    store_point,
)
from xlakit.cpu.kernels.fft.moves import Moves, Rows
from xlakit.cpu.kernels.fft.plan import LONGEST_LANES, Axis, lane_points, work
from xlakit.cpu.kernels.fft.tables import Tables, load_point, roots
from xlakit.cpu.kernels.shared.preconditions import require
from xlakit.cpu.kernels.shared.scratch import acquire, release
from xlakit.cpu.llvm import I8, VOID, Effort, Function, Module, Value
from xlakit.cpu.llvm.loop import AS_WRITTEN
from xlakit.cpu.llvm.promises import CONTRACTS
from xlakit.cpu.loops.emit.kernel import Phase, kernel_function
from xlakit.passes.analysis.cost_model import cost_model


def group_cost(axis: Axis) -> float:
    """The estimated nanoseconds of all groups together."""
    lanes = lane_count(axis.part)
    groups = axis.outer * -(-axis.inner // lanes) if axis.inner > 1 else -(-axis.outer // lanes)
    # Long transforms of all lanes exceed the near caches.
    far = 1.6 if lane_points(axis.points) > LONGEST_LANES else 1.0
    return cost_model().cycles(groups * work(axis.points) * far)


def emit_groups(module: Module, axis: Axis) -> Phase:
    """The phase of an axis; a task is a group."""
    require(
        f"transforms of {axis.length} points",
        [
            ("there are points and rows", min(axis.length, axis.outer, axis.inner) > 0),
            ("real rows lie one element after another", axis.inner == 1 or not (axis.reads_real or axis.writes_real)),
            ("only one side is real", not (axis.reads_real and axis.writes_real)),
        ],
    )
    transform = lane_transform(module, axis.part, axis.points)
    fn, table, begin, end = kernel_function(module, "fft_groups")
    fn.fast_math = CONTRACTS
    # Complex rows and columns are moved and transformed by calls, unless they have only a few points.
    is_called = not (axis.reads_real or axis.writes_real) and axis.length >= lane_count(axis.part)
    fn.effort = Effort.LITTLE if is_called else Effort.CODE
    writer = _Writer(fn, axis, transform)
    source, target = axis.source.pointer(fn, table), axis.target.pointer(fn, table)
    memory = acquire(fn, 2 * writer.bytes)
    with fn.loop(begin, end, hints=AS_WRITTEN) as task:
        if axis.inner > 1:
            writer.columns(source, target, task.index, memory)
        else:
            writer.rows(source, target, task.index, memory)
    release(fn, memory)
    lanes = lane_count(axis.part)
    tasks = axis.outer * -(-axis.inner // lanes) if axis.inner > 1 else -(-axis.outer // lanes)
    return Phase(fn.name, tasks, group_cost(axis))


class _Writer:
    def __init__(self, fn: Function, axis: Axis, transform: Function) -> None:
        self.fn = fn
        self.axis = axis
        self.transform = transform
        self.moves = Moves(fn, axis.part)
        self.tables = Tables(fn, axis.part)
        points = max(lane_points(axis.points), axis.spectrum)
        self.bytes = points * 2 * self.moves.type.bytes

    def _transformed(self, points: Value, other: Value) -> Value:
        """Transform the points; gives the address of the result."""
        self.fn.call(self.transform, VOID, points, other)
        return other if is_moved(self.axis.points) else points

    def columns(self, source: Value, target: Value, task: Value, memory: Value) -> None:
        """Transform a group of adjacent columns."""
        fn, axis, lanes = self.fn, self.axis, self.moves.lanes
        groups = -(-axis.inner // lanes)
        outer, first = task.integer("udiv", groups), task.integer("urem", groups) * lanes
        left = fn.i64(axis.inner) - first
        count = fn.i64(lanes) if axis.inner % lanes == 0 else left.umin(lanes)
        offset = (outer * (axis.length * axis.inner) + first) * 2
        other = fn.at(memory, I8, self.bytes)
        start = fn.at(source, axis.part, offset)
        self.moves.load_columns(start, axis.inner, count, memory, axis.length, axis.is_inverse)
        transformed = self._transformed(memory, other)
        start = fn.at(target, axis.part, offset)
        self.moves.store_columns(transformed, start, axis.inner, count, axis.length, axis.scale, axis.is_inverse)

    def rows(self, source: Value, target: Value, task: Value, memory: Value) -> None:
        """Transform a group of rows."""
        fn, axis, moves = self.fn, self.axis, self.moves
        first = task * moves.lanes
        other = fn.at(memory, I8, self.bytes)
        inputs = Rows(source, first, axis.source_row, axis.outer)
        outputs = Rows(target, first, axis.target_row, axis.outer)
        if axis.reads_real and not axis.is_halved:
            moves.load_rows(inputs, memory, axis.length, False, width=1)
            moves.store_rows(self._transformed(memory, other), outputs, axis.spectrum, axis.scale, False)
        elif axis.reads_real:
            moves.load_rows(inputs, memory, axis.points, False)
            transformed = self._transformed(memory, other)
            free = memory if is_moved(axis.points) else other
            self._untangle(transformed, free)
            moves.store_rows(free, outputs, axis.spectrum, axis.scale, False)
        elif axis.writes_real:
            moves.load_rows(inputs, memory, axis.spectrum, False)
            if axis.is_halved:
                self._tangle(memory, other)
                memory, other = other, memory
            else:
                self._mirror(memory)
            transformed = self._transformed(memory, other)
            if axis.is_halved:
                moves.store_rows(transformed, outputs, axis.points, axis.scale, True)
            else:
                # The real numbers are the imaginary parts of points with exchanged parts.
                moves.store_rows(transformed, outputs, axis.length, axis.scale, True, width=1)
        else:
            moves.load_rows(inputs, memory, axis.length, axis.is_inverse)
            moves.store_rows(self._transformed(memory, other), outputs, axis.length, axis.scale, axis.is_inverse)

    # -- real rows -------------------------------------------------------------------------------

    def _untangle(self, source: Value, target: Value) -> None:
        fn, type, half = self.fn, self.moves.type, self.axis.points
        table = self._half_roots()
        first, last = untangle_ends(load_point(fn, type, source, 0))
        store_point(fn, first, target, 0)
        store_point(fn, last, target, half)
        with fn.loop(1, half, hints=AS_WRITTEN) as loop:
            point = load_point(fn, type, source, loop.index)
            mirrored = load_point(fn, type, source, fn.i64(half) - loop.index)
            root = splat_point(fn, self.axis.part, self.moves.lanes, table, loop.index)
            store_point(fn, untangle_point(point, mirrored, root), target, loop.index)

    def _tangle(self, source: Value, target: Value) -> None:
        """The complex spectrum of a real row's spectrum, with parts exchanged as the inverse transform requires."""
        fn, type, half = self.fn, self.moves.type, self.axis.points
        table = self._half_roots()
        ends = load_point(fn, type, source, 0), load_point(fn, type, source, half)
        store_point(fn, swapped(tangle_ends(*ends)), target, 0)
        with fn.loop(1, half, hints=AS_WRITTEN) as loop:
            point = load_point(fn, type, source, loop.index)
            mirrored = load_point(fn, type, source, fn.i64(half) - loop.index)
            root = splat_point(fn, self.axis.part, self.moves.lanes, table, loop.index)
            store_point(fn, swapped(tangle_point(point, mirrored, root)), target, loop.index)

    def _half_roots(self) -> Value:
        half = self.axis.points
        return self.tables.pairs(f"half.{half}", roots(np.arange(half), 2 * half))

    def _mirror(self, memory: Value) -> None:
        """The complete spectrum of a real row of odd length, with parts exchanged."""
        fn, type = self.fn, self.moves.type
        zero = fn.constant(type, 0.0)
        store_point(fn, (zero, load_point(fn, type, memory, 0)[0]), memory, 0)
        with fn.loop(1, self.axis.spectrum, hints=AS_WRITTEN) as loop:
            real, imag = load_point(fn, type, memory, loop.index)
            store_point(fn, (imag, real), memory, loop.index)
            store_point(fn, (-imag, real), memory, fn.i64(self.axis.length) - loop.index)
