"""``xlakit reduce``."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from xlakit.tools.commands.oracle import add_oracle, limits_of, oracle_of
from xlakit.tools.commands.shared import Commands, add_command, add_files, add_filling, load_filled, seconds, tell

if TYPE_CHECKING:
    from xlakit.ir.instruction import HloModule
    from xlakit.tools.reduce.search import Search


def add(commands: Commands) -> None:
    """Add the verb."""
    parser = add_command(commands, "reduce", "find the smallest part of a program that still fails")
    add_files(parser)
    add_oracle(parser)
    parser.add_argument(
        "-o", "--output", metavar="PATH", help="where the result goes; default: NAME.reduced.hlo beside each FILE"
    )
    parser.add_argument(
        "--work", metavar="DIR", help="keep the best program so far there; the same command goes on from it"
    )
    parser.add_argument(
        "--max-seconds", type=seconds, default=float("inf"), metavar="SECONDS", help="give the best found in that time"
    )
    parser.add_argument("--json", action="store_true", help="print the summary as JSON, a line for each FILE")
    add_filling(parser)
    parser.set_defaults(command=_run)


def _run(options: argparse.Namespace) -> int:
    if options.output and len(options.files) > 1:
        options.fail("--output is one file, and there are several programs")
    for path in options.files:
        reduce_file(path, options)
    return 0


def reduce_file(path: str, options: argparse.Namespace) -> None:
    """Reduce the program in a file, and tell of it."""
    from xlakit.tools.oracles.oracle import ExternalTest
    from xlakit.tools.reduce.reducer import reduce_module

    module = load_filled(path, options)
    oracle = oracle_of(options, module)
    output = Path(options.output) if options.output else _beside(path)
    progress = Progress()
    try:
        reduction = reduce_module(
            module,
            oracle,
            jobs=options.jobs,
            limits=limits_of(options),
            max_seconds=options.max_seconds,
            work=str(Path(options.work) / output.stem) if options.work else None,
            load=options.load,
            progress=progress,
        )
    except KeyboardInterrupt:
        if progress.best is not None:
            output.write_text(progress.best.to_text(), encoding="utf-8")
            tell(f"the best program so far is in {output}")
        raise
    finally:
        progress.end()
    output.write_text(reduction.module.to_text(), encoding="utf-8")
    arguments = None if isinstance(oracle, ExternalTest) else getattr(oracle, "arguments", None)
    if arguments is not None and arguments.given:
        arguments.save(output.with_suffix(".npz"), reduction.module.entry.program_shape)
    if options.json:
        print(json.dumps({"file": path, "output": str(output), **reduction.as_dict()}))
    else:
        print(f"{output}: {reduction}")
        print(f"it does {oracle.claim}: {reduction.seen}")


def _beside(path: str) -> Path:
    return Path("stdin.reduced.hlo") if path == "-" else Path(path).with_suffix("").with_suffix(".reduced.hlo")


class Progress:
    """A line on a terminal that rewrites itself; it keeps the best module for an interruption."""

    def __init__(self) -> None:
        self.best: HloModule | None = None
        self._is_shown = False

    def __call__(self, search: Search) -> None:
        """Show where a search is."""
        self.best = search.best
        if sys.stderr is None or not sys.stderr.isatty():  # pyright: ignore[reportUnnecessaryComparison]
            return
        self._is_shown = True
        count = search.best.instruction_count()
        line = f"{search.step}: {count} instructions, {search.tries} tries, {search.seconds:.0f} s"
        print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        """Leave the line."""
        if self._is_shown:
            print(file=sys.stderr)
