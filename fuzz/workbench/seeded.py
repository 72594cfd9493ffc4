"""``python -m fuzz.workbench.seeded``: faults seeded into backends and compilers, found by ``reduce`` and ``bisect``.

A backend that is wrong for one operation, size, type or layout runs a program of JAX; what ``reduce`` leaves of it has
at most five instructions, with those that are applied to elements, unless its operation takes more. A compiler with a
wrong rule, a wrong pass, or wrong code for fusions compiles it; ``bisect`` names what is wrong. The exit status is 1
where not.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import xlakit as xla
from fuzz.support.numbered import command
from fuzz.workbench.programs import hlo, optimized

_HERE = Path(__file__).parent
FAULTY: Final = str(_HERE / "faulty.py")
BROKEN: Final = str(_HERE / "broken_compiler.py")
_MOST_INSTRUCTIONS = 5
# What an operation cannot do without: a scatter reads two arrays of different types, and its computation is a root with
# two parameters. A loop until its value changes has seven instructions beside what fails: two of the entry, of the
# condition the value, its element, a constant and the comparison, and of the body the value.
_LEAST_POSSIBLE: Final[Mapping[str, int]] = {"reducer": 6, "looped": 8}
# The program that each fault of faulty.py is seeded into, and the origin of its HLO: JAX, XLA's passes, or JAX with the
# tiles that a TPU gives to arrays.
REDUCED: Final[Mapping[str, tuple[str, str]]] = {
    "opcode": ("transformer", "jax"),
    "rank": ("transformer", "jax"),
    "contraction": ("transformer", "jax"),
    "rows": ("transformer", "jax"),
    "columns": ("recurrent", "jax"),
    "dilation": ("convolutions", "jax"),
    "window": ("convolutions", "jax"),
    "matrices": ("gaussian_process", "jax"),
    "amount": ("sampler", "jax"),
    "indices": ("beam_search", "jax"),
    "reducer": ("graph_network", "jax"),
    "kind": ("waves", "jax"),
    "bfloat16": ("mixed_precision", "jax"),
    "integers": ("quantized", "jax"),
    "looped": ("recurrent", "jax"),
    "fusion": ("transformer", "xla"),
    "tile": ("recurrent", "tpu"),
}
_UNTILED: Final = re.compile(r"(f32\[\d+(?:,\d+)+\]\{[\d,]+)\}")
# The program that each fault of broken_compiler.py is seeded into, and what bisect is to name: a rule, a pass, or
# the memory plan.
BISECTED: Final[Mapping[str, tuple[str, str]]] = {
    "rule": ("transformer", "square-is-self"),
    "difference": ("recurrent", "subtract-is-add"),
    "quotient": ("gaussian_process", "divide-is-multiply"),
    "maximum": ("convolutions", "maximum-is-first"),
    "negations": ("transformer", "forget-negate"),
    "transposes": ("gaussian_process", "forget-transpose"),
    "bits": ("sampler", "forget-xor"),
    "fused": ("recurrent", "fusion"),
    "copies": ("recurrent", "memory plan"),
}


def module(program: str, made_by: str) -> xla.HloModule:
    """A program as JAX makes it, as XLA's passes leave it, or with the layouts that it has on a TPU."""
    made = xla.HloModule.from_proto(optimized(program) if made_by == "xla" else hlo(program))
    return xla.HloModule.from_text(_UNTILED.sub(r"\1:T(8,128)}", made.to_text())) if made_by == "tpu" else made


def reduced(fault: str, jobs: int = 1) -> tuple[dict[str, Any], xla.HloModule]:
    """What ``xlakit reduce`` reports and leaves of the program that a fault is seeded into."""
    with tempfile.TemporaryDirectory(prefix="seeded-") as folder:
        given, left = Path(folder) / "given.hlo", Path(folder) / "left.hlo"
        given.write_text(module(*REDUCED[fault]).to_text())
        options = ["--compare", "faulty,interpreter", "--load", FAULTY, "--jobs", str(jobs), "-o", str(left)]
        report = _xlakit("reduce", given, options, fault)
        return report, xla.HloModule.from_text(left.read_text())


def bisected(fault: str, jobs: int = 1) -> dict[str, Any]:
    """What ``xlakit bisect`` reports of a compiler's fault."""
    with tempfile.TemporaryDirectory(prefix="seeded-") as folder:
        given = Path(folder) / "given.hlo"
        given.write_text(module(BISECTED[fault][0], "jax").to_text())
        options = ["--compare", "broken,interpreter", "--load", BROKEN, "--jobs", str(jobs)]
        return _xlakit("bisect", given, options, fault)


def _xlakit(verb: str, given: Path, options: Sequence[str], fault: str) -> dict[str, Any]:
    # A process of its own: the files that are loaded change the compiler.
    done = subprocess.run(
        [sys.executable, "-m", "xlakit", verb, str(given), "--json", *options],
        # Nothing but bisect proves memory plans here.
        env={**os.environ, "FAULT": fault, "XLAKIT_CHECK_MEMORY": "0"},
        stdout=subprocess.PIPE,
        check=False,
    )
    report = json.loads(done.stdout)
    if "error" in report:
        raise UnseenError(f"xlakit {verb}: {report['error']['message']}")
    return report


class UnseenError(Exception):
    """A verb does not see a fault."""


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = command("fuzz.workbench.seeded", __doc__)
    parser.add_argument("--only", action="append", choices=[*REDUCED, *BISECTED], help="this fault alone")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time (1)")
    parser.add_argument("--show", action="store_true", help="print what is left, and what bisect reports")
    options = parser.parse_args(arguments)
    wanted = options.only or [*REDUCED, *BISECTED]
    missed = [fault for fault in REDUCED if fault in wanted and not _reduces(fault, options)]
    missed += [fault for fault in BISECTED if fault in wanted and not _is_named(fault, options)]
    print(f"{len(wanted)} faults, {len(missed)} not as they should be: {', '.join(missed) or 'none'}")
    return 1 if missed else 0


def _reduces(fault: str, options: argparse.Namespace) -> bool:
    try:
        report, left = reduced(fault, options.jobs)
    except UnseenError as error:
        print(f"reduce {fault:14} {error}", flush=True)
        return False
    print(
        f"reduce {fault:14} {' of '.join(REDUCED[fault]):24} {report['instructions_before']:5} -> "
        f"{report['instructions']:2} instructions, {report['bytes_before']:6} -> "
        f"{report['bytes']:4} bytes, {report['tries']:4} tries, {report['seconds']:5.1f} s",
        flush=True,
    )
    if options.show:
        print(left)
    most = _LEAST_POSSIBLE.get(fault, _MOST_INSTRUCTIONS)
    return report["instructions"] <= most and report["is_minimal"]


def _is_named(fault: str, options: argparse.Namespace) -> bool:
    start = time.monotonic()
    try:
        report = bisected(fault, options.jobs)
    except UnseenError as error:
        print(f"bisect {fault:14} {error}", flush=True)
        return False
    program, cause = BISECTED[fault]
    print(
        f"bisect {fault:14} {program:24} {report['rule']} in {report['pass_name']}, rewrite {report['fuel']} of "
        f"{report['rewrites']}, {report['tries']} tries, {time.monotonic() - start:.1f} s {report['memory_fault']}",
        flush=True,
    )
    if options.show:
        print(report["before"], report["after"], sep="\n->\n")
    return cause in (report["rule"], report["pass_name"]) or cause in report["memory_fault"]


if __name__ == "__main__":
    sys.exit(main())
