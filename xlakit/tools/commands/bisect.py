"""The verb ``xlakit bisect`` of the command line: its options, and the call of its tool."""

from __future__ import annotations

import argparse
import shlex
from typing import Any

from xlakit.tools.commands import reduce
from xlakit.tools.commands.batch import Program, add_batch, run_batch, write
from xlakit.tools.commands.oracle import add_oracle, limits_of, options_of_runs, oracle_of
from xlakit.tools.commands.shared import Commands, add_command, add_filling, load_filled, show_progress


def add(commands: Commands) -> None:
    """Add the verb."""
    parser = add_command(commands, "bisect", "find the compiler's rewrite that makes a program fail")
    add_batch(parser)
    add_oracle(parser)
    parser.add_argument("--reduce", action="store_true", help="go on: reduce the program, as xlakit reduce does")
    parser.add_argument(
        "-o", "--output", metavar="PATH", help="with --reduce, where the result goes, as of xlakit reduce"
    )
    add_filling(parser)
    parser.set_defaults(command=_run, work=None, max_seconds=float("inf"))


def _run(options: argparse.Namespace) -> int:
    if options.output and not options.reduce:
        options.fail("--output is where --reduce writes the smaller program, and that is not given")
    if options.output == "-":
        options.fail("--output - is standard output, which has the report: name a file, or use xlakit reduce")
    from xlakit.tools.bisect import bisect_module
    from xlakit.tools.shards import with_partitions

    def work(program: Program) -> tuple[int, dict[str, Any]]:
        path = program.path
        module = with_partitions(load_filled(path, options))
        oracle = oracle_of(options, module)
        bisection = bisect_module(
            module, oracle, jobs=options.jobs, limits=limits_of(options), load=options.load, progress=show_progress
        )
        show_progress("")
        goes_on = f"xlakit reduce {shlex.quote(path)} {oracle.options}{options_of_runs(options)}"
        if not options.json:
            then = "" if options.reduce else f"To make the program smaller: {goes_on}\n"
            write(f"{path}: {bisection}\n{then}")
        reduced = {"reduced": reduce.reduce_file(program, options)} if options.reduce else {}
        return 0, {**bisection.as_dict(), "reduce": goes_on, **reduced}

    return run_batch(options, work)
