"""Python's garbage collector during phases that allocate many long-lived objects: imports, compilation."""

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
# The threshold before the first of the nested blocks, and the number of blocks.
_before: list[tuple[int, int, int]] = []
_inside: list[None] = []


@contextmanager
def collecting_less() -> Generator[None]:
    """Let the collector run less often during the block, in all threads, unless it already runs less often."""
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
                # A threshold that was set inside of the block stays.
                if gc.get_threshold() == _THRESHOLDS:
                    gc.set_threshold(*before)
