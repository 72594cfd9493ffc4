"""The link between the processes that a program runs on, which determines the cost of collectives between them.

All processes of a program use the same link, whatever their machines are: which collectives are combined depends on
it, and must be the same everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar

from xlakit.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Link:
    """The cost of a collective: alpha + beta n nanoseconds for the n bytes that a device sends.

    products: the multiply-adds of F32 that a device does in a nanosecond, in a product of matrices. The defaults of the
    others were measured with two processes of one machine: Python in both, and copies of the bytes.
    """

    alpha: float = 500_000.0
    beta: float = 4.0
    products: float = 16.0


DEFAULT_LINK = Link()
# The cost of a collective in messages with their answers, and of a byte in bytes of messages between two processes of a
# machine: a collective packs, waits, unpacks and combines.
_ALPHAS, _BETAS = 2.5, 2.5
# What a byte of a message takes there, in nanoseconds. On a slower link its bytes travel once, for all else is copying.
_COPIED = DEFAULT_LINK.beta / _BETAS
_LEAST_ALPHA, _LEAST_BETA = 1_000.0, 1 / 64


def fitted(empty: float, full: float, bytes: int, products: float) -> Link:
    """The link for which a message and its answer take these nanoseconds, an empty one and one of ``bytes`` bytes.

    products: the multiply-adds that a device does in a nanosecond. The link's numbers are rounded to powers of two, so
    that programs compiled for it before are found in the compile cache.
    """
    alpha = max(_LEAST_ALPHA, _ALPHAS * empty)
    byte = (full - empty) / bytes
    beta = max(_LEAST_BETA, byte + (_BETAS - 1) * min(byte, _COPIED))
    return Link(*(2.0 ** round(math.log2(number)) for number in (alpha, beta, products)))


_current: ContextVar[Link | None] = ContextVar("xlakit_link", default=None)


def current() -> Link | None:
    """The link for which a program is compiled; None if all its devices are in this process."""
    return _current.get()


@contextmanager
def compiling_for(link: Link | None) -> Generator[None]:
    """Compile for a link in the block."""
    token = _current.set(link)
    try:
        yield
    finally:
        _current.reset(token)
