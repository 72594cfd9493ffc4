"""Channels: values on their way from a send to a recv.

The order is that of XLA's document "Operation semantics". A recv posts a receive for one value. A send starts a
transfer, which ends when its value has arrived at a posted receive; send-done and recv-done wait for that. So a program
that has ended leaves no value in a channel, and a send without a recv is an error.

A channel connects one send with one recv. Of all concurrent programs that share a channel, only one may send on it, and
only one may receive: otherwise it would depend on timing which receiver gets which value.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Generator, Iterable
from contextlib import AbstractContextManager, contextmanager

from xlakit.dataclass import dataclass
from xlakit.errors import ExecutionError
from xlakit.execution.program import End
from xlakit.ir.operation import Value


@dataclass(slots=True, eq=False)
class Message:
    """A value that a device sends; ``receiver`` is None where the sender does not choose one."""

    sender: int
    receiver: int | None
    value: Value
    # The run that it comes from; None if that is in another process.
    run: object | None = None
    has_arrived: bool = False


@dataclass(slots=True, eq=False)
class PostedReceive:
    """A receive that a device has posted, and the message once it has arrived."""

    device: int
    run: object
    message: Message | None = None


@dataclass(frozen=True, slots=True, eq=False)
class _User:
    """A device of a program that uses the end of a channel."""

    name: str
    has_failed: Callable[[], bool]


class Channel:
    """The unmatched messages and the unmatched receives of one channel, both in order."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.receives: list[PostedReceive] = []

    def send(self, message: Message) -> None:
        """Match a message with the first receive that it is for; without one it is queued."""
        receive = next((r for r in self.receives if _is_for(message, r)), None)
        if receive is None:
            self.messages.append(message)
        else:
            self.receives.remove(receive)
            _arrive(message, receive)

    def receive(self, receive: PostedReceive) -> None:
        """Match a receive with the first message that is for it; without one it is queued."""
        message = next((m for m in self.messages if _is_for(m, receive)), None)
        if message is None:
            self.receives.append(receive)
        else:
            self.messages.remove(message)
            _arrive(message, receive)

    def match_any(self) -> bool:
        """Match the first message without a chosen receiver with the first receive; False if one of them is missing.

        Called only when no other message or receive can come any more, which depends on the programs and not on timing.
        """
        message = next((m for m in self.messages if m.receiver is None), None)
        if message is None or not self.receives:
            return False
        self.messages.remove(message)
        _arrive(message, self.receives.pop(0))
        return True


class Channels:
    """The channels of one run, or of the programs of an execution context or run group, by channel id."""

    def __init__(self) -> None:
        self._channels: defaultdict[int | None, Channel] = defaultdict(Channel)
        # For each end of a channel and device number, the program that uses it now.
        self._users: dict[tuple[End, int], _User] = {}

    def __getitem__(self, channel_id: int | None) -> Channel:
        return self._channels[channel_id]

    @contextmanager
    def using(
        self,
        name: str,
        device: int,
        ends: Iterable[End],
        lock: AbstractContextManager[bool],
        has_failed: Callable[[], bool],
    ) -> Generator[None]:
        """Use these ends for a device of a run during the block.

        name: of the program, for errors. lock: protects the channels. has_failed: whether the run has. Raises
        ExecutionError if the device of the same number of another program uses one of the ends, and its run has not
        failed.
        """
        user = _User(name, has_failed)
        keys = [(end, device) for end in ends]
        with lock:
            for key in keys:
                other = self._users.get(key)
                if other is not None and not other.has_failed():
                    raise _taken(key[0], other, user)
            self._users.update(dict.fromkeys(keys, user))
        try:
            yield
        finally:
            with lock:
                for key in keys:
                    if self._users.get(key) is user:
                        del self._users[key]

    def forget(self, run: object) -> list[Message]:
        """Remove the messages and receives of a run that has failed or ended; gives the removed messages."""
        left: list[Message] = []
        for number, channel in list(self._channels.items()):
            left.extend(m for m in channel.messages if m.run is run)
            channel.messages = [m for m in channel.messages if m.run is not run]
            channel.receives = [r for r in channel.receives if r.run is not run]
            if not channel.messages and not channel.receives:
                del self._channels[number]
        return left


def _taken(end: End, one: _User, other: _User) -> ExecutionError:
    channel_id, sends = end
    names, does = f"{one.name} and {other.name}", "send" if sends else "receive"
    return ExecutionError(
        f"{names} run at one time, and both {does} on channel {channel_id}",
        hint="give each pair a channel of its own, or run pairs one after the other; run_together keeps them apart",
    )


def _is_for(message: Message, receive: PostedReceive) -> bool:
    """Whether a message is for a receive: the receive's device is the chosen receiver, or by default the sender."""
    chosen = message.sender if message.receiver is None else message.receiver
    return chosen == receive.device


def _arrive(message: Message, receive: PostedReceive) -> None:
    message.has_arrived = True
    receive.message = message
