"""The operations and bytes of a program, counted over its instructions by the conventions of XLA's cost analysis.

An element-wise operation is one flop for each element of its result, an elementary function one transcendental; a
product is a multiplication and an addition for each pair of elements that are multiplied. Each instruction reads its
operands and writes its result; a fusion keeps its intermediate values in registers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import field

from xlakit.data.shape import Shape
from xlakit.dataclass import dataclass
from xlakit.ir.attributes import WindowDimension
from xlakit.ir.def_use import users_of
from xlakit.ir.instruction import Computation, HloModule, Instruction
from xlakit.ir.operation import Op
from xlakit.ir.traits import Forwarding, Transcendental
from xlakit.ops.communication.asynchronous import Async
from xlakit.ops.communication.collectives import DeviceNumber
from xlakit.ops.control import Call, Conditional, Fusion, Scan, While
from xlakit.ops.convolution import Convolution
from xlakit.ops.data import AfterAll, Constant, Copy, ElidedConstant, Parameter
from xlakit.ops.dot import Contraction
from xlakit.ops.dynamic import DynamicSlice, DynamicUpdateSlice
from xlakit.ops.fft import Fft
from xlakit.ops.gather import Gather
from xlakit.ops.linear_algebra import TriangularSolve
from xlakit.ops.movement import Slice
from xlakit.ops.random import Rng, RngBitGenerator
from xlakit.ops.reduction import Reduce
from xlakit.ops.scatter import Scatter
from xlakit.ops.shared.nibbles import is_packed
from xlakit.ops.shared.window_geometry import window_output
from xlakit.ops.windows import ReduceWindow, SelectAndScatter
from xlakit.passes.analysis.loops import loop_of, trip_count

_TRANSCENDENTAL = (Transcendental, Rng, RngBitGenerator)
# Operations that move no bytes themselves; calls, loops and conditionals cost what their callees do.
_FREE = (Forwarding, Parameter, Constant, ElidedConstant, AfterAll, DeviceNumber, Call, While, Conditional)
# Operations that read only as many elements of their first operand as their result has.
_PARTIAL = (Slice, DynamicSlice, Gather)


@dataclass(slots=True)
class Cost:
    """Numbers of operations, of elementary functions, and of bytes read and written."""

    flops: float = 0.0
    transcendentals: float = 0.0
    bytes_accessed: float = 0.0

    def add(self, other: Cost, times: float = 1.0) -> None:
        """Add another cost, so many times."""
        self.flops += times * other.flops
        self.transcendentals += times * other.transcendentals
        self.bytes_accessed += times * other.bytes_accessed

    def as_dict(self) -> dict[str, float]:
        """The numbers under the names of XLA's cost analysis."""
        return {
            "flops": self.flops,
            "transcendentals": self.transcendentals,
            "bytes accessed": self.bytes_accessed,
        }


def cost_of(module: HloModule) -> Cost:
    """The cost of one run of a program. A loop with an unknown trip count counts as one iteration."""
    return CostCounter().computation(module.entry)


def cost_of_instruction(instruction: Instruction) -> Cost:
    """The cost of one execution of an instruction, including the computations that it calls."""
    return CostCounter().instruction(instruction)


def flops_of(computation: Computation) -> float:
    """The flops of one run of a computation."""
    return CostCounter().computation(computation).flops


@dataclass(slots=True)
class CostCounter:
    """Costs of computations and of single instructions; each computation is counted once."""

    _known: dict[Computation, Cost] = field(default_factory=dict)

    def computation(self, computation: Computation) -> Cost:
        """The cost of one run of a computation."""
        cost = self._known.get(computation)
        if cost is None:
            cost = self._known[computation] = Cost()
            for instruction in computation.instructions:
                cost.add(self.instruction(instruction))
        return cost

    def instruction(self, instruction: Instruction) -> Cost:
        """The cost of an instruction, including the computations that it calls."""
        op = instruction.op
        if isinstance(op, Fusion):
            called = self.computation(op.calls)
            read, written = fusion_bytes(instruction)
            return Cost(called.flops, called.transcendentals, sum(read) + written)
        cost = Cost(bytes_accessed=_bytes(instruction))
        counted = _FLOPS.get(instruction.opcode)
        if counted is not None:
            cost.flops = float(counted(instruction))
        elif isinstance(op, _TRANSCENDENTAL):
            cost.transcendentals = float(_elements(instruction.shape))
        elif op.called_computations:
            self._called(instruction, cost)
        elif op.is_pointwise and not isinstance(op, (*_FREE, Copy)):
            cost.flops = float(_elements(instruction.shape))
        return cost

    def _called(self, instruction: Instruction, cost: Cost) -> None:
        op = instruction.op
        costs = [self.computation(c) for c in op.called_computations]
        if isinstance(op, While):
            loop = loop_of(instruction)
            known = None if loop is None else trip_count(loop)
            iterations = 1 if known is None else known
            body, condition = self.computation(op.body), self.computation(op.condition)
            cost.add(body, iterations)
            cost.add(condition, iterations + 1)
        elif isinstance(op, Conditional):
            cost.add(_maximum(costs))
        elif isinstance(op, Scan):
            cost.add(costs[0], _applications(instruction))
        elif isinstance(op, (Call, Async)):
            for inner in costs:
                cost.add(inner)
        else:
            # A computation that is applied to elements works in registers: its bytes do not count.
            for inner in costs:
                cost.add(Cost(inner.flops, inner.transcendentals), _applications(instruction))


def _maximum(costs: Sequence[Cost]) -> Cost:
    """The maximum over the branches of each number."""
    return Cost(
        max(c.flops for c in costs), max(c.transcendentals for c in costs), max(c.bytes_accessed for c in costs)
    )


# -- how often -------------------------------------------------------------------------------------


def _applications(instruction: Instruction) -> float:
    """How often an operation applies its computation to elements."""
    op = instruction.op
    first = instruction.operands[0].shape if instruction.operands else instruction.shape
    result_elements = _elements(instruction.shape)
    if isinstance(instruction.op, Reduce):
        results = len(instruction.shape.tuple_shapes) if instruction.shape.is_tuple else 1
        return max(0, _elements(first) - result_elements // max(1, results))
    if isinstance(op, ReduceWindow):
        results = len(instruction.shape.tuple_shapes) if instruction.shape.is_tuple else 1
        return result_elements // max(1, results) * _combinations(first, op)
    if isinstance(op, SelectAndScatter):
        source = _elements(instruction.operands[1].shape)
        return source * math.prod(d.size for d in op.window.dimensions)
    if isinstance(instruction.op, Scatter):
        return _elements(instruction.operands[-1].shape)
    return _elements(first)


def _combinations(shape: Shape, op: ReduceWindow) -> float:
    """The reducer's applications for each element of a reduce-window's result.

    A running reduction applies it once for each element but the first.
    """
    long = [number for number, d in enumerate(op.window.dimensions) if d.size > 1]
    if len(long) == 1 and _is_running(op.window.dimensions[long[0]], size := shape.dimensions[long[0]]):
        return (size - 1) / size
    return math.prod(d.size for d in op.window.dimensions) - 1


def _is_running(window: WindowDimension, size: int) -> bool:
    """Whether the window of each element covers all elements up to it, or all from it on (a prefix or suffix sum)."""
    padding = {window.padding_low, window.padding_high}
    steps = (window.stride, window.base_dilation, window.window_dilation)
    return window.size == size and padding == {0, size - 1} and steps == (1, 1, 1)


def _dot_flops(instruction: Instruction) -> float:
    op = instruction.op_as(Contraction)
    lhs = instruction.operands[0].shape
    contracted = math.prod(lhs.dimensions[d] for d in op.lhs_contracting_dims)
    return 2 * _elements(instruction.shape) * contracted * _numbers_per_element(op)


def _numbers_per_element(op: Op) -> int:
    """How many numbers an element of a product's operands holds: 2 for packed 4-bit numbers, else 1."""
    return 2 if is_packed(op) else 1


def _convolution_flops(instruction: Instruction) -> float:
    """Two flops for each multiplication with an element of the input that is neither padding nor a dilation hole."""
    op = instruction.op_as(Convolution)
    numbers = op.dim_labels
    lhs, rhs = (o.shape for o in instruction.operands[:2])
    valid = 1
    for dimension, window in zip(numbers.input_spatial_dimensions, op.window.dimensions, strict=True):
        size = lhs.dimensions[dimension]
        output_size = window_output(size, window)
        valid *= sum(
            0 <= position < (size - 1) * window.base_dilation + 1 and position % window.base_dilation == 0
            for tap in range(window.size)
            for position in (
                o * window.stride + tap * window.window_dilation - window.padding_low for o in range(output_size)
            )
        )
    inputs = rhs.dimensions[numbers.kernel_input_feature_dimension]
    outputs = rhs.dimensions[numbers.kernel_output_feature_dimension]
    batch = lhs.dimensions[numbers.input_batch_dimension] // max(1, op.batch_group_count)
    return 2 * valid * inputs * outputs * batch * _numbers_per_element(op)


def _fft_flops(instruction: Instruction) -> float:
    count = max(_elements(instruction.shape), _elements(instruction.operands[0].shape))
    length = math.prod(instruction.op_as(Fft).fft_length)
    return 8 * count * math.log2(max(2, length))


def _cholesky_flops(instruction: Instruction) -> float:
    size = instruction.shape.dimensions[-1]
    return _elements(instruction.shape) * size / 3


def _triangular_solve_flops(instruction: Instruction) -> float:
    op = instruction.op_as(TriangularSolve)
    size = instruction.shape.dimensions[-2 if op.left_side else -1]
    return _elements(instruction.shape) * size


def _sort_flops(instruction: Instruction) -> float:
    """The number of comparisons: n log2(n), whatever the comparator computes."""
    count = _elements(instruction.operands[0].shape)
    return count * math.ceil(math.log2(max(2, count)))


_FLOPS: dict[str, Callable[[Instruction], float]] = {
    "dot": _dot_flops,
    "convolution": _convolution_flops,
    "fft": _fft_flops,
    "sort": _sort_flops,
    "cholesky": _cholesky_flops,
    "triangular-solve": _triangular_solve_flops,
}


# -- sizes -----------------------------------------------------------------------------------------


def _elements(shape: Shape) -> int:
    if shape.is_tuple:
        return sum(_elements(s) for s in shape.tuple_shapes)
    return math.prod(max(1, size) for size in shape.dimensions) if shape.is_array else 0


def size_in_bytes(shape: Shape) -> int:
    """The bytes of all arrays of a shape; a dimension of size 0 or unknown size counts as 1."""
    if shape.is_tuple:
        return sum(size_in_bytes(s) for s in shape.tuple_shapes)
    return _elements(shape) * shape.element_type.byte_width if shape.is_array else 0


def _bytes(instruction: Instruction) -> float:
    """The bytes of memory that an instruction reads and writes when it is a kernel of its own."""
    op = instruction.op
    if isinstance(op, _FREE):
        # Before any size is known: there are as many elements of a long tuple as instructions that take one of it.
        return 0
    operands, result_bytes = [size_in_bytes(o.shape) for o in instruction.operands], size_in_bytes(instruction.shape)
    if op.is_pointwise:
        # An operand that occurs twice is read once.
        return sum(size_in_bytes(o.shape) for o in dict.fromkeys(instruction.operands)) + result_bytes
    if isinstance(op, _PARTIAL):
        return 2 * result_bytes + sum(operands[1:])
    if isinstance(op, DynamicUpdateSlice):
        return 2 * operands[1] + sum(operands[2:])
    if isinstance(op, Scatter):
        # The operands, the indices, the updates: each update reads and writes an element.
        count = len(operands) // 2
        return operands[count] + 3 * sum(operands[count + 1 :])
    return sum(operands) + result_bytes


def fusion_bytes(fusion: Instruction) -> tuple[list[float], float]:
    """The bytes that a fusion reads of each operand, and those that it writes.

    Of an operand that only slices read, the bytes of the slices count.
    """
    calls = fusion.op_as(Fusion).calls
    readers = users_of(calls.instructions)
    read_bytes: list[float] = []
    for parameter in calls.parameters:
        size = size_in_bytes(parameter.shape)
        read = sum(_read_by(reader, parameter, size) for reader in readers.get(parameter, []))
        read_bytes.append(min(size, read) if parameter is not calls.root else size)
    roots = calls.results
    return read_bytes, sum(_written(root) for root in roots)


def _read_by(reader: Instruction, operand: Instruction, size: int) -> float:
    """How many bytes of an operand of this size an instruction reads."""
    if reader.operands[0] is operand and operand not in reader.operands[1:]:
        if isinstance(reader.op, _PARTIAL):
            return size_in_bytes(reader.shape)
        if isinstance(reader.op, DynamicUpdateSlice):
            # The updated array stays in place: only the update is read.
            return 0
    return size


def _written(root: Instruction) -> float:
    """How many bytes a fusion writes for one of its results."""
    if isinstance(root.op, DynamicUpdateSlice) and isinstance(root.operands[0].op, Parameter):
        return size_in_bytes(root.operands[1].shape)
    return size_in_bytes(root.shape)
