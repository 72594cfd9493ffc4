"""``compile``: makes an executable of a module."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import fields
from inspect import signature
from typing import TYPE_CHECKING, Protocol

from xlakit.arguments import converting
from xlakit.deprecation import warn_renamed
from xlakit.errors import ArgumentError, UnsupportedError, internal_errors
from xlakit.execution.executable import Executable
from xlakit.execution.options import ExecutionOptions
from xlakit.ir.instruction import HloModule
from xlakit.options import compiling

if TYPE_CHECKING:
    from collections.abc import Mapping

    from xlakit.execution.context import ExecutionContext
    from xlakit.interpreter.executable import InterpreterExecutable


class BuildsModule(Protocol):
    """An object with a module (XlaComputation)."""

    def to_module(self, *, replica_count: int = 1, num_partitions: int = 1) -> HloModule:
        """The module."""
        ...


BACKENDS = ("cpu", "interpreter")

# Registered backends: functions from a module and the options of compile to an executable.
_REGISTERED: dict[str, Callable[..., Executable]] = {}


@converting
def register_backend(name: str, compile_module: Callable[..., Executable]) -> None:
    """Register a backend: ``compile(program, backend=name)`` then calls this function.

    compile_module: takes the module, with ``num_replicas``, ``num_partitions``, ``seed``, ``custom_calls`` and
        ``execution_context`` as :func:`compile` was given them, and returns an :class:`Executable`. It raises
        UnsupportedError for what it does not support.

    Raises ArgumentError for the name of a built-in backend.
    """
    if name in BACKENDS:
        raise ArgumentError(f"the backend '{name}' is xlakit's own", hint="give another name")
    _REGISTERED[name] = compile_module


def known_backends() -> tuple[str, ...]:
    """The names of xlakit's own backends, and of those that are registered."""
    return (*BACKENDS, *_REGISTERED)


def compile(
    program: HloModule | BuildsModule,
    *,
    backend: str | None = None,
    num_replicas: int | None = None,
    num_partitions: int | None = None,
    seed: int = 0,
    custom_calls: Mapping[str, object] | None = None,
    execution_context: ExecutionContext | None = None,
    cache: bool = True,
    tune: bool = False,
    world: ExecutionContext | None = None,
) -> Executable:
    """An executable of a module or an XlaComputation.

    program: an HloModule, or what XlaBuilder.build gave.
    backend: ``"cpu"`` makes machine code; ``"interpreter"``, the reference, runs the program with NumPy. By default
        machine code, and the interpreter only for what machine code cannot do with bounded dynamic dimensions; the
        executable's ``fallbacks`` say so. Others are those of :func:`register_backend`.
    num_replicas, num_partitions: how many devices run the program; by default what the module says. A module that
        says how its arrays are split over partitions (``sharding``) becomes the program of one of them, which takes
        and gives parts.
    seed: of the random numbers of rng instructions.
    custom_calls: functions for custom calls, by name: Python's, or C's (ctypes functions, addresses, PyCapsules).
    execution_context: the feeds and channels that several executables share; by default each has its own.
    cache: whether machine code is taken from the compile cache on disk, and kept there; see ``xlakit cache --help``.
    tune: whether alternatives for each kernel are timed on this machine, where that has not been done for the program
        yet, and the best are kept in the compile cache; takes up to half a minute. The executable's ``tuning_report``
        says what was gained. See docs/tuning.md.
    world: the old name of execution_context.

    Call the result with NumPy arrays, one for each parameter; it gives an array, or a nested tuple of arrays.
    Raises VerificationError or ShapeError for a malformed program, UnsupportedError for what the backend lacks, and
    ArgumentError for contradictory arguments.
    """
    if world is not None:
        warn_renamed("the parameter 'world' of compile", "'execution_context'")
        execution_context = world
    module = _of_a_partition(_module_of(program), num_replicas, num_partitions)
    chosen = BACKENDS[0] if backend is None else backend
    if not isinstance(chosen, str) or chosen not in known_backends():  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UnsupportedError(f"there is no backend '{chosen}'", hint="known: " + ", ".join(known_backends()))
    execution = ExecutionOptions(num_replicas, num_partitions, seed, custom_calls, execution_context)
    if tune and chosen != "cpu":
        raise ArgumentError(f"the backend '{chosen}' cannot be tuned", hint="tune=True is for machine code")
    if chosen in _REGISTERED:
        return _call_registered(_REGISTERED[chosen], module, execution)
    if chosen == "cpu":
        with compiling(tune=True) if tune else nullcontext():
            return _machine_code(module, execution, cache=cache, even_dynamic=backend is not None)
    from xlakit.interpreter.executable import compile_module as interpret

    return interpret(module, execution)


def _machine_code(module: HloModule, execution: ExecutionOptions, *, cache: bool, even_dynamic: bool) -> Executable:
    """The program as machine code, or on the interpreter if machine code does not support its dynamic dimensions."""
    from xlakit.cpu.compiler import compile_module

    try:
        return compile_module(module, execution, cache=cache)
    except UnsupportedError as error:
        if even_dynamic or not module.is_dynamic:
            raise
        return _instead_of_machine_code(module, execution, why=error.rule)


def _module_of(program: HloModule | BuildsModule) -> HloModule:
    if isinstance(program, HloModule):
        return program
    make = getattr(program, "to_module", None)
    if make is None:
        hint = "give an HloModule, or the XlaComputation that build() returns"
        if isinstance(program, (str, bytes)):
            text, hint = program[:40], "HloModule.from_text(text) and .from_proto(data) give the module of HLO"
            raise ArgumentError(f"cannot compile {text!r}{'..' if len(program) > 40 else ''}", hint=hint)
        raise ArgumentError(f"cannot compile {program!r}", hint=hint)
    return make()


def _call_registered(
    compile_module: Callable[..., Executable], module: HloModule, execution: ExecutionOptions
) -> Executable:
    arguments = {field.name: getattr(execution, field.name) for field in fields(execution)}
    parameters = signature(compile_module).parameters
    if "world" in parameters and "execution_context" not in parameters:
        warn_renamed("the parameter 'world' of a backend", "'execution_context'", stacklevel=4)
        arguments["world"] = arguments.pop("execution_context")
    return compile_module(module, **arguments)


def _instead_of_machine_code(module: HloModule, execution: ExecutionOptions, *, why: str) -> InterpreterExecutable:
    """An interpreter executable whose ``fallbacks``, like those of its copies, say why there is no machine code."""
    from xlakit.interpreter.executable import compile_module as interpret

    made = interpret(module, execution).instead_of_machine_code(why)
    return made.made_by(_instead_of_machine_code, module, execution, why=why)


def _of_a_partition(module: HloModule, replicas: int | None, partitions: int | None) -> HloModule:
    """The program of one partition, if the module is that of all partitions."""
    from xlakit.passes.spmd import is_to_be_split, split_over

    count = module.num_partitions if partitions is None else partitions
    with internal_errors(f"splitting {module.name} over {count} partitions"):
        return split_over(module, count, replicas) if is_to_be_split(module, count) else module
