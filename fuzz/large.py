"""``python -m fuzz.large``: programs on large arrays, compiled, on one thread and on several, and interpreted.

Kernels cut their work into tasks, blocks and strips, at sizes that the programs of the other commands do not have. Here
arrays have up to some million elements, with odd rests. Most results have the interpreter's bits: their values are such
that no rounding is done. Those of transforms and factorizations are as near as ``fuzz.support.tolerances`` says. All
have the same bits on any number of threads, of other values too, which are rounded. Products and convolutions have a
net of their own, ``fuzz.products``. The exit status is 1 where a result differs.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from fuzz.jaxlib import fault_of, flat
from fuzz.programs.draft import Program
from fuzz.programs.large import algebra, indexing, layers, moves, orders, products, reductions
from fuzz.programs.large.drafts import EQUAL, KINDS, large_program
from fuzz.programs.values import Array
from fuzz.support.numbered import Entry, parser, run, show
from fuzz.support.tolerances import EXACT
from xlakit import compile as compile_program, threads
from xlakit.data.primitive import PrimitiveType
from xlakit.ir.instruction import HloModule

# The pages enter their kinds when they are loaded.
PAGES = (moves, indexing, reductions, orders, algebra, products, layers)
_THREADS = (1, 2, 3)


def plan(count: int, seed: int, only: str = "") -> list[tuple[str, int, int]]:
    """At least ``count`` programs by kind, seed and number: by the weights of the kinds, or all of one."""
    kinds = [k for k in KINDS.values() if not only or k.name == only]
    total = sum(k.weight for k in kinds)
    return [(k.name, seed, number) for k in kinds for number in range(-int(-count * k.weight // total))]


def judge(program: Program) -> str:
    """Describe the fault of a program's compiled code; "" if there is none."""
    module = HloModule.from_text(program.text)
    (arguments,) = program.arguments
    expected = flat([compile_program(module, backend="interpreter")(*arguments)])
    try:
        executable = compile_program(module, backend="cpu", cache=False)
        results = [_on_threads(executable, arguments, count) for count in _THREADS]
    except Exception as error:  # any exception is a finding, with the program that caused it
        return f"{type(error).__name__}: {error}"
    for count, actual in zip(_THREADS, results, strict=True):
        fault = fault_of(program, actual, expected)
        if fault is not None:
            return f"on {count} threads: {fault}"
    if program.tolerance in (EXACT, EQUAL):
        # Sums of whole numbers are the same in any order: of others they tell whether the order is.
        given = rough(arguments)
        results = [_on_threads(executable, given, count) for count in _THREADS]
    bits = [[leaf.tobytes() for leaf in result] for result in results]
    return "" if all(b == bits[0] for b in bits) else "the bits depend on the number of threads"


def rough(arguments: Sequence[Array]) -> list[Array]:
    """The arguments with every number of a floating point type a bit larger or smaller, so that sums are rounded."""
    rng = np.random.default_rng(0)
    factors = 1 + rng.random(50_021) / 3
    with np.errstate(all="ignore"):
        return [a if _is_whole(a) else (a * np.resize(factors, a.shape)).astype(a.dtype) for a in arguments]


def _is_whole(array: Array) -> bool:
    kind = PrimitiveType.from_dtype(array.dtype)
    return not (kind.is_floating or kind.is_complex)


def _on_threads(executable: Any, arguments: Sequence[Any], count: int) -> list[Any]:
    with threads(count):
        return [np.asarray(leaf) for leaf in flat([executable(*arguments)])]


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    options_of = parser("fuzz.large", __doc__, 1000)
    options_of.add_argument("--only", default="", metavar="KIND", help="the programs of one kind")
    options = options_of.parse_args(arguments)
    if options.only and options.only not in KINDS:
        options_of.error(f"no programs of kind '{options.only}'; there are: {', '.join(sorted(KINDS))}")
    if options.number is not None and not options.only:
        options_of.error("--number needs --only")
    chosen = plan(options.count, options.seed, options.only)
    if options.number is not None:
        chosen = [(options.only, options.seed, options.number)]

    def fault_of(name: str, seed: int, number: int) -> str:
        program = large_program(name, seed, number)
        show(options, program.text)
        fault = judge(program)
        return f"({program.case}) {fault}" if fault else ""

    entries = [Entry(f"--only {k} --seed {s} --number {n}", partial(fault_of, k, s, n)) for k, s, n in chosen]
    return run("fuzz.large", entries, options.seconds)


if __name__ == "__main__":
    sys.exit(main())
