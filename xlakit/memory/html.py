"""The HTML that notebooks show for memory plans: the largest slices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from xlakit.data.html import amount_of_bytes, heading, table
from xlakit.memory.assignment import BufferSlice

_MOST_SLICES: Final = 12
_MOST_VALUES: Final = 4


def plan_html(name: str, slices: Sequence[BufferSlice], *, arena_bytes: int, copies: int) -> str:
    """The size of the arena, and the largest slices with the steps between which they are in use, and their values.

    name: of the module. copies: how many copy insertion has made.
    """
    largest = sorted(slices, key=lambda slice_: -slice_.size)[:_MOST_SLICES]
    rows: list[tuple[str, str, str, str]] = []
    for slice_ in largest:
        names = [value.name for value in slice_.values]
        values = ", ".join(names[:_MOST_VALUES]) + (
            f", {len(names) - _MOST_VALUES:,} more" * (len(names) > _MOST_VALUES)
        )
        # Live ranges are in points, of which each step has two.
        rows.append((str(slice_), values, f"{slice_.first // 2}-{slice_.last // 2}", amount_of_bytes(slice_.size)))
    facts = [
        f"arena of {amount_of_bytes(arena_bytes)}",
        f"{len(slices):,} slices" + f", the {len(rows)} largest of them here" * (len(rows) < len(slices)),
        f"{copies:,} copies",
    ]
    title = heading("Memory plan", name, facts)
    return title + table(("slice", "values", "steps", "bytes"), rows, numbers=2)
