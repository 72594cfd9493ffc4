"""The verb ``xlakit view`` of the command line: its options, and the call of its tool."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xlakit.errors import ArgumentError
from xlakit.settings import names_in
from xlakit.tools.commands.batch import (
    Program,
    add_json,
    is_folder,
    is_streamed,
    pairs_of,
    programs_of,
    run_each,
    write,
    write_bytes,
)
from xlakit.tools.commands.shared import (
    Commands,
    add_command,
    add_filling,
    add_load,
    at_least,
    load_filled,
    run_loaded,
    selected,
)

if TYPE_CHECKING:
    from xlakit.tools.view.stages import View

# Options that apply only to a page of one program, with their defaults.
_OF_ONE = {"passes": True, "disable": "", "until": None, "fuel": None, "memory": False, "profile": None, "errors": None}


def add(commands: Commands) -> None:
    """Add the verb."""
    parser = add_command(commands, "view", "write a program and what each pass makes of it as a page for a browser")
    parser.add_argument(
        "file",
        metavar="FILE",
        help="a program in any format that is known, or a folder, of which each program gets a page; - is stdin",
    )
    parser.add_argument(
        "other",
        nargs="?",
        metavar="B",
        help="another program: the page has what differs between them; of two folders those of the same names",
    )
    parser.add_argument(
        "-o", "--output", metavar="PATH", help="the page, of several a folder; default: FILE with .html at its end"
    )
    add_json(parser)
    parser.add_argument(
        "--serve",
        action="store_true",
        help="show the page in a browser, from a server on 127.0.0.1, and again when a file changes, until Ctrl-C",
    )
    parser.add_argument(
        "--port", type=at_least(0), metavar="N", help="with --serve: the server's port (default: one that is free)"
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
    parser.add_argument(
        "--errors", metavar="REPORT.json", help="color by rounding error: what xlakit run --shadow f64 --json prints"
    )
    add_filling(parser)
    add_load(parser)
    parser.set_defaults(command=_run)


def _run(options: argparse.Namespace) -> int:
    run_loaded(options)
    if options.serve:
        return _serve(options)
    if options.port is not None:
        raise ArgumentError("--port is for --serve", hint="give --serve with it")
    if options.other is None and options.ignore:
        raise ArgumentError("--ignore is for two programs", hint="name the second one after the first")
    from xlakit.passes.pipeline import check_choice

    check_choice(names_in(options.disable), options.until)
    programs = _compared_programs(options)
    is_streamed(options, [program for program, _ in programs])
    return run_each(options, programs, lambda program, other: _page(program, other, options))


def _compared_programs(options: argparse.Namespace) -> list[tuple[Program, str | None]]:
    """What has a page: programs, each with the one that it is compared with."""
    if options.other is None:
        return [(program, None) for program in programs_of([options.file])]
    _check_difference(options)
    return [(first, second.path) for first, second in pairs_of(options.file, options.other)]


def _page(program: Program, other: str | None, options: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    """Write the page of a program, or of two."""
    view = _view(program.path, other, options)
    if options.output == "-":
        write_bytes(view.html.encode(errors="backslashreplace"))
        return 0, {}
    path = program.output(options.output, ".html") if options.output else Path(_beside(program.path, other))
    view.save(path)
    size = path.stat().st_size
    if not options.json:
        write(f"{path}: {size:,} bytes; open it in a browser\n")
    return 0, {"output": str(path), "bytes": size}


def _view(file: str, other: str | None, options: argparse.Namespace) -> View:
    from xlakit.tools.view.profiles import errors_of, read_report, roofline_of, seconds_of
    from xlakit.tools.view.stages import view_module

    if other is not None:
        return _difference(file, other, options)
    profile: str = options.profile or ""
    report = None if options.profile is None else read_report(profile)
    return view_module(
        load_filled(file, options),
        passes=options.passes,
        disabled=names_in(options.disable),
        until=options.until,
        fuel=options.fuel,
        memory=options.memory,
        seconds=None if report is None else seconds_of(report, profile),
        roofline=None if report is None else roofline_of(report, profile),
        errors=None if options.errors is None else errors_of(read_report(options.errors), options.errors),
        title=None if file == "-" else Path(file).name,
    )


def _check_difference(options: argparse.Namespace) -> None:
    """Raise ArgumentError for options that only one program has."""
    for name, default in _OF_ONE.items():
        if getattr(options, name) != default:
            option = "no-passes" if name == "passes" else name
            raise ArgumentError(f"--{option} is for one program", hint="two are shown as they are, without passes")


def _difference(file: str, other: str, options: argparse.Namespace) -> View:
    """The page of two programs."""
    from xlakit.tools.diff.modules import IGNORED
    from xlakit.tools.view.comparison import view_difference

    first, second = (load_filled(path, options) for path in (file, other))
    ignored = IGNORED if options.ignore == "all" else names_in(options.ignore)
    return view_difference(first, second, ignore=ignored, names=(Path(file).name, Path(other).name))


def _serve(options: argparse.Namespace) -> int:
    """Show the page until Ctrl-C. Raises ArgumentError for what has no page that can be made again."""
    from xlakit.tools.view.server import LivePage, serve

    files = [file for file in (options.file, options.other, options.profile, options.errors) if file is not None]
    if "-" in files:
        raise ArgumentError("standard input cannot be read again", hint="--serve needs files")
    if any(map(is_folder, files)) or not programs_of([options.file])[0].is_alone:
        raise ArgumentError("--serve shows one page, and there are several programs", hint="name one of them")
    for option in ("output", "json"):
        if getattr(options, option):
            raise ArgumentError(f"--{option} is for a page that is written", hint=f"leave out --serve, or --{option}")
    if options.other is not None:
        _check_difference(options)
    page = LivePage([selected(file)[0] for file in files], lambda: _view(options.file, options.other, options).html)
    serve(
        page,
        options.port or 0,
        opens=options.opens,
        tell=lambda address: print(f"{address} (Ctrl-C ends it)", flush=True),
    )
    return 0


def _beside(path: str, other: str | None) -> str:
    """The default path of the page of a file, or of two."""
    first, second = (None if file is None else _bare(file) for file in (path, other))
    return f"{first}.html" if second is None else f"{first}-{Path(second).name}.html"


def _bare(path: str) -> str:
    """The path of a program without its suffix."""
    file, which = selected(path)
    bare = "program" if file == "-" else f"{Path(file).with_suffix('')}"
    return bare if which is None else f"{bare}-{which}"
