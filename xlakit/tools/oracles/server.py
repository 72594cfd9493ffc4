"""A process that observes modules for another one, each in a child of its own.

It loads what observing needs once, and forks for each module, so that a module costs no start of Python, and one that
ends or blocks its process harms nothing else.

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

import runpy
import signal
import sys
import traceback
from importlib import import_module
from pathlib import Path
from typing import Any

from xlakit.child_process import Limits, serve
from xlakit.errors import ArgumentError, Location, XlakitError
from xlakit.ir.instruction import HloModule
from xlakit.tools.oracles.forked import forked
from xlakit.tools.oracles.oracle import Oracle, Report, observed

# What starts no threads when it is imported, so that a process can be forked afterwards.
_PACKAGES = ("xlakit.", "numpy.", "google.protobuf.", "llvmlite.")


class _Observer:
    """Answers the requests of a pool: the first one is the oracle with its files, the others are modules."""

    def __init__(self) -> None:
        self._oracle: Oracle | None = None

    def answer(self, request: Any) -> Report | XlakitError | None:
        """What became of the observation of a module; of the first request None, or its error."""
        if self._oracle is None:
            self._oracle, files = request
            try:
                for file in files:
                    load_file(file)
                request[0].prepare()
            except XlakitError as error:
                return error
            return None
        data, environment, limits, replaced = request
        self._oracle = oracle = replaced or self._oracle
        return _report(oracle, data, environment, limits)


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

    def observe() -> tuple[Any, list[str]]:
        before = set(sys.modules)
        result = observed(oracle, HloModule.from_proto(data), environment)
        return result, [name for name in sys.modules.keys() - before if name.startswith(_PACKAGES)]

    report = forked(observe, limits)
    if report.how != "ended":
        return report
    result, imported = report.observed
    for name in imported:
        import_module(name)
    return Report("ended", result)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # which ends its own child, too
    sys.path.insert(0, str(Path.cwd()))
    serve(_Observer().answer)
