"""jaxlib in a child process with limits, because some programs make it abort its process or run forever.

The parent writes the program and its arguments into a folder, starts this module, and reads the results from the
folder.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xlakit.errors import ExecutionError, UnsupportedError
from xlakit.ir.instruction import HloModule
from xlakit.ir.operation import TOKEN

_REQUEST, _RESULT, _MESSAGES = "request", "result", "messages"
_POLL_SECONDS = 0.02
_LONGEST_MESSAGE = 300


class NothingToCompareError(ExecutionError):
    """The other backend gave no result: it refused the program, aborted, or exceeded the limits of time or memory."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of the child process: seconds, and bytes of resident memory (measured on Linux only)."""

    seconds: float = 120.0
    memory: int = 4 << 30


def run_on_jaxlib(module: HloModule, arguments: Sequence[Sequence[Any]], limits: Limits) -> list[Any]:
    """The result of each replica of a module, each given its own arguments. Raises NothingToCompareError."""
    if any(leaf is TOKEN for given in arguments for value in given for leaf in _flat(value)):
        raise NothingToCompareError(
            "tokens are not given to jaxlib", hint="leave the tokens out of the entry's parameters"
        )
    with tempfile.TemporaryDirectory(prefix="xlakit-compare-") as name:
        folder = Path(name)
        (folder / _REQUEST).write_bytes(pickle.dumps((module.to_proto(), [list(given) for given in arguments])))
        with (folder / _MESSAGES).open("wb") as messages:
            process = subprocess.Popen(
                [sys.executable, "-m", "xlakit.tools.jaxlib_child", name],
                stdin=subprocess.DEVNULL,
                stdout=messages,
                stderr=messages,
                env=child_environment(),
            )
            try:
                _wait(process, limits)
            finally:
                process.kill()
                process.wait()
        if process.returncode != 0 or not (folder / _RESULT).exists():
            raise _death(process.returncode, (folder / _MESSAGES).read_text(errors="replace"))
        refusal, hint, results = pickle.loads((folder / _RESULT).read_bytes())
    if refusal:
        raise NothingToCompareError(refusal, hint=hint)
    return results


def child_environment() -> dict[str, str]:
    """The environment variables of a process that imports this package from the same folder."""
    package_folder = str(Path(__file__).resolve().parents[2])
    search_path = os.environ.get("PYTHONPATH")
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([package_folder, search_path] if search_path else [package_folder]),
    }


def _wait(process: subprocess.Popen[bytes], limits: Limits) -> None:
    start = time.monotonic()
    while process.poll() is None:
        if time.monotonic() - start > limits.seconds:
            raise NothingToCompareError(
                f"jaxlib gave no result in {limits.seconds:g} s", hint="allow more with --compare-timeout"
            )
        memory = memory_of(process.pid)
        if memory > limits.memory:
            raise NothingToCompareError(
                f"jaxlib took {memory:,} bytes of memory, more than the {limits.memory:,} that it may have",
                hint="allow more with --compare-memory",
            )
        time.sleep(_POLL_SECONDS)


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
    """Run the program in a folder, and write its results there."""
    if sys.platform != "win32":
        import resource

        # No core dump: an abort is an expected outcome.
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    from xlakit.tools.jaxlib_backend import JaxlibBackend

    data, arguments = pickle.loads((folder / _REQUEST).read_bytes())
    refusal, hint, results = "", "", []
    try:
        results = JaxlibBackend(len(arguments)).run_replicas(HloModule.from_proto(data), arguments)
    except UnsupportedError as error:
        refusal, hint = error.rule, error.hint
    (folder / _RESULT).write_bytes(pickle.dumps((refusal, hint, results)))


if __name__ == "__main__":
    _serve(Path(sys.argv[1]))
