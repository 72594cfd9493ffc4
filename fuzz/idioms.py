"""``python -m fuzz.idioms``: programs as people write them, compiled and interpreted, must agree.

There are two families: what loops and branches do to the tuples that they carry (``carried``), and well-known
algorithms written with them (``known``). All numbers of the first are small whole ones, so results must agree in every
bit; those of the second may differ by roundings. ``--against plain`` compares with the same program compiled plainly
(:mod:`xlakit.options`) instead of interpreted. Programs are judged in a process of their own, so that one that dies is
a finding, too; what is found is made smaller and kept as HLO text where ``--keep`` says.
"""

from __future__ import annotations

import itertools
import pickle
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fuzz.modules import difference, epsilons
from fuzz.programs.composed.carried import carried_program
from fuzz.programs.composed.known import known_program
from fuzz.programs.composed.sketch import Sketched
from fuzz.support.children import Child
from fuzz.support.numbered import Entry, parser, run
from fuzz.support.sensitivity import spread
from fuzz.support.shrink import shrink
from xlakit import compile as compile_program
from xlakit.ir.instruction import HloModule
from xlakit.options import compiling
from xlakit.tools.inputs import flatten

FAMILIES: dict[str, Callable[[int, int], Sketched]] = {"carried": carried_program, "known": known_program}
# The references that compiled code is compared with.
REFERENCES = ("interpreter", "plain")
Given = tuple[str, bytes, tuple[int, ...], bool]


def results_of(module: HloModule, given: Sequence[Any], donated: Sequence[int], backend: str) -> dict[str, Any]:
    """The results of one backend by their place, with what was handed to effects."""
    seen: list[Any] = []

    def record(value: Any) -> Any:
        seen.append(np.array(value))
        return value

    compiled = compile_program(module, backend=backend, cache=False, custom_calls={"record": record})
    arguments = [np.array(a) for a in given]
    found = flatten(compiled(*arguments, donate=donated) if donated and backend == "cpu" else compiled(*arguments))
    return {**found, **{f"effect {i}": value for i, value in enumerate(seen)}}


def same(actual: Any, expected: Any) -> bool:
    """Whether two arrays have the same bits; elements of less than a byte the same values."""
    a, b = np.asarray(actual), np.asarray(expected)
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if a.dtype.kind not in "biufc" and np.issubdtype(a.astype(np.float64).dtype, np.floating):
        a, b = a.astype(np.float64), b.astype(np.float64)
    return a.tobytes() == b.tobytes()


def judge(text: str, pickled: bytes, donated: tuple[int, ...], is_exact: bool, against: Sequence[str]) -> str:
    """Describe the fault of a module's compiled code; "" if there is none."""
    module, given = HloModule.from_text(text), pickle.loads(pickled)
    try:
        actual = results_of(module, given, donated, "cpu")
        for reference in against:
            fault = _fault(module, given, actual, _expected(module, given, reference), is_exact)
            if fault:
                return f"{fault} ({reference})"
    except Exception as error:  # any exception is a finding, with the program that caused it
        return f"{type(error).__name__}: {error}"
    return ""


def _expected(module: HloModule, given: Sequence[Any], reference: str) -> dict[str, Any]:
    if reference == "interpreter":
        return results_of(module, given, (), "interpreter")
    with compiling(plain="all"):
        return results_of(module, given, (), "cpu")


def _fault(module: HloModule, given: Any, actual: dict[str, Any], expected: dict[str, Any], is_exact: bool) -> str:
    if actual.keys() != expected.keys():
        return f"there are {sorted(actual)} instead of {sorted(expected)}"
    wrong = [name for name in expected if not same(actual[name], expected[name])]
    if not wrong or is_exact:
        return _difference(wrong[0], actual[wrong[0]], expected[wrong[0]]) if wrong else ""
    return _beyond_roundings(module, given, actual, expected, wrong)


def _beyond_roundings(module: HloModule, given: Any, actual: Any, expected: Any, wrong: Sequence[str]) -> str:
    own = epsilons(module)
    epsilon = {name: max(own) for name in wrong}
    suspects = [name for name in wrong if difference(actual[name], expected[name], epsilon[name])]
    if not suspects:
        return ""
    spreads = spread(module, given)
    return next(
        (
            _difference(name, actual[name], expected[name])
            for name in suspects
            if difference(actual[name], expected[name], epsilon[name], spreads.get(name, 0.0))
        ),
        "",
    )


def _difference(name: str, actual: Any, expected: Any) -> str:
    a, b = np.asarray(actual), np.asarray(expected)
    if a.shape != b.shape or a.dtype != b.dtype:
        return f"{name}: {a.dtype}{list(a.shape)} instead of {b.dtype}{list(b.shape)}"
    return f"{name}: {a.dtype}{list(a.shape)} begins with {a.ravel()[:4]} instead of {b.ravel()[:4]}"


def request(program: Sketched) -> Given:
    """A program as the judging process takes it."""
    return program.module.to_text(), pickle.dumps(program.arguments), program.donated, program.is_exact


def numbered(names: Sequence[str]) -> Iterator[tuple[str, int]]:
    """Programs without end: of each family in turn."""
    for number in itertools.count():
        for name in names:
            yield name, number


def _keep(folder: str, name: str, program: Sketched, child: Child, against: Sequence[str]) -> None:
    """A finding as files: the program, its arguments, and a smaller one that fails as well."""
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    text, given, donated, is_exact = request(program)
    (place / f"{name}.hlo").write_text(text)
    (place / f"{name}.arguments").write_bytes(given)

    def fails(module: HloModule) -> bool:
        # What goes on forever when it has been made smaller is another fault.
        told = child.ask(module.to_text(), given, donated, is_exact, against, seconds=8)
        return bool(told) and not told.startswith("took")

    small = shrink(program.module, fails)
    (place / f"{name}.small.hlo").write_text(small.to_text())


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    options_of = parser("fuzz.idioms", __doc__, 2000)
    options_of.add_argument("--only", choices=sorted(FAMILIES), help="the programs of one family")
    options_of.add_argument("--first", action="store_true", help="stop at the first failure")
    options_of.add_argument("--keep", metavar="FOLDER", help="where to keep programs that fail, and smaller ones")
    options_of.add_argument("--against", choices=[*REFERENCES, "both"], default="interpreter", help="what must agree")
    options = options_of.parse_args(arguments)
    against = REFERENCES if options.against == "both" else (options.against,)
    more = f" --against {options.against}" if options.against != "interpreter" else ""
    names = [options.only] if options.only else sorted(FAMILIES)
    chosen = numbered(names) if options.number is None else iter([(names[0], options.number)])
    seed, child = options.seed, Child(judge)

    def fault_of(name: str, number: int) -> str:
        program = FAMILIES[name](seed, number)
        if options.number is not None:
            print(program.module.to_text())
        return child.ask(*request(program), against)

    def keep(name: str, number: int) -> None:
        if options.keep:
            _keep(options.keep, f"{name}-{seed}-{number}", FAMILIES[name](seed, number), child, against)

    entries = (
        Entry(f"--only {name} --seed {seed} --number {n}{more}", partial(fault_of, name, n), partial(keep, name, n))
        for name, n in itertools.islice(chosen, options.count)
    )
    status = run("fuzz.idioms", entries, options.seconds, first=options.first)
    child.close()
    return status


if __name__ == "__main__":
    sys.exit(main())
