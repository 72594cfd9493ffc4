"""``python -m fuzz.plain``: programs compiled as usual and plainly must give the same.

Plain code shares, reuses, fuses, inlines and reorders nothing (:mod:`xlakit.options`); it needs no interpreter, so that
programs may be large. There are generated ones, small (``--of modules``) and large (``--of large``), and files of HLO
with made up arguments::

    python -m fuzz.plain --seed 7 --seconds 60
    python -m fuzz.plain --of large --count 100
    python -m fuzz.plain step.hlo.txt --what memory

Results must be equal to the bit, but for those that sums of floats go into, and functions of constants where rewrites
are left out, which :mod:`xlakit.passes.analysis.roundings` finds. Where one of these differs by more than the order of
a sum makes of it, the plain program is run again with each rounding going a bit further
(:mod:`fuzz.support.sensitivity`): what hangs on roundings as much as that says nothing. With ``--what memory`` no
rounding differs, and all results must be equal. The exit status is 1 where a result differs.

:func:`fault_of` judges any module; :func:`judge` a generated program.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fuzz.large import plan as large_plan
from fuzz.programs.composed.modules import module as small_program
from fuzz.programs.draft import Program
from fuzz.programs.large.drafts import KINDS, large_program
from fuzz.support import numbered
from fuzz.support.sensitivity import spread
from xlakit import compile as compile_program
from xlakit.cpu.debugging.verified import difference
from xlakit.execution.inputs import make_inputs
from xlakit.formats.detect import load
from xlakit.ir.instruction import HloModule
from xlakit.options import DEFAULT, PLAIN, Options, compiling, current
from xlakit.passes.analysis.roundings import inexact_results, largest_epsilon
from xlakit.tools.inputs import flatten

# Sums round many times where each instruction is nudged once.
_SPREADS = 32.0
# What leaves every rounding as it is.
_EXACT = frozenset({"memory", "inline"})


def judge(program: Program, what: str = "all") -> str:
    """Describe the fault of a generated program's code, compared with that without ``what``; "" if there is none."""
    return fault_of(HloModule.from_text(program.text), program.arguments[0], what)


def fault_of(
    module: HloModule, arguments: Sequence[Any], what: str = "all", actual: Mapping[str, Any] | None = None
) -> str:
    """Describe the fault of a module's code, compared with that without ``what``; "" if there is none.

    actual: what its code gives, where it has run.
    """
    left_out = set(PLAIN) if what == "all" else set(what.split(","))
    try:
        actual = _results(module, arguments) if actual is None else actual
        with _plainly(left_out):
            expected = _results(module, arguments)
        # Vectors of another width add the parts of a sum in another order.
        is_exact = left_out <= _EXACT and current().vector_bytes == DEFAULT.vector_bytes
        inexact = [False] * len(expected) if is_exact else inexact_results(module)
        fault, suspects = _compared(module, actual, expected, inexact)
        if fault and "rewrites" in left_out:
            # Functions of constants are NumPy's in one of the two: not where the same passes run on both sides.
            with compiling(plain=current().plain | (left_out & {"memory", "llvm"})):
                alike = _results(module, arguments)
            fault, _ = _compared(module, actual, alike, inexact)
            if not fault:
                fault, suspects = _compared(module, actual, expected, inexact_results(module, folds=True))
    except Exception as error:  # any exception is a finding, with the program that caused it
        return f"{type(error).__name__}: {error}"
    if fault or not suspects:
        return fault
    with _plainly(left_out):
        return _beyond_roundings(module, arguments, actual, expected, suspects)


def _plainly(left_out: Collection[str]) -> AbstractContextManager[Options]:
    """Options of plain code that has the numbers of the code in force.

    Without FMA elementary functions have other last bits.
    """
    return compiling(DEFAULT, plain=left_out, cpu=current().cpu, flush_subnormals=current().flush_subnormals)


def sums_apart(
    module: HloModule, arguments: Sequence[Any], actual: Mapping[str, Any], expected: Mapping[str, Any]
) -> str:
    """What is wrong where two runs of the same code may add floats in another order, and differ in nothing else."""
    fault, suspects = _compared(module, actual, expected, inexact_results(module))
    return fault or _beyond_roundings(module, arguments, actual, expected, suspects)


def _beyond_roundings(
    module: HloModule,
    arguments: Sequence[Any],
    actual: Mapping[str, Any],
    expected: Mapping[str, Any],
    suspects: Sequence[str],
) -> str:
    """Which of some results are further apart than roundings make them; empty where none is."""
    if not suspects:
        return ""
    spreads = spread(module, arguments, backend="cpu")
    faults = ((name, _beyond(actual[name], expected[name], spreads[name])) for name in suspects)
    return next((f"result {name}: {fault}, more than roundings make of it" for name, fault in faults if fault), "")


def _results(module: HloModule, arguments: Sequence[Any]) -> dict[str, Any]:
    return flatten(compile_program(module, backend="cpu", cache=False)(*arguments))


def _compared(
    module: HloModule, actual: Mapping[str, Any], expected: Mapping[str, Any], inexact: Sequence[bool]
) -> tuple[str, list[str]]:
    """Describe the fault of a result that must be exact, "" if there is none.

    Name others that roundings alone do not explain.
    """
    epsilon = largest_epsilon(module)
    suspects: list[str] = []
    for (name, other), rounded in zip(expected.items(), inexact, strict=True):
        fault = difference(np.asarray(actual[name]), np.asarray(other), epsilon if rounded else None)
        if fault and not rounded:
            return f"result {name}: {fault}, where no rounding may differ", []
        if fault:
            suspects.append(name)
    return "", suspects


def _beyond(actual: Any, expected: Any, spread: Any) -> str:
    a, b = (np.asarray(x).astype(np.complex128) for x in (actual, expected))
    with np.errstate(all="ignore"):
        off = np.abs(a - b)
        wrong = ~((a == b) | (np.isnan(a) & np.isnan(b)) | (off <= _SPREADS * spread) | ~np.isfinite(spread))
    return f"{np.count_nonzero(wrong)} of {wrong.size} elements, by up to {off[wrong].max()}" if wrong.any() else ""


def _programs(options: argparse.Namespace) -> Iterator[tuple[str, HloModule, Sequence[Any]]]:
    """The programs: what names one, its module, and arguments."""
    for path in options.files:
        module = load(Path(path).read_bytes(), path)
        yield path, module, make_inputs(module.entry.program_shape, options.seed)
    if options.files:
        return
    if options.of == "large":
        chosen = [(options.only, options.seed, options.number)]
        if options.number is None:
            chosen = large_plan(options.count, options.seed, options.only)
            random.Random(options.seed).shuffle(chosen)
        made = ((f"--of large --only {k} --seed {s} --number {n}", large_program(k, s, n)) for k, s, n in chosen)
    else:
        numbers = range(options.count) if options.number is None else [options.number]
        made = ((f"--seed {options.seed} --number {n}", small_program(options.seed, n)) for n in numbers)
    for name, program in made:
        numbered.show(options, program.text)
        yield name, HloModule.from_text(program.text), program.arguments[0]


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = numbered.parser("fuzz.plain", __doc__, 1000)
    parser.add_argument("files", nargs="*", help="programs, instead of generated ones")
    parser.add_argument("--of", choices=["modules", "large"], default="modules", help="which generated programs")
    parser.add_argument("--what", default="all", help=f"what plain code leaves out: {', '.join(PLAIN)}, or all of it")
    parser.add_argument("--only", default="", metavar="KIND", help="large programs of one kind")
    options = parser.parse_args(arguments)
    if options.only:
        numbered.names_of(parser, [options.only], KINDS, "kind")
    if options.number is not None and options.of == "large" and not options.only:
        parser.error("--number of large programs needs --only")
    if options.what != "all":
        numbered.names_of(parser, options.what.split(","), PLAIN, "part of plain code")
    missing = [name for name in options.files if not Path(name).is_file()]
    if missing:
        parser.error(f"there is no file {missing[0]}")
    entries = (
        numbered.Entry(f"--what {options.what} {name}", partial(fault_of, module, given, options.what))
        for name, module, given in _programs(options)
    )
    return numbered.run("fuzz.plain", entries, options.seconds)


if __name__ == "__main__":
    sys.exit(main())
