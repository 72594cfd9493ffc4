"""The functions on contexts: executing a program, and updating the random state of its device."""

from __future__ import annotations

from xlakit.cpu.llvm import I64, PTR, VOID, Module
from xlakit.cpu.runtime import waiting
from xlakit.cpu.runtime.context import CONTEXT, RANDOM, Status
from xlakit.cpu.runtime.float_mode import float_mode
from xlakit.cpu.runtime.thread_state import THREAD, thread_state


def emit_context(module: Module) -> None:
    """Write the functions into a module that has the functions of emit_memory."""
    _emit_execute(module)
    _emit_random_state(module)
    _emit_random_draw(module)


def _emit_execute(module: Module) -> None:
    """``xlakit_execute``, described at the top of context.py; it returns the entry's status.

    ``execute_in(ptr origin, ptr arguments, ptr results, ptr run)`` does the same for one device of a run.
    """
    fn = module.function("xlakit_execute", I64, [PTR, PTR, PTR], external=True)
    fn.ret(fn.call("execute_in", I64, *fn.parameters, fn.null()))

    fn, origin, arguments, results, run = module.begin("execute_in", I64, [PTR, PTR, PTR, PTR])
    interrupt = CONTEXT.at(fn, origin, "interrupt")
    fn.return_if(fn.atomic_load(I64, interrupt, "monotonic").ne(0), fn.i64(Status.INTERRUPTED))
    context = fn.alloca(I64, CONTEXT.size // 8, align=64)
    fn.copy(context, origin, CONTEXT.offset("entry"))
    bytes = CONTEXT.load(fn, origin, "arena_bytes")
    no_arena = (fn.null(),)
    (arena,) = fn.if_else(bytes > 0, lambda: (fn.call("xlakit_allocate", PTR, bytes),), lambda: no_arena)
    fn.return_if((bytes > 0) & arena.eq(fn.null()), fn.i64(Status.OUT_OF_MEMORY))
    fn.store(arena, CONTEXT.at(fn, context, "arena"))
    fn.store(run, CONTEXT.at(fn, context, "run"))
    entry = CONTEXT.pointer(fn, origin, "entry")
    # A custom call may run a program inside of another one, whose context is restored below.
    running = THREAD.at(fn, thread_state(fn), "running")
    outer = fn.load(PTR, running)
    fn.store(context, running)
    with float_mode(fn, CONTEXT.load(fn, context, "flushes")):
        status = fn.call_pointer(entry, I64, arguments, results, context)
    fn.store(outer, running)
    fn.call("xlakit_release", VOID, arena)
    fn.ret(fn.select(status.eq(0), CONTEXT.load(fn, context, "stopped"), status))


def _emit_random_state(module: Module) -> None:
    """``xlakit_random_state(ptr context, ptr state, i64 delta)``: copy the 128-bit state out, then add ``delta``."""
    fn, context, target, delta = module.begin("xlakit_random_state", VOID, [PTR, PTR, I64], external=True)
    random = CONTEXT.pointer(fn, context, "random")
    with waiting.spin_locked(fn, RANDOM.at(fn, random, "held")):
        low, high = (RANDOM.load(fn, random, name) for name in ("low", "high"))
        total = low + delta
        RANDOM.store(fn, random, "low", total)
        # The sign extension of delta to 128 bits.
        high_sum = high + delta.integer("ashr", 63)
        RANDOM.store(fn, random, "high", high_sum + total.compare("ult", low).cast("zext", I64))
    fn.store(low, target)
    fn.store(high, fn.at(target, I64, 1))


def _emit_random_draw(module: Module) -> None:
    """``xlakit_random_draw(ptr context, ptr state)``: write the next draw's key, and the halves of its counter."""
    fn, context, target = module.begin("xlakit_random_draw", VOID, [PTR, PTR], external=True)
    random = CONTEXT.pointer(fn, context, "random")
    number = fn.atomic_update("add", RANDOM.at(fn, random, "draws"), fn.i64(1))
    for index, word in enumerate((RANDOM.load(fn, random, "key"), fn.i64(0), number)):
        fn.store(word, fn.at(target, I64, index))
