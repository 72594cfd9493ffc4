"""Compiles a module to an executable: looks into the compile cache, applies or runs tuning, and runs the compiler."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from xlakit import compile_cache, link, options
from xlakit.arguments import converting
from xlakit.collector import collecting_less
from xlakit.cpu.cache.cache_key import compiler_has_changed, program_key
from xlakit.cpu.execution.executable import CpuExecutable
from xlakit.cpu.execution.generated import GeneratedProgram
from xlakit.cpu.program import Program, Target
from xlakit.errors import ArgumentError, FormatError, ResourceError, UnsupportedError, internal_errors
from xlakit.execution.calls.custom_calls import c_functions_of, lapack_calls_of
from xlakit.execution.groups import Grid
from xlakit.execution.options import DEFAULT, ExecutionOptions
from xlakit.interpreter.executable import compile_module as interpret
from xlakit.ir.instruction import HloModule
from xlakit.options import is_plain
from xlakit.settings import debugged, dump_request, profile_folder
from xlakit.target import processor

if TYPE_CHECKING:
    from xlakit.cpu.codegen import Code
    from xlakit.cpu.tuning.record import Tuning


@converting
@collecting_less()
@options.compiling()
def compile_module(module: HloModule, execution: ExecutionOptions = DEFAULT, *, cache: bool = True) -> CpuExecutable:
    """An executable that runs a module as machine code.

    cache: whether machine code is loaded from the compile cache and saved there.

    Raises what :func:`xlakit.compile` does.
    """
    compiled = partial(_executable, module, execution, cache=cache)
    current_options = options.current()
    if current_options.profile and (current_options.sanitize or current_options.verify):
        other = "XLAKIT_SANITIZE" if current_options.sanitize else "XLAKIT_VERIFY"
        raise ArgumentError(
            f"XLAKIT_PROFILE does not go with {other}, under which programs run otherwise", hint=f"unset {other}"
        )
    if current_options.sanitize:
        from xlakit.cpu.debugging.sanitizer import SanitizedExecutable, sanitizing

        with options.compiling(sanitizing()):
            executable: CpuExecutable = SanitizedExecutable(compiled())
    else:
        executable = compiled()
    verify = current_options.verify
    if verify and not current_options.sanitize:
        from xlakit.cpu.debugging.verified import VerifiedExecutable, can_be_repeated

        if can_be_repeated(module):
            with options.compiling(plain=verify):
                executable = VerifiedExecutable(executable, compiled())
    folder = profile_folder() if current_options.profile else None
    if folder is not None:
        from xlakit.cpu.profiling.process import profiled_programs

        profiled_programs(folder).add(executable)
    request = dump_request()
    if request is not None and request.wants(module.name):
        from xlakit.cpu.debugging.dumping import dump

        dump(executable, request, execution.seed)
    return executable.made_by(compile_module, module, execution, cache=cache)


@converting
@collecting_less()
@options.compiling()
def generate_module(module: HloModule, execution: ExecutionOptions = DEFAULT) -> GeneratedProgram:
    """A module compiled like :func:`compile_module` does, but only to LLVM IR, for inspection; no machine code is made.

    Earlier choices of tuning for it are applied; nothing is tuned, because tuning runs programs.

    Raises what :func:`xlakit.compile` does. What cannot be compiled raises its error when the LLVM IR is first needed;
    so do elided constants.
    """
    from xlakit.cpu.codegen import generate

    processor()
    target = _target(module, execution)
    interpret(module, execution, with_elided=True, with_large=True)
    chosen = _tuning_of(_tuning_key(module, target))
    with options.compiling(_effective_options()), _as_tuned(chosen):
        optimized = _optimized(module, target)

        def lowered() -> Code:
            interpret(module, execution, verified=True, with_large=True)
            with internal_errors(f"compiling {module.name}", verified=True):
                return generate(optimized, target)

        program = GeneratedProgram(target, lowered, optimized=optimized)
    request = dump_request()
    if request is not None and request.wants(module.name):
        from xlakit.cpu.debugging.dumping import dump_generated

        dump_generated(program, module, target.grid, request, execution.seed)
    return program


def _effective_options() -> options.Options:
    """The options in force, or the sanitizer's where programs are compiled for it."""
    current_options = options.current()
    if not current_options.sanitize:
        return current_options
    from xlakit.cpu.debugging.sanitizer import sanitizing

    return sanitizing()


def _target(module: HloModule, execution: ExecutionOptions) -> Target:
    context = execution.execution_context
    return Target(
        execution.grid(module),
        c_functions_of(module, execution.custom_calls),
        native_collectives=context is None or not context.spans_processes,
        link=None if context is None or context.network is None else context.network.link,
        lapack_calls=lapack_calls_of(module, execution.custom_calls),
    )


def _executable(module: HloModule, execution: ExecutionOptions, *, cache: bool) -> CpuExecutable:
    # This raises an error, before anything is compiled, on a processor that cannot run the code.
    processor()
    target = _target(module, execution)
    key = _key(module, target) if cache else None
    tuning_key = _tuning_key(module, target) if cache and options.current().profile else key
    tuning_request = options.current().tune
    loaded = (
        None
        if key is None or (tuning_request and tuning_request.again)
        else _load(key, module, tuned=tuning_request is not None)
    )
    program, is_tuned = loaded or (None, False)
    # A program in the cache was verified when it was compiled.
    try:
        reference = interpret(module, execution, verified=program is not None)
    except ResourceError:
        # What is too large for the memory may be part of a kernel, and never stored: the memory plan tells.
        program, reference = None, interpret(module, execution, with_large=True)
    if program is not None:
        generate = partial(_generated, module, target)
        with _as_tuned(_tuning_of(tuning_key) if is_tuned else None) as tuning:
            return CpuExecutable(reference, program, target, generate, key=key, tuning=tuning)
    with _as_tuned(_chosen(module, target, tuning_key)) as tuning:
        code, program = _compiled(module, target)
        is_saved = key is not None and not compiler_has_changed() and _save(key, program, module, tuning)
        return CpuExecutable(reference, program, target, lambda: code, key=key if is_saved else None, tuning=tuning)


def _chosen(module: HloModule, target: Target, key: str | None) -> Tuning | None:
    """The choices of tuning for a program: stored ones, or new ones if the options ask for tuning; else None."""
    tuning_request = options.current().tune
    stored = None if tuning_request and tuning_request.again else _tuning_of(key)
    if stored is not None or tuning_request is None or is_plain("llvm"):
        return stored
    with options.compiling(profile=False):
        return _tuned(module, target, key, tuning_request)


def _tuned(module: HloModule, target: Target, key: str | None, tuning_request: options.Tune) -> Tuning:
    """Tunes a program; gives the choices, which are saved under the key, if there is one."""
    from xlakit.cpu.tuning.progress import progress_bar
    from xlakit.cpu.tuning.tune import tune

    with progress_bar(module.name) as progress:
        tuning = tune(
            module,
            _Compiler(target),
            runs_alone=target.grid.num_devices == 1,
            seconds=tuning_request.seconds,
            progress=progress,
        )
    if key is not None and not compiler_has_changed():
        from xlakit.cpu.tuning import record

        record.save(key, tuning)
    return tuning


def _tuning_of(key: str | None) -> Tuning | None:
    from xlakit.cpu.tuning import record

    return None if key is None else record.load(key)


def _tuning_key(module: HloModule, target: Target) -> str | None:
    """The key under which tuning stores its choices: that of the program without profiling."""
    with options.compiling(profile=False):
        return _key(module, target)


@contextmanager
def _as_tuned(tuning: Tuning | None) -> Generator[Tuning | None]:
    """Within the block, the options are those that tuning chose; nothing changes if ``tuning`` is None."""
    if tuning is None:
        yield None
    else:
        with options.compiling(tuning.options(options.current())):
            yield tuning


class _Compiler:
    """Compiles the alternatives of a program that tuning compares."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._alone = Target(Grid(1, 1), target.c_functions, lapack_calls=target.lapack_calls)

    def generate(self, module: HloModule, *, optimize: bool) -> Code:
        """The code of a module; with ``optimize`` the passes run first, else the module is optimized already."""
        from xlakit.cpu.codegen import generate

        return _generated(module, self._target) if optimize else generate(module, self._alone)

    def finish(self, module: HloModule, code: Code) -> CpuExecutable:
        """An executable of the code of a module."""
        from xlakit.cpu.codegen import make_objects

        make_objects(code)
        return CpuExecutable(interpret(module, verified=True), code.program(), self._alone, lambda: code)


def _key(module: HloModule, target: Target) -> str | None:
    # Debug output is written while passes run, so nothing may come from the cache.
    if not compile_cache.is_enabled() or debugged():
        return None
    replicas, partitions = target.grid.num_replicas, target.grid.num_partitions
    functions, lapack_calls = target.c_functions, target.lapack_calls
    return program_key(
        module,
        replicas,
        partitions,
        functions,
        lapack_calls,
        native_collectives=target.native_collectives,
        link=target.link,
    )


def _load(key: str, module: HloModule, *, tuned: bool) -> tuple[Program, bool] | None:
    """The stored program, and whether it was compiled as tuning chose; with ``tuned`` only a program that was."""
    entry = compile_cache.load(key)
    if entry is None or (tuned and not entry.fields.get("tuned")):
        return None
    try:
        return Program.from_entry(entry, lambda: module), bool(entry.fields.get("tuned"))
    except FormatError as error:
        compile_cache.discard(key, error.rule)
        return None


def _save(key: str, program: Program, module: HloModule, tuning: Tuning | None) -> bool:
    try:
        entry = program.to_entry(module)
        if program.host_module is not None:
            # An entry that cannot be read back would look damaged to the next process.
            tuple(Program.from_entry(entry, lambda: module).collectives)
        if tuning is not None:
            entry = compile_cache.Entry({**entry.fields, "tuned": True}, entry.sections)
    except (FormatError, UnsupportedError):
        return False  # The host calls of this program have no proto form, so it is compiled each time.
    compile_cache.save(key, entry)
    return True


def _compiled(module: HloModule, target: Target) -> tuple[Code, Program]:
    from xlakit.cpu.codegen import check_sizes, make_objects

    code = _generated(module, target)
    check_sizes(code.plan)
    with internal_errors(f"making machine code of {module.name}"):
        make_objects(code)
        return code, code.program()


def _generated(module: HloModule, target: Target) -> Code:
    # Imported here: a cached program does not need most of the compiler.
    from xlakit.cpu.codegen import generate

    optimized = _optimized(module, target)
    with internal_errors(f"compiling {module.name}", verified=True):
        return generate(optimized, target)


def _optimized(module: HloModule, target: Target) -> HloModule:
    from xlakit.passes.pipeline import passes_of_options, run_pipeline

    module = _prepared(module, target)
    replicas, partitions = target.grid.num_replicas, target.grid.num_partitions
    if (module.replica_count, module.num_partitions) != (replicas, partitions):
        # Passes ask the module for the devices that run it.
        module = module.replace(replica_count=replicas, num_partitions=partitions)
    for parameter in module.entry.parameters:
        # Passes before the one that pads dynamic dimensions count elements.
        if parameter.shape.is_dynamic:
            from xlakit.passes.dynamic.padded_values import static_shape

            static_shape(parameter.shape)
    with internal_errors(f"compiling {module.name}", verified=True):
        passes = passes_of_options(between_processes=not target.native_collectives)
        with link.compiling_for(target.link):
            return run_pipeline(module, passes)


def prepared(module: HloModule, execution: ExecutionOptions = DEFAULT) -> HloModule:
    """The input of the passes: the module with transposes around the calls of C functions and of LAPACK that need them.

    Raises what :func:`xlakit.compile` does for the options.
    """
    return _prepared(module, _target(module, execution))


def _prepared(module: HloModule, target: Target) -> HloModule:
    if target.c_functions:
        from xlakit.cpu.c_layouts import CCallLayouts
        from xlakit.passes.core.framework import PassContext

        module = CCallLayouts(target.c_functions).run(module, PassContext())
    if target.lapack_calls:
        from xlakit.cpu.c_layouts import TransposedMatrices
        from xlakit.passes.core.framework import PassContext

        module = TransposedMatrices(target.lapack_calls).run(module, PassContext())
    return module
