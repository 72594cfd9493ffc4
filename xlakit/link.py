"""The link between the processes that a program runs on: what a collective between them takes.

All processes of a program know the same link, whatever their machines are: which collectives become one depends on it,
and they must do so alike everywhere.
"""

from __future__ import annotations

import math
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
# A collective by a message and its answer, and its bytes by those of a message: it packs, waits, unpacks and combines.
_ALPHAS, _BETAS = 2.5, 2.5
_LEAST_ALPHA, _LEAST_BETA = 1_000.0, 1 / 64


def fitted(empty: float, full: float, bytes: int) -> Link:
    """The link, from the nanoseconds that a message and its answer take, an empty one and one of so many bytes.

    Rounded to powers of two, so that programs that were compiled for it before are found in the compile cache.
    """
    alpha = max(_LEAST_ALPHA, _ALPHAS * empty)
    beta = max(_LEAST_BETA, _BETAS * (full - empty) / bytes)
    return Link(*(2.0 ** round(math.log2(number)) for number in (alpha, beta)))


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
