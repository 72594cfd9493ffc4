"""XSpace: profiles as TensorBoard, XProf and JAX's profiler keep them.

Source: ``xplane.proto``, whose names and numbers are facts.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from xlakit.dataclass import dataclass
from xlakit.formats.hlo_proto import schema


@dataclass(frozen=True, slots=True)
class Span:
    """An event with a duration, in nanoseconds of the monotonic clock; ``stats`` are its named values."""

    name: str
    begin: int
    end: int
    stats: Mapping[str, str | int | float]


@dataclass(frozen=True, slots=True)
class Line:
    """The spans of a thread."""

    number: int
    name: str
    spans: Sequence[Span]


def write_xspace(plane_name: str, lines: Iterable[Line], warnings: Sequence[str] = ()) -> bytes:
    """A serialized XSpace of one plane, with times converted from the monotonic clock to the wall clock."""
    space = schema.new("XSpace")
    plane = space.planes.add(name=plane_name)
    space.warnings.extend(warnings)
    distance = time.time_ns() - now()
    names = _Names(plane.event_metadata)
    stats = _Names(plane.stat_metadata)
    for line in lines:
        written = plane.lines.add(id=line.number, name=line.name)
        start = min((span.begin for span in line.spans), default=0)
        written.timestamp_ns = start + distance
        for span in sorted(line.spans, key=lambda span: (span.begin, -span.end)):
            event = written.events.add(metadata_id=names.number(span.name))
            event.offset_ps = (span.begin - start) * 1000
            event.duration_ps = (span.end - span.begin) * 1000
            for name, value in span.stats.items():
                _set(event.stats.add(metadata_id=stats.number(name)), value)
    return space.SerializeToString()


def now() -> int:
    """The monotonic clock, in nanoseconds."""
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)


def plane_names(xspace: bytes) -> list[str]:
    """The names of the planes of an XSpace. Raises FormatError for other bytes."""
    return [plane.name for plane in schema.parse("XSpace", xspace).planes]


def chrome_events(xspace: bytes) -> list[dict[str, Any]]:
    """The events of an XSpace in the form of Chrome's traces, in microseconds from the first one.

    Raises FormatError for other bytes.
    """
    space = schema.parse("XSpace", xspace)
    lines = [(number, plane, line) for number, plane in enumerate(space.planes, start=1) for line in plane.lines]
    start = min((line.timestamp_ns for _, _, line in lines), default=0)
    made: list[dict[str, Any]] = []
    for number, plane, line in lines:
        place = {"pid": number, "tid": line.id}
        for event in line.events:
            begin = (line.timestamp_ns - start) / 1e3 + event.offset_ps / 1e6
            stats = {plane.stat_metadata[s.metadata_id].name: str(_value(s)) for s in event.stats}
            name = plane.event_metadata[event.metadata_id].name
            made.append({"ph": "X", "name": name, **place, "ts": begin, "dur": event.duration_ps / 1e6, "args": stats})
        made.append({"ph": "M", "name": "thread_name", **place, "args": {"name": line.name}})
    names = enumerate(space.planes, start=1)
    return made + [{"ph": "M", "name": "process_name", "pid": n, "args": {"name": plane.name}} for n, plane in names]


def _value(stat: Any) -> Any:
    return getattr(stat, stat.WhichOneof("value") or "int64_value")


class _Names:
    """Names that events refer to by numbers from 1."""

    def __init__(self, metadata: Any) -> None:
        self._metadata = metadata
        self._numbers: dict[str, int] = {}

    def number(self, name: str) -> int:
        number = self._numbers.get(name)
        if number is None:
            number = self._numbers[name] = len(self._numbers) + 1
            entry = self._metadata[number]
            entry.id, entry.name = number, name
        return number


def _set(stat: Any, value: str | int | float) -> None:
    if isinstance(value, str):
        stat.str_value = value
    elif isinstance(value, int):
        stat.int64_value = value
    else:
        stat.double_value = value
