"""Long programs of steps (:mod:`fuzz.programs.composed.steps`): in a row, in trees, side by side, inside of loops.

The pattern says how steps follow each other, the place (:mod:`fuzz.programs.composed.places`) in which computation.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import xlakit as xla
from fuzz.programs.composed.places import ENTRY, PLACES
from fuzz.programs.composed.steps import FAMILIES, Family, Steps
from xlakit.ir.instruction import HloModule
from xlakit.ops.handle import XlaOp

# The next value, from a value and the number of a step.
_Next = Callable[[XlaOp, int], XlaOp]
# How many values are carried side by side.
_CARRIED = 5


def _chain(x: XlaOp, length: int, step: _Next) -> XlaOp:
    """Each step on the one before it."""
    for k in range(length):
        x = step(x, k)
    return x


def _diamonds(x: XlaOp, length: int, step: _Next) -> XlaOp:
    """Two different steps on one value become one value."""
    for k in range(0, length, 2):
        x = step(x, k) * 0.5 + step(x, k + 1) * 0.5
    return x


def _shared(x: XlaOp, length: int, step: _Next) -> XlaOp:
    """Each step on the sum of the two before it."""
    before = x
    for k in range(length):
        before, x = x, step(x * 0.5 + before * 0.5, k)
    return x


def _fan(x: XlaOp, length: int, step: _Next) -> XlaOp:
    """Steps on one value, put together two by two."""
    values = [step(x + 0.01 * k, k) for k in range(length)]
    while len(values) > 1:
        pairs = [(values[k], values[k + 1]) for k in range(0, len(values) - 1, 2)]
        values = [a * 0.5 + b * 0.5 for a, b in pairs] + values[2 * len(pairs) :]
    return values[0]


def _carried(x: XlaOp, length: int, step: _Next) -> XlaOp:
    """Several values, each step on one of them and its neighbor; all of them are results."""
    values = [x * (1.0 - 0.1 * k) for k in range(_CARRIED)]
    for k in range(length):
        here = k % _CARRIED
        values[here] = step(values[here] * 0.5 + values[here - 1] * 0.5, k)
    return xla.tuple_(values)


PATTERNS: dict[str, Callable[[XlaOp, int, _Next], XlaOp]] = {
    "chain": _chain,
    "diamonds": _diamonds,
    "shared": _shared,
    "fan": _fan,
    "carried": _carried,
}
MIXED = "mixed"


def long_module(name: str, pattern: str, length: int, size: int, seed: int = 0, place: str = ENTRY) -> HloModule:
    """A module of so many steps of a family, by its name, or of families of one rank drawn at random (``mixed``)."""
    families = _mixed(seed) if name == MIXED else [FAMILIES[name]]
    rng = np.random.default_rng([seed, 1])
    order = [families[int(rng.integers(len(families)))] for _ in range(length + 1)]
    size = max(size, *(f.least for f in families))
    builder = xla.XlaBuilder(name)
    outer = families[0].outer
    shape = xla.make_shape(xla.F32, [*outer, *[size] * (families[0].rank - len(outer))])
    x, given = (xla.parameter(builder, number, shape) for number in (0, 1))

    def chain(first: XlaOp, own: XlaOp) -> XlaOp:
        steps = Steps(own.builder, own, size)
        made = PATTERNS[pattern](first, length, lambda v, k: order[k].step(steps, v, k))
        return made if place == ENTRY or made.shape.is_array else _total(made)

    root = PLACES[place](x, given, chain)
    return builder.build(root).to_module(replica_count=families[0].replicas)


def _total(values: XlaOp) -> XlaOp:
    """The sum of a tuple's values, of which a loop carries only one."""
    total, *rest = (xla.get_tuple_element(values, k) for k in range(len(values.shape.tuple_shapes)))
    for value in rest:
        total = total * 0.5 + value * 0.5
    return total


def _mixed(seed: int) -> list[Family]:
    """Families of one rank, a few of all that there are."""
    rng = np.random.default_rng([seed, 0])
    rank = int(rng.integers(1, 4))
    families = [f for f in FAMILIES.values() if f.rank == rank and f.replicas == 1 and not f.outer]
    chosen = rng.permutation(len(families))[: int(rng.integers(2, 6))]
    return [families[int(k)] for k in chosen]
