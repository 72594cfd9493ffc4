"""``xlakit run``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from xlakit.errors import ArgumentError
from xlakit.tools.commands.shared import (
    Commands,
    add_command,
    add_file,
    add_filling,
    add_load,
    at_least,
    load_filled,
    run_loaded,
    seconds,
    size,
    tell,
)

if TYPE_CHECKING:
    # Loaded only when a program runs.
    from xlakit.ir.instruction import HloModule

# The names of api.BACKENDS, which is not loaded to print help.
BACKENDS = ("cpu", "interpreter")


def add(commands: Commands) -> None:
    """Add the verb."""
    parser = add_command(commands, "run", "run a program and print its results")
    add_file(parser)
    parser.add_argument(
        "--input", metavar="X.npz", help="arguments by parameter name or number; default: made up from --seed"
    )
    parser.add_argument("--seed", type=at_least(0), help="of made up arguments and of rng instructions (default 0)")
    parser.add_argument("--output", metavar="Y.npz", help="save the results there instead of printing them")
    parser.add_argument(
        "--iterations",
        type=at_least(1),
        metavar="N",
        help="run N times and print the median time (default 1; with --profile 10)",
    )
    parser.add_argument(
        "--replicas", type=at_least(1), metavar="N", help="how many replicas run; default: what the program says"
    )
    parser.add_argument(
        "--partitions",
        type=at_least(1),
        metavar="N",
        help="how many partitions run; default: what the program says, or its shardings have",
    )
    parser.add_argument("--backend", choices=BACKENDS, help="what runs it (default: cpu, where it can)")
    parser.add_argument(
        "--compare", choices=("interpreter", "jaxlib"), help="run there too and print the errors of each output"
    )
    parser.add_argument(
        "--compare-timeout", type=seconds, default=120.0, metavar="SECONDS", help="for jaxlib (default 120)"
    )
    parser.add_argument(
        "--compare-memory", type=size, default=4 << 30, metavar="SIZE", help="for jaxlib, such as 500M (default 4G)"
    )
    add_load(parser)
    add_filling(parser)
    _add_reports(parser)
    parser.set_defaults(command=_run)


def _add_reports(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("reports on the numbers or the time, instead of the results")
    either = group.add_mutually_exclusive_group()
    either.add_argument(
        "--trace",
        action="store_true",
        help="the range, mean, NaNs and infinities of every instruction, and where the first NaN comes from",
    )
    either.add_argument(
        "--shadow", choices=("f64",), help="the rounding error of every instruction, against the program in f64"
    )
    either.add_argument(
        "--against",
        metavar="B",
        help="the first instruction that differs from another way to run the program (interpreter, plain, jaxlib, "
        "cpu), or from another program in a FILE",
    )
    either.add_argument(
        "--profile",
        action="store_true",
        help="the time of every step, instruction, line and thread, with bytes, operations and roofline",
    )
    group.add_argument(
        "--profile-output", metavar="FILE.json", help="with --profile: a timeline for Perfetto or Chrome (Trace Event)"
    )
    group.add_argument("--each-iteration", action="store_true", help="with --trace: every iteration of loops, too")
    group.add_argument("--json", action="store_true", help="print the report as JSON")


def _run(options: argparse.Namespace) -> int:
    from xlakit.tools.jaxlib_child import NothingToCompareError
    from xlakit.tools.shards import with_partitions

    run_loaded(options)
    module = load_filled(options.file, options)
    take_captured(options)
    module = module.replace(replica_count=options.replicas or module.replica_count)
    module = (
        with_partitions(module) if options.partitions is None else module.replace(num_partitions=options.partitions)
    )
    try:
        return _report(module, options) if _wants_report(options) else _results(module, options)
    except NothingToCompareError as error:
        if options.traceback:
            raise
        tell(f"xlakit: {error}")
        return 3


def take_captured(options: argparse.Namespace) -> None:
    """Where the program is in a folder that was dumped, take its arguments, and its seed, where no others are given."""
    if options.file == "-" or not Path(options.file).is_dir():
        options.seed = options.seed or 0
        return
    from xlakit.tools.dumps import read_dump

    dumped = read_dump(options.file)
    if options.input is None and options.seed is None:
        if not dumped.arguments.is_dir():
            raise ArgumentError(
                f"{options.file} has no arguments: the program was not called, or XLAKIT_DUMP left them out",
                hint="give --input, or --seed for made up ones",
            )
        options.input = str(dumped.arguments)
    options.seed = dumped.seed if options.seed is None else options.seed


def _results(module: HloModule, options: argparse.Namespace) -> int:
    from xlakit.tools.jaxlib_child import Limits
    from xlakit.tools.run import run

    return run(
        module,
        input_path=options.input,
        seed=options.seed,
        output_path=options.output,
        iterations=options.iterations or 1,
        backend=options.backend,
        compare_with=options.compare,
        limits=Limits(options.compare_timeout, options.compare_memory),
    )


def _wants_report(options: argparse.Namespace) -> bool:
    numbers = bool(options.trace or options.shadow or options.against is not None)
    wants = numbers or options.profile
    if not wants and (options.json or options.each_iteration):
        option = "--json" if options.json else "--each-iteration"
        hint = "give --trace, --shadow f64, --against B or --profile with it"
        raise ArgumentError(f"{option} is for reports", hint=hint)
    if options.profile_output is not None and not options.profile:
        raise ArgumentError("--profile-output is for --profile", hint="give --profile with it")
    if options.profile and (options.backend or "cpu") != "cpu":
        raise ArgumentError(f"--profile does not go with --backend {options.backend}", hint="it is for machine code")
    repeated = numbers and (options.iterations or 1) > 1
    if wants and (options.output or options.compare or repeated):
        option = "--output" if options.output else "--compare" if options.compare else "--iterations"
        raise ArgumentError(f"{option} does not go with a report, which has no results", hint="run it apart")
    return wants


def _report(module: HloModule, options: argparse.Namespace) -> int:
    from xlakit.tools.jaxlib_child import Limits
    from xlakit.tools.numerics import reports

    if options.profile:
        return _profile(module, options)
    if options.trace:
        print(
            reports.trace(
                module,
                input_path=options.input,
                seed=options.seed,
                iterations=options.each_iteration,
                as_json=options.json,
            )
        )
        return 0
    if options.shadow:
        print(reports.shadow(module, input_path=options.input, seed=options.seed, as_json=options.json))
        return 0
    text, differs = reports.against(
        module,
        options.against,
        input_path=options.input,
        seed=options.seed,
        backend=options.backend,
        as_json=options.json,
        limits=Limits(options.compare_timeout, options.compare_memory),
    )
    print(text)
    return int(differs)


def _profile(module: HloModule, options: argparse.Namespace) -> int:
    from xlakit.tools.profile import profile_file

    print(
        profile_file(
            module,
            input_path=options.input,
            seed=options.seed,
            iterations=options.iterations or 10,
            trace_path=options.profile_output,
            as_json=options.json,
        )
    )
    return 0
