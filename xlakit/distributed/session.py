"""NetworkSession: one run on several processes, whose collectives are made of messages.

In a rendezvous the last member to arrive in a process sends the payloads of all members there to the other processes,
one message to each, and then waits for their messages. A message has the sender's location in the program, so processes
that are at different locations are detected at once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol

import numpy as np

from xlakit.distributed.fingerprint import Fingerprint, group_number
from xlakit.distributed.local_part import LocalPart
from xlakit.distributed.messages import Address, Header, RunKey
from xlakit.distributed.packing import Bytes, pack, packed_size, unpack
from xlakit.distributed.prepared import prepared
from xlakit.distributed.reductions import combine, reordered
from xlakit.errors import InternalError, RankError
from xlakit.execution.channels import Message
from xlakit.execution.context import ExecutionContext
from xlakit.execution.run import Run
from xlakit.execution.session import PreparedCollective, RendezvousKey
from xlakit.ir.operation import Array, Value

if TYPE_CHECKING:
    from xlakit.execution.program import Program
    from xlakit.ir.instruction import Computation, Instruction

# The first number of a value's address. After it follow, for _GROUP the group and the number of the exchange in it; for
# _PERMUTE the location of the rendezvous, its number, and the number of the pair with its receiver; for CHANNEL the
# channel, sender and receiver.
_GROUP, _PERMUTE, CHANNEL = 1, 2, 3
# Up to so many processes exchange values directly; more of them use an algorithm of log2(n) rounds.
_DIRECT = 4
# An all-to-all uses rounds only up to so many bytes.
_SMALL = 1 << 16


class Peers(Protocol):
    """The other processes, as a run sees them.

    any_order: whether processes may combine floating point numbers in an order of their own.
    """

    any_order: bool

    @property
    def rank(self) -> int:
        """The number of this process."""
        ...

    def name_of(self, rank: int) -> str:
        """The name of a process in errors."""
        ...

    def new_body(self, size: int) -> Bytes:
        """Memory for the body of a value, from which it is sent with the fewest copies."""
        ...

    def send_value(
        self, session: NetworkSession, rank: int, mark: int, address: Address, text: str, body: Bytes
    ) -> None:
        """Send a value; waits while the other process has too many unused values.

        mark, text: the location in the program, as a number and in words.
        """
        ...

    def receive(
        self, session: NetworkSession, ranks: Sequence[int], address: Address
    ) -> dict[int, tuple[Header, Bytes]]:
        """Wait for a value from each of some processes."""
        ...

    def watch(
        self, session: NetworkSession, ranks: Collection[int], ready: Callable[[], bool]
    ) -> Callable[[float], None]:
        """A function that receives messages for a moment; it raises RankError if none can arrive any more."""
        ...

    def end(self, session: NetworkSession) -> None:
        """Forget a run that is over in this process."""
        ...


class NetworkSession(LocalPart):
    """See :class:`xlakit.execution.session.Session`.

    ranks: the process of each device of the program. key: the identity of the run, equal in all of these processes.
    """

    def __init__(
        self,
        peers: Peers,
        ranks: tuple[int, ...],
        run: Run,
        execution_context: ExecutionContext,
        key: RunKey,
        fingerprint: Fingerprint,
    ) -> None:
        super().__init__(run, execution_context, fingerprint, ranks.count(peers.rank))
        self.key = key
        self._peers = peers
        self._ranks = ranks
        self._rank = peers.rank
        self.others = [rank for rank in sorted(set(ranks)) if rank != peers.rank]
        # The number of exchanges so far, by group.
        self._exchanges: dict[tuple[int, ...], int] = {}
        # The bytes that this run has sent to each process.
        self.sent: dict[int, int] = dict.fromkeys(self.others, 0)

    def end(self) -> None:
        """Leave the run."""
        self._peers.end(self)

    def is_local(self, device: int) -> bool:
        """Whether a device runs in this process."""
        return self._ranks[device] == self._rank

    # -- rendezvous ------------------------------------------------------------------------------

    def all_gather(self, rendezvous: RendezvousKey, contributions: Mapping[int, Value]) -> dict[int, Value]:
        """The payloads of all members."""
        parts = _parts(self._ranks, rendezvous.members)
        payload = self._packed([contributions[m] for m in parts[self._rank]])
        values = dict(contributions)
        for rank, data in self._all_gather_bytes(rendezvous, "all_gather", payload).items():
            values.update(zip(parts[rank], unpack(data, len(parts[rank])), strict=True))
        return values

    def all_to_all(
        self, rendezvous: RendezvousKey, contributions: Mapping[int, Sequence[Value]], *, alike: bool
    ) -> dict[int, list[Value]]:
        """The payloads that all members have addressed to the members here."""
        members = rendezvous.members
        parts = _parts(self._ranks, members)
        index = {member: number for number, member in enumerate(members)}
        here = parts[self._rank]
        parcels = {
            rank: self._packed([contributions[source][index[target]] for source in here for target in part])
            for rank, part in parts.items()
            if rank != self._rank
        }
        least = packed_size(contributions[here[0]][0]) if alike else None
        arrived = self._all_to_all_bytes(rendezvous, "all_to_all", parcels, least)
        values: dict[int, list[Value]] = {member: list(payloads) for member, payloads in contributions.items()}
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
        kind, number = f"broadcast from {root}", self._next_number(rendezvous.members)
        source, targets = _tree(sorted(_parts(self._ranks, rendezvous.members)), self._ranks[sender], self._rank)
        if source is None:
            payload = self._packed([contributions[sender]])
        else:
            payload = self.send_and_receive(rendezvous, kind, {}, [source], number)[source]
        self.send_and_receive(rendezvous, kind, dict.fromkeys(targets, payload), [], number)
        return contributions[sender] if source is None else unpack(payload, 1)[0]

    def reduces(self, computation: Computation, arrays: Sequence[Array]) -> bool:
        """Whether the processes may combine such arrays in an order of their own."""
        return all(reordered(computation, array, any_order=self._peers.any_order) is not None for array in arrays)

    def reduce(
        self, rendezvous: RendezvousKey, contributions: Mapping[int, Sequence[Array]], computation: Computation
    ) -> list[Array]:
        """The arrays of all members, combined.

        Each process combines those of its members, then one part of the elements for all processes: first in the
        order of its members, then in that of the processes.
        """
        ranks = sorted(_parts(self._ranks, rendezvous.members))
        totals: list[Array] = []
        functions: list[np.ufunc] = []
        for column in zip(*contributions.values(), strict=True):
            found = reordered(computation, column[0], any_order=self._peers.any_order)
            if found is None:
                raise InternalError(f"{computation.name} cannot be reordered")
            functions.append(found[0])
            totals.append(combine(found[0], [array.view(found[1]).reshape(-1) for array in column]))
        pieces = [np.array_split(total, len(ranks)) for total in totals]
        parcels = {
            rank: self._packed([piece[index] for piece in pieces])
            for index, rank in enumerate(ranks)
            if rank != self._rank
        }
        arrived = self._all_to_all_bytes(rendezvous, "reduce", parcels, sum(piece[0].nbytes for piece in pieces))
        rows = {rank: unpack(data, len(totals)) for rank, data in arrived.items()}
        rows[self._rank] = [piece[ranks.index(self._rank)] for piece in pieces]
        own_parts = [combine(function, [rows[rank][k] for rank in ranks]) for k, function in enumerate(functions)]
        shared = self._all_gather_bytes(rendezvous, "reduced", self._packed(own_parts))
        parts = {rank: unpack(data, len(own_parts)) for rank, data in shared.items()}
        parts[self._rank] = own_parts
        arrays = next(iter(contributions.values()))
        return [
            np.concatenate([parts[rank][k] for rank in ranks]).view(array.dtype).reshape(array.shape)
            for k, array in enumerate(arrays)
        ]

    def _packed(self, values: Sequence[Value]) -> Bytes:
        return pack(values, self._peers.new_body)

    def _all_gather_bytes(self, rendezvous: RendezvousKey, kind: str, payload: Bytes) -> dict[int, Bytes]:
        """An all-gather of bytes between the processes of a group; gives the payloads of the others.

        With many processes this is Bruck's all-gather: in each round a process receives as many payloads as it has, so
        that their number doubles.
        """
        ranks = sorted(_parts(self._ranks, rendezvous.members))
        count = len(ranks)
        if count <= _DIRECT:
            others = [rank for rank in ranks if rank != self._rank]
            return self.send_and_receive(rendezvous, kind, dict.fromkeys(others, payload), others)
        position, gathered = ranks.index(self._rank), [payload]
        while len(gathered) < count:
            distance = len(gathered)
            width = min(distance, count - distance)
            target, source = ranks[(position - distance) % count], ranks[(position + distance) % count]
            parcel = {target: pack(gathered[:width])}
            arrived = self.send_and_receive(rendezvous, f"{kind} of {distance}", parcel, [source])
            gathered += unpack(arrived[source], width)
        return {ranks[(position + index) % count]: gathered[index] for index in range(1, count)}

    def _all_to_all_bytes(
        self, rendezvous: RendezvousKey, kind: str, parcels: Mapping[int, Bytes], size: int | None
    ) -> dict[int, Bytes]:
        """An all-to-all of bytes between the processes of a group; gives the parcels for this process.

        size: the approximate total size of all parcels of all processes; None if they may differ in size. Small parcels
        of many processes use Bruck's all-to-all: a parcel for the process at distance d is forwarded in the rounds that
        are the powers of two in d.
        """
        ranks = sorted([*parcels, self._rank])
        count, position = len(ranks), ranks.index(self._rank)
        if count <= _DIRECT or size is None or size > _SMALL:
            return self.send_and_receive(rendezvous, kind, parcels, list(parcels))
        blocks = [parcels.get(ranks[(position + index) % count], pack([])) for index in range(count)]
        distance = 1
        while distance < count:
            moved = [index for index in range(count) if index & distance]
            target, source = ranks[(position + distance) % count], ranks[(position - distance) % count]
            parcel = {target: pack([blocks[index] for index in moved])}
            arrived = self.send_and_receive(rendezvous, f"{kind} of {distance}", parcel, [source])
            for index, data in zip(moved, unpack(arrived[source], len(moved)), strict=True):
                blocks[index] = data
            distance *= 2
        return {ranks[(position - index) % count]: blocks[index] for index in range(1, count)}

    def _next_number(self, members: tuple[int, ...]) -> int:
        """The number of the next exchange of a group."""
        with self._lock:
            number = self._exchanges[members] = self._exchanges.get(members, 0) + 1
            return number

    def prepared(self, instruction: Instruction, program: Program, device: int) -> PreparedCollective | None:
        """A collective of one small array, prepared for the only device of this process; None for any other one."""
        # By id, which is unique, as the instruction lives as long as the program.
        key = id(instruction), device, self._ranks
        known = self.fingerprint.prepared
        if key not in known:
            known[key] = prepared(instruction, program, device, self._ranks, _DIRECT)
        return known[key]

    def new_body(self, size: int) -> Bytes:
        """Memory for the body of a value."""
        return self._peers.new_body(size)

    def send_and_receive(
        self,
        rendezvous: RendezvousKey,
        kind: str,
        parcels: Mapping[int, Bytes],
        sources: Sequence[int],
        number: int | None = None,
    ) -> dict[int, Bytes]:
        """Send a parcel to each of some processes, and wait for those of others.

        number: of the exchange in its group; by default the next one.
        """
        members = rendezvous.members
        number = self._next_number(members) if number is None else number
        mark, text = self.location(rendezvous, kind)
        address: Address = (_GROUP, group_number(members), number, 0)
        with self.waiting(rendezvous):
            for rank, parcel in parcels.items():
                self._peers.send_value(self, rank, mark, address, text, parcel)
            received = self._peers.receive(self, sources, address)
        for theirs, _ in received.values():
            if theirs.mark != mark:
                raise self._at_different_places(text, {rank: header.text for rank, (header, _) in received.items()})
        return {rank: body for rank, (_, body) in received.items()}

    def _at_different_places(self, text: str, others: Mapping[int, str]) -> RankError:
        texts = {rank: theirs.partition("\n")[2] for rank, theirs in others.items()}
        texts[self._rank] = text
        lines = "".join(f"\n  {self._peers.name_of(rank)}: {texts[rank]}" for rank in sorted(texts))
        return RankError(
            f"the processes of a group are at different collectives:{lines}",
            hint="all devices of a group must run the same collectives in the same order",
        )

    # -- from one device to another --------------------------------------------------------------

    def send(self, key: tuple[RendezvousKey, int], target: int, value: Value) -> None:
        """Send a value to a device in another process. Waits only for room there."""
        self.send_bytes(key, target, self._packed([value]))

    def send_bytes(self, key: tuple[RendezvousKey, int], target: int, body: Bytes) -> None:
        """As :meth:`send`, of a packed value."""
        mark, text, address = self._permute_address(key, target)
        with self.waiting(key[0]):
            self._peers.send_value(self, self._ranks[target], mark, address, text, body)

    def receive(self, key: tuple[RendezvousKey, int], source: int, receiver: int) -> Value:
        """Wait for a value that a device in another process sends."""
        return unpack(self.receive_bytes(key, source, receiver), 1)[0]

    def receive_bytes(self, key: tuple[RendezvousKey, int], source: int, receiver: int) -> Bytes:
        """As :meth:`receive`, of a packed value."""
        rank, (_, _, address) = self._ranks[source], self._permute_address(key, receiver)
        with self.waiting(key[0]):
            return self._peers.receive(self, [rank], address)[rank][1]

    def post(self, channel_id: int | None, message: Message) -> None:
        """Put a message into a channel of the process where its receiver runs."""
        receiver = message.receiver
        if receiver is None:
            raise InternalError("a message without a receiver stays in its process")
        channel = -1 if channel_id is None else channel_id
        address, body = (CHANNEL, channel, message.sender, receiver), self._packed([message.value])
        self._peers.send_value(self, self._ranks[receiver], 0, address, f"a send on channel {channel}", body)

    def watch(self, sources: Sequence[int], ready: Callable[[], bool]) -> Callable[[float], None]:
        """A function that a device calls instead of sleeping while it waits for messages from other processes."""
        return self._peers.watch(self, {self._ranks[source] for source in sources}, ready)

    def _permute_address(self, key: tuple[RendezvousKey, int], receiver: int) -> tuple[int, str, Address]:
        """The location of a value that is permuted, in numbers and in words, and its address."""
        rendezvous, number = key
        mark, text = self.location(rendezvous, "permute")
        return mark, text, (_PERMUTE, mark, rendezvous.number, number << 32 | receiver)


@lru_cache(maxsize=1024)
def _parts(ranks: tuple[int, ...], members: tuple[int, ...]) -> Mapping[int, Sequence[int]]:
    """The members in each process, in the order of the group."""
    parts: dict[int, list[int]] = {}
    for member in members:
        parts.setdefault(ranks[member], []).append(member)
    return parts


def _tree(ranks: Sequence[int], root: int, process: int) -> tuple[int | None, list[int]]:
    """The parent (None for the root) and the children of ``process`` in a broadcast tree.

    The tree is binomial; with few processes all are children of the root.
    """
    others = [rank for rank in ranks if rank != root]
    if len(ranks) <= _DIRECT:
        return (None, others) if process == root else (root, [])
    order = [root, *others]
    position, count = order.index(process), len(ranks)
    # The lowest set bit of a position is the distance to its parent; its children are at the distances of lower bits.
    lowest = position & -position if position else 1 << (count - 1).bit_length()
    steps = [1 << bit for bit in range(lowest.bit_length() - 1)]
    targets = [order[position + step] for step in reversed(steps) if position + step < count]
    return (order[position - lowest] if position else None), targets
