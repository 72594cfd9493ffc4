"""The memory of a client's arrays and executables as pprof profiles, and their conversion to JSON and back.

pprof's ``profile.proto`` names texts by their places in a table, functions and locations by numbers from 1.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from google.protobuf import json_format

from xlakit.compat.xla_client.binding import bound
from xlakit.compat.xla_client.runtime.tracebacks import Traceback
from xlakit.errors import FormatError
from xlakit.formats.hlo_proto import schema


class _Profile:
    """A profile in the making; equal texts, functions and lines are written once."""

    def __init__(self) -> None:
        self.message = schema.new("PprofProfile")
        self._texts: dict[str, int] = {}
        self._functions: dict[tuple[str, str, int], int] = {}
        self._locations: dict[tuple[int, int], int] = {}
        self.text("")
        for kind, unit in (("allocations", "count"), ("space", "bytes")):
            self.message.sample_type.add(type=self.text(kind), unit=self.text(unit))

    def text(self, text: str) -> int:
        number = self._texts.setdefault(text, len(self._texts))
        if number == len(self.message.string_table):
            self.message.string_table.append(text)
        return number

    def add(self, traceback: Traceback | None, size: int, **labels: str) -> None:
        """Add ``size`` bytes, allocated at a traceback."""
        frames = () if traceback is None else traceback.frames
        sample = self.message.sample.add(value=[1, size])
        for frame in frames:
            function = self._function(frame.file_name, frame.function_name, frame.function_start_line)
            sample.location_id.append(self._location(function, frame.line_num))
        for key, value in labels.items():
            sample.label.add(key=self.text(key), str=self.text(value))

    def _function(self, file: str, name: str, line: int) -> int:
        number = self._functions.setdefault((file, name, line), len(self._functions) + 1)
        if number > len(self.message.function):
            text = self.text(name)
            self.message.function.add(id=number, name=text, system_name=text, filename=self.text(file), start_line=line)
        return number

    def _location(self, function: int, line: int) -> int:
        number = self._locations.setdefault((function, line), len(self._locations) + 1)
        if number > len(self.message.location):
            self.message.location.add(id=number).line.add(function_id=function, line=line)
        return number


def heap_profile_of(arrays: Iterable[Any], executables: Iterable[Any]) -> bytes:
    """A serialized profile of the memory of arrays and machine code, by the line where they were made."""
    profile = _Profile()
    for array in arrays:
        profile.add(array.traceback, array.nbytes, kind="buffer", device=str(array.device))
    for executable in executables:
        profile.add(executable.traceback, executable.size_of_generated_code_in_bytes(), kind="executable")
    return profile.message.SerializeToString()


@bound
def pprof_profile_to_json(data: bytes, /) -> str:
    """A serialized profile as JSON. Raises XlaRuntimeError for what is none."""
    found = json_format.MessageToDict(schema.parse("PprofProfile", data))
    return json.dumps(found, separators=(",", ":"))


@bound
def json_to_pprof_profile(text: str, /) -> bytes:
    """The serialized profile of JSON. Raises XlaRuntimeError for what is none."""
    try:
        return json_format.Parse(text, schema.new("PprofProfile")).SerializeToString()
    except json_format.ParseError as error:
        raise FormatError(f"no profile: {error}", hint="give what pprof_profile_to_json returns") from None
