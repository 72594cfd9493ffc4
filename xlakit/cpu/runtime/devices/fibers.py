"""Fibers: stacks on which one thread runs several devices of a program in turn, each from one wait to the next.

A thread enters a fiber (``resume``), and continues when the fiber has ended or waits (``leave_fiber``). So devices that
wait for each other on few processors need no thread to sleep or to be woken. A fiber stays on its thread.

Python is never called on the stack of a fiber, because it checks the stack bounds of the thread: a fiber that needs
signals handled leaves for that, too, and is entered again at once.

Stacks are reused by later fibers. The system provides their pages on first use, and the lowest pages are a guard that
cannot be accessed.
"""

from __future__ import annotations

import mmap
import platform
import sys
from enum import IntEnum
from typing import Final

from xlakit.cpu.llvm import I1, I32, I64, PTR, VOID, Function, Module, Value
from xlakit.cpu.llvm.promises import COLD, NO_INLINE
from xlakit.cpu.runtime import waiting
from xlakit.cpu.runtime.float_mode import get_mode, set_mode
from xlakit.cpu.runtime.record import Record
from xlakit.cpu.runtime.thread_state import THREAD, thread_state


class FiberState(IntEnum):
    """The state of a fiber."""

    # It may be entered, for the first time or because its wait may be over.
    READY = 0
    # It waits until all members of its rendezvous have arrived (AWAITS_MEMBERS), or until the collective is computed
    # (AWAITS_RESULT).
    AWAITS_MEMBERS = 1
    AWAITS_RESULT = 2
    # It has left to have signals handled; ``answer`` gets the status.
    NEEDS_SIGNALS = 3
    ENDED = 4


# stack: its saved stack pointer. back: that of the thread that entered it. running: the context of its program while it
# is not entered, see THREAD. answer: the status of signal handlers; at the end that of the device. run, ordinal: the
# run, and the number of the device in it. The rest describes its wait: a rendezvous, and the number of the collective.
FIBER = Record(
    next=1, stack=1, back=1, running=1, state=1, answer=1, run=1, ordinal=1, slot=1, generation=1, site=1, number=1,
    _fill=4,
)  # fmt: skip

# The list of free fibers, and its length.
_FREE = Record(first=1, count=1, _line=6, mutex=8)

# A stack with its record at the upper end, as large as a thread's, because C functions of custom calls run on it. The
# guard at the lower end is a multiple of every system's page size.
_STACK_BYTES: Final = 1 << 23
_GUARD_BYTES: Final = 1 << 16
_MOST_FREE: Final = 128

_PROTECTED: Final = 0
_WRITABLE: Final = mmap.PROT_READ | mmap.PROT_WRITE
_RESERVED: Final = 0x4000 if sys.platform == "linux" else 0
_SMALL_PAGES: Final[int | None] = getattr(mmap, "MADV_NOHUGEPAGE", None)

# Saves the callee-saved registers, switches stacks, and restores the registers of the other stack. The first argument
# is where to store the stack pointer, the second one the stack to switch to. Callers save the floating-point mode. For
# each machine also: the number of words between the initial stack pointer and the record, and which of them is the
# return address (at the entry of a function, the stack pointer of x86-64 is eight more than a multiple of sixteen).
_SWITCH: Final = {
    "x86_64": (
        [
            *(f"pushq %{name}" for name in ("rbp", "rbx", "r12", "r13", "r14", "r15")),
            "movq %rsp, (%rdi)",
            "movq %rsi, %rsp",
            *(f"popq %{name}" for name in ("r15", "r14", "r13", "r12", "rbx", "rbp")),
            "retq",
        ],
        8,
        6,
    ),
    "aarch64": (
        [
            "sub sp, sp, #160",
            *(f"stp x{n}, x{n + 1}, [sp, #{(n - 19) * 8}]" for n in range(19, 31, 2)),
            *(f"stp d{n}, d{n + 1}, [sp, #{96 + (n - 8) * 8}]" for n in range(8, 16, 2)),
            "mov x9, sp",
            "str x9, [x0]",
            "mov sp, x1",
            *(f"ldp x{n}, x{n + 1}, [sp, #{(n - 19) * 8}]" for n in range(19, 31, 2)),
            *(f"ldp d{n}, d{n + 1}, [sp, #{96 + (n - 8) * 8}]" for n in range(8, 16, 2)),
            "add sp, sp, #160",
            "ret",
        ],
        20,
        11,
    ),
}
_MACHINES: Final = {"amd64": "x86_64", "arm64": "aarch64"}


def machine() -> str | None:
    """The kind of processor, or None if fibers are not implemented for it."""
    name = platform.machine().lower()
    name = _MACHINES.get(name, name)
    return name if name in _SWITCH and sys.platform in ("linux", "darwin") else None


def emit_fibers(module: Module) -> None:
    """Write the functions into a module that has the functions of emit_thread_state, and ``run_fiber(ptr fiber)``.

    A fiber calls ``run_fiber`` on its stack. ``take_fiber() -> ptr`` gives a free fiber, or null if there is no memory;
    ``give_fiber(ptr)`` returns it to the list; ``start_fiber(ptr)`` prepares it to run from the beginning.
    """
    module.global_data("fibers", _FREE.size)
    _emit_switch(module)
    _emit_start(module)
    _emit_resume(module)
    _emit_take(module)
    fn = module.function("fibers_reset", VOID, [])
    for name in ("first", "count"):
        _FREE.store(fn, fn.address("fibers"), name, fn.i64(0))
    waiting.make_mutex(fn, _free(fn, "mutex"))


def current_fiber(fn: Function) -> Value:
    """The fiber that this thread is on, or null."""
    return THREAD.pointer(fn, thread_state(fn), "fiber")


def leave_fiber(fn: Function, fiber: Value, state: FiberState) -> None:
    """Leave the thread's current fiber; the code continues when the thread enters the fiber again."""
    FIBER.store(fn, fiber, "state", fn.i64(state))
    mode = get_mode(fn)
    fn.call("switch_stack", VOID, FIBER.at(fn, fiber, "stack"), FIBER.pointer(fn, fiber, "back"))
    set_mode(fn, mode)


def _free(fn: Function, name: str) -> Value:
    return _FREE.at(fn, fn.address("fibers"), name)


def _emit_switch(module: Module) -> None:
    architecture = machine()
    fn = module.function("switch_stack", VOID, [PTR, PTR], attributes=(NO_INLINE,))
    if architecture is None:
        # No fiber is ever entered on this machine.
        module.declare("abort", VOID, [])
        fn.call("abort", VOID)
    else:
        fn.is_assembly(_SWITCH[architecture][0])


def _emit_start(module: Module) -> None:
    fn = module.function("begin_fiber", VOID, [])
    fiber = current_fiber(fn)
    fn.call("run_fiber", VOID, fiber)
    leave_fiber(fn, fiber, FiberState.ENDED)
    # A fiber that has ended is never entered again.
    module.declare("abort", VOID, [])
    fn.call("abort", VOID)

    fn, fiber = module.begin("start_fiber", VOID, [PTR])
    architecture = machine()
    words, entry_word = (0, 0) if architecture is None else _SWITCH[architecture][1:]
    stack = fn.at(fiber, I64, -words)
    fn.fill(stack, 0, words * 8)
    fn.store(fn.address("begin_fiber"), fn.at(stack, I64, entry_word))
    fn.store(stack, FIBER.at(fn, fiber, "stack"))
    for name in ("running", "state", "answer"):
        FIBER.store(fn, fiber, name, fn.i64(0))


def _emit_resume(module: Module) -> None:
    """``resume(ptr fiber)``: enter a fiber, until it has ended or waits for others."""
    fn, fiber = module.begin("resume", VOID, [PTR])
    state = thread_state(fn)
    # A program may be called from a custom call of another one.
    outer = [(name, fn.load(I64, THREAD.at(fn, state, name))) for name in ("fiber", "running")]
    fn.store(fiber, THREAD.at(fn, state, "fiber"))
    THREAD.store(fn, state, "running", FIBER.load(fn, fiber, "running"))
    mode = get_mode(fn)
    with fn.while_((fn.constant(I1, 1),), lambda iteration: iteration.carried[0]) as iteration:
        fn.call("switch_stack", VOID, FIBER.at(fn, fiber, "back"), FIBER.pointer(fn, fiber, "stack"))
        set_mode(fn, mode)
        asks = FIBER.load(fn, fiber, "state").eq(FiberState.NEEDS_SIGNALS)
        with fn.if_(asks, likely=False):
            FIBER.store(fn, fiber, "answer", fn.call("signals_on_thread", I64))
        iteration.next(asks)
    FIBER.store(fn, fiber, "running", THREAD.load(fn, state, "running"))
    for name, value in outer:
        THREAD.store(fn, state, name, value)


def _emit_take(module: Module) -> None:
    fn = module.function("make_fiber", PTR, [], attributes=(NO_INLINE, COLD))
    module.declare("mmap", PTR, [PTR, I64, I32, I32, I32, I64])
    module.declare("munmap", I32, [PTR, I64])
    module.declare("mprotect", I32, [PTR, I64, I32])
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _RESERVED
    bytes = fn.i64(_STACK_BYTES)
    stack = fn.call("mmap", PTR, fn.null(), bytes, fn.i32(_WRITABLE), fn.i32(flags), fn.i32(-1), fn.i64(0))
    fn.return_if(stack.cast("ptrtoint", I64).eq(-1), fn.null())
    if _SMALL_PAGES is not None:
        # Most fibers use only a few pages of their stacks.
        module.declare("madvise", I32, [PTR, I64, I32])
        fn.call("madvise", I32, stack, bytes, fn.i32(_SMALL_PAGES))
    is_guarded = fn.call("mprotect", I32, stack, fn.i64(_GUARD_BYTES), fn.i32(_PROTECTED)).eq(0)
    with fn.if_(~is_guarded):
        fn.call("munmap", I32, stack, bytes)
        fn.ret(fn.null())
    fn.ret(fn.at(stack, I64, (_STACK_BYTES - FIBER.size) // 8))

    fn = module.function("take_fiber", PTR, [])
    waiting.lock(fn, _free(fn, "mutex"))
    fiber = fn.load(PTR, _free(fn, "first"))
    with fn.if_(fiber.ne(fn.null())):
        fn.store(FIBER.pointer(fn, fiber, "next"), _free(fn, "first"))
        fn.store(fn.load(I64, _free(fn, "count")) - 1, _free(fn, "count"))
    waiting.unlock(fn, _free(fn, "mutex"))
    fn.return_if(fiber.ne(fn.null()), fiber)
    fn.ret(fn.call("make_fiber", PTR))

    fn, fiber = module.begin("give_fiber", VOID, [PTR])
    waiting.lock(fn, _free(fn, "mutex"))
    stays = fn.load(I64, _free(fn, "count")) < _MOST_FREE
    with fn.if_(stays):
        fn.store(fn.load(PTR, _free(fn, "first")), FIBER.at(fn, fiber, "next"))
        fn.store(fiber, _free(fn, "first"))
        fn.store(fn.load(I64, _free(fn, "count")) + 1, _free(fn, "count"))
    waiting.unlock(fn, _free(fn, "mutex"))
    with fn.if_(~stays):
        stack = fn.at(fiber, I64, -((_STACK_BYTES - FIBER.size) // 8))
        fn.call("munmap", I32, stack, fn.i64(_STACK_BYTES))
