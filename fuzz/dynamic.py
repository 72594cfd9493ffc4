"""``python -m fuzz.dynamic``: programs on arrays of bounded dynamic dimensions, compiled and interpreted, must agree.

They are chains of operations on small integers, so results must be equal. Programs that the interpreter refuses as they
run (an array that cannot be reshaped at the size that it has) must be refused by compiled code too. The exit status is
1 where anything differs.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Sequence

from fuzz.modules import difference
from fuzz.programs.dynamic import DynamicProgram, dynamic_program
from xlakit import compile as compile_program
from xlakit.errors import ExecutionError, UnsupportedError
from xlakit.tools.inputs import flatten


def judge(program: DynamicProgram) -> tuple[str, str]:
    """``"agreed"``, ``"refused"`` by both, ``"unsupported"`` or ``"failed"``, and what is to be said of it."""
    refused = ""
    try:
        expected = flatten(compile_program(program.module, backend="interpreter")(*program.arguments))
    except ExecutionError as error:
        refused, expected = error.rule, {}
    try:
        actual = flatten(compile_program(program.module, backend="cpu", cache=False)(*program.arguments))
    except UnsupportedError as error:
        return "unsupported", error.rule
    except ExecutionError as error:
        return ("refused", "") if refused else ("failed", error.rule)
    except Exception as error:  # any other exception is a finding
        return "failed", f"{type(error).__name__}: {error}"
    if refused:
        return "failed", f"runs, where the interpreter says: {refused}"
    for name, value in expected.items():
        fault = difference(actual[name], value)
        if fault:
            return "failed", f"result {name}: {fault}"
    return "agreed", ""


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(
        allow_abbrev=False, prog="python -m fuzz.dynamic", description=(__doc__ or "").split("\n\n", 1)[0]
    )
    parser.add_argument("--count", type=int, default=1000, help="how many programs (1000)")
    parser.add_argument("--seed", type=int, default=0, help="what they are made from (0)")
    parser.add_argument("--seconds", type=float, help="begin no more after this time")
    parser.add_argument("--number", type=int, help="one program, by its number, with its text")
    options = parser.parse_args(arguments)
    numbers = range(options.count) if options.number is None else [options.number]
    counts, done, start = Counter[str](), 0, time.monotonic()
    for number in numbers:
        if options.seconds is not None and time.monotonic() - start > options.seconds:
            break
        done += 1
        program = dynamic_program(options.seed, number)
        if options.number is not None:
            print(program.module.to_text())
        status, detail = judge(program)
        counts[status] += 1
        if status in ("unsupported", "failed"):
            place = f"python -m fuzz.dynamic --seed {options.seed} --number {number}"
            print(f"{status.upper()} {place}: {detail}", flush=True)
        if done % 100 == 0:
            print(f"{done} programs, {counts['failed']} failures, {time.monotonic() - start:.0f} s", file=sys.stderr)
    print(f"{done} programs: " + ", ".join(f"{n} {status}" for status, n in sorted(counts.items())))
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
