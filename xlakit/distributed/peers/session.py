"""PeerSession: one run on several processes, whose collectives are made of messages.

In a rendezvous the last member that arrives in a process sends what the members there have for those in other
processes, to each process once, and then waits for what these send. A message says at which place in the program its
sender is, so processes that are at different ones are found out at once.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Protocol

from xlakit.distributed.local_part import LocalPart, shapes_of
from xlakit.distributed.packing import Bytes, pack, unpack
from xlakit.distributed.peers.letters import Address, Kind, Letter, RunKey
from xlakit.errors import InternalError, RankError
from xlakit.execution.channels import Message
from xlakit.execution.context import ExecutionContext
from xlakit.execution.run import Run
from xlakit.execution.session import RendezvousKey
from xlakit.ir.operation import Array, Value

if TYPE_CHECKING:
    from xlakit.ir.instruction import Computation

# What the address of a value begins with. Then follow: the group and how many rendezvous it had; the mark of the
# rendezvous and its number, and the number of the pair with its receiver; channel, sender and receiver.
_GROUP, _PERMUTE, CHANNEL = 1, 2, 3


class Carrier(Protocol):
    """What carries the letters of a run."""

    rank: int

    def name_of(self, rank: int) -> str:
        """The name of a process in errors."""
        ...

    def send_value(self, session: PeerSession, rank: int, letter: Letter, body: Bytes) -> None:
        """Send a value; waits where the other process has too much that it has not asked for yet."""
        ...

    def receive(self, session: PeerSession, rank: int, address: Address) -> tuple[Letter, Bytes]:
        """Wait for a letter from a process."""
        ...

    def end(self, session: PeerSession) -> None:
        """Forget a run that is over in this process."""
        ...


class PeerSession(LocalPart):
    """See :class:`xlakit.execution.session.Session`.

    ranks: for each device of the program the process that has it. key: the run, as all of these processes know it.
    """

    def __init__(
        self,
        carrier: Carrier,
        ranks: tuple[int, ...],
        run: Run,
        execution_context: ExecutionContext,
        key: RunKey,
        program: int,
    ) -> None:
        super().__init__(run, execution_context, key[1], program, ranks.count(carrier.rank))
        self.key = key
        self._carrier = carrier
        self._ranks = ranks
        self.others = sorted(set(ranks) - {carrier.rank})
        self._rendezvous = Counter[tuple[int, ...]]()
        # The bytes that this run has sent to each process.
        self.sent = Counter[int]()

    def end(self) -> None:
        """Leave the run."""
        self._carrier.end(self)

    def is_local(self, device: int) -> bool:
        """Whether a device runs in this process."""
        return self._ranks[device] == self._carrier.rank

    # -- rendezvous ------------------------------------------------------------------------------

    def all_gather(self, rendezvous: RendezvousKey, contributions: Mapping[int, Value]) -> dict[int, Value]:
        """The payloads of all members."""
        parts = self._parts(rendezvous.members)
        payload = pack([contributions[m] for m in parts[self._carrier.rank]])
        others = [rank for rank in parts if rank != self._carrier.rank]
        arrived = self._exchange(rendezvous, "all_gather", dict.fromkeys(others, payload), others)
        values = dict(contributions)
        for rank, data in arrived.items():
            values.update(zip(parts[rank], unpack(data, len(parts[rank])), strict=True))
        return values

    def all_to_all(
        self, rendezvous: RendezvousKey, contributions: Mapping[int, Sequence[Value]], *, alike: bool
    ) -> dict[int, list[Value]]:
        """The payloads that all members have addressed to the members here."""
        members = rendezvous.members
        parts = self._parts(members)
        index = {member: number for number, member in enumerate(members)}
        here = parts[self._carrier.rank]
        others = [rank for rank in parts if rank != self._carrier.rank]
        parcels = {
            rank: pack([contributions[source][index[target]] for source in here for target in parts[rank]])
            for rank in others
        }
        arrived = self._exchange(rendezvous, "all_to_all", parcels, others)
        values: dict[int, list[Value]] = {member: list(given) for member, given in contributions.items()}
        for rank, data in arrived.items():
            pieces = iter(unpack(data, len(parts[rank]) * len(here)))
            for source in parts[rank]:
                row: list[Value] = [None] * len(members)
                for target in here:
                    row[index[target]] = next(pieces)
                values[source] = row
        return values

    def broadcast(self, rendezvous: RendezvousKey, contributions: Mapping[int, Value], root: int) -> Value:
        """The payload of the member with index ``root``."""
        sender = rendezvous.members[root]
        kind = f"broadcast from {root}"
        if sender in contributions:
            payload = pack([contributions[sender]])
            others = [rank for rank in self._parts(rendezvous.members) if rank != self._carrier.rank]
            self._exchange(rendezvous, kind, dict.fromkeys(others, payload), [])
            return contributions[sender]
        source = self._ranks[sender]
        return unpack(self._exchange(rendezvous, kind, {}, [source])[source], 1)[0]

    def reduces(self, computation: Computation, arrays: Sequence[Array]) -> bool:
        """Never: devices combine what messages bring, in the order of the group."""
        return False

    def reduce(
        self, rendezvous: RendezvousKey, contributions: Mapping[int, Sequence[Array]], computation: Computation
    ) -> list[Array]:
        """Not called; see :meth:`reduces`."""
        raise InternalError(f"messages combine no values, and {self.words(rendezvous)} asks them to")

    def _parts(self, members: Sequence[int]) -> dict[int, list[int]]:
        """The members in each process, in the order of the group."""
        parts: dict[int, list[int]] = {}
        for member in members:
            parts.setdefault(self._ranks[member], []).append(member)
        return parts

    def _exchange(
        self, rendezvous: RendezvousKey, kind: str, parcels: Mapping[int, Bytes], sources: Sequence[int]
    ) -> dict[int, Bytes]:
        """Send a parcel to each of some processes, and wait for those of others."""
        members = rendezvous.members
        with self._lock:
            self._rendezvous[members] += 1
            count = self._rendezvous[members]
        mark = self.mark(rendezvous, kind)
        place = f"{self.run.program.module.name}: {self.words(rendezvous)} with {', '.join(shapes_of(rendezvous))}"
        address: Address = (_GROUP, _digest(repr(members)), count, 0)
        letter = Letter(Kind.VALUE, self._carrier.rank, self.key, self.program, mark, address, place)
        found: dict[int, Bytes] = {}
        with self.waiting(mark, rendezvous):
            for rank, parcel in parcels.items():
                self._carrier.send_value(self, rank, letter, parcel)
            for rank in sources:
                theirs, found[rank] = self._carrier.receive(self, rank, address)
                if theirs.mark != mark:
                    raise RankError(
                        "the processes of a group are at different collectives:"
                        f"\n  here: {place}\n  {self._carrier.name_of(rank)}: {theirs.text}",
                        hint="all devices of a group must run the same collectives in the same order",
                    )
        return found

    # -- from one device to another --------------------------------------------------------------

    def send(self, key: tuple[RendezvousKey, int], target: int, value: Value) -> None:
        """Send a value to a device in another process. Waits only for room there."""
        mark, address = self._permute_address(key, target)
        with self.waiting(mark, key[0]):
            self._post(target, mark, address, value, self.words(key[0]))

    def receive(self, key: tuple[RendezvousKey, int], source: int, receiver: int) -> Value:
        """Wait for a value that a device in another process sends."""
        mark, address = self._permute_address(key, receiver)
        with self.waiting(mark, key[0]):
            _, body = self._carrier.receive(self, self._ranks[source], address)
        return unpack(body, 1)[0]

    def post(self, channel_id: int | None, message: Message) -> None:
        """Put a message into a channel of the process where its receiver runs."""
        receiver = message.receiver
        if receiver is None:
            raise InternalError("a message without a receiver stays in its process")
        channel = -1 if channel_id is None else channel_id
        address: Address = (CHANNEL, channel, message.sender, receiver)
        self._post(receiver, 0, address, message.value, f"a send on channel {channel}")

    def expecting(self) -> AbstractContextManager[object]:
        """Nothing: messages are received by a thread of their own."""
        return nullcontext()

    def _permute_address(self, key: tuple[RendezvousKey, int], receiver: int) -> tuple[int, Address]:
        rendezvous, number = key
        mark = self.mark(rendezvous, "permute")
        return mark, (_PERMUTE, mark, rendezvous.number, number << 32 | receiver)

    def _post(self, target: int, mark: int, address: Address, value: Value, place: str) -> None:
        text = f"{self.run.program.module.name}: {place}"
        letter = Letter(Kind.VALUE, self._carrier.rank, self.key, self.program, mark, address, text)
        self._carrier.send_value(self, self._ranks[target], letter, pack([value]))


def program_error(session: PeerSession, name: str, letter: Letter) -> RankError:
    """The error where another process runs another program at this place in the sequence of programs."""
    return RankError(
        f"the processes run different programs:\n  here: {session.run.program.module.name}\n  {name}: {letter.text}",
        hint="processes that have devices in common must call the programs on them in the same order",
    )


def _digest(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little", signed=True)
