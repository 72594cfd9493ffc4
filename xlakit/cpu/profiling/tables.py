"""Profiles as text tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from xlakit.data.text_table import aligned, duration

if TYPE_CHECKING:
    from xlakit.cpu.profiling.times import StepTimes, Times

# In a program with more steps than this, steps below this part of the total time share one row.
_MOST_STEPS = 60
_SMALL_PART = 0.005
_MOST_ROWS = 20
_NAME_WIDTH = 44


def profile_text(profile: Times) -> str:
    """The tables of a profile."""
    parts = [_head(profile), _steps(profile)]
    lines = [(one.name, one.nanoseconds, one.estimated, str(one.instructions)) for one in profile.lines]
    if any(one.file is not None for one in profile.lines):
        parts.append(_ranked(profile, "line", "instructions", lines))
    parts.append(
        _ranked(
            profile,
            "instruction",
            "opcode",
            [
                (f"%{one.instruction.name}", one.nanoseconds, one.estimated, one.instruction.opcode)
                for one in profile.instructions
            ],
        )
    )
    parts.append(_threads(profile))
    return "\n\n".join(part for part in parts if part)


def _head(profile: Times) -> str:
    runs = f"{profile.runs} runs" if profile.runs != 1 else "1 run"
    roofline, per_run = profile.roofline, profile.nanoseconds / max(1, profile.runs)
    machine = f"{roofline.threads} threads of {roofline.machine.processor or 'this machine'}"
    if not roofline.machine.measured:
        machine += ", rates not measured: xlakit machine --measure"
    lines = [f"{profile.name}: {runs}, {duration(per_run)} each ({machine})"]
    if profile.overhead is not None:
        over = profile.overhead
        lines.append(
            f"taking the times: {duration(over.profiled)} a run instead of {duration(over.usual)} ({over.part:+.0%})"
        )
    return "\n".join(lines)


def _steps(profile: Times) -> str:
    table = [
        ("step", "kind", "time", "part", "runs", "each", "least", "GB/s", "GFLOP/s", "roofline", "threads", "line")
    ]
    shown = [times for times in profile.steps if _is_shown(times, profile)]
    table += [_step(times, profile) for times in shown]
    # The time of a step includes the steps inside of it.
    numbers = {times.row.number for times in shown}
    hidden = [times for times in profile.steps if times.row.number not in numbers and times.executions]
    rest = sum(times.own for times in hidden)
    if hidden:
        table.append((f"{len(hidden)} others", "", duration(rest), _part(rest, profile), *[""] * 8))
    if profile.between > 0:
        table.append(("between steps", "", duration(profile.between), _part(profile.between, profile), *[""] * 8))
    return aligned(table, right=range(2, 11))


def _is_shown(times: StepTimes, profile: Times) -> bool:
    if len(profile.steps) <= _MOST_STEPS:
        return True
    return times.total >= _SMALL_PART * profile.nanoseconds


def _step(times: StepTimes, profile: Times) -> tuple[str, ...]:
    row = times.row
    roofline = "" if times.roofline is None else f"{times.roofline:.0%} {row.bound.by}"
    return (
        "  " * row.depth + shortened(row.name),
        row.kind,
        duration(times.total),
        _part(times.total, profile),
        str(times.executions),
        duration(times.total / times.executions) if times.executions else "",
        duration(times.least) if times.executions else "",
        _rate(times.bytes, times.total),
        _rate(times.flops, times.total),
        roofline,
        "" if times.threads is None else f"{times.threads:.1f}",
        "" if row.location is None else f"{row.location.file}:{row.location.line}",
    )


def _ranked(profile: Times, what: str, other: str, rows: Sequence[tuple[str, float, bool, str]]) -> str:
    """The most expensive entries; ~ marks an estimated time."""
    if not rows:
        return ""
    table = [("time", "part", what, other)]
    for name, spent, estimated, more in rows[:_MOST_ROWS]:
        table.append((("~" if estimated else "") + duration(spent), _part(spent, profile), name, more))
    rest = rows[_MOST_ROWS:]
    if rest:
        spent = sum(row[1] for row in rest)
        table.append((duration(spent), _part(spent, profile), f"{len(rest)} others", ""))
    return aligned(table, right=range(2))


def _threads(profile: Times) -> str:
    if len(profile.threads) < 2:
        return ""
    table = [("thread", "busy", "part", "ranges", "shared steps", "waiting", "waking, each")]
    # The part relates to the calls whose events were kept, because threads are known only from events.
    seen = sum(event.end - event.begin for event in profile.events if event.step == 0 and not event.is_range)
    for own in profile.threads:
        table.append(
            (
                own.name,
                duration(own.busy),
                f"{own.busy / seen:.1%}" if seen else "",
                str(own.ranges),
                str(own.shared),
                "" if own.waiting is None else duration(own.waiting),
                "" if own.waking is None or not own.shared else duration(own.waking / own.shared),
            )
        )
    dropped = f"\n{profile.dropped} events left out: there was no room for them" if profile.dropped else ""
    return aligned(table, right=range(1, 7)) + dropped


def shortened(name: str) -> str:
    """A name, shortened to fit into a column."""
    return name if len(name) <= _NAME_WIDTH else name[: _NAME_WIDTH - 1] + "…"


def _part(nanoseconds: float, profile: Times) -> str:
    return f"{nanoseconds / profile.nanoseconds:.1%}" if profile.nanoseconds else ""


def _rate(count: float, nanoseconds: float) -> str:
    """Units per nanosecond: billions per second."""
    return f"{count / nanoseconds:.3g}" if count and nanoseconds else ""
