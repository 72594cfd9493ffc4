"""The state that native code keeps for each thread: a block allocated on first use and freed when the thread ends.

LLVM's thread-local variables need a loader that the JIT does not have, so the block is the value of a pthread key.
"""

from __future__ import annotations

from xlakit.cpu.llvm import I32, I64, PTR, VOID, Function, Module, Value
from xlakit.cpu.llvm.promises import ALWAYS_INLINE, COLD, NO_INLINE
from xlakit.cpu.runtime.record import Record

# The number of small size classes, whose free blocks are cached by the thread that released them.
SMALL_CLASSES = 60

# limit: the number of threads that the jobs of this thread may use, 0 for the default. busy: not 0 inside of a job.
# running: the context of the program that it runs, 0 for none. cached: the bytes in ``free``. fiber: the FIBER that it
# is on (fibers.py), 0 for none. detached: not 0 if it never calls Python, not even for an error.
THREAD = Record(limit=1, busy=1, running=1, cached=1, fiber=1, detached=1, free=SMALL_CLASSES)


def emit_thread_state(module: Module) -> None:
    """Write ``thread_key`` (a global) and ``thread_state() -> ptr``, which aborts if it cannot allocate the block."""
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
    """The block of the current thread."""
    return fn.call("thread_state", PTR)


def emit_thread_limit(module: Module) -> None:
    """Write ``xlakit_limit_threads(i64 limit) -> i64``, which sets the limit of this thread and gives the old one.

    And ``xlakit_detach_thread()``: from then on, neither this thread nor a program on it calls Python.
    """
    fn = module.function("xlakit_detach_thread", VOID, [], external=True)
    THREAD.store(fn, thread_state(fn), "detached", fn.i64(1))

    fn = module.function("xlakit_limit_threads", I64, [I64], external=True)
    state = thread_state(fn)
    before = THREAD.load(fn, state, "limit")
    THREAD.store(fn, state, "limit", fn.parameters[0])
    fn.ret(before)
