"""Channels: values on their way from a send to a recv.

The order is that of the document. A recv makes room for one value; a send starts a transfer, which is over, and its
send-done with it, when the value has come into the room of a recv; recv-done waits for that as well. So no value is
left behind by a program that has ended, and a send whose recv never comes is found out.

A channel is for one pair of a send and a recv. So of all programs that run at one time and see it, one may send there,
and one may receive: with two it would be open which value goes to which receiver.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Condition

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
class Room:
    """Where a recv of a device wants a value, and the message that has come."""

    device: int
    run: object
    message: Message | None = None


@dataclass(frozen=True, slots=True, eq=False)
class _User:
    """A device of a program that uses the end of a channel."""

    name: str
    has_failed: Callable[[], bool]


class Channel:
    """The messages without room and the rooms without message of one channel, in their order."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.rooms: list[Room] = []

    def send(self, message: Message) -> None:
        """Bring a message to the first room for it, or let it wait for one."""
        room = next((r for r in self.rooms if _is_for(message, r)), None)
        if room is None:
            self.messages.append(message)
        else:
            self.rooms.remove(room)
            _arrive(message, room)

    def receive(self, room: Room) -> None:
        """Fill a room with the first message for it, or let it wait for one."""
        message = next((m for m in self.messages if _is_for(m, room)), None)
        if message is None:
            self.rooms.append(room)
        else:
            self.messages.remove(message)
            _arrive(message, room)

    def join_others(self) -> bool:
        """Bring the first message that was sent without a receiver to the first room; False if there is none.

        This is done when nothing else can come any more, which depends on the programs only, not on the speed of the
        threads.
        """
        message = next((m for m in self.messages if m.receiver is None), None)
        if message is None or not self.rooms:
            return False
        self.messages.remove(message)
        _arrive(message, self.rooms.pop(0))
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
            channel.rooms = [r for r in channel.rooms if r.run is not run]
            if not channel.messages and not channel.rooms:
                del self._channels[number]
        return left


def _taken(end: End, one: _User, other: _User) -> ExecutionError:
    channel_id, sends = end
    names, does = f"{one.name} and {other.name}", "send" if sends else "receive"
    return ExecutionError(
        f"{names} run at one time, and both {does} on channel {channel_id}",
        hint="give each pair a channel of its own, or run pairs one after the other; run_together keeps them apart",
    )


def _is_for(message: Message, room: Room) -> bool:
    """Whether a message goes to a room: its sender chose that device, or it is the device of the sender's number."""
    chosen = message.sender if message.receiver is None else message.receiver
    return chosen == room.device


def _arrive(message: Message, room: Room) -> None:
    message.has_arrived = True
    room.message = message
