"""What native code keeps for each thread: a block that is made at first use and given back when the thread ends.

Thread-local variables of LLVM need a loader that the JIT does not have, so the block is the value of a pthread key.
"""

from __future__ import annotations

from xlakit.cpu.llvm import I32, I64, PTR, VOID, Function, Module, Value
from xlakit.cpu.llvm.promises import ALWAYS_INLINE, COLD, NO_INLINE
from xlakit.cpu.runtime.record import Record

# Free blocks of each small size class wait in the thread that released them.
SMALL_CLASSES = 60

# limit: how many threads the jobs of this thread may use, 0 for the default. busy: not 0 inside a job.
# running: the context of the program that it runs, 0 for none. cached: the bytes in ``free``. fiber: the FIBER that it
# is on (fibers.py), 0 for none. detached: not 0 where it never calls Python, be it for an error.
THREAD = Record(limit=1, busy=1, running=1, cached=1, fiber=1, detached=1, free=SMALL_CLASSES)


def emit_thread_state(module: Module) -> None:
    """Write ``thread_key`` (a global) and ``thread_state() -> ptr``. Where not even this has memory, it aborts."""
    key = module.global_data("thread_key", 8)
    fn = module.function("make_thread_state", PTR, [], attributes=(NO_INLINE, COLD))
    module.declare("calloc", PTR, [I64, I64])
    module.declare("pthread_setspecific", I32, [I64, PTR])
    module.declare("abort", VOID, [])
    state = fn.call("calloc", PTR, fn.i64(1), fn.i64(THREAD.size))
    with fn.if_(state.eq(fn.null())):
        fn.call("abort", VOID)
    fn.call("pthread_setspecific", I32, fn.load(I64, fn.address(key)), state)
    fn.ret(state)

    fn = module.function("thread_state", PTR, [], attributes=(ALWAYS_INLINE,))
    module.declare("pthread_getspecific", PTR, [I64])
    state = fn.call("pthread_getspecific", PTR, fn.load(I64, fn.address(key)))
    fn.return_if(state.ne(fn.null()), state)
    fn.ret(fn.call("make_thread_state", PTR))


def emit_thread_key(fn: Function, at_exit: Function) -> None:
    """Make the key; ``at_exit`` is called with a thread's block when the thread ends."""
    fn.module.declare("pthread_key_create", I32, [PTR, PTR])
    fn.call("pthread_key_create", I32, fn.address("thread_key"), fn.address(at_exit.name))


def thread_state(fn: Function) -> Value:
    """The block of the thread that runs."""
    return fn.call("thread_state", PTR)


def emit_thread_limit(module: Module) -> None:
    """Write ``xlakit_limit_threads(i64 limit) -> i64``: set the limit of this thread, give the one before;

    ``xlakit_detach_thread()``: this thread never calls Python from here on, and programs on it do not either.
    """
    fn = module.function("xlakit_detach_thread", VOID, [], external=True)
    THREAD.store(fn, thread_state(fn), "detached", fn.i64(1))
    fn.ret()

    fn = module.function("xlakit_limit_threads", I64, [I64], external=True)
    state = thread_state(fn)
    before = THREAD.load(fn, state, "limit")
    THREAD.store(fn, state, "limit", fn.parameters[0])
    fn.ret(before)
