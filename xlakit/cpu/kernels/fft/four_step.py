"""The four-step transform of a * b points: columns of a matrix [a, b], roots of unity, rows, and a transpose.

Between the passes the points are stored in planes: for each row of the matrix and each group of columns, first all real
parts and then the imaginary parts.
"""

from __future__ import annotations

import numpy as np

from xlakit.cpu.kernels.fft.lanes import (
    is_moved,
    lane_count,
    lane_transform,
    store_point,
)
from xlakit.cpu.kernels.fft.moves import Moves, Rows
from xlakit.cpu.kernels.fft.plan import is_smooth
from xlakit.cpu.kernels.fft.tables import LongRoots, Tables, load_point, roots
from xlakit.cpu.kernels.shared.preconditions import require
from xlakit.cpu.kernels.shared.scratch import acquire, release
from xlakit.cpu.kernels.shared.shuffles import transposed
from xlakit.cpu.llvm import I8, I64, PTR, VOID, Effort, Function, Module, Type, Value
from xlakit.cpu.llvm.loop import AS_WRITTEN
from xlakit.cpu.llvm.promises import CONTRACTS
from xlakit.cpu.scalars.complex_arithmetic import plain_product


class FourStep:
    """Writes passes over columns and rows: ``void(ptr source, ptr target, i64 begin, i64 end)``, for some chunks."""

    def __init__(self, module: Module, part: Type, a: int, b: int) -> None:
        # The memory is for a * b points; lengths without butterflies (Bluestein) would need more.
        require(f"a four-step transform of {a} and {b}", [("both have butterflies", is_smooth(a) and is_smooth(b))])
        self._module = module
        self._part = part
        self._a, self._b = a, b
        self._lanes = lane_count(part)
        self.column_chunks = -(-b // self._lanes)
        self.row_chunks = -(-a // self._lanes)
        # The bytes of the points between the two passes, in whole vectors.
        self.bytes = max(a * self.column_chunks * self._lanes, a * b) * 2 * part.bytes

    def _begin(self, name: str) -> tuple[Function, *tuple[Value, ...]]:
        fn, *parameters = self._module.begin(name, VOID, [PTR, PTR, I64, I64])
        fn.fast_math, fn.effort = CONTRACTS, Effort.CODE
        return fn, *parameters

    def columns(self, swaps: bool) -> Function:
        """The pass that transforms the columns, and multiplies them with the roots."""
        module, part, lanes, n = self._module, self._part, self._lanes, self._a * self._b
        transform = lane_transform(module, part, self._a)
        fn, source, target, begin, end = self._begin("fft_columns")
        moves, tables = Moves(fn, part), Tables(fn, part)
        # The root of row i and column j is the root of the group's first column times that of the lane.
        near = tables.planes(f"lanes.{n}.{self._a}", roots(np.outer(np.arange(self._a), np.arange(lanes)), n), lanes)
        far = LongRoots(tables, fn, part, n, lanes, self._a * self.column_chunks)
        size = self._a * 2 * moves.type.bytes
        memory = acquire(fn, 2 * size)
        other = fn.at(memory, I8, size)
        with fn.loop(begin, end, hints=AS_WRITTEN) as chunks:
            first = chunks.index * lanes
            count = (fn.i64(self._b) - first).umin(lanes)
            count = fn.i64(lanes) if self._b % lanes == 0 else count
            moves.load_columns(fn.at(source, part, first * 2), self._b, count, memory, self._a, swaps)
            fn.call(transform, VOID, memory, other)
            transformed = other if is_moved(self._a) else memory
            with fn.loop(0, self._a, hints=AS_WRITTEN) as rows:
                real, imag = far.at(rows.index * chunks.index)
                root = fn.splat(real, lanes), fn.splat(imag, lanes)
                root = plain_product(load_point(fn, moves.type, near, rows.index), root)
                point = plain_product(load_point(fn, moves.type, transformed, rows.index), root)
                store_point(fn, point, target, rows.index * self.column_chunks + chunks.index)
        release(fn, memory)
        return fn

    def rows(self, swaps: bool, scale: float) -> Function:
        """The pass that transforms the rows; point j of row i becomes point i + a * j of the result."""
        module, part, lanes = self._module, self._part, self._lanes
        transform = lane_transform(module, part, self._b)
        fn, source, target, begin, end = self._begin("fft_rows")
        moves = Moves(fn, part)
        size = self.column_chunks * lanes * 2 * moves.type.bytes
        memory = acquire(fn, 2 * size)
        other = fn.at(memory, I8, size)
        with fn.loop(begin, end, hints=AS_WRITTEN) as chunks:
            first = chunks.index * lanes
            self._load(fn, moves, source, first, memory)
            fn.call(transform, VOID, memory, other)
            transformed = other if is_moved(self._b) else memory
            count = (fn.i64(self._a) - first).umin(lanes)
            count = fn.i64(lanes) if self._a % lanes == 0 else count
            moves.store_columns(transformed, fn.at(target, part, first * 2), self._a, count, self._b, scale, swaps)
        release(fn, memory)
        return fn

    def _load(self, fn: Function, moves: Moves, source: Value, first: Value, memory: Value) -> None:
        """Load the rows of a group, transposed."""
        width = self.column_chunks * 2 * self._lanes
        rows = Rows(source, first, width, self._a).pointers(fn, self._part)
        with fn.loop(0, self.column_chunks, hints=AS_WRITTEN) as loop:
            for side in (0, 1):
                addresses = (fn.at(row, moves.type, loop.index * 2 + side) for row in rows)
                for lane, vector in enumerate(transposed(fn, [fn.load(moves.type, address) for address in addresses])):
                    position = (loop.index * self._lanes + lane) * 2 + side
                    fn.store(vector, fn.at(memory, moves.type, position))
