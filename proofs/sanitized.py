"""``python -m proofs.sanitized``: generated modules run step by step, under the watch of the sanitizer.

Every other module has knobs and the width of vectors drawn as in :mod:`proofs.forced`, so that more kernels and more
plans are seen; see :mod:`xlakit.cpu.sanitizer` for what is found. What modules give is compared with what they give
without the watch, to the bit. Modules that Python has a part in are among them; those of several devices are not.

    python -m proofs.sanitized --seed 7 --seconds 60
    python -m proofs.sanitized --seed 7 --number 12         one module, with its text

:func:`judge` takes any program, and options to compile it with. The exit status is 1 where something is wrong.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from proofs.forced import draw
from proofs.programs.draft import Program
from proofs.programs.modules import module as generated
from xlakit import compile as compile_program
from xlakit.cpu.verified import difference
from xlakit.ir.instruction import HloModule
from xlakit.options import DEFAULT, Options, compiling
from xlakit.tools.inputs import flatten


def judge(program: Program, options: Options = DEFAULT) -> str:
    """What the sanitizer says of a program that is compiled with options; empty where it finds nothing."""
    module, arguments = HloModule.from_text(program.text), program.arguments[0]
    # Kernels are the same, but that they stay functions.
    with compiling(replace(options, plain=options.plain | {"inline"})):
        expected = flatten(compile_program(module, backend="cpu", cache=False)(*arguments))
    try:
        with compiling(replace(options, sanitize=True)):
            actual = flatten(compile_program(module, backend="cpu", cache=False)(*arguments))
    except Exception as error:  # any exception is a finding, with the program that caused it
        return f"{type(error).__name__}: {error}"
    faults = ((name, difference(np.asarray(actual[name]), np.asarray(other))) for name, other in expected.items())
    return next(
        (f"result {name} is another one than without the watch: {fault}" for name, fault in faults if fault), ""
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(
        allow_abbrev=False, prog="python -m proofs.sanitized", description=(__doc__ or "").split("\n\n", 1)[0]
    )
    parser.add_argument("--seconds", type=float, default=600.0, help="begin no more programs after this time (600)")
    parser.add_argument("--count", type=int, default=1_000_000, help="how many programs at most")
    parser.add_argument("--seed", type=int, default=0, help="what they are made from (0)")
    parser.add_argument("--number", type=int, help="one program, by its number, with its text")
    options = parser.parse_args(arguments)
    failures, done, start = 0, 0, time.monotonic()
    for number in range(options.count) if options.number is None else [options.number]:
        if options.number is None and time.monotonic() - start > options.seconds:
            break
        done += 1
        program = generated(options.seed, number)
        if options.number is not None:
            print(program.text)
        fault = judge(program, draw(options.seed, number) if number % 2 else DEFAULT)
        if fault:
            failures += 1
            print(f"FAILED python -m proofs.sanitized --seed {options.seed} --number {number}: {fault}", flush=True)
        if done % 100 == 0:
            print(f"{done} programs, {failures} failures, {time.monotonic() - start:.0f} s", file=sys.stderr)
    print(f"{done} programs, {failures} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
