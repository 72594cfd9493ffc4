"""The options that ``reduce`` and ``bisect`` share: the oracle, the program's arguments, and the limits of runs."""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
from typing import TYPE_CHECKING, Final

from xlakit.tools.commands.shared import add_load, at_least, seconds, seed, size

if TYPE_CHECKING:
    from xlakit.child_process import Limits
    from xlakit.ir.instruction import HloModule
    from xlakit.tools.oracles.oracle import Oracle

# The limits of a run, unless others are given.
_SECONDS: Final = 60.0
_BYTES: Final = 4 << 30


def add_oracle(parser: argparse.ArgumentParser) -> None:
    """Add the options of the oracle; see :func:`oracle_of` and :func:`limits_of`."""
    group = parser.add_argument_group("what is looked for")
    group.add_argument(
        "--test",
        metavar="CMD",
        help="a command that is run with the path of a module as its last argument; status 0: it is still interesting",
    )
    group.add_argument(
        "--compare",
        type=_pair,
        metavar="A,B",
        help="two backends that give different results: cpu, interpreter, plain (machine code without optimization), "
        "jaxlib, or one that --load registers",
    )
    group.add_argument("--crash", action="store_true", help="compiling or running it fails as it does now, or hangs")
    group.add_argument(
        "--slow", type=_factor, metavar="5x", help="it takes A five times as long as B (--compare; default cpu,jaxlib)"
    )
    group.add_argument("--backend", default="cpu", metavar="NAME", help="for --crash (default cpu)")
    group.add_argument("--rtol", type=_tolerance, metavar="X", help="relative error allowed; default: by type")
    group.add_argument("--atol", type=_tolerance, default=0.0, metavar="X", help="absolute error allowed (default 0)")
    group.add_argument("--input", metavar="X.npz", help="arguments by parameter name; default: made up from --seed")
    group.add_argument("--seed", type=seed, default=0, help="of made up arguments and of rng (default 0)")
    add_load(group)
    limits = parser.add_argument_group("limits")
    jobs = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    limits.add_argument("--jobs", type=at_least(1), default=jobs, metavar="N", help=f"runs at a time (default {jobs})")
    limits.add_argument("--timeout", type=seconds, default=_SECONDS, metavar="SECONDS", help="of a run (default 60)")
    limits.add_argument("--memory", type=size, default=_BYTES, metavar="SIZE", help="of a run (default 4G)")
    parser.set_defaults(fail=parser.error)


def oracle_of(options: argparse.Namespace, module: HloModule) -> Oracle:
    """The oracle that the options select, for a module. Exits with status 2 if options exclude each other.

    Raises LiteralError for elided constants in a program that is to be run.
    """
    from xlakit.ops.data import elided_error
    from xlakit.tools.compare import Tolerance
    from xlakit.tools.elided import elided_constants
    from xlakit.tools.oracles.arguments import Arguments
    from xlakit.tools.oracles.oracle import BACKENDS, Crash, Disagreement, ExternalTest, Slowness

    chosen = [name for name in ("test", "compare", "crash", "slow") if getattr(options, name)]
    if chosen not in (["test"], ["compare"], ["crash"], ["slow"], ["compare", "slow"]):
        given = f", not {' and '.join(f'--{name}' for name in chosen)}" if chosen else ""
        options.fail(
            f"say what is looked for: one of --test, --compare, --crash and --slow (which takes --compare){given}"
        )
    for name in options.compare or [options.backend]:
        # Backends registered by --load are only known in the processes that load the files.
        if name not in BACKENDS and not options.load:
            options.fail(f"there is no backend '{name}': {', '.join(BACKENDS)}, or one that --load registers")
    if options.test:
        test = ExternalTest.of(options.test)
        if shutil.which(test.words[0]) is None:
            options.fail(f"argument --test: there is no command '{test.words[0]}'")
        return test
    for constant in elided_constants(module):
        # Raised here, as otherwise every run would fail with it.
        raise elided_error().at(operation=f"constant '{constant.name}'")
    program = module.entry.program_shape
    arguments = Arguments.from_file(options.input, program, options.seed) if options.input else Arguments(options.seed)
    if options.crash:
        return Crash(options.backend, arguments)
    if options.slow:
        return Slowness(options.slow, options.compare or ("cpu", "jaxlib"), arguments)
    return Disagreement(options.compare, arguments, Tolerance(options.rtol, options.atol))


def limits_of(options: argparse.Namespace) -> Limits:
    """The limits of a run."""
    from xlakit.child_process import Limits

    return Limits(options.timeout, options.memory)


def options_of_runs(options: argparse.Namespace) -> str:
    """How programs are loaded, filled and limited, as options to go on with, each after a space."""
    words = [f"--load {shlex.quote(file)}" for file in options.load]
    if options.fill_elided != "error":
        words.append(f"--fill-elided {options.fill_elided}")
    if options.timeout != _SECONDS:
        words.append(f"--timeout {options.timeout:g}")
    if options.memory != _BYTES:
        words.append(f"--memory {options.memory}")
    return "".join(f" {word}" for word in words)


def _pair(text: str) -> tuple[str, str]:
    names = [name.strip() for name in text.split(",")]
    if len(names) != 2 or not all(names) or names[0] == names[1]:
        raise argparse.ArgumentTypeError(f"'{text}' is not two backends, such as cpu,interpreter")
    return names[0], names[1]


def _factor(text: str) -> float:
    try:
        value = float(text.removesuffix("x"))
    except ValueError:
        value = 0.0
    if not 1 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"'{text}' is not a factor from 1, such as 5x")
    return value


def _tolerance(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"'{text}' is not an error, such as 1e-5")
    return value
