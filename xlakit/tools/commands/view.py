"""``xlakit view``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from xlakit.errors import ArgumentError
from xlakit.tools.commands.shared import Commands, add_command, add_file, at_least, load

if TYPE_CHECKING:
    from xlakit.tools.view.stages import View

# Options that are for the passes of one program, with their defaults.
_OF_ONE = {"passes": True, "disable": "", "until": None, "fuel": None, "memory": False, "profile": None}


def add(commands: Commands) -> None:
    """Add the verb."""
    parser = add_command(commands, "view", "write a program and what each pass makes of it as a page for a browser")
    add_file(parser)
    parser.add_argument("other", nargs="?", metavar="B", help="another program: the page has what differs between them")
    parser.add_argument("-o", "--output", metavar="PATH", help="the page; default: FILE with .html at its end")
    parser.add_argument(
        "--serve",
        type=at_least(0),
        nargs="?",
        const=0,
        metavar="PORT",
        help="show the page in a browser, from a server on 127.0.0.1, and again when a file changes, until Ctrl-C",
    )
    parser.add_argument(
        "--no-browser", dest="opens", action="store_false", help="with --serve: print the address alone"
    )
    parser.add_argument("--ignore", default="", metavar="X,Y", help="with B: what does not count, as in xlakit diff")
    parser.add_argument("--no-passes", dest="passes", action="store_false", help="the program alone, as it is")
    parser.add_argument("--disable", metavar="A,B", default="", help="leave out passes, tables of rules, or rules")
    parser.add_argument("--until", metavar="PASS", help="stop after this pass, by name or number")
    parser.add_argument("--fuel", type=at_least(0), metavar="N", help="stop after N rewrites")
    parser.add_argument("--memory", action="store_true", help="compile the program, too, and draw its memory")
    parser.add_argument(
        "--profile",
        metavar="REPORT.json",
        help="color by time, draw the roofline: what xlakit run --profile --json prints",
    )
    parser.set_defaults(command=_run)


def _run(options: argparse.Namespace) -> int:
    if options.serve is not None:
        return _serve(options)
    view = _view(options)
    path = Path(options.output or _beside(options.file, options.other))
    view.save(path)
    print(f"{path}: {path.stat().st_size:,} bytes; open it in a browser")
    return 0


def _view(options: argparse.Namespace) -> View:
    from xlakit.tools.opt import names
    from xlakit.tools.view.profiles import roofline_of, seconds_of
    from xlakit.tools.view.stages import view_module

    if options.other is not None:
        return _difference(options)
    if options.ignore:
        raise ArgumentError("--ignore is for two programs", hint="name the second one after the first")
    profile: str = options.profile or ""
    report = None if options.profile is None else Path(profile).read_text(encoding="utf-8")
    return view_module(
        load(options.file),
        passes=options.passes,
        disabled=names(options.disable),
        until=options.until,
        fuel=options.fuel,
        memory=options.memory,
        seconds=None if report is None else seconds_of(report, profile),
        roofline=None if report is None else roofline_of(report, profile),
        title=None if options.file == "-" else Path(options.file).name,
    )


def _difference(options: argparse.Namespace) -> View:
    """The page of two programs. Raises ArgumentError for options that only one program has."""
    from xlakit.tools.diff.modules import IGNORED
    from xlakit.tools.opt import names
    from xlakit.tools.view.comparison import view_difference

    for name, default in _OF_ONE.items():
        if getattr(options, name) != default:
            option = "no-passes" if name == "passes" else name
            raise ArgumentError(f"--{option} is for one program", hint="two are shown as they are, without passes")
    files = (options.file, options.other)
    if files == ("-", "-"):
        raise ArgumentError("both programs are standard input", hint="name a file for one of them")
    first, second = map(load, files)
    labels = (Path(files[0]).name, Path(files[1]).name)
    ignored = IGNORED if options.ignore == "all" else names(options.ignore)
    return view_difference(first, second, ignore=ignored, names=labels)


def _serve(options: argparse.Namespace) -> int:
    """Show the page until Ctrl-C. Raises ArgumentError for what has no page that can be made again."""
    from xlakit.tools.view.server import LivePage, serve

    files = [file for file in (options.file, options.other, options.profile) if file is not None]
    if "-" in files:
        raise ArgumentError("standard input cannot be read again", hint="--serve needs files")
    if options.output:
        raise ArgumentError("--output is for a page that is written", hint="leave out --serve, or --output")
    page = LivePage(files, lambda: _view(options).html)
    serve(
        page, options.serve, opens=options.opens, tell=lambda address: print(f"{address} (Ctrl-C ends it)", flush=True)
    )
    return 0


def _beside(path: str, other: str | None) -> str:
    """Where the page of a file, or of two, is if nothing is said."""
    first = "program" if path == "-" else f"{Path(path).with_suffix('')}"
    return f"{first}.html" if other is None else f"{first}-{'program' if other == '-' else Path(other).stem}.html"
