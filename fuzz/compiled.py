"""``python -m fuzz.compiled``: the same programs on the compiled backend and on the interpreter.

Each program has one operation, and is made from a seed; the tolerances are those of ``fuzz.support.tolerances``. The
exit status is 1 where a result differs, or where the compiled backend refuses what the interpreter runs.
"""

from __future__ import annotations

import random
import sys
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

from fuzz.jaxlib import fault_of, flat
from fuzz.programs.draft import FAMILIES, Program
from fuzz.programs.plan import Entry, plan
from fuzz.support.numbered import command
from xlakit import compile as compile_program
from xlakit.errors import UnsupportedError
from xlakit.ir.instruction import HloModule


def judge(program: Program) -> tuple[str, str]:
    """``"agreed"``, ``"unsupported"`` or ``"failed"``, and what is to be said of it."""
    module = HloModule.from_text(program.text)
    replicas = len(program.arguments)
    expected = flat(_run(module, "interpreter", replicas, program))
    try:
        actual = flat(_run(module, "cpu", replicas, program))
    except UnsupportedError as error:
        return "unsupported", error.rule
    except Exception as error:  # any other exception is a finding
        return "failed", f"{type(error).__name__}: {error}"
    fault = fault_of(program, actual, expected)
    return ("agreed", "") if fault is None else ("failed", fault)


def _run(module: HloModule, backend: str, replicas: int, program: Program) -> list[Any]:
    return compile_program(module, backend=backend, num_replicas=replicas, cache=False).execute_replicated(
        program.arguments
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = command("fuzz.compiled", __doc__)
    parser.add_argument("--count", type=int, default=2000, help="how many programs, at least (2000)")
    parser.add_argument("--seed", type=int, default=0, help="what the programs are made from (0)")
    parser.add_argument("--only", default="", metavar="OPCODE", help="the programs of one operation")
    parser.add_argument("--seconds", type=float, help="begin no more after this time, having shuffled them")
    parser.add_argument("--number", type=int, help="one program, by its number; with --only")
    options = parser.parse_args(arguments)
    if options.only and options.only not in FAMILIES:
        parser.error(f"no programs for '{options.only}'; there are: {', '.join(sorted(FAMILIES))}")
    entries = plan(options.count, options.seed, options.only)
    if options.number is not None:
        entries = [Entry(options.only, options.seed, options.number)]
        print(entries[0].make().text)
    counts: Counter[str] = Counter()
    done, start = 0, time.monotonic()
    if options.seconds is not None:
        random.Random(options.seed).shuffle(entries)
    for entry in entries:
        if options.seconds is not None and time.monotonic() - start > options.seconds:
            break
        done += 1
        program = entry.make()
        status, detail = judge(program)
        counts[status] += 1
        if status != "agreed":
            print(f"{status.upper()} python -m fuzz.compiled {entry} ({program.case}): {detail}", flush=True)
        if done % 100 == 0:
            print(f"{done}/{len(entries)} programs, {time.monotonic() - start:.0f} s", file=sys.stderr)
    print(f"{done} programs: " + ", ".join(f"{n} {status}" for status, n in sorted(counts.items())))
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
