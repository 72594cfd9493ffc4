"""The verb ``xlakit opt`` of the command line: its options, and the call of its tool."""

from __future__ import annotations

import argparse
from typing import Any

from xlakit.errors import ArgumentError
from xlakit.formats.files import write_whole
from xlakit.settings import names_in
from xlakit.tools.commands.batch import Program, add_batch, run_batch, write
from xlakit.tools.commands.shared import (
    Commands,
    add_command,
    add_load,
    add_text_options,
    at_least,
    load,
    run_loaded,
    text_options,
)


def add(commands: Commands) -> None:
    """Add the verb."""
    parser = add_command(commands, "opt", "improve a program with passes and print what has become of it")
    add_batch(parser, optional=True)
    parser.add_argument(
        "--passes",
        metavar="A,B",
        help="run these passes in this order; default: all, after splitting over devices a program with shardings",
    )
    parser.add_argument("--disable", metavar="A,B", default="", help="leave out passes, tables of rules, or rules")
    parser.add_argument("--until", metavar="PASS", help="stop after this pass, by name or number")
    parser.add_argument("--fuel", type=at_least(0), metavar="N", help="stop after N rewrites")
    parser.add_argument(
        "-o", "--output", metavar="PATH", help="where to, of several programs a folder; default: standard output"
    )
    parser.add_argument("--dump", metavar="DIR", help="write the program after each pass into files there")
    parser.add_argument("--diff", action="store_true", help="print what each pass has changed instead of the program")
    parser.add_argument("--list-passes", action="store_true", help="list the passes and their rules, and do no more")
    add_text_options(parser)
    add_load(parser)
    parser.set_defaults(command=_run, only_arguments=True)


def _run(options: argparse.Namespace) -> int:
    run_loaded(options)
    options.output = None if options.output == "-" else options.output
    from xlakit.tools import opt

    if options.list_passes:
        print(opt.listing())
        return 0
    if not options.files:
        raise ArgumentError("no FILE is given", hint="name the program, or ask for --list-passes")

    def work(program: Program) -> tuple[int, dict[str, Any]]:
        lines = opt.optimize(
            load(program.path),
            passes=None if options.passes is None else names_in(options.passes),
            disabled=names_in(options.disable),
            until=options.until,
            fuel=options.fuel,
            dump=None if options.dump is None else str(program.output(options.dump, "")),
            diff=options.diff,
            text=text_options(options),
        )
        text = "".join(lines)
        if options.output is not None:
            path = program.output(options.output, ".diff" if options.diff else ".hlo")
            write_whole(path, text)
            return 0, {"output": str(path), "bytes": len(text.encode())}
        if not options.json:
            write(text)
        return 0, {"diff" if options.diff else "text": text}

    return run_batch(options, work, titled=options.output is None)
