"""Python's garbage collector while much is made that stays: modules that are loaded, programs that are compiled."""

from __future__ import annotations

import gc
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

# By default each 700 objects that stay are looked at, and now and then all that there are: of JAX and what stands on it
# those are half a million, and looking at them takes as long as compiling a small program. What a compilation leaves
# in cycles is little; where it runs for long it is found after so many objects.
_THRESHOLDS: Final = (100_000, 50, 100)

_lock = threading.Lock()
# What was set before the first came that is inside; and how many are.
_before: list[tuple[int, int, int]] = []
_inside: list[None] = []


@contextmanager
def collecting_less() -> Generator[None]:
    """Have the collector run less often meanwhile, in all threads; where it runs more seldom already, it stays so."""
    with _lock:
        if not _inside and 0 < gc.get_threshold()[0] < _THRESHOLDS[0]:
            _before.append(gc.get_threshold())
            gc.set_threshold(*_THRESHOLDS)
        _inside.append(None)
    try:
        yield
    finally:
        with _lock:
            _inside.pop()
            if not _inside and _before:
                before = _before.pop()
                # What was set meanwhile is what is wanted.
                if gc.get_threshold() == _THRESHOLDS:
                    gc.set_threshold(*before)
