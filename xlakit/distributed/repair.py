"""Repair: communicators after a run that failed.

An operation that a failed run has begun on a communicator can neither end nor be canceled until all processes have
begun it. MPI has few communicators, so they cannot be abandoned each time. But nearly always the open operation is the
beginning of a rendezvous, which has one form for all rendezvous of a group. So the processes exchange how many of these
they have begun, a process that is behind begins as many more, and all of them end.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from xlakit.distributed.mpi import Mpi
from xlakit.distributed.slots import open_rendezvous, slot_bytes
from xlakit.distributed.spread import Link

# The number of links that a message can describe, by a name and a number each.
MOST_LINKS = 256
_SPOILT = -1


class Repair:
    """A repair in progress. All processes start it at the same announcement, when no earlier run is active in them.

    is_spoilt: whether something else than a rendezvous has begun and may never end.
    """

    def __init__(self, mpi: Mpi, communicator: Any, links: Mapping[tuple[int, ...], Link], *, is_spoilt: bool) -> None:
        self._mpi = mpi
        self._links = [links[members] for members in sorted(links)]
        sent = np.zeros((MOST_LINKS, 2), np.int64)
        for row, link in zip(sent, self._links, strict=False):
            row[:] = _name(link), _SPOILT if link.is_spoilt else link.begun
        if is_spoilt or len(links) > MOST_LINKS:
            sent[0, 1] = _SPOILT
        # MPI still uses both.
        self._sent = sent
        self._received = np.empty((communicator.size, *sent.shape), np.int64)
        word = mpi.api.INT64_T
        self._request = mpi.call(lambda: communicator.Iallgather([sent, word], [self._received, word]))
        self._has_heard = False

    def finish(self, wait: Callable[[Any], None]) -> bool:
        """Wait until all open operations have ended; False if they cannot, and all processes need new communicators.

        Where ``wait`` raises it can be called again.
        """
        if not self._has_heard:
            wait(self._request)
            self._has_heard = True
            if not self._is_hopeless:
                for link in self._links:
                    self._catch_up(link)
        if self._is_hopeless:
            return False
        for link in self._links:
            while link.open:
                wait(link.open[0].request)
                del link.open[0]
        return True

    @property
    def _is_hopeless(self) -> bool:
        return bool((self._received[..., 1] == _SPOILT).any())

    def _catch_up(self, link: Link) -> None:
        rows = self._received[list(link.ranks)]
        most = int(rows[..., 1][rows[..., 0] == _name(link)].max())
        while link.begun < most:
            open_rendezvous(self._mpi, link, np.zeros(slot_bytes(len(link.ranks)), np.uint8))


def _name(link: Link) -> int:
    digest = hashlib.blake2b(repr(link.members).encode(), digest_size=8).digest()
    # 0 stands for no link.
    return int.from_bytes(digest, "little", signed=True) or 1
