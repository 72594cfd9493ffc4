"""``python -m fuzz.compiled``: the same programs on the compiled backend and on the interpreter.

Each program has one operation, and is made from a seed; the tolerances are those of ``fuzz.support.tolerances``. The
exit status is 1 where a result differs, or where the compiled backend refuses what the interpreter runs.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

from fuzz.jaxlib import fault_of, flat
from fuzz.programs.draft import Program
from fuzz.programs.plan import Entry, chosen
from fuzz.support import numbered
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
    parser = numbered.parser("fuzz.compiled", __doc__, 2000)
    parser.add_argument("--only", default="", metavar="OPCODE", help="the programs of one operation")
    options = parser.parse_args(arguments)
    entries, tally = chosen(parser, options), numbered.Tally()
    if options.seconds is not None:
        random.Random(options.seed).shuffle(entries)

    def fault_of(entry: Entry) -> str:
        program = entry.make()
        numbered.show(options, program.text)
        outcome, detail = judge(program)
        return tally.fault(f"fuzz.compiled {entry}", outcome, f"({program.case}) {detail}")

    programs = (numbered.Entry(str(entry), partial(fault_of, entry)) for entry in entries)
    return numbered.run("fuzz.compiled", programs, options.seconds, tally.summary)


if __name__ == "__main__":
    sys.exit(main())
