"""``python -m fuzz.attributes``: operations whose attributes or operands are wrong, or nearly, on both backends.

Each program is one operation with up to three numbers changed: an index, a size, a dimension number, a window. It
must be refused with a typed error, and so must its text and its proto, or give the same results on both backends.
Arguments end (or begin) at a protected page, so that compiled code that reads beyond an argument crashes: programs run
in a child process, whose death is a finding.
"""

from __future__ import annotations

import ctypes
import mmap
import resource
import signal
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from fuzz.modules import difference
from fuzz.programs.operations.attributes import Trial, trial
from fuzz.programs.values import EDGES, SMALL, Array, make_values
from fuzz.support.children import Child
from fuzz.support.numbered import Tally, TooSlowError, entries, parser, run, time_limit
from xlakit import compile as compile_program
from xlakit.errors import ExecutionError, InternalError, XlakitError
from xlakit.ir.instruction import HloModule
from xlakit.tools.inputs import flatten

_SECONDS = 10.0
_ADDRESS_SPACE_BYTES = 16 << 30
_NO_ACCESS = 0
_OUTCOMES = ("refused", "agreed", "left out")


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


def judge(seed: int, number: int, guarded: Guarded) -> str:
    """The outcome of a program: one of :data:`_OUTCOMES`, or its fault in words."""
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


def judge_in_limits(seed: int, number: int) -> str:
    """As :func:`judge`, in a process of its own, with limits of time and memory."""
    resource.setrlimit(resource.RLIMIT_AS, (_ADDRESS_SPACE_BYTES, resource.RLIM_INFINITY))
    try:
        with time_limit(_SECONDS, signal.ITIMER_REAL):
            return judge(seed, number, Guarded())
    except TooSlowError:
        return "left out"
    except Exception as error:  # outside of both backends: rules and verifier
        return f"FAILED: {type(error).__name__}: {error}"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    options = parser("fuzz.attributes", __doc__, 5000).parse_args(arguments)
    child, tally = Child(judge_in_limits), Tally()

    def fault_of(number: int) -> str:
        if options.number is not None and (one := trial(options.seed, number)) is not None:
            print(one.unchecked().to_text())
        outcome = child.ask(options.seed, number)
        if outcome in _OUTCOMES:
            tally.counts[outcome] += 1
            return ""
        return outcome.removeprefix("FAILED: ")

    status = run("fuzz.attributes", entries(options, fault_of), options.seconds, tally.summary)
    child.close()
    return status


if __name__ == "__main__":
    sys.exit(main())
