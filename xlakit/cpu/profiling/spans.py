"""Profiles as the lines of an XSpace: one line per thread, with the calls of programs and their steps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from xlakit.formats.xspace import Line, Span

if TYPE_CHECKING:
    from xlakit.cpu.profiling.recorder import Event
    from xlakit.cpu.profiling.times import StepTimes, Times


def thread_lines(profiles: Iterable[Times], begin: int, end: int) -> list[Line]:
    """The events of each thread between two times of the monotonic clock, in nanoseconds."""
    spans: dict[int, list[Span]] = {}
    for profile in profiles:
        for thread, span in _spans(profile, begin, end):
            spans.setdefault(thread, []).append(span)
    return [Line(number, f"xlakit thread {number}", found) for number, found in enumerate(spans.values(), start=1)]


def _spans(profile: Times, begin: int, end: int) -> Iterator[tuple[int, Span]]:
    steps = {times.row.number: times for times in profile.steps}
    for event in profile.events:
        if event.begin >= begin and event.end <= end:
            yield event.thread, _span(profile.name, event, steps.get(event.step))


def _span(program: str, event: Event, step: StepTimes | None) -> Span:
    if step is None:
        return Span(program, event.begin, event.end, {"hlo_module": program})
    row = step.row
    stats: dict[str, str | int | float] = {"hlo_module": program, "step": row.number}
    if row.instruction is not None:
        stats["hlo_op"], stats["opcode"] = row.instruction.name, row.instruction.opcode
    if row.location is not None:
        stats["source"] = str(row.location)
    if not event.is_range:
        stats |= {n: v for n, v in (("flops", row.cost.flops), ("bytes_accessed", row.cost.bytes_accessed)) if v}
    return Span(row.name, event.begin, event.end, stats)
