"""``profile``: measures the time of a program's steps, instructions, lines and threads."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from xlakit.arguments import converting
from xlakit.cpu.compiler import compile_module
from xlakit.cpu.profiling.process import profile_of
from xlakit.cpu.profiling.recorder import now
from xlakit.cpu.profiling.report import Profile
from xlakit.cpu.profiling.times import Overhead
from xlakit.errors import ArgumentError, InternalError
from xlakit.formats.files import write_whole
from xlakit.ir.instruction import HloModule
from xlakit.options import compiling
from xlakit.tools.dumps import given_values
from xlakit.tools.inputs import options_of
from xlakit.tools.shards import on_devices, run_each


@converting
def profile(
    module: HloModule,
    *arguments: object,
    iterations: int = 10,
    seed: int = 0,
    custom_calls: dict[str, object] | None = None,
) -> Profile:
    """Run a program in machine code and report the time of each step, instruction, line and thread.

    arguments: one for each parameter, as :class:`xlakit.Executable` takes them; where several devices run the program
    all get these, see :func:`profile_replicated`.
    iterations: how many runs are timed, at least one. A run before these is not.
    seed, custom_calls: as :func:`xlakit.compile` has them.

    The program is compiled for the purpose, with code that reads the clock between its steps, and once as usual: the
    report's ``overhead`` compares the two. A program with side effects runs as often as it is timed, and no more; its
    overhead is not known.

    Raises ArgumentError for ``iterations`` below one, UnsupportedError where there is no machine code, and what running
    the program raises.
    """
    count = module.replica_count * module.num_partitions
    return profile_replicated(module, [arguments] * count, iterations=iterations, seed=seed, custom_calls=custom_calls)


def profile_replicated(
    module: HloModule,
    arguments: Sequence[Sequence[object]],
    *,
    iterations: int = 10,
    seed: int = 0,
    custom_calls: dict[str, object] | None = None,
) -> Profile:
    """As :func:`profile`, with arguments for each device."""
    if iterations < 1:
        raise ArgumentError(f"iterations is {iterations}", hint="time at least one run")
    compiled = partial(compile_module, module, options_of(module, seed, custom_calls))
    is_repeatable = not module.entry.has_side_effect
    with compiling(profile=False, sanitize=False, verify=()):
        # Compiled first: measurements of the machine that its compilation makes are reused for the profiled program.
        usual = compiled() if is_repeatable else None
    with compiling(profile=True, sanitize=False, verify=()):
        profiled = compiled()
    recorder = profiled.recorder
    if recorder is None:
        raise InternalError(f"{module.name} was compiled without the code that takes times")
    runs = [partial(run_each, e, arguments) for e in (profiled, usual) if e is not None]
    if usual is not None:
        for run in runs:
            run()
    recorder.clear()
    times = [_measure(runs) for _ in range(iterations)]
    overhead = None if usual is None else Overhead(*(statistics.median(column) for column in zip(*times, strict=True)))
    return profile_of(profiled, recorder, overhead)


def _measure(runs: Sequence[Callable[[], Any]]) -> list[float]:
    """The times of one run of each, in nanoseconds."""
    times: list[float] = []
    for run in runs:
        begin = now()
        run()
        times.append(float(now() - begin))
    return times


def profile_file(
    module: HloModule, *, input_path: str | None, seed: int, iterations: int, trace_path: str | None
) -> Profile:
    """``xlakit run --profile``: the profile; arguments are whole arrays. The timeline is written to a file."""
    devices, values = given_values(on_devices(module), input_path, seed)
    profile = profile_replicated(devices.module, devices.arguments(values), iterations=iterations, seed=seed)
    if trace_path is not None:
        write_whole(trace_path, profile.as_trace() + "\n")
    return profile
