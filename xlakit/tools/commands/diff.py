"""The verb ``xlakit diff`` of the command line: its options, and the call of its tool."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING, Any

from xlakit.settings import names_in
from xlakit.tools.commands.batch import add_json, pairs_of, run_each
from xlakit.tools.commands.shared import (
    BackendName,
    Commands,
    add_command,
    add_filling,
    add_load,
    at_least,
    check_backend,
    load_filled,
    open_stream,
    run_loaded,
    seed,
)

if TYPE_CHECKING:
    from xlakit.ir.instruction import HloModule
    from xlakit.tools.compare import LeafComparison

_IGNORED = ("names", "layouts", "metadata", "sharding", "attributes", "order")


def add(commands: Commands) -> None:
    """Add the verb."""
    parser = add_command(commands, "diff", "show what differs between two programs, matched by their structure")
    parser.add_argument("first", metavar="A", help="a program, in any format that is known; - reads standard input")
    parser.add_argument(
        "second", metavar="B", help="another one; of two folders the programs of the same names are compared"
    )
    parser.add_argument(
        "--ignore", type=_names, default=(), metavar="X,Y", help=f"what does not count: {', '.join(_IGNORED)}, or all"
    )
    parser.add_argument("--context", type=at_least(0), default=3, metavar="N", help="lines around each (default 3)")
    parser.add_argument("--color", choices=("auto", "always", "never"), default="auto", help="default: on a terminal")
    add_json(parser)
    parser.add_argument(
        "--run", action="store_true", help="run both on the same arguments, and compare their results; these decide"
    )
    parser.add_argument("--backend", action=BackendName, metavar="NAME", help="for --run (default: cpu, where it can)")
    parser.add_argument("--input", metavar="X.npz", help="arguments for --run; default: made up from --seed")
    parser.add_argument("--seed", type=seed, default=0, help="of made up arguments (default 0)")
    add_filling(parser)
    parser.epilog = "exit status: 0 nothing differs; 1 something does; 2 an error"
    add_load(parser)
    parser.set_defaults(command=_run, error_status=2)


def _names(text: str) -> tuple[str, ...]:
    names = names_in(text)
    if names == ("all",):
        return _IGNORED
    for name in names:
        if name not in _IGNORED:
            raise argparse.ArgumentTypeError(f"'{name}' cannot be ignored; known: {', '.join(_IGNORED)}, all")
    return names


def _run(options: argparse.Namespace) -> int:
    run_loaded(options)
    check_backend(options.backend)
    pairs = [(first, second.path) for first, second in pairs_of(options.first, options.second)]
    return run_each(options, pairs, lambda first, second: _diff(first.path, second or "", options), titled=True)


def _diff(first_path: str, second_path: str, options: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    from xlakit.tools.compare import format_table
    from xlakit.tools.diff.modules import diff_modules

    first, second = (load_filled(path, options) for path in (first_path, second_path))
    diff = diff_modules(first, second, ignore=options.ignore)
    leaves = _results(first, second, options) if options.run else None
    same = diff.is_same if leaves is None else all(leaf.agrees for leaf in leaves)
    if options.json:
        results = {} if leaves is None else {"results": [leaf.as_dict() for leaf in leaves]}
        return int(not same), diff.as_dict() | results
    out = open_stream(sys.stdout, "standard output")
    on_terminal = out.isatty() and "NO_COLOR" not in os.environ
    colored = options.color == "always" or (options.color == "auto" and on_terminal)
    out.write(diff.to_text(context=options.context, colored=colored, ignore=options.ignore))
    if leaves is not None:
        out.write(format_table(leaves) + "\n")
    return int(not same), {}


def _results(first: HloModule, second: HloModule, options: argparse.Namespace) -> list[LeafComparison]:
    """The results of both, compared. Raises ArgumentError where they take other arguments."""
    from xlakit.tools.diff.results import compare_results

    return compare_results(first, second, backend=options.backend, input_path=options.input, seed=options.seed)
