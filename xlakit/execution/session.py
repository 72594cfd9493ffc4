"""Session: the interface by which a run with devices in several processes communicates between them.

The devices of a program may be spread over several processes. A group whose members are all
in one process has its rendezvous in memory. For any other group the last local member that arrives communicates for all
local members, through the :class:`Session` of the run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

from xlakit.dataclass import dataclass

if TYPE_CHECKING:
    from xlakit.execution.channels import Message
    from xlakit.execution.program import Program
    from xlakit.ir.instruction import Computation, Instruction
    from xlakit.ir.operation import Array, Value


@dataclass(frozen=True, slots=True)
class RendezvousKey:
    """One rendezvous of a group: at the site of an instruction, for the ``number``-th time."""

    instruction: Instruction
    site: str
    members: tuple[int, ...]
    number: int

    @property
    def key(self) -> Any:
        """The key within a process."""
        return self.site, self.members, self.number

    def at(self, number: int) -> RendezvousKey:
        """The ``number``-th rendezvous of the group at the site."""
        return RendezvousKey(self.instruction, self.site, self.members, number)


class PreparedCollective(Protocol):
    """A collective whose messages have been prepared, of one device."""

    site: str
    members: tuple[int, ...]

    def run(self, session: Any, number: int, operand: int, result: int) -> None:
        """Run it as the ``number``-th rendezvous of the group at the site.

        ``operand`` and ``result`` are the addresses of elements, major to minor.
        """
        ...


class Session(Protocol):
    """One run on several processes, as one of them sees it. Methods may be called from the threads of several devices
    at once.
    """

    def taking_part(self) -> AbstractContextManager[None]:
        """Run one device during the block; raises Stopped if the run has failed."""
        ...

    def is_local(self, device: int) -> bool:
        """Whether a device runs in this process."""
        ...

    def prepared(self, instruction: Instruction, program: Program, device: int) -> PreparedCollective | None:
        """A collective of one small array on the only device of this process; None for any other instruction."""
        ...

    def all_gather(self, rendezvous: RendezvousKey, contributions: Mapping[int, Value]) -> dict[int, Value]:
        """The payloads of all members, given those of the local members."""
        ...

    def all_to_all(
        self, rendezvous: RendezvousKey, contributions: Mapping[int, Sequence[Value]], *, alike: bool
    ) -> dict[int, list[Value]]:
        """The payloads that all members address to local members, given those of the local members to all.

        The row of a member in another process has entries for local members only. ``alike``: whether the payloads of
        all members have the same sizes.
        """
        ...

    def broadcast(self, rendezvous: RendezvousKey, contributions: Mapping[int, Value], root: int) -> Value:
        """The payload of the member with index ``root``."""
        ...

    def reduces(self, computation: Computation, arrays: Sequence[Array]) -> bool:
        """Whether :meth:`reduce` combines such arrays."""
        ...

    def reduce(
        self, rendezvous: RendezvousKey, contributions: Mapping[int, Sequence[Array]], computation: Computation
    ) -> list[Array]:
        """The arrays of all members, combined in any order."""
        ...

    def send(self, key: tuple[RendezvousKey, int], target: int, value: Value) -> None:
        """Send a value, known by its key, to a device elsewhere. Waits for nothing but room there."""
        ...

    def receive(self, key: tuple[RendezvousKey, int], source: int, receiver: int) -> Value:
        """Wait for a value that device ``source``, which is elsewhere, sends to device ``receiver``."""
        ...

    def post(self, channel_id: int | None, message: Message) -> None:
        """Put a message into a channel of the process where its receiver runs. Waits for nothing but room there."""
        ...

    def watch(self, sources: Sequence[int], ready: Callable[[], bool]) -> Callable[[float], None]:
        """A function that a device calls instead of sleeping while it waits for messages from other processes.

        It takes a number of seconds and receives messages meanwhile; it raises RankError if none can come any more.
        ready: tells whether the wait is over.
        """
        ...
