"""The verb ``xlakit reduce`` of the command line: its options, and the call of its tool."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xlakit.formats.files import write_whole
from xlakit.tools.commands.batch import (
    Program,
    add_batch,
    is_folder,
    is_streamed,
    own_name,
    programs_of,
    run_batch,
    write,
)
from xlakit.tools.commands.oracle import add_oracle, limits_of, oracle_of
from xlakit.tools.commands.shared import Commands, add_command, add_filling, load_filled, print_error_line, seconds

if TYPE_CHECKING:
    from xlakit.ir.instruction import HloModule
    from xlakit.tools.reduce.search import Search


def add(commands: Commands) -> None:
    """Add the verb."""
    parser = add_command(commands, "reduce", "find the smallest part of a program that still fails")
    add_batch(parser)
    add_oracle(parser)
    parser.add_argument(
        "-o", "--output", metavar="PATH", help="where the result goes; default: NAME.reduced.hlo beside each FILE"
    )
    parser.add_argument(
        "--work", metavar="DIR", help="keep the best program so far there; the same command goes on from it"
    )
    parser.add_argument(
        "--max-seconds", type=seconds, default=float("inf"), metavar="SECONDS", help="give the best found in that time"
    )
    add_filling(parser)
    parser.set_defaults(command=_run)


def _run(options: argparse.Namespace) -> int:
    programs = programs_of(options.files)
    first = programs[0]
    if is_streamed(options, programs) and options.input is not None:
        options.fail("--output - has no place for the arguments of the result: name a file")
    if options.output not in (None, "-") and not first.is_alone and not is_folder(first.path):
        options.fail("--output is one file, and there are several programs")
    return run_batch(options, lambda program: (0, reduce_file(program, options)))


def reduce_file(program: Program, options: argparse.Namespace) -> dict[str, Any]:
    """Reduce the program in a file, and print a summary; gives the record for --json."""
    from xlakit.tools.oracles.oracle import ExternalTest
    from xlakit.tools.reduce.reducer import reduce_module
    from xlakit.tools.run import check_writable
    from xlakit.tools.shards import with_partitions

    path = program.path
    module = with_partitions(load_filled(path, options))
    oracle = oracle_of(options, module)
    is_stream = options.output == "-"
    output = program.output(options.output, ".hlo") if options.output and not is_stream else _beside(path)
    # Checked first, as the search may take hours.
    if not is_stream:
        check_writable(output)
    progress = Progress()
    try:
        reduction = reduce_module(
            module,
            oracle,
            jobs=options.jobs,
            limits=limits_of(options),
            max_seconds=options.max_seconds,
            work=str(Path(options.work) / output.stem) if options.work else None,
            load=options.load,
            progress=progress,
        )
    except KeyboardInterrupt:
        if progress.best is not None:
            _save(output, progress.best, options)
            print_error_line(f"the best program so far is in {'standard output' if is_stream else output}")
        raise
    finally:
        progress.end()
    _save(output, reduction.module, options)
    arguments = None if isinstance(oracle, ExternalTest) else getattr(oracle, "arguments", None)
    if arguments is not None and arguments.given:
        arguments.save(output.with_suffix(".npz"), reduction.module.entry.program_shape)
    summary = f"{reduction}\nit does {oracle.claim}: {reduction.seen}"
    if is_stream:
        print_error_line(summary)
    elif not options.json:
        write(f"{output}: {summary}\n")
    return {"output": str(output), **reduction.as_dict()}


def _save(output: Path, module: HloModule, options: argparse.Namespace) -> None:
    if options.output == "-":
        write(module.to_text())
    else:
        write_whole(output, module.to_text())


def _beside(path: str) -> Path:
    # A dump's name has other dots, which tell it from those beside it: ..before_optimizations.txt
    name = "stdin" if path == "-" else own_name(path)
    return Path(path).parent / f"{name}.reduced.hlo"


class Progress:
    """A line on a terminal that rewrites itself; it keeps the best module for an interruption."""

    def __init__(self) -> None:
        self.best: HloModule | None = None
        self._is_shown = False

    def __call__(self, search: Search) -> None:
        """Show where a search is."""
        self.best = search.best
        if sys.stderr is None or not sys.stderr.isatty():  # pyright: ignore[reportUnnecessaryComparison]
            return
        self._is_shown = True
        count = search.best.instruction_count()
        line = f"{search.step}: {count} instructions, {search.tries} tries, {search.seconds:.0f} s"
        print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        """Leave the line."""
        if self._is_shown:
            print(file=sys.stderr)
