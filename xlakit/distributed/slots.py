"""Slots: what each process of a group says at the beginning of a meeting, in one form for all meetings of the group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from xlakit.distributed.mpi import Mpi
from xlakit.distributed.packing import Bytes
from xlakit.distributed.spread import Link

# A slot begins with: the mark of the meeting, how often it took place, and the bytes that are brought.
_HEAD_WORDS = 3
HEAD = 8 * _HEAD_WORDS


def inline_limit(ranks: int) -> int:
    """How many bytes of a value a slot holds: less where there are more of them."""
    return min(1024, max(64, (1 << 14) // ranks // 8 * 8))


def slot_bytes(ranks: int) -> int:
    """How many bytes each process of a group begins a meeting with."""
    return HEAD + inline_limit(ranks)


@dataclass(frozen=True, slots=True, eq=False)
class Opening:
    """A meeting that has begun: this process's slot, and those of all, which are there when the request is done."""

    request: Any
    slot: Bytes
    slots: np.ndarray[Any, np.dtype[np.uint8]]


def open_meeting(mpi: Mpi, link: Link, slot: Bytes) -> Opening:
    """Begin a meeting of a link. It is among those that are open there until somebody strikes it out."""
    byte = mpi.api.BYTE
    slots = np.empty((len(link.ranks), len(slot)), np.uint8)
    request = mpi.call(lambda: link.communicator.Iallgather([slot, byte], [slots, byte]))
    opening = Opening(request, slot, slots)
    link.begun += 1
    link.open.append(opening)
    return opening
