"""Device: what a replica and partition of a running program sees; Run: one execution of a program."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from xlakit.errors import ExecutionError
from xlakit.execution.channels import Channels
from xlakit.execution.context import ExecutionContext
from xlakit.execution.program import Program, Stopped
from xlakit.execution.random_state import RandomState
from xlakit.execution.rendezvous import Box, Rendezvous
from xlakit.execution.run_group import enter_group, shared_channels
from xlakit.execution.transfers import Transfers

if TYPE_CHECKING:
    from xlakit.execution.network import Session


_run_numbers = itertools.count()


class Run:
    """One execution of a program on all its devices.

    number: a later run has a greater one. devices: all of them, as soon as they are there. channels: the run's own,
    unless programs share the execution context; then those of the context, or of the run group in it.
    """

    def __init__(self, program: Program, execution_context: ExecutionContext, *, shares_context: bool) -> None:
        self.program = program
        self.execution_context = execution_context
        self.shares_context = shares_context
        self.number = next(_run_numbers)
        self.devices: list[Device] = []
        self.channels = shared_channels(execution_context) if shares_context else Channels()
        # The way to the devices in other processes, where there are any.
        self.session: Session | None = None
        self.failure: BaseException | None = None
        self._stops: list[Callable[[], None]] = []
        self.boxes: dict[Any, Box] = {}
        # What machine code keeps for the run.
        self.native: Any = None
        enter_group(self)

    def fail(self, error: BaseException) -> None:
        """Stop all devices; the first error is the one that counts, before those that only say that others failed."""
        with self.execution_context.changing():
            if self.failure is None or (isinstance(self.failure, Stopped) and not isinstance(error, Stopped)):
                self.failure = error
            # No later run is to receive what this one has sent, or to send into its rooms.
            self.channels.forget(self)
            for stop in self._stops:
                stop()

    def when_failed(self, stop: Callable[[], None]) -> None:
        """Call ``stop`` as soon as a device has failed, on whichever thread that happens."""
        with self.execution_context.condition:
            self._stops.append(stop)
            if self.failure is not None:
                stop()

    def check(self) -> None:
        """Raise Stopped where a device has failed."""
        if self.failure is not None:
            raise Stopped("another device failed")

    def check_received(self) -> None:
        """Raise ExecutionError where a send of a run that is over was not received: it lacks its send-done.

        In a shared execution context it may wait for a program to come.
        """
        left = [] if self.shares_context else self.channels.forget(self)
        if left:
            senders = ", ".join(dict.fromkeys(self.program.name_of(message.sender) for message in left))
            raise ExecutionError(
                f"{len(left)} of the values that were sent by {senders} have not been received",
                hint="every send needs a recv on its channel, and ends with a send-done that waits for it",
            )


class Device:
    """One replica and partition in one run, on one thread."""

    def __init__(self, run: Run, index: int, random: RandomState, *, place: int | None = None) -> None:
        self.run = run
        self.program = run.program
        self.execution_context = run.execution_context
        self.index = index
        # The number of its feeds in the execution context, where that is not its own.
        self.place = index if place is None else place
        self.replica_id, self.partition_id = divmod(index, run.program.num_partitions)
        self.random = random
        # What sees the values while the interpreter runs the program, an interpreter.evaluate.Observer.
        self.observer: Any = None
        self.rendezvous = Rendezvous(self, run, run.execution_context)
        self.transfers = Transfers(self, run, run.execution_context)
        run.devices.append(self)

    @contextmanager
    def taking_part(self) -> Generator[None]:
        """Run it meanwhile, as soon as those in other processes come; raises where it cannot."""
        run = self.run
        with nullcontext() if run.session is None else run.session.taking_part():
            if not run.shares_context or not self.program.channel_ends:
                yield
                return
            with run.channels.using(self, self.program.channel_ends, self.execution_context.condition):
                yield

    def __str__(self) -> str:
        return self.program.name_of(self.index)
