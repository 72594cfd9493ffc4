"""The machine code of common functions, whose LLVM IR ``common.py`` and the kernels write.

It is stored in the compile cache, like the runtime, and stays loaded until the process ends. Loading a cached program
needs only this module.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence

from xlakit import compile_cache
from xlakit.cpu.cache.cache_key import runtime_key
from xlakit.cpu.llvm.effort import Effort
from xlakit.cpu.llvm.library import Library, laid_out
from xlakit.options import Options, compiling, of_tag

PREFIX = "xlakit_common."

_lock = threading.Lock()
_loaded: dict[str, Library] = {}


def resolve(symbol: str) -> int | None:
    """The address of a common function that a program imports; None if the symbol is not one."""
    if not symbol.startswith(PREFIX):
        return None
    if not is_there(symbol):
        with compiling(options_of(symbol)):
            # Imported here: LLVM is not needed if all functions are in the cache.
            from xlakit.cpu.llvm import engine

            missing = Missing([symbol])
            missing.keep(engine.compile_objects(missing.parts(), threads=1))
    return _loaded[symbol].address(symbol)


def is_there(symbol: str) -> bool:
    """Whether a function is loaded, or can be loaded from the cache; then it is."""
    if symbol not in _loaded:
        entry = compile_cache.load(key) if (key := key_of(symbol)) is not None else None
        if entry is None:
            return False
        _load(symbol, bytes(entry.sections["object"]))
    return True


def keep(symbol: str, data: bytes) -> None:
    """Load a compiled function, and save it for other processes."""
    (data,) = laid_out([data])
    _load(symbol, data)
    key = key_of(symbol)
    if key is not None:
        compile_cache.save(key, compile_cache.Entry({}, {"object": data}))


class Missing:
    """The common functions among the imports of a program that must be compiled.

    Functions that are in the compile cache are loaded instead.
    """

    def __init__(self, imports: Iterable[str]) -> None:
        self._symbols = [symbol for symbol in imports if symbol.startswith(PREFIX) and not is_there(symbol)]

    def parts(self) -> Iterator[tuple[Effort, str]]:
        """The efforts and LLVM IR texts of the functions to be compiled."""
        if not self._symbols:
            return iter(())
        # Imported here: shared code usually is in the cache, and writing it needs the modules of all families.
        from xlakit.cpu.kernels.common_families import part

        return (part(symbol) for symbol in self._symbols)

    def keep(self, objects: Sequence[bytes]) -> None:
        """Load the compiled functions, and save them for other processes."""
        for symbol, data in zip(self._symbols, objects, strict=True):
            keep(symbol, data)


def options_of(symbol: str) -> Options:
    """The options that a common function is compiled with, from its name.

    They are those of the program that imports it, which may be loaded while others are in force: tuning may have chosen
    a vector width for it, or another process may have serialized it.
    """
    return of_tag(_tag(symbol))


def _tag(symbol: str) -> str:
    return symbol.removeprefix(PREFIX).partition(".")[0].partition("$")[2]


def key_of(symbol: str) -> str | None:
    """The key of a function in the compile cache; None if nothing is cached."""
    if not compile_cache.is_enabled():
        return None
    with compiling(options_of(symbol)):
        return runtime_key(symbol)


def _load(symbol: str, data: bytes) -> None:
    with _lock:
        if symbol not in _loaded:
            _loaded[symbol] = Library(symbol, data, [symbol], _imports(symbol), stays=True)


def _imports(symbol: str) -> Mapping[str, int]:
    """The imports of a function: only those of bounds checks, if it has them."""
    if not options_of(symbol).sanitize:
        return {}
    from xlakit.cpu.runtime.bounds import bounds_symbols

    return bounds_symbols()
