"""Scratch memory of tasks, which the runtime allocates."""

from __future__ import annotations

from xlakit.cpu.llvm import I64, PTR, VOID, Function, Value

ACQUIRE = "xlakit_scratch_acquire"
RELEASE = "xlakit_scratch_release"


def acquire(fn: Function, size: int) -> Value:
    """Acquire ``size`` bytes, aligned to 64 and uninitialized."""
    fn.module.declare(ACQUIRE, PTR, [I64])
    return fn.call(ACQUIRE, PTR, fn.i64(size))


def release(fn: Function, memory: Value) -> None:
    """Release scratch memory."""
    fn.module.declare(RELEASE, VOID, [PTR])
    fn.call(RELEASE, VOID, memory)
