"""``xlakit run``."""

from __future__ import annotations

import argparse

from xlakit.tools.commands.shared import (
    Commands,
    add_command,
    add_file,
    add_filling,
    at_least,
    load_filled,
    seconds,
    size,
    tell,
)

# The names of api.BACKENDS, which is not loaded to print help.
BACKENDS = ("cpu", "interpreter")


def add(commands: Commands) -> None:
    """Add the verb."""
    parser = add_command(commands, "run", "run a program and print its results")
    add_file(parser)
    parser.add_argument(
        "--input", metavar="X.npz", help="arguments by parameter name or number; default: made up from --seed"
    )
    parser.add_argument(
        "--seed", type=at_least(0), default=0, help="of made up arguments and of rng instructions (default 0)"
    )
    parser.add_argument("--output", metavar="Y.npz", help="save the results there instead of printing them")
    parser.add_argument(
        "--iterations", type=at_least(1), default=1, metavar="N", help="run N times and print the median time"
    )
    parser.add_argument(
        "--replicas", type=at_least(1), metavar="N", help="how many replicas run; default: what the program says"
    )
    parser.add_argument(
        "--partitions",
        type=at_least(1),
        metavar="N",
        help="how many partitions run; default: what the program says, or its shardings have",
    )
    parser.add_argument("--backend", choices=BACKENDS, help="what runs it (default: cpu, where it can)")
    parser.add_argument(
        "--compare", choices=("interpreter", "jaxlib"), help="run there too and print the errors of each output"
    )
    parser.add_argument(
        "--compare-timeout", type=seconds, default=120.0, metavar="SECONDS", help="for jaxlib (default 120)"
    )
    parser.add_argument(
        "--compare-memory", type=size, default=4 << 30, metavar="SIZE", help="for jaxlib, such as 500M (default 4G)"
    )
    add_filling(parser)
    parser.set_defaults(command=_run)


def _run(options: argparse.Namespace) -> int:
    from xlakit.tools.jaxlib_child import Limits, NothingToCompareError
    from xlakit.tools.run import run
    from xlakit.tools.shards import with_partitions

    module = load_filled(options)
    module = module.replace(replica_count=options.replicas or module.replica_count)
    module = (
        with_partitions(module) if options.partitions is None else module.replace(num_partitions=options.partitions)
    )
    try:
        return run(
            module,
            input_path=options.input,
            seed=options.seed,
            output_path=options.output,
            iterations=options.iterations,
            backend=options.backend,
            compare_with=options.compare,
            limits=Limits(options.compare_timeout, options.compare_memory),
        )
    except NothingToCompareError as error:
        if options.traceback:
            raise
        tell(f"xlakit: {error}")
        return 3
