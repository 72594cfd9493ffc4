"""The verb ``xlakit run`` of the command line: its options, and the call of its tool."""

from __future__ import annotations

import argparse
import io
import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from xlakit.errors import ArgumentError, Location, XlakitError
from xlakit.tools.commands.batch import (
    Program,
    add_batch,
    failed,
    is_streamed,
    programs_of,
    run_batch,
    write,
    write_bytes,
)
from xlakit.tools.commands.shared import (
    BackendName,
    Commands,
    add_command,
    add_filling,
    add_load,
    at_least,
    check_backend,
    load_filled,
    print_error_line,
    run_loaded,
    seconds,
    seed,
    show_progress,
    size,
)
from xlakit.tools.commands.time_limit import time_limit

if TYPE_CHECKING:
    # Loaded only when a program runs.
    from xlakit.cpu.profiling.report import Profile
    from xlakit.ir.instruction import HloModule
    from xlakit.tools.numerics.shadow import ShadowReport
    from xlakit.tools.numerics.trace import Trace

# Seconds after which it is shown where a search is.
_PATIENCE = 3.0


def add(commands: Commands) -> None:
    """Add the verb."""
    parser = add_command(commands, "run", "run a program and print its results")
    add_batch(parser)
    parser.add_argument(
        "--input", metavar="X.npz", help="arguments by parameter name or number; default: made up from --seed"
    )
    parser.add_argument("--seed", type=seed, help="of made up arguments and of rng instructions (default 0)")
    parser.add_argument(
        "-o",
        "--output",
        metavar="Y.npz",
        help="save the results there, of several programs into that folder, instead of printing them",
    )
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
    parser.add_argument(
        "--backend",
        action=BackendName,
        metavar="NAME",
        help="what runs it: cpu (the default, where it can), interpreter, or one that --load registers",
    )
    parser.add_argument(
        "--compare",
        choices=("interpreter", "jaxlib", "snapshot"),
        help="run there too, or take the result in FILE, a snapshot, and print the errors of each output",
    )
    parser.add_argument(
        "--compare-timeout", type=seconds, default=120.0, metavar="SECONDS", help="for jaxlib in all (default 120)"
    )
    parser.add_argument(
        "--compare-memory", type=size, default=4 << 30, metavar="SIZE", help="for jaxlib, such as 500M (default 4G)"
    )
    parser.add_argument(
        "--timeout", type=seconds, metavar="SECONDS", help="for each program, to compile and run (default: none)"
    )
    add_load(parser)
    add_filling(parser)
    _add_reports(parser)
    parser.set_defaults(command=_run, fail=parser.error)


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


class ArgumentSource(NamedTuple):
    """The source of a program's arguments: a file or folder, or a seed."""

    input: str | None
    seed: int


def _run(options: argparse.Namespace) -> int:
    wants_report = _wants_report(options)
    if options.profile_output is not None and not programs_of(options.files)[0].is_alone:
        raise ArgumentError("--profile-output is one file, and there are several programs", hint="run them apart")
    is_streamed(options, programs_of(options.files), is_binary=True)
    run_loaded(options)
    check_backend(options.backend)

    def work(program: Program) -> tuple[int, dict[str, Any]]:
        from xlakit.tools.jaxlib_child import NothingToCompareError

        try:
            with time_limit(options.timeout):
                module = _on_devices(load_filled(program.path, options), options)
                source = argument_source(program.path, options)
                return _report(module, source, options) if wants_report else _executed(module, source, program, options)
        except NothingToCompareError as error:
            if options.traceback:
                raise
            return failed(options, [program.path], error, 3)

    return run_batch(options, work, titled=True)


def _on_devices(module: HloModule, options: argparse.Namespace) -> HloModule:
    """The module for as many devices as the options say."""
    from xlakit.tools.shards import with_partitions

    module = module.replace(replica_count=options.replicas or module.replica_count)
    return with_partitions(module) if options.partitions is None else module.replace(num_partitions=options.partitions)


def argument_source(path: str, options: argparse.Namespace) -> ArgumentSource:
    """The source of the arguments of the program in a file, by ``--input`` and ``--seed``.

    By default a dumped folder's arguments and seed, or a snapshot's arguments, are used.
    """
    from xlakit.tools.dumps import read_dump, snapshot_in

    if path == "-" or not Path(path).is_dir():
        is_made_up = options.input is None and options.seed is None
        snapshot = snapshot_in(path) if is_made_up else None
        has_arguments = snapshot is not None and bool(snapshot.arguments)
        return ArgumentSource(path if has_arguments else options.input, options.seed or 0)
    dumped = read_dump(path)
    seed = dumped.seed if options.seed is None else options.seed
    if options.input is not None or options.seed is not None:
        return ArgumentSource(options.input, seed)
    if not dumped.arguments.is_dir():
        raise ArgumentError(
            f"{path} has no arguments: the program was not called, or XLAKIT_DUMP left them out",
            hint="give --input, or --seed for made up ones",
        )
    return ArgumentSource(str(dumped.arguments), seed)


def _executed(
    module: HloModule, source: ArgumentSource, program: Program, options: argparse.Namespace
) -> tuple[int, dict[str, Any]]:
    """Run a program and write its results, and the outcome of ``--compare``; gives exit status and JSON."""
    from xlakit.child_process import Limits
    from xlakit.data.text_table import duration
    from xlakit.formats.npz import write_npz
    from xlakit.tools.inputs import flatten
    from xlakit.tools.run import ComparedWith, format_run, run

    is_stream = options.output == "-"
    output = None if options.output is None or is_stream else str(program.output(options.output, ".npz"))
    compared_with = None
    if options.compare is not None:
        recorded = _recorded(program.path, module) if options.compare == "snapshot" else None
        limits = Limits(options.compare_timeout, options.compare_memory)
        compared_with = ComparedWith(options.compare, recorded, limits)
    result = run(
        module,
        input_path=source.input,
        seed=source.seed,
        output_path=output,
        iterations=options.iterations or 1,
        backend=options.backend,
        compared_with=compared_with,
    )
    status = 0 if result.agrees else 1
    if options.json:
        return status, result.as_dict() | ({} if output is None else {"output": output})
    text = format_run(result, is_saved=options.output is not None)
    if is_stream:
        file = io.BytesIO()
        write_npz(file, flatten(result.result))
        write_bytes(file.getvalue())
    if text and is_stream:
        print_error_line(text)
    elif text:
        write(text + "\n")
    if len(result.seconds) > 1:
        print_error_line(f"median of {len(result.seconds)} runs: {duration(statistics.median(result.seconds) * 1e9)}")
    return status, {}


def _recorded(path: str, module: HloModule) -> Any:
    """The result in a snapshot of the module. Raises ArgumentError where there is none."""
    from xlakit.tools.dumps import snapshot_in

    snapshot = snapshot_in(path)
    if snapshot is None or snapshot.result is None:
        raise ArgumentError(f"{path} has no result to compare with", hint="--compare snapshot is for an HloSnapshot")
    shape = snapshot.result.shape
    if shape.is_tuple and not shape.tuple_shapes and module.entry.program_shape.result != shape:
        raise ArgumentError(
            f"{path} has no result to compare with: XLA writes an empty tuple for a program with several results",
            hint="--compare jaxlib or interpreter computes what to compare with",
        )
    return snapshot.result.to_numpy()


def _wants_report(options: argparse.Namespace) -> bool:
    """Whether there is a report instead of results. Ends with status 2 where options do not fit each other."""
    numbers = bool(options.trace or options.shadow or options.against is not None)
    wants = numbers or options.profile
    if not wants and options.each_iteration:
        options.fail("--each-iteration is for reports: give --trace with it")
    if options.profile_output is not None and not options.profile:
        options.fail("--profile-output is for --profile: give it with it")
    if options.profile and (options.backend or "cpu") != "cpu":
        options.fail(f"--profile does not go with --backend {options.backend}: it is for machine code")
    repeated = numbers and (options.iterations or 1) > 1
    if wants and (options.output or options.compare or repeated):
        option = "--output" if options.output else "--compare" if options.compare else "--iterations"
        options.fail(f"{option} does not go with a report, which has no results: run it apart")
    return wants


def _report(module: HloModule, source: ArgumentSource, options: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    if options.against is not None:
        return _divergence(module, source, options)
    report = _profile(module, source, options) if options.profile else _numbers(module, source, options)
    if not options.json:
        write(f"{report}\n")
    return 0, report.as_dict()


def _numbers(module: HloModule, source: ArgumentSource, options: argparse.Namespace) -> Trace | ShadowReport:
    from xlakit.tools.numerics import reports

    if options.trace:
        return reports.trace(module, input_path=source.input, seed=source.seed, iterations=options.each_iteration)
    return reports.shadow(module, input_path=source.input, seed=source.seed)


def _divergence(module: HloModule, source: ArgumentSource, options: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    from xlakit.child_process import Limits
    from xlakit.tools.numerics import reports

    other: str | HloModule = options.against
    if options.against not in reports.WAYS:
        if options.against != "-" and not Path(options.against).exists():
            raise ArgumentError(
                f"--against {options.against} is no file", hint=f"name a file, or one of {', '.join(reports.WAYS)}"
            )
        other = load_filled(options.against, options)
        try:
            other.verify()
        except XlakitError as error:
            raise error.at(location=Location(options.against, 1)) from None
    start = time.monotonic()

    def progress(where: str) -> None:
        if time.monotonic() - start > _PATIENCE:
            show_progress(f"{where}, {time.monotonic() - start:.0f} s")

    try:
        divergence = reports.against(
            module,
            other,
            input_path=source.input,
            seed=source.seed,
            backend=options.backend,
            limits=Limits(options.compare_timeout, options.compare_memory),
            progress=progress,
        )
    finally:
        show_progress("")
    if not options.json:
        write("no instruction differs\n" if divergence is None else f"{divergence}\n")
    return int(divergence is not None), {"divergence": None if divergence is None else divergence.as_dict()}


def _profile(module: HloModule, source: ArgumentSource, options: argparse.Namespace) -> Profile:
    from xlakit.tools.profile import profile_file

    return profile_file(
        module,
        input_path=source.input,
        seed=source.seed,
        iterations=options.iterations or 10,
        trace_path=options.profile_output,
    )
