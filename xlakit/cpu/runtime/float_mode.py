"""How a thread computes with subnormal numbers: in full, or taking them for zero, as XLA's CPU backend does.

It is a part of the thread's state that all code on it shares. So a program sets what it was compiled for, whatever
libraries have made of it (PyTorch's ``set_flush_denormal``, what GCC links with ``-ffast-math``), and puts that back.
"""

from __future__ import annotations

import platform
from collections.abc import Generator
from contextlib import contextmanager

from xlakit import target
from xlakit.cpu.llvm import I32, I64, PTR, VOID, Function, Value

# MXCSR: operands are zero (bit 6), and results (bit 15). FPCR: both (bit 24).
_X86, _AARCH64 = 0x8040, 1 << 24


def _bits() -> int:
    """The bits of the processor's control register that are set where subnormal numbers are zero; 0 if not known."""
    if target.is_x86():
        return _X86
    return _AARCH64 if platform.machine().lower() in ("aarch64", "arm64") else 0


def get_mode(fn: Function) -> Value:
    """The thread's control register."""
    if target.is_x86():
        fn.module.declare("llvm.x86.sse.stmxcsr", VOID, [PTR])
        word = fn.alloca(I32)
        fn.call("llvm.x86.sse.stmxcsr", VOID, word)
        return fn.load(I32, word).cast("zext", I64)
    if _bits():
        fn.module.declare("llvm.aarch64.get.fpcr", I64, [])
        return fn.call("llvm.aarch64.get.fpcr", I64)
    return fn.i64(0)


def set_mode(fn: Function, mode: Value) -> None:
    """Set the thread's control register to what :func:`get_mode` gave, of another thread or before."""
    # Writing it holds the processor up longer than comparing does.
    with fn.if_(mode.ne(get_mode(fn))):
        if target.is_x86():
            fn.module.declare("llvm.x86.sse.ldmxcsr", VOID, [PTR])
            word = fn.alloca(I32)
            fn.store(mode.cast("trunc", I32), word)
            fn.call("llvm.x86.sse.ldmxcsr", VOID, word)
        elif _bits():
            fn.module.declare("llvm.aarch64.set.fpcr", VOID, [I64])
            fn.call("llvm.aarch64.set.fpcr", VOID, mode)


@contextmanager
def float_mode(fn: Function, flushes: Value | None = None) -> Generator[None]:
    """What is written inside runs with subnormal numbers as zero where ``flushes`` (an I64) is not 0, else in full."""
    before = get_mode(fn)
    in_full = before & ~_bits()
    set_mode(fn, in_full if flushes is None else fn.select(flushes.eq(0), in_full, before | _bits()))
    yield
    set_mode(fn, before)
