"""The link between the processes that a program runs on: what a collective between them takes.

All processes of a program know the same link, whatever their machines are: which collectives become one depends on it,
and they must do so alike everywhere.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar

from xlakit.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Link:
    """A collective takes alpha + beta n nanoseconds for the n bytes that a device sends.

    The defaults are what two processes of one machine took: Python in both, and copies of the bytes.
    """

    alpha: float = 500_000.0
    beta: float = 4.0


USUAL = Link()

_current: ContextVar[Link | None] = ContextVar("xlakit_link", default=None)


def current() -> Link | None:
    """The link for which a program is compiled; None for one whose devices are all in this process."""
    return _current.get()


@contextmanager
def compiling_for(link: Link | None) -> Generator[None]:
    """Compile for a link in the block."""
    token = _current.set(link)
    try:
        yield
    finally:
        _current.reset(token)
