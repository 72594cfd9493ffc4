"""The memory of a program for the viewer: the slices of the arena over the schedule."""

from __future__ import annotations

from typing import Any

from xlakit.memory.assignment import BufferSlice, Space
from xlakit.memory.plan import MemoryPlan


def memory_of(plan: MemoryPlan) -> dict[str, Any]:
    """A plan for JSON.

    arena_bytes: the size of the arena. points: the number of the last step. slices: offset and size in bytes, the
    first and the last step at which the slice is in use, and its values with the instructions that define them.
    """
    slices = [_slice(plan, slice_) for slice_ in plan.slices if slice_.space is Space.ARENA]
    last = max((slice_["last"] for slice_ in slices), default=0)
    return {"arena_bytes": plan.arena_bytes, "points": last, "slices": slices}


def _slice(plan: MemoryPlan, slice_: BufferSlice) -> dict[str, Any]:
    # Live ranges are in points, of which each step has two.
    intervals = [interval for value in slice_.values for interval in plan.intervals[value]]
    return {
        "offset": slice_.offset,
        "size": slice_.size,
        "first": min((low for low, _ in intervals), default=slice_.first) // 2,
        "last": max((high for _, high in intervals), default=slice_.last) // 2,
        "values": [
            {"name": value.name, "instruction": "" if value.instruction is None else value.instruction.name}
            for value in slice_.values
        ],
    }
