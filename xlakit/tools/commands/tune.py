"""``xlakit tune``."""

from __future__ import annotations

import argparse

from xlakit.tools.commands.shared import Commands, add_command, add_file, load, seconds


def add(commands: Commands) -> None:
    """Add the verb."""
    parser = add_command(commands, "tune", "time alternatives for each kernel of a program, and keep the best")
    add_file(parser)
    parser.add_argument(
        "--seconds", type=seconds, default=30.0, help="about how long it may take (default 30)", metavar="SECONDS"
    )
    parser.add_argument("--again", action="store_true", help="also where the program was tuned before")
    parser.add_argument("--json", action="store_true", help="print the report as JSON; times are in nanoseconds")
    parser.set_defaults(command=_run)


def _run(options: argparse.Namespace) -> int:
    from xlakit.tools.tune import tuned

    report = tuned(load(options.file), seconds=options.seconds, again=options.again)
    print(report.as_json() if options.json else report)
    return 0
