"""Limits BLAS and LAPACK to one thread while any program that calls them runs.

Such a program calls ``xlakit_library_enter(ptr get, ptr set)`` at its begin and ``xlakit_library_leave()`` at its end;
``get`` and ``set`` are the library's functions for its number of threads, which is global to the process. Programs may
run concurrently, on devices and on the caller's threads: the first to enter sets the number to one, and the last to
leave restores it. Otherwise the number of threads of a call would depend on the programs that happen to run, and its
sums would be rounded in another order.
"""

from __future__ import annotations

from xlakit.cpu.llvm import I32, PTR, VOID, Module
from xlakit.cpu.runtime import waiting
from xlakit.cpu.runtime.record import Record

# running: the number of programs that have entered. before: the number of threads that the first of them found.
_STATE = Record(running=1, before=1, set=1, _line=5, mutex=8)


def emit_library_threads(module: Module) -> None:
    """Write the two functions, and ``xlakit_library_reset()`` for the child of a fork and for the start."""
    state_name = module.global_data("library_threads", _STATE.size)
    enter, get, set = module.begin("xlakit_library_enter", VOID, [PTR, PTR], external=True)
    state = enter.address(state_name)
    waiting.lock(enter, _STATE.at(enter, state, "mutex"))
    running = _STATE.load(enter, state, "running")
    with enter.if_(running.eq(0)):
        before = enter.call_pointer(get, I32)
        _STATE.store(enter, state, "before", before.cast("zext", running.type))
        enter.store(set, _STATE.at(enter, state, "set"))
        enter.call_pointer(set, VOID, enter.i32(1))
    _STATE.store(enter, state, "running", running + 1)
    waiting.unlock(enter, _STATE.at(enter, state, "mutex"))

    leave = module.function("xlakit_library_leave", VOID, [], external=True)
    state = leave.address(state_name)
    waiting.lock(leave, _STATE.at(leave, state, "mutex"))
    left = _STATE.load(leave, state, "running") - 1
    _STATE.store(leave, state, "running", left)
    with leave.if_(left.eq(0)):
        before = _STATE.load(leave, state, "before").cast("trunc", I32)
        leave.call_pointer(_STATE.pointer(leave, state, "set"), VOID, before)
    waiting.unlock(leave, _STATE.at(leave, state, "mutex"))

    reset = module.function("xlakit_library_reset", VOID, [], external=True)
    state = reset.address(state_name)
    with reset.if_(_STATE.load(reset, state, "running").ne(0)):
        # The parent's programs do not run in the child.
        before = _STATE.load(reset, state, "before").cast("trunc", I32)
        reset.call_pointer(_STATE.pointer(reset, state, "set"), VOID, before)
    _STATE.store(reset, state, "running", reset.i64(0))
    waiting.make_mutex(reset, _STATE.at(reset, state, "mutex"))
