"""How a thread computes with subnormal numbers: exactly, or flushing them to zero as XLA's CPU backend does.

The mode is part of the thread's state, which all code on the thread shares. So a program sets the mode that it was
compiled for, whatever libraries have set (PyTorch's ``set_flush_denormal``, code that GCC links with ``-ffast-math``),
and restores it afterwards.
"""

from __future__ import annotations

import platform
from collections.abc import Generator
from contextlib import contextmanager

from xlakit import target
from xlakit.cpu.llvm import I32, I64, PTR, VOID, Function, Value

# MXCSR: flush operands (bit 6) and results (bit 15) to zero. FPCR: flush both (bit 24).
_X86, _AARCH64 = 0x8040, 1 << 24


def _bits() -> int:
    """The bits of the control register that make subnormal numbers zero; 0 if the processor is not known."""
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
    """Set the thread's control register to a value from :func:`get_mode`, which may be another thread's."""
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
    """Code in the block flushes subnormal numbers to zero if ``flushes`` (an I64) is not 0, else computes exactly."""
    before = get_mode(fn)
    in_full = before & ~_bits()
    set_mode(fn, in_full if flushes is None else fn.select(flushes.eq(0), in_full, before | _bits()))
    yield
    set_mode(fn, before)
