"""``xlakit opt``."""

from __future__ import annotations

import argparse
import sys

from xlakit.errors import ArgumentError
from xlakit.tools.commands.shared import (
    Commands,
    add_command,
    add_file,
    add_text_options,
    at_least,
    load,
    open_stream,
    text_options,
)


def add(commands: Commands) -> None:
    """Add the verb."""
    parser = add_command(commands, "opt", "improve a program with passes and print what has become of it")
    add_file(parser, optional=True)
    parser.add_argument("--passes", metavar="A,B", help="run these passes in this order; default: all")
    parser.add_argument("--disable", metavar="A,B", default="", help="leave out passes, tables of rules, or rules")
    parser.add_argument("--until", metavar="PASS", help="stop after this pass, by name or number")
    parser.add_argument("--fuel", type=at_least(0), metavar="N", help="stop after N rewrites")
    parser.add_argument("--dump", metavar="DIR", help="write the program after each pass into files there")
    parser.add_argument("--diff", action="store_true", help="print what each pass has changed instead of the program")
    parser.add_argument("--list-passes", action="store_true", help="list the passes and their rules, and do no more")
    add_text_options(parser)
    parser.set_defaults(command=_run, only_arguments=True)


def _run(options: argparse.Namespace) -> int:
    from xlakit.tools import opt

    if options.list_passes:
        print(opt.listing())
        return 0
    if options.file is None:
        raise ArgumentError("no FILE is given", hint="name the program, or ask for --list-passes")
    lines = opt.optimize(
        load(options.file),
        passes=None if options.passes is None else opt.names(options.passes),
        disabled=opt.names(options.disable),
        until=options.until,
        fuel=options.fuel,
        dump=options.dump,
        diff=options.diff,
        text=text_options(options),
    )
    open_stream(sys.stdout, "standard output").writelines(lines)
    return 0
