"""World: what devices and hosts share while programs run: feeds, channels, and waiting for each other.

Everything happens under one lock. A device that must wait says what for and when that has come; as soon as all
devices wait and none can go on, nothing in the world can change, and all of them fail with a DeadlockError that tells
who waits where for what. Only where another thread of the host may still bring something (a feed, a host transfer, a
channel of a shared world) do they wait on, for ``timeout`` seconds.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from xlakit.errors import ArgumentError, DeadlockError
from xlakit.interpreter.values import to_host

if TYPE_CHECKING:
    from xlakit.data.shape import Shape
    from xlakit.interpreter.device import Device
    from xlakit.ir.instruction import Instruction
    from xlakit.ir.operation import Value

# How long a waiting thread sleeps before it looks again at what no notification tells, such as ended threads.
_PAUSE_SECONDS = 0.05


@dataclass(slots=True)
class Wait:
    """Why a device waits: for ``what``, until ``ready``."""

    device: Device
    instruction: Instruction
    what: Callable[[], str]
    ready: Callable[[], bool]
    # Whether a thread outside of the program could bring it.
    from_outside: bool = False
    # What it takes when nothing better can come any more.
    second_choice: Callable[[], bool] | None = None
    takes_second_choice: bool = False

    def __str__(self) -> str:
        instruction = self.instruction
        module = self.device.program.module
        location = module.location_of(instruction)
        where = f" at {location}" if location else ""
        program = f" of {module.name}" if self.device.run.shares_world else ""
        return f"{self.device}{program} waits in {instruction.opcode} '{instruction.name}'{where} for {self.what()}"


@dataclass(slots=True)
class Message:
    """A value in a channel; ``receiver`` is None where the sender does not choose one."""

    sender: int
    receiver: int | None
    value: Value


@dataclass(slots=True)
class _Queues:
    """The queues that hosts see, by device, or by device and channel."""

    infeed: defaultdict[int, deque[Any]] = field(default_factory=lambda: defaultdict(deque))
    outfeed: defaultdict[int, deque[Any]] = field(default_factory=lambda: defaultdict(deque))
    to_host: defaultdict[tuple[int, int], deque[Any]] = field(default_factory=lambda: defaultdict(deque))
    from_host: defaultdict[tuple[int, int], deque[Any]] = field(default_factory=lambda: defaultdict(deque))


class World:
    """Feeds, channels and waiting, for the programs that share it; all methods may be called from any thread.

    timeout: how many seconds to wait for a host or another program that may still come; the environment variable
    ``XLAKIT_TIMEOUT`` by default, or 30.
    """

    def __init__(self, *, timeout: float | None = None) -> None:
        self.timeout = _default_timeout() if timeout is None else timeout
        self.condition = threading.Condition()
        self._queues = _Queues()
        self._channels: defaultdict[int | None, list[Message]] = defaultdict(list)
        self._active: set[Device] = set()
        self._waits: dict[Device, Wait] = {}
        # Threads that run a device or wait for one: they bring nothing from outside.
        self._bound_threads = Counter[int]()
        # The queues that threads of the host wait for.
        self._host_takes: list[deque[Any]] = []
        self._last_change = time.monotonic()

    # -- for the host ----------------------------------------------------------------------------

    def infeed(self, device: int, value: object) -> None:
        """Append a value (an array, a number, a tuple of arrays) to the infeed of a device."""
        with self.changing():
            self._queues.infeed[device].append(_frozen(value))

    def outfeed(self, device: int = 0) -> Any:
        """The next value of a device's outfeed: an array, or a tuple of arrays.

        Waits for it while something runs that may bring it; raises DeadlockError when nothing does.
        """
        return self._take(self._queues.outfeed[device], f"the outfeed of device {device}")

    def send_to_device(self, device: int, channel_id: int, value: object) -> None:
        """Send a value to a device that does recv from the host on a channel."""
        with self.changing():
            self._queues.from_host[device, channel_id].append(_frozen(value))

    def recv_from_device(self, device: int, channel_id: int) -> Any:
        """The next value that a device sends to the host on a channel; waits as :meth:`outfeed` does."""
        return self._take(self._queues.to_host[device, channel_id], f"channel {channel_id} of device {device}")

    def _take(self, queue: deque[Any], what: str) -> Any:
        with self.condition:
            self._bind(1)
            self._host_takes.append(queue)
            try:
                self._await(queue, what)
                return queue.popleft()
            finally:
                self._host_takes.remove(queue)
                self._bind(-1)

    def _await(self, queue: deque[Any], what: str) -> None:
        since = time.monotonic()
        while not queue:
            self._resolve()
            if not self._active and not self._host_threads():
                raise DeadlockError(
                    f"{what} is empty, and no program runs that could fill it",
                    hint="run the program that fills it first, or in another thread",
                )
            if self._free_devices():
                since = time.monotonic()
            if time.monotonic() - max(since, self._last_change) > self.timeout:
                raise DeadlockError(f"nothing came from {what} for {self.timeout:g} seconds", hint=_TIMEOUT_HINT)
            self.condition.wait(_PAUSE_SECONDS)

    # -- for devices -----------------------------------------------------------------------------

    @contextmanager
    def changing(self) -> Generator[None]:
        """Hold the lock, then let everybody look whether their time has come."""
        with self.condition:
            yield
            self._last_change = time.monotonic()
            self.condition.notify_all()

    @contextmanager
    def bound(self) -> Generator[None]:
        """Mark this thread as one that cannot bring anything from outside meanwhile."""
        with self.condition:
            self._bind(1)
        try:
            yield
        finally:
            with self.condition:
                self._bind(-1)

    def _bind(self, times: int) -> None:
        thread = threading.get_ident()
        self._bound_threads[thread] += times
        if not self._bound_threads[thread]:
            del self._bound_threads[thread]

    def enter(self, devices: list[Device]) -> None:
        """Count devices as running."""
        with self.changing():
            self._active.update(devices)

    def leave(self, devices: list[Device]) -> None:
        """Count devices as finished."""
        with self.changing():
            self._active.difference_update(devices)

    def wait(self, wait: Wait) -> None:
        """Wait, with the lock held, until it is ready; raises where the device's run fails meanwhile."""
        if wait.ready():
            return
        self._waits[wait.device] = wait
        self._last_change = time.monotonic()
        try:
            while not (wait.ready() or wait.takes_second_choice):
                wait.device.run.check()
                self._resolve()
                wait.device.run.check()
                if not wait.takes_second_choice:
                    self.condition.wait(_PAUSE_SECONDS)
        finally:
            del self._waits[wait.device]
            self._last_change = time.monotonic()

    def next_infeed(self, device: Device, instruction: Instruction, shape: Shape) -> Any:
        """The next value of a device's infeed; waits for it."""
        queue = self._queues.infeed[device.index]
        return self._receive(
            queue,
            Wait(device, instruction, lambda: f"an infeed of {shape.without_layout()}", lambda: bool(queue), True),
        )

    def next_from_host(self, device: Device, instruction: Instruction, channel_id: int) -> Any:
        """The next value that the host sends on a channel; waits for it."""
        queue = self._queues.from_host[device.index, channel_id]
        wait = Wait(device, instruction, lambda: f"the host to send on channel {channel_id}", lambda: bool(queue), True)
        return self._receive(queue, wait)

    def _receive(self, queue: deque[Any], wait: Wait) -> Any:
        with self.condition:
            self.wait(wait)
            return queue.popleft()

    def append_outfeed(self, device: Device, value: Value) -> None:
        """Append to a device's outfeed."""
        with self.changing():
            self._queues.outfeed[device.index].append(to_host(value))

    def append_to_host(self, device: Device, channel_id: int, value: Value) -> None:
        """Send to the host."""
        with self.changing():
            self._queues.to_host[device.index, channel_id].append(to_host(value))

    def put(self, channel_id: int | None, message: Message) -> None:
        """Put a message into a channel."""
        with self.changing():
            self._channels[channel_id].append(message)

    def take(self, device: Device, instruction: Instruction, channel_id: int | None, *, shared: bool) -> Value:
        """The next message for a device: one addressed to it, or sent by the device of its number.

        A message that was sent to nobody in particular by a device of another number is taken when nothing else can
        come any more, which depends on the programs only, not on the speed of the threads.
        """
        messages = self._channels[channel_id]

        def position(*, any_sender: bool) -> int:
            for number, message in enumerate(messages):
                chosen = message.receiver if message.receiver is not None else message.sender
                if chosen == device.index or (any_sender and message.receiver is None):
                    return number
            return -1

        wait = Wait(
            device,
            instruction,
            lambda: f"a send on channel {channel_id}",
            lambda: position(any_sender=False) >= 0,
            from_outside=shared,
            second_choice=lambda: position(any_sender=True) >= 0,
        )
        with self.condition:
            self.wait(wait)
            return messages.pop(position(any_sender=wait.takes_second_choice)).value

    # -- who is stuck ----------------------------------------------------------------------------

    def _free_devices(self) -> bool:
        return any(
            device not in self._waits or self._waits[device].ready() or self._waits[device].takes_second_choice
            for device in self._active
        )

    def _host_threads(self) -> bool:
        """Whether a thread of the host runs, or is about to go on, that may bring something."""
        return any(self._host_takes) or any(thread.ident not in self._bound_threads for thread in threading.enumerate())

    def _resolve(self) -> None:
        """Where all devices wait in vain, let one take its second choice, or fail them all."""
        if not self._waits or self._free_devices():
            return
        stuck = sorted(self._waits.values(), key=lambda w: (w.device.index, id(w.device.run)))
        for wait in stuck:
            if wait.second_choice is not None and wait.second_choice():
                wait.takes_second_choice = True
                self.condition.notify_all()
                return
        waited = time.monotonic() - self._last_change
        if any(w.from_outside for w in stuck) and self._host_threads() and waited < self.timeout:
            return
        lines = "".join(f"\n  {wait}" for wait in stuck)
        for wait in stuck:
            rule = f"all devices wait and none can go on:{lines}"
            wait.device.run.fail(DeadlockError(rule, hint=_hint(stuck, waited, self.timeout)))
        self.condition.notify_all()


_TIMEOUT_HINT = "the environment variable XLAKIT_TIMEOUT says how many seconds to wait"


def _hint(stuck: list[Wait], waited: float, timeout: float) -> str:
    if waited >= timeout:
        return _TIMEOUT_HINT
    if any(w.instruction.opcode == "infeed" for w in stuck):
        return "call world.infeed(device, value) before the program runs, or from another thread"
    return "every device of a group must reach the collective, and every recv needs a send"


def _default_timeout() -> float:
    text = os.environ.get("XLAKIT_TIMEOUT", "30")
    try:
        return float(text)
    except ValueError:
        raise ArgumentError(
            f"XLAKIT_TIMEOUT is {text!r}, not a number of seconds", hint="set it to a number such as 60, or unset it"
        ) from None


def _frozen(value: object) -> object:
    """A value of the host, copied, so that the host may go on to use its arrays."""
    if isinstance(value, (tuple, list)):
        return tuple(_frozen(v) for v in value) if isinstance(value, tuple) else list(value)  # pyright: ignore
    copy = getattr(value, "__array__", None)
    return to_host(value) if copy is not None else value
