"""How sensitive a program's results are to roundings: the program with every rounding done a little differently.

The cosine of 450,000, computed in F32, is a quarter of a turn away from that of the next number. No tolerance for
rounding fits that; but the results of such a program also change when its intermediate results are off by their last
bit.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

from xlakit import compile as compile_program
from xlakit.data.literal import Literal
from xlakit.ir.instruction import Computation, HloModule, Instruction
from xlakit.ops.data import Constant
from xlakit.ops.movement import Broadcast
from xlakit.ops.registry import OPERATIONS
from xlakit.passes.core.framework import change_programs, with_computations
from xlakit.tools.inputs import flatten

_PATTERNS = 3
_MULTIPLY = OPERATIONS["multiply"]()
_EXACT = ("parameter", "constant", "iota", "get-tuple-element")


def spread(
    module: HloModule, arguments: Sequence[Any], seed: int = 0, *, backend: str = "interpreter"
) -> dict[str, Any]:
    """For each float or complex result, how far it goes, element by element, when roundings go either way."""
    results = [flatten(compile_program(m, backend=backend)(*arguments)) for m in _variants(module, seed)]
    found: dict[str, Any] = {}
    for name, given in results[0].items():
        with np.errstate(all="ignore"):
            off = [np.abs(_wide(other[name]) - _wide(given)) for other in results[1:]]
            # An element that is finite in one run and not in another is determined by roundings alone.
            found[name] = np.max([np.where(np.isnan(o), np.inf, o) for o in off], axis=0)
    return found


def _wide(array: Any) -> Any:
    array = np.asarray(array)
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def _variants(module: HloModule, seed: int) -> list[HloModule]:
    return [module, *(_nudged(module, random.Random(f"{seed} {pattern}")) for pattern in range(_PATTERNS))]


def _nudged(module: HloModule, chance: random.Random) -> HloModule:
    """The module with each floating point result in its programs multiplied by the number above or below 1."""
    made = change_programs(module, lambda computation: _nudge(computation, chance))
    return with_computations(module, list(made.values()))


def _nudge(computation: Computation, chance: random.Random) -> Computation:
    made: dict[Instruction, Instruction] = {}
    listed: list[Instruction] = []
    for old in computation.instructions:
        new = old.replace(operands=[made[o] for o in old.operands], control_predecessors=())
        listed.append(new)
        shape = old.shape
        if shape.is_array and old.opcode not in _EXACT and shape.element_type.is_floating and not shape.is_dynamic:
            dtype = shape.element_type.dtype
            epsilon = float(ml_dtypes.finfo(dtype).eps)
            value = np.asarray(1 + epsilon if chance.random() < 0.5 else 1 - epsilon).astype(dtype)
            scalar = Literal.from_numpy(value)
            one = Instruction(Constant(literal=scalar), (), scalar.shape, f"{old.name}.near_one")
            factor = Instruction(Broadcast(), (one,), shape, f"{old.name}.factor")
            new = Instruction(_MULTIPLY, (new, factor), shape, f"{old.name}.nudged")
            listed += [one, factor, new]
        made[old] = new
    return Computation(computation.name, tuple(listed), made[computation.root], computation.execution_thread)
