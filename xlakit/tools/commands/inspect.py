"""The verb ``xlakit inspect`` of the command line: its options, and the call of its tool."""

from __future__ import annotations

import argparse
from typing import Any

from xlakit.settings import LONG_NAMES
from xlakit.tools.commands.batch import Program, add_batch, run_batch, write
from xlakit.tools.commands.shared import (
    Commands,
    add_command,
    add_filling,
    add_load,
    add_text_options,
    load_filled,
    run_loaded,
    text_options,
)


def add(commands: Commands) -> None:
    """Add the verb."""
    parser = add_command(commands, "inspect", "compile a program and print what has become of it")
    add_batch(parser)
    parser.add_argument(
        "--as",
        dest="view",
        type=lambda name: LONG_NAMES.get(name, name),
        choices=("hlo", "llvm", "llvm-raw", "assembly", "cost", "memory", "memory-plan", "fallbacks", "collectives"),
        default="hlo",
        help="the optimized HLO (default); LLVM IR after or before LLVM's passes; assembly, or asm; counted operations "
        "and bytes; memory and what holds it; the memory plan, or plan; what is not machine code; what "
        "devices send each other",
    )
    add_filling(parser)
    add_text_options(parser)
    add_load(parser)
    parser.set_defaults(command=_run)


def _run(options: argparse.Namespace) -> int:
    run_loaded(options)
    from xlakit.tools.inspect import inspect, inspect_as_data

    def work(program: Program) -> tuple[int, dict[str, Any]]:
        module = load_filled(program.path, options)
        if options.json:
            return 0, {"as": options.view, options.view: inspect_as_data(module, options.view, text_options(options))}
        write(inspect(module, options.view, text_options(options)))
        return 0, {}

    return run_batch(options, work, titled=True)
