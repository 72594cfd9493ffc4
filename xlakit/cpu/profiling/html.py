"""What notebooks show of profiles: the most expensive instructions."""

from __future__ import annotations

from typing import Final

from xlakit.cpu.profiling.times import Times
from xlakit.data.html import heading, table

_MOST_ROWS: Final = 12


def profile_html(profile: Times) -> str:
    """The time of a run, and the instructions that take most of it, with their lines and parts."""
    runs = max(1, profile.runs)
    rows = [
        (
            f"{one.instruction.opcode} {one.instruction.name}",
            "" if one.location is None else str(one.location),
            f"{'~' * one.estimated}{one.nanoseconds / runs / 1e3:,.1f}",
            f"{100 * one.nanoseconds / profile.nanoseconds:.1f} %" if profile.nanoseconds else "",
        )
        for one in profile.instructions[:_MOST_ROWS]
    ]
    left = len(profile.instructions) - len(rows)
    facts = [
        f"{profile.runs:,} run{'s' * (profile.runs != 1)}",
        f"{profile.nanoseconds / runs / 1e3:,.1f} us each",
        f"{len(profile.instructions):,} instructions" + f", the {len(rows)} most expensive of them here" * (left > 0),
    ]
    title = heading("Profile", profile.name, facts)
    return title + table(("instruction", "line", "us per run", "part"), rows, numbers=2)
