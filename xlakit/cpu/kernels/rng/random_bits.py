"""rng-bit-generator: Threefry2x32 and Philox4x32, for many counters at once.

``xlakit.ops.shared.random_bits`` defines the order in which the words of a block fill an array.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from xlakit.cpu.kernels.rng import random_words
from xlakit.cpu.kernels.rng.random_words import Words, counters, joined, lane_count, philox, threefry
from xlakit.cpu.kernels.shared.preconditions import require
from xlakit.cpu.kernels.shared.shuffles import interleaved
from xlakit.cpu.llvm import I64, Function, Module, Value, integer, vector
from xlakit.cpu.llvm.loop import NO_UNROLL
from xlakit.cpu.loops.emit.kernel import Kernel, Phase, kernel_function
from xlakit.data.primitive import PrimitiveType
from xlakit.dataclass import dataclass
from xlakit.ir.enums import RandomAlgorithm
from xlakit.ir.instruction import Instruction
from xlakit.ops.random import RngBitGenerator
from xlakit.options import knob, times
from xlakit.passes.analysis.cost_model import cost_model

# The number of counters of a task.
_TASK = knob("random_bits.task", 8192, 64, tries=(times(0.25), times(4)))
# The least number of adjacent blocks for which a row has a loop of its own; shorter rows are computed in blocks of
# _BLOCK counters.
_LONG_ROW = knob("random_bits.long_row", 64, 1, 1000)
_BLOCK = knob("random_bits.block", 512, 64)


def emit_random_bits(module: Module, instruction: Instruction) -> Kernel:
    """The kernel of an rng-bit-generator; its table has the state, the new state (if it is a result), and the bits."""
    op, shape = instruction.op_as(RngBitGenerator), instruction.shape
    data = shape.tuple_shapes[1] if shape.is_tuple else shape
    words = instruction.operands[0].shape.dimensions[0]
    layout = _layout(op.algorithm, data.element_type, data.dimensions)
    writer = _Writer(module, op.algorithm, data.element_type, layout, words, 2 if shape.is_tuple else 1)
    phases: list[Phase] = []
    if layout.blocks:
        phases.append(writer.emit_bits())
    if shape.is_tuple:
        phases.append(writer.emit_state())
    return Kernel(tuple(phases))


@dataclass(frozen=True, slots=True)
class _Layout:
    """The positions of blocks: ``outer`` x ``size`` x ``inner`` elements; a block has two adjacent along ``size``.

    If ``inner`` is 0, the words of a block are adjacent in memory.
    """

    blocks: int
    total: int
    outer: int = 1
    size: int = 0
    inner: int = 0

    @property
    def is_flat(self) -> bool:
        """Whether the words of all blocks follow one another in memory."""
        return self.inner == 0

    @property
    def row_pairs(self) -> int:
        """The number of blocks along ``size``."""
        return (self.size + 1) // 2


def _layout(algorithm: RandomAlgorithm, kind: PrimitiveType, dimensions: Sequence[int]) -> _Layout:
    total = math.prod(dimensions)
    if algorithm is not RandomAlgorithm.RNG_THREE_FRY:
        per_block = 2 if kind.bit_width == 64 else 4
        return _Layout(-(-total // per_block), total)
    if kind.bit_width == 64:
        return _Layout(total, total)
    if not dimensions:
        return _Layout(1, 1)
    even = [d for d, size in enumerate(dimensions) if size % 2 == 0]
    split = even[0] if even else list(dimensions).index(max(dimensions))
    size, outer = dimensions[split], math.prod(dimensions[:split])
    inner = math.prod(dimensions[split + 1 :])
    blocks = outer * ((size + 1) // 2) * inner
    if inner == 1 and (size % 2 == 0 or outer == 1):
        return _Layout(blocks, total)
    return _Layout(blocks, total, outer, size, inner)


class _Writer:
    """Writes the functions of one kernel."""

    def __init__(
        self,
        module: Module,
        algorithm: RandomAlgorithm,
        kind: PrimitiveType,
        layout: _Layout,
        words: int,
        results: int,
    ) -> None:
        self.module = module
        self.is_threefry = algorithm is RandomAlgorithm.RNG_THREE_FRY
        self.kind = kind
        self.layout = layout
        self.words = words
        self.results = results
        self.type = integer(max(8, kind.bit_width))
        self.lanes = lane_count()
        # Tasks and buffers of _BLOCK blocks are written in whole vectors.
        fits = _TASK.value % self.lanes == _BLOCK.value % self.lanes == 0
        require("random bits", [("a task is whole vectors", fits)])
        self._spare_buffer: Value | None = None

    # -- phases ----------------------------------------------------------------------------------

    def emit_bits(self) -> Phase:
        """The phase that writes the random bits."""
        fn, table, begin, end = kernel_function(self.module, "random_bits")
        state, bits = (fn.pointer(table, n) for n in (0, self.results))
        words = threefry(fn, state) if self.is_threefry else philox(fn, state, self.words)
        if self.layout.is_flat:
            tasks = self._flat(fn, bits, words, begin, end)
        elif self.layout.inner >= _LONG_ROW.value:
            tasks = self._rows(fn, bits, words, begin, end)
        else:
            tasks = self._short_rows(fn, bits, words, begin, end)
        each = random_words.THREEFRY_CYCLES if self.is_threefry else random_words.PHILOX_CYCLES
        cost = cost_model().cycles(self.layout.blocks * each)
        return Phase(fn.name, tasks, cost)

    def emit_state(self) -> Phase:
        """The phase that writes the new state; words that the algorithm does not use stay unchanged."""
        fn, table, *_ = kernel_function(self.module, "random_state")
        before, after = (fn.pointer(table, n) for n in (0, 1))
        state = [fn.load(I64, fn.at(before, I64, n)) for n in range(self.words)]
        low = state[1]
        state[1] = low + self.layout.blocks
        if not self.is_threefry and self.words > 2:
            state[2] = state[2] + state[1].compare("ult", low).cast("zext", I64)
        for number, word in enumerate(state):
            fn.store(word, fn.at(after, I64, number))
        return Phase(fn.name, 1, cost_model().cycles(20.0))

    # -- the order of elements -------------------------------------------------------------------

    def _flat(self, fn: Function, bits: Value, words: Words, begin: Value, end: Value) -> int:
        """Write blocks that follow one another; the last one may be partial."""
        layout = self.layout
        per_block = (2 if self.is_threefry else 4) // (2 if self.kind.bit_width == 64 else 1)
        step = self.lanes * per_block
        with fn.loop(begin, end) as task:
            first = task.index * _TASK.value
            last = (first + _TASK.value).umin(layout.blocks)
            with fn.loop(first, last, self.lanes, hints=NO_UNROLL) as loop:
                elements = interleaved(fn, self._elements(words(counters(fn, loop.index))))
                position = loop.index * per_block
                count = (fn.i64(layout.total) - position).umin(step)
                self._store(fn, elements, fn.at(bits, self.type, position), count)
        return -(-layout.blocks // _TASK.value)

    def _rows(self, fn: Function, bits: Value, words: Words, begin: Value, end: Value) -> int:
        """Write rows: each row of ``inner`` blocks fills two rows of elements."""
        layout = self.layout
        chunks = -(-layout.inner // _TASK.value)
        with fn.loop(begin, end) as task:
            row, chunk = task.index.integer("udiv", chunks), task.index.integer("urem", chunks)
            target, has_second = self._row(fn, bits, row)
            low = chunk * _TASK.value
            high = (low + _TASK.value).umin(layout.inner)
            base = row * layout.inner
            with fn.loop(low, high, self.lanes, hints=NO_UNROLL) as loop:
                first, second = self._elements(words(counters(fn, base + loop.index)))
                count = (high - loop.index).umin(self.lanes)
                self._store(fn, first, fn.at(target, self.type, loop.index), count)
                with fn.if_(has_second):
                    self._store(fn, second, fn.at(target, self.type, loop.index + layout.inner), count)
        return layout.outer * layout.row_pairs * chunks

    def _short_rows(self, fn: Function, bits: Value, words: Words, begin: Value, end: Value) -> int:
        """Compute many blocks in vectors, across rows, and store their elements one by one."""
        layout = self.layout
        blocks = [fn.alloca(self.type, _BLOCK.value, align=64) for _ in range(2)]
        with fn.loop(begin, end) as task:
            first = task.index * _BLOCK.value
            count = (fn.i64(layout.blocks) - first).umin(_BLOCK.value)
            with fn.loop(0, count, self.lanes, hints=NO_UNROLL) as loop:
                elements = self._elements(words(counters(fn, first + loop.index)))
                for element, block in zip(elements, blocks, strict=True):
                    fn.store(element, fn.at(block, self.type, loop.index))
            with fn.loop(0, count, hints=NO_UNROLL) as loop:
                number = first + loop.index
                row, position = number.integer("udiv", layout.inner), number.integer("urem", layout.inner)
                target, has_second = self._row(fn, bits, row)
                one, two = (fn.load(self.type, fn.at(block, self.type, loop.index)) for block in blocks)
                fn.store(one, fn.at(target, self.type, position))
                with fn.if_(has_second):
                    fn.store(two, fn.at(target, self.type, position + layout.inner))
        return -(-layout.blocks // _BLOCK.value)

    def _row(self, fn: Function, bits: Value, row: Value) -> tuple[Value, Value]:
        """The address of the first elements of a row of blocks, and whether there are second elements."""
        layout = self.layout
        outer = row.integer("udiv", layout.row_pairs)
        first = row.integer("urem", layout.row_pairs) * 2
        position = (outer * layout.size + first) * layout.inner
        return fn.at(bits, self.type, position), (first + 1) < layout.size

    # -- elements --------------------------------------------------------------------------------

    def _store(self, fn: Function, elements: Value, target: Value, count: Value) -> None:
        """Store the first ``count`` lanes."""

        def part() -> None:
            fn.store(elements, self._spare(fn, elements))
            fn.copy(target, self._spare(fn, elements), count * self.type.bytes)

        fn.if_else(count.eq(elements.type.lanes), lambda: fn.store(elements, target), part)

    def _spare(self, fn: Function, elements: Value) -> Value:
        if self._spare_buffer is None:
            self._spare_buffer = fn.alloca(elements.type, align=64)
        return self._spare_buffer

    def _elements(self, words: Sequence[Value]) -> list[Value]:
        """The elements of a block, in their stored form."""
        if self.kind.bit_width == 64:
            return joined(words)
        elements = [word.cast("trunc", vector(self.type, self.lanes)) for word in words]
        if self.kind.bit_width >= 8:
            return elements
        spare = 8 - self.kind.bit_width
        down = "ashr" if self.kind.is_integral and self.kind.is_signed else "lshr"
        return [(element << spare).integer(down, spare) for element in elements]
