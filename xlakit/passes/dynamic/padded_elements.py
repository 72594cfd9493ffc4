"""Rules for padded arrays in element-wise operations: the result has the sizes that the operands have in common."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from xlakit.ir.attributes import SliceDimension
from xlakit.ir.instruction import Instruction
from xlakit.ops.control import Conditional
from xlakit.passes.dynamic.padded_values import Padded, PaddedRules, Padder, array

ELEMENTS = PaddedRules()

_ENDLESS = 2**31 - 1


def element_wise(old: Instruction, operands: Sequence[Padded], make: Padder) -> Padded:
    """f(x, y): along each dimension the smallest size of the operands is valid; a size of 1 is broadcast."""
    rank = old.shape.rank
    values = [x.value for x in operands]
    dims: dict[int, Instruction] = {}
    for d in range(rank):
        # Operands of equal size nearly always have the same instruction as their size.
        sizes = list(dict.fromkeys(x.dims[d] for x in operands if x.shape.rank == rank and d in x.dims))
        if len(sizes) == 1:
            dims[d] = sizes[0]
        elif sizes:
            dims[d] = _common(sizes, make)
            for i, x in enumerate(operands):
                if d in x.dims and x.shape.dimensions[d] > 1:
                    values[i] = _stretched(values[i], d, x.dims[d], make)
    return array(make.at_bounds(values), dims)


def _common(sizes: Sequence[Instruction], make: Padder) -> Instruction:
    """The least of the sizes that are not 1; 1 if all are."""
    one, endless = make.number(1), make.number(_ENDLESS)
    least = endless
    for size in sizes:
        others = make.apply("select", make.compare(size, one, "EQ"), endless, size)
        least = make.apply("minimum", least, others)
    return make.apply("select", make.compare(least, endless, "EQ"), one, least)


def _stretched(value: Instruction, dimension: int, size: Instruction, make: Padder) -> Instruction:
    """The array with its first element repeated along a dimension if its size there is 1, else unchanged."""
    bounds = value.shape.dimensions
    first = make.slice_along(value, dimension, 0, 1)
    kept = [d for d in range(len(bounds)) if d != dimension]
    spread = make.broadcast(make.reshape(first, [bounds[d] for d in kept]), bounds, kept)
    alone = make.broadcast(make.compare(size, make.number(1), "EQ"), bounds)
    return make.apply("select", alone, spread, value)


@ELEMENTS.rule("map")
def map_(old: Instruction, operands: Sequence[Padded], make: Padder) -> Padded:
    """map(x, f): an f that may not terminate on arbitrary values is called for valid elements only.

    Padding takes the value of the first element. If there is none, f is not called.
    """
    bounds = old.shape.dimensions
    if old.is_pointwise:
        return element_wise(old, operands, make)
    dims = {d: size for x in reversed(operands) for d, size in x.dims.items()}
    if 0 in bounds:
        return array(make.at_bounds([x.value for x in operands]), dims)
    missing = [make.compare(size, make.number(0), "LE") for size in dims.values()]
    empty = functools.reduce(lambda a, b: make.apply("or", a, b), missing)
    valid = make.valid(bounds, dims)
    values: list[Instruction] = []
    for x in operands:
        value = x.value
        if x.shape.dimensions == bounds:
            corner = make.slice(value, (SliceDimension(0, 1),) * len(bounds))
            value = make.chosen(valid, value, make.reshape(corner, ()))
        values.append(value)
    given, name = make.tuple(*values), old.name

    def zeros(inner: Padder, _: Instruction) -> Instruction:
        return inner.broadcast(inner.zero(old.shape.element_type), bounds)

    nothing = make.function(f"{name}_nothing", [given.shape], zeros)
    elements = make.function(f"{name}_elements", [given.shape], lambda inner, x: inner.at_bounds(inner.elements(x)))
    value = make.add(Conditional(branch_computations=(nothing, elements)), empty, given, given)
    return array(value, dims)
