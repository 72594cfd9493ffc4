"""Network: the processes that send each other messages, and the runs that this one takes part in."""

from __future__ import annotations

import hashlib
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from types import TracebackType
from weakref import WeakKeyDictionary

from xlakit.distributed.fingerprint import fingerprint
from xlakit.distributed.packing import Bytes, unpack
from xlakit.distributed.peers.credits import Credits
from xlakit.distributed.peers.letters import Address, Kind, Letter, Progress, RunKey
from xlakit.distributed.peers.patience import Answer, Patience
from xlakit.distributed.peers.session import CHANNEL, PeerSession, program_error
from xlakit.distributed.peers.transport import Open
from xlakit.errors import InternalError, RankError
from xlakit.execution.context import ExecutionContext
from xlakit.execution.program import Program
from xlakit.execution.run import Run
from xlakit.ir.operation import Value
from xlakit.settings import receive_limit

# How long a thread sleeps before it looks for what nothing tells it, in seconds.
_PAUSE = 0.05
# How long the network's own thread sleeps where others take in what arrives, and for how long after they have.
_ASIDE, _LATELY = 0.005, 0.02
# The fewest bytes that may be on their way from one process to another.
_LEAST_AHEAD = 1 << 16
# How long the end of a process waits for the others to have received its last messages, in seconds.
_FAREWELL = 5.0


class Network:
    """The connections of this process.

    open: opens them. After :attr:`endpoint` has been exchanged with the others, :meth:`join` is called once.

    What arrives is taken in by a thread that waits for a letter, so that no other one has to wake it; while none waits,
    by a thread of the network. ``_pumping`` is held by the one that does it.
    """

    def __init__(self, open: Open) -> None:
        self.rank = 0
        self._token = b""
        self._endpoints: Sequence[str] = ()
        self._names: Sequence[str] = ()
        # Held for all that follows; notified when anything has come.
        self.condition = threading.Condition()
        self._sessions: dict[RunKey, PeerSession] = {}
        self._posted: dict[int, int] = {}
        self._letters: dict[RunKey, dict[tuple[int, Address], deque[tuple[Letter, Bytes]]]] = {}
        self._early_failures: dict[RunKey, tuple[int, str]] = {}
        self._answers: dict[tuple[int, RunKey], Answer] = {}
        self._heard: dict[int, float] = {}
        self._gone: dict[int, str] = {}
        self._marks: WeakKeyDictionary[Program, int] = WeakKeyDictionary()
        self._ending = ""
        # The processes that know that this one ends.
        self._bidden: set[int] = set()
        self._credits = Credits(receive_limit())
        self._pumping = threading.Lock()
        # How many threads wait for letters, and when one of them has last taken in what arrives.
        self._awaiting = 0
        self._last_pumped = 0.0
        self._is_closing = False
        self._transport = open(self._came, self._lost)
        self.endpoint = self._transport.endpoint
        self._thread = threading.Thread(target=self._serve, name="xlakit-peers", daemon=True)
        self._thread.start()

    def join(self, rank: int, endpoints: Sequence[str], names: Sequence[str], token: bytes) -> None:
        """Tell what the processes have exchanged: which one this is, where all are, and what they are called in errors.

        token: the same random bytes in all processes of the job.
        """
        self.rank, self._endpoints, self._names = rank, endpoints, names
        self._credits = Credits(max(_LEAST_AHEAD, receive_limit() // max(1, len(endpoints) - 1)))
        self._token = token
        before = sys.excepthook

        def note_error(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
            before(kind, error, traceback)
            self._ending = f" with an error: {kind.__name__}: {error}"

        sys.excepthook = note_error

    def leave(self) -> None:
        """Tell the others that this process ends, and wait until the last messages have left."""
        others = self._transport.connected()
        for rank in others:
            self.send(rank, Letter(Kind.LEFT, self.rank, text=f"has ended{self._ending}"))
        with self.condition:
            known = self.condition.wait_for(
                lambda: all(r in self._bidden or r in self._gone for r in others), _FAREWELL
            )
        self._is_closing = True
        self._thread.join()
        self._transport.close(deserted=not known)

    def on(self, ranks: Sequence[int]) -> Placement:
        """The devices of a program: for each the process that has it."""
        return Placement(self, tuple(ranks))

    # -- runs ------------------------------------------------------------------------------------

    def begin(self, ranks: tuple[int, ...], run: Run, execution_context: ExecutionContext) -> PeerSession:
        """The next run of the processes that have the devices; does not wait for them."""
        members = tuple(sorted(set(ranks)))
        name = _number_of(members)
        mark = self._marks.get(run.program)
        if mark is None:
            mark = self._marks[run.program] = fingerprint(run.program)
        for rank in members:
            if rank != self.rank:
                self._transport.connect(rank, self._endpoints[rank])
        with self.condition:
            number = self._posted[name] = self._posted.get(name, 0) + 1
            key = name, number
            session = PeerSession(self, ranks, run, execution_context, key, mark)
            self._sessions[key] = session
            early = self._early_failures.pop(key, None)
            letters = self._letters.setdefault(key, {})
            channels = [address for address in letters if address[1][0] == CHANNEL]
            waiting = [entry for address in channels for entry in letters.pop(address)]
        for letter, body in waiting:
            self._deliver(session, letter, body)
        run.when_failed(lambda: self._report(session))
        if early is not None:
            self._failed_elsewhere(key, *early)
        return session

    def end(self, session: PeerSession) -> None:
        """Forget a run that is over in this process."""
        with self.condition:
            self._sessions.pop(session.key, None)
            left = self._letters.pop(session.key, {})
            for pair in [pair for pair in self._answers if pair[1] == session.key]:
                del self._answers[pair]
        for (rank, _), entries in left.items():
            for _, body in entries:
                self._use(rank, body)

    def receive(self, session: PeerSession, rank: int, address: Address) -> tuple[Letter, Bytes]:
        """Wait for a letter from a process. Raises RankError where none will come, or one of another program."""
        patience = Patience(self, session.run, session.key, rank)
        with self._awaited():
            while True:
                letters = self._letters.get(session.key, {}).get((rank, address))
                if letters:
                    letter, body = letters.popleft()
                    break
                patience.check()
                self._pump_or_wait()
        self._use(rank, body)
        if letter.program != session.program:
            raise program_error(session, self.name_of(rank), letter)
        return letter, body

    def send(self, rank: int, letter: Letter, body: Bytes | None = None) -> None:
        """Send a letter to another process, without waiting."""
        if rank != self.rank:
            self._transport.send(rank, letter.packed(self._token), body)

    def send_value(self, session: PeerSession, rank: int, letter: Letter, body: Bytes) -> None:
        """Send a value; waits where the other process has too much that it has not asked for yet.

        Raises RankError where that process is gone, or does not answer.
        """
        size = len(body)
        # Values of channels come in any order, so they do not wait for those of their own run.
        exempt = session.sent[rank] if letter.address[0] == CHANNEL else 0
        with self.condition:
            has_room = self._credits.has_room(rank, size, exempt)
        if not has_room:
            self._await_room(session, rank, size, exempt)
        with self.condition:
            session.sent[rank] += self._credits.note_sent(rank, size)
        self.send(rank, letter, body)

    def _await_room(self, session: PeerSession, rank: int, size: int, exempt: int) -> None:
        """Wait until a process has used what it has, or has ended the run, and drops what comes."""
        patience = Patience(self, session.run, session.key, rank)
        heard = None
        with self._awaited():
            while not self._credits.has_room(rank, size, exempt):
                answer = self.answer(rank, session.key)
                if answer is not None and answer.progress is Progress.OVER:
                    return
                patience.check()
                if heard != self._credits.heard(rank):
                    heard = self._credits.heard(rank)
                    self.send(rank, Letter(Kind.WAIT, self.rank))
                self._pump_or_wait()

    def _use(self, rank: int, body: Bytes) -> None:
        """Count a value that is used, and tell its sender so from time to time."""
        with self.condition:
            is_due = self._credits.note_used(rank, len(body))
            used = self._credits.tell(rank) if is_due else 0
        if is_due:
            self._answer(Letter(Kind.CREDIT, self.rank, mark=used), rank)

    # -- who takes in what arrives ---------------------------------------------------------------

    @contextmanager
    def _awaited(self) -> Generator[None]:
        """Hold the lock during the block, in which this thread waits for letters."""
        with self.condition:
            self._awaiting += 1
            try:
                yield
            finally:
                self._awaiting -= 1
                if self._awaiting:
                    # Another one takes in from here on.
                    self.condition.notify_all()

    def _pump_or_wait(self) -> None:
        """Take in what arrives, or wait, with the lock held, for the thread that does."""
        if not self._pumping.acquire(blocking=False):
            self.condition.wait(_PAUSE)
            return
        try:
            self.condition.release()
            try:
                self._transport.pump(_PAUSE)
            finally:
                self.condition.acquire()
            self._last_pumped = time.monotonic()
        finally:
            self._pumping.release()

    def _serve(self) -> None:
        while not self._is_closing:
            self._transport.look()
            if self._awaiting:
                # A thread that waits may have found this one taking in.
                with self.condition:
                    self.condition.notify_all()
                time.sleep(_ASIDE)
            elif time.monotonic() - self._last_pumped < _LATELY or not self._pumping.acquire(blocking=False):
                time.sleep(_ASIDE)
            else:
                try:
                    self._transport.pump(_PAUSE)
                finally:
                    self._pumping.release()

    # -- the others ------------------------------------------------------------------------------

    def name_of(self, rank: int) -> str:
        """The name of a process in errors."""
        return self._names[rank]

    def ask(self, rank: int, run: RunKey) -> None:
        """Ask a process for its progress in a run."""
        self.send(rank, Letter(Kind.ASK, self.rank, run))

    def answer(self, rank: int, run: RunKey) -> Answer | None:
        """The last answer."""
        return self._answers.get((rank, run))

    def gone(self, rank: int) -> tuple[float, str] | None:
        """When a process was last heard of, and how it ended; None while it is there."""
        how = self._gone.get(rank)
        return None if how is None else (self._heard.get(rank, 0.0), how)

    def _lost(self, rank: int) -> None:
        with self.condition:
            self._heard[rank] = time.monotonic()
            self._gone.setdefault(rank, "is gone: its connection has ended")
            self.condition.notify_all()

    # -- what arrives ----------------------------------------------------------------------------

    def _came(self, head: bytes, body: Bytes) -> None:
        letter = Letter.unpacked(head, self._token) if self._token else None
        if letter is None:
            return
        handle: Callable[[Letter, Bytes], None] = _HANDLERS[letter.kind].__get__(self)
        self._heard[letter.rank] = time.monotonic()
        handle(letter, body)
        with self.condition:
            self.condition.notify_all()

    def _value(self, letter: Letter, body: Bytes) -> None:
        with self.condition:
            session = self._sessions.get(letter.run)
            is_over = session is None and self._is_over(letter.run)
            if not is_over and (session is None or letter.address[0] != CHANNEL):
                letters = self._letters.setdefault(letter.run, {})
                letters.setdefault((letter.rank, letter.address), deque()).append((letter, body))
                return
        if session is None:
            self._use(letter.rank, body)
        else:
            self._deliver(session, letter, body)

    def _deliver(self, session: PeerSession, letter: Letter, body: Bytes) -> None:
        self._use(letter.rank, body)
        if letter.program != session.program:
            session.run.fail(program_error(session, self.name_of(letter.rank), letter))
            return
        _, channel, sender, receiver = letter.address
        value: Value = unpack(body, 1)[0]
        session.deliver(channel, sender, receiver, value)

    def _asked(self, letter: Letter, body: Bytes) -> None:
        progress, text = self._progress(letter.run)
        self._answer(Letter(Kind.ANSWER, self.rank, letter.run, program=progress, text=text), letter.rank)

    def _answer(self, letter: Letter, rank: int) -> None:
        """Send a letter to a process that no run here may have to do with yet."""
        self._transport.connect(rank, self._endpoints[rank])
        self.send(rank, letter)

    def _progress(self, key: RunKey) -> tuple[Progress, str]:
        session = self._sessions.get(key)
        if session is not None:
            _, text, is_waiting = session.whereabouts()
            return Progress.WAITING if is_waiting else Progress.RUNNING, text
        if self._is_over(key):
            return Progress.OVER, ""
        others = [f"it runs '{other.run.program.module.name}'" for other in list(self._sessions.values())]
        return Progress.NOT_BEGUN, "; ".join(others) or "it runs no program"

    def _is_over(self, key: RunKey) -> bool:
        return key[1] <= self._posted.get(key[0], 0) and key not in self._sessions

    def _answered(self, letter: Letter, body: Bytes) -> None:
        with self.condition:
            if letter.run in self._sessions:
                answer = Answer(Progress(letter.program), letter.text, time.monotonic())
                self._answers[letter.rank, letter.run] = answer

    def _left(self, letter: Letter, body: Bytes) -> None:
        self._gone[letter.rank] = letter.text
        self._answer(Letter(Kind.FAREWELL, self.rank), letter.rank)

    def _bid_farewell(self, letter: Letter, body: Bytes) -> None:
        self._bidden.add(letter.rank)

    def _waits(self, letter: Letter, body: Bytes) -> None:
        """Tell a process that waits for room what is used, now and when more is."""
        with self.condition:
            used = self._credits.tell(letter.rank)
            self._credits.note_waiting(letter.rank)
        self._answer(Letter(Kind.CREDIT, self.rank, mark=used), letter.rank)

    def _credited(self, letter: Letter, body: Bytes) -> None:
        with self.condition:
            self._credits.hear(letter.rank, letter.mark)

    # -- failures --------------------------------------------------------------------------------

    def _report(self, session: PeerSession) -> None:
        """Report that a run has failed here; the caller holds the lock of its execution context."""
        if session.is_reported:
            return
        session.is_reported = True
        if not session.failed_elsewhere:
            error = session.run.failure
            text = f"{type(error).__name__}: {error}"
            for rank in session.others:
                self.send(rank, Letter(Kind.FAILED, self.rank, session.key, text=text))
        session.end_if_over()

    def _has_failed(self, letter: Letter, body: Bytes) -> None:
        with self.condition:
            if letter.run not in self._sessions:
                if not self._is_over(letter.run):
                    self._early_failures.setdefault(letter.run, (letter.rank, letter.text))
                return
        self._failed_elsewhere(letter.run, letter.rank, letter.text)

    def _failed_elsewhere(self, key: RunKey, rank: int, text: str) -> None:
        session = self._sessions.get(key)
        if session is not None:
            session.failed_elsewhere = True
            session.run.fail(RankError(f"{self.name_of(rank)} failed: {text}"))


_HANDLERS: dict[Kind, Callable[[Network, Letter, Bytes], None]] = {
    Kind.VALUE: Network._value,  # pyright: ignore[reportPrivateUsage]
    Kind.ASK: Network._asked,  # pyright: ignore[reportPrivateUsage]
    Kind.ANSWER: Network._answered,  # pyright: ignore[reportPrivateUsage]
    Kind.FAILED: Network._has_failed,  # pyright: ignore[reportPrivateUsage]
    Kind.LEFT: Network._left,  # pyright: ignore[reportPrivateUsage]
    Kind.FAREWELL: Network._bid_farewell,  # pyright: ignore[reportPrivateUsage]
    Kind.WAIT: Network._waits,  # pyright: ignore[reportPrivateUsage]
    Kind.CREDIT: Network._credited,  # pyright: ignore[reportPrivateUsage]
}


class Placement:
    """The devices of a program, for each the process that has it; see :class:`xlakit.execution.context.Network`."""

    def __init__(self, network: Network, ranks: tuple[int, ...]) -> None:
        self._network = network
        self._ranks = ranks
        self._here = [index for index, rank in enumerate(ranks) if rank == network.rank]

    def local_devices(self, num_devices: int) -> Sequence[int]:
        """The devices that run in this process."""
        if num_devices != len(self._ranks):
            raise InternalError(f"a program for {num_devices} devices is placed on {len(self._ranks)}")
        return self._here

    def session(self, run: Run, execution_context: ExecutionContext) -> PeerSession:
        """Take part in a run."""
        return self._network.begin(self._ranks, run, execution_context)


def _number_of(members: tuple[int, ...]) -> int:
    """A number for a set of processes, the same in all of them."""
    return int.from_bytes(hashlib.blake2b(repr(members).encode(), digest_size=8).digest(), "little", signed=True)
