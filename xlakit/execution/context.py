"""ExecutionContext: what devices and hosts share while programs run: feeds, channels, waits, and deadlock detection.

All state is protected by one lock. A device that must wait registers a :class:`Wait`: its reason, a predicate that
tells whether it is over, and the devices or sources that could end it. Deadlocks are found in the wait-for graph of
these (:mod:`xlakit.execution.wait_graph`), which is searched when all devices of a run wait. If some of them can never
continue, the run fails with a DeadlockError that lists each device, the instruction where it waits, and the cycle if
there is one. A wait for the host (a feed, a host transfer) is no deadlock while a thread of the host runs, for up to
``timeout`` seconds; a wait for another program of the context (a channel) is none as long as that program runs.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from xlakit.arguments import converting
from xlakit.condition import Condition
from xlakit.errors import ArgumentError, DeadlockError
from xlakit.execution.channels import Channels
from xlakit.execution.deadlocks import TIMEOUT_HINT, Wait, deadlock_error, graph_of_waits, stuck_runs
from xlakit.execution.feeds import Bounds, Feed, Sent, byte_count, from_host, frozen
from xlakit.execution.run import Participant, Run
from xlakit.execution.values import to_host
from xlakit.settings import default_timeout

if TYPE_CHECKING:
    from xlakit.data.shape import Shape
    from xlakit.execution.session import Session
    from xlakit.ir.instruction import Instruction
    from xlakit.ir.operation import Value
    from xlakit.link import Link

# How long a waiting thread sleeps before it checks for changes without notification, such as ended threads.
PAUSE_SECONDS = 0.05
# The default capacity of a queue between host and device.
_QUEUE_BYTES = 1 << 30


_Key = TypeVar("_Key")


class _Feeds(dict[_Key, Feed[Any]]):
    """Feeds by key, each made on first access.

    The host and a device may make the same feed concurrently, without a lock: ``setdefault`` gives both the same one.
    """

    def __init__(self, bounds: Bounds) -> None:
        super().__init__()
        self._bounds = bounds

    def __missing__(self, key: _Key) -> Feed[Any]:
        return self.setdefault(key, Feed(self._bounds))


class _Queues:
    """The queues between the host and devices, keyed by device, or by device and channel."""

    def __init__(self, bounds: Bounds) -> None:
        self.infeed = _Feeds[int](bounds)
        self.outfeed = _Feeds[int](bounds)
        self.to_host = _Feeds[tuple[int, int]](bounds)
        self.from_host = _Feeds[tuple[int, int]](bounds)

    def all(self) -> Iterable[Feed[Any]]:
        """All queues made so far."""
        for queues in (self.infeed, self.outfeed, self.to_host, self.from_host):
            yield from list(queues.values())


class Network(Protocol):
    """The processes that run a program together; implemented by :mod:`xlakit.distributed`."""

    @property
    def link(self) -> Link:
        """The measured costs of the link between the processes, for choosing algorithms; equal in all processes."""
        ...

    def local_devices(self, num_devices: int) -> Sequence[int]:
        """The devices that this process runs, of a program for ``num_devices``; raises ArgumentError if impossible."""
        ...

    def session(self, run: Run, execution_context: ExecutionContext) -> Session | None:
        """Take part in a run; None for one that this process runs alone."""
        ...


class _Bound:
    """See :meth:`ExecutionContext.bound`."""

    __slots__ = ("_context", "_lock")

    def __init__(self, context: ExecutionContext) -> None:
        self._context = context
        self._lock = context.lock

    def __enter__(self) -> None:
        with self._lock:
            self._context.bind(1)

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._context.bind(-1)


class ExecutionContext:
    """Feeds, channels and waiting, for the programs that share it; all methods may be called from any thread.

    timeout: how many seconds to wait for a host that may still come; the environment variable ``XLAKIT_TIMEOUT`` by
        default, or 30.
    queue_items, queue_bytes: how much each queue between host and a device holds, any number of values of together
        1 GiB by default. A put into a full queue waits until a value is taken from it.
    """

    # The other processes that run devices of programs, if there are any.
    network: Network | None = None

    @converting
    def __init__(
        self, *, timeout: float | None = None, queue_items: int | None = None, queue_bytes: int = _QUEUE_BYTES
    ) -> None:
        self.timeout = default_timeout() if timeout is None else timeout
        self.condition = Condition()
        # Taken by ``with lock`` alone, which is implemented in C: a signal handler that raises at the beginning of a
        # method of Python in between would leave it locked for all threads.
        self.lock = self.condition.lock
        self.channels = Channels()
        self._queues = _Queues(Bounds(queue_items, queue_bytes))
        # The running participants, any of which may end a wait: devices of programs, and others.
        self._active: set[object] = set()
        self._waits: dict[Participant, Wait] = {}
        # Threads that run a device or wait for one, and so cannot feed devices.
        self._bound_threads: dict[int, int] = {}
        # For each waiting thread of the host, a predicate that tells whether it can continue.
        self._host_waits: list[Callable[[], bool]] = []
        self._last_change = time.monotonic()

    @property
    def spans_processes(self) -> bool:
        """Whether devices of one program may be in other processes too; then collectives go through Python."""
        return self.network is not None

    # -- for the host ----------------------------------------------------------------------------

    @converting
    def infeed(self, device: int, value: object, *, timeout: float | None = None) -> None:
        """Append a value to the infeed of a device: an array, a number, a Literal, a tuple of those.

        Bytes instead of an array are its memory in the layout of the infeed's shape. Where the queue is full this
        waits while a program runs that may take from it, ``timeout`` seconds at most; raises DeadlockError.
        """
        queue = self._queues.infeed[_checked(device)]
        self._append(queue, value, f"room in the infeed of device {device}", timeout)

    @converting
    def outfeed(self, device: int = 0, *, timeout: float | None = None, raw: bool = False) -> Any:
        """The next value of a device's outfeed: an array, or a tuple of arrays.

        raw: give bytes instead of arrays, their memory in the layout of the outfeed's shape.
        Waits for it while something runs that may bring it, ``timeout`` seconds at most; raises DeadlockError when
        nothing does.
        """
        sent: Sent = self._take(self._queues.outfeed[_checked(device)], f"the outfeed of device {device}", timeout)
        return sent.raw() if raw else sent.value

    @converting
    def send_to_device(self, device: int, channel_id: int, value: object, *, timeout: float | None = None) -> None:
        """Send a value to a device that does recv from the host on a channel; waits as :meth:`infeed` does."""
        queue = self._queues.from_host[_checked(device), channel_id]
        self._append(queue, value, f"room in channel {channel_id} to device {device}", timeout)

    @converting
    def recv_from_device(self, device: int, channel_id: int, *, timeout: float | None = None) -> Any:
        """The next value that a device sends to the host on a channel; waits as :meth:`outfeed` does."""
        queue = self._queues.to_host[_checked(device), channel_id]
        return self._take(queue, f"channel {channel_id} of device {device}", timeout)

    def clear(self) -> None:
        """Empty the queues between host and devices, for example of feeds that a failed program left."""
        with self.lock:
            for queue in self._queues.all():
                queue.clear()
            self.changed()

    def _append(self, queue: Feed[Any], value: object, what: str, timeout: float | None) -> None:
        item = frozen(value)
        size = byte_count(item)
        with self.lock:
            if not queue.has_room(size):

                def failure(limit: str) -> DeadlockError:
                    rule = f"there is no {what}{limit}, and no program runs that could take from it"
                    if limit:
                        rule = f"there was no {what}{limit}"
                    return DeadlockError(f"{rule}: it holds {queue}", hint=_FULL_HINT)

                self._host_wait(lambda: queue.has_room(size), failure, timeout)
            queue.append(item, size)
            self.changed()

    def _take(self, queue: Feed[Any], what: str, timeout: float | None) -> Any:
        def failure(limit: str) -> DeadlockError:
            if limit:
                return DeadlockError(f"nothing came from {what}{limit}", hint=TIMEOUT_HINT)
            return DeadlockError(
                f"{what} is empty, and no program runs that could fill it",
                hint="run the program that fills it first, or in another thread",
            )

        with self.lock:
            self._host_wait(lambda: len(queue) > 0, failure, timeout)
            item = queue.popleft()
            self.changed()
            return item

    def _host_wait(
        self, ready: Callable[[], bool], failure: Callable[[str], DeadlockError], timeout: float | None
    ) -> None:
        """Wait, with the lock held, until ``ready()``; else raise ``failure(limit)``.

        limit: the timeout in words, or "" if no program runs that could end the wait.
        """
        if ready():
            return
        begin = since = time.monotonic()
        self.bind(1)
        self._host_waits.append(ready)
        try:
            while not ready():
                self._resolve()
                if not self._active and not self._host_threads():
                    raise failure("")
                now = time.monotonic()
                if self._free_devices():
                    since = now
                late = now - max(since, self._last_change) > self.timeout if timeout is None else now - begin > timeout
                if late:
                    raise failure(f" for {self.timeout if timeout is None else timeout:g} seconds")
                self.condition.wait(PAUSE_SECONDS)
        finally:
            self._host_waits.remove(ready)
            self.bind(-1)

    # -- for devices -----------------------------------------------------------------------------

    def changed(self) -> None:
        """Have every waiting thread check its condition; the lock is held."""
        self._last_change = time.monotonic()
        if self.condition.waiting:
            self.condition.notify_all()

    def bound(self) -> _Bound:
        """Mark this thread as one that cannot feed devices during the block."""
        return _Bound(self)

    def bind(self, times: int) -> None:
        """Add ``times`` to the number of :meth:`bound` blocks that this thread is in."""
        thread = threading.get_ident()
        blocks = self._bound_threads.pop(thread, 0) + times
        if blocks:
            self._bound_threads[thread] = blocks

    def enter(self, devices: Sequence[object]) -> None:
        """Count devices as running, including those that were announced."""
        with self.lock:
            self._active.update(devices)
            for device in devices:
                self._waits.pop(cast("Participant", device), None)
            self.changed()

    def enter_bound(self, device: object) -> None:
        """As :meth:`enter` and :meth:`bound` for a device that runs on this thread, until :meth:`leave_bound`."""
        with self.lock:
            self._active.add(device)
            self.bind(1)
            self.changed()

    def leave_bound(self, device: object) -> None:
        """See :meth:`enter_bound`."""
        with self.lock:
            self._active.discard(device)
            self.bind(-1)
            self.changed()

    def announce(self, wait: Wait) -> None:
        """Count a device as running, and waiting with ``wait``, until it enters: it has no thread yet."""
        with self.lock:
            wait.since = time.monotonic()
            self._active.add(wait.device)
            self._waits[wait.device] = wait
            self.changed()

    def leave(self, devices: Sequence[object]) -> None:
        """Count devices as finished."""
        with self.lock:
            self._active.difference_update(devices)
            self.changed()

    def wait(self, *waits: Wait) -> None:
        """Wait, with the lock held, until one of ``waits`` is ready; raises Stopped if their run fails.

        waits: of the devices of one run that this thread runs in turn, all of which are blocked.
        """
        if _is_one_ready(waits):
            return
        run = waits[0].device.run
        self._last_change = time.monotonic()
        for wait in waits:
            wait.since = self._last_change
            self._waits[wait.device] = wait
        try:
            while not _is_one_ready(waits):
                run.check()
                self._resolve()
                run.check()
                if not _is_one_ready(waits):
                    self._pause(waits[0])
        finally:
            for wait in waits:
                del self._waits[wait.device]
            self._last_change = time.monotonic()

    def _pause(self, wait: Wait) -> None:
        if wait.sleep is None:
            self.condition.wait(PAUSE_SECONDS)
            return
        self.lock.release()
        try:
            wait.sleep(PAUSE_SECONDS)
        finally:
            self.lock.acquire()

    def count_waiting(self, run: Run) -> int:
        """The number of waiting devices of a run."""
        with self.lock:
            return sum(wait.device.run is run for wait in self._waits.values())

    def next_infeed(self, device: Participant, instruction: Instruction, shape: Shape) -> Value:
        """The next value of a device's infeed; waits for it."""
        queue = self._queues.infeed[device.feed_index]
        wait = Wait(
            device,
            instruction,
            lambda: f"an infeed of {shape.without_layout()}",
            lambda: len(queue) > 0,
            from_outside=True,
        )
        return from_host(self._receive(queue, wait), shape, "infeed")

    def next_from_host(self, device: Participant, instruction: Instruction, channel_id: int, shape: Shape) -> Value:
        """The next value that the host sends on a channel; waits for it."""
        queue = self._queues.from_host[device.feed_index, channel_id]
        what = f"the host to send on channel {channel_id}"
        wait = Wait(device, instruction, lambda: what, lambda: len(queue) > 0, from_outside=True)
        return from_host(self._receive(queue, wait), shape, "the value from the host")

    def _receive(self, queue: Feed[Any], wait: Wait) -> Any:
        with self.lock:
            self.wait(wait)
            item = queue.popleft()
            # Another thread may be waiting for room in the queue.
            self.changed()
            return item

    def append_outfeed(self, device: Participant, instruction: Instruction, value: Value, shape: Shape) -> None:
        """Append to a device's outfeed; waits for room."""
        queue = self._queues.outfeed[device.feed_index]
        self._put(queue, device, instruction, Sent(to_host(value), shape), byte_count(value), "its outfeed")

    def append_to_host(self, device: Participant, instruction: Instruction, channel_id: int, value: Value) -> None:
        """Send to the host; waits for room."""
        queue = self._queues.to_host[device.feed_index, channel_id]
        what = f"channel {channel_id} to the host"
        self._put(queue, device, instruction, to_host(value), byte_count(value), what)

    def _put(
        self, queue: Feed[Any], device: Participant, instruction: Instruction, item: object, size: int, what: str
    ) -> None:
        def full() -> str:
            return f"room in {what}, which holds {queue}"

        with self.lock:
            self.wait(Wait(device, instruction, full, lambda: queue.has_room(size), from_outside=True))
            queue.append(item, size)
            self.changed()

    # -- deadlocks -------------------------------------------------------------------------------

    def _free_devices(self) -> bool:
        return any(self._is_free(device) for device in self._active)

    def _is_free(self, participant: object) -> bool:
        wait = self._waits.get(cast("Participant", participant))
        return wait is None or wait.ready()

    def _host_threads(self) -> bool:
        """Whether a thread of the host that may feed devices runs, or is about to continue."""
        return any(ready() for ready in self._host_waits) or any(
            thread.ident not in self._bound_threads for thread in threading.enumerate()
        )

    def _resolve(self) -> None:
        """Fail the runs in a deadlock; if no device can continue, try the fallbacks of the waits first."""
        if not self._waits:
            return
        stuck = stuck_runs(self._waits, self._active)
        if not stuck:
            return
        waits = [wait for run in stuck for wait in stuck[run]]
        all_stuck = not self._free_devices()
        if all_stuck and any(w.fallback is not None and w.fallback() for w in waits):
            self.changed()
            return
        late = self._late_runs(stuck, all_stuck=all_stuck)
        graph = graph_of_waits(stuck, late, nothing_runs=all_stuck and not self._host_threads())
        dead = set(graph.deadlocked())
        # A run with a part in a device's queue is not failed: it continues when the execution before it ends or fails.
        failed = [
            run
            for run, run_waits in stuck.items()
            if any(w.device in dead for w in run_waits) and not any(w.for_queue for w in run_waits)
        ]
        if all_stuck and failed:
            # Nothing else runs, so a run that waits for other programs waits for one that fails now.
            failed += [
                run for run, run_waits in stuck.items() if run not in failed and any(w.from_programs for w in run_waits)
            ]
        errors = [deadlock_error(run, stuck, graph, self._active, is_late=run in late) for run in failed]
        for run, error in zip(failed, errors, strict=True):
            run.fail(error)

    def _late_runs(self, stuck: dict[Run, list[Wait]], *, all_stuck: bool) -> set[Run]:
        """The stuck runs that have waited for the host for longer than the timeout."""
        now = time.monotonic()
        return {
            run
            for run, waits in stuck.items()
            if any(w.from_outside for w in waits)
            and now - max(w.since for w in waits) >= self.timeout
            # The timeout does not apply while another program is running, which may send a value.
            and (all_stuck or not any(w.from_programs for w in waits))
        }


def _is_one_ready(waits: Sequence[Wait]) -> bool:
    return not waits or any(wait.ready() for wait in waits)


_FULL_HINT = (
    "run the program that takes from it, in another thread, or make ExecutionContext(queue_items=, queue_bytes=) larger"
)


def _checked(device: int) -> int:
    if device < 0:
        raise ArgumentError(f"there is no device {device}", hint="devices count from 0")
    return device
