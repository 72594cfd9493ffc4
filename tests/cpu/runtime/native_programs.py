"""Small native programs that the tests of the runtime run."""

import ctypes
from functools import cache

from xlakit.cpu.llvm import I64, PTR, VOID, Function, Module, engine
from xlakit.cpu.llvm.library import Library
from xlakit.cpu.runtime import CONTEXT, runtime_symbols
from xlakit.cpu.runtime.context import Status

WORD = ctypes.c_int64
_IMPORTS = {
    "xlakit_parallel": (VOID, [PTR, PTR, I64, I64]),
    "xlakit_scratch_acquire": (PTR, [I64]),
    "xlakit_scratch_release": (VOID, [PTR]),
    "xlakit_poll": (I64, [PTR]),
    "xlakit_host_call": (I64, [PTR, I64, PTR]),
    "xlakit_random_state": (VOID, [PTR, PTR, I64]),
}


def _counting_task(module: Module) -> Function:
    """Add one to the counter of each task of the range, and one to the number of calls before them."""
    fn = module.function("count", VOID, [PTR, I64, I64])
    table, begin, end = fn.parameters
    counters = fn.load(PTR, table)
    fn.atomic_update("add", counters, fn.i64(1))
    with fn.loop(begin, end) as turn:
        place = fn.at(counters, I64, turn.index + 1)
        fn.store(fn.load(I64, place) + 1, place)
    fn.ret()
    return fn


def _nested_task(module: Module) -> Function:
    """For each task, a job of ten tasks on the task's own row of counters."""
    fn = module.function("nested", VOID, [PTR, I64, I64])
    table, begin, end = fn.parameters
    with fn.loop(begin, end) as turn:
        row = fn.alloca(PTR)
        fn.store(fn.at(fn.load(PTR, table), I64, turn.index * 11), row)
        fn.call("xlakit_parallel", VOID, fn.address("count"), row, fn.i64(10), fn.i64(3))
    fn.ret()
    return fn


def _repeat(module: Module, name: str, task: Function) -> None:
    """``name(table, tasks, grain, times)``: the job, so many times."""
    fn = module.function(name, VOID, [PTR, I64, I64, I64], external=True)
    table, tasks, grain, times = fn.parameters
    with fn.loop(0, times):
        fn.call("xlakit_parallel", VOID, fn.address(task.name), table, tasks, grain)
    fn.ret()


def _add_entry(module: Module) -> None:
    """Twelve words of two arguments: their sum, and their difference."""
    fn = module.function("add", I64, [PTR, PTR, PTR], external=True)
    arguments, results, _ = fn.parameters
    x, y = (fn.load(PTR, fn.at(arguments, PTR, i)) for i in (0, 1))
    total, difference = (fn.load(PTR, fn.at(results, PTR, i)) for i in (0, 1))
    with fn.loop(0, 12) as turn:
        a, b = (fn.load(I64, fn.at(p, I64, turn.index)) for p in (x, y))
        fn.store(a + b, fn.at(total, I64, turn.index))
        fn.store(a - b, fn.at(difference, I64, turn.index))
    fn.ret(fn.i64(Status.DONE))


def _spin_entry(module: Module) -> None:
    """Loop until told to stop."""
    fn = module.function("spin", I64, [PTR, PTR, PTR], external=True)
    context = fn.parameters[2]
    zero = fn.i64(0)
    with fn.while_((zero,), lambda turn: turn.carried[0].eq(0)) as turn:
        turn.next(fn.call("xlakit_poll", I64, context))
    fn.ret(turn.results[0])


def _host_entry(module: Module) -> None:
    """Ask the host, as step 7, with the results' table."""
    fn = module.function("host", I64, [PTR, PTR, PTR], external=True)
    _, results, context = fn.parameters
    fn.ret(fn.call("xlakit_host_call", I64, context, fn.i64(7), results))


def _status_entry(module: Module) -> None:
    """Return the first word of the argument."""
    fn = module.function("status", I64, [PTR, PTR, PTR], external=True)
    fn.ret(fn.load(I64, fn.load(PTR, fn.parameters[0])))


def _context_entry(module: Module) -> None:
    """Write the arena's address, the device's number and the random state (then add 5) to the result."""
    fn = module.function("context", I64, [PTR, PTR, PTR], external=True)
    _, results, context = fn.parameters
    result = fn.load(PTR, results)
    for i, name in enumerate(("arena", "ordinal")):
        fn.store(CONTEXT.load(fn, context, name), fn.at(result, I64, i))
    with fn.if_(CONTEXT.load(fn, context, "arena").ne(0)):
        fn.fill(fn.load(PTR, CONTEXT.at(fn, context, "arena")), 1, CONTEXT.load(fn, context, "spare"))
    fn.call("xlakit_random_state", VOID, context, fn.at(result, I64, 2), fn.i64(5))
    fn.ret(fn.i64(Status.DONE))


def _scratch(module: Module) -> None:
    """``scratch(bytes, times)``: acquire, write, release."""
    fn = module.function("scratch", VOID, [I64, I64], external=True)
    bytes, times = fn.parameters
    with fn.loop(0, times) as turn:
        block = fn.call("xlakit_scratch_acquire", PTR, bytes)
        fn.store(turn.index, block)
        fn.call("xlakit_scratch_release", VOID, block)
    fn.ret()


@cache
def library() -> Library:
    module = Module("runtime_tests")
    for name, (result, parameters) in _IMPORTS.items():
        module.declare(name, result, parameters)
    _repeat(module, "counts", _counting_task(module))
    _repeat(module, "nests", _nested_task(module))
    for write in (_add_entry, _spin_entry, _host_entry, _status_entry, _context_entry, _scratch):
        write(module)
    names = ["counts", "nests", "add", "spin", "host", "status", "context", "scratch"]
    symbols = runtime_symbols()
    data = engine.make_object(module.text(), level=1)
    return Library("runtime_tests", data, names, {name: symbols[name] for name in _IMPORTS})


def address(name: str) -> int:
    return library().address(name)


def run_job(name: str, counters, tasks: int, grain: int, times: int = 1) -> None:
    """Run ``counts`` or ``nests`` over an array of words."""
    table = (ctypes.c_void_p * 1)(counters.ctypes.data)
    job = ctypes.CFUNCTYPE(None, ctypes.c_void_p, WORD, WORD, WORD)(address(name))
    job(ctypes.addressof(table), tasks, grain, times)


def run_scratch(bytes: int, times: int) -> None:
    ctypes.CFUNCTYPE(None, WORD, WORD)(address("scratch"))(bytes, times)
