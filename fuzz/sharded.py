"""``python -m fuzz.sharded``: generated modules, split over partitions in ways made by chance, give what they gave.

The modules are those of :mod:`fuzz.modules`. Arguments, results and some instructions get shardings of all kinds,
over 2, 4 or 8 partitions. What all partitions give, put together, must agree with the whole program's results, and
copies of a part must be the same to the bit. Products of gathered arrays, and scattered sums of products, are computed
in steps.

With ``--chains`` the programs are short ones of operations along dimensions (slices, pads, rolls, windows,
convolutions) on sizes of all kinds, over 2, 3, 4, 6 or 8 partitions; whole numbers and moved elements must agree to the
bit. With ``--products`` they are chains of products with whole numbers, to the bit.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy as np

from fuzz.modules import difference, difference_in_bits, epsilons
from fuzz.programs.composed.modules import module
from fuzz.programs.composed.split_chains import chain, product_chain
from fuzz.programs.draft import Program
from fuzz.programs.shardings import annotated, cut, join
from fuzz.programs.split_steps import STEPS, register_calls
from fuzz.support import numbered
from xlakit import compile as compile_program
from xlakit.ir.instruction import HloModule
from xlakit.options import compiling
from xlakit.passes.core.framework import PassContext
from xlakit.passes.pipeline import run_pipeline
from xlakit.passes.spmd import split_over
from xlakit.tools.inputs import flatten

# How often an instruction of a module gets a sharding.
_OFTEN = 0.25


def sharded_module(seed: int, number: int) -> Program:
    """A module to be split; half of them have groups that are sharded alike, and calls on each element of a batch."""
    return module(seed, number, more=STEPS if number % 2 else ())


def split(program: Program, number: int, *, often: float = _OFTEN) -> HloModule:
    """The program of one partition, for shardings made from a number: so often of an instruction."""
    rng = np.random.default_rng([17, number])
    partitions = int(rng.choice([2, 3, 4, 6, 8] if often != _OFTEN else [2, 4, 8]))
    whole = HloModule.from_text(program.text)
    made = split_over(annotated(whole, rng, partitions, often=often), partitions)
    made.verify()
    # All gathered operands and scattered sums of products are computed in steps.
    with compiling(knobs={"collective_matmul.when": 2}):
        return run_pipeline(made, ["collective-matmul"], context=PassContext(check=True))


def judge(
    program: Program, number: int, backend: str = "interpreter", *, often: float = _OFTEN, exact: bool = False
) -> str:
    """Describe the fault of the split module; "" if there is none. ``exact``: to the bit."""
    whole = HloModule.from_text(program.text)
    expected = flatten(compile_program(whole, backend="interpreter")(*program.arguments[0]))
    try:
        made = split(program, number, often=often)
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
        fault = difference_in_bits(actual, value) if exact else difference(actual, value, epsilon)
        if fault:
            return f"result {name}: {fault}"
    return ""


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = numbered.parser("fuzz.sharded", __doc__, 2000)
    parser.add_argument("--backend", default="interpreter", help="what runs the split module (interpreter)")
    parser.add_argument("--chains", action="store_true", help="chains of operations along dimensions, to the bit")
    parser.add_argument("--products", action="store_true", help="chains of products, to the bit")
    options = parser.parse_args(arguments)
    register_calls()

    made, often, flag = sharded_module, _OFTEN, ""
    if options.chains:
        # Few shardings inside of a chain, since one would often undo what the operation before it did.
        made, often, flag = chain, 0.08, " --chains"
    elif options.products:
        made, often, flag = product_chain, 0.5, " --products"

    def fault_of(number: int) -> str:
        program = made(options.seed, number)
        if options.number is not None:
            print(program.text, split(program, number, often=often).to_text(), sep="\n")
        return judge(program, number, options.backend, often=often, exact=bool(flag))

    entries = numbered.entries(options, fault_of, flag)
    return numbered.run("fuzz.sharded", entries, options.seconds)


if __name__ == "__main__":
    sys.exit(main())
