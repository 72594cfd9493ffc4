"""Convolutions in groups, whose lines threads copy group by group; groups of few features share vector registers.

The groups whose features fill a register together are one product (``interleaved`` in gemm/product.py): lanes alternate
between them, and the micro-kernel broadcasts one input element of each group at a time. So threads copy the lines that
they read with these elements side by side.

    input, 2 groups of 4 features:  a0 a1 a2 a3 b0 b1 b2 b3       lines:  a0 b0 a1 b1 a2 b2 a3 b3
"""

from __future__ import annotations

import math

from xlakit.cpu.kernels.conv.geometry import Geometry
from xlakit.cpu.kernels.conv.pad import Padded, source_line
from xlakit.cpu.kernels.gemm.engine import Engine, stored_as_packed
from xlakit.cpu.kernels.gemm.operands import Direction
from xlakit.cpu.kernels.gemm.store import is_stored_by_tiles
from xlakit.cpu.kernels.shared.shuffles import interleaved
from xlakit.cpu.llvm import I64, PTR, VOID, Function, Module, Value, vector
from xlakit.cpu.llvm.loop import AS_WRITTEN
from xlakit.cpu.scalars.memory import memory_type
from xlakit.dataclass import dataclass
from xlakit.options import knob
from xlakit.target import vector_bytes

# The most vectors of the features of a group that are copied without a loop.
_MOST_VECTORS = 8
# Fewer products for each element of the input do not pay for its copy.
_LEAST_PRODUCTS = knob("convolution_grouped.least_products", 16, 1, 1 << 20, tries=(1, 1 << 20))


def groups_of_register(geometry: Geometry, engine: Engine) -> int:
    """The number of groups of features that fill a register, 1 if one group does; 0 where they do not."""
    groups, inputs, features = geometry.groups, geometry.inputs, geometry.features
    kind, of_kernel, of_result = geometry.kinds
    if (
        groups.size == 1
        or len(geometry.phases) != 1
        or engine.group > 1
        or engine.parts > 1
        or not stored_as_packed(engine, kind)
        or not stored_as_packed(engine, of_kernel)
        or not is_stored_by_tiles(engine, of_result, Direction(((1, 1),)), local=False)
        # Features are side by side, and those of the next group follow.
        or (inputs.input, features.output) != (1, 1)
        or groups.input != inputs.size
        or features.size < 1
    ):
        return 0
    if features.size % engine.lanes == 0:
        return 1
    count = engine.lanes // features.size
    if engine.lanes % features.size or groups.size % count:
        return 0
    products = math.prod(axis.taps for axis in geometry.phases[0]) * features.size
    return count if products >= _LEAST_PRODUCTS.value else 0


@dataclass(frozen=True, slots=True)
class GroupLines:
    """Writes the lines of a copy of some groups, with the elements of these groups side by side; see gemm/product.py.

    padded: the copy of all groups, in as many parts as are copied each for itself. interleaved: the groups of a part.
    """

    padded: Padded
    interleaved: int

    def emit_lines(self, module: Module) -> Function:
        """Write the function that copies a range of lines."""
        padded = self.padded
        fn = module.function("convolution_group_lines", VOID, [PTR, PTR, I64, I64])
        source, target, begin, end = fn.parameters
        each = math.prod(padded.padded[2:-2])
        with fn.loop(begin * each, end * each, hints=AS_WRITTEN) as line:
            self._write_line(fn, source, target, line.index)
        return fn

    def _write_line(self, fn: Function, source: Value, into: Value, line: Value) -> None:
        """Write a line along the last spatial dimension; one that is entirely padding is all zeros."""
        padded, type = self.padded, memory_type(self.padded.kind)
        every = padded.sizes[-1]
        row = every // padded.groups
        length, low, high, size = (dims[-2] for dims in (padded.padded, padded.low, padded.high, padded.sizes))
        start = fn.at(into, type, line * (length * row))
        inside, offset = source_line(fn, padded, line, len(padded.sizes) - 2)
        with fn.if_(~inside):
            fn.fill(start, 0, length * row * type.bytes)
        with fn.if_(inside):
            if low:
                fn.fill(start, 0, low * row * type.bytes)
            if high:
                fn.fill(fn.at(start, type, (low + size) * row), 0, high * row * type.bytes)
            begin = fn.at(source, type, offset * every)
            with fn.loop(0, size, independent=True, hints=AS_WRITTEN) as element:
                read, written = (
                    fn.at(begin, type, element.index * every),
                    fn.at(start, type, (element.index + low) * row),
                )
                self._write_row(fn, read, written, row)

    def _write_row(self, fn: Function, source: Value, target: Value, row: int) -> None:
        """Write the features of all groups at one place."""
        type, count = memory_type(self.padded.kind), self.interleaved
        if count == 1:
            fn.copy(target, source, row * type.bytes)
            return
        features = row // count
        # Vectors of the largest power of two that divides the features, of which all groups' fit two registers.
        lanes = max(1, min(features & -features, 2 * vector_bytes() // type.bytes // count))
        if features > _MOST_VECTORS * lanes:
            with fn.loop(0, features, lanes, hints=AS_WRITTEN) as first:
                self._write_vectors(fn, source, target, first.index, (features, lanes))
            return
        for first in range(0, features, lanes):
            self._write_vectors(fn, source, target, fn.i64(first), (features, lanes))

    def _write_vectors(self, fn: Function, source: Value, target: Value, first: Value, sizes: tuple[int, int]) -> None:
        """Write some features, from ``first`` on, of all groups; sizes: the features of a group, and how many."""
        type, count = memory_type(self.padded.kind), self.interleaved
        features, lanes = sizes
        parts = [
            fn.load(vector(type, lanes), fn.at(source, type, first + group * features), align=type.bytes)
            for group in range(count)
        ]
        mixed = [interleaved(fn, parts)] if lanes > 1 else parts
        for number, value in enumerate(mixed):
            fn.store(value, fn.at(target, type, first * count + number), align=type.bytes)
