"""How many threads a program uses."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from xlakit.cpu.runtime.library import runtime
from xlakit.cpu.runtime.pool import MAX_THREADS
from xlakit.errors import ArgumentError


def thread_count() -> int:
    """How many threads a program that this thread runs now may use.

    By default as many as there are processors for this process: those that it may run on, within the quota of its
    container, and at most as many as the environment variable XLAKIT_THREADS says.
    """
    return int(runtime().call("xlakit_thread_count"))


@contextmanager
def threads(count: int) -> Generator[None]:
    """Run the programs that this thread calls inside of the block on ``count`` threads, itself among them.

    It may be more than there are processors. Scopes nest. Raises ArgumentError unless 1 <= count <= 256.
    """
    if isinstance(count, bool) or not 1 <= count <= MAX_THREADS:
        raise ArgumentError(f"threads({count!r}): the number must be from 1 to {MAX_THREADS}")
    before = runtime().call("xlakit_limit_threads", int(count))
    try:
        yield
    finally:
        runtime().call("xlakit_limit_threads", before)
