"""Mailbox: values that travel from one device to another: collective-permutes, and sends on channels.

A letter is its address in words, then the value. The address begins with the number of the run, so that what a failed
run has left behind is never delivered.
"""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np

from xlakit.distributed.mpi import Pause
from xlakit.distributed.packing import Bytes, pack_into, packed_size, unpack
from xlakit.distributed.patience import Patience
from xlakit.distributed.watch import Watch
from xlakit.ir.operation import Value

_WORD = 8
# The words of an address: of a channel run, channel, sender and receiver; of a collective-permute run, the mark of the
# rendezvous, its generation, the number of the pair, and the receiver.
_CHANNEL, _PERMUTE = 4, 5
Address = tuple[int, ...]


class Receiver(Protocol):
    """A run that receives values on channels."""

    @property
    def number(self) -> int:
        """The number of this run."""
        ...

    def deliver(self, channel_id: int, sender: int, receiver: int, value: Value) -> None:
        """Put a message from another process into a channel here."""
        ...


class Mailbox:
    """Values that have arrived for the devices of this process."""

    def __init__(self, watch: Watch, sessions: Mapping[int, Receiver], is_over: Callable[[int], bool]) -> None:
        self._watch = watch
        self._sessions = sessions
        self._is_over = is_over
        self._lock = threading.Lock()
        self._letters: defaultdict[Address, deque[Value]] = defaultdict(deque)
        # Messages for channels of runs that have not begun here.
        self._early: defaultdict[int, list[tuple[Address, Value]]] = defaultdict(list)
        watch.on_mail = self._came

    def send(self, rank: int, address: Address, value: Value) -> None:
        """Send a value to a process. Does not wait; the value may be changed afterwards."""
        head = _WORD * (1 + len(address))
        buffer = np.empty(head + packed_size(value), np.uint8)
        buffer[:head].view(np.int64)[...] = (len(address), *address)
        pack_into(buffer[head:], [value])
        self._watch.mail(rank, buffer)

    def receive(self, address: Address, patience: Patience) -> Value:
        """Wait for the value with an address."""
        pause = Pause()
        while True:
            self._watch.pump()
            with self._lock:
                letters = self._letters.get(address)
                if letters:
                    value = letters.popleft()
                    if not letters:
                        del self._letters[address]
                    return value
            patience.check()
            pause()

    def open(self, session: Receiver) -> None:
        """Deliver the messages that arrived for a run before it began here."""
        with self._lock:
            early = self._early.pop(session.number, [])
        for address, value in early:
            _deliver(session, address, value)

    def close(self, run: int) -> None:
        """Drop messages of a run that were not received."""
        with self._lock:
            self._early.pop(run, None)
            for address in [a for a in self._letters if a[0] == run]:
                del self._letters[address]

    def _came(self, data: Bytes) -> None:
        count = int(data[:_WORD].view(np.int64)[0])
        head = _WORD * (1 + count)
        address: Address = tuple(data[_WORD:head].view(np.int64).tolist())
        run = address[0]
        value = unpack(data[head:], 1)[0]
        if count == _PERMUTE:
            with self._lock:
                if not self._is_over(run):
                    self._letters[address].append(value)
            return
        with self._lock:
            session = self._sessions.get(run)
            if session is None and not self._is_over(run):
                self._early[run].append((address, value))
        if session is not None:
            _deliver(session, address, value)


def _deliver(session: Receiver, address: Address, value: Value) -> None:
    _, channel, sender, receiver = address
    session.deliver(channel, sender, receiver, value)
