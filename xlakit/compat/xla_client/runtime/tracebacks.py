"""Traceback and Frame: the Python stack where an array or executable was made."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from types import CodeType, FrameType, FunctionType, TracebackType
from typing import Any, ClassVar

from xlakit.compat.xla_client.binding import bound, incompatible
from xlakit.compat.xla_client.errors import XlaRuntimeError

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


class Frame:
    """A line of a function."""

    __slots__ = ("_fields",)

    @bound
    def __init__(self, file_name: str, function_name: str, function_start_line: int, line_num: int, /) -> None:
        self._fields = file_name, function_name, function_start_line, line_num

    @property
    def file_name(self) -> str:
        """The file."""
        return self._fields[0]

    @property
    def function_name(self) -> str:
        """The function."""
        return self._fields[1]

    @property
    def function_start_line(self) -> int:
        """The line where the function begins."""
        return self._fields[2]

    @property
    def line_num(self) -> int:
        """The line."""
        return self._fields[3]

    def __repr__(self) -> str:
        return f"{self.function_name};{self.file_name}:{self.line_num}"


class _TracebackType(type):
    """The class of Traceback, whose attribute ``enabled`` is True or False."""

    def __setattr__(cls, name: str, value: object) -> None:
        if name == "enabled" and not isinstance(value, bool):
            raise incompatible("enabled", f"enabled is True or False, not a {type(value).__name__}")
        super().__setattr__(name, value)


class Traceback(metaclass=_TracebackType):
    """The Python stack of a thread, the innermost frame first, without frames of this package."""

    __slots__ = ("_codes", "_offsets")

    enabled: ClassVar[bool] = True

    def __init__(self, codes: Sequence[CodeType], offsets: Sequence[int]) -> None:
        self._codes = tuple(codes)
        self._offsets = tuple(offsets)

    @staticmethod
    def get_traceback() -> Traceback | None:
        """The traceback of the calling thread; None if tracebacks are disabled."""
        if not Traceback.enabled:
            return None
        codes: list[CodeType] = []
        offsets: list[int] = []
        frame: FrameType | None = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
        while frame is not None:
            if not frame.f_code.co_filename.startswith(_PACKAGE):
                codes.append(frame.f_code)
                offsets.append(frame.f_lasti)
            frame = frame.f_back
        return Traceback(codes, offsets)

    @property
    def frames(self) -> list[Frame]:
        """The lines, the innermost first."""
        return [
            Frame(code.co_filename, code.co_name, code.co_firstlineno, Traceback.code_addr2line(code, offset))
            for code, offset in zip(self._codes, self._offsets, strict=True)
        ]

    def raw_frames(self) -> tuple[list[CodeType], list[int]]:
        """The code objects and the offsets of their instructions."""
        return list(self._codes), list(self._offsets)

    def as_python_traceback(self) -> Any:
        """A traceback of Python; the outermost frame comes first."""
        return Traceback.traceback_from_frames(self.frames)

    @staticmethod
    def traceback_from_frames(frames: Sequence[Frame], /) -> Any:
        """A traceback of Python with the given lines, the innermost first in ``frames``."""
        made: TracebackType | None = None
        for frame in frames:
            made = TracebackType(made, _frame_at(frame), 0, frame.line_num)
        return made

    @staticmethod
    def code_addr2line(code: CodeType, lasti: int, /) -> int:
        """The line of an instruction of a code object. Raises XlaRuntimeError for another object."""
        _check_code(code)
        for start, end, line in code.co_lines():
            if start <= lasti < end and line is not None:
                return line
        return code.co_firstlineno

    @staticmethod
    def code_addr2location(code: CodeType, lasti: int, /) -> tuple[int, int, int, int]:
        """First line and column, and last line and column, of an instruction of a code object."""
        _check_code(code)
        for number, position in enumerate(code.co_positions()):
            if number == lasti // 2:
                line, end_line, column, end_column = position
                return line or code.co_firstlineno, column or 0, end_line or line or 0, end_column or 0
        return code.co_firstlineno, 0, code.co_firstlineno, 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Traceback) and (self._codes, self._offsets) == (other._codes, other._offsets)

    def __hash__(self) -> int:
        return hash((self._codes, self._offsets))

    def __str__(self) -> str:
        return "\n".join(f"{f.file_name}:{f.line_num} ({f.function_name})" for f in self.frames)


def _check_code(code: object) -> None:
    if not isinstance(code, CodeType):
        # Without a status, as in jaxlib.
        raise XlaRuntimeError("code argument must be a code object")


# The code of a function of one line, which gives its own frame.
_FRAME_CODE = next(code for code in compile("lambda: frame(0)", "", "eval").co_consts if isinstance(code, CodeType))


def _frame_at(frame: Frame) -> FrameType:
    """A frame that Python's module ``traceback`` takes for that function, file and line; it has no variables."""
    # Python reads lines from the code, not from the traceback: the function must be where the line is.
    code = _FRAME_CODE.replace(
        co_filename=frame.file_name, co_name=frame.function_name, co_firstlineno=max(1, frame.line_num)
    )
    scope: dict[str, Any] = {"frame": sys._getframe}  # pyright: ignore[reportPrivateUsage]
    made: FrameType = FunctionType(code, scope)()
    scope.clear()
    return made


@contextmanager
def tracebacks(enabled: bool = True) -> Generator[None]:
    """Enable or disable the collection of tracebacks inside a ``with`` block."""
    saved = Traceback.enabled
    Traceback.enabled = enabled
    try:
        yield
    finally:
        Traceback.enabled = saved


def replace_thread_exc_traceback(traceback: Any, /) -> None:
    """Give the exception that is being handled another traceback."""
    error = sys.exc_info()[1]
    if error is None:
        raise RuntimeError("no exception is being handled")
    error.__traceback__ = traceback
