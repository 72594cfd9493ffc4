"""Every error that xlakit raises.

An error says which rule is broken (``rule``), where (``operation``, ``shapes``, ``location``) and what to do
(``hint``). The code that finds a fault raises the rule; callers add what they know with :meth:`XlakitError.at`
while the error propagates.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from types import CodeType, TracebackType
from typing import Any, NamedTuple, Self

# The longest line of an error: longer than lines with many operands, and shorter than a screen.
_LONGEST_LINE = 2000


def meant(word: str, known: Iterable[str], otherwise: str = "", *, shown: Mapping[str, str] | None = None) -> str:
    """The hint of an error about an unknown word: the known ones that are like it, or ``otherwise``.

    shown: what the hint has in place of a known word.
    """
    from difflib import get_close_matches  # loaded with the first of these errors

    names = list(known)
    # The search takes time proportional to the number of names, and among very many a close one means nothing.
    near = get_close_matches(word, names, 3) if len(names) <= 2000 else []
    return f"did you mean {' or '.join((shown or {}).get(name, name) for name in near)}?" if near else otherwise


def headline(error: BaseException) -> str:
    """The first line of an error's message, or two after a colon; its type where it has none."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    return " ".join(lines[: 2 if lines[0].endswith(":") else 1])


class Location(NamedTuple):
    """A line and column of a file, counted from 1; ``column`` is 0 if only the line is known."""

    file: str
    line: int
    column: int = 0

    def __str__(self) -> str:
        column = f":{self.column}" if self.column else ""
        return f"{self.file}:{self.line}{column}"


class XlakitError(Exception):
    """The base of all errors that a person's program, file or command can cause."""

    def __init__(
        self,
        rule: str,
        *,
        operation: str = "",
        shapes: Sequence[object] = (),
        hint: str = "",
        location: Location | None = None,
    ) -> None:
        super().__init__(rule)
        self.rule = rule
        self.operation = operation
        self.shapes = tuple(str(shape) for shape in shapes)
        self.hint = hint
        self.location = location

    def at(
        self,
        *,
        operation: str = "",
        shapes: Sequence[object] = (),
        location: Location | None = None,
        hint: str = "",
    ) -> Self:
        """Fill in fields that are still empty; the others stay as they are."""
        self.operation = self.operation or operation
        self.shapes = self.shapes or tuple(str(shape) for shape in shapes)
        self.location = self.location or location
        self.hint = self.hint or hint
        return self

    @property
    def headline(self) -> str:
        """The first line of the error: the operation, if it is known, and the rule that is broken."""
        return f"{self.operation}: {self.rule}" if self.operation else self.rule

    def __reduce__(self) -> tuple[Any, ...]:
        # Subclasses take other arguments than their fields, so pickling restores the fields.
        return _again, (type(self), self.args), self.__dict__

    def __str__(self) -> str:
        lines = [self.headline]
        if self.shapes:
            lines.append(f"  operands: {', '.join(self.shapes)}")
        if self.location is not None:
            lines.append(f"  at: {self.location}")
        if self.hint:
            lines.append(f"  hint: {self.hint}")
        return "\n".join(map(_shortened, lines))

    def _render_traceback_(self) -> list[str]:
        """Called by IPython: the traceback up to the last frame outside of this package.

        IPython hides frames with a local ``__tracebackhide__``, but never the last one, where the error was raised.
        """
        shell: Any = sys.modules["IPython"].get_ipython()
        return shell.InteractiveTB.structured_traceback(type(self), self, outside(self.__traceback__))


_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep


def outside(traceback: TracebackType | None) -> TracebackType | None:
    """A traceback without the frames of this package; the whole traceback if it has no others."""
    kept: list[TracebackType] = []
    step = traceback
    while step is not None:
        if not step.tb_frame.f_code.co_filename.startswith(_PACKAGE):
            kept.append(step)
        step = step.tb_next
    made: TracebackType | None = None
    for step in reversed(kept):
        made = TracebackType(made, step.tb_frame, step.tb_lasti, step.tb_lineno)
    return made or traceback


def _again(kind: type[XlakitError], args: tuple[Any, ...]) -> XlakitError:
    return kind.__new__(kind, *args)


def _shortened(line: str) -> str:
    """A line without its middle, if it is as long as a list of thousands of elements makes it."""
    return line if len(line) <= _LONGEST_LINE else f"{line[: _LONGEST_LINE // 2]} ... {line[-_LONGEST_LINE // 4 :]}"


class ShapeError(XlakitError, ValueError):
    """A shape, layout, index or attribute breaks a rule of the language."""


class LiteralError(XlakitError, ValueError):
    """A value does not fit its shape or type."""


class VerificationError(XlakitError, ValueError):
    """A module, computation or instruction is not well formed."""


class UnsupportedError(XlakitError, NotImplementedError):
    """A legal program or option that xlakit does not support; ``docs/support.md`` lists all of them."""


class UnregisteredError(UnsupportedError):
    """A custom call whose target is not registered."""


class ArgumentError(XlakitError, TypeError):
    """A call was given arguments of the wrong number, type, shape or value."""


class ExecutionError(XlakitError, RuntimeError):
    """A program could not go on while it ran."""


class HandlerError(ExecutionError):
    """A handler of XLA's typed FFI has failed. ``code`` is the name of its error's code: ``INVALID_ARGUMENT``."""

    def __init__(self, rule: str, *, code: str) -> None:
        super().__init__(rule)
        self.code = code


class DeadlockError(ExecutionError):
    """Replicas, feeds or channels wait for each other and none can go on."""


class RankError(ExecutionError):
    """Another process of a distributed run has failed, is absent, or does something else."""


class ResourceError(ExecutionError):
    """A program needs more memory than it may have."""


class DeletedBufferError(XlakitError, RuntimeError):
    """A buffer is used that was deleted, or donated to a program."""


class InternalError(XlakitError, RuntimeError):
    """The compiler broke a rule of its own: a fault of xlakit, not of the program."""


@contextmanager
def internal_errors(doing: str, *, verified: bool = False) -> Generator[None]:
    """Turn unexpected exceptions inside the block into InternalError, which says that xlakit is at fault.

    doing: the activity, such as "compiling module m". verified: whether the program is known to be well formed, so that
    a rule of the language that is broken now was broken by the compiler.
    """
    try:
        yield
    except InternalError as error:
        raise error.at(hint=_GOING_ON) from error.__cause__
    except (ShapeError, VerificationError) as error:
        if not verified:
            raise
        raise InternalError(f"{doing} broke a rule: {error}", hint=_GOING_ON) from error
    except (XlakitError, MemoryError):
        raise
    except Exception as error:
        if raised_by_handler(error) is not None:
            raise
        raise InternalError(f"{doing} ended in {type(error).__name__}: {error}", hint=_GOING_ON) from error


@contextmanager
def naming_file(file: str) -> Generator[None]:
    """Give an OSError the file's name: Python does where a file cannot be opened, but not where it cannot be read or
    written to its end.
    """
    try:
        yield
    except OSError as error:
        error.filename = error.filename or file
        raise


def raised_by_handler(error: BaseException) -> BaseException | None:
    """Of an exception and its causes, the one that a handler of a signal raised; None if there is none.

    Python runs handlers between any two instructions of its first thread. What no handler of Exception catches, such as
    KeyboardInterrupt, is taken for theirs as well.
    """
    if threading.current_thread() is not threading.main_thread():
        return None
    codes = {_code_of(signal.getsignal(number)) for number in signal.valid_signals()} - {None}
    cause: BaseException | None = error
    while cause is not None:
        frames = traceback.walk_tb(cause.__traceback__)
        if not isinstance(cause, Exception) or any(frame.f_code in codes for frame, _ in frames):
            return cause
        cause = cause.__cause__
    return None


def _code_of(handler: Any) -> CodeType | None:
    """The code of a function, of a method, of a partial application or of an object that can be called."""
    while isinstance(handler, partial):
        handler = handler.func
    if callable(handler) and not hasattr(handler, "__code__"):
        handler = getattr(handler, "__func__", None) or type(handler).__call__
    return getattr(handler, "__code__", None)


_GOING_ON = (
    "this is a fault of xlakit, not of the program: please report it with the program's text; until it is mended, "
    "backend='interpreter' (on the command line --backend interpreter) runs the program without the compiler"
)


class FormatError(XlakitError, ValueError):
    """A proto, bytecode or file is not what it claims to be."""


class ParseError(FormatError):
    """Text that is not HLO: shows the line, a caret under the column, and what was expected."""

    def __init__(self, rule: str, *, source: str, offset: int, name: str = "<text>", hint: str = "") -> None:
        start = source.rfind("\n", 0, offset) + 1
        end = source.find("\n", offset)
        line = (source[start:] if end < 0 else source[start:end]).rstrip("\r")
        self.offset = offset
        self.line = source.count("\n", 0, start) + 1
        self.column = offset - start + 1
        self.text = line
        super().__init__(rule, hint=hint, location=Location(name, self.line, self.column))

    def __str__(self) -> str:
        # A dump can have lines of a megabyte: show a window around the column.
        left = max(0, self.column - 1 - 60)
        window = self.text[left : left + 120].replace("\t", " ")
        caret = " " * (self.column - 1 - left) + "^"
        lines = [f"{self.location}: {self.rule}", f"  {window}", f"  {caret}"]
        if self.hint:
            lines.append(f"  hint: {self.hint}")
        return "\n".join(lines)
