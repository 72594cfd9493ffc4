"""``xlakit extract``."""

from __future__ import annotations

import argparse

from xlakit.errors import ArgumentError
from xlakit.tools.commands.run import take_captured
from xlakit.tools.commands.shared import Commands, add_command, add_file, add_filling, at_least, load_filled


def add(commands: Commands) -> None:
    """Add the verb."""
    parser = add_command(commands, "extract", "write a part of a program with the arguments that it has in a run")
    add_file(parser)
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--instruction", metavar="NAME", help="an instruction, with its operands as parameters")
    which.add_argument("--computation", metavar="NAME", help="a computation, such as a fusion's")
    which.add_argument("--loop", metavar="NAME", help="the body of a while instruction")
    parser.add_argument(
        "--depth", type=at_least(0), metavar="N", help="with --instruction: so many instructions before it, too"
    )
    parser.add_argument(
        "--iteration",
        type=at_least(0),
        default=0,
        metavar="K",
        help="which run of the computation, from 0 (default 0)",
    )
    parser.add_argument("-o", "--output", metavar="DIR", required=True, help="a new folder, which xlakit run runs")
    parser.add_argument("--input", metavar="X.npz", help="arguments of the program; default: made up from --seed")
    parser.add_argument("--seed", type=at_least(0), help="of made up arguments and of rng instructions (default 0)")
    add_filling(parser)
    parser.set_defaults(command=_run)


def _run(options: argparse.Namespace) -> int:
    from xlakit.tools.reduce.extract import extract_file
    from xlakit.tools.shards import with_partitions

    if options.depth is not None and options.instruction is None:
        raise ArgumentError("--depth is for --instruction", hint="give --instruction NAME with it")
    module = load_filled(options.file, options)
    take_captured(options)
    print(
        extract_file(
            with_partitions(module),
            output=options.output,
            instruction=options.instruction,
            computation=options.computation or options.loop,
            depth=options.depth or 0,
            iteration=options.iteration,
            input_path=options.input,
            seed=options.seed,
        )
    )
    return 0
