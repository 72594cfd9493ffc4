"""Child processes with limits of time and memory, for what may end its process or run forever.

A child reads requests from its standard input, and writes an answer to each, both pickled and behind their length. All
else that it prints goes to its standard error.
"""

from __future__ import annotations

import os
import pickle
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

from xlakit.dataclass import dataclass
from xlakit.errors import InternalError

_LENGTH = 8
_POLL_SECONDS = 0.05
_PIECE = 1 << 16
# What a child may take to end those that it has started itself.
_ENDING_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a child process: seconds, and bytes of resident memory (on Linux only)."""

    seconds: float = 120.0
    memory: int = 4 << 30


class Unanswered(Exception):
    """A child has given no answer: it has ``ended``, ``timed out`` or is ``out of memory``, of which it had so much."""

    def __init__(self, why: str, memory: int = 0) -> None:
        super().__init__(why, memory)
        self.why, self.memory = why, memory


class Child:
    """A process that runs a module of this package, which calls :func:`serve`."""

    def __init__(self, module: str, *, messages: IO[bytes] | None = None, environment: Mapping[str, str] = {}) -> None:
        """messages: the file that gets what the child prints; by default nothing does."""
        search_path = filter(None, [str(Path(__file__).resolve().parents[1]), os.environ.get("PYTHONPATH")])
        self._process = subprocess.Popen(
            [sys.executable, "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL if messages is None else messages,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(search_path), **environment},
        )
        self._requests, self._answers = _pipe(self._process.stdin), _pipe(self._process.stdout)
        # A child that does not read its requests must not stop this process: see _Patience.
        os.set_blocking(self._requests.fileno(), False)

    @property
    def is_alive(self) -> bool:
        """Whether the process still runs."""
        return self._process.poll() is None

    def ask(self, request: Any, limits: Limits | None = None) -> Any:
        """The answer to a request. Raises Unanswered, after which the child is of no use but for :meth:`ending`."""
        own = limits or Limits(float("inf"), sys.maxsize)
        patience = _Patience(own, self._process.pid, lambda: not self.is_alive)
        patience.send(self._requests.fileno(), request)
        return patience.receive(self._answers.fileno())

    def ending(self) -> str:
        """How a child that has ended did so: it ``died of SIGSEGV`` or ``ended with status 1``."""
        status = self._process.wait()
        return f"{'died' if status < 0 else 'ended'} {ending_of(status)}"

    def end(self) -> None:
        """End the process; what it is doing is lost."""
        self._process.terminate()
        # Python does not see a signal that comes just before it waits for a request. That request is the end then.
        self._requests.close()
        try:
            self._process.wait(_ENDING_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._answers.close()


def _pipe(stream: IO[bytes] | None) -> IO[bytes]:
    if stream is None:
        raise InternalError("a child process was started without pipes")
    return stream


def send(stream: IO[bytes], value: Any) -> None:
    """Write a request or an answer. Raises BrokenPipeError where the other side has ended."""
    stream.write(_message(value))
    stream.flush()


def _message(value: Any) -> bytes:
    data = pickle.dumps(value)
    return len(data).to_bytes(_LENGTH, "little") + data


def answer_of(descriptor: int, process: int, limits: Limits, has_ended: Callable[[], bool] = lambda: False) -> Any:
    """What a child process sends to a pipe. Raises Unanswered where it ends before, or exceeds its limits.

    has_ended: whether it has; without it that is seen when no process has the other end of the pipe any more.
    """
    return _Patience(limits, process, has_ended).receive(descriptor)


class _Patience:
    """Waits for a child process at its pipes, within its limits; all methods raise Unanswered."""

    def __init__(self, limits: Limits, process: int, has_ended: Callable[[], bool]) -> None:
        self._deadline = time.monotonic() + limits.seconds
        self._memory, self._process, self._has_ended = limits.memory, process, has_ended

    def send(self, descriptor: int, value: Any) -> None:
        """Write a request to a pipe that does not block."""
        left = memoryview(_message(value))
        while left:
            self._wait(descriptor, selectors.EVENT_WRITE)
            try:
                left = left[os.write(descriptor, left) :]
            except BrokenPipeError:
                raise Unanswered("ended") from None

    def receive(self, descriptor: int) -> Any:
        """Read an answer from a pipe."""
        data = bytearray()
        while len(data) < _LENGTH or len(data) < _LENGTH + int.from_bytes(data[:_LENGTH], "little"):
            self._wait(descriptor, selectors.EVENT_READ)
            piece = os.read(descriptor, _PIECE)
            if not piece:
                raise Unanswered("ended")
            data += piece
        return pickle.loads(memoryview(data)[_LENGTH:])

    def _wait(self, descriptor: int, event: int) -> None:
        """Wait until a pipe can be read or written."""
        # Unlike select.select it takes descriptors of any number, and unlike epoll it notices that one has been closed.
        with selectors.PollSelector() as pipe:
            pipe.register(descriptor, event)
            while True:
                left = self._deadline - time.monotonic()
                if left <= 0:
                    raise Unanswered("timed out")
                # Before the pipe is looked at: what it has written is in the pipe then.
                is_over = self._has_ended()
                if pipe.select(min(left, _POLL_SECONDS)):
                    return
                if is_over:
                    # A process that it has started itself keeps the pipe open.
                    raise Unanswered("ended")
                if (memory := _memory_of(self._process)) > self._memory:
                    raise Unanswered("out of memory", memory)


def ending_of(status: int) -> str:
    """A process's return code in words: ``of SIGSEGV``, or ``with status 1``."""
    names = {s.value: s.name for s in signal.Signals}
    return f"of {names.get(-status, f'signal {-status}')}" if status < 0 else f"with status {status}"


def _memory_of(process: int) -> int:
    """The resident memory of a process in bytes; 0 if the system does not say."""
    try:
        pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    except (OSError, IndexError, ValueError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def serve(answer: Callable[[Any], Any]) -> None:
    """What a child does: it sends what ``answer`` gives for each request, until there are no more."""
    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends this process when it is interrupted
    if sys.platform != "win32":
        import resource

        # No core dumps: an abort is an expected outcome.
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    while length := requests.read(_LENGTH):
        request = pickle.loads(requests.read(int.from_bytes(length, "little")))
        send(answers, answer(request))
