"""jaxlib in a child process with limits, because some programs make it abort its process or run forever.

The parent writes programs and their arguments as files into a folder, and the child, this module, writes the results
beside them. The names of files go over the child's standard input: a name of a request, a line each. Programs are
numbered, and the child keeps those that it compiled last, so that the iterations of a loop cost neither a start of
jaxlib nor a compilation each.
"""

from __future__ import annotations

import os
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from xlakit.errors import ExecutionError, InternalError, UnsupportedError
from xlakit.ir.instruction import HloModule
from xlakit.ir.operation import TOKEN

_PROGRAM, _REQUEST, _RESULT, _MESSAGES = "program", "request", "result", "messages"
# Seconds between two looks for a result: many are there at once.
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.0005, 0.02
_KEPT_PROGRAMS = 64
_LONGEST_MESSAGE = 300


class NothingToCompareError(ExecutionError):
    """The other backend gave no result: it refused the program, aborted, or exceeded the limits of time or memory."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of the child process: seconds, of all its runs together, and bytes of resident memory (on Linux only)."""

    seconds: float = 120.0
    memory: int = 4 << 30


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
        self._folder: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._programs = self._requests = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, place: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            if self._process.stdin is not None:
                # A request that was being sent is of no use any more.
                with suppress(OSError):
                    self._process.stdin.close()
        if self._folder is not None:
            shutil.rmtree(self._folder)
        self._process = self._folder = None

    def prepare(self, module: HloModule) -> Callable[[Sequence[Sequence[Any]]], list[Any]]:
        """A function that runs a module: the result of each replica, each given its own arguments.

        The function raises NothingToCompareError, and so does each after it.
        """
        folder = self._folder = self._folder or Path(tempfile.mkdtemp(prefix="xlakit-compare-"))
        self._programs += 1
        program = f"{_PROGRAM}{self._programs}"
        (folder / program).write_bytes(module.to_proto())
        return lambda arguments: self._run(folder, program, [list(given) for given in arguments])

    def _run(self, folder: Path, program: str, arguments: list[list[Any]]) -> list[Any]:
        if any(leaf is TOKEN for given in arguments for value in given for leaf in _flat(value)):
            raise NothingToCompareError(
                "tokens are not given to jaxlib", hint="leave the tokens out of the entry's parameters"
            )
        self._requests += 1
        request, result = folder / f"{_REQUEST}{self._requests}", folder / f"{_RESULT}{self._requests}"
        request.write_bytes(pickle.dumps((program, arguments)))
        process = self._process = self._process or self._start(folder)
        if process.stdin is None:
            raise InternalError("jaxlib's process was started without a pipe")
        # It may have ended, which is found below.
        with suppress(OSError):
            process.stdin.write(f"{self._requests}\n".encode())
            process.stdin.flush()
        self._wait(process, result)
        if not result.exists():
            raise _death(process.returncode, (folder / _MESSAGES).read_text(errors="replace"))
        refusal, hint, results = pickle.loads(result.read_bytes())
        result.unlink()
        if refusal:
            raise NothingToCompareError(refusal, hint=hint)
        return results

    def _start(self, folder: Path) -> subprocess.Popen[bytes]:
        with (folder / _MESSAGES).open("wb") as messages:
            return subprocess.Popen(
                [sys.executable, "-m", "xlakit.tools.jaxlib_child", str(folder)],
                stdin=subprocess.PIPE,
                stdout=messages,
                stderr=messages,
                env=child_environment(),
            )

    def _wait(self, process: subprocess.Popen[bytes], result: Path) -> None:
        start, pause = time.monotonic(), _SHORTEST_PAUSE
        while not result.exists() and process.poll() is None:
            if time.monotonic() - start > self._left:
                raise NothingToCompareError(
                    f"jaxlib gave no result in {self._limits.seconds:g} s", hint="allow more with --compare-timeout"
                )
            memory = memory_of(process.pid)
            if memory > self._limits.memory:
                raise NothingToCompareError(
                    f"jaxlib took {memory:,} bytes of memory, more than the {self._limits.memory:,} that it may have",
                    hint="allow more with --compare-memory",
                )
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
        self._left -= time.monotonic() - start


def child_environment() -> dict[str, str]:
    """The environment variables of a process that imports this package from the same folder."""
    package_folder = str(Path(__file__).resolve().parents[2])
    search_path = os.environ.get("PYTHONPATH")
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([package_folder, search_path] if search_path else [package_folder]),
    }


def memory_of(process: int) -> int:
    """The resident memory of a process in bytes; 0 if the system does not say."""
    try:
        pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    except (OSError, IndexError, ValueError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def _death(status: int, messages: str) -> NothingToCompareError:
    lines = [line.strip() for line in messages.splitlines() if line.strip()]
    # A fatal log message is a line that begins with F and the date; the last line of a traceback is the error.
    fatal = [line for line in lines if line.startswith("F") and "] " in line]
    message = (fatal or lines or ["it said nothing"])[0 if fatal else -1][:_LONGEST_MESSAGE]
    how = f"ended with status {status}"
    if status < 0:
        names = {s.value: s.name for s in signal.Signals}
        how = f"died of {names.get(-status, f'signal {-status}')}"
    return NothingToCompareError(f"jaxlib {how} on this program: {message}", hint="run it with xlakit alone")


def _flat(value: Any) -> list[Any]:
    return [leaf for v in value for leaf in _flat(v)] if isinstance(value, (tuple, list)) else [value]


def _serve(folder: Path) -> None:
    """Run the programs in a folder, and write their results there."""
    if sys.platform != "win32":
        import resource

        # No core dump: an abort is an expected outcome.
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    from xlakit.tools.jaxlib_backend import JaxlibBackend

    @lru_cache(maxsize=1)
    def backend(device_count: int) -> JaxlibBackend:
        return JaxlibBackend(device_count)

    @lru_cache(maxsize=_KEPT_PROGRAMS)
    def compiled(program: str, device_count: int) -> Callable[[list[list[Any]]], Callable[[], list[Any]]]:
        module = HloModule.from_proto((folder / program).read_bytes())
        return backend(device_count).compile(module, device_count)

    for line in sys.stdin:
        request, result = folder / f"{_REQUEST}{line.strip()}", folder / f"{_RESULT}{line.strip()}"
        program, arguments = pickle.loads(request.read_bytes())
        request.unlink()
        refusal, hint, results = "", "", []
        try:
            results = compiled(program, len(arguments))(arguments)()
        except UnsupportedError as error:
            refusal, hint = error.rule, error.hint
        written = result.with_suffix(".part")
        written.write_bytes(pickle.dumps((refusal, hint, results)))
        # It has all of its bytes when the parent sees it.
        written.rename(result)


if __name__ == "__main__":
    _serve(Path(sys.argv[1]))
