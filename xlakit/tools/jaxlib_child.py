"""jaxlib in a child process with limits, because some programs make it abort its process or run forever.

The child keeps the programs that it compiled last, so that the iterations of a loop cost neither a start of jaxlib nor
a compilation each.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from xlakit.child_process import Child, Limits, Unanswered, serve
from xlakit.errors import ExecutionError, UnsupportedError
from xlakit.ir.instruction import HloModule
from xlakit.ir.operation import TOKEN

if TYPE_CHECKING:
    from xlakit.tools.jaxlib_backend import JaxlibBackend

_KEPT_PROGRAMS = 64
_LONGEST_MESSAGE = 300


class NothingToCompareError(ExecutionError):
    """The other backend gave no result: it refused the program, aborted, or exceeded the limits of time or memory."""


def run_on_jaxlib(module: HloModule, arguments: Sequence[Sequence[Any]], limits: Limits) -> list[Any]:
    """The result of each replica of a module, each given its own arguments. Raises NothingToCompareError."""
    with Jaxlib(limits) as jaxlib:
        return jaxlib.prepare(module)(arguments)


class Jaxlib:
    """jaxlib in a process that runs programs of equally many replicas, until it has taken the seconds of its limits for
    all of them together; a context manager. The process starts with the first run.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._left = limits.seconds
        self._messages = tempfile.TemporaryFile()  # noqa: SIM115
        self._child: Child | None = None
        # Why there are no more results: a late answer would be taken for that of the next request.
        self._failure: NothingToCompareError | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, place: TracebackType | None
    ) -> None:
        if self._child is not None:
            self._child.end()
        self._child = None
        self._messages.close()

    def prepare(self, module: HloModule) -> Callable[[Sequence[Sequence[Any]]], list[Any]]:
        """A function that runs a module: the result of each replica, each given its own arguments.

        The function raises NothingToCompareError, and so does each after it.
        """
        program = module.to_proto()
        return lambda arguments: self._run(program, [list(given) for given in arguments])

    def _run(self, program: bytes, arguments: list[list[Any]]) -> list[Any]:
        if any(leaf is TOKEN for given in arguments for value in given for leaf in _flat(value)):
            raise NothingToCompareError(
                "tokens are not given to jaxlib", hint="leave the tokens out of the entry's parameters"
            )
        if self._failure is not None:
            raise self._failure
        child = self._child = self._child or self._start()
        start = time.monotonic()
        try:
            answer = child.ask((program, arguments), replace(self._limits, seconds=self._left))
        except Unanswered as error:
            self._failure = self._without_result(child, error)
            raise self._failure from None
        self._left -= time.monotonic() - start
        if isinstance(answer, UnsupportedError):
            raise NothingToCompareError(answer.rule, hint=answer.hint)
        return answer

    def _start(self) -> Child:
        return Child("xlakit.tools.jaxlib_child", messages=self._messages)

    def _without_result(self, child: Child, error: Unanswered) -> NothingToCompareError:
        if error.why == "timed out":
            return NothingToCompareError(
                f"jaxlib gave no result in {self._limits.seconds:g} s", hint="allow more with --compare-timeout"
            )
        if error.why == "out of memory":
            return NothingToCompareError(
                f"jaxlib took {error.memory:,} bytes of memory, more than the {self._limits.memory:,} that it may have",
                hint="allow more with --compare-memory",
            )
        ending = child.ending()
        self._messages.seek(0)
        lines = [line.strip() for line in self._messages.read().decode(errors="replace").splitlines() if line.strip()]
        # A fatal log message is a line that begins with F and the date; the last line of a traceback is the error.
        fatal = [line for line in lines if line.startswith("F") and "] " in line]
        message = (fatal or lines or ["it said nothing"])[0 if fatal else -1][:_LONGEST_MESSAGE]
        return NothingToCompareError(f"jaxlib {ending} on this program: {message}", hint="run it with xlakit alone")


def _flat(value: Any) -> list[Any]:
    return [leaf for v in value for leaf in _flat(v)] if isinstance(value, (tuple, list)) else [value]


def _answer(request: tuple[bytes, list[list[Any]]]) -> list[Any] | UnsupportedError:
    """The child: the results of a program, or jaxlib's refusal."""
    program, arguments = request
    try:
        return _compiled(program, len(arguments))(arguments)()
    except UnsupportedError as error:
        return error


@lru_cache(maxsize=1)
def _backend(device_count: int) -> JaxlibBackend:
    from xlakit.tools.jaxlib_backend import JaxlibBackend

    return JaxlibBackend(device_count)


@lru_cache(maxsize=_KEPT_PROGRAMS)
def _compiled(program: bytes, device_count: int) -> Callable[[list[list[Any]]], Callable[[], list[Any]]]:
    return _backend(device_count).compile(HloModule.from_proto(program), device_count)


if __name__ == "__main__":
    serve(_answer)
