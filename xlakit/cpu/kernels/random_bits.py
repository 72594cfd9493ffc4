"""rng-bit-generator: Threefry2x32 and Philox4x32, many counters at once.

Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011); ``xlakit.ops.shared.random_bits`` tells
in which order the words of a block fill an array.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from xlakit.cpu.kernels.gemm_engine import vector_bytes
from xlakit.cpu.llvm import I32, I64, PTR, VOID, Function, Module, Value, integer, vector
from xlakit.cpu.loops.kernel import Emitted, Phase
from xlakit.data.primitive import PrimitiveType
from xlakit.ir.enums import RandomAlgorithm
from xlakit.ir.instruction import Instruction
from xlakit.ops.random import RngBitGenerator

# How many counters a task takes.
_TASK = 8192
# From so many neighbours on a row is worth a loop of its own; shorter ones go through a block of so many counters.
_LONG_ROW = 64
_BLOCK = 512
# Nanoseconds for a block of two (four) words.
_THREEFRY_COST, _PHILOX_COST = 1.5, 3.0

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
_NO_UNROLL = ('"llvm.loop.unroll.disable"',)

# Gives the 32-bit words of blocks, a vector for the first of each, the second of each.., given their numbers.
_Words = Callable[[Value], Sequence[Value]]


def emit_random_bits(module: Module, instruction: Instruction) -> Emitted:
    """The kernel of an rng-bit-generator; its table is the state, the state after (if it is given), and the bits."""
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
    return tuple(phases), {}, 0


@dataclass(frozen=True, slots=True)
class _Layout:
    """Where blocks go: ``outer`` times ``size`` times ``inner`` elements, two neighbours along ``size`` to a block.

    Without ``inner`` the words of a block are neighbours in memory.
    """

    blocks: int
    total: int
    outer: int = 1
    size: int = 0
    inner: int = 0

    @property
    def is_flat(self) -> bool:
        """Whether all words of all blocks follow one another."""
        return self.inner == 0

    @property
    def row_pairs(self) -> int:
        """How many blocks stand along ``size``."""
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
        # Twice as many words as a vector register holds: the rounds wait for one another.
        self.lanes = 2 * vector_bytes() // 4
        self._spare_place: Value | None = None

    # -- phases ----------------------------------------------------------------------------------

    def emit_bits(self) -> Phase:
        """The random bits."""
        fn = self.module.function("random_bits", VOID, [PTR, I64, I64])
        table, begin, end = fn.parameters
        state, bits = (fn.load(PTR, fn.at(table, PTR, n), invariant=True) for n in (0, self.results))
        words = self._threefry(fn, state) if self.is_threefry else self._philox(fn, state)
        if self.layout.is_flat:
            tasks = self._flat(fn, bits, words, begin, end)
        elif self.layout.inner >= _LONG_ROW:
            tasks = self._rows(fn, bits, words, begin, end)
        else:
            tasks = self._scattered(fn, bits, words, begin, end)
        fn.ret()
        cost = self.layout.blocks * (_THREEFRY_COST if self.is_threefry else _PHILOX_COST)
        return Phase(fn.name, tasks, cost)

    def emit_state(self) -> Phase:
        """The state after use; words that the algorithm has no use for stay as they are."""
        fn = self.module.function("random_state", VOID, [PTR, I64, I64])
        table = fn.parameters[0]
        before, after = (fn.load(PTR, fn.at(table, PTR, n), invariant=True) for n in (0, 1))
        state = [fn.load(I64, fn.at(before, I64, n)) for n in range(self.words)]
        low = state[1]
        state[1] = low + self.layout.blocks
        if not self.is_threefry and self.words > 2:
            state[2] = state[2] + state[1].compare("ult", low).cast("zext", I64)
        for number, word in enumerate(state):
            fn.store(word, fn.at(after, I64, number))
        fn.ret()
        return Phase(fn.name, 1, 5.0)

    # -- the order of elements -------------------------------------------------------------------

    def _flat(self, fn: Function, bits: Value, words: _Words, begin: Value, end: Value) -> int:
        """Blocks follow one another, the last one perhaps in part."""
        layout = self.layout
        per_block = (2 if self.is_threefry else 4) // (2 if self.kind.bit_width == 64 else 1)
        step = self.lanes * per_block
        with fn.loop(begin, end) as task:
            first = task.index * _TASK
            last = fn.intrinsic("llvm.umin", I64, first + _TASK, fn.i64(layout.blocks))
            with fn.loop(first, last, self.lanes, hints=_NO_UNROLL) as loop:
                elements = self._interleaved(fn, self._elements(fn, words(self._counters(fn, loop.index))))
                place = loop.index * per_block
                count = fn.intrinsic("llvm.umin", I64, fn.i64(layout.total) - place, fn.i64(step))
                self._store(fn, elements, fn.at(bits, self.type, place), count)
        return -(-layout.blocks // _TASK)

    def _rows(self, fn: Function, bits: Value, words: _Words, begin: Value, end: Value) -> int:
        """Each row of ``inner`` blocks fills two rows of elements."""
        layout = self.layout
        chunks = -(-layout.inner // _TASK)
        with fn.loop(begin, end) as task:
            row, chunk = task.index.integer("udiv", chunks), task.index.integer("urem", chunks)
            target, has_second = self._row(fn, bits, row)
            low = chunk * _TASK
            high = fn.intrinsic("llvm.umin", I64, low + _TASK, fn.i64(layout.inner))
            base = row * layout.inner
            with fn.loop(low, high, self.lanes, hints=_NO_UNROLL) as loop:
                first, second = self._elements(fn, words(self._counters(fn, base + loop.index)))
                count = fn.intrinsic("llvm.umin", I64, high - loop.index, fn.i64(self.lanes))
                self._store(fn, first, fn.at(target, self.type, loop.index), count)
                with fn.if_(has_second):
                    self._store(fn, second, fn.at(target, self.type, loop.index + layout.inner), count)
        return layout.outer * layout.row_pairs * chunks

    def _scattered(self, fn: Function, bits: Value, words: _Words, begin: Value, end: Value) -> int:
        """Rows are short: a number of blocks is computed, and then each is put in its place."""
        layout = self.layout
        blocks = [fn.alloca(self.type, _BLOCK, align=64) for _ in range(2)]
        with fn.loop(begin, end) as task:
            first = task.index * _BLOCK
            count = fn.intrinsic("llvm.umin", I64, fn.i64(layout.blocks) - first, fn.i64(_BLOCK))
            with fn.loop(0, count, self.lanes, hints=_NO_UNROLL) as loop:
                elements = self._elements(fn, words(self._counters(fn, first + loop.index)))
                for element, block in zip(elements, blocks, strict=True):
                    fn.store(element, fn.at(block, self.type, loop.index))
            with fn.loop(0, count, hints=_NO_UNROLL) as loop:
                number = first + loop.index
                row, place = number.integer("udiv", layout.inner), number.integer("urem", layout.inner)
                target, has_second = self._row(fn, bits, row)
                one, two = (fn.load(self.type, fn.at(block, self.type, loop.index)) for block in blocks)
                fn.store(one, fn.at(target, self.type, place))
                with fn.if_(has_second):
                    fn.store(two, fn.at(target, self.type, place + layout.inner))
        return -(-layout.blocks // _BLOCK)

    def _row(self, fn: Function, bits: Value, row: Value) -> tuple[Value, Value]:
        """Where the first elements of a row of blocks go, and whether there are second ones."""
        layout = self.layout
        outer = row.integer("udiv", layout.row_pairs)
        first = row.integer("urem", layout.row_pairs) * 2
        place = (outer * layout.size + first) * layout.inner
        return fn.at(bits, self.type, place), (first + 1) < layout.size

    # -- elements --------------------------------------------------------------------------------

    def _counters(self, fn: Function, first: Value) -> Value:
        """The numbers of as many blocks as are computed at once."""
        steps = fn.undefined(vector(I64, self.lanes))
        for lane in range(self.lanes):
            steps = fn.with_lane(steps, lane, fn.i64(lane))
        return fn.splat(first, self.lanes) + steps

    def _interleaved(self, fn: Function, elements: Sequence[Value]) -> Value:
        """The elements of all blocks in order, those of a block one after the other."""
        while len(elements) > 1:
            half = len(elements) // 2
            order = [lane + side * elements[0].type.lanes for lane in range(elements[0].type.lanes) for side in (0, 1)]
            elements = [fn.shuffle(elements[i], elements[i + half], order) for i in range(half)]
        return elements[0]

    def _store(self, fn: Function, elements: Value, target: Value, count: Value) -> None:
        """Store the first ``count`` lanes."""

        def whole() -> Sequence[Value]:
            fn.store(elements, target)
            return ()

        def part() -> Sequence[Value]:
            fn.store(elements, self._spare(fn, elements))
            fn.copy(target, self._spare(fn, elements), count * self.type.bytes)
            return ()

        fn.if_else(count.eq(elements.type.lanes), whole, part)

    def _spare(self, fn: Function, elements: Value) -> Value:
        if self._spare_place is None:
            self._spare_place = fn.alloca(elements.type, align=64)
        return self._spare_place

    def _elements(self, fn: Function, words: Sequence[Value]) -> list[Value]:
        """The elements of a block, as they are stored."""
        if self.kind.bit_width == 64:
            pairs = zip(words[::2], words[1::2], strict=True)
            wide = vector(I64, self.lanes)
            return [low.cast("zext", wide) | (high.cast("zext", wide) << 32) for low, high in pairs]
        elements = [word.cast("trunc", vector(self.type, self.lanes)) for word in words]
        if self.kind.bit_width >= 8:
            return elements
        spare = 8 - self.kind.bit_width
        down = "ashr" if self.kind.is_integral and self.kind.is_signed else "lshr"
        return [(element << spare).integer(down, spare) for element in elements]

    # -- the algorithms --------------------------------------------------------------------------

    def _threefry(self, fn: Function, state: Value) -> _Words:
        """The two words of each block."""
        key, counter = (fn.splat(fn.load(I64, fn.at(state, I64, n)), self.lanes) for n in (0, 1))
        first, second = _halves(key)
        schedule = (first, second, first ^ second ^ _PARITY)

        def words(numbers: Value) -> Sequence[Value]:
            low, high = _halves(counter + numbers)
            x, y = low + schedule[0], high + schedule[1]
            for group in range(5):
                for distance in _ROTATIONS[group % 2]:
                    x = x + y
                    y = x ^ fn.intrinsic("llvm.fshl", y.type, y, y, fn.constant(y.type, distance))
                x = x + schedule[(group + 1) % 3]
                y = y + (schedule[(group + 2) % 3] + (group + 1))
            return x, y

        return words

    def _philox(self, fn: Function, state: Value) -> _Words:
        """The four words of each block."""
        key, low = (fn.splat(fn.load(I64, fn.at(state, I64, n)), self.lanes) for n in (0, 1))
        # The counter of the short state has the key as its upper half.
        high = fn.splat(fn.load(I64, fn.at(state, I64, 2)), self.lanes) if self.words > 2 else key
        keys = [
            [(half + number * step % 2**32).cast("zext", low.type) for number in range(10)]
            for half, step in zip(_halves(key), _KEY_STEPS, strict=True)
        ]

        def words(numbers: Value) -> Sequence[Value]:
            counter = low + numbers
            upper = high + counter.compare("ult", low).cast("zext", low.type)
            # Words stay in the lower halves of 64 bits, where products are taken.
            a, b, c, d = (part for both in (counter, upper) for part in (both & 0xFFFFFFFF, both >> 32))
            for first, second in zip(*keys, strict=True):
                left, right = a * _MULTIPLIERS[0], c * _MULTIPLIERS[1]
                a, b = (right >> 32) ^ b ^ first, right & 0xFFFFFFFF
                c, d = (left >> 32) ^ d ^ second, left & 0xFFFFFFFF
            return [_halves(word)[0] for word in (a, b, c, d)]

        return words


def _halves(words: Value) -> tuple[Value, Value]:
    half = words.type.with_element(I32)
    return words.cast("trunc", half), (words >> 32).cast("trunc", half)
