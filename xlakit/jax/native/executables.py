"""Loaded programs: their reference counts, and their release."""

from __future__ import annotations

from xlakit.cpu.llvm import I1, I64, PTR, VOID, Function, Module, Value
from xlakit.jax.api.arguments import slot_function
from xlakit.jax.native.records import EXECUTABLE


def emit_executables(module: Module) -> None:
    """Emit ``release_executable(ptr)``; ``take_dead() -> ptr``, which gives a list of programs without references; and
    the interface's functions.
    """
    module.global_data("dead_executables", 8)
    fn, executable = module.begin("release_executable", VOID, [PTR])
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
        fn, given = slot_function(module, slot)
        fn.call("release_executable", VOID, given.pointer("executable"))

    fn, given = slot_function(module, "LoadedExecutable_GetExecutable")
    executable = given.pointer("executable")
    keep(fn, executable)
    fn.store(executable, given.at("unloaded"))

    fn, given = slot_function(module, "LoadedExecutable_Delete")
    EXECUTABLE.store(fn, given.pointer("executable"), "is_deleted", fn.i64(1))


def keep(fn: Function, executable: Value) -> None:
    """Add a reference to a program."""
    fn.atomic_update("add", EXECUTABLE.at(fn, executable, "references"), fn.i64(1))
