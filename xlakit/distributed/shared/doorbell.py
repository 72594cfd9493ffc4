"""Doorbell: machine code by which processes of one machine notify each other of written messages.

A writer stores a count and then loads the reader's bell; a reader stores how it sleeps in its bell and then loads the
counts. All four accesses are sequentially consistent, so at least one of the two sees the other's store; Python's own
accesses to shared memory do not guarantee that on every machine. A bell is a word of the reader: AWAKE, or how it
sleeps.
"""

from __future__ import annotations

import ctypes
import platform
import sys
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final

from xlakit.compile_cache import Entry
from xlakit.cpu.cache.cache_key import process_code
from xlakit.cpu.llvm import I1, I64, PTR, VOID, Function, Module, Value, engine
from xlakit.cpu.llvm.effort import Effort
from xlakit.cpu.llvm.library import Library
from xlakit.cpu.runtime import waiting

# The values of a bell: the reader is awake; sleeps in a futex wait on the bell; or waits for a message by ZeroMQ.
AWAKE, SLEEPS, SELECTS = 0, 1, 2

# The number of the system call, by processor, and its operations; without FUTEX_PRIVATE_FLAG, as processes share words.
_FUTEX: Final[Mapping[str, int]] = {"x86_64": 202, "aarch64": 98, "riscv64": 98, "ppc64le": 221}
_WAIT, _WAKE = 0, 1

# The words of a row in a reader's table: the address of a count, and the count up to which it has read.
ROW_WORDS: Final = 2


def is_supported() -> bool:
    """Whether this system supports bells: they need Linux's futex, and little-endian words, as a futex has 32 bits."""
    return sys.platform == "linux" and sys.byteorder == "little" and platform.machine() in _FUTEX


def _any_arrived(fn: Function, table: Value, count: Value) -> Value:
    """Whether any count differs from the count up to which the reader has read."""

    def differs(number: Value) -> Value:
        row = fn.at(table, I64, number * ROW_WORDS)
        word = fn.load(I64, row).cast("inttoptr", PTR)
        return fn.atomic_load(I64, word, "seq_cst").ne(fn.load(I64, fn.at(row, I64, 1)))

    def goes_on(number: Value) -> Value:
        return fn.if_else(number < count, lambda: (~differs(number),), lambda: (fn.constant(I1, 0),))[0]

    with fn.while_((fn.i64(0),), lambda loop: goes_on(loop.carried[0])) as loop:
        loop.next(loop.carried[0] + 1)
    return loop.results[0] < count


def _text() -> str:
    module = Module("doorbell")
    module.declare("syscall", I64, [I64, PTR, I64, I64, PTR, PTR, I64])
    futex = _FUTEX[platform.machine()]

    def wait_or_wake(fn: Function, bell: Value, operation: int, number: Value, time: Value) -> None:
        fn.call("syscall", I64, fn.i64(futex), bell, fn.i64(operation), number, time, fn.null(), fn.i64(0))

    # publish(word, value, bell): store a count; wakes a reader in a futex wait, and gives the bell's previous value.
    fn, word, value, bell = module.begin("publish", I64, [PTR, I64, PTR], external=True)
    fn.atomic_store(value, word, "seq_cst")
    fn.return_if(fn.atomic_load(I64, bell, "seq_cst").eq(AWAKE), fn.i64(AWAKE))
    slept = fn.atomic_update("xchg", bell, fn.i64(AWAKE))
    with fn.if_(slept.eq(SLEEPS)):
        wait_or_wake(fn, bell, _WAKE, fn.i64(1), fn.null())
    fn.ret(slept)

    # store(word, value): a release store: earlier reads and writes are complete for a thread that loads the value.
    fn, word, value = module.begin("store", VOID, [PTR, I64], external=True)
    fn.atomic_store(value, word, "release")

    # load(word): an acquire load: later reads see the writes before the store of the value.
    fn = module.function("load", I64, [PTR], external=True)
    fn.ret(fn.atomic_load(I64, fn.parameters[0], "acquire"))

    fn, table, count = module.begin("has_arrived", I1, [PTR, I64])
    fn.ret(_any_arrived(fn, table, count))

    # await_any(bell, table, count, how, spin, sleep): whether any count has changed; waits up to so many nanoseconds.
    # If ``how`` is not SLEEPS it returns with the bell set to ``how``, and the caller sleeps in another way.
    fn = module.function("await_any", I64, [PTR, PTR, I64, I64, I64, I64], external=True)
    bell, table, count, how, spin, sleep = fn.parameters

    def arrived() -> Value:
        return fn.call("has_arrived", I1, table, count)

    waiting.spin(fn, lambda: ~arrived(), spin)
    fn.return_if(arrived(), fn.i64(1))
    fn.return_if(sleep <= 0, fn.i64(0))
    fn.atomic_store(how, bell, "seq_cst")
    with fn.if_(arrived()):
        fn.atomic_store(fn.i64(AWAKE), bell, "seq_cst")
        fn.ret(fn.i64(1))
    fn.return_if(how.ne(SLEEPS), fn.i64(0))
    time = fn.alloca(I64, 2)
    fn.store(sleep // 1_000_000_000, time)
    fn.store(sleep % 1_000_000_000, fn.at(time, I64, 1))
    wait_or_wake(fn, bell, _WAIT, fn.i64(SLEEPS), time)
    fn.atomic_store(fn.i64(AWAKE), bell, "seq_cst")
    fn.ret(fn.select(arrived(), fn.i64(1), fn.i64(0)))
    return module.text()


class Bells:
    """The machine code, loaded. The functions take addresses and numbers."""

    def __init__(self, data: bytes) -> None:
        words = ctypes.c_int64
        names = ("publish", "store", "load", "await_any")
        self._library = Library("xlakit_doorbell", data, names, {}, stays=True)
        at = self._library.address
        # Short functions, which are called with the GIL held.
        self.publish: Callable[[int, int, int], int] = ctypes.PYFUNCTYPE(words, *[words] * 3)(at("publish"))
        self.store: Callable[[int, int], Any] = ctypes.PYFUNCTYPE(None, words, words)(at("store"))
        self.load: Callable[[int], int] = ctypes.PYFUNCTYPE(words, words)(at("load"))
        self.await_any: Callable[[int, int, int, int, int, int], int] = ctypes.CFUNCTYPE(words, *[words] * 6)(
            at("await_any")
        )


@cache
def bells() -> Bells:
    """The machine code, from the compile cache where it is there."""
    entry = process_code("doorbell", lambda: Entry({}, {"object": engine.compiled(_text(), Effort.LITTLE)}))
    return Bells(bytes(entry.sections["object"]))
