"""Channels: values on their way from a send to a recv.

The order is that of the document. A recv posts a receive for one value; a send starts a transfer, which is over, and
its send-done with it, when the value has come to a posted receive; recv-done waits for that as well. So a program that
has ended leaves no value in a channel, and a send without a recv is an error.

A channel is for one pair of a send and a recv. So of all programs that run at one time and see it, one may send there,
and one may receive: with two it would be open which value goes to which receiver.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from threading import Condition

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
    """A recv of a device that waits for a value, and the message that has come."""

    device: int
    run: object
    message: Message | None = None


@dataclass(frozen=True, slots=True, eq=False)
class _User:
    """A device of a program that uses the end of a channel."""

    name: str
    has_failed: Callable[[], bool]


class Channel:
    """The messages that no recv has taken, and the receives without a message, of one channel, in their order."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.receives: list[PostedReceive] = []

    def send(self, message: Message) -> None:
        """Give a message to the first receive that it fits, or let it wait for one."""
        receive = next((r for r in self.receives if _is_for(message, r)), None)
        if receive is None:
            self.messages.append(message)
        else:
            self.receives.remove(receive)
            _arrive(message, receive)

    def receive(self, receive: PostedReceive) -> None:
        """Give a receive the first message that fits it, or let it wait for one."""
        message = next((m for m in self.messages if _is_for(m, receive)), None)
        if message is None:
            self.receives.append(receive)
        else:
            self.messages.remove(message)
            _arrive(message, receive)

    def join_others(self) -> bool:
        """Give the first message that was sent without a receiver to the first receive; False if there is none.

        This is done when nothing else can come any more, which depends on the programs only, not on the speed of the
        threads.
        """
        message = next((m for m in self.messages if m.receiver is None), None)
        if message is None or not self.receives:
            return False
        self.messages.remove(message)
        _arrive(message, self.receives.pop(0))
        return True


class Channels:
    """The channels of one run, or of programs that share an execution context or run together, by their number."""

    def __init__(self) -> None:
        self._channels: defaultdict[int | None, Channel] = defaultdict(Channel)
        # For each end of a channel and device number, the program that uses it now.
        self._users: dict[tuple[End, int], _User] = {}

    def __getitem__(self, channel_id: int | None) -> Channel:
        return self._channels[channel_id]

    @contextmanager
    def using(
        self, name: str, device: int, ends: Iterable[End], condition: Condition, has_failed: Callable[[], bool]
    ) -> Generator[None]:
        """Use these ends for a device of a run during the block.

        name: of the program, for errors. condition: protects the channels. has_failed: whether the run has. Raises
        ExecutionError if the device of the same number of another program uses one of the ends, and its run has not
        failed.
        """
        user = _User(name, has_failed)
        keys = [(end, device) for end in ends]
        with condition:
            for key in keys:
                other = self._users.get(key)
                if other is not None and not other.has_failed():
                    raise _taken(key[0], other, user)
            self._users.update(dict.fromkeys(keys, user))
        try:
            yield
        finally:
            with condition:
                for key in keys:
                    if self._users.get(key) is user:
                        del self._users[key]

    def forget(self, run: object) -> list[Message]:
        """Take away what a run has left behind, because it failed or is over; gives its messages."""
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
    """Whether a message goes to a receive: its sender chose that device, or it is the device of the sender's number."""
    chosen = message.sender if message.receiver is None else message.receiver
    return chosen == receive.device


def _arrive(message: Message, receive: PostedReceive) -> None:
    message.has_arrived = True
    receive.message = message
