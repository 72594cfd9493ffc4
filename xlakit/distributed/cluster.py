"""Cluster: the processes that run programs together.

All processes make the same calls in the same order. Each run has a number. When it begins, the processes agree that
they run the same program, and create communicators for its groups, which later runs use again. After a run has failed
in any process, the next one begins with the repair of communicators, so that operations of the failed run are not taken
for new ones.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np

from xlakit.distributed.fingerprint import fingerprint
from xlakit.distributed.mailbox import Mailbox
from xlakit.distributed.mpi import Mpi
from xlakit.distributed.patience import Patience
from xlakit.distributed.processes import Processes
from xlakit.distributed.repair import Repair
from xlakit.distributed.session import MpiSession
from xlakit.distributed.spread import Link, Spread, ranks_of
from xlakit.distributed.watch import Kind, Phase, State, Watch
from xlakit.errors import ArgumentError, ExecutionError, RankError
from xlakit.execution.context import ExecutionContext
from xlakit.execution.run import Run
from xlakit.ops.communication.collective import Collective

if TYPE_CHECKING:
    from xlakit.execution.program import Program

_NAME_BYTES = 256


@dataclass(slots=True)
class _Start:
    """The announcement of this process that it takes part in a run; those of all processes arrive when the request is
    done.
    """

    request: Any
    sent: np.ndarray[Any, np.dtype[np.int64]]
    received: np.ndarray[Any, np.dtype[np.int64]]
    # The name of the program in errors.
    program: str


@dataclass(slots=True)
class _Notes:
    """Descriptions of a run that the processes do not agree on; they arrive when the request is done."""

    request: Any
    sent: np.ndarray[Any, np.dtype[np.uint8]]
    received: np.ndarray[Any, np.dtype[np.uint8]]


@dataclass(slots=True)
class _Generation:
    """Communicators that are usable, if need be after a repair."""

    # Of all processes, when the request is done.
    base: Any
    request: Any
    links: dict[tuple[int, ...], Link] = field(default_factory=dict)
    # The programs whose groups are all in ``links``.
    prepared: set[int] = field(default_factory=set)
    # Whether something has begun on ``base`` that may never end.
    is_spoilt: bool = False


class MpiCluster(Processes):
    """The processes that MPI has started, and the runs that they agree on; a
    :class:`~xlakit.execution.context.Network`.
    """

    def __init__(self, mpi: Mpi, spread: Spread, *, timeout: float, any_order: bool) -> None:
        # Communicators for the announcements of runs, for the answers to them, and for messages; groups have their own.
        self._starts_comm = mpi.call(mpi.world.Dup)
        self._answers_comm = mpi.call(mpi.world.Dup)
        self._generation = _Generation(*mpi.call(self._answers_comm.Idup))
        self._repair: Repair | None = None
        self._repair_is_due = False
        watch = Watch(mpi, mpi.call(mpi.world.Dup), self._describe)
        super().__init__(mpi, spread, watch, timeout=timeout, any_order=any_order)
        self._lock = threading.Lock()
        self._sessions: dict[int, MpiSession] = {}
        # Announcements of runs, in their order, that have not been completed.
        self._starts: dict[int, _Start] = {}
        self._hearing = threading.Lock()
        self._marks: WeakKeyDictionary[Program, int] = WeakKeyDictionary()
        # Descriptions of runs that the processes did not agree on.
        self._notes: dict[int, _Notes] = {}
        self._posted = self._last_over = 0
        self._has_failed = False
        # Failures that other processes have reported of runs that have not begun here.
        self._early_failures: dict[int, tuple[int, str]] = {}
        self.has_left = False
        # The start of the call of MPI that this process is in, if that cannot be interrupted.
        self._blocked_since: float | None = None
        self.mailbox = Mailbox(self.watch, self._sessions, self._is_over)
        self.watch.on_run_failed = self._run_failed_elsewhere
        self.watch.on_process_failed = self._process_failed
        self.watch.on_quiet = self._look_at_blocked
        self.watch.start()

    def local_devices(self, num_devices: int) -> range:
        """The devices of a program that run in this process; a program for one device runs in each on its own."""
        if num_devices == 1:
            return range(1)
        expected = self.spread.ranks * self.spread.per_rank
        if num_devices != expected:
            raise ArgumentError(
                f"the program is for {num_devices} devices, {self.spread.ranks} processes of "
                f"{self.spread.per_rank} have {expected}",
                hint=f"run it on {expected} devices, or give xlakit.distributed.initialize(devices={num_devices})",
            )
        return self.spread.local

    # -- the beginning of a run ------------------------------------------------------------------

    def session(self, run: Run, execution_context: ExecutionContext) -> MpiSession | None:
        """Announce that this process takes part in the next run; None for a program of one device."""
        if run.program.grid.num_devices == 1:
            return None
        with self._lock:
            self._check_usable()
            mark = self._marks.get(run.program)
            if mark is None:
                mark = self._marks[run.program] = fingerprint(run.program)
            number = self._posted + 1
            sent = np.array([mark, ~mark, number, -number, self._has_failed], np.int64)
            self._has_failed = False
            received = np.empty_like(sent)
            api = self.mpi.api
            request = self.mpi.call(
                lambda: self._starts_comm.Iallreduce([sent, api.INT64_T], [received, api.INT64_T], api.MAX)
            )
            self._starts[number] = _Start(request, sent, received, _description(run.program, number, mark))
            session = self._sessions[number] = MpiSession(
                self, self.mailbox, run, execution_context, number, mark, self.begin, self.end
            )
            self._posted = number
            early = self._early_failures.pop(number, None)
        self.mailbox.open(session)
        run.when_failed(lambda: self._note_failure(session))
        if early is not None:
            self._run_failed_elsewhere(early[0], number, early[1])
        return session

    def begin(self, session: MpiSession) -> Mapping[tuple[int, ...], Link]:
        """Wait until all processes take part in a run; gives the links of its groups."""
        with self._hearing:
            agreed = self._complete_announcements(session)
            self._finish_repair(session)
            generation = self._generation
            if agreed:
                self._finish(session, generation.request)
        if not agreed:
            self._explain_start(session)
        if session.program not in generation.prepared:
            self._prepare(session, generation)
        return generation.links

    def _complete_announcements(self, session: MpiSession) -> bool:
        """Complete the announcements of runs up to this one, in their order; gives whether all processes run this
        program.

        All processes act on the announcements in the same order.
        """
        for number in sorted(n for n in self._starts if n <= session.number):
            self._finish_repair(session)
            start = self._starts[number]
            self._finish(session, start.request)
            del self._starts[number]
            mark, inverse, most, minus_least, has_failed = start.received.tolist()
            if mark != ~inverse or most != -minus_least:
                self._notes[number] = self._tell_program(start.program)
            self._repair_is_due = bool(has_failed)
        return session.number not in self._notes

    def _finish(self, session: MpiSession, request: Any) -> None:
        others = [rank for rank in range(self.spread.ranks) if rank != self.spread.rank]
        self.mpi.finish(request, Patience(self, session.run, session.number, None, others).check)

    def _finish_repair(self, session: MpiSession) -> None:
        """Repair the communicators after a failed run, or create new ones if that is impossible."""
        old = self._generation
        if self._repair_is_due:
            self._await_begun(session)
            self._repair_is_due = False
            self._repair = Repair(self.mpi, self._answers_comm, old.links, is_spoilt=old.is_spoilt)
        if self._repair is None:
            return
        if not self._repair.finish(lambda request: self._finish(session, request)):
            self._generation = _Generation(*self.mpi.call(self._answers_comm.Idup))
            for members in sorted(old.links):
                link = old.links[members]
                if not link.open and not link.is_spoilt:
                    self.mpi.call(link.communicator.Free)
        self._repair = None

    def _tell_program(self, text: str) -> _Notes:
        """Exchange the names of the programs, after all processes have seen that these differ."""
        sent = np.zeros(_NAME_BYTES, np.uint8)
        data = np.frombuffer(text.encode()[:_NAME_BYTES], np.uint8)
        sent[: len(data)] = data
        received = np.empty((self.spread.ranks, _NAME_BYTES), np.uint8)
        byte, communicator = self.mpi.api.BYTE, self._answers_comm
        request = self.mpi.call(lambda: communicator.Iallgather([sent, byte], [received, byte]))
        return _Notes(request, sent, received)

    def _explain_start(self, session: MpiSession) -> None:
        notes = self._notes[session.number]
        self._finish(session, notes.request)
        del self._notes[session.number]
        lines = "".join(
            f"\n  rank {rank}: {row.tobytes().rstrip(bytes(1)).decode('utf-8', 'replace')}"
            for rank, row in enumerate(notes.received)
        )
        raise RankError(
            f"the processes begin different programs:{lines}",
            hint="all processes must call the same programs in the same order",
        )

    def _await_begun(self, session: MpiSession) -> None:
        """Wait until all earlier runs have ended in this process."""
        while any(n < session.number and other.has_begun for n, other in list(self._sessions.items())):
            session.run.check()
            time.sleep(1e-4)

    def _await_earlier(self, session: MpiSession) -> None:
        """Wait until this process is in no earlier run, because the calls that follow block it."""
        while any(number < session.number for number in list(self._sessions)):
            session.run.check()
            time.sleep(1e-4)

    def _prepare(self, session: MpiSession, generation: _Generation) -> None:
        """Create a communicator for each group of a program that has members in other processes."""
        self._await_earlier(session)
        # The calls that follow cannot be interrupted, so all processes arrive first.
        generation.is_spoilt = True
        self._finish(session, self.mpi.call(generation.base.Ibarrier))
        # Each process creates those that it is a member of; the order is the same in all processes.
        for members in sorted(_groups(session.run.program, self.spread)):
            if members not in generation.links:
                group = generation.base.Get_group().Incl(ranks_of(members, self.spread))
                communicator = self._blocking(lambda group=group: generation.base.Create_group(group))
                generation.links[members] = Link.make(members, self.spread, communicator)
        generation.is_spoilt = False
        generation.prepared.add(session.program)

    def _blocking(self, work: Callable[[], Any]) -> Any:
        self._blocked_since = time.monotonic()
        try:
            return self.mpi.call(work)
        finally:
            self._blocked_since = None

    def _look_at_blocked(self) -> None:
        since = self._blocked_since
        if since is not None and time.monotonic() - since > self.timeout:
            text = f"xlakit: rank {self.spread.rank}: MPI made no communicator in {self.timeout:g} seconds"
            print(text, file=sys.stderr, flush=True)
            self.mpi.abort()

    # -- the end of a run ------------------------------------------------------------------------

    def end(self, session: MpiSession) -> None:
        """Forget a run that is over in this process."""
        with self._lock:
            self._sessions.pop(session.number, None)
            self._last_over = max(self._last_over, session.number)
        self.mailbox.close(session.number)

    def _is_over(self, number: int) -> bool:
        return number <= self._posted and number not in self._sessions

    def leave(self) -> None:
        """Wait for the announced runs to end, and take part in no others."""
        while self._sessions and not self.watch.failed:
            time.sleep(1e-3)
        self.has_left = True

    # -- failures --------------------------------------------------------------------------------

    def _note_failure(self, session: MpiSession) -> None:
        """Report that a run has failed here; the caller holds the lock of its execution context."""
        if session.is_reported:
            return
        session.is_reported = True
        with self._lock:
            self._has_failed = True
            # These runs were announced already, and would use the communicators of this one.
            later = [other for number, other in sorted(self._sessions.items()) if number > session.number]
        self.watch.later(lambda: self._tell_failure(session, later))

    def _tell_failure(self, session: MpiSession, later: Sequence[MpiSession]) -> None:
        error = session.run.failure
        text = f"{type(error).__name__}: {error}"
        if not session.failed_elsewhere:
            self.watch.tell_all(Kind.RUN_FAILED, session.number, text)
        for other in later:
            other.run.fail(RankError(f"an earlier run has failed: {text}"))
        session.end_if_over()

    def _run_failed_elsewhere(self, rank: int, number: int, text: str) -> None:
        with self._lock:
            session = self._sessions.get(number)
            if session is None:
                if number > self._posted:
                    self._early_failures.setdefault(number, (rank, text))
                return
            session.failed_elsewhere = True
        session.run.fail(RankError(f"{self.name_of(rank)} failed: {text}"))

    def _process_failed(self, rank: int, text: str) -> None:
        for session in list(self._sessions.values()):
            session.failed_elsewhere = True
            session.run.fail(RankError(f"{self.name_of(rank)} ended with an error: {text}"))

    def fail(self, text: str) -> None:
        """Fail all runs because this process ends with an error, and notify the other processes."""
        self.watch.later(lambda: self.watch.tell_all(Kind.PROCESS_FAILED, 0, text))
        for session in list(self._sessions.values()):
            session.failed_elsewhere = True
            session.run.fail(RankError(f"this process ended with an error: {text}"))

    def _check_usable(self) -> None:
        if self.has_left:
            raise ExecutionError("this process has left the others", hint="run programs before the end of the process")
        for rank, text in self.watch.failed.items():
            raise RankError(f"{self.name_of(rank)} ended with an error: {text}")

    # -- its state -----------------------------------------------------------------------------

    def _describe(self) -> State:
        """The answer of this process to questions of the others."""
        if self.has_left:
            return State(Phase.LEFT, self._last_over, "", self._posted)
        sessions = dict(self._sessions)
        if not sessions:
            return State(Phase.OUTSIDE, self._last_over, "", self._posted)
        number = min(sessions)
        marks: set[int] = set()
        texts: list[str] = []
        waits = False
        for session in sessions.values():
            own, text, is_waiting = session.whereabouts()
            marks |= own
            texts += [text] if text else []
            waits = waits or is_waiting
        # A run whose announcements are complete has begun in all processes.
        starting = number in self._starts
        phase = Phase.STARTING if starting else Phase.WAITING if waits else Phase.RUNNING
        return State(phase, number, "; ".join(texts), self._posted, frozenset(marks))


def _groups(program: Program, spread: Spread) -> set[tuple[int, ...]]:
    """The groups of a program's collectives with members here and in other processes."""
    found: set[tuple[int, ...]] = set()
    for computation in program.module.computations:
        for instruction in computation.instructions:
            op = instruction.op
            if not isinstance(op, Collective):
                continue
            for device in spread.local:
                try:
                    members = program.grid.members(
                        device,
                        op.replica_groups,
                        has_channel=op.channel_id is not None,
                        use_global_device_ids=op.global_ids,
                    )
                except ExecutionError:
                    # An error in it is raised when it runs.
                    continue
                if len(ranks_of(members, spread)) > 1:
                    found.add(tuple(members))
    return found


def _description(program: Program, number: int, mark: int) -> str:
    """The name of the program of a run in errors."""
    signature = program.module.entry.program_shape.to_string(with_layout=False)
    return f"run {number} is {program.module.name} {signature}, of digest {mark % 2**64:016x}"
