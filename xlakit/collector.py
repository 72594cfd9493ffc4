"""Python's garbage collector during phases that allocate many long-lived objects: imports, compilation."""

from __future__ import annotations

import gc
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

# By default a collection runs after each 700 allocations, and a full one now and then. With JAX and its libraries there
# are half a million objects, and a full collection takes as long as compiling a small program. A compilation leaves
# little garbage in cycles; that of a long one is collected after so many objects.
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
