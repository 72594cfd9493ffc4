"""The processors of a machine, which the processes there share."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence

# A machine, and the processors there that a process may run on.
Processors = tuple[str, list[int]]


def own_processors() -> Processors:
    """The machine, and the processors that this process may run on; an empty list if the system does not tell."""
    numbers = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    return socket.gethostname(), numbers


def share_processors(all: Sequence[Processors], own: Processors) -> None:
    """Let the processes of one machine share its processors, unless the number of threads is set.

    A launcher that binds processes to processors has divided them already.
    """
    host, mine = own
    if "XLAKIT_THREADS" not in os.environ and mine:
        sharing = sum(1 for other, numbers in all if other == host and set(numbers) & set(mine))
        os.environ["XLAKIT_THREADS"] = str(max(1, len(mine) // sharing))
