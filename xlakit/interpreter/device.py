"""Device: what one replica and partition of a running program sees; Run: one execution; Program: what does not change.

The devices of a run meet in boxes, under the instruction (or its channel), the group, and how often this device has
been there, so that a collective in a loop meets itself only in the same iteration.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from xlakit.errors import ExecutionError
from xlakit.interpreter.custom_calls import CustomCalls
from xlakit.interpreter.evaluate import Plan, make_plan
from xlakit.interpreter.values import to_device
from xlakit.interpreter.world import Message, Wait, World
from xlakit.ir.attributes import ReplicaGroups
from xlakit.ir.instruction import Computation, HloModule, Instruction
from xlakit.ir.operation import Array, Value
from xlakit.ops.shared.calling import zero_value

if TYPE_CHECKING:
    from xlakit.data.shape import Shape

# Where XLA's CPU backend begins.
_FIRST_RNG_STATE = 0x7012395
_COUNTS_HINT = "give the num_replicas and num_partitions that the program was written for"


class Program:
    """What all executions of one program share."""

    def __init__(self, module: HloModule, num_replicas: int, num_partitions: int, custom_calls: CustomCalls) -> None:
        self.module = module
        self.num_replicas = num_replicas
        self.num_partitions = num_partitions
        self.custom_calls = custom_calls
        self._plans: dict[Computation, Plan] = {}
        # The random state of each device, which moves on from one execution to the next.
        self.rng_states: defaultdict[int, int] = defaultdict(lambda: _FIRST_RNG_STATE)

    def plan(self, computation: Computation) -> Plan:
        """The plan of a computation, made when it is first needed."""
        found = self._plans.get(computation)
        if found is None:
            found = self._plans[computation] = make_plan(computation)
        return found


class Stopped(ExecutionError):
    """This device stops because another one failed; who runs the program raises what happened there."""


@dataclass(slots=True)
class _Box:
    """What the members of a group have brought to one meeting."""

    values: dict[int, Value] = field(default_factory=dict)
    left: int = 0


class Run:
    """One execution of a program on all its devices."""

    def __init__(self, program: Program, world: World, *, shares_world: bool) -> None:
        self.program = program
        self.world = world
        self.shares_world = shares_world
        self.failure: BaseException | None = None
        self._stops: list[Callable[[], None]] = []
        self.boxes: dict[Any, _Box] = {}

    def fail(self, error: BaseException) -> None:
        """Stop all devices; the first error is the one that counts."""
        with self.world.changing():
            if self.failure is None:
                self.failure = error
            for stop in self._stops:
                stop()

    def when_failed(self, stop: Callable[[], None]) -> None:
        """Call ``stop`` as soon as a device has failed, on whichever thread that happens."""
        with self.world.condition:
            self._stops.append(stop)
            if self.failure is not None:
                stop()

    def check(self) -> None:
        """Raise Stopped where a device has failed."""
        if self.failure is not None:
            raise Stopped("another device failed")


@dataclass(slots=True)
class _Request:
    """A recv that has begun."""

    instruction: Instruction
    channel_id: int | None
    shape: Shape
    is_host_transfer: bool


class Device:
    """One replica and partition in one run, on one thread."""

    def __init__(self, run: Run, index: int, rng: np.random.Generator) -> None:
        self.run = run
        self.program = run.program
        self.world = run.world
        self.index = index
        self.replica_id, self.partition_id = divmod(index, run.program.num_partitions)
        self.rng = rng
        self._visits = Counter[Any]()
        self._requests: dict[int, _Request] = {}
        self._request_count = 0

    def __str__(self) -> str:
        return _name(self.program, self.index)

    def advance_rng_state(self, delta: int) -> Array:
        """The 128-bit random state, low half first; then ``delta`` is added to it."""
        state = self.program.rng_states[self.index]
        self.program.rng_states[self.index] = (state + delta) % 2**128
        return np.array([state % 2**64, state >> 64], dtype=np.uint64)

    # -- collectives -----------------------------------------------------------------------------

    def exchange(
        self,
        instruction: Instruction,
        groups: ReplicaGroups,
        payload: Value,
        channel_id: int | None,
        use_global_device_ids: bool | None,
    ) -> tuple[list[Value], int]:
        """Meet the other members of this device's group; see xlakit.ir.operation.Evaluation."""
        members = self._members(groups, channel_id is not None, use_global_device_ids)
        if not members:
            return [], -1
        if members == [self.index]:
            return [payload], 0
        key = self._meeting(instruction, channel_id, tuple(members))
        with self.world.changing():
            box = self.run.boxes.setdefault(key, _Box())
            box.values[self.index] = payload

        def absent() -> list[str]:
            return [_name(self.program, m) for m in members if m not in box.values]

        with self.world.condition:
            self.world.wait(Wait(self, instruction, lambda: "; ".join(absent()), lambda: not absent()))
            self._leave(key, box, len(members))
        return [box.values[member] for member in members], members.index(self.index)

    def _members(self, groups: ReplicaGroups, has_channel: bool, use_global_device_ids: bool | None) -> list[int]:
        """The devices of this device's group, by CollectiveOpGroupMode; none where it is in no group."""
        replicas, partitions = self.program.num_replicas, self.program.num_partitions
        if not has_channel:
            own, count = self.replica_id, replicas
        elif use_global_device_ids is None:
            own, count = self.partition_id, partitions
        elif use_global_device_ids:
            own, count = self.index, replicas * partitions
        else:
            own, count = self.replica_id, replicas
        ids = self._group(groups, own, count)
        if not has_channel:
            return [i * partitions + self.partition_id for i in ids]
        if use_global_device_ids is None:
            return [self.replica_id * partitions + i for i in ids]
        if use_global_device_ids:
            return ids
        return [i * partitions + partition for i in ids for partition in range(partitions)]

    @staticmethod
    def _group(groups: ReplicaGroups, own: int, count: int) -> list[int]:
        if not groups.groups:
            return list(range(count))
        for group in groups.groups:
            for member in group:
                if member >= count:
                    raise ExecutionError(
                        f"replica groups name {member}, the program runs with ids 0 .. {count - 1}",
                        hint=_COUNTS_HINT,
                    )
        return next((list(group) for group in groups.groups if own in group), [])

    def _meeting(self, instruction: Instruction, channel_id: int | None, members: tuple[int, ...]) -> Any:
        """The key of this device's next meeting. Collectives of one kind on one channel are the same collective."""
        place = instruction if channel_id is None else (instruction.opcode, channel_id)
        self._visits[place, members] += 1
        return place, members, self._visits[place, members]

    def _leave(self, key: Any, box: _Box, count: int) -> None:
        box.left += 1
        if box.left == count:
            del self.run.boxes[key]

    def permute(
        self,
        instruction: Instruction,
        pairs: Sequence[tuple[int, int]],
        payloads: Sequence[Value],
        channel_id: int | None,
    ) -> dict[int, Value]:
        """Send along source-target pairs; what arrived, by the number of its pair."""
        members, own = self._peers(by_partition=channel_id is not None)
        for pair in pairs:
            if max(pair) >= len(members):
                raise ExecutionError(
                    f"source_target_pairs name {max(pair)}, the program runs with ids 0 .. {len(members) - 1}",
                    hint=f"with a channel_id the ids are partitions, without one they are replicas; {_COUNTS_HINT}",
                )
        key = self._meeting(instruction, channel_id, tuple(members))
        expected = [number for number, (_, target) in enumerate(pairs) if target == own]
        with self.world.changing():
            box = self.run.boxes.setdefault(key, _Box())
            for number, (source, _) in enumerate(pairs):
                if source == own:
                    box.values[number] = payloads[number]

        def absent() -> list[str]:
            return [_name(self.program, members[pairs[n][0]]) for n in expected if n not in box.values]

        with self.world.condition:
            self.world.wait(Wait(self, instruction, lambda: "; ".join(absent()), lambda: not absent()))
            self._leave(key, box, len(members))
        return {number: box.values[number] for number in expected}

    def _peers(self, *, by_partition: bool) -> tuple[list[int], int]:
        """The devices that ids stand for, and the own id: the partitions of this replica, or the other way round."""
        replicas, partitions = self.program.num_replicas, self.program.num_partitions
        if by_partition:
            return [self.replica_id * partitions + i for i in range(partitions)], self.partition_id
        return [i * partitions + self.partition_id for i in range(replicas)], self.replica_id

    # -- feeds and channels ----------------------------------------------------------------------

    def infeed(self, instruction: Instruction, shape: Shape) -> Value:
        """The next value of the infeed."""
        return to_device(self.world.next_infeed(self, instruction, shape), shape, "infeed")

    def outfeed(self, value: Value) -> None:
        """Append to the outfeed."""
        self.world.append_outfeed(self, value)

    def send(self, instruction: Instruction, channel_id: int | None, value: Value, *, is_host_transfer: bool) -> None:
        """Put a value into a channel, addressed by the source-target pairs where the instruction has them."""
        if is_host_transfer:
            self.world.append_to_host(self, channel_id or 0, value)
            return
        pairs = _source_target_pairs(instruction)
        if pairs is None:
            self.world.put(channel_id, Message(self.index, None, value))
            return
        members, own = self._peers(by_partition=self.program.num_partitions > 1)
        for source, target in pairs:
            if source == own and target < len(members):
                self.world.put(channel_id, Message(self.index, members[target], value))

    def start_recv(
        self, instruction: Instruction, channel_id: int | None, shape: Shape, *, is_host_transfer: bool
    ) -> int:
        """Note a request, whose number goes through the program to its recv-done."""
        self._request_count += 1
        self._requests[self._request_count] = _Request(instruction, channel_id, shape, is_host_transfer)
        return self._request_count

    def finish_recv(self, number: int) -> Value:
        """Wait for the value of a request; zeros where the source-target pairs send nothing to this device."""
        request = self._requests.pop(number, None)
        if request is None:
            raise ExecutionError(
                "this recv-done does not belong to a recv that has begun, or not any more",
                hint="end each recv with one recv-done",
            )
        channel = request.channel_id
        if request.is_host_transfer:
            value = self.world.next_from_host(self, request.instruction, channel or 0)
            return to_device(value, request.shape, "the value from the host")
        pairs = _source_target_pairs(request.instruction)
        if pairs is not None:
            _, own = self._peers(by_partition=self.program.num_partitions > 1)
            if all(target != own for _, target in pairs):
                return zero_value(request.shape)
        value = self.world.take(self, request.instruction, channel, shared=self.run.shares_world)
        return to_device(value, request.shape, f"the value from channel {channel}")


def _name(program: Program, index: int) -> str:
    replica, partition = divmod(index, program.num_partitions)
    return f"replica {replica}" + (f", partition {partition}" if program.num_partitions > 1 else "")


def _source_target_pairs(instruction: Instruction) -> list[tuple[int, int]] | None:
    """The pairs ``{{0,1},{1,2}}`` that partitioned programs give their sends and recvs, or None."""
    attributes: Mapping[str, str] = dict(instruction.annotations.frontend_attributes)
    text = attributes.get("_xla_send_recv_source_target_pairs")
    if text is None:
        return None
    numbers = [int(part) for part in text.replace("{", " ").replace("}", " ").replace(",", " ").split()]
    return list(zip(numbers[::2], numbers[1::2], strict=True))
