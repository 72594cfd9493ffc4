"""Loaded programs: their reference counts, and their release."""

from __future__ import annotations

from xlakit.cpu.llvm import I1, I64, PTR, VOID, Function, Module, Value
from xlakit.jax.api.arguments import arguments_of
from xlakit.jax.native.records import EXECUTABLE


def emit_executables(module: Module) -> None:
    """Emit ``release_executable(ptr)``; ``take_dead() -> ptr``, which gives a list of programs without references; and
    the interface's functions.
    """
    module.global_data("dead_executables", 8)
    fn = module.function("release_executable", VOID, [PTR])
    (executable,) = fn.parameters
    before = fn.atomic_update("sub", EXECUTABLE.at(fn, executable, "references"), fn.i64(1))
    fn.return_if(before.ne(1))
    # Put on the list of dead programs: Python, which cannot run here, frees its own objects for them later.
    dead, address = fn.address("dead_executables"), executable.cast("ptrtoint", I64)
    with fn.while_((fn.constant(I1, 0),), lambda iteration: ~iteration.carried[0]) as iteration:
        first = fn.atomic_load(I64, dead)
        EXECUTABLE.store(fn, executable, "next", first)
        iteration.next(fn.compare_exchange(dead, first, address)[1])

    fn = module.function("take_dead", I64, [], external=True)
    fn.ret(fn.atomic_update("xchg", fn.address("dead_executables"), fn.i64(0)))

    for slot in ("Executable_Destroy", "LoadedExecutable_Destroy"):
        fn = module.function(slot, PTR, [PTR], external=True)
        fn.call("release_executable", VOID, arguments_of(slot).pointer(fn, fn.parameters[0], "executable"))
        fn.ret(fn.null())

    args = arguments_of("LoadedExecutable_GetExecutable")
    fn = module.function("LoadedExecutable_GetExecutable", PTR, [PTR], external=True)
    executable = args.pointer(fn, fn.parameters[0], "executable")
    keep(fn, executable)
    fn.store(executable, args.at(fn, fn.parameters[0], "unloaded"))
    fn.ret(fn.null())

    args = arguments_of("LoadedExecutable_Delete")
    fn = module.function("LoadedExecutable_Delete", PTR, [PTR], external=True)
    EXECUTABLE.store(fn, args.pointer(fn, fn.parameters[0], "executable"), "is_deleted", fn.i64(1))
    fn.ret(fn.null())


def keep(fn: Function, executable: Value) -> None:
    """Add a reference to a program."""
    fn.atomic_update("add", EXECUTABLE.at(fn, executable, "references"), fn.i64(1))
