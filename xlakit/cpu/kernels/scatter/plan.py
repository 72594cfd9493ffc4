"""The plan of a scatter: its loops over updates and windows, and the way in which tasks share them."""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from dataclasses import replace

from xlakit.cpu.loops.ir.cost import reducer_cost
from xlakit.cpu.loops.ir.reducer import neutral_number, wide_kind
from xlakit.data.layout import row_major_strides
from xlakit.data.primitive import PrimitiveType
from xlakit.dataclass import dataclass
from xlakit.ir.instruction import Computation, Instruction
from xlakit.ops.gather import expanded_indices
from xlakit.ops.reduction import applied_op
from xlakit.ops.scatter import Scatter
from xlakit.options import knob
from xlakit.passes.analysis.cost_model import cost_model

# Cycles for an update without its elements, and for each element.
_UPDATE_CYCLES, _ELEMENT_CYCLES = 6.0, 0.6
_MOST_TASKS = knob("scatter_plan.most_tasks", 16, 3)
# The bytes of a window that a task of a shared window has.
_WINDOW_BYTES = knob("scatter_plan.window_bytes", 1 << 12, 4, 32)
# The least bytes of a window, and the number of tasks, for which each task can scan all updates and skip those of other
# tasks: processors read shorter windows ahead only if none is skipped.
_TARGET_BYTES = knob("scatter_plan.target_bytes", 1 << 11, 1)
_TARGET_TASKS = knob("scatter_plan.target_tasks", 4, 2)
# Fewer updates than this are applied by one task.
_FEW_UPDATES = knob("scatter_plan.few_updates", 1 << 14, 0, tries=(0, 1 << 30))
# Private results pay off if each has at least this many updates for each of its elements.
_UPDATES_PER_ELEMENT = knob("scatter_plan.updates_per_element", 4, 1, tries=(1, 16))
_MOST_PARTS = knob("scatter_plan.most_parts", 8, 2)


class Sharing(enum.Enum):
    """The ways in which tasks share the work; the result does not depend on the number of threads."""

    ALONE = enum.auto()
    # Each task has some of the outermost updates, which have different target elements.
    UPDATES = enum.auto()
    # Each task scans all updates, and applies a part of each window.
    WINDOW = enum.auto()
    # Each task scans all updates, and applies those that start at its positions along one dimension.
    TARGETS = enum.auto()
    # Each task applies some of the updates to a private result.
    PARTS = enum.auto()


@dataclass(frozen=True, slots=True)
class ScatterLoop:
    """A loop over updates or over a window: its strides in the updates, in the operand, and in the indices.

    operand: of a loop over updates, 0 unless it is a batch. still: whether all windows begin at the same position along
    this dimension.
    """

    extent: int
    update: int
    operand: int
    index: int = 0
    still: bool = False


@dataclass(frozen=True, slots=True)
class IndexPart:
    """A component of an index vector: its offset, its greatest valid value, and its stride in the operand.

    apart: whether windows that start at different positions along this dimension do not overlap.
    """

    offset: int
    limit: int
    stride: int
    apart: bool


@dataclass(frozen=True, slots=True)
class ScatterPlan:
    """The loops of a scatter, from outermost to innermost."""

    computation: Computation
    kinds: tuple[PrimitiveType, ...]
    index_kind: PrimitiveType
    elements: int
    updates: tuple[ScatterLoop, ...]
    window: tuple[ScatterLoop, ...]
    components: tuple[IndexPart, ...]
    sharing: Sharing
    tasks: int

    @property
    def count(self) -> int:
        """The number of windows."""
        return math.prod(loop.extent for loop in self.updates)

    @property
    def window_elements(self) -> int:
        """The number of elements of a window."""
        return math.prod(loop.extent for loop in self.window)

    @property
    def shared_component(self) -> int | None:
        """The component of the index vectors that determines an update's task; None if tasks share otherwise."""
        return _shared_component(self.components) if self.sharing is Sharing.TARGETS else None

    @property
    def cost(self) -> float:
        """The estimated nanoseconds on one processor."""
        cycles = cost_model().cycles
        element = len(self.kinds) * cycles(_ELEMENT_CYCLES) + reducer_cost(self.computation)
        return self.count * (cycles(_UPDATE_CYCLES) + self.window_elements * element)

    @property
    def part_kind(self) -> PrimitiveType:
        """The element type of a private result."""
        return wide_kind(self.kinds[0])


def plan_scatter(instruction: Instruction) -> ScatterPlan:
    """The loops of a scatter, and the way in which it is shared."""
    op = instruction.op_as(Scatter)
    count = len(instruction.operands) // 2
    operand = instruction.operands[0].shape
    updates = instruction.operands[-1].shape
    indices = instruction.operands[count].shape
    expanded = expanded_indices(indices, op.index_vector_dim, "scatter_indices")
    batch = _update_loops(op, operand.dimensions, expanded.dimensions, updates.dimensions)
    window_loops, components = _window_loops(op, operand.dimensions, expanded.dimensions, updates.dimensions)
    kinds = tuple(o.shape.element_type for o in instruction.operands[:count])
    sharing, tasks = _shared(op, kinds, batch, window_loops, components, operand.num_elements)
    return ScatterPlan(
        op.to_apply,
        kinds,
        indices.element_type,
        operand.num_elements,
        tuple(batch),
        tuple(window_loops),
        tuple(components),
        sharing,
        tasks,
    )


def _update_loops(
    op: Scatter, operand: Sequence[int], indices: Sequence[int], updates: Sequence[int]
) -> list[ScatterLoop]:
    of_operand, of_indices, of_updates = map(row_major_strides, (operand, indices, updates))
    scatter_dims = [d for d in range(len(updates)) if d not in op.update_window_dims]
    index_dims = [d for d in range(len(indices)) if d != op.index_vector_dim]
    batching = dict(zip(op.scatter_indices_batching_dims, op.input_batching_dims, strict=True))
    loops = [
        ScatterLoop(updates[u], of_updates[u], of_operand[batching[i]] if i in batching else 0, of_indices[i])
        for u, i in zip(scatter_dims, index_dims, strict=True)
    ]
    # Batch loops come first: their updates have different target elements.
    loops.sort(key=lambda loop: not loop.operand)
    return _merged(loops)


def _window_loops(
    op: Scatter, operand: Sequence[int], indices: Sequence[int], updates: Sequence[int]
) -> tuple[list[ScatterLoop], list[IndexPart]]:
    of_operand, of_indices, of_updates = map(row_major_strides, (operand, indices, updates))
    fixed = {*op.inserted_window_dims, *op.input_batching_dims}
    window_dims = [d for d in range(len(operand)) if d not in fixed]
    extents = {d: updates[u] for u, d in zip(op.update_window_dims, window_dims, strict=True)}
    window = [
        ScatterLoop(
            updates[u],
            of_updates[u],
            of_operand[d],
            still=d not in op.scatter_dims_to_operand_dims or extents[d] == operand[d],
        )
        for u, d in zip(op.update_window_dims, window_dims, strict=True)
    ]
    vector_stride = of_indices[op.index_vector_dim]
    components = [
        IndexPart(k * vector_stride, operand[d] - extents.get(d, 1), of_operand[d], extents.get(d, 1) == 1)
        for k, d in enumerate(op.scatter_dims_to_operand_dims)
    ]
    return _merged(window), components


def _merged(loops: Sequence[ScatterLoop]) -> list[ScatterLoop]:
    """The loops, outermost first, with adjacent loops merged if they step through all arrays like a single one."""
    merged: list[ScatterLoop] = []
    for loop in loops:
        if loop.extent == 1:
            continue
        if (
            merged
            and merged[-1].still == loop.still
            and all(
                getattr(merged[-1], name) == getattr(loop, name) * loop.extent
                for name in ("update", "operand", "index")
            )
        ):
            loop = replace(loop, extent=merged.pop().extent * loop.extent)
        merged.append(loop)
    return merged


def _shared(
    op: Scatter,
    kinds: Sequence[PrimitiveType],
    updates: Sequence[ScatterLoop],
    window: Sequence[ScatterLoop],
    components: Sequence[IndexPart],
    elements: int,
) -> tuple[Sharing, int]:
    count = math.prod(loop.extent for loop in updates)
    size = math.prod(loop.extent for loop in window)
    if count * size < _FEW_UPDATES.value:
        return Sharing.ALONE, 1
    if updates and (updates[0].operand or op.unique_indices):
        return Sharing.UPDATES, min(_MOST_TASKS.value, updates[0].extent)
    # Windows that begin at different positions would extend across the borders between tasks.
    if window and window[-1].still and window[-1].operand == 1:
        tasks = min(_MOST_TASKS.value, window[-1].extent * min(k.byte_width for k in kinds) // _WINDOW_BYTES.value)
        if tasks > 1:
            return Sharing.WINDOW, tasks
    if size * max(k.byte_width for k in kinds) >= _TARGET_BYTES.value and _shared_component(components) is not None:
        return Sharing.TARGETS, _TARGET_TASKS.value
    parts = min(_MOST_PARTS.value, count // (_UPDATES_PER_ELEMENT.value * max(1, elements)))
    if parts > 1 and size == 1 and len(kinds) == 1 and len(updates) == 1 and neutral(op.to_apply, kinds[0]) is not None:
        return Sharing.PARTS, parts
    return Sharing.ALONE, 1


def _shared_component(components: Sequence[IndexPart]) -> int | None:
    """The number of the component whose dimension tasks can share; None if there is none."""
    candidates = [(part.limit, number) for number, part in enumerate(components) if part.apart]
    return max(candidates)[1] if candidates and max(candidates)[0] >= _TARGET_TASKS.value else None


def neutral(computation: Computation, kind: PrimitiveType) -> float | None:
    """The identity of a computation; None if it is not known, or if the order of updates may matter."""
    op = applied_op(computation)
    if op is None or kind.is_complex or computation.parameters[0].shape.element_type is not kind:
        return None
    return neutral_number(op, kind)
