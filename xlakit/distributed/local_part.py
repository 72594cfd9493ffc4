"""LocalPart: what a run on several processes is in one of them, whatever carries its messages."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Generator
from contextlib import contextmanager

from xlakit.execution.channels import Message
from xlakit.execution.context import ExecutionContext
from xlakit.execution.run import Run
from xlakit.execution.session import RendezvousKey
from xlakit.ir.operation import Value


class LocalPart:
    """The devices of a run that are in this process: when they begin and end, and where they wait for other processes.

    number: of the run, among those of its processes. program: the fingerprint of its program. devices: how many.
    """

    def __init__(self, run: Run, execution_context: ExecutionContext, number: int, program: int, devices: int) -> None:
        self.run = run
        self._execution_context = execution_context
        self.number = number
        self.program = program
        self._lock = threading.Lock()
        self._begun = threading.Lock()
        self._is_ready = False
        self._devices = devices
        self._running = self._done = 0
        self._is_over = False
        # Where devices of this process wait for other processes: marks of rendezvous, and words.
        self._waits: dict[int, tuple[int, str]] = {}
        # Whether another process has reported the failure of the run, and whether this one has.
        self.failed_elsewhere = False
        self.is_reported = False

    def begin(self) -> None:
        """Called once, before the first device runs; may wait for other processes."""

    def end(self) -> None:
        """Called once, when the run is over in this process."""

    # -- beginning and end -----------------------------------------------------------------------

    @contextmanager
    def taking_part(self) -> Generator[None]:
        """Run one device during the block, which begins when all processes take part."""
        with self._lock:
            self.run.check()
            self._running += 1
        try:
            with self._begun:
                if not self._is_ready:
                    self.begin()
                    self._is_ready = True
            yield
        finally:
            with self._lock:
                self._running -= 1
                self._done += 1
            self.end_if_over()

    def end_if_over(self) -> None:
        """Leave the run when no device will run any more: all have, or it has failed."""
        with self._lock:
            failed = self.run.failure is not None and not self._running
            if self._is_over or not (failed or self._done == self._devices):
                return
            self._is_over = True
        self.end()

    @property
    def has_begun(self) -> bool:
        """Whether all processes take part."""
        return self._is_ready

    def deliver(self, channel_id: int, sender: int, receiver: int, value: Value) -> None:
        """Put a message from another process into a channel here."""
        with self.run.changing():
            if self.run.failure is None:
                channel = self.run.channels[None if channel_id < 0 else channel_id]
                channel.send(Message(sender, receiver, value))

    # -- positions in the program -----------------------------------------------------------------------

    def mark(self, rendezvous: RendezvousKey, kind: str) -> int:
        """A number that stands for a rendezvous' instruction in the program, the same in all processes."""
        instruction = rendezvous.instruction
        # Not the layouts: a program that comes from the compile cache says them where a fresh one need not.
        text = f"{kind} {instruction.opcode} {instruction.name} {rendezvous.channel_id} {rendezvous.members}"
        text += " ".join(shapes_of(rendezvous))
        return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little", signed=True)

    def words(self, rendezvous: RendezvousKey) -> str:
        """The name of a rendezvous in errors."""
        instruction = rendezvous.instruction
        location = self.run.program.module.location_of(instruction)
        where = f" at {location}" if location else ""
        times = f", for the {rendezvous.number}th time" if rendezvous.number > 3 else ""
        return f"{instruction.opcode} '{instruction.name}'{where}{times}"

    def whereabouts(self) -> tuple[frozenset[int], str, bool]:
        """The rendezvous with other processes that devices here wait at; in words; whether all devices wait."""
        with self._lock:
            waits = list(self._waits.values())
        text = "; ".join(words for _, words in waits)
        idle = len(waits) + self._execution_context.count_waiting(self.run) >= self._running
        return frozenset(mark for mark, _ in waits), text, bool(waits) and idle

    @contextmanager
    def waiting(self, mark: int, rendezvous: RendezvousKey) -> Generator[None]:
        """Note during the block that this thread waits for other processes at a rendezvous."""
        thread = threading.get_ident()
        with self._lock:
            self._waits[thread] = (mark ^ rendezvous.number, self.words(rendezvous))
        try:
            yield
        finally:
            with self._lock:
                del self._waits[thread]


def shapes_of(rendezvous: RendezvousKey) -> list[str]:
    """The shapes that the members bring."""
    return [operand.shape.to_string(with_layout=False) for operand in rendezvous.instruction.operands]
