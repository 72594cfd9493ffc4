"""An LRU cache of a function's results, which drops results whose first argument has been garbage-collected."""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, NoReturn, Self

from xlakit.compat.xla_client.binding import Wrapper, bound, no_constructor

# The result that each thread waits for, to detect cycles of threads that wait for each other.
_waits: dict[int, _Entry] = {}
_waits_lock = threading.Lock()


class _Entry:
    """A result, or one that a thread is still computing."""

    __slots__ = ("done", "has_value", "owner", "value")

    def __init__(self) -> None:
        self.done = threading.Event()
        self.owner = threading.get_ident()
        self.has_value = False
        self.value: Any = None

    def wait(self) -> bool:
        """Wait until the other thread is done; False if that thread (indirectly) waits for this one: a deadlock."""
        me = threading.get_ident()
        with _waits_lock:
            blocking: _Entry | None = self
            while blocking is not None and not blocking.done.is_set():
                if blocking.owner == me:
                    return False
                blocking = _waits.get(blocking.owner)
            _waits[me] = self
        try:
            self.done.wait()
        finally:
            with _waits_lock:
                del _waits[me]
        return True


class WeakrefLRUCache:
    """Calls a function once for each first argument (held weakly), other arguments, and context.

    A thread that needs a result which another thread is computing waits for it.
    """

    class WeakrefLRUCacheInfo(Wrapper[tuple[int, int, int, int]]):
        """How a cache was used."""

        __slots__ = ()

        __init__ = no_constructor

        @property
        def hits(self) -> int:
            """How many calls found a result, or one that was being calculated."""
            return self.wrapped[0]

        @property
        def misses(self) -> int:
            """How many calls found none."""
            return self.wrapped[1]

        @property
        def maxsize(self) -> int:
            """How many results are kept."""
            return self.wrapped[2]

        @property
        def currsize(self) -> int:
            """How many results there are."""
            return self.wrapped[3]

        def __repr__(self) -> str:
            hits, misses, maxsize, currsize = self.wrapped
            return f"WeakrefLRUCache(hits={hits}, misses={misses}, maxsize={maxsize}, currsize={currsize})"

    __slots__ = (
        *("__weakref__", "_busy", "_context", "_dead", "_entries", "_function", "_hits", "_keys", "_lock", "_maxsize"),
        "_misses",
    )

    __init__ = no_constructor

    @classmethod
    def of(cls, context: Callable[[], Any], function: Callable[..., Any], maxsize: int) -> Self:
        """A cache; a negative size is no limit."""
        made = cls.__new__(cls)
        made._begin(context, function, maxsize)
        return made

    def _begin(self, context: Callable[[], Any], function: Callable[..., Any], maxsize: int) -> None:
        self._context = context
        self._function = function
        self._maxsize = maxsize
        self._lock = threading.RLock()
        self._busy = False
        # The least recently used first. Each key starts with its own weak reference to the first argument.
        self._entries = OrderedDict[Any, _Entry]()
        self._keys: dict[int, Any] = {}
        # Of arguments that are gone, the identities of the references.
        self._dead = deque[int]()
        self._hits = self._misses = 0

    def __reduce__(self) -> NoReturn:
        raise TypeError("a WeakrefLRUCache is neither copied nor pickled")

    def __call__(self, weakref_key: Any, /, *args: Any, **kwargs: Any) -> Any:
        """The function's result, kept from an earlier call where there was one.

        Raises RecursionError where the function asks for the result that it is to give.
        """
        # A new reference is equal to that of an entry, if both are to equal objects that are still there.
        reference = weakref.ref(weakref_key, self._forget)
        key = (reference, self._context(), args, tuple(sorted(kwargs.items())))
        with self._locked():
            known = self._entries.get(key)
            entry = known or _Entry()
            if known is None:
                self._misses += 1
                self._entries[key] = entry
                self._keys[id(reference)] = key
                self._drop_oldest()
            else:
                self._hits += 1
                self._entries.move_to_end(key)
        # The function runs without the lock: it may call the cache itself.
        if known is None:
            return self._calculate(entry, key, weakref_key, args, kwargs)
        if not entry.done.is_set() and entry.owner == threading.get_ident():
            raise RecursionError(f"the call for {weakref_key!r}{args!r} asks for its own result")
        if entry.wait() and entry.has_value:
            return entry.value
        return self._function(weakref_key, *args, **kwargs)

    def _calculate(self, entry: _Entry, key: Any, first: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        try:
            entry.value = self._function(first, *args, **kwargs)
            entry.has_value = True
        finally:
            if not entry.has_value:
                with self._locked():
                    if self._entries.get(key) is entry:
                        self._remove(key)
            entry.done.set()
        return entry.value

    @contextmanager
    def _locked(self) -> Generator[None]:
        """Hold the lock; entries of dead arguments are removed at the begin and at the end."""
        with self._lock:
            outer, self._busy = self._busy, True
            try:
                self._sweep()
                yield
                self._sweep()
            finally:
                self._busy = outer

    def _forget(self, reference: Any) -> None:
        # The garbage collector may call this while the entries are being changed, so the removal is deferred.
        self._dead.append(id(reference))
        if self._lock.acquire(blocking=False):
            try:
                if not self._busy:
                    self._sweep()
            finally:
                self._lock.release()

    def _sweep(self) -> None:
        while self._dead:
            key = self._keys.get(self._dead.popleft())
            if key is not None:
                self._remove(key)

    def _remove(self, key: Any) -> None:
        del self._entries[key]
        del self._keys[id(key[0])]

    def _drop_oldest(self) -> None:
        while 0 <= self._maxsize < len(self._entries):
            key, _ = self._entries.popitem(last=False)
            del self._keys[id(key[0])]

    def cache_keys(self) -> list[Any]:
        """The keys: weak reference, context, arguments and keyword arguments."""
        with self._locked():
            keys = list(self._entries)
        return [(reference, context, args, dict(kwargs)) for reference, context, args, kwargs in keys]

    def cache_info(self) -> WeakrefLRUCacheInfo:
        """Hits, misses, and sizes."""
        with self._locked():
            return self.WeakrefLRUCacheInfo.of((self._hits, self._misses, self._maxsize, len(self._entries)))

    def cache_clear(self) -> None:
        """Forget all results."""
        with self._locked():
            self._entries.clear()
            self._keys.clear()
            self._hits = self._misses = 0


@bound
def weakref_lru_cache(
    cache_context_fn: Callable[..., Any], fn: Callable[..., Any], maxsize: int = 2048
) -> WeakrefLRUCache:
    """A cache of ``fn``, whose first argument is held weakly. Raises TypeError for arguments of other types.

    ``cache_context_fn`` gives what else a result depends on. A ``maxsize`` below 0 is no limit.
    """
    return WeakrefLRUCache.of(cache_context_fn, fn, maxsize)
