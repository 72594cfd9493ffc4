"""``python -m fuzz.attributes``: operations whose attributes or operands are wrong, or nearly, on both backends.

Each program is one operation with up to three numbers changed: an index, a size, a dimension number, a window. It
must be refused with a typed error, and so must its text and its proto, or give the same results on both backends.
Arguments end (or begin) at a protected page, so that compiled code that reads beyond an argument crashes. Programs run
in a child process, which prints the number of each program before it runs: so a crash is reported with its program.
"""

from __future__ import annotations

import argparse
import ctypes
import faulthandler
import mmap
import resource
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from fuzz.modules import difference
from fuzz.programs.operations.attributes import Trial, trial
from fuzz.programs.values import EDGES, SMALL, Array, make_values
from fuzz.support.numbered import Tally, TooSlowError, parser, time_limit
from xlakit import compile as compile_program
from xlakit.errors import ExecutionError, InternalError, XlakitError
from xlakit.ir.instruction import HloModule
from xlakit.tools.inputs import flatten

_SECONDS = 10.0
_ADDRESS_SPACE_BYTES = 16 << 30
_NO_ACCESS = 0


class Guarded:
    """Allocates arrays, each next to a protected page."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        self._maps: list[mmap.mmap] = []

    def array(self, values: Array, *, at_end: bool) -> Array:
        """A copy of an array that ends at a protected page, or begins after one."""
        if not values.nbytes:
            return values
        page = mmap.PAGESIZE
        pages = -(-values.nbytes // page)
        # Ours alone: a protected page is never given to anything else, since the mapping is kept.
        memory = mmap.mmap(-1, (pages + 2) * page)
        self._maps.append(memory)
        start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        for guard in (start, start + (pages + 1) * page):
            if self._libc.mprotect(guard, page, _NO_ACCESS):
                raise OSError(ctypes.get_errno(), "mprotect")
        offset = page + (pages * page - values.nbytes if at_end else 0)
        view = np.frombuffer(memory, values.dtype, values.size, offset).reshape(values.shape)
        view[...] = values
        return view


def arguments(one: Trial, rng: np.random.Generator, guarded: Guarded) -> list[Array]:
    """Values for the operands: integers of all sizes, since some are indices, and floats whose sums stay small."""
    found: list[Array] = []
    for shape in one.operands:
        kind = shape.element_type
        style = EDGES if kind.is_integral and rng.random() < 0.5 else SMALL
        values = make_values(rng, kind.hlo_name, shape.dimensions, style)
        found.append(guarded.array(values, at_end=bool(rng.random() < 0.7)))
    return found


def judge(seed: int, number: int, guarded: Guarded, *, show: bool = False) -> str:
    """The outcome of a program: ``"refused"``, ``"agreed"``, ``"left out"``, or its fault in words."""
    one = trial(seed, number)
    if one is None or not one.is_small:
        return "left out"
    try:
        module = one.module()
    except XlakitError as error:
        if not error.rule:
            return "FAILED: an error without a word"
        accepted = _accepted_as(one)
        return f"FAILED: {accepted} is accepted, though {error}" if accepted else "refused"
    if show:
        print(module.to_text())
    given = arguments(one, np.random.default_rng([seed, number, 1]), guarded)
    expected, actual = (_outcome(module, backend, given) for backend in ("interpreter", "cpu"))
    for outcome in (expected, actual):
        if isinstance(outcome, Exception) and (not isinstance(outcome, XlakitError) or _is_internal(outcome)):
            return f"FAILED: {type(outcome).__name__}: {outcome}"
    if isinstance(expected, Exception) or isinstance(actual, Exception):
        if isinstance(expected, Exception) and isinstance(actual, Exception):
            return "refused"
        return f"FAILED: the interpreter gives {_kind_of(expected)}, compiled code {_kind_of(actual)}"
    for name, leaf in expected.items():
        if fault := difference(actual[name], leaf):
            return f"FAILED: result {name}: {fault}"
    return "agreed"


def _accepted_as(one: Trial) -> str:
    """The form, text or proto, in which a program is accepted that breaks a rule; "" where both are refused."""
    for form, read in (("text", _from_text), ("proto", _from_proto)):
        try:
            again = read(one.unchecked())
            again.verify()
        except XlakitError:
            continue
        # A proto has no way to say 0 where that means that nothing was said.
        if again.entry.root.op == one.op:
            return form
    return ""


def _from_text(module: HloModule) -> HloModule:
    return HloModule.from_text(module.to_text())


def _from_proto(module: HloModule) -> HloModule:
    return HloModule.from_proto(module.to_proto())


def _is_internal(error: Exception) -> bool:
    return isinstance(error, InternalError)


def _kind_of(outcome: Any) -> str:
    return f"{type(outcome).__name__} ({outcome})" if isinstance(outcome, Exception) else "a result"


def _outcome(module: Any, backend: str, given: Sequence[Array]) -> Any:
    try:
        with np.errstate(all="ignore"):
            return flatten(compile_program(module, backend=backend, cache=False)(*given))
    except TooSlowError:
        return ExecutionError("it takes too long")
    except Exception as error:  # any exception is an outcome, to be judged
        return error


def _work(seed: int, start: int, stop: int) -> None:
    """Judge programs, and print a line for each; its number is printed before it runs, to identify it in a crash."""
    faulthandler.enable()
    resource.setrlimit(resource.RLIMIT_AS, (_ADDRESS_SPACE_BYTES, resource.RLIM_INFINITY))
    for number in range(start, stop):
        print(number, flush=True)
        try:
            with time_limit(_SECONDS, signal.ITIMER_REAL):
                outcome = judge(seed, number, Guarded())
        except TooSlowError:
            outcome = "left out"
        except Exception as error:  # outside of both backends: rules and verifier
            outcome = f"FAILED: {type(error).__name__}: {error}"
        print(number, outcome.replace("\n", " | "), flush=True)


def run(seed: int, count: int, seconds: float | None = None) -> tuple[Counter[str], list[str]]:
    """Judge ``count`` programs, or as many as ``seconds`` are enough for: counts by outcome, and the failures."""
    outcomes: Counter[str] = Counter()
    failures: list[str] = []
    begun, number = time.monotonic(), 0
    while number < count and not (seconds and time.monotonic() - begun > seconds):
        command = [sys.executable, "-m", "fuzz.attributes", "--seed", str(seed), "--work", f"{number}:{count}"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            current, outcome = number, ""
            for line in child.stdout:
                head, _, outcome = line.rstrip("\n").partition(" ")
                current = int(head)
                if outcome:
                    outcomes[outcome.partition(":")[0]] += 1
                    if outcome.startswith("FAILED"):
                        failures.append(f"--seed {seed} --number {current}: {outcome[8:]}")
                if seconds and time.monotonic() - begun > seconds:
                    child.kill()
            ended = child.wait()
        late = bool(seconds) and time.monotonic() - begun > seconds
        if ended and not late:
            outcomes["FAILED"] += 1
            failures.append(f"--seed {seed} --number {current}: the process ended with status {ended}")
        number = current + 1
    return outcomes, failures


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    options_of = parser("fuzz.attributes", __doc__, 5000)
    options_of.add_argument("--work", default="", help=argparse.SUPPRESS)
    options = options_of.parse_args(arguments)
    if options.work:
        start, stop = map(int, options.work.split(":"))
        _work(options.seed, start, stop)
        return 0
    if options.number is not None:
        outcome = judge(options.seed, options.number, Guarded(), show=True)
        print(outcome)
        return int(outcome.startswith("FAILED"))
    outcomes, failures = run(options.seed, options.count, options.seconds)
    for failure in failures:
        print(f"FAILED python -m fuzz.attributes {failure}")
    print(f"{outcomes.total()} programs, {len(failures)} failures{Tally(outcomes).summary()}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
