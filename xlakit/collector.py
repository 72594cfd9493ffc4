"""Python's garbage collector during phases that allocate many long-lived objects: imports, compilation."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

# By default a collection runs after each 700 allocations, and a full one now and then. With JAX and its libraries there
# are half a million objects, and a full collection takes as long as compiling a small program. A compilation leaves
# little garbage in cycles; during a long one, collections run after this many allocations.
_THRESHOLDS: Final = (100_000, 50, 100)
# After the import of this many modules, all objects are treated as old.
_MANY_MODULES: Final = 20
# Python 3.12 starts with some hundred frozen objects. Programs that fork freeze all that they have before: thousands.
_MOST_FROZEN_AT_START: Final = 1_000

_lock = threading.Lock()
# The threshold and the number of modules before the first of the nested blocks, and the number of blocks.
_before: list[tuple[tuple[int, int, int], int]] = []
_inside: list[None] = []


@contextmanager
def collecting_less() -> Generator[None]:
    """Let the collector run less often during the block, in all threads, unless it already runs less often."""
    with _lock:
        if not _inside and 0 < gc.get_threshold()[0] < _THRESHOLDS[0]:
            _before.append((gc.get_threshold(), len(sys.modules)))
            gc.set_threshold(*_THRESHOLDS)
        _inside.append(None)
    try:
        yield
    finally:
        with _lock:
            _inside.pop()
            if not _inside and _before:
                threshold, modules = _before.pop()
                if len(sys.modules) - modules >= _MANY_MODULES:
                    _make_old()
                # A threshold that was set inside of the block stays.
                if gc.get_threshold() == _THRESHOLDS:
                    gc.set_threshold(*threshold)


def _make_old() -> None:
    """Move all objects to the oldest generation, as if they had outlived collections.

    Modules stay. The collector would find that out by collecting the young objects, and then run a full collection
    sooner, over half a million objects of JAX and its libraries. Other new objects that are garbage are found by the
    next full collection.
    """
    # Objects that are frozen already, as before a fork, must stay frozen.
    if gc.get_freeze_count() < _MOST_FROZEN_AT_START:
        gc.freeze()
        gc.unfreeze()
