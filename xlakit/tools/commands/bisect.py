"""``xlakit bisect``."""

from __future__ import annotations

import argparse
import json
import shlex
import sys

from xlakit.tools.commands import reduce
from xlakit.tools.commands.oracle import add_oracle, limits_of, oracle_of
from xlakit.tools.commands.shared import Commands, add_command, add_files, add_filling, load_filled


def add(commands: Commands) -> None:
    """Add the verb."""
    parser = add_command(commands, "bisect", "find the compiler's rewrite that makes a program fail")
    add_files(parser)
    add_oracle(parser)
    parser.add_argument("--reduce", action="store_true", help="go on: reduce the program, as xlakit reduce does")
    parser.add_argument("--json", action="store_true", help="print the report as JSON, a line for each FILE")
    add_filling(parser)
    parser.set_defaults(command=_run, output=None, work=None, max_seconds=float("inf"))


def _run(options: argparse.Namespace) -> int:
    from xlakit.tools.bisect import bisect_module

    for path in options.files:
        module = load_filled(path, options)
        oracle = oracle_of(options, module)
        bisection = bisect_module(
            module, oracle, jobs=options.jobs, limits=limits_of(options), load=options.load, progress=_progress
        )
        _progress("")
        loads = "".join(f" --load {shlex.quote(file)}" for file in options.load)
        goes_on = f"xlakit reduce {shlex.quote(path)} {oracle.options}{loads}"
        if options.json:
            print(json.dumps({"file": path, **bisection.as_dict(), "reduce": goes_on}))
        else:
            print(f"{path}: {bisection}")
            if not options.reduce:
                print(f"To make the program smaller: {goes_on}")
        if options.reduce:
            reduce.reduce_file(path, options)
    return 0


def _progress(line: str) -> None:
    """A line on a terminal that rewrites itself."""
    if sys.stderr is not None and sys.stderr.isatty():  # pyright: ignore[reportUnnecessaryComparison]
        print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)
