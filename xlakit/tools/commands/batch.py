"""Verbs on several files: one file's fault does not stop the others, and the exit status is the worst of all."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

from xlakit.errors import ArgumentError, FormatError, XlakitError
from xlakit.tools.commands.shared import plain, tell

# The files of a folder that are programs by their names. With .gz, too.
_SUFFIXES: Final = (".hlo", ".txt", ".pb", ".pbtxt", ".hlo.json", ".mlir", ".mlirbc", ".stablehlo")
# XLA writes these beside modules.
_BESIDE: Final = ("-buffer-assignment.txt", "-memory-usage-report.txt", "-live-range.txt", ".config.pbtxt", "flags.txt")

# What a verb does with one file: gives the exit status, and what --json prints of it.
Work: TypeAlias = Callable[[str], tuple[int, dict[str, Any]]]


def add_batch(parser: argparse.ArgumentParser) -> None:
    """Several files or folders, and ``--json``."""
    parser.add_argument(
        "files",
        nargs="+",
        metavar="FILE",
        help="programs in any format that is known, told apart by content; folders stand for the programs in them and "
        "below; - reads standard input",
    )
    parser.add_argument("--json", action="store_true", help="print an object for each file, a line each")


def run_batch(options: argparse.Namespace, work: Work) -> int:
    """Do the work for each file of :func:`add_batch`; gives the worst status, which of a file without a program is 1.

    Raises ArgumentError where the command line is at fault, which is so for all files; with --traceback any error.
    """
    worst = 0
    for name in _expanded(options.files):
        try:
            if name != "-" and Path(name).is_dir():
                raise FormatError(
                    f"{name} is a folder without programs", hint=f"name the files, or end them {', '.join(_SUFFIXES)}"
                )
            status, told = work(name)
        except ArgumentError:
            raise
        except (XlakitError, OSError, MemoryError) as error:
            if options.traceback:
                raise
            status, told = 1, {"error": plain(error)}
            if not options.json:
                tell(f"xlakit: {plain(error)}")
        if options.json:
            print(json.dumps({"file": name, "status": status, **told}))
        worst = max(worst, status)
    return worst


def _expanded(files: Sequence[str]) -> Iterator[str]:
    """The files, with the programs of each folder, in the order of their paths, instead of it; but one without any."""
    for name in files:
        path = Path(name)
        found = sorted(str(p) for p in path.rglob("*") if p.is_file() and _is_program(p.name)) if name != "-" else []
        yield from found or [name]


def _is_program(name: str) -> bool:
    return name.removesuffix(".gz").endswith(_SUFFIXES) and not name.endswith(_BESIDE)
