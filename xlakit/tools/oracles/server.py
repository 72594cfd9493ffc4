"""A process that observes modules for another one, each in a child of its own.

It loads what observing needs once, and forks for each module, so that a module costs no start of Python, and one that
ends or blocks its process harms nothing else. It reads requests from standard input and writes reports to standard
output, both pickled and behind their length in 8 bytes.

    caller                      server                      child
    oracle, files      ---->    loads them
                       <----    None, or the error
    module, environment, limits
                       ---->    forks           ---->       observes
                                waits, kills    <----       pickles what it has observed, and what it has imported
    report             <----    imports that, too

Much of xlakit is imported where it is first needed. What one child has imported is imported here, so that the next
ones, which are made of this process, need not do it again.
"""

from __future__ import annotations

import os
import pickle
import runpy
import select
import signal
import sys
import time
import traceback
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import IO, Any

from xlakit.errors import ArgumentError, Location, XlakitError
from xlakit.ir.instruction import HloModule
from xlakit.tools.jaxlib_child import Limits, memory_of
from xlakit.tools.oracles.oracle import Oracle, Report, observed

_LENGTH = 8
_POLL_SECONDS = 0.05
_PIECE = 1 << 16
# What starts no threads when it is imported, so that a process can be forked afterwards.
_PACKAGES = ("xlakit.", "numpy.", "google.protobuf.", "llvmlite.")


def send(stream: IO[bytes], value: Any) -> None:
    """Write a value. Raises BrokenPipeError where the other side has ended."""
    data = pickle.dumps(value)
    stream.write(len(data).to_bytes(_LENGTH, "little") + data)
    stream.flush()


def receive(stream: IO[bytes]) -> Any:
    """Read a value. Raises EOFError where the other side has ended."""
    length = stream.read(_LENGTH)
    data = stream.read(int.from_bytes(length, "little"))
    if len(length) < _LENGTH or len(data) < int.from_bytes(length, "little"):
        raise EOFError
    return pickle.loads(data)


def _serve(requests: IO[bytes], reports: IO[bytes]) -> None:
    oracle, files = receive(requests)
    try:
        for file in files:
            load_file(file)
        oracle.prepare()
    except XlakitError as error:
        send(reports, error)
        return
    send(reports, None)
    while True:
        try:
            data, environment, limits, replaced = receive(requests)
        except EOFError:
            return
        if replaced is not None:
            oracle = replaced
        send(reports, _report(oracle, data, environment, limits))


def load_file(file: str) -> None:
    """Run a file of Python that registers backends or custom calls. Raises ArgumentError."""
    path = Path(file)
    if not path.is_file():
        what = "it is a folder" if path.is_dir() else "there is no such file"
        raise ArgumentError(f"{file} cannot be loaded: {what}", hint="give the path of a file of Python")
    try:
        runpy.run_path(file)
    # SystemExit is caught, too, as a script that exits would end the command without a message.
    except (Exception, SystemExit) as error:
        line = _line_in(file, error)
        raise ArgumentError(
            f"{file} cannot be loaded: {type(error).__name__}: {error}",
            location=None if line is None else Location(file, line),
            hint="it is Python that registers custom calls, backends and such",
        ) from None


def _line_in(file: str, error: BaseException) -> int | None:
    """The line of a file that an error comes from: the innermost one in it."""
    if isinstance(error, SyntaxError) and error.filename == file:
        return error.lineno
    frames = traceback.extract_tb(error.__traceback__)
    return next((frame.lineno for frame in reversed(frames) if frame.filename == file), None)


def _report(oracle: Oracle, data: bytes, environment: dict[str, str], limits: Limits) -> Report:
    """What a child observes of a module, within limits."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.close(read)
        _observe(oracle, data, environment, write)
    os.close(write)
    try:
        return _waited(child, read, limits)
    finally:
        os.close(read)
        _end(child)


def _observe(oracle: Oracle, data: bytes, environment: dict[str, str], write: int) -> None:
    """The child: does not return."""
    status = 1
    try:
        # A group of its own, which ends with everything that it has started.
        os.setsid()
        before = set(sys.modules)
        result = observed(oracle, HloModule.from_proto(data), environment)
        imported = [name for name in sys.modules.keys() - before if name.startswith(_PACKAGES)]
        with os.fdopen(write, "wb") as stream:
            stream.write(pickle.dumps((result, imported)))
        status = 0
    finally:
        # os._exit, as a normal exit of Python would wait for the program's threads, which may block forever.
        os._exit(status)


def _waited(child: int, read: int, limits: Limits) -> Report:
    deadline = time.monotonic() + limits.seconds
    pieces: list[bytes] = []
    while True:
        left = deadline - time.monotonic()
        if left <= 0:
            return Report("timed out", detail=f"after {limits.seconds:.3g} s")
        if not select.select([read], [], [], min(left, _POLL_SECONDS))[0]:
            if memory_of(child) > limits.memory:
                return Report("out of memory", detail=f"of {limits.memory >> 20} MiB")
            continue
        piece = os.read(read, _PIECE)
        if not piece:
            break
        pieces.append(piece)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    if code == 0:
        result, imported = pickle.loads(b"".join(pieces))
        for name in imported:
            import_module(name)
        return Report("ended", result)
    names = {s.value: s.name for s in signal.Signals}
    return Report("died", detail=f"of {names.get(-code, f'signal {-code}')}" if code < 0 else f"with status {code}")


def _end(child: int) -> None:
    """End a child and all that it has started, where that still runs."""
    # It may have ended, been waited for, or not made its group yet.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child, signal.SIGKILL)
    with suppress(ProcessLookupError, ChildProcessError):
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def _main() -> None:
    # What is loaded or run may print; the reports keep a stream of their own.
    reports = os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the caller ends this process when it is interrupted
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # which ends its child, too
    if sys.platform != "win32":
        import resource

        # No core dumps: an abort is an expected outcome.
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.path.insert(0, str(Path.cwd()))
    _serve(sys.stdin.buffer, reports)


if __name__ == "__main__":
    _main()
