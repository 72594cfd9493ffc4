"""XLA's cost analysis as in jaxlib 0.6.0: totals, and for each operand number the bytes that instructions read of it.

``bytes accessed0{}`` are the bytes of the first operands of all instructions, ``utilization0{}`` the shares of them
that are read, ``bytes accessedout{}`` the bytes of the results. A tuple is a table of addresses. A loop counts as one
iteration, a conditional as the maximum over its branches of each property. Properties that are 0 are left out.
"""

from __future__ import annotations

import math

from xlakit.data.shape import Shape
from xlakit.ir.instruction import Computation, HloModule, Instruction
from xlakit.ir.traits import Forwarding
from xlakit.ops.control import Call, Conditional, Fusion, While
from xlakit.ops.custom_call import CustomCall
from xlakit.ops.data import AfterAll, Constant, OptimizationBarrier, Parameter, Tuple
from xlakit.ops.dynamic import DynamicSlice, DynamicUpdateSlice
from xlakit.ops.elementwise.convert import BitcastConvert
from xlakit.ops.fft import Fft
from xlakit.ops.gather import Gather
from xlakit.ops.linear_algebra import Cholesky, TriangularSolve
from xlakit.ops.movement import Slice, Transpose
from xlakit.ops.scatter import Scatter
from xlakit.ops.sort import Sort
from xlakit.ops.windows import SelectAndScatter
from xlakit.passes.analysis.cost import cost_of_instruction, flops_of, fusion_bytes

Properties = dict[str, float]

_ADDRESS_BYTES = 8
_FLOPS, _ELEMENTARY, _BYTES, _OUT = "flops", "transcendentals", "bytes accessed", "bytes accessedout{}"


def properties_of(module: HloModule) -> Properties:
    """The cost of one run of a module, by XLA's names of properties."""
    return {name: value for name, value in _of_computation(module.entry).items() if value}


def _of_computation(computation: Computation) -> Properties:
    total: Properties = {}
    for instruction in computation.instructions:
        _add(total, _of_instruction(instruction))
    return total


def _add(total: Properties, other: Properties) -> None:
    for name, value in other.items():
        total[name] = total.get(name, 0.0) + value


def _of_instruction(instruction: Instruction) -> Properties:
    op = instruction.op
    if isinstance(op, (While, Call)):
        found: Properties = {}
        for called in op.called_computations:
            _add(found, _of_computation(called))
        return found
    if isinstance(op, Conditional):
        branches = [_of_computation(branch) for branch in op.called_computations]
        names = {name for branch in branches for name in branch}
        return {name: max(branch.get(name, 0.0) for branch in branches) for name in names}
    if isinstance(op, (Parameter, Constant, AfterAll)):
        return {}
    if isinstance(op, CustomCall):
        # Not known.
        return {"optimal_seconds": -1.0, _FLOPS: -1.0, _BYTES: -1.0, f"{_BYTES}0{{}}": -1.0, "utilization0{}": 1.0}
    cost = cost_of_instruction(instruction)
    found = {_FLOPS: cost.flops, _ELEMENTARY: cost.transcendentals}
    if not _elements(instruction.shape):
        found = {_FLOPS: 0.0, _ELEMENTARY: 0.0}
    elif (counted := _flops(instruction)) is not None:
        found[_FLOPS] = float(counted)
    read, written = _moved(instruction)
    for number, (size, share) in enumerate(read):
        found[f"{_BYTES}{number}{{}}"], found[f"utilization{number}{{}}"] = size, share
    found[_BYTES] = sum(size for size, _ in read) + written
    found[_OUT] = written
    if isinstance(op, TriangularSolve):
        # The sum has half of the triangle, the first operand's part the size of the right-hand side.
        found[_BYTES] += _size(instruction.operands[0].shape) / 2 - read[0][0]
    if isinstance(op, (DynamicSlice, DynamicUpdateSlice)):
        # Of the indices the sum has the first.
        found[_BYTES] -= sum(size for size, _ in read[2 + isinstance(op, DynamicUpdateSlice) :])
    return found


def _flops(instruction: Instruction) -> float | None:
    """The flops of operations that this version of XLA counts differently from xlakit; None for other operations."""
    op, count = instruction.op, _elements(instruction.shape)
    if isinstance(op, Cholesky):
        return count * instruction.shape.dimensions[-1] // 3
    if isinstance(op, TriangularSolve):
        return 2 * count * instruction.operands[0].shape.dimensions[-1]
    if isinstance(op, Fft):
        logarithms = math.prod(length.bit_length() - 1 for length in op.fft_length)
        return 8 * _elements(instruction.operands[0].shape) * logarithms
    if isinstance(op, Sort):
        keys = _elements(instruction.operands[0].shape)
        return keys * (keys - 1).bit_length()
    if isinstance(op, SelectAndScatter):
        window = math.prod(d.size for d in op.window.dimensions)
        applied = (window - 1) * flops_of(op.select) + flops_of(op.scatter)
        return _elements(instruction.operands[1].shape) * applied
    return count if isinstance(op, BitcastConvert) else None


def _moved(instruction: Instruction) -> tuple[list[tuple[float, float]], float]:
    """For each operand the bytes that are read and their share of it, and the bytes that are written."""
    op, shapes = instruction.op, [operand.shape for operand in instruction.operands]
    read, written = [(_size(shape), 1.0) for shape in shapes], _size(instruction.shape)
    if isinstance(op, Fusion):
        given, written = fusion_bytes(instruction)
        sizes = [max(1.0, size) for size, _ in read]
        return [(part, part / size) for part, size in zip(given, sizes, strict=False)], written
    if isinstance(op, Tuple):
        return [(0.0, 1.0) for _ in shapes], written
    if (isinstance(op, Forwarding) and not isinstance(op, OptimizationBarrier)) or _stays(instruction):
        return [(0.0, 1.0) for _ in shapes], 0.0
    if isinstance(op, (Slice, DynamicSlice, Gather)):
        share = _elements(instruction.shape) / max(1, _elements(shapes[0]))
        return [(written, share), *read[1:]], written
    if isinstance(op, DynamicUpdateSlice):
        share = 1 - _elements(shapes[1]) / max(1, _elements(shapes[0]))
        return [(0.0, share), *read[1:]], read[1][0]
    if isinstance(op, Scatter):
        count = len(shapes) // 2
        updates = read[count + 1 :]
        return [*((size, 1.0) for size, _ in updates), *read[count:]], sum(size for size, _ in updates)
    if isinstance(op, Cholesky):
        return [(read[0][0] / 2, 1.0)], written / 2
    if isinstance(op, TriangularSolve):
        return [(written, 1.0), read[1]], written
    return read, written


def _stays(instruction: Instruction) -> bool:
    """Whether this is a transpose that leaves the elements in memory where they are, because of its layout."""
    op = instruction.op
    if not isinstance(op, Transpose):
        return False
    before = instruction.operands[0].shape.layout_or_default.minor_to_major
    return tuple(op.dimensions[d] for d in instruction.shape.layout_or_default.minor_to_major) == before


def _elements(shape: Shape) -> int:
    return sum(math.prod(x.dimensions) for _, x in shape.leaves() if x.is_array)


def _size(shape: Shape) -> float:
    """The bytes of an array, or of a tuple's addresses."""
    if shape.is_tuple:
        return float(_ADDRESS_BYTES * len(shape.tuple_shapes))
    return float(_elements(shape) * shape.element_type.byte_width) if shape.is_array else 0.0
