"""``xlakit view``."""

from __future__ import annotations

import argparse
from pathlib import Path

from xlakit.tools.commands.shared import Commands, add_command, add_file, at_least, load


def add(commands: Commands) -> None:
    """Add the verb."""
    parser = add_command(commands, "view", "write a program and what each pass makes of it as a page for a browser")
    add_file(parser)
    parser.add_argument("-o", "--output", metavar="PATH", help="the page; default: FILE with .html at its end")
    parser.add_argument("--no-passes", dest="passes", action="store_false", help="the program alone, as it is")
    parser.add_argument("--disable", metavar="A,B", default="", help="leave out passes, tables of rules, or rules")
    parser.add_argument("--until", metavar="PASS", help="stop after this pass, by name or number")
    parser.add_argument("--fuel", type=at_least(0), metavar="N", help="stop after N rewrites")
    parser.add_argument("--memory", action="store_true", help="compile the program, too, and draw its memory")
    parser.add_argument(
        "--profile", metavar="REPORT.json", help="color by time: what xlakit run FILE --profile --json prints"
    )
    parser.set_defaults(command=_run)


def _run(options: argparse.Namespace) -> int:
    from xlakit.tools.opt import names
    from xlakit.tools.view.stages import seconds_of, view_module

    profile = options.profile
    view = view_module(
        load(options.file),
        passes=options.passes,
        disabled=names(options.disable),
        until=options.until,
        fuel=options.fuel,
        memory=options.memory,
        seconds=None if profile is None else seconds_of(Path(profile).read_text(encoding="utf-8"), profile),
        title=None if options.file == "-" else Path(options.file).name,
    )
    path = Path(options.output or _beside(options.file))
    view.save(path)
    print(f"{path}: {path.stat().st_size:,} bytes; open it in a browser")
    return 0


def _beside(path: str) -> str:
    """Where the page of a file is, if nothing is said."""
    return "program.html" if path == "-" else f"{Path(path).with_suffix('')}.html"
