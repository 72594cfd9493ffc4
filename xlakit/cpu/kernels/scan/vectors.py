"""Running totals of one sequence in vector registers: within a vector, then across vectors, blocks and chunks.

The total before a vector is combined from three: of the chunks before its chunk, of the blocks before its block in the
chunk, and of the vectors before it in the block. So no total is a long chain, which would be slow and lose precision.
"""

from __future__ import annotations

from xlakit.cpu.kernels.scatter.plan import neutral
from xlakit.cpu.llvm import Function, Value, vector
from xlakit.cpu.llvm.loop import AS_WRITTEN
from xlakit.cpu.scalars import register_type
from xlakit.cpu.scalars.memory import memory_type
from xlakit.cpu.scalars.real import BINARY
from xlakit.data.primitive import PrimitiveType
from xlakit.dataclass import dataclass
from xlakit.ir.instruction import Computation
from xlakit.ir.operation import Op
from xlakit.ops.elementwise.binary import Add, Maximum, Minimum, Multiply
from xlakit.ops.reduction import applied_op
from xlakit.options import knob
from xlakit.target import vector_bytes

# The vectors of a block, and the most blocks of a chunk.
_VECTORS = 8
_BLOCKS = knob("prefix_sum_vectors.blocks", 16, 1)
# Shuffles within this many bytes are fast.
_NEAR_BYTES = 16
_ARITHMETIC = (Add, Multiply, Maximum, Minimum)


@dataclass(frozen=True, slots=True)
class RunningTotals:
    """An operation and a direction. If it is reversed, element n of the sequence is the n-th from the end of memory."""

    op: Op
    kind: PrimitiveType
    start: float
    reverse: bool

    @property
    def lanes(self) -> int:
        """The number of elements of a vector."""
        return vector_bytes() // register_type(self.kind).bytes

    @property
    def block(self) -> int:
        """The number of elements of a block."""
        return self.lanes * _VECTORS

    def write(
        self, fn: Function, arrays: tuple[Value, Value], length: int, span: tuple[Value, Value], before: Value
    ) -> Value:
        """Write the running totals of whole blocks after the total ``before``; gives the total after them.

        arrays: the addresses of the sequence of ``length`` elements and of its results. span: the range of positions.
        """
        type = vector(register_type(self.kind), self.lanes)
        most = self.block * _BLOCKS.value
        with fn.loop(*span, most, carried=[fn.splat(before, self.lanes)], hints=AS_WRITTEN) as chunk:
            nothing = fn.constant(type, self.start)
            size = (span[1] - chunk.index).smin(most)
            with fn.loop(0, size, self.block, carried=[nothing], hints=AS_WRITTEN) as block:
                first = chunk.index + block.index
                block_total = self._block(
                    fn, arrays, length, first, self._after(fn, chunk.carried[0], block.carried[0])
                )
                block.next(self._after(fn, block.carried[0], block_total))
            chunk.next(self._after(fn, chunk.carried[0], block.results[0]))
        return fn.lane(chunk.results[0], 0)

    def _after(self, fn: Function, before: Value, value: Value) -> Value:
        return BINARY[self.op.opcode](fn, self.kind, before, value)

    def _block(self, fn: Function, arrays: tuple[Value, Value], length: int, first: Value, before: Value) -> Value:
        """Write the results of a block; gives the total of the block alone, in all lanes."""
        lanes, type = self.lanes, register_type(self.kind)
        positions = [first + n * lanes for n in range(_VECTORS)]
        if self.reverse:
            positions = [fn.i64(length - lanes) - position for position in positions]
        running = fn.constant(vector(type, lanes), self.start)
        for start in positions:
            read = fn.load(vector(type, lanes), fn.at(arrays[0], type, start), align=type.bytes)
            totals = self._within(fn, self._in_order(fn, read))
            value = self._after(fn, running, totals)
            running = self._after(fn, running, fn.shuffle(totals, totals, [lanes - 1] * lanes))
            result = self._in_order(fn, self._after(fn, before, value))
            fn.store(result, fn.at(arrays[1], type, start), align=type.bytes)
        return running

    def _in_order(self, fn: Function, value: Value) -> Value:
        """The lanes in the order of the scan."""
        return fn.shuffle(value, value, range(self.lanes - 1, -1, -1)) if self.reverse else value

    def _within(self, fn: Function, value: Value) -> Value:
        """The running totals of a vector's lanes."""
        lanes = self.lanes
        nothing = fn.constant(value.type, self.start)
        near = min(lanes, _NEAR_BYTES // value.type.element.bytes)
        distance = 1
        while distance < near:
            before = [n - distance if n % near >= distance else lanes for n in range(lanes)]
            value = self._after(fn, fn.shuffle(value, nothing, before), value)
            distance *= 2
        while distance < lanes:
            # For each second run of lanes, the last lane of the run before.
            before = [n // distance * distance - 1 if n // distance % 2 else lanes for n in range(lanes)]
            value = self._after(fn, fn.shuffle(value, nothing, before), value)
            distance *= 2
        return value


def running_totals(computation: Computation, kind: PrimitiveType, *, reverse: bool) -> RunningTotals | None:
    """Running totals in registers; None if the operation or the element type does not support them."""
    op = applied_op(computation)
    if not isinstance(op, _ARITHMETIC) or kind.is_complex or kind is PrimitiveType.PRED:
        return None
    type = register_type(kind)
    if memory_type(kind) is not type or kind.bit_width != type.bits or vector_bytes() // type.bytes < 2:
        return None
    start = neutral(computation, kind)
    return None if start is None else RunningTotals(op, kind, start, reverse)
