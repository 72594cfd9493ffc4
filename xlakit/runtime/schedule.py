"""Schedule: the order in which the devices of a client run executions.

Each device has a queue. Parts of one execution enter the queues of its devices at once, so that any two executions
come in the same order everywhere and cannot wait for each other. The first part of a queue begins when all of its
arguments are ready, on the device's thread; when it ends, parts that waited for it may begin.

The execution context counts the parts that run and, once an execution has begun, also its parts that still wait in
their queues. A part that begins enters the context before the part that ended leaves it, so that the deadlock detection
never sees a moment in which nothing runs.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial

from xlakit.errors import ExecutionError, ResourceError
from xlakit.execution.context import ExecutionContext
from xlakit.runtime.buffer import Buffer
from xlakit.runtime.execution import Execution, Part, Queue, Result
from xlakit.runtime.worker import Worker

# How long closing, and the end of the process, wait for threads that are in Python functions of the caller.
_JOIN_SECONDS = 5.0
_POLL_SECONDS = 0.001


class Schedule:
    """The queues of devices, and their threads. All methods may be called from any thread."""

    def __init__(self, devices: int, new_execution_context: Callable[[], ExecutionContext]) -> None:
        self._new_context = new_execution_context
        self.execution_context = new_execution_context()
        self.queues = [Queue(number) for number in range(devices)]
        self.is_closed = False
        # Whether Python shuts down: no work may continue after a call has returned.
        self._is_exiting = False
        # Held while queues and executions change. Where the execution context's lock is taken too, this one is first.
        self._lock = threading.Lock()
        self._open: set[Execution] = set()
        # Failed executions without a result that could report the error.
        self._unseen: list[Execution] = []

    # -- submission ------------------------------------------------------------------------------

    def submit(self, execution: Execution) -> None:
        """Put the parts of an execution into the queues of their devices; buffers among arguments may be pending."""
        with self._lock:
            self.check_open()
            for part in execution.parts:
                self._worker_of(part.queue)
            execution.remaining = len(execution.parts)
            for part in execution.parts:
                _await_arguments(part)
            for part in execution.parts:
                part.queue.parts.append(part)
            self._open.add(execution)
            self._begin([part for part in execution.parts if part.queue.parts[0] is part])
        if self._is_exiting:
            self.wait(execution)

    def run_now(self, execution: Execution) -> bool:
        """Run an execution of one part on this thread if its arguments are ready and its device is idle.

        Gives whether it has run.
        """
        (part,) = execution.parts
        if (
            part.queue.parts
            or self.is_closed
            or any(isinstance(a, Buffer) for a in (*part.arguments, *part.also_after))
        ):
            return False
        execution.remaining = 1
        part.run()
        with self._lock:
            _complete(execution)
        if isinstance(execution.error, KeyboardInterrupt):
            execution.raise_error()
        return True

    def check_open(self) -> None:
        """Raise ExecutionError if the schedule is closed."""
        if self.is_closed:
            raise ExecutionError("the client is closed", hint="make another xlakit.Client")

    def wait(self, execution: Execution) -> None:
        """Wait until an execution is done; Ctrl-C ends the waiting, not the execution."""
        execution.wait(self._bound)

    def _bound(self) -> AbstractContextManager[None]:
        return self.execution_context.bound()

    def wait_for_all(self, queue: Queue | None = None) -> None:
        """Wait for the submitted work of a device, or of all; raise the first error that no result reports."""
        with self._lock:
            waiting = [e for e in self._open if queue is None or any(p.queue is queue for p in e.parts)]
        for execution in waiting:
            self.wait(execution)
        with self._lock:
            unseen, self._unseen = self._unseen, []
        if unseen:
            unseen[0].raise_error()

    def changing(self) -> AbstractContextManager[bool]:
        """Hold the lock: the state of buffers does not change during the block."""
        return self._lock

    # -- execution -------------------------------------------------------------------------------

    def _finish(self, part: Part) -> None:
        with self._lock:
            self._begin(self._retire(part), part)

    def _begin(self, candidates: list[Part], ended: Part | None = None) -> None:
        """Start the candidates that can begin, and drop those whose execution has failed.

        ended: a part that has just ended, which leaves the execution context after the others have entered it.
        """
        beginning: list[Part] = []
        over = [] if ended is None else [ended]
        while candidates:
            part = candidates.pop()
            execution = part.execution
            if execution.is_done or part.has_started or not part.queue.parts or part.queue.parts[0] is not part:
                continue
            if execution.error is not None:
                part.arguments = []
                candidates.extend(self._retire(part))
                over.append(part)
            elif not part.missing:
                part.has_started = True
                beginning.append(part)
        self._update_context(beginning, over)
        for part in beginning:
            self._worker_of(part.queue).put(part.run, partial(self._finish, part))

    def _update_context(self, beginning: list[Part], over: list[Part]) -> None:
        over = [part for part in over if part.is_in_context]
        if not beginning and not over:
            return
        with self.execution_context.lock:
            self.execution_context.enter([part.participant for part in beginning])
            # A running part may wait for the other parts of its execution, so the context must know their waits.
            waiting = [q for p in beginning for q in p.execution.parts if not q.has_started and not q.is_in_context]
            for part in dict.fromkeys(waiting):
                self.execution_context.announce(part.queue_wait())
            for part in (*beginning, *waiting):
                part.is_in_context = True
            if over:
                # Parts that never began must not count as waiting for their queue.
                self.execution_context.enter([part.participant for part in over if not part.has_started])
                self.execution_context.leave([part.participant for part in over])

    def _worker_of(self, queue: Queue) -> Worker:
        """The worker of a queue, made on first use; raises ResourceError if the system has no thread for it."""
        if queue.worker is None:
            try:
                queue.worker = Worker(queue.number, self.execution_context)
            except RuntimeError as error:
                raise ResourceError(
                    f"there is no thread for device {queue.number}: {error}",
                    hint="use fewer devices, or allow the process more threads; at the end of a process, Python 3.12 "
                    "starts none",
                ) from None
        return queue.worker

    def _retire(self, part: Part) -> list[Part]:
        """Remove a part, the first one, from its queue; gives the parts that may be able to begin now."""
        queue, execution = part.queue, part.execution
        queue.parts.popleft()
        candidates = [queue.parts[0]] if queue.parts else []
        execution.remaining -= 1
        if not execution.remaining:
            candidates += _complete(execution)
            self._open.discard(execution)
            if execution.error is not None and not execution.has_been_seen:
                self._unseen.append(execution)
        elif execution.error is not None:
            # The other parts are dropped, even if they still wait for arguments.
            candidates += execution.parts
        return candidates

    # -- ending ----------------------------------------------------------------------------------

    def stop(self, error: ExecutionError) -> None:
        """Fail all work that is not done."""
        with self._lock:
            for execution in list(self._open):
                execution.fail(error)
            self._begin([queue.parts[0] for queue in self.queues if queue.parts])

    def close(self, *, wait: bool) -> None:
        """Refuse new work; wait for the submitted work, or stop it; end the threads."""
        with self._lock:
            self.is_closed = True
        try:
            if wait:
                self.wait_for_all()
        finally:
            if self._open:
                self.stop(ExecutionError("the client was closed before the program had ended"))
            stop_workers(self.queues, join=True)

    def exit(self) -> None:
        """Stop running work, since Python exits. Later ``atexit`` handlers may still submit work, and then wait for it.

        The idle threads are kept for that, since Python starts no new ones at this point.
        """
        self._is_exiting = True
        if self._open:
            self.stop(ExecutionError("the process ended before the program had"))
        deadline = time.monotonic() + _JOIN_SECONDS
        while self._open and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)

    def after_fork(self) -> None:
        """Reset in a child process, in which the threads and their work do not exist."""
        self._lock = threading.Lock()
        # The old context is abandoned: a thread that does not exist in this process may hold its lock.
        self.execution_context = self._new_context()
        self._is_exiting = False
        for queue in self.queues:
            queue.parts.clear()
            queue.worker = None
        lost, self._open = self._open, set()
        error = ExecutionError(
            "the process was forked while the program ran", hint="fork before, or wait for the results first"
        )
        for execution in lost:
            if execution.error is None:
                execution.error = error
            execution.run = None
            _complete(execution)


def stop_workers(queues: Sequence[Queue], *, join: bool = False) -> None:
    """End the threads of devices after their current work."""
    workers = [queue.worker for queue in queues if queue.worker is not None]
    for queue in queues:
        queue.worker = None
    for worker in workers:
        worker.stop()
    deadline = time.monotonic() + _JOIN_SECONDS
    for worker in workers if join else ():
        worker.join(max(0.0, deadline - time.monotonic()))


def _await_arguments(part: Part) -> None:
    """Replace buffers that are ready by their arrays, and wait for the others."""
    for number, argument in enumerate(part.arguments):
        if isinstance(argument, Buffer):
            _await(part, number, argument)
    for token in part.also_after:
        _await(part, -1, token)


def _await(part: Part, number: int, buffer: Result) -> None:
    producer = buffer.producer
    if producer is None:
        if number >= 0:
            part.arguments[number] = buffer.redeem()
    elif producer.is_done:
        _inherit(part.execution, producer)
    else:
        producer.dependents.append((part, number, buffer))
        part.missing += 1


def _inherit(execution: Execution, producer: Execution) -> None:
    """Fail an execution with the error of ``producer``, on which it depends."""
    producer.has_been_seen = True
    if producer.error is not None:
        execution.fail(producer.error)


def _complete(execution: Execution) -> list[Part]:
    """Store the results of an ended execution in their buffers and in the parts that wait for them.

    Gives the parts that may be able to begin now.
    """
    execution.take_run_error()
    error = execution.error
    candidates: list[Part] = []
    for part in execution.parts:
        if error is None:
            part.fill_results()
        execution.has_been_seen = execution.has_been_seen or bool(part.results)
    for part, number, buffer in execution.dependents:
        if error is not None:
            _inherit(part.execution, execution)
            candidates += part.execution.parts
            continue
        if number >= 0:
            part.arguments[number] = buffer.redeem()
        part.missing -= 1
        candidates.append(part)
    for part in execution.parts:
        for buffer in part.results:
            buffer.resolve()
    execution.open()
    execution.parts = []
    execution.dependents = []
    return candidates
