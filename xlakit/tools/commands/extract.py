"""The verb ``xlakit extract`` of the command line: its options, and the call of its tool."""

from __future__ import annotations

import argparse
from typing import Any

from xlakit.errors import ArgumentError
from xlakit.tools.commands.batch import Program, add_batch, run_batch, write
from xlakit.tools.commands.run import argument_source
from xlakit.tools.commands.shared import (
    Commands,
    add_command,
    add_filling,
    add_load,
    at_least,
    counted,
    load_filled,
    run_loaded,
    seed,
)


def add(commands: Commands) -> None:
    """Add the verb."""
    parser = add_command(commands, "extract", "write a part of a program with the arguments that it has in a run")
    add_batch(parser)
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--instruction", metavar="NAME", help="an instruction, with its operands as parameters")
    which.add_argument("--computation", metavar="NAME", help="a computation, or what a fusion or call has")
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
    parser.add_argument(
        "--device",
        type=at_least(0),
        metavar="N",
        help="of a program of several devices: the part of this one, as a program of one device; default: of all",
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="DIR",
        required=True,
        help="a new folder, which xlakit run runs; of several programs one for each in it",
    )
    parser.add_argument("--input", metavar="X.npz", help="arguments of the program; default: made up from --seed")
    parser.add_argument("--seed", type=seed, help="of made up arguments and of rng instructions (default 0)")
    add_filling(parser)
    add_load(parser)
    parser.set_defaults(command=_run)


def _run(options: argparse.Namespace) -> int:
    run_loaded(options)
    from xlakit.tools.reduce.extract import extract_file
    from xlakit.tools.shards import with_partitions

    if options.output == "-":
        raise ArgumentError(
            "a part is a folder, and - is standard output", hint="name a folder; ./- is one that is called -"
        )
    if options.depth is not None and options.instruction is None:
        raise ArgumentError("--depth is for --instruction", hint="give --instruction NAME with it")

    def work(program: Program) -> tuple[int, dict[str, Any]]:
        module = load_filled(program.path, options)
        source = argument_source(program.path, options)
        output = str(program.output(options.output, ""))
        part = extract_file(
            with_partitions(module),
            output=output,
            instruction=options.instruction,
            computation=options.computation or options.loop,
            depth=options.depth or 0,
            iteration=options.iteration,
            device=options.device,
            input_path=source.input,
            seed=source.seed,
        )
        count = len(part.module.entry.instructions)
        parameters = len(part.arguments)
        if not options.json:
            what = f"{counted(count, 'instruction')}, {parameters} of them parameters"
            write(f"{output}: {what}; to run it: xlakit run {output}\n")
        return 0, {"output": output, "instructions": count, "parameters": parameters}

    return run_batch(options, work)
