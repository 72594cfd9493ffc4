"""Custom calls of compiled programs for operations on dynamic dimensions without machine code.

The pass ``pad-dynamic`` makes these calls. The called computation is the operation; the operands are its arrays padded
to their bounds, then the current sizes of their dynamic dimensions. The results are its result, padded likewise, then
the sizes of that.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import numpy as np

from xlakit.data.shape import Shape
from xlakit.ir.operation import TOKEN, Evaluation, Value
from xlakit.ops.custom_call import CustomCall
from xlakit.ops.shared.padding import zero_extend


def at_sizes(context: Evaluation, *operands: Value) -> Value:
    """Cut the padded operands to their sizes, run the operation, and pad its result; gives that and its sizes.

    operands: the arrays, then one size for each dimension that the computation declares dynamic.
    """
    (computation,) = context.instruction.op_as(CustomCall).computations
    parameters = computation.parameters
    sizes = map(int, operands[len(parameters) :])
    # The operands after those for the parameters are the sizes.
    values = zip(operands, parameters, strict=False)
    result = context.call(computation, *[_cut(value, p.shape, sizes) for value, p in values])
    shape = computation.root.shape
    result_sizes = list(_sizes(result, shape))
    padded = _padded(result, shape)
    if not result_sizes:
        return padded
    parts = cast("tuple[Value, ...]", padded) if shape.is_tuple else (padded,)
    return (*parts, *result_sizes)


def _cut(value: Value, shape: Shape, sizes: Iterator[int]) -> Value:
    """A value cut to its sizes; takes one size for each dynamic dimension of the shape."""
    if isinstance(value, tuple):
        return tuple(_cut(v, s, sizes) for v, s in zip(cast("tuple[Any, ...]", value), shape.tuple_shapes, strict=True))
    if value is TOKEN or not any(shape.dynamic_dimensions):
        return value
    return value[tuple(slice(next(sizes)) if mark else slice(None) for mark in shape.dynamic_dimensions)]


def _sizes(value: Value, shape: Shape) -> Iterator[Value]:
    if isinstance(value, tuple):
        for part, inner in zip(cast("tuple[Any, ...]", value), shape.tuple_shapes, strict=True):
            yield from _sizes(part, inner)
    elif value is not TOKEN:
        for size, mark in zip(value.shape, shape.dynamic_dimensions, strict=False):
            if mark:
                yield np.asarray(size, np.int32)


def _padded(value: Value, shape: Shape) -> Value:
    if isinstance(value, tuple):
        return tuple(_padded(v, s) for v, s in zip(cast("tuple[Any, ...]", value), shape.tuple_shapes, strict=True))
    return value if value is TOKEN else zero_extend(value, shape.dimensions)
