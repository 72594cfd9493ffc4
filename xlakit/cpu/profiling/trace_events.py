"""Profiles as timelines in the Trace Event format of Chrome's tracing, which Perfetto reads.

Each thread has a row. A complete event (``"ph": "X"``) is one execution of a step, or a range of a step's tasks; the
steps of a loop are drawn below it. Times are microseconds of the monotonic clock.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from xlakit.cpu.profiling.recorder import Event
    from xlakit.cpu.profiling.times import StepTimes, Times


def trace_json(profiles: Iterable[Times]) -> str:
    """The events of some programs of this process as one JSON object."""
    made = list(profiles)
    numbers: dict[int, int] = {}
    for profile in made:
        for thread in profile.threads:
            numbers.setdefault(thread.thread, len(numbers) + 1)
    events = [*_names(made, numbers), *(e for profile in made for e in _events(profile, numbers))]
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ns"})


def _names(profiles: Iterable[Times], numbers: Mapping[int, int]) -> Iterator[dict[str, Any]]:
    process = os.getpid()
    yield {"ph": "M", "name": "process_name", "pid": process, "tid": 0, "args": {"name": f"xlakit {process}"}}
    callers = {thread.thread for profile in profiles for thread in profile.threads if thread.calls}
    for thread, number in numbers.items():
        name = f"caller {number}" if thread in callers else f"worker {number}"
        yield {"ph": "M", "name": "thread_name", "pid": process, "tid": number, "args": {"name": name}}


def _events(profile: Times, numbers: Mapping[int, int]) -> Iterator[dict[str, Any]]:
    process = os.getpid()
    steps = {times.row.number: times for times in profile.steps}
    for event in profile.events:
        yield {
            "ph": "X",
            "pid": process,
            "tid": numbers[event.thread],
            "ts": event.begin / 1000,
            "dur": (event.end - event.begin) / 1000,
            **_description(profile, event, steps.get(event.step)),
        }


def _description(profile: Times, event: Event, step: StepTimes | None) -> dict[str, Any]:
    if step is None:
        return {"name": profile.name, "cat": "call"}
    row = step.row
    if event.is_range:
        return {"name": row.name, "cat": "range", "args": {"program": profile.name, "step": row.number}}
    given: dict[str, Any] = {"program": profile.name, "step": row.number}
    if row.instruction is not None:
        given["opcode"] = row.instruction.opcode
    if row.location is not None:
        given["line"] = str(row.location)
    for name, value in (("flops", row.cost.flops), ("bytes", row.cost.bytes_accessed)):
        if value:
            given[name] = value
    return {"name": row.name, "cat": row.kind, "args": given}
