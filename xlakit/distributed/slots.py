"""Slots: what each process of a group sends at the beginning of a rendezvous, in one form for all of the group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from xlakit.distributed.mpi import Mpi
from xlakit.distributed.packing import Bytes
from xlakit.distributed.spread import Link

# A slot begins with: the mark of the rendezvous, its generation, and the size of the value in bytes.
_HEAD_WORDS = 3
HEAD = 8 * _HEAD_WORDS


def inline_limit(ranks: int) -> int:
    """The largest value, in bytes, that a slot holds; groups of more processes have smaller slots."""
    return min(1024, max(64, (1 << 14) // ranks // 8 * 8))


def slot_bytes(ranks: int) -> int:
    """The size of a slot in bytes."""
    return HEAD + inline_limit(ranks)


@dataclass(frozen=True, slots=True, eq=False)
class Opening:
    """A rendezvous that has begun: this process's slot, and those of all, which are there when the request is done."""

    request: Any
    slot: Bytes
    slots: np.ndarray[Any, np.dtype[np.uint8]]


def open_rendezvous(mpi: Mpi, link: Link, slot: Bytes) -> Opening:
    """Begin a rendezvous of a link. It stays in the list of open ones until it is removed."""
    byte = mpi.api.BYTE
    slots = np.empty((len(link.ranks), len(slot)), np.uint8)
    request = mpi.call(lambda: link.communicator.Iallgather([slot, byte], [slots, byte]))
    opening = Opening(request, slot, slots)
    link.begun += 1
    link.open.append(opening)
    return opening
