"""Conversion of MLIR's locations to the metadata of instructions and to stack frames."""

from __future__ import annotations

from typing import Any, Final

from xlakit.formats.stablehlo.bytecode import Bytecode
from xlakit.formats.stablehlo.values import CallSite, Name, Range
from xlakit.ir.attributes import NO_ANNOTATIONS, Annotations, OpMetadata, StackFrames

_NO_CALLER: Final = 0


class Locations:
    """The metadata of locations, and the tables of frames that it points into."""

    def __init__(self, code: Bytecode) -> None:
        self._code = code
        self._annotations: dict[int, Annotations] = {}
        self._files: dict[str, int] = {}
        self._functions: dict[str, int] = {}
        self._places: dict[tuple[int, int, int, int, int, int], int] = {}
        self._frames: dict[tuple[int, int], int] = {}
        self._known: dict[tuple[int, int], int] = {}

    def annotations(self, location: int | None) -> Annotations:
        """The annotations of an instruction at a location, by its number: its metadata."""
        if location is None:
            return NO_ANNOTATIONS
        found = self._annotations.get(location)
        if found is None:
            found = self._annotations[location] = self._read_annotations(location)
        return found

    def _read_annotations(self, number: int) -> Annotations:
        attribute, name = self._code.attribute, ""
        location = attribute(number)
        # A name around a range in a file is the function's; any other is the name of the operation.
        if isinstance(location, Name) and not isinstance(attribute(location.at), Range):
            name, number = location.name, location.at
        if name.endswith(":"):
            # The name of the operation's kind, which encloses the location with the operation's own name.
            location, name = attribute(number), ""
            if isinstance(location, Name):
                name, number = location.name, location.at
        frame = self._frame(number, _NO_CALLER)
        if not name and not frame:
            return NO_ANNOTATIONS
        return Annotations(metadata=OpMetadata(op_name=name, stack_frame_id=frame))

    def _frame(self, number: int, caller: int) -> int:
        """The number of a location's frame, called from a frame; 0 if it is in no file."""
        # Frames are cached, as locations share their callers, of which each may have dozens.
        found = self._known.get((number, caller))
        if found is None:
            found = self._known[number, caller] = self._new_frame(self._code.attribute(number), caller)
        return found

    def _new_frame(self, location: Any, caller: int) -> int:
        if isinstance(location, CallSite):
            return self._frame(location.callee, self._frame(location.caller, caller) or caller)
        function = ""
        if isinstance(location, Name):
            function, location = location.name, self._code.attribute(location.at)
        if not isinstance(location, Range):
            return 0
        place = (
            _number(self._files, location.file),
            _number(self._functions, function),
            location.line,
            location.end_line,
            location.column,
            location.end_column,
        )
        return _number(self._frames, (_number(self._places, place), caller))

    def stack_frames(self) -> StackFrames:
        """The tables that the metadata points into."""
        return StackFrames(tuple(self._files), tuple(self._functions), tuple(self._places), tuple(self._frames))


def _number(table: dict[Any, int], key: Any) -> int:
    return table.setdefault(key, len(table) + 1)
