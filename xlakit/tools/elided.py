"""Elements for constants whose text leaves them out: ``constant({...})``, as XLA dumps large ones by default."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from xlakit.arguments import converting
from xlakit.data.literal import Literal as Value
from xlakit.data.shape import Shape
from xlakit.errors import ArgumentError
from xlakit.execution.inputs import make_value
from xlakit.ir.instruction import Computation, HloModule, Instruction
from xlakit.ops.data import Constant, ElidedConstant
from xlakit.passes.core.computation_builder import ComputationCloner
from xlakit.passes.core.framework import ComputationPass, PassContext

FILLINGS = ("zeros", "random")


@converting
def fill_elided(module: HloModule, filling: Literal["zeros", "random"] = "zeros", *, seed: int = 0) -> HloModule:
    """The module with elements for its elided constants; the same module where it has none.

    filling: ``zeros``, or ``random``: numbers of the ranges of arguments that ``xlakit run`` makes up, the same for the
    same seed, and others for each constant. What the program gives then is not what it gave where it was dumped.

    Raises ArgumentError for another filling or a negative seed, and UnsupportedError for a constant of a shape of which
    no value can be made up.
    """
    if filling not in FILLINGS:
        raise ArgumentError(f"there is no filling {filling!r}", hint=f"take {' or '.join(FILLINGS)}")
    if seed < 0:
        raise ArgumentError(f"seed {seed} is negative", hint="give 0 or more")
    return _FillElided(None if filling == "zeros" else np.random.default_rng(seed)).run(module, PassContext())


def elided_constants(module: HloModule) -> list[Instruction]:
    """The constants of a module whose elements are left out."""
    return [i for c in module.computations for i in c.instructions if isinstance(i.op, ElidedConstant)]


class _FillElided(ComputationPass):
    """Give elided constants elements."""

    name = "fill-elided"

    def __init__(self, rng: np.random.Generator | None) -> None:
        self._rng = rng

    def change(self, computation: Computation, context: PassContext) -> Computation:
        if not any(isinstance(i.op, ElidedConstant) for i in computation.instructions):
            return computation
        cloner = ComputationCloner(computation, context)
        for old in computation.instructions:
            if isinstance(old.op, ElidedConstant):
                cloner.substitute(old, cloner.append(self._filled_constant(old)))
            else:
                cloner.clone(old)
        return cloner.build()

    def _filled_constant(self, old: Instruction) -> Instruction:
        shape = old.shape.without_layout()
        value = _zeros(shape) if self._rng is None else make_value(shape, self._rng)
        return old.replace(op=Constant(literal=_literal(shape, value)))


def _zeros(shape: Shape) -> Any:
    if shape.is_tuple:
        return tuple(map(_zeros, shape.tuple_shapes))
    return np.zeros(shape.dimensions, shape.element_type.dtype) if shape.is_array else None


def _literal(shape: Shape, value: Any) -> Value:
    if shape.is_tuple:
        return Value(shape, None, [_literal(s, v) for s, v in zip(shape.tuple_shapes, value, strict=True)])
    return Value(shape, value) if shape.is_array else Value.token()
