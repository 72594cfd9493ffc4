"""Values of the program, tuples, tokens, and the movement of elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from xlakit.compat.xla_client.binding import incompatible
from xlakit.compat.xla_client.ops import composed
from xlakit.compat.xla_client.ops.operations import Builder, Ints, Kind, Op, Ops, Record, Shaped, operation, overloaded
from xlakit.compat.xla_client.ops.records import padding_of
from xlakit.compat.xla_client.shapes import laid_out
from xlakit.data.literal import Literal
from xlakit.data.shape import make_shape
from xlakit.ops import data, dynamic, movement


@operation
def Parameter(
    builder: Builder,
    parameter_number: int,
    shape: Shaped,
    name: str = "",
    replicated_at_leaf_buffers: Sequence[bool] = (),
) -> Op:
    """A parameter of the computation. ``replicated_at_leaf_buffers`` is a hint that xlakit has no use for."""
    return data.parameter(builder, parameter_number, laid_out(shape), name)


def literal_of(value: Any) -> Literal:
    """A literal of an array, a Python number as NumPy takes it (S64, F64), or a (nested) tuple of them."""
    if isinstance(value, tuple):
        return Literal.make_tuple([literal_of(part) for part in value])  # pyright: ignore
    return Literal.from_numpy(np.asarray(value))


@operation
def Constant(builder: Builder, literal: Any) -> Op:
    """A constant of an array or a number; Python's numbers are S64, F64 and C128."""
    if literal is None:
        raise incompatible("Constant", "the literal is an array or a number")
    return composed.constant(builder, literal_of(literal))


@operation
def ConstantLiteral(builder: Builder, literal: Any) -> Op:
    """A constant of an array or a number; Python's numbers are S64, F64 and C128."""
    return composed.constant(builder, literal_of(literal))


def _iota_of_shape(builder: Builder, shape: Shaped, iota_dimension: int) -> Op:
    return data.iota(builder, shape, iota_dimension)


def _iota_of_type(builder: Builder, type: Kind, size: int) -> Op:
    return data.iota(builder, make_shape(type, (size,)), 0)


@overloaded(operation(_iota_of_shape), operation(_iota_of_type))
def Iota(*args: Any, **kwargs: Any) -> Op:
    """0, 1, 2, ... along a dimension.

    Takes builder, shape and iota_dimension; or builder, type and size, for an array of rank 1.
    """


@operation
def Tuple(builder: Builder, elements: Ops) -> Op:
    """A tuple of values."""
    return data.tuple_(builder, list(elements))


@operation
def GetTupleElement(tuple_data: Op, index: int) -> Op:
    """An element of a tuple."""
    return data.get_tuple_element(tuple_data, index)


@operation
def CreateToken(builder: Builder) -> Op:
    """A new token."""
    return data.create_token(builder)


@operation
def AfterAll(builder: Builder, tokens: Ops) -> Op:
    """A token that is there after all of ``tokens``."""
    return data.after_all(list(tokens)) if tokens else data.create_token(builder)


@operation
def OptimizationBarrier(arg: Op, /) -> Op:
    """The value, which the compiler does not move computations across."""
    return data.optimization_barrier(arg)


# -- movement --------------------------------------------------------------------------------------


@operation
def Broadcast(operand: Op, sizes: Ints) -> Op:
    """The array, repeated along new dimensions in front."""
    return movement.broadcast(operand, sizes)


@operation
def BroadcastInDim(operand: Op, shape: Ints, broadcast_dimensions: Ints) -> Op:
    """The array in more dimensions; ``broadcast_dimensions`` says which of them its own are."""
    return composed.broadcast_in_dim(operand, shape, broadcast_dimensions)


@operation
def Collapse(operand: Op, dimensions: Ints) -> Op:
    """Consecutive dimensions as one. One alone is left as it is, whatever its number."""
    if len(dimensions) < 2:
        return operand
    return movement.collapse(operand, dimensions)


@operation
def ConcatInDim(builder: Builder, operands: Ops, dimension: int) -> Op:
    """Arrays one after the other along a dimension."""
    return movement.concat_in_dim(list(operands), dimension)


@operation
def Pad(operand: Op, padding_value: Op, padding_config: Record) -> Op:
    """The array with padding at the edges of dimensions and between elements."""
    return movement.pad(operand, padding_value, padding_of(padding_config))


@operation
def Reshape(operand: Op, new_sizes: Ints) -> Op:
    """The elements in their order in other dimensions."""
    return movement.reshape(operand, new_sizes=new_sizes)


@operation
def Rev(operand: Op, dimensions: Ints) -> Op:
    """The elements in reverse order along dimensions."""
    return movement.rev(operand, dimensions)


@operation
def Slice(operand: Op, start_indices: Ints, limit_indices: Ints, strides: Ints) -> Op:
    """The part from ``start_indices`` to ``limit_indices``, which are not in it, in steps of ``strides``."""
    return movement.slice(operand, start_indices, limit_indices, strides)


@operation
def SliceInDim(operand: Op, start_index: int, limit_index: int, stride: int, dimno: int) -> Op:
    """A slice along one dimension."""
    return movement.slice_in_dim(operand, start_index, limit_index, stride, dimno)


@operation
def Transpose(operand: Op, permutation: Ints) -> Op:
    """The array with its dimensions permuted."""
    return movement.transpose(operand, permutation)


# -- dynamic positions and sizes -------------------------------------------------------------------


@operation
def DynamicReshape(operand: Op, dim_sizes: Ops, new_size_bounds: Ints, dims_are_dynamic: Sequence[bool]) -> Op:
    """The elements in other dimensions, whose sizes are values."""
    return dynamic.dynamic_reshape(operand, list(dim_sizes), new_size_bounds, dims_are_dynamic)


@operation
def DynamicSlice(operand: Op, start_indices: Ops, slice_sizes: Ints) -> Op:
    """The part of ``slice_sizes`` that starts at positions that are values."""
    return dynamic.dynamic_slice(operand, list(start_indices), slice_sizes)


@operation
def DynamicUpdateSlice(operand: Op, update: Op, start_indices: Ops) -> Op:
    """The array with ``update`` written over a part of it."""
    return dynamic.dynamic_update_slice(operand, update, list(start_indices))


@operation
def GetDimensionSize(operand: Op, dimension: int) -> Op:
    """The size of a dimension as an S32 scalar; a constant where it is static."""
    shape = operand.shape
    if shape.is_array and 0 <= dimension < shape.rank and not shape.dynamic_dimensions[dimension]:
        return data.constant(operand.builder, Literal.from_numpy(np.int32(shape.dimensions[dimension])))
    return dynamic.get_dimension_size(operand, dimension)


@operation
def SetDimensionSize(operand: Op, val: Op, dimension: int) -> Op:
    """The array with a dynamic dimension of a size that is a value."""
    return dynamic.set_dimension_size(operand, val, dimension)


@operation
def RemoveDynamicDimension(operand: Op, dimension: int) -> Op:
    """The array with a dynamic dimension at its bound."""
    return dynamic.remove_dynamic_dimension(operand, dimension)
