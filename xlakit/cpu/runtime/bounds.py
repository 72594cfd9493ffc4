"""The runtime of bounds checks: the check itself, the bounds of stored pointers, and the recorded faults.

:mod:`xlakit.cpu.llvm.bounds_checks` writes the code that calls it. It is loaded when the first program with checks is
linked, and stays until the process ends.

Bounds of pointers in memory are kept in a table of fixed size, keyed by the address at which a pointer was stored:

    | address | pointer | low | high |     at hash(address); a later address with the same hash replaces it

A loaded pointer has the bounds of its table entry if the entry has the same address and the same pointer. Otherwise its
bounds are unknown, and the check refuses only null: a lost entry makes checks weaker, never wrong. One lock serves all
threads.
"""

from __future__ import annotations

import ctypes
import threading
from functools import cache
from typing import Any

from xlakit import options
from xlakit.cpu.llvm import I64, PTR, VOID, Function, Module, Value, engine
from xlakit.cpu.llvm.bounds import CHECK, HIGH, LOW, NOTE
from xlakit.cpu.llvm.library import Library
from xlakit.cpu.runtime import waiting
from xlakit.dataclass import dataclass

_FAULT = "xlakit_bounds_fault"
_ADDRESS_BITS = 18
_WORDS = 4
_HASH = 0x9E3779B97F4A7C15
# Addresses below this are taken for null with an offset.
_NEAR_NULL = 4096
# The size of the spare memory; no single access is larger.
_SPARE_BYTES = 1 << 16
_MOST_FAULTS = 100


@dataclass(frozen=True, slots=True)
class BoundsFault:
    """An access that was refused.

    site: the function, and the kind of access. address: that of the access to ``size`` bytes. low, high: the begin and
    the end of the object that the address was computed from. thread: Python's identifier of the thread.
    """

    site: str
    address: int
    size: int
    low: int
    high: int
    thread: int

    @property
    def text(self) -> str:
        """The fault in words, without the name of the array."""
        function, _, access = self.site.partition(": ")
        if not self.high:
            return f"{function} accesses null, with an offset of {self.address} bytes ({access})"
        return (
            f"{function} accesses {self.size} bytes at offset {self.address - self.low} of an array of "
            f"{self.high - self.low} bytes ({access})"
        )


_faults: list[BoundsFault] = []


def take_faults(thread: int | None = None) -> list[BoundsFault]:
    """Remove and return the recorded faults of one thread, or of all threads."""
    faults = [fault for fault in _faults if thread in (None, fault.thread)]
    _faults[:] = [fault for fault in _faults if fault not in faults]
    return faults


def note_bounds(address: int, pointer: int, size: int) -> None:
    """Record that the pointer stored at ``address`` points to an object of ``size`` bytes."""
    _loaded().note(address, pointer, pointer, pointer + size)


def bounds_symbols() -> dict[str, int]:
    """The addresses of the functions that checked programs import."""
    return _loaded().symbols


class _Loaded:
    """The machine code of the checks."""

    def __init__(self) -> None:
        names = [CHECK, NOTE, LOW, HIGH]
        with options.compiling(options.DEFAULT, cpu=options.current().cpu):
            data = engine.make_object(_text(), level=0)
        handler = ctypes.cast(_handler, ctypes.c_void_p).value or 0
        self._library = Library("xlakit_bounds", data, names, {_FAULT: handler}, stays=True)
        self.symbols = {name: self._library.address(name) for name in names}
        self.note: Any = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 4)(self.symbols[NOTE])


_lock = threading.Lock()


def _loaded() -> _Loaded:
    with _lock:
        return _load()


_load = cache(_Loaded)
_spare = ctypes.create_string_buffer(_SPARE_BYTES + 64)


def _record_fault(address: int, low: int, high: int, size: int, site: int) -> int:
    if len(_faults) < _MOST_FAULTS:
        name = ctypes.string_at(site).decode()
        _faults.append(BoundsFault(name, address, size, low, high, threading.get_ident()))
    begin = ctypes.addressof(_spare)
    return begin + -begin % 64


_handler = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * 5)(_record_fault)


def _text() -> str:
    module = Module("bounds")
    module.declare(_FAULT, I64, [I64] * 5)
    module.global_data("noted", _WORDS * I64.bytes << _ADDRESS_BITS)
    module.global_data("lock", I64.bytes)
    _emit_check(module)
    _emit_note(module)
    for name, word in ((LOW, 2), (HIGH, 3)):
        _emit_noted(module, name, word)
    return module.text()


def _emit_check(module: Module) -> None:
    fn, pointer, low, high, size, site = module.begin(CHECK, PTR, [PTR, I64, I64, I64, PTR], external=True)
    begin = pointer.cast("ptrtoint", I64)
    end = begin + size
    is_inside = begin.compare("uge", low) & end.compare("ule", high) & end.compare("uge", begin)
    is_unknown = high.eq(0) & begin.compare("uge", _NEAR_NULL)
    fn.return_if(is_inside | is_unknown | size.eq(0), pointer)
    spare = fn.call(_FAULT, I64, begin, low, high, size, site.cast("ptrtoint", I64))
    fn.ret(spare.cast("inttoptr", PTR))


def _entry(fn: Function, address: Value) -> Value:
    """The table entry for a pointer that is stored at an address."""
    word = address.cast("ptrtoint", I64) >> 3
    number = (word * (_HASH - (1 << 64))) >> (64 - _ADDRESS_BITS)
    return fn.at(fn.address("noted"), I64, number * _WORDS)


def _lock_up(fn: Function) -> None:
    def is_taken(_: object) -> Value:
        return fn.atomic_update("xchg", fn.address("lock"), fn.i64(1)).ne(0)

    with fn.while_((), is_taken):
        waiting.pause(fn)


def _unlock(fn: Function) -> None:
    fn.atomic_store(fn.i64(0), fn.address("lock"))


def _emit_note(module: Module) -> None:
    fn, address, pointer, low, high = module.begin(NOTE, VOID, [PTR, PTR, I64, I64], external=True)
    entry = _entry(fn, address)
    _lock_up(fn)
    words = (address.cast("ptrtoint", I64), pointer.cast("ptrtoint", I64), low, high)
    for number, word in enumerate(words):
        fn.store(word, fn.at(entry, I64, number))
    _unlock(fn)


def _emit_noted(module: Module, name: str, word: int) -> None:
    fn = module.function(name, I64, [PTR, PTR], external=True)
    entry = _entry(fn, fn.parameters[0])
    _lock_up(fn)
    fields = [fn.load(I64, fn.at(entry, I64, number)) for number in (0, 1, word)]
    _unlock(fn)
    same = [
        number.eq(parameter.cast("ptrtoint", I64)) for number, parameter in zip(fields, fn.parameters, strict=False)
    ]
    fn.ret(fn.select(same[0] & same[1], fields[2], fn.i64(0)))
