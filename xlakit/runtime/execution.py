"""Execution: a piece of work of one or several devices, from its submission until its results or error."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Protocol

from xlakit.data.shape import Shape
from xlakit.errors import ExecutionError
from xlakit.execution.context import PAUSE_SECONDS
from xlakit.execution.deadlocks import Wait
from xlakit.execution.program import Stopped
from xlakit.execution.run import Run
from xlakit.ir.operation import Array
from xlakit.runtime.worker import Worker

# The work of a device: maps the input arrays to the result arrays. It may clear the list, to free inputs early.
Work = Callable[[list[Array]], Sequence[Array]]


class Result(Protocol):
    """A buffer, as executions use it: its array may be pending, and has a producer."""

    @property
    def shape(self) -> Shape:
        """The shape of its array."""
        ...

    @property
    def producer(self) -> Execution | None:
        """The execution that computes the array, while it is pending."""
        ...

    def store_result(self, array: Array | None) -> None:
        """Take the array; None for a token."""
        ...

    def redeem(self) -> Array | None:
        """The claimed array, which replaces the buffer among the arguments of a part."""
        ...

    def resolve(self) -> None:
        """Take the result of the producer, which is done."""
        ...


class Queue:
    """The parts of executions that one device has not finished, in order. The first may be running."""

    __slots__ = ("number", "parts", "worker")

    def __init__(self, number: int) -> None:
        self.number = number
        self.parts: deque[Part] = deque()
        self.worker: Worker | None = None


class Part:
    """The share of one device in an execution.

    arguments: arrays, with a buffer for each array that is pending. missing: the number of arguments and tokens that
    the part waits for. participant: the part's entry in the execution context: a program's device, if it runs one.
    """

    __slots__ = (
        "also_after", "arguments", "arrays", "execution", "has_started", "is_in_context", "missing", "participant",
        "queue", "results", "work",
    )  # fmt: skip

    def __init__(
        self,
        execution: Execution,
        queue: Queue,
        work: Work,
        arguments: list[Any],
        results: Sequence[Result],
        *,
        participant: Any = None,
        also_after: Sequence[Result] = (),
    ) -> None:
        self.execution = execution
        self.queue = queue
        self.work = work
        self.arguments: list[Any] = arguments
        # Tokens, which have no array, but whose producers must be done first.
        self.also_after = also_after
        self.results = results
        self.participant: Any = self if participant is None else participant
        self.missing = 0
        self.has_started = False
        # Whether the execution context counts it as running, or as waiting in its queue.
        self.is_in_context = False
        self.arrays: Sequence[Array] = ()
        execution.parts.append(self)

    def run(self) -> None:
        """Run the part on the calling thread."""
        execution = self.execution
        arguments, self.arguments = self.arguments, []
        try:
            self.arrays = self.work(arguments)
        except Stopped:
            # Another device failed: the run has its error.
            pass
        except BaseException as error:
            if execution.run is not None and len(execution.parts) > 1:
                error.add_note(f"raised on device {self.queue.number} ({self.participant})")
            execution.fail(error)

    def queue_wait(self) -> Wait:
        """The wait for its turn in the queue, which counts while other parts of the execution run already."""
        device = self.participant
        what = f"its turn on device {self.queue.number}"
        instruction = device.program.module.entry.root
        return _QueueWait(device, instruction, lambda: what, lambda: self.has_started, for_queue=True)

    def fill_results(self) -> None:
        """Give the computed arrays to the buffers."""
        arrays = iter(self.arrays)
        for buffer in self.results:
            buffer.store_result(None if buffer.shape.is_token else next(arrays))
        self.arrays = ()


class _QueueWait(Wait):
    """The wait of a device of a program that has not begun."""

    def __str__(self) -> str:
        return f"{self.device} of {self.device.program.module.name} waits for {self.what()}"


class Execution:
    """Work of one or several devices, with a part for each. It is done when all parts are.

    All results become ready when all parts are done, and an error on one device is the error of all results: so a
    caller's view does not depend on the relative speed of devices.
    """

    __slots__ = (
        "_gate", "_traceback", "dependents", "error", "has_been_seen", "is_done", "name", "parts", "remaining", "run",
    )  # fmt: skip

    def __init__(self, name: str, run: Run | None = None) -> None:
        self.name = name
        self.run = run
        self.parts: list[Part] = []
        self.remaining = 0
        self.error: BaseException | None = None
        self._traceback: TracebackType | None = None
        # The parts that wait for its results, and the number among its arguments (-1 for a token).
        self.dependents: list[tuple[Part, int, Result]] = []
        self.is_done = False
        # Whether a result or a dependent execution can report the error; otherwise a later wait for the device does.
        self.has_been_seen = False
        # Held until it is done; waiting on a lock is cheaper than on Python's other primitives.
        self._gate = threading.Lock()
        self._gate.acquire()

    @classmethod
    def failed(cls, name: str, error: BaseException) -> Execution:
        """An execution that is done and has failed."""
        execution = cls(name)
        execution.fail(error)
        execution.take_run_error()
        execution.open()
        return execution

    def fail(self, error: BaseException) -> None:
        """Stop all parts; the first error is the one that counts."""
        if self.error is None:
            self.error = error
        if self.run is not None:
            self.run.fail(error)

    def take_run_error(self) -> None:
        """Copy the error of the run, which another program or a deadlock may have failed; drop the arrays then."""
        if self.run is not None and self.run.failure is not None:
            self.error = self.run.failure
        if self.error is not None:
            self._traceback = self.error.__traceback__
            for part in self.parts:
                part.arrays = ()

    def open(self) -> None:
        """Mark the execution as done and wake the threads that wait for it."""
        self.is_done = True
        if self._gate.locked():
            self._gate.release()

    def wait(self, bound: Callable[[], AbstractContextManager[None]]) -> None:
        """Wait until it is done. Ctrl-C ends the wait, not the execution.

        bound: marks this thread as one that cannot feed devices while it waits.
        """
        if self.is_done:
            return
        this_thread = threading.get_ident()
        for part in list(self.parts):
            worker = part.queue.worker
            if worker is not None and worker.ident == this_thread:
                raise ExecutionError(
                    f"device {part.queue.number} waits for '{self.name}', which can only run when the device is free",
                    hint="in a custom call, use programs of xlakit.compile, or of another client",
                )
        with bound():
            while not self.is_done:
                # Waits have a timeout, as a signal that another thread receives does not interrupt one without.
                if self._gate.acquire(timeout=PAUSE_SECONDS):
                    self._gate.release()

    def raise_error(self) -> None:
        """Raise its error, if it failed."""
        if self.error is not None:
            self.has_been_seen = True
            # Raising extends the traceback, so each time the one from the device's thread is restored first.
            raise self.error.with_traceback(self._traceback)
