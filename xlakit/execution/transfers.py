"""Transfers: the sends and receives of a device in one run, to and from the host and other devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, cast

from xlakit.dataclass import dataclass
from xlakit.errors import ExecutionError
from xlakit.execution.channels import Message, PostedReceive
from xlakit.execution.context import ExecutionContext
from xlakit.execution.deadlocks import Wait
from xlakit.execution.run import Participant
from xlakit.execution.values import to_device
from xlakit.ir.instruction import Instruction
from xlakit.ir.operation import Value
from xlakit.ops.shared.calling import zero_value

if TYPE_CHECKING:
    from collections.abc import Callable

    from xlakit.data.shape import Shape


@dataclass(slots=True)
class _Send:
    """A send that has begun, with its messages."""

    channel_id: int | None
    messages: Sequence[Message]


@dataclass(slots=True)
class _Recv:
    """A recv that has begun, with its posted receive; None if the host sends it, or no device does.

    sources: the devices that may send it, where these are known.
    """

    channel_id: int | None
    shape: Shape
    is_host_transfer: bool
    sources: Sequence[int]
    posted: PostedReceive | None = None


class Transfers:
    """The feeds and channels of one device in one run."""

    def __init__(self, device: Participant, context: ExecutionContext) -> None:
        self._device = device
        self._run = device.run
        self._context = context
        self._sends: dict[int, _Send] = {}
        self._recvs: dict[int, _Recv] = {}
        # The number of a request is a u32 value of the program.
        self._request_count = 0

    # -- feeds -----------------------------------------------------------------------------------

    def infeed(self, instruction: Instruction, shape: Shape) -> Value:
        """The next value of the infeed."""
        return self._context.next_infeed(self._device, instruction, shape)

    def outfeed(self, instruction: Instruction, value: Value, shape: Shape) -> None:
        """Append to the outfeed."""
        self._context.append_outfeed(self._device, instruction, value, shape)

    # -- sends -----------------------------------------------------------------------------------

    def start_send(
        self, instruction: Instruction, channel_id: int | None, value: Value, *, is_host_transfer: bool
    ) -> int:
        """Put a value into a channel, addressed by the source-target pairs where the instruction has them.

        Gives the number of the request, which goes through the program to its send-done.
        """
        messages: list[Message] = []
        if is_host_transfer:
            self._context.append_to_host(self._device, instruction, channel_id or 0, value)
        else:
            messages = [Message(self._device.index, r, value, self._run) for r in self._receivers(instruction)]
        self._run.check()
        session = self._run.session
        for message in messages:
            if session is not None and message.receiver is not None and not session.is_local(message.receiver):
                # Without the lock, since it may wait for room. A message to another process counts as arrived.
                session.post(channel_id, message)
                message.has_arrived = True
        with self._context.lock:
            self._run.check()
            for message in messages:
                if not message.has_arrived:
                    self._run.channels[channel_id].send(message)
            self._context.changed()
        number = self._next_request()
        self._sends[number] = _Send(channel_id, messages)
        return number

    def _receivers(self, instruction: Instruction) -> list[int | None]:
        """The device that an instruction sends to: None for any that receives."""
        pairs = _source_target_pairs(instruction)
        if pairs is None:
            return [None]
        members, position = self._peers()
        return [members[target] for source, target in pairs if source == position and target < len(members)]

    def finish_send(self, instruction: Instruction, number: int) -> None:
        """Wait until the values of a send have arrived at recvs."""
        sent = self._sends.pop(number, None)
        if sent is None:
            raise _unknown("send")
        channel_id, messages = sent.channel_id, sent.messages
        if all(m.has_arrived for m in messages):
            return
        receivers = [self._device.program.name_of(m.receiver) for m in messages if m.receiver is not None]
        of = f" of {', '.join(receivers)}" if receivers else ""
        what = f"a recv{of} on channel {channel_id}"
        self._wait(instruction, channel_id, lambda: all(m.has_arrived for m in messages), what)

    # -- recvs -----------------------------------------------------------------------------------

    def start_recv(
        self, instruction: Instruction, channel_id: int | None, shape: Shape, *, is_host_transfer: bool
    ) -> int:
        """Post a receive for a value; the number of the request goes through the program to its recv-done."""
        pairs, (members, position) = _source_target_pairs(instruction), self._peers()
        senders = [source for source, target in pairs or () if target == position]
        recv = _Recv(channel_id, shape, is_host_transfer, [members[s] for s in senders if s < len(members)])
        if not is_host_transfer and (pairs is None or senders):
            recv.posted = PostedReceive(self._device.index, self._run)
            with self._context.lock:
                self._run.check()
                self._run.channels[channel_id].receive(recv.posted)
                self._context.changed()
        number = self._next_request()
        self._recvs[number] = recv
        return number

    def finish_recv(self, instruction: Instruction, number: int) -> Value:
        """Wait for the value of a request; zeros where the source-target pairs send nothing to this device."""
        recv = self._recvs.pop(number, None)
        if recv is None:
            raise _unknown("recv")
        channel_id, posted = recv.channel_id, recv.posted
        if recv.is_host_transfer:
            return self._context.next_from_host(self._device, instruction, channel_id or 0, recv.shape)
        if posted is None:
            return zero_value(recv.shape)
        if posted.message is None:
            what = f"a send on channel {channel_id}"
            self._wait(instruction, channel_id, lambda: posted.message is not None, what, recv.sources)
        message = cast("Message", posted.message)
        return to_device(message.value, recv.shape, f"the value from channel {channel_id}")

    # -- waiting ---------------------------------------------------------------------------------

    def _wait(
        self,
        instruction: Instruction,
        channel_id: int | None,
        ready: Callable[[], bool],
        what: str,
        sources: Sequence[int] = (),
    ) -> None:
        """Wait until ``ready()``, which a message on a channel makes true; from one of ``sources``, if known."""
        session, shared = self._run.session, self._run.shares_context
        outside = shared or session is not None
        elsewhere = [] if session is None else [source for source in sources if not session.is_local(source)]
        fallback = self._run.channels[channel_id].match_any
        wait = Wait(
            self._device,
            instruction,
            lambda: what,
            ready,
            from_outside=outside,
            fallback=fallback,
            from_programs=shared,
            sleep=session.watch(elsewhere, ready) if session is not None and elsewhere else None,
        )
        with self._context.lock:
            self._context.wait(wait)

    def _next_request(self) -> int:
        self._request_count = (self._request_count + 1) % 2**32
        return self._request_count

    def _peers(self) -> tuple[list[int], int]:
        program = self._device.program
        return program.grid.peers(self._device.index, by_partition=program.grid.num_partitions > 1)


def _unknown(kind: str) -> ExecutionError:
    return ExecutionError(
        f"this {kind}-done does not belong to a {kind} that has begun, or not any more",
        hint=f"end each {kind} with one {kind}-done",
    )


def _source_target_pairs(instruction: Instruction) -> list[tuple[int, int]] | None:
    """The pairs ``{{0,1},{1,2}}`` that partitioned programs give their sends and recvs, or None."""
    attributes: Mapping[str, str] = dict(instruction.annotations.frontend_attributes)
    text = attributes.get("_xla_send_recv_source_target_pairs")
    if text is None:
        return None
    numbers = [int(part) for part in text.replace("{", " ").replace("}", " ").replace(",", " ").split()]
    return list(zip(numbers[::2], numbers[1::2], strict=True))
