"""The machine code of the functions that many programs need; ``common.py`` writes them.

Like the runtime they are stored in the compile cache, and stay in memory until the process ends. Loading a program that
is cached takes no more than this file.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence

from xlakit import compile_cache
from xlakit.cpu.cache_key import runtime_key
from xlakit.cpu.llvm.effort import Effort
from xlakit.cpu.llvm.library import Library, laid_out
from xlakit.options import Options, compiling, of_tag

PREFIX = "xlakit_common."

_lock = threading.Lock()
_loaded: dict[str, Library] = {}


def resolve(symbol: str) -> int | None:
    """The address of a symbol that a program imports, where it is one of ours."""
    if not symbol.startswith(PREFIX):
        return None
    if not is_there(symbol):
        with compiling(options_of(symbol)):
            # LLVM is not needed where all is on disk.
            from xlakit.cpu.llvm import engine

            missing = Missing([symbol])
            missing.keep(engine.compile_objects(missing.parts(), threads=1))
    return _loaded[symbol].address(symbol)


def is_there(symbol: str) -> bool:
    """Whether this process has a function, or the disk, from which it is loaded then."""
    if symbol not in _loaded:
        entry = compile_cache.load(key) if (key := key_of(symbol)) is not None else None
        if entry is None:
            return False
        _load(symbol, bytes(entry.sections["object"]))
    return True


def keep(symbol: str, data: bytes) -> None:
    """Load a function that has been compiled, and keep it for other processes."""
    (data,) = laid_out([data])
    _load(symbol, data)
    key = key_of(symbol)
    if key is not None:
        compile_cache.save(key, compile_cache.Entry({}, {"object": data}))


class Missing:
    """The common functions among the imports of a program that this process does not have yet.

    Those that are on disk are loaded; the others are to be compiled.
    """

    def __init__(self, imports: Iterable[str]) -> None:
        self._symbols = [symbol for symbol in imports if symbol.startswith(PREFIX) and not is_there(symbol)]

    def parts(self) -> Iterator[tuple[Effort, str]]:
        """What is to be compiled."""
        if not self._symbols:
            return iter(())
        # What all programs share is on disk, as a rule; to write it takes the files of all its families.
        from xlakit.cpu.kernels.common_families import part

        return (part(symbol) for symbol in self._symbols)

    def keep(self, objects: Sequence[bytes]) -> None:
        """Load what has been compiled, and keep it for other processes."""
        for symbol, data in zip(self._symbols, objects, strict=True):
            keep(symbol, data)


def options_of(symbol: str) -> Options:
    """The options that a common function is compiled with: its name tells them.

    They are those of the program that imports it, which may be loaded where others are in force: tuning may have chosen
    a width of vectors for it, or another process may have serialized it.
    """
    return of_tag(_tag(symbol))


def _tag(symbol: str) -> str:
    return symbol.removeprefix(PREFIX).partition(".")[0].partition("$")[2]


def key_of(symbol: str) -> str | None:
    """The key of a function in the compile cache; None where nothing is cached."""
    if not compile_cache.is_enabled():
        return None
    with compiling(options_of(symbol)):
        return runtime_key(symbol)


def _load(symbol: str, data: bytes) -> None:
    with _lock:
        if symbol not in _loaded:
            _loaded[symbol] = Library(symbol, data, [symbol], _imports(symbol), stays=True)


def _imports(symbol: str) -> Mapping[str, int]:
    """What a function imports: nothing, but where it checks bounds."""
    if not options_of(symbol).sanitize:
        return {}
    from xlakit.cpu.runtime.bounds import bounds_symbols

    return bounds_symbols()
