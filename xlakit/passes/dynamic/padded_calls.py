"""Operations without a rule for padded arrays: host calls evaluate them in Python on the valid elements.

Each becomes a call of ``xlakit.AtSizes`` (see ``execution/calls/at_sizes.py``) with a computation that consists of the
original operation, on arrays of dynamic dimensions.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence

from xlakit.data.primitive import PrimitiveType
from xlakit.data.shape import Shape, make_tuple_shape
from xlakit.ir.instruction import Instruction
from xlakit.ops.custom_call import CustomCall
from xlakit.ops.dynamic import AT_SIZES
from xlakit.passes.dynamic.padded_values import DynamicDimension, Padded, Padder, dynamic_dimensions, static_shape

_SIZE = Shape(PrimitiveType.S32)


def with_sizes(shape: Shape, count: int) -> Shape:
    """The shape of a value joined with ``count`` sizes: a tuple of the value's elements, followed by the sizes."""
    static = static_shape(shape)
    if not count:
        return static
    parts = static.tuple_shapes_or_self
    return make_tuple_shape([*parts, *[_SIZE] * count])


def joined(value: Padded, dynamic_dims: Sequence[DynamicDimension], make: Padder) -> Instruction:
    """A value joined with its sizes at these dynamic_dims, in a tuple with the shape of :func:`with_sizes`."""
    if not dynamic_dims:
        return value.value
    elements = make.elements(value.value)
    sizes = [value.sizes.get((path, d)) or make.number(value.shape.at(path).dimensions[d]) for path, d in dynamic_dims]
    return make.tuple(*elements, *sizes)


def parted(joined: Instruction, shape: Shape, dynamic_dims: Sequence[DynamicDimension], make: Padder) -> Padded:
    """The inverse of :func:`joined`: the padded value of a shape, from the tuple with its sizes at the end."""
    if not dynamic_dims:
        return Padded(joined)
    parts = make.elements(joined)
    own, sizes = parts[: -len(dynamic_dims)], parts[-len(dynamic_dims) :]
    value = make.tuple(*own) if shape.is_tuple else own[0]
    return Padded(value, dict(zip(dynamic_dims, sizes, strict=True)))


def at_sizes(old: Instruction, operands: Sequence[Padded], make: Padder) -> Padded:
    """A custom call that takes padded arrays and sizes, does the operation on the valid elements, and pads the result.

    Its results are the padded value and its sizes.
    """
    shapes = [_marked(o.shape, x.sizes) for o, x in zip(old.operands, operands, strict=True)]

    def operation(inner: Padder, *given: Instruction) -> Instruction:
        return inner.builder.append(old.replace(operands=given, control_predecessors=()))

    computation = make.function(f"{old.name}_at_sizes", shapes, operation)
    sizes = [x.sizes[dim] for x in operands for dim in sorted(x.sizes)]
    dynamic_dims = dynamic_dimensions(old.shape)
    call = old.replace(
        op=CustomCall(custom_call_target=AT_SIZES, computations=(computation,)),
        operands=[*(x.value for x in operands), *sizes],
        shape=with_sizes(old.shape.without_layout(), len(dynamic_dims)),
    )
    return parted(make.append_after_control(call), old.shape, dynamic_dims, make)


def _marked(shape: Shape, sizes: Collection[DynamicDimension]) -> Shape:
    """The shape with exactly those dimensions dynamic that have sizes."""

    def marked(part: Shape, path: tuple[int, ...]) -> Shape:
        if part.is_tuple:
            inner = tuple(marked(s, (*path, i)) for i, s in enumerate(part.tuple_shapes))
            return dataclasses.replace(part, tuple_shapes=inner)
        if not part.is_array:
            return part
        marks = tuple((path, d) in sizes for d in range(part.rank))
        return dataclasses.replace(static_shape(part), dynamic_dimensions=marks if any(marks) else ())

    return marked(shape, ())
