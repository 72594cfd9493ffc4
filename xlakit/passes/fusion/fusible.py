"""Properties of single instructions for fusion: whether a loop nest can compute one, and the cost of recomputing it."""

from __future__ import annotations

import enum
import math
from typing import Final

from xlakit.ir.instruction import Instruction
from xlakit.ir.traits import DataMovement, Elementwise, Expensive
from xlakit.ops.data import Constant, Iota
from xlakit.ops.dot import Dot
from xlakit.ops.dynamic import DynamicSlice, DynamicUpdateSlice
from xlakit.ops.elementwise.convert import BitcastConvert
from xlakit.ops.gather import Gather
from xlakit.ops.movement import Broadcast, Concatenate, Pad
from xlakit.ops.reduction import Reduce
from xlakit.ops.windows import ReduceWindow
from xlakit.options import knob
from xlakit.passes.analysis.cost_model import cost_model

# A bitcast-convert is element-wise if both types have the same width.
ELEMENTWISE: Final = (Elementwise, BitcastConvert)
# Operations that only rename or move elements.
MOVEMENT: Final = (DataMovement, Iota)
# All operations that a loop nest can compute, if is_fusible's other conditions hold.
_FUSIBLE = (*ELEMENTWISE, *MOVEMENT, Pad, Concatenate, DynamicSlice, Gather, ReduceWindow, Reduce, DynamicUpdateSlice)

# A reduction of at most so many elements is unrolled inside of a loop.
_SMALL_REDUCTION = 16
# Shorter rows are not worth vectorizing.
_LEAST_ROW = 4
# The most elements of a matrix product that is unrolled inside of a loop.
_TINY_RESULT = knob("fusion_cluster.tiny_result", 32, 0, 10_000)
# Cycles to load an index, clamp it, and load one element from there; vector code does this element by element, too.
_GATHERED: Final = 2.5


class Domain(enum.Enum):
    """The index space of an instruction in a fusion: the elements that its loops run over, or the rows of these."""

    ELEMENT = enum.auto()
    ROW = enum.auto()


def is_fusible(instruction: Instruction) -> bool:
    """Whether an instruction can be part of a loop nest."""
    op, shape = instruction.op, instruction.shape
    if isinstance(op, Dot):
        return _is_tiny_product(instruction)
    if not isinstance(op, _FUSIBLE) or instruction.control_predecessors or op.has_side_effect:
        return False
    if isinstance(op, ReduceWindow) and reduced_size(instruction, 0) > _SMALL_REDUCTION:
        return False
    if shape.is_tuple:
        return isinstance(op, Reduce) and not any(s.is_dynamic for s in shape.tuple_shapes)
    return (
        shape.is_array
        and not shape.is_dynamic
        and shape.num_elements > 0
        and all(o.shape.is_array and not o.shape.is_dynamic for o in instruction.operands)
    )


def _is_tiny_product(instruction: Instruction) -> bool:
    """Whether a dot is so small that calling a kernel costs more than computing it."""
    lhs, rhs = (o.shape for o in instruction.operands)
    kind = instruction.shape.element_type
    return (
        lhs.element_type is rhs.element_type is kind
        and kind.bit_width >= 32
        and not instruction.shape.is_dynamic
        and not instruction.control_predecessors
        and 1 <= reduced_size(instruction, 0) <= _SMALL_REDUCTION
        and 1 <= instruction.shape.num_elements <= _TINY_RESULT.value
    )


def is_scalar_constant(instruction: Instruction) -> bool:
    """Whether this is a scalar constant, which every loop can materialize."""
    return isinstance(instruction.op, Constant) and instruction.shape.is_array and instruction.shape.num_elements == 1


def is_large_reduction(instruction: Instruction) -> bool:
    """Whether this is a reduction that needs loops of its own."""
    return isinstance(instruction.op, Reduce) and reduced_size(instruction, 0) > _SMALL_REDUCTION


def is_short_row(instruction: Instruction) -> bool:
    """Whether this is a reduction of short rows along minor dimensions, of at least a vector of four elements each."""
    op = instruction.op
    if not isinstance(op, Reduce) or instruction.shape.is_tuple:
        return False
    rank = instruction.operands[0].shape.rank
    is_minor = set(op.dimensions) == set(range(rank - len(op.dimensions), rank))
    return is_minor and _LEAST_ROW <= reduced_size(instruction, 0) <= _SMALL_REDUCTION


def is_free(instruction: Instruction) -> bool:
    """Whether recomputing an instruction costs less than loading its value: an iota, or a broadcast scalar."""
    if isinstance(instruction.op, Iota):
        return True
    return isinstance(instruction.op, Broadcast) and instruction.operands[0].shape.num_elements == 1


def is_simple(instruction: Instruction) -> bool:
    """Whether an instruction is element-wise and takes only a few machine instructions per element."""
    return isinstance(instruction.op, ELEMENTWISE) and not isinstance(instruction.op, Expensive)


def is_cheap(instruction: Instruction) -> bool:
    """Whether an instruction may be recomputed in several loops: it is simple and reads at most one large operand."""
    if isinstance(instruction.op, MOVEMENT):
        return True
    if not is_simple(instruction):
        return False
    size = instruction.shape.num_elements
    large = {o for o in instruction.operands if o.shape.num_elements * 4 > size and not is_free(o)}
    return len(large) <= 1


def reduced_size(user: Instruction, number: int) -> int:
    """How many elements of operand ``number`` are combined to one element of ``user``; 1 where one is read."""
    op, sizes = user.op, user.operands[number].shape.dimensions
    if isinstance(op, Dot):
        return math.prod([sizes[d] for d in (op.lhs_contracting_dims, op.rhs_contracting_dims)[number]])
    if number >= len(user.operands) // 2:
        return 1
    if isinstance(op, Reduce):
        return math.prod([sizes[d] for d in op.dimensions])
    return math.prod([d.size for d in op.window.dimensions]) if isinstance(op, ReduceWindow) else 1


def work_of(instruction: Instruction) -> float:
    """The cost in nanoseconds of computing one element from its operands; 0 for operations that only move elements."""
    op = instruction.op
    if isinstance(op, Gather):
        return cost_model().cycles(_GATHERED) / max(1, math.prod(op.slice_sizes))
    if not isinstance(op, ELEMENTWISE):
        # A window or a small product costs as a few cheap operations; moving elements costs nothing.
        return 4 * cost_model().plain if isinstance(op, (Reduce, ReduceWindow, Dot)) else 0.0
    return cost_model().operation(op).in_vector * max(1, instruction.shape.element_type.bit_width // 32)
