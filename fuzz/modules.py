"""``python -m fuzz.modules``: generated modules of many operations, compiled and interpreted, must agree.

Integers and PRED must be equal. Floats may differ by what rounding makes of a few dozen operations: so many units of
epsilon, times the largest number in the array. The epsilon is that of the narrowest floating point type among all
that a result is made of: a number that was rounded to F32 on its way is no more exact as an F64.

Where a float differs by more, the interpreter is asked again, with each rounding going a bit further, up or down
(:mod:`fuzz.support.sensitivity`): a result that hangs on roundings as much as that, such as the cosine of a large sum,
says nothing.

Machine code is made of the program with some names that passes give, and what passes make of it is verified.
With ``--fused`` it gets some of the instructions in fusions, as other compilers make them: results of
different sizes, tuples, constants and loops inside.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from fuzz.programs.composed.fused import fused, renamed
from fuzz.programs.composed.modules import module
from fuzz.programs.draft import Program
from fuzz.support import numbered
from fuzz.support.sensitivity import spread
from xlakit import compile as compile_program
from xlakit.cpu.execution.generated import GeneratedProgram
from xlakit.ir.instruction import HloModule, Instruction
from xlakit.tools.inputs import flatten

# Sums of hundreds of terms go through functions of slope 1 at most, a few times over.
_UNITS = 600.0
# A sum rounds many times where the interpreter is nudged once.
_SPREADS = 8.0


def epsilons(module: HloModule) -> list[float]:
    """For each element of the result, or the result that is no tuple, the greatest epsilon of what it is made of."""
    root = module.entry.root
    return [_epsilon(part) for part in (root.operands if root.opcode == "tuple" else (root,))]


def _epsilon(root: Instruction) -> float:
    """The greatest epsilon of the types of an instruction and of all that it needs, in called computations too."""
    found, seen = 0.0, {root}
    stack = [root]
    while stack:
        instruction = stack.pop()
        # What is given is exact, whatever its type.
        made = instruction.opcode not in ("parameter", "constant")
        for _, shape in instruction.shape.leaves():
            kind = shape.element_type
            if made and (kind.is_floating or kind.is_complex):
                found = max(found, float(ml_dtypes.finfo(kind.real_part.dtype).eps))
        called = [c.root for c in instruction.op.called_computations]
        for needed in (*instruction.operands, *called):
            if needed not in seen:
                seen.add(needed)
                stack.append(needed)
    return found


def difference(actual: Any, expected: Any, epsilon: float = 0.0, spread: Any = 0.0) -> str:
    """Describe the fault of an array; "" if there is none.

    epsilon: where it is not the type's own; spread: how far floats go, element by element, when roundings differ.
    """
    return _described(actual, expected, lambda a, b: a != b if _is_whole(b) else _beyond(a, b, epsilon, spread))


def difference_in_bits(actual: Any, expected: Any) -> str:
    """The same for an array that is to have these bits, but for NaNs, of which one is as good as another."""
    return _described(actual, expected, lambda a, b: a != b if _is_whole(b) else _other_bits(a, b))


def _described(actual: Any, expected: Any, wrong_where: Callable[[Any, Any], Any]) -> str:
    a, b = np.asarray(actual), np.asarray(expected)
    if a.shape != b.shape or a.dtype != b.dtype:
        return f"{a.dtype}{list(a.shape)} instead of {b.dtype}{list(b.shape)}"
    wrong = np.asarray(wrong_where(a, b))
    if not wrong.any():
        return ""
    where = tuple(int(i) for i in np.argwhere(wrong)[0])
    return (
        f"{np.count_nonzero(wrong)} of {wrong.size} elements differ; at {list(where)}: {a[where]} instead of {b[where]}"
    )


def _is_whole(array: Any) -> bool:
    return array.dtype.kind in "biu" or array.dtype.name.startswith(("int", "uint"))


def _other_bits(a: Any, b: Any) -> Any:
    wide = np.complex128 if b.dtype.kind == "c" else np.float64
    own, other = a.astype(wide), b.astype(wide)
    signs = [np.signbit(part(own)) != np.signbit(part(other)) for part in (np.real, np.imag)]
    wrong = np.asarray(own != other) & ~(np.isnan(own) & np.isnan(other))
    return wrong | ((signs[0] | signs[1]) & ~np.isnan(other))


def _beyond(a: Any, b: Any, epsilon: float, spread: Any) -> Any:
    """Where floats are further apart than roundings explain. Both parts of a complex number have its size's error."""
    parts = (np.real, np.imag) if b.dtype.kind == "c" else (np.real,)
    size = np.abs(b.astype(np.complex128))
    unit = max(epsilon, float(ml_dtypes.finfo(np.real(b).dtype).eps))
    allowed = _UNITS * unit * max(1.0, float(size[np.isfinite(size)].max(initial=0.0))) + _SPREADS * spread
    wrong = np.zeros(b.shape, np.bool_)
    # Beside an infinity or NaN the other part of a complex number says nothing.
    said = np.isfinite(size) | np.isfinite(np.abs(a.astype(np.complex128)))
    for part in parts:
        own, other = (part(x).astype(np.float64) for x in (a, b))
        with np.errstate(all="ignore"):
            same = (own == other) | (np.isnan(own) & np.isnan(other))
            wrong |= ~(same | (np.abs(own - other) <= allowed))
    return wrong & said if len(parts) > 1 else wrong


def judge(program: Program, rng: np.random.Generator, *, with_fusions: bool = False) -> str:
    """Describe the fault of a module's compiled code; "" if there is none.

    rng: draws names, and with_fusions which instructions machine code gets in fusions, as other compilers make them.
    """
    parsed = HloModule.from_text(program.text)
    given = renamed(fused(parsed, rng) if with_fusions else parsed, rng)
    given.verify()
    expected = flatten(compile_program(parsed, backend="interpreter")(*program.arguments[0]))
    try:
        executable = compile_program(given, backend="cpu")
        if isinstance(executable, GeneratedProgram):
            executable.optimized_module().verify()
        actual = flatten(executable(*program.arguments[0]))
    except Exception as error:  # any exception is a finding, with the program that caused it
        return f"{type(error).__name__}: {error}"
    # Names of results begin with their place in the tuple.
    own = epsilons(parsed)
    epsilon = {name: own[int(name.split(".")[0]) if name != "result" else 0] for name in expected}
    suspects = [name for name in expected if difference(actual[name], expected[name], epsilon[name])]
    if not suspects:
        return ""
    spreads = spread(parsed, program.arguments[0])
    faults = ((name, difference(actual[name], expected[name], epsilon[name], spreads[name])) for name in suspects)
    return next((f"result {name}: {fault}" for name, fault in faults if fault), "")


def _fault_of(options: Namespace, number: int) -> str:
    program = module(options.seed, number)
    numbered.show(options, program.text)
    return judge(program, np.random.default_rng([options.seed, number]), with_fusions=options.fused)


_FUSED = ("--fused", "with fusions in them, as other compilers make them")
main = numbered.net("fuzz.modules", __doc__, 5000, _fault_of, _FUSED)

if __name__ == "__main__":
    sys.exit(main())
