"""Network: the runs that this process takes part in, together with others.

Only the processes that have devices of a program take part in its runs. Runs are counted for each such set of
processes, so that all processes of the set give a run the same number, as long as they call the same programs in the
same order. The messages of a run have its number, so that messages of a failed run are not taken for those of a later
one.
"""

from __future__ import annotations

import os
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from weakref import WeakKeyDictionary

import numpy as np

from xlakit.cpu.runtime.processors import default_threads, processor_count
from xlakit.distributed.connections import Connections
from xlakit.distributed.credits import Credits
from xlakit.distributed.deadline import Deadline, Status
from xlakit.distributed.fingerprint import Fingerprint, group_number
from xlakit.distributed.messages import Address, Header, Kind, Progress, RunKey
from xlakit.distributed.packing import Bytes, unpack
from xlakit.distributed.session import CHANNEL, NetworkSession
from xlakit.distributed.transport import Open
from xlakit.errors import ExecutionError, InternalError, RankError
from xlakit.execution.context import ExecutionContext
from xlakit.execution.program import Program
from xlakit.execution.run import Run
from xlakit.ir.operation import Value
from xlakit.link import DEFAULT_LINK, Link, fitted
from xlakit.passes.analysis.cost_model import cost_model
from xlakit.settings import default_timeout, receive_limit

# The interval at which an ending process checks whether its runs are over, in seconds.
_PAUSE = 0.05
# The least limit of the bytes in flight from one process to another.
_LEAST_AHEAD = 1 << 16
# The default timeout for a process that answers but makes no progress, in seconds: it may read a checkpoint or compile.
_ALIVE = 300.0
# The messages that measure a link: empty ones, and larger ones.
_EMPTY_PROBES, _FULL_PROBES, _PROBE_BYTES = 20, 5, 1 << 20
# The idle time, in seconds, that a process reports if it waits for no other process.
_NEVER = 1e6
# The number of finished runs whose programs are remembered, for error messages about processes that are behind.
_REMEMBERED = 64


class Network:
    """The processes, and the runs that this one takes part in.

    open: opens the connections. :meth:`join` is called once, after the processes have exchanged their :attr:`endpoint`.
    timeout: how many seconds to wait for a process that does not answer or does not come; by default what
    ``XLAKIT_TIMEOUT`` says, or 30, and 300 for one that answers. any_order: whether processes may combine floating
    point numbers in an order of their own.
    """

    def __init__(self, open: Open, *, timeout: float | None = None, any_order: bool = False) -> None:
        self.any_order = any_order
        # The number of this process.
        self.rank = 0
        # The link that all processes have agreed on when they joined.
        self.link = DEFAULT_LINK
        # The number of probes sent, and the number of the last one that was answered.
        self._probes = self._answered = 0
        self._timeout = timeout
        self._sessions: dict[RunKey, NetworkSession] = {}
        # For each set of processes, the number of its last run.
        self._last_runs: dict[int, int] = {}
        # The fingerprints of runs that are over.
        self._over: OrderedDict[RunKey, Fingerprint] = OrderedDict()
        # The values that no device has taken yet, by run and address.
        self._inbox: dict[RunKey, dict[Address, list[tuple[Header, Bytes]]]] = {}
        # Failures that other processes have reported of runs that have not begun here.
        self._early_failures: dict[RunKey, tuple[int, str]] = {}
        self._statuses: dict[tuple[int, RunKey], Status] = {}
        self._fingerprints: WeakKeyDictionary[Program, Fingerprint] = WeakKeyDictionary()
        self._credits = Credits(receive_limit())
        self._has_left = False
        self._connections = Connections(open, self._handle)
        self._lock = self._connections.condition.lock
        self.endpoint = self._connections.endpoint
        self.ends_together = self._connections.ends_together
        self.name_of = self._connections.name_of
        self.new_body = self._connections.new_body
        self.gone = self._connections.gone
        self.is_connected = self._connections.is_connected

    def join(self, rank: int, endpoints: Sequence[str], names: Sequence[str], token: bytes) -> None:
        """Set this process's rank, and the endpoints and the names (for errors) of all processes.

        token: the same random bytes in all processes of the job.
        """
        self._credits = Credits(max(_LEAST_AHEAD, receive_limit() // max(1, len(endpoints) - 1)))
        self.rank = rank
        self._connections.join(rank, endpoints, names, token)

    @property
    def has_joined(self) -> bool:
        """Whether :meth:`join` has been called."""
        return self._connections.has_joined

    @property
    def timeout(self) -> float:
        """How many seconds to wait for a process that does not answer."""
        return default_timeout() if self._timeout is None else self._timeout

    def on(self, ranks: Sequence[int]) -> Placement:
        """The devices of a program: for each the process that has it."""
        return Placement(self, tuple(ranks))

    def measured(self, rank: int, devices: int = 1) -> Link:
        """The link to a process that has joined, measured by probes. Raises RankError if it does not answer.

        devices: how many devices of this process share its processors.
        """
        self._connections.connect(rank)
        empty = min(self._round_trip(rank, 0) for _ in range(_EMPTY_PROBES))
        full = min(self._round_trip(rank, _PROBE_BYTES) for _ in range(_FULL_PROBES))
        products = default_threads(processor_count()) / devices / cost_model().multiplication
        return fitted(1e9 * empty, 1e9 * full, _PROBE_BYTES, products)

    def _round_trip(self, rank: int, size: int) -> float:
        """The seconds that a message of so many bytes, and its answer, take."""
        body = np.zeros(size, np.uint8)
        self._probes += 1
        begin = time.perf_counter()
        self._connections.send(rank, Header(Kind.PROBE, self.rank, mark=self._probes), body)
        with self._connections.awaited():
            while self._answered < self._probes:
                if self.gone([rank]) or time.perf_counter() - begin > self.timeout:
                    raise RankError(f"{self.name_of(rank)} does not answer")
                self._connections.pump_or_wait()
        return time.perf_counter() - begin

    # -- the end of the process ------------------------------------------------------------------

    @property
    def has_failed(self) -> bool:
        """Whether an error ends this process."""
        return bool(self._connections.error)

    def leave(self) -> None:
        """End when the runs that this process takes part in are over."""
        if not self.has_failed:
            self._await_runs()
        self._has_left = True
        self._connections.leave(self.timeout)

    def await_ends(self, seconds: float) -> None:
        """Wait until all other processes end, so many seconds at most."""
        self._connections.await_ends(seconds)

    def _await_runs(self) -> None:
        """Wait until all runs are over, apart from those that do not begin within the timeout."""
        begin = time.monotonic()
        with self._lock:
            while any(s.has_begun or time.monotonic() - begin < self.timeout for s in self._sessions.values()):
                self._connections.condition.wait(_PAUSE)

    # -- runs ------------------------------------------------------------------------------------

    def begin(self, ranks: tuple[int, ...], run: Run, execution_context: ExecutionContext) -> NetworkSession:
        """The next run of the processes that have the devices; does not wait for them."""
        if self._has_left:
            raise ExecutionError("this process has left the others", hint="run programs before the end of the process")
        members = tuple(sorted(set(ranks)))
        name = group_number(members)
        fingerprint = self._fingerprints.get(run.program)
        if fingerprint is None:
            fingerprint = self._fingerprints[run.program] = Fingerprint.of(run.program)
        if name not in self._last_runs:
            for rank in members:
                self._connections.connect(rank)
        with self._lock:
            number = self._last_runs[name] = self._last_runs.get(name, 0) + 1
            key = name, number
            session = NetworkSession(self, ranks, run, execution_context, key, fingerprint)
            self._sessions[key] = session
            early = self._early_failures.pop(key, None)
            inbox = self._inbox.setdefault(key, {})
            waiting: list[tuple[Header, Bytes]] = []
            if inbox:
                channels = [address for address in inbox if address[0] == CHANNEL]
                waiting = [value for address in channels for value in inbox.pop(address)]
        for header, body in waiting:
            self._deliver(session, header, body)
        run.when_failed(lambda: self._report(session))
        if early is not None:
            _fail(session, f"{self.name_of(early[0])} failed: {early[1]}")
        return session

    def end(self, session: NetworkSession) -> None:
        """Forget a run that is over in this process."""
        with self._lock:
            self._sessions.pop(session.key, None)
            self._over[session.key] = session.fingerprint
            if len(self._over) > _REMEMBERED:
                self._over.popitem(last=False)
            left = self._inbox.pop(session.key, {})
            for pair in [pair for pair in self._statuses if pair[1] == session.key]:
                del self._statuses[pair]
        for values in left.values():
            for header, body in values:
                self._use(header.rank, len(body))

    def receive(
        self, session: NetworkSession, ranks: Sequence[int], address: Address
    ) -> dict[int, tuple[Header, Bytes]]:
        """Wait for a value from each of ``ranks``; raises RankError if one will not come, or is of another program."""
        missing = set(ranks)
        received: dict[int, tuple[Header, Bytes]] = {}
        deadline: Deadline | None = None
        waits = False
        with self._connections.awaited():
            while missing:
                for header, body in self._inbox[session.key].pop(address, ()):
                    received[header.rank] = header, body
                    missing.discard(header.rank)
                if not missing:
                    break
                if waits:
                    # Made only after a first wait, as most values have arrived by then.
                    deadline = deadline or self._deadline(session)
                    deadline.check(missing)
                self._connections.pump_or_wait()
                waits = True
        for rank, (header, body) in received.items():
            self._use(rank, len(body))
            if header.program != session.fingerprint.number:
                raise self._program_error(session, rank, header.text)
        return received

    def watch(
        self, session: NetworkSession, ranks: Collection[int], ready: Callable[[], bool]
    ) -> Callable[[float], None]:
        """A function that receives messages for a moment, unless ``ready()``.

        It raises RankError if no message can arrive from the processes any more.
        """
        deadline = self._deadline(session)

        def sleep(seconds: float) -> None:
            with self._connections.awaited():
                if not ready():
                    deadline.check(ranks)
                    self._connections.pump_or_wait()

        return sleep

    def send_value(
        self, session: NetworkSession, rank: int, mark: int, address: Address, text: str, body: Bytes
    ) -> None:
        """Send a value; waits while the other process has too many unused values (see credits.py).

        Raises RankError if that process has ended, or does not answer.
        """
        size, program = len(body), session.fingerprint
        # Values of channels have no common order, so they do not wait for other values of their own run.
        exempt = session.sent[rank] if address[0] == CHANNEL else 0
        with self._lock:
            taken = self._credits.take_room(rank, size, exempt)
            session.sent[rank] += taken
        if not taken:
            self._await_room(session, rank, size, exempt)
            with self._lock:
                session.sent[rank] += self._credits.add_sent(rank, size)
        words = f"{program.text}\n{text}".encode("utf-8", "replace")
        self._connections.send_value(rank, session.key, program.number, mark, address, words, body)

    def _await_room(self, session: NetworkSession, rank: int, size: int, exempt: int) -> None:
        """Wait until a process has used enough of its values, or has ended the run, and drops values of it."""
        deadline = self._deadline(session)
        acknowledged = None
        with self._connections.awaited():
            while not self._credits.has_room(rank, size, exempt):
                status = self.status(rank, session.key)
                if status is not None and status.progress is Progress.OVER:
                    return
                deadline.check([rank])
                if acknowledged != self._credits.acknowledged(rank):
                    acknowledged = self._credits.acknowledged(rank)
                    self._connections.send(rank, Header(Kind.CREDIT_REQUEST, self.rank))
                self._connections.pump_or_wait()

    def _use(self, rank: int, size: int) -> None:
        """Count a used value, and acknowledge it to its sender if an acknowledgement is due."""
        with self._lock:
            is_due = self._credits.add_used(rank, size)
            used = self._credits.take_used(rank) if is_due else 0
        if is_due:
            self._connections.answer(rank, Header(Kind.CREDIT, self.rank, mark=used))

    def _deadline(self, session: NetworkSession) -> Deadline:
        timeout = self.timeout
        is_set = self._timeout is not None or "XLAKIT_TIMEOUT" in os.environ
        alive = timeout if is_set else _ALIVE
        return Deadline(self, session.run, session.key, session.fingerprint.number, timeout, alive)

    # -- the progress of runs --------------------------------------------------------------------

    def query(self, ranks: Collection[int], run: RunKey) -> None:
        """Ask some processes for their progress in a run."""
        header = Header(Kind.QUERY, self.rank, run, self._sessions[run].fingerprint.number)
        for rank in ranks:
            self._connections.send(rank, header)

    def status(self, rank: int, run: RunKey) -> Status | None:
        """The last answer of a process."""
        return self._statuses.get((rank, run))

    def note_computed(self, run: RunKey, when: float) -> None:
        """Record that a process that a run waits for, directly or not, computed at time ``when``."""
        session = self._sessions[run]
        session.others_computed = max(session.others_computed, when)

    def program_error(self, run: RunKey, rank: int, text: str) -> RankError:
        """The error for a process that runs another program than this one; ``text`` begins with that program."""
        return self._program_error(self._sessions[run], rank, text)

    def _program_error(self, session: NetworkSession, rank: int, text: str) -> RankError:
        programs = {self.rank: session.fingerprint.text, rank: text.partition("\n")[0]}
        lines = "".join(f"\n  {self.name_of(r)}: run {session.key[1]} is {programs[r]}" for r in sorted(programs))
        return RankError(
            f"the processes run different programs:{lines}",
            hint="processes that have devices in common must call the programs on them in the same order",
        )

    def _progress(self, key: RunKey) -> tuple[Progress, str, Fingerprint | None]:
        """The progress of a run in this process, a description of it, and the fingerprint of its program."""
        session = self._sessions.get(key)
        if session is not None and session.has_begun:
            return *session.progress(), session.fingerprint
        if session is None and self._is_over(key):
            return Progress.OVER, "", self._over.get(key)
        # The run has not begun here, as other runs have to end first: report the progress of these.
        texts: list[str] = []
        is_computing = False
        for other in [other for other in list(self._sessions.values()) if other.has_begun]:
            name = f"'{other.run.program.module.name}'"
            progress, location = other.progress()
            is_computing = is_computing or progress is Progress.RUNNING
            texts.append(f"it runs {name}" if progress is Progress.RUNNING else f"it waits in {location} of {name}")
        progress = Progress.RUNNING if is_computing else Progress.NOT_BEGUN
        return progress, "; ".join(texts) or "it runs no program", None if session is None else session.fingerprint

    def _is_over(self, key: RunKey) -> bool:
        return key[1] <= self._last_runs.get(key[0], 0) and key not in self._sessions

    # -- what arrives ----------------------------------------------------------------------------

    def _handle(self, header: Header, body: Bytes) -> None:
        handler = _HANDLERS.get(header.kind)
        if handler is not None:
            handler(self, header, body)

    def _value(self, header: Header, body: Bytes) -> None:
        with self._lock:
            session = self._sessions.get(header.run)
            is_over = session is None and self._is_over(header.run)
            if not is_over and (session is None or header.address[0] != CHANNEL):
                inbox = self._inbox.setdefault(header.run, {})
                inbox.setdefault(header.address, []).append((header, body))
                return
        if session is None:
            self._use(header.rank, len(body))
        else:
            self._deliver(session, header, body)

    def _deliver(self, session: NetworkSession, header: Header, body: Bytes) -> None:
        self._use(header.rank, len(body))
        if header.program != session.fingerprint.number:
            session.run.fail(self._program_error(session, header.rank, header.text))
            return
        _, channel, sender, receiver = header.address
        value: Value = unpack(body, 1)[0]
        session.deliver(channel, sender, receiver, value)

    def _query(self, header: Header, body: Bytes) -> None:
        progress, text, fingerprint = self._progress(header.run)
        program = 0 if fingerprint is None else fingerprint.number
        if fingerprint is not None and program != header.program:
            text = fingerprint.text
        idle = (int(1000 * self._idle_seconds()), 0, 0, 0)
        answer = Header(Kind.STATUS, self.rank, header.run, program, progress, idle, text)
        self._connections.answer(header.rank, answer)

    def _idle_seconds(self) -> float:
        """The seconds since a process that a run here waits for, directly or not, last computed."""
        begun = [s.others_computed for s in list(self._sessions.values()) if s.has_begun]
        return max(0.0, time.monotonic() - max(begun)) if begun else _NEVER

    def _status(self, header: Header, body: Bytes) -> None:
        with self._lock:
            if header.run in self._sessions:
                now, idle = time.monotonic(), header.address[0] / 1000
                status = Status(Progress(header.mark), header.program, header.text, now, idle)
                self._statuses[header.rank, header.run] = status

    def _credit_request(self, header: Header, body: Bytes) -> None:
        """Acknowledge the bytes used so far to a process that waits for room, and again when more are used."""
        with self._lock:
            used = self._credits.take_used(header.rank)
            self._credits.add_waiting(header.rank)
        self._connections.answer(header.rank, Header(Kind.CREDIT, self.rank, mark=used))

    def _probe(self, header: Header, body: Bytes) -> None:
        self._connections.answer(header.rank, Header(Kind.PROBE_ANSWER, self.rank, mark=header.mark))

    def _probe_answer(self, header: Header, body: Bytes) -> None:
        with self._lock:
            self._answered = header.mark

    def _credit(self, header: Header, body: Bytes) -> None:
        with self._lock:
            self._credits.acknowledge(header.rank, header.mark)

    # -- failures --------------------------------------------------------------------------------

    def _report(self, session: NetworkSession) -> None:
        """Report that a run has failed here; the caller holds the lock of its execution context."""
        if session.is_reported:
            return
        session.is_reported = True
        if not session.failed_elsewhere:
            error = session.run.failure
            text = f"{type(error).__name__}: {error}"
            for rank in session.others:
                self._connections.send(rank, Header(Kind.FAILED, self.rank, session.key, text=text))
        session.end_if_over()

    def _failure(self, header: Header, body: Bytes) -> None:
        with self._lock:
            session = self._sessions.get(header.run)
            if session is None:
                if not self._is_over(header.run):
                    self._early_failures.setdefault(header.run, (header.rank, header.text))
                return
        _fail(session, f"{self.name_of(header.rank)} failed: {header.text}")


def _fail(session: NetworkSession, text: str) -> None:
    """Fail a run because of another process."""
    session.failed_elsewhere = True
    session.run.fail(RankError(text))


_HANDLERS: dict[Kind, Callable[[Network, Header, Bytes], None]] = {
    Kind.VALUE: Network._value,  # pyright: ignore[reportPrivateUsage]
    Kind.QUERY: Network._query,  # pyright: ignore[reportPrivateUsage]
    Kind.STATUS: Network._status,  # pyright: ignore[reportPrivateUsage]
    Kind.FAILED: Network._failure,  # pyright: ignore[reportPrivateUsage]
    Kind.CREDIT_REQUEST: Network._credit_request,  # pyright: ignore[reportPrivateUsage]
    Kind.CREDIT: Network._credit,  # pyright: ignore[reportPrivateUsage]
    Kind.PROBE: Network._probe,  # pyright: ignore[reportPrivateUsage]
    Kind.PROBE_ANSWER: Network._probe_answer,  # pyright: ignore[reportPrivateUsage]
}


class Placement:
    """The devices of a program, for each the process that has it; see :class:`xlakit.execution.context.Network`."""

    def __init__(self, network: Network, ranks: tuple[int, ...]) -> None:
        self._network = network
        self.link = network.link
        self._ranks = ranks
        self._here = [index for index, rank in enumerate(ranks) if rank == network.rank]

    def local_devices(self, num_devices: int) -> Sequence[int]:
        """The devices that run in this process."""
        if num_devices != len(self._ranks):
            raise InternalError(f"a program for {num_devices} devices is placed on {len(self._ranks)}")
        return self._here

    def session(self, run: Run, execution_context: ExecutionContext) -> NetworkSession:
        """Take part in a run."""
        return self._network.begin(self._ranks, run, execution_context)
