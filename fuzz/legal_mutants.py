"""``python -m fuzz.legal_mutants``: changed programs that are still legal give the same on all backends.

Programs of the other nets, and some that combine what those do not, are changed in ways that keep many of them legal:
operands exchanged, other operations, numbers, layouts and types. What they compute makes no sense, and no generator
would write it. Each runs as machine code, as plain code (:mod:`xlakit.options`) and on the interpreter, with what
:mod:`fuzz.modules` and :mod:`fuzz.plain` allow for roundings; where one raises an error, all must, and an error that is
not of this package is a finding. Every second one is compiled with sizes, costs and vectors drawn at random, as in
:mod:`fuzz.forced`::

    python -m fuzz.legal_mutants --seed 7 --seconds 60
    python -m fuzz.legal_mutants --seed 7 --number 12        one program, with its text

Programs run in a process of their own with limits of time and memory. Left out are those that are too large, that the
interpreter does not end in time, and that draw random numbers or wait for a host. Where results differ in what HLO does
not say (reducers that do not associate, orders of a sort that are none, promises about indices), it is no finding.
"""

from __future__ import annotations

import math
import resource
import sys
from collections import Counter
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from fuzz import forced, plain
from fuzz.idioms import FAMILIES
from fuzz.modules import difference
from fuzz.programs.composed.modules import module as generated
from fuzz.support.children import Child
from fuzz.support.legal_mutators import mutate_legally
from fuzz.support.mutation_seeds import seed_texts
from fuzz.support.numbered import TooSlowError, entries, parser, run, show, time_limit
from fuzz.support.sensitivity import spread
from fuzz.support.unspecified import unspecified
from fuzz.support.unusual_seeds import UNUSUAL
from xlakit import compile as compile_program
from xlakit.errors import InternalError, UnsupportedError, XlakitError
from xlakit.execution.inputs import make_inputs
from xlakit.ir.instruction import HloModule
from xlakit.options import Options, compiling, current
from xlakit.passes.analysis.cost import cost_of
from xlakit.passes.analysis.roundings import largest_epsilon
from xlakit.tools.inputs import flatten

# Changes until a program is legal.
_TRIES = 12
_MOST_ELEMENTS = 200_000
_MOST_FLOPS = 2e7
_MOST_DEVICES = 8
_SECONDS_OF_INTERPRETER = 1.0
_SECONDS_OF_CODE = 40.0
_ADDRESS_SPACE_BYTES = 12 << 30
_SKIPPED = "left out: "
_NOT_REPEATED = ("rng", "rng-get-and-update-state", "infeed", "outfeed", "send", "recv")

Results = list[dict[str, Any]]


def mutant(seed: int, number: int) -> str:
    """A legal program of a seed, as text; empty where none was found."""
    rng = np.random.default_rng([seed, number])
    text = _source(seed, number, rng)
    for _ in range(_TRIES):
        changed = mutate_legally(text, rng)
        try:
            module = HloModule.from_text(changed)
            module.verify()
        except XlakitError:
            continue
        if changed != text and not _left_out(module):
            return changed
    return ""


def _source(seed: int, number: int, rng: np.random.Generator) -> str:
    """The program that is changed."""
    way = number % 4
    if way == 0:
        return generated(seed, number).text
    if way == 1:
        return FAMILIES[str(rng.choice(sorted(FAMILIES)))](seed, number).module.to_text()
    if way == 2:
        return HloModule.from_text(UNUSUAL[int(rng.integers(len(UNUSUAL)))]).to_text()
    texts = _seeds(seed)
    return texts[int(rng.integers(len(texts)))]


@cache
def _seeds(seed: int) -> list[str]:
    texts: list[str] = []
    for text in seed_texts(seed):
        try:
            texts.append(HloModule.from_text(text).to_text())
        except XlakitError:  # one whose constants are elided
            continue
    return texts


def _left_out(module: HloModule) -> str:
    """Why a program is not run; empty where it is."""
    shapes = [i.shape for c in module.computations for i in c.instructions]
    sizes = [math.prod(map(abs, s.dimensions)) for shape in shapes for _, s in shape.leaves() if s.is_array]
    opcodes = {i.opcode for c in module.computations for i in c.instructions}
    if sum(sizes) > _MOST_ELEMENTS or cost_of(module).flops > _MOST_FLOPS:
        return "too large"
    if module.replica_count * module.num_partitions > _MOST_DEVICES:
        return "too many devices"
    return next((opcode for opcode in _NOT_REPEATED if opcode in opcodes), "")


def judge(text: str, seed: int, backend: str, options: Options | None = None) -> str:
    """Describe the fault of a program, "" if there is none.

    It is called for the interpreter, and then for machine code and plain code.
    seed: what its arguments are made from. options: of machine code, where they are not those in force.

    The process keeps what the interpreter gives. A program that it does not end in time is left out.
    """
    module = HloModule.from_text(text)
    try:
        given = [make_inputs(module.entry.program_shape, seed + d) for d in range(_devices(module))]
    except UnsupportedError:
        return f"{_SKIPPED}no arguments"
    if backend == "interpreter":
        _kept.clear()
        fault, found = _interpreted(module, given)
        _kept.append(found)
        return fault
    expected = _kept[0]
    with compiling(options or current()):
        fault = _code(module, given, expected)
    if fault and not isinstance(expected, str) and (why := unspecified(module)):
        return f"{_SKIPPED}{why}"
    return fault


# What the interpreter gives of the program that is judged: its results, or its error.
_kept: list[Results | str] = []


def judge_in_limits(text: str, seed: int, number: int, backend: str) -> str:
    """The same of a number of a seed, in a process that gets no more than so much memory from now on."""
    resource.setrlimit(resource.RLIMIT_AS, (_ADDRESS_SPACE_BYTES, resource.RLIM_INFINITY))
    return judge(text, number, backend, forced.draw(seed, number) if number % 2 else None)


def _devices(module: HloModule) -> int:
    return module.replica_count * module.num_partitions


def _results(module: HloModule, given: Sequence[Sequence[Any]], backend: str) -> Results | str:
    """The arrays of each device, or the error that the program ends in."""
    try:
        compiled = compile_program(module, backend=backend, cache=False, num_replicas=module.replica_count)
        return [flatten(result) for result in compiled.execute_replicated(given)]
    except InternalError:
        raise
    except XlakitError as error:
        return f"{type(error).__name__}: {error.rule}"


def _interpreted(module: HloModule, given: Sequence[Sequence[Any]]) -> tuple[str, Results | str]:
    try:
        with time_limit(_SECONDS_OF_INTERPRETER):
            return "", _results(module, given, "interpreter")
    except TooSlowError:
        return f"{_SKIPPED}too slow", ""
    except Exception as error:  # any other error is a finding
        return f"interpreter: {type(error).__name__}: {error}", ""


def _code(module: HloModule, given: Sequence[Sequence[Any]], expected: Results | str) -> str:
    """Describe the fault of machine code and plain code; "" if there is none."""
    try:
        actual = _results(module, given, "cpu")
        fault = _compared(module, given, actual, expected)
        if not fault and len(given) == 1 and not isinstance(actual, str):
            return plain.fault_of(module, given[0], actual=actual[0])
        if not fault:
            with compiling(plain="all"):
                fault = _compared(module, given, _results(module, given, "cpu"), expected)
            return f"plain code: {fault}" if fault else ""
        return fault
    except Exception as error:  # any error that is not of this package, or says that something is wrong in it
        return f"{type(error).__name__}: {error}"


def _compared(module: HloModule, given: Any, actual: Results | str, expected: Results | str) -> str:
    if isinstance(actual, str) or isinstance(expected, str):
        agreed = isinstance(actual, str) and isinstance(expected, str)
        return "" if agreed else f"{_short(actual)}, the interpreter: {_short(expected)}"
    epsilon = largest_epsilon(module)
    suspects = [
        (device, name)
        for device, own in enumerate(expected)
        for name in own
        if difference(actual[device][name], own[name], epsilon)
    ]
    if not suspects:
        return ""
    spreads = spread(module, given[0]) if len(given) == 1 else {}
    faults = (
        (name, difference(actual[device][name], expected[device][name], epsilon, spreads.get(name, 0.0)))
        for device, name in suspects
    )
    return next((f"result {name}: {fault}" for name, fault in faults if fault), "")


def _short(results: Results | str) -> str:
    return results if isinstance(results, str) else "results"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    options = parser("fuzz.legal_mutants", __doc__, 2000).parse_args(arguments)
    left_out: Counter[str] = Counter()
    child = Child(judge_in_limits, {"XLAKIT_TIMEOUT": "2"})

    def ask(text: str, number: int, backend: str, seconds: float) -> str:
        return child.ask(text, options.seed, number, backend, seconds=seconds)

    def fault_of(number: int) -> str:
        text = mutant(options.seed, number)
        show(options, text)
        fault = f"{_SKIPPED}not legal" if not text else ask(text, number, "interpreter", 30.0)
        if fault.startswith("took"):
            # A loop that goes on for ever in NumPy's own code, or on several devices.
            fault = f"{_SKIPPED}too slow"
        fault = fault or ask(text, number, "cpu", _SECONDS_OF_CODE)
        if fault.startswith(_SKIPPED):
            left_out[fault.removeprefix(_SKIPPED)] += 1
            return ""
        return fault

    def summary() -> str:
        return "; left out: " + (", ".join(f"{n} {why}" for why, n in left_out.most_common()) or "none")

    status = run("fuzz.legal_mutants", entries(options, fault_of), options.seconds, summary)
    child.close()
    return status


if __name__ == "__main__":
    sys.exit(main())
