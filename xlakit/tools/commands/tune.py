"""The verb ``xlakit tune`` of the command line: its options, and the call of its tool."""

from __future__ import annotations

import argparse
from typing import Any

from xlakit.tools.commands.batch import Program, add_batch, run_batch, write
from xlakit.tools.commands.shared import Commands, add_command, add_filling, load_filled, seconds


def add(commands: Commands) -> None:
    """Add the verb."""
    parser = add_command(commands, "tune", "time alternatives for each kernel of a program, and keep the best")
    add_batch(parser)
    parser.add_argument(
        "--seconds", type=seconds, default=30.0, help="about how long each may take (default 30)", metavar="SECONDS"
    )
    parser.add_argument("--again", action="store_true", help="also where the program was tuned before")
    add_filling(parser)
    parser.set_defaults(command=_run)


def _run(options: argparse.Namespace) -> int:
    from xlakit.tools.tune import tuned

    def work(program: Program) -> tuple[int, dict[str, Any]]:
        report = tuned(load_filled(program.path, options), seconds=options.seconds, again=options.again)
        if not options.json:
            write(f"{report}\n")
        return 0, report.as_dict()

    return run_batch(options, work, titled=True)
