"""Run: one execution of a program; Participant: one of its devices, as feeds, channels and waits see it."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import field
from typing import Any

from xlakit.dataclass import dataclass
from xlakit.errors import ExecutionError
from xlakit.execution.channels import Channels
from xlakit.execution.program import Program, Stopped
from xlakit.execution.session import Session
from xlakit.ir.operation import Value

_run_numbers = itertools.count()


@dataclass(slots=True)
class Box:
    """What the members of a group have brought to one rendezvous."""

    values: dict[int, Value] = field(default_factory=dict)
    # What all members get, once all have arrived.
    outcome: dict[int, Any] | None = None
    left: int = 0


class Run:
    """One execution of a program on all its devices; made by :func:`xlakit.execution.device.start_run`.

    number: a later run has a greater one. devices: all of them, as soon as they exist. channels: the run's own, unless
    programs share the execution context; then those of the context, or of the run group in it. session: the way to the
    devices in other processes, if there are any. boxes: the rendezvous that have begun, by their keys. native: the
    state of the run in machine code. lock: the execution context's. changed: wakes what waits there.
    """

    def __init__(
        self,
        program: Program,
        channels: Channels,
        lock: AbstractContextManager[bool],
        changed: Callable[[], None],
        *,
        shares_context: bool,
    ) -> None:
        self.program = program
        self.channels = channels
        self.lock = lock
        self.changed = changed
        self.shares_context = shares_context
        self.number = next(_run_numbers)
        self.devices: list[Participant] = []
        self.session: Session | None = None
        self.failure: BaseException | None = None
        self.boxes: dict[Any, Box] = {}
        self.native: Any = None
        self._stops: list[Callable[[], None]] = []

    def fail(self, error: BaseException) -> None:
        """Stop all devices; the first error counts, but an error precedes those that only report another's failure."""
        with self.lock:
            if self.failure is None or (isinstance(self.failure, Stopped) and not isinstance(error, Stopped)):
                self.failure = error
            # No later run may match the messages and receives of this one.
            self.channels.forget(self)
            for stop in self._stops:
                stop()
            self.changed()

    def when_failed(self, stop: Callable[[], None]) -> None:
        """Call ``stop`` as soon as a device has failed, on the thread on which that happens."""
        with self.lock:
            self._stops.append(stop)
            if self.failure is not None:
                stop()

    def check(self) -> None:
        """Raise Stopped if a device has failed."""
        if self.failure is not None:
            raise Stopped("another device failed")

    def check_received(self) -> None:
        """Raise ExecutionError if a send of a run that is over was not received: it lacks its send-done.

        In a shared execution context a send may wait for a program to come.
        """
        left = [] if self.shares_context else self.channels.forget(self)
        if left:
            senders = ", ".join(dict.fromkeys(self.program.name_of(message.sender) for message in left))
            raise ExecutionError(
                f"{len(left)} of the values that were sent by {senders} have not been received",
                hint="every send needs a recv on its channel, and ends with a send-done that waits for it",
            )


class Participant:
    """One replica and partition in one run. ``feed_index`` is the index of its feeds in the execution context."""

    def __init__(self, run: Run, index: int, feed_index: int) -> None:
        self.run = run
        self.program = run.program
        self.index = index
        self.feed_index = feed_index
        self.replica_id, self.partition_id = divmod(index, run.program.grid.num_partitions)

    def __str__(self) -> str:
        return self.program.name_of(self.index)
