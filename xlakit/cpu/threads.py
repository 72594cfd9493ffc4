"""The number of threads that a program uses."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from xlakit.arguments import converting
from xlakit.errors import ArgumentError

# The runtime is imported on first use, so that importing this module stays cheap.
MAX_THREADS = 256


def thread_count() -> int:
    """The number of threads that a program started by this thread may use.

    By default as many as there are processors for this process: those that it may run on, within the quota of its
    container, and at most as many as the environment variable XLAKIT_THREADS says.
    """
    from xlakit.cpu.runtime import runtime

    return int(runtime().call("xlakit_thread_count"))


@contextmanager
@converting
def threads(count: int) -> Generator[None]:
    """Run the programs that this thread calls inside of the block on ``count`` threads, itself among them.

    ``count`` may exceed the number of processors. Scopes nest. Raises ArgumentError unless 1 <= count <= 256.
    """
    if not 1 <= count <= MAX_THREADS:
        raise ArgumentError(f"threads({count!r}): the number must be from 1 to {MAX_THREADS}")
    with thread_limit(count):
        yield


@contextmanager
def thread_limit(count: int) -> Generator[None]:
    """As :func:`threads`, for a number from :func:`thread_count`, which may exceed 256 on a large machine."""
    from xlakit.cpu.runtime import runtime

    before = runtime().call("xlakit_limit_threads", count)
    try:
        yield
    finally:
        runtime().call("xlakit_limit_threads", before)
