"""Watch: the thread that receives messages of the other processes.

Three kinds of messages travel between processes beside collectives: questions and answers about what a process is
doing, asked by processes that wait for it; notices that a run, or the whole process, has failed; and mail, the values
of collective-permutes and channels. While all goes well only mail is sent.
"""

from __future__ import annotations

import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np

from xlakit.distributed.mpi import Mpi
from xlakit.distributed.packing import Bytes

_CONTROL, _MAIL = 1, 2
_HEAD = struct.Struct("=qqqqq")
_LONGEST_TEXT = 4000
# The interval between polls in seconds: when no message is expected, and when one is.
_IDLE, _ALERT = 0.02, 5e-5


class Kind(IntEnum):
    """The kinds of control messages."""

    ASK = 0
    ANSWER = 1
    RUN_FAILED = 2
    PROCESS_FAILED = 3


class Phase(IntEnum):
    """The activity of a process."""

    OUTSIDE = 0  # of any program
    STARTING = 1  # waits for all processes to start a program
    RUNNING = 2
    WAITING = 3  # runs a program, all of its devices wait for other processes
    LEFT = 4


@dataclass(frozen=True, slots=True)
class State:
    """The reported state of a process: its current or last run, and where it waits."""

    phase: Phase
    run: int
    text: str
    # The last run that it has said it will take part in.
    posted: int = 0
    # The marks of the rendezvous that it is at.
    marks: frozenset[int] = frozenset()
    when: float = 0.0


@dataclass(frozen=True, slots=True)
class _Arriving:
    """A message that is being received."""

    request: Any
    data: Bytes
    source: int
    tag: int


class Watch:
    """Receives messages, and answers questions about this process."""

    def __init__(self, mpi: Mpi, communicator: Any, describe: Callable[[], State]) -> None:
        self.rank: int = communicator.rank
        self._mpi = mpi
        self.communicator = communicator
        self._describe = describe
        self._lock = threading.Lock()
        self._pumping = threading.Lock()
        # Sends, and receives of mail, that are under way, with the memory that they use.
        self._sending: list[tuple[Any, Bytes]] = []
        self._receiving: deque[_Arriving] = deque()
        self.states: dict[int, State] = {}
        # The processes that have ended with an error, with the text of the error.
        self.failed: dict[int, str] = {}
        self.on_run_failed: Callable[[int, int, str], None] = lambda rank, run, text: None
        self.on_process_failed: Callable[[int, str], None] = lambda rank, text: None
        self.on_mail: Callable[[Bytes], None] = lambda data: None
        # Called repeatedly while no message arrives.
        self.on_quiet: Callable[[], None] = lambda: None
        # Tasks for this thread.
        self._tasks: deque[Callable[[], None]] = deque()
        self._expecting = 0
        self._wake = threading.Event()
        self._stopped = False
        self._thread = threading.Thread(target=self._serve, name="xlakit-mpi-watch", daemon=True)

    def start(self) -> None:
        """Begin to listen."""
        self._thread.start()

    def stop(self) -> None:
        """Listen no longer."""
        self._stopped = True
        self._wake.set()
        self._thread.join()

    @contextmanager
    def expecting(self) -> Generator[None]:
        """Poll more often during the block, because a thread waits for a message."""
        with self._lock:
            self._expecting += 1
        self._wake.set()
        try:
            yield
        finally:
            with self._lock:
                self._expecting -= 1

    # -- sending ---------------------------------------------------------------------------------

    def ask(self, rank: int) -> None:
        """Ask a process what it is doing; the answer comes into ``states``."""
        self._control(rank, Kind.ASK, State(Phase.OUTSIDE, 0, ""))

    def tell_all(self, kind: Kind, run: int, text: str) -> None:
        """Send a notice to all others, without waiting."""
        for rank in range(self.communicator.size):
            if rank != self.rank:
                self._control(rank, kind, State(Phase.OUTSIDE, run, text))

    def later(self, task: Callable[[], None]) -> None:
        """Let the listening thread do something, for callers that hold locks."""
        self._tasks.append(task)
        self._wake.set()

    def mail(self, rank: int, data: Bytes) -> None:
        """Send mail, without waiting."""
        self._send(rank, _MAIL, data)

    def _control(self, rank: int, kind: Kind, state: State) -> None:
        words = np.array(sorted(state.marks), np.int64).tobytes()
        body = state.text.encode("utf-8", "replace")[:_LONGEST_TEXT]
        head = _HEAD.pack(kind, state.run, state.phase, state.posted, len(state.marks))
        self._send(rank, _CONTROL, np.frombuffer(head + words + body, np.uint8))

    def _send(self, rank: int, tag: int, data: Bytes) -> None:
        request = self._mpi.call(lambda: self.communicator.Isend([data, self._mpi.api.BYTE], rank, tag))
        with self._lock:
            self._sending.append((request, data))
        self._wake.set()

    # -- listening -------------------------------------------------------------------------------

    def _serve(self) -> None:
        while not self._stopped:
            while self._tasks:
                self._tasks.popleft()()
            if self.pump():
                continue
            if self._expecting or self._sending or self._receiving:
                time.sleep(_ALERT)
            else:
                self.on_quiet()
                self._wake.wait(_IDLE)
                self._wake.clear()

    def has_sent_all(self) -> bool:
        """Whether all sends are complete."""
        return not self._tasks and not self._sending

    def pump(self) -> bool:
        """Receive messages; False if there were none, or another thread is receiving."""
        if not self._pumping.acquire(blocking=False):
            return False
        try:
            with self._lock:
                self._sending = [pair for pair in self._sending if not self._mpi.call(pair[0].Test)]
            came = self._take_in()
            return self._finish_receives() or came
        finally:
            self._pumping.release()

    def _take_in(self) -> bool:
        came = False
        while self._take_in_one():
            came = True
        return came

    def _take_in_one(self) -> bool:
        api, call = self._mpi.api, self._mpi.call
        status = api.Status()
        message = call(lambda: self.communicator.Improbe(api.ANY_SOURCE, api.ANY_TAG, status))
        if message is None:
            return False
        data = np.empty(status.Get_count(api.BYTE), np.uint8)
        request = call(lambda: message.Irecv([data, api.BYTE]))
        self._receiving.append(_Arriving(request, data, status.Get_source(), status.Get_tag()))
        return True

    def _finish_receives(self) -> bool:
        """Hand over what is complete, in the order in which it was sent."""
        came = False
        while self._receiving and self._mpi.call(self._receiving[0].request.Test):
            arrived = self._receiving.popleft()
            came = True
            if arrived.tag == _MAIL:
                self.on_mail(arrived.data)
            else:
                self._control_came(arrived.source, arrived.data.tobytes())
        return came

    def _control_came(self, source: int, data: bytes) -> None:
        kind, run, phase, posted, count = _HEAD.unpack_from(data)
        marks = np.frombuffer(data, np.int64, count, _HEAD.size)
        text = data[_HEAD.size + marks.nbytes :].decode("utf-8", "replace")
        if kind == Kind.ASK:
            self._control(source, Kind.ANSWER, self._describe())
        elif kind == Kind.ANSWER:
            now = time.monotonic()
            self.states[source] = State(Phase(phase), run, text, posted, frozenset(marks.tolist()), now)
        elif kind == Kind.RUN_FAILED:
            self.on_run_failed(source, run, text)
        else:
            self.failed[source] = text
            self.on_process_failed(source, text)
