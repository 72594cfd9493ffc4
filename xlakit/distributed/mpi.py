"""MPI, loaded only if the program was started on several processes, or on request.

Every operation is started without waiting and then polled, so that a waiting thread notices timeouts, failures of other
processes and Ctrl-C. The thread level that MPI provides decides how calls are made: from any thread; from any thread,
one at a time; or all from the thread that has initialized MPI.
"""

from __future__ import annotations

import importlib.util
import os
import queue
import sys
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, TypeVar

from xlakit.errors import ArgumentError, ResourceError, UnsupportedError

_T = TypeVar("_T")

# Environment variables that launchers set: MPICH's and Intel's, PMIx, Open MPI's.
_LAUNCHERS = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK")
_LEVELS = ("single", "funneled", "serialized", "multiple")

# A waiting thread polls without sleeping for _AWAKE seconds, then with naps of _NAP seconds until _NAPPING seconds have
# passed, then with sleeps of _SLEEP seconds.
_AWAKE, _NAPPING = 0.0002, 0.05
_NAP, _SLEEP = 5e-5, 1e-3


def is_launched() -> bool:
    """Whether an MPI launcher has started this process."""
    return any(name in os.environ for name in _LAUNCHERS)


class Pause:
    """The pause between two polls, which grows with the time waited."""

    def __init__(self) -> None:
        self._since = time.monotonic()

    def __call__(self) -> None:
        """Pause."""
        waited = time.monotonic() - self._since
        if waited >= _AWAKE:
            time.sleep(_NAP if waited < _NAPPING else _SLEEP)
        elif hasattr(os, "sched_yield"):
            os.sched_yield()


@dataclass(slots=True)
class _Task:
    """A call that the MPI thread makes for another thread, with its result or error."""

    work: Callable[[], Any]
    done: threading.Event = field(default_factory=threading.Event)
    result: Any = None
    error: BaseException | None = None


class _Caller:
    """The thread that initializes and finalizes MPI, and makes the calls if no other thread may."""

    def __init__(self) -> None:
        self._tasks: queue.SimpleQueue[_Task | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name="xlakit-mpi-calls", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while (task := self._tasks.get()) is not None:
            try:
                task.result = task.work()
            except BaseException as error:
                task.error = error
            task.done.set()

    def __call__(self, work: Callable[[], _T]) -> _T:
        task = _Task(work)
        self._tasks.put(task)
        task.done.wait()
        if task.error is not None:
            raise task.error
        return task.result

    def stop(self) -> None:
        """End the thread."""
        self._tasks.put(None)
        self._thread.join()


class Mpi:
    """MPI, started."""

    def __init__(self) -> None:
        self.api = _load()
        self._caller = _Caller()
        self._is_ours = not self.api.Is_initialized()
        if self._is_ours:
            thread_level = _wanted_level()
            self._caller(lambda: self.api.Init_thread(thread_level))
        self.level: int = self.api.Query_thread()
        if not self._is_ours and self.level < self.api.THREAD_SERIALIZED:
            raise ArgumentError(
                f"MPI was started before, for one thread only (level '{_LEVELS[self.level]}')",
                hint="call xlakit.distributed.initialize() before mpi4py.MPI is imported",
            )
        self._lock = nullcontext() if self.level == self.api.THREAD_MULTIPLE else threading.Lock()
        self.world = self.api.COMM_WORLD

    def call(self, work: Callable[[], _T]) -> _T:
        """Make an MPI call that does not block, on a thread that MPI permits; MPI's errors become typed errors."""
        try:
            if self.level < self.api.THREAD_SERIALIZED:
                return self._caller(work)
            with self._lock:
                return work()
        except self.api.Exception as error:
            raise ResourceError(f"MPI says: {error.Get_error_string()}") from None

    def finish(self, request: Any, check: Callable[[], None]) -> None:
        """Wait until a request is done; ``check`` is called repeatedly meanwhile, and may raise."""
        pause = Pause()
        while not self.call(request.Test):
            check()
            pause()

    def stop(self) -> None:
        """End MPI, if it was started here."""
        if self._is_ours and not self.api.Is_finalized():
            self._caller(self.api.Finalize)
        self._caller.stop()

    def abort(self) -> None:
        """End all processes, now."""
        sys.stdout.flush()
        sys.stderr.flush()
        self.world.Abort(1)


def _load() -> Any:
    if importlib.util.find_spec("mpi4py") is None:
        raise UnsupportedError(
            "programs on several processes need mpi4py and an MPI library", hint="pip install 'xlakit[mpi]'"
        )
    if "mpi4py.MPI" not in sys.modules:
        import mpi4py

        mpi4py.rc.initialize = False
        mpi4py.rc.finalize = False
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise UnsupportedError(
            f"mpi4py finds no MPI library: {error}", hint="pip install mpich, or install your cluster's MPI"
        ) from None
    return MPI


def _wanted_level() -> int:
    text = os.environ.get("XLAKIT_MPI_THREADS", "multiple")
    if text not in _LEVELS:
        raise ArgumentError(
            f"XLAKIT_MPI_THREADS is '{text}'", hint="known: " + ", ".join(_LEVELS) + "; leave it out for the best"
        )
    # MPI's own numbers of the levels are in this order, and begin at 0 in every library.
    return _LEVELS.index(text)
