"""Session: one run on several processes.

A rendezvous between processes begins with a slot of fixed size from each process: its position in the
program, the size of its value, and the value itself if it is small. So processes that are at different points of the
program are detected before any data is misinterpreted. A value that is too large for a slot follows by MPI's own
collectives.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from xlakit.distributed.local_part import LocalPart, shapes_of
from xlakit.distributed.mailbox import Mailbox
from xlakit.distributed.packing import Bytes, pack, packed_size, unpack
from xlakit.distributed.patience import Patience
from xlakit.distributed.processes import Processes
from xlakit.distributed.reductions import combine, datatype, mpi_operation
from xlakit.distributed.slots import HEAD, inline_limit, open_rendezvous, slot_bytes
from xlakit.distributed.spread import Link
from xlakit.errors import InternalError, RankError
from xlakit.execution.channels import Message
from xlakit.execution.context import ExecutionContext
from xlakit.execution.run import Run
from xlakit.execution.session import RendezvousKey
from xlakit.ir.operation import Array, Value

if TYPE_CHECKING:
    from xlakit.ir.instruction import Computation

_NOTE = 512
# How long a failed run waits for transfers that all processes have begun, in seconds; if they end, the communicators
# stay usable.
_GRACE = 2.0


@dataclass(frozen=True, slots=True)
class _Slots:
    """The contents of the slots of the processes of a link, in its order."""

    sizes: list[int]
    # The values themselves, where all of them fit.
    inline: list[Bytes] | None


class MpiSession(LocalPart):
    """See :class:`xlakit.execution.session.Session`.

    begin: waits until all processes take part in the run, and gives the links of its groups. end: is called when the
    run is over in this process.
    """

    def __init__(
        self,
        processes: Processes,
        mailbox: Mailbox,
        run: Run,
        execution_context: ExecutionContext,
        number: int,
        program: int,
        begin: Callable[[MpiSession], Mapping[tuple[int, ...], Link]],
        end: Callable[[MpiSession], None],
    ) -> None:
        super().__init__(run, execution_context, number, program, len(processes.spread.local))
        self.processes = processes
        self._mailbox = mailbox
        self._begin = begin
        self._end = end
        self._mpi = processes.mpi
        self._links: Mapping[tuple[int, ...], Link] = {}

    def begin(self) -> None:
        """Wait until all processes take part."""
        self._links = self._begin(self)

    def end(self) -> None:
        """Leave the run."""
        self._end(self)

    def is_local(self, device: int) -> bool:
        """Whether a device runs in this process."""
        return device in self.processes.spread.local

    # -- rendezvous --------------------------------------------------------------------------------

    def all_gather(self, rendezvous: RendezvousKey, contributions: Mapping[int, Value]) -> dict[int, Value]:
        """The payloads of all members."""
        with self._at(rendezvous, "all_gather") as operation:
            link = operation.link
            payload = pack([contributions[m] for m in link.here])
            slots = self._announce(operation, payload)
            received = slots.inline
            if received is None:
                counts = slots.sizes
                buffer = np.empty(sum(counts), np.uint8)
                starts = _starts(counts)
                operation.do(
                    lambda: link.communicator.Iallgatherv([payload, self._byte], [buffer, counts, starts, self._byte])
                )
                received = [buffer[s : s + c] for s, c in zip(starts, counts, strict=True)]
            values: dict[int, Value] = {}
            for part, data in zip(link.parts, received, strict=True):
                values.update(zip(part, unpack(data, len(part)), strict=True))
            values.update(contributions)
            return values

    def all_to_all(
        self, rendezvous: RendezvousKey, contributions: Mapping[int, Sequence[Value]], *, alike: bool
    ) -> dict[int, list[Value]]:
        """The payloads that all members have addressed to the members here."""
        with self._at(rendezvous, "all_to_all") as operation:
            link = operation.link
            # For each process all that the members here have for the members there.
            parcels = [
                () if i == link.own else tuple(contributions[s][link.indices[t]] for s in link.here for t in part)
                for i, part in enumerate(link.parts)
            ]
            payload = pack(parcels)
            slots = self._announce(operation, payload)
            if slots.inline is not None:
                arrived = [unpack(data, len(link.parts))[link.own] for data in slots.inline]
            else:
                arrived = self._all_to_all(operation, payload, parcels, contributions if alike else None)
            values: dict[int, list[Value]] = {member: list(parts) for member, parts in contributions.items()}
            for i, (part, parcel) in enumerate(zip(link.parts, arrived, strict=True)):
                if i == link.own:
                    continue
                pieces = iter(parcel)
                for member in part:
                    row: list[Value] = [None] * len(link.members)
                    for target in link.here:
                        row[link.indices[target]] = next(pieces)
                    values[member] = row
            return values

    def _all_to_all(
        self,
        operation: _Operation,
        payload: Bytes,
        parcels: Sequence[Value],
        alike: Mapping[int, Sequence[Value]] | None,
    ) -> list[Value]:
        """The parcels for this process; where those of all have the sizes of ``alike`` no sizes are exchanged first."""
        link = operation.link
        sent = [packed_size(parcel) for parcel in parcels]
        if alike is not None:
            own = alike[link.here[0]]
            one = sum(packed_size(own[link.indices[t]]) for t in link.here)
            empty = packed_size(())
            counts = [empty + (one * len(part) if i != link.own else 0) for i, part in enumerate(link.parts)]
        else:
            sizes, found = np.array(sent, np.int64), np.empty(len(sent), np.int64)
            operation.do(lambda: link.communicator.Ialltoall([sizes, self._word], [found, self._word]))
            counts = found.tolist()
        buffer = np.empty(sum(counts), np.uint8)
        starts = _starts(counts)
        operation.do(
            lambda: link.communicator.Ialltoallv(
                [payload, sent, _starts(sent), self._byte], [buffer, counts, starts, self._byte]
            )
        )
        return [unpack(buffer[s : s + c], 1)[0] for s, c in zip(starts, counts, strict=True)]

    def broadcast(self, rendezvous: RendezvousKey, contributions: Mapping[int, Value], root: int) -> Value:
        """The payload of the member with index ``root``."""
        with self._at(rendezvous, f"broadcast from {root}") as operation:
            link = operation.link
            sender = link.members[root]
            source = next(i for i, part in enumerate(link.parts) if sender in part)
            payload = pack([contributions[sender]] if sender in contributions else [])
            slots = self._announce(operation, payload)
            if sender in contributions:
                buffer = payload
            elif slots.inline is not None:
                buffer = slots.inline[source]
            else:
                buffer = np.empty(slots.sizes[source], np.uint8)
            if slots.inline is None:
                operation.do(lambda: link.communicator.Ibcast([buffer, self._byte], source))
            return contributions[sender] if sender in contributions else unpack(buffer, 1)[0]

    def reduces(self, computation: Computation, arrays: Sequence[Array]) -> bool:
        """Whether MPI combines such arrays itself."""
        return all(mpi_operation(computation, a, any_order=self.processes.any_order) is not None for a in arrays)

    def reduce(
        self, rendezvous: RendezvousKey, contributions: Mapping[int, Sequence[Array]], computation: Computation
    ) -> list[Array]:
        """The arrays of all members, combined by MPI."""
        with self._at(rendezvous, "reduce") as operation:
            link = operation.link
            self._announce(operation, np.empty(0, np.uint8))
            columns = zip(*(contributions[m] for m in link.here), strict=True)
            return [self._reduce_one(operation, column, computation) for column in columns]

    def _reduce_one(self, operation: _Operation, arrays: Sequence[Array], computation: Computation) -> Array:
        """Combine the arrays of the members here, then those of all processes by MPI's all-reduce."""
        found = mpi_operation(computation, arrays[0], any_order=self.processes.any_order)
        if found is None:
            raise InternalError(f"MPI has no operation for {computation.name}")
        (name, dtype), api = found, self._mpi.api
        total = combine(name, [array.view(dtype) for array in arrays])
        parts = [total, datatype(api, dtype)]
        operation.do(lambda: operation.link.communicator.Iallreduce(api.IN_PLACE, parts, getattr(api, name)))
        return total.view(arrays[0].dtype)

    # -- from one device to another --------------------------------------------------------------

    def send(self, key: tuple[RendezvousKey, int], target: int, value: Value) -> None:
        """Send a value to a device in another process. Does not wait."""
        rendezvous, number = key
        address = (self.number, self.mark(rendezvous, "permute"), rendezvous.number, number, target)
        self._mailbox.send(self.processes.spread.rank_of(target), address, value)

    def receive(self, key: tuple[RendezvousKey, int], source: int, receiver: int) -> Value:
        """Wait for a value that a device in another process sends."""
        rendezvous, number = key
        mark = self.mark(rendezvous, "permute")
        patience = Patience(
            self.processes, self.run, self.number, mark ^ rendezvous.number, [self.processes.spread.rank_of(source)]
        )
        with self.waiting(mark, rendezvous), self.processes.watch.expecting():
            address = (self.number, mark, rendezvous.number, number, receiver)
            return self._mailbox.receive(address, patience)

    def post(self, channel_id: int | None, message: Message) -> None:
        """Put a message into a channel of the process where its receiver runs."""
        receiver = message.receiver
        if receiver is None:
            raise InternalError("a message without a receiver stays in its process")
        address = (self.number, -1 if channel_id is None else channel_id, message.sender, receiver)
        self._mailbox.send(self.processes.spread.rank_of(receiver), address, message.value)

    def expecting(self) -> AbstractContextManager[object]:
        """Poll for messages more often during the block."""
        return self.processes.watch.expecting()

    @contextmanager
    def _at(self, rendezvous: RendezvousKey, kind: str) -> Generator[_Operation]:
        link = self._links.get(rendezvous.members)
        if link is None:
            raise InternalError(f"no communicator was made for the group {list(rendezvous.members)}")
        mark = self.mark(rendezvous, kind)
        others = [rank for rank in link.ranks if rank != self.processes.spread.rank]
        patience = Patience(self.processes, self.run, self.number, mark ^ rendezvous.number, others)
        with self.waiting(mark, rendezvous):
            yield _Operation(self, rendezvous, link, mark, patience)

    # -- how they begin --------------------------------------------------------------------------

    @property
    def _byte(self) -> Any:
        return self._mpi.api.BYTE

    @property
    def _word(self) -> Any:
        return self._mpi.api.INT64_T

    def _announce(self, operation: _Operation, payload: Bytes) -> _Slots:
        """Exchange slots; raises RankError if other processes are at another point of the program."""
        link = operation.link
        limit = inline_limit(len(link.ranks))
        slot = np.zeros(slot_bytes(len(link.ranks)), np.uint8)
        slot[:HEAD].view(np.int64)[...] = (operation.mark, operation.rendezvous.number, len(payload))
        if len(payload) <= limit:
            slot[HEAD : HEAD + len(payload)] = payload
        slots = operation.open(slot)
        heads = slots[:, :HEAD].view(np.int64)
        if (heads[:, :2] != heads[0, :2]).any():
            self._explain(operation)
        sizes = heads[:, 2].tolist()
        inline = [row[HEAD : HEAD + size] for row, size in zip(slots, sizes, strict=True)]
        return _Slots(sizes, inline if max(sizes) <= limit else None)

    def _explain(self, operation: _Operation) -> None:
        """Exchange positions, after all processes have seen that they are at different points of the program."""
        link = operation.link
        text = f"{self.words(operation.rendezvous)} with {', '.join(shapes_of(operation.rendezvous))}"
        note = np.zeros(_NOTE, np.uint8)
        data = np.frombuffer(text.encode()[:_NOTE], np.uint8)
        note[: len(data)] = data
        notes = np.empty((len(link.ranks), _NOTE), np.uint8)
        operation.do(lambda: link.communicator.Iallgather([note, self._byte], [notes, self._byte]))
        lines = "".join(
            f"\n  rank {rank}: {row.tobytes().rstrip(bytes(1)).decode('utf-8', 'replace')}"
            for rank, row in zip(link.ranks, notes, strict=True)
        )
        raise RankError(
            f"the processes of a group are at different collectives:{lines}",
            hint="all devices of a group must run the same collectives in the same order",
        )


@dataclass(frozen=True, slots=True)
class _Operation:
    """A collective operation that this process takes part in."""

    session: MpiSession
    rendezvous: RendezvousKey
    link: Link
    mark: int
    patience: Patience

    def open(self, slot: Bytes) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """Wait until all processes have arrived; gives their slots."""
        self.session.run.check()
        mpi = self.session.processes.mpi
        opening = open_rendezvous(mpi, self.link, slot)
        mpi.finish(opening.request, self.patience.check)
        self.link.open.remove(opening)
        return opening.slots

    def do(self, start: Callable[[], Any]) -> None:
        """Start an operation of MPI after all processes have arrived, and wait until it is done."""
        mpi = self.session.processes.mpi
        request = mpi.call(start)
        try:
            mpi.finish(request, self._progress_check(), moves=True)
        except BaseException:
            self.link.is_spoilt = True
            # MPI still uses the memory.
            self.session.processes.abandon(request, start)
            raise

    def _progress_check(self) -> Callable[[], None]:
        """A check for the time while data moves: after a failure of the run it raises when a grace period is over."""
        since: float | None = None

        def check() -> None:
            nonlocal since
            if self.session.run.failure is None:
                self.patience.check()
                return
            since = since or time.monotonic()
            if time.monotonic() - since > _GRACE:
                self.session.run.check()

        return check


def _starts(counts: Sequence[int]) -> list[int]:
    return [0, *np.cumsum(counts[:-1], dtype=np.int64).tolist()] if counts else []
