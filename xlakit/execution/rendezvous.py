"""Rendezvous: how the members of a group exchange values in a collective.

The members put their payloads into a box, whose key is the site of the instruction
(:mod:`xlakit.ops.communication.sites`), the group, and the number of the rendezvous there, so that iterations of a loop
are kept apart. If a run has a session, some of its devices are in other processes; see :mod:`xlakit.execution.session`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from xlakit.execution.context import ExecutionContext
from xlakit.execution.deadlocks import Wait
from xlakit.execution.groups import check_pairs
from xlakit.execution.run import Box, Participant
from xlakit.execution.session import RendezvousKey, Session
from xlakit.ops.communication.collective import reduce_members

if TYPE_CHECKING:
    from xlakit.ir.attributes import CollectiveGroups
    from xlakit.ir.instruction import Computation, Instruction
    from xlakit.ir.operation import Array, Evaluation, Value

# Up to so many bytes of all devices, a reduction between processes is an all-gather, which needs one step less.
SMALL_REDUCTION = 1 << 15

# Fetches the values of members in other processes, given those of the local members.
_Carrier = Callable[[Session, dict[int, Any]], dict[int, Any]]


class Rendezvous:
    """The rendezvous of one device in one run."""

    def __init__(self, device: Participant, context: ExecutionContext) -> None:
        self._device = device
        self._run = device.run
        self._context = context
        self._grid = device.program.grid
        self._generations: dict[Any, int] = {}

    # -- collectives ---------------------------------------------------------------------------

    def index_in_group(self, groups: CollectiveGroups) -> tuple[int, int]:
        """This device's index in the group, and the number of members; -1 and 0 for a device in no group."""
        members = self._members(groups)
        return (members.index(self._device.index), len(members)) if members else (-1, 0)

    def all_gather(self, instruction: Instruction, groups: CollectiveGroups, payload: Value) -> tuple[list[Value], int]:
        """The payloads of all members in the order of the group, and this device's index in it."""
        rendezvous = self._next(instruction, groups)
        if rendezvous is None:
            return [], -1
        gathered = self._all_gather(rendezvous, payload)
        return gathered, rendezvous.members.index(self._device.index)

    def all_to_all(self, instruction: Instruction, groups: CollectiveGroups, payloads: Sequence[Value]) -> list[Value]:
        """The payload that each member of the group has for this device."""
        rendezvous = self._next(instruction, groups)
        return [] if rendezvous is None else self._all_to_all(rendezvous, payloads, alike=False)

    def broadcast(self, instruction: Instruction, groups: CollectiveGroups, payload: Value, root: int) -> Value:
        """The payload of the member with index ``root``; the own payload on a device in no group."""
        rendezvous = self._next(instruction, groups)
        if rendezvous is None:
            return payload
        sender = rendezvous.members[root]
        gathered = self._assemble(
            rendezvous,
            payload,
            lambda session, contributions: {sender: session.broadcast(rendezvous, contributions, root)},
        )
        return gathered[sender]

    def reduce(
        self, context: Evaluation, groups: CollectiveGroups, arrays: Sequence[Array], computation: Computation
    ) -> list[Array] | None:
        """The arrays of all members combined in the order of the group; None on a device in no group."""
        rendezvous = self._next(context.instruction, groups)
        if rendezvous is None:
            return None
        session = self._run.session
        # With two members, reducing in parts sends as many bytes as an all-gather and takes a step more.
        many = len(rendezvous.members) > 2
        if many and session is not None and not all(map(session.is_local, rendezvous.members)):
            # All members must take the same branch, so it depends on the program alone.
            fixed = not any(operand.shape.is_dynamic for operand in context.instruction.operands)
            if fixed and sum(a.nbytes for a in arrays) * len(rendezvous.members) > SMALL_REDUCTION:
                if session.reduces(computation, arrays):
                    key = rendezvous
                    return self._assemble(key, arrays, lambda s, b: {-1: s.reduce(key, b, computation)})[-1]
                if all(i.is_pointwise for i in computation.instructions):
                    return self._reduce_in_parts(context, rendezvous, arrays, computation)
        return reduce_members(context, computation, self._all_gather(rendezvous, tuple(arrays)))

    def _reduce_in_parts(
        self, context: Evaluation, rendezvous: RendezvousKey, arrays: Sequence[Array], computation: Computation
    ) -> list[Array]:
        """A reduce-scatter, then an all-gather: each member combines one part of the arrays, in the order of the group.

        The result has the same bits as if every member had combined the whole arrays.
        """
        count = len(rendezvous.members)
        pieces = [np.array_split(array.reshape(-1), count) for array in arrays]
        received = self._all_to_all(rendezvous, [tuple(p[i] for p in pieces) for i in range(count)], alike=True)
        reduced_part = reduce_members(context, computation, received, is_part=True)
        parts = self._all_gather(self._key_at(rendezvous.instruction, rendezvous.members), tuple(reduced_part))
        results = [context.new_result(k, a.shape, a.dtype) for k, a in enumerate(arrays)]
        for k, result in enumerate(results):
            np.concatenate([p[k] for p in parts], out=result.reshape(-1))
        return results

    def permute(
        self,
        instruction: Instruction,
        pairs: Sequence[tuple[int, int]],
        payloads: Sequence[Value],
        channel_id: int | None,
    ) -> dict[int, Value]:
        """Send along source-target pairs; what arrived, by the number of its pair."""
        members, position = self._grid.peers(self._device.index, by_partition=channel_id is not None)
        check_pairs(pairs, len(members))
        rendezvous = self._key_at(instruction, tuple(members))
        session = self._run.session
        is_local = [session is None or session.is_local(member) for member in members]
        local = [n for n, (source, target) in enumerate(pairs) if is_local[source] and is_local[target]]
        expected = [n for n in local if pairs[n][1] == position]
        arrived = {n: payloads[n] for n in expected if pairs[n][0] == position}
        # Where this device is the only member in this process, no box is needed.
        has_box = is_local.count(True) > 1
        box = Box()
        if has_box:
            with self._context.lock:
                box = self._run.boxes.setdefault(rendezvous.key, box)
                box.values.update((n, payloads[n]) for n in local if pairs[n][0] == position)
                self._context.changed()
        if session is not None:
            for number, (source, target) in enumerate(pairs):
                if source == position and not is_local[target]:
                    session.send((rendezvous, number), members[target], payloads[number])

        def absent() -> list[int]:
            return [members[pairs[n][0]] for n in expected if n not in box.values]

        if has_box:
            self._wait(rendezvous, box, absent, lambda: not absent(), is_local.count(True))
            arrived = {number: box.values[number] for number in expected}
        if session is not None:
            for number, (source, target) in enumerate(pairs):
                if target == position and not is_local[source]:
                    arrived[number] = session.receive((rendezvous, number), members[source], self._device.index)
        return arrived

    # -- the boxes -------------------------------------------------------------------------------

    def _next(self, instruction: Instruction, groups: CollectiveGroups) -> RendezvousKey | None:
        """The next rendezvous at an instruction; None where this device is in no group."""
        members = self._members(groups)
        return self._key_at(instruction, tuple(members)) if members else None

    def _members(self, groups: CollectiveGroups) -> list[int]:
        return self._grid.members(self._device.index, groups)

    def _key_at(self, instruction: Instruction, members: tuple[int, ...]) -> RendezvousKey:
        site = self._device.program.site_of(instruction)
        return RendezvousKey(instruction, site, members, self.count(site, members))

    def count(self, site: str, members: tuple[int, ...]) -> int:
        """The number of the next rendezvous of a group at a site."""
        number = self._generations[site, members] = self._generations.get((site, members), 0) + 1
        return number

    def _all_gather(self, rendezvous: RendezvousKey, payload: Value) -> list[Value]:
        gathered = self._assemble(
            rendezvous, payload, lambda session, contributions: session.all_gather(rendezvous, contributions)
        )
        return [gathered[member] for member in rendezvous.members]

    def _all_to_all(self, rendezvous: RendezvousKey, payloads: Sequence[Value], *, alike: bool) -> list[Value]:
        gathered = self._assemble(
            rendezvous,
            payloads,
            lambda session, contributions: session.all_to_all(rendezvous, contributions, alike=alike),
        )
        index = rendezvous.members.index(self._device.index)
        return [gathered[member][index] for member in rendezvous.members]

    def _assemble(self, rendezvous: RendezvousKey, payload: Any, carry: _Carrier) -> dict[int, Any]:
        """The payloads of all members; ``carry`` fetches those of members in other processes."""
        members, session = rendezvous.members, self._run.session
        if len(members) == 1:
            return {members[0]: payload}
        here = members if session is None else [m for m in members if session.is_local(m)]
        if session is not None and len(here) == 1:
            # This device is the only member in this process: no box is needed.
            return carry(session, {self._device.index: payload})
        with self._context.lock:
            box = self._run.boxes.setdefault(rendezvous.key, Box())
            box.values[self._device.index] = payload
            is_last = len(box.values) == len(here)
            if is_last and len(here) == len(members):
                box.outcome = box.values
            self._context.changed()
        if is_last and box.outcome is None and session is not None:
            outcome = carry(session, box.values)
            with self._context.lock:
                box.outcome = outcome
                self._context.changed()

        def absent() -> list[int]:
            return [m for m in here if m not in box.values]

        self._wait(rendezvous, box, absent, lambda: box.outcome is not None, len(here))
        return box.outcome or {}

    def _wait(
        self,
        rendezvous: RendezvousKey,
        box: Box,
        absent: Callable[[], list[int]],
        ready: Callable[[], bool],
        count: int,
    ) -> None:
        """Wait until a rendezvous is ready; the last of ``count`` devices removes its box."""

        def names() -> str:
            return "; ".join(map(self._device.program.name_of, absent())) or "devices in other processes"

        with self._context.lock:
            self._context.wait(Wait(self._device, rendezvous.instruction, names, ready, absent))
            box.left += 1
            if box.left == count:
                del self._run.boxes[rendezvous.key]
