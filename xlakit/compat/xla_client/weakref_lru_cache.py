"""A cache of a function's results, which forgets those whose first argument is gone."""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable
from typing import Any


class WeakrefLRUCache:
    """Calls a function once for each first argument (held weakly), other arguments, and context."""

    class WeakrefLRUCacheInfo:
        """How a cache was used."""

        __slots__ = ("currsize", "hits", "maxsize", "misses")

        def __init__(self, hits: int, misses: int, maxsize: int, currsize: int) -> None:
            self.hits = hits
            self.misses = misses
            self.maxsize = maxsize
            self.currsize = currsize

        def __repr__(self) -> str:
            return (
                f"WeakrefLRUCacheInfo(hits={self.hits}, misses={self.misses}, maxsize={self.maxsize}, "
                f"currsize={self.currsize})"
            )

    def __init__(self, cache_context_fn: Callable[[], Any], fn: Callable[..., Any], maxsize: int) -> None:
        self._context = cache_context_fn
        self._function = fn
        self._maxsize = maxsize
        self._lock = threading.RLock()
        # The least recently used first. Keys start with the identity of the weakly held argument's reference.
        self._entries = OrderedDict[Any, Any]()
        self._hits = self._misses = 0
        self.__wrapped__ = fn

    def __call__(self, weakref_key: Any, /, *args: Any, **kwargs: Any) -> Any:
        """The function's result, kept from an earlier call where there was one."""
        # A new reference is equal to that of an entry, if both are to equal objects that are still there.
        reference = weakref.ref(weakref_key, self._forget)
        key = (reference, self._context(), args, tuple(sorted(kwargs.items())))
        with self._lock:
            if key in self._entries:
                self._hits += 1
                self._entries.move_to_end(key)
                return self._entries[key]
            self._misses += 1
        # The function runs without the lock: it may call the cache itself.
        value = self._function(weakref_key, *args, **kwargs)
        with self._lock:
            self._entries[key] = value
            while len(self._entries) > self._maxsize:
                self._entries.popitem(last=False)
        return value

    def _forget(self, reference: Any) -> None:
        with self._lock:
            for key in [key for key in self._entries if key[0] is reference]:
                del self._entries[key]

    def cache_keys(self) -> list[Any]:
        """The keys: weak reference, context, arguments and keyword arguments."""
        with self._lock:
            return list(self._entries)

    def cache_info(self) -> WeakrefLRUCacheInfo:
        """Hits, misses, and sizes."""
        with self._lock:
            return self.WeakrefLRUCacheInfo(self._hits, self._misses, self._maxsize, len(self._entries))

    def cache_clear(self) -> None:
        """Forget all results."""
        with self._lock:
            self._entries.clear()
            self._hits = self._misses = 0


def weakref_lru_cache(
    cache_context_fn: Callable[[], Any], fn: Callable[..., Any], maxsize: int = 2048
) -> WeakrefLRUCache:
    """A cache of ``fn``, whose first argument is held weakly.

    ``cache_context_fn`` gives what else a result depends on.
    """
    return WeakrefLRUCache(cache_context_fn, fn, maxsize)
