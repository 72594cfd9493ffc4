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
from contextlib import suppress
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

    @property
    def is_alive(self) -> bool:
        """Whether the process still runs."""
        return self._process.poll() is None

    def ask(self, request: Any, limits: Limits | None = None) -> Any:
        """The answer to a request. Raises Unanswered, after which the child is of no use but for :meth:`ending`."""
        # Where it has ended, that is found below.
        with suppress(BrokenPipeError):
            send(self._requests, request)
        own = limits or Limits(float("inf"), sys.maxsize)
        return answer_of(self._answers.fileno(), self._process.pid, own, lambda: not self.is_alive)

    def ending(self) -> str:
        """How a child that has ended did so: it ``died of SIGSEGV`` or ``ended with status 1``."""
        status = self._process.wait()
        return f"{'died' if status < 0 else 'ended'} {ending_of(status)}"

    def end(self) -> None:
        """End the process; what it is doing is lost."""
        self._process.terminate()
        # Python does not see a signal that comes just before it waits for a request. That request is the end then.
        # What was being sent is of no use any more.
        with suppress(BrokenPipeError):
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
    data = pickle.dumps(value)
    stream.write(len(data).to_bytes(_LENGTH, "little") + data)
    stream.flush()


def answer_of(descriptor: int, process: int, limits: Limits, has_ended: Callable[[], bool] = lambda: False) -> Any:
    """What a child process sends to a pipe. Raises Unanswered where it ends before, or exceeds its limits.

    has_ended: whether it has; without it that is seen when no process has the other end of the pipe any more.
    """
    deadline = time.monotonic() + limits.seconds
    data = bytearray()
    # Unlike select.select it takes descriptors of any number, and unlike epoll it notices that one has been closed.
    with selectors.PollSelector() as answers:
        answers.register(descriptor, selectors.EVENT_READ)
        while len(data) < _LENGTH or len(data) < _LENGTH + int.from_bytes(data[:_LENGTH], "little"):
            left = deadline - time.monotonic()
            if left <= 0:
                raise Unanswered("timed out")
            # Before the pipe is looked at: what it has written is in the pipe then.
            is_over = has_ended()
            if answers.select(min(left, _POLL_SECONDS)):
                piece = os.read(descriptor, _PIECE)
                if not piece:
                    raise Unanswered("ended")
                data += piece
            elif is_over:
                # A process that it has started itself keeps the pipe open.
                raise Unanswered("ended")
            elif (memory := _memory_of(process)) > limits.memory:
                raise Unanswered("out of memory", memory)
    return pickle.loads(memoryview(data)[_LENGTH:])


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
