"""``python -m fuzz.sharded``: generated modules, split over partitions in ways made by chance, give what they gave.

The modules are those of :mod:`fuzz.modules`. Arguments, results and some instructions get shardings of all kinds,
over 2, 4 or 8 partitions. What all partitions give, put together, must agree with the whole program's results, and
copies of a part must be the same to the bit.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

import numpy as np

from fuzz.modules import difference, epsilons
from fuzz.programs.draft import Program
from fuzz.programs.modules import module
from fuzz.programs.shardings import annotated, cut, join
from xlakit import compile as compile_program
from xlakit.ir.instruction import HloModule
from xlakit.passes.spmd import split_over
from xlakit.tools.inputs import flatten


def split(program: Program, number: int) -> HloModule:
    """The program of one partition, for shardings made from a number."""
    rng = np.random.default_rng([17, number])
    partitions = int(rng.choice([2, 4, 8]))
    made = split_over(annotated(HloModule.from_text(program.text), rng, partitions), partitions)
    made.verify()
    return made


def judge(program: Program, number: int, backend: str = "interpreter") -> str:
    """What is wrong with the split module; empty where nothing is."""
    whole = HloModule.from_text(program.text)
    expected = flatten(compile_program(whole, backend="interpreter")(*program.arguments[0]))
    try:
        made = split(program, number)
        count = made.num_partitions
        shards = [
            cut(np.asarray(a), s, count)
            for a, s in zip(program.arguments[0], made.spmd_parameters_shardings, strict=True)
        ]
        executable = compile_program(made, backend=backend)
        results = [flatten(r) for r in executable.execute_replicated([[s[p] for s in shards] for p in range(count)])]
    except Exception as error:  # any exception is a finding, with the program that caused it
        return f"{type(error).__name__}: {error}"
    said = made.spmd_output_sharding
    assert said is not None
    own = epsilons(whole)
    for (name, value), sharding, epsilon in zip(expected.items(), said.elements or (said,), own, strict=True):
        try:
            actual = join([np.asarray(r[name]) for r in results], sharding, np.shape(value))
        except ValueError as error:
            return f"result {name}: {error}"
        fault = difference(actual, value, epsilon)
        if fault:
            return f"result {name}: {fault}"
    return ""


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(
        allow_abbrev=False, prog="python -m fuzz.sharded", description=(__doc__ or "").split("\n\n", 1)[0]
    )
    parser.add_argument("--count", type=int, default=2000, help="how many modules (2000)")
    parser.add_argument("--seed", type=int, default=0, help="what they are made from (0)")
    parser.add_argument("--number", type=int, help="one module, by its number, with its text")
    parser.add_argument("--backend", default="interpreter", help="what runs the split module (interpreter)")
    options = parser.parse_args(arguments)
    numbers = range(options.count) if options.number is None else [options.number]
    failures, start = 0, time.monotonic()
    for number in numbers:
        program = module(options.seed, number)
        if options.number is not None:
            print(program.text, split(program, number).to_text(), sep="\n")
        fault = judge(program, number, options.backend)
        if fault:
            failures += 1
            print(f"{number}: {fault}", flush=True)
    print(f"{len(numbers)} modules, {failures} wrong, {time.monotonic() - start:.0f} s")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
