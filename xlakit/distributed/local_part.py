"""LocalPart: the devices of a run on several processes that are in this process."""

from __future__ import annotations

import threading
import time
from typing import Final

from xlakit.distributed.fingerprint import Fingerprint, name_of
from xlakit.distributed.messages import Progress
from xlakit.execution.channels import Message
from xlakit.execution.context import ExecutionContext
from xlakit.execution.run import Run
from xlakit.execution.session import RendezvousKey
from xlakit.ir.operation import Value

# Up to which time at a rendezvous errors do not say how many times it was.
_UNTOLD: Final = 3


class LocalPart:
    """The devices of a run in this process: their beginning and end, and their waits for other processes.

    devices: the number of these devices.
    """

    def __init__(self, run: Run, execution_context: ExecutionContext, fingerprint: Fingerprint, devices: int) -> None:
        self.run = run
        self.fingerprint = fingerprint
        self._execution_context = execution_context
        self._lock = threading.Lock()
        self._devices = devices
        self._running = self._done = 0
        self._is_over = False
        # The rendezvous at which threads of this process wait for other processes, by thread.
        self._waits: dict[int, RendezvousKey] = {}
        # The last time at which a process that this one waits for, directly or not, computed, as far as is known.
        self.others_computed = time.monotonic()
        # Whether another process has reported the failure of the run, and whether this one has.
        self.failed_elsewhere = False
        self.is_reported = False

    def end(self) -> None:
        """Called once, when the run is over in this process."""

    # -- beginning and end -----------------------------------------------------------------------

    def taking_part(self) -> _TakingPart:
        """Run one device during the block; raises Stopped if the run has failed."""
        return _TakingPart(self)

    def count_running(self, more: int) -> None:
        """Count a device that begins to run (1) or ends (-1)."""
        with self._lock:
            if more > 0:
                self.run.check()
            else:
                self._done += 1
            self._running += more
        if more < 0:
            self.end_if_over()

    def end_if_over(self) -> None:
        """Leave the run if no device here will run any more: all have ended, or the run has failed."""
        with self._lock:
            failed = self.run.failure is not None and not self._running
            if self._is_over or not (failed or self._done == self._devices):
                return
            self._is_over = True
        self.end()

    def deliver(self, channel_id: int, sender: int, receiver: int, value: Value) -> None:
        """Put a message from another process into a channel here."""
        with self.run.lock:
            if self.run.failure is None:
                channel = self.run.channels[None if channel_id < 0 else channel_id]
                channel.send(Message(sender, receiver, value))
                self.run.changed()

    # -- positions in the program ----------------------------------------------------------------

    @property
    def has_begun(self) -> bool:
        """Whether a device has begun to run here."""
        return bool(self._running or self._done)

    def location(self, rendezvous: RendezvousKey, kind: str) -> tuple[int, str]:
        """A number for the location of a rendezvous in the program, the same in all processes; and its name in
        errors.
        """
        mark, text = self.fingerprint.location(self.run.program, rendezvous, kind)
        return (mark, text + _times(rendezvous)) if rendezvous.number > _UNTOLD else (mark, text)

    def progress(self) -> tuple[Progress, str]:
        """WAITING if all devices here wait, some of them for other processes, and where these wait; else RUNNING."""
        waits = list(self._waits.values())
        if not waits or len(waits) + self._execution_context.count_waiting(self.run) < self._running:
            return Progress.RUNNING, ""
        return Progress.WAITING, "; ".join(name_of(self.run.program, wait) + _times(wait) for wait in waits)

    def waiting(self, rendezvous: RendezvousKey) -> _Waiting:
        """Note during the block that this thread waits for other processes at a rendezvous."""
        return _Waiting(self._waits, rendezvous)


class _TakingPart:
    """See :meth:`LocalPart.taking_part`. A class because a generator is slower."""

    __slots__ = ("_part",)

    def __init__(self, part: LocalPart) -> None:
        self._part = part

    def __enter__(self) -> None:
        self._part.count_running(1)

    def __exit__(self, *_: object) -> None:
        self._part.count_running(-1)


class _Waiting:
    """See :meth:`LocalPart.waiting`."""

    __slots__ = ("_rendezvous", "_thread", "_waits")

    def __init__(self, waits: dict[int, RendezvousKey], rendezvous: RendezvousKey) -> None:
        # A thread changes its own item alone, which is atomic, as are copies of the values.
        self._waits, self._rendezvous, self._thread = waits, rendezvous, threading.get_ident()

    def __enter__(self) -> None:
        self._waits[self._thread] = self._rendezvous

    def __exit__(self, *_: object) -> None:
        del self._waits[self._thread]


def _times(rendezvous: RendezvousKey) -> str:
    return f", for the {rendezvous.number}th time" if rendezvous.number > _UNTOLD else ""
