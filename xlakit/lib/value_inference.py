"""Bounds of integer values that are known while a program is built, and whether the values may vary.

Source: ``xla/hlo/builder/value_inference.h``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from xlakit.data.primitive import PrimitiveType
from xlakit.data.shape import Shape
from xlakit.dataclass import dataclass
from xlakit.errors import ShapeError
from xlakit.ir.instruction import Instruction, post_order
from xlakit.ir.operation import Array
from xlakit.ir.traits import DataMovement
from xlakit.ops.communication.collectives import PartitionId, ReplicaId
from xlakit.ops.custom_call import CustomCall
from xlakit.ops.data import Constant, GetTupleElement, Iota, Parameter, Same, Tuple
from xlakit.ops.dynamic import GetDimensionSize
from xlakit.ops.elementwise.binary import Add, Maximum, Minimum, Multiply, Subtract
from xlakit.ops.elementwise.convert import Convert
from xlakit.ops.elementwise.select import Clamp, Select
from xlakit.ops.elementwise.unary import Negate
from xlakit.ops.handle import XlaOp
from xlakit.ops.movement import Concatenate
from xlakit.ops.random import Rng, RngGetAndUpdateState

_VARYING = (Parameter, Rng, RngGetAndUpdateState, ReplicaId, PartitionId, CustomCall)

# Larger arrays get the bounds of their type: the analysis is for sizes, which are small arrays.
_MOST_ELEMENTS = 4096


@dataclass(frozen=True, slots=True)
class ValueBounds:
    """For each element of an integer array its inclusive bounds, and whether it may vary.

    ``low`` and ``high`` are arrays of Python's integers, which do not overflow; ``varies`` is an array of bool.
    """

    low: Array
    high: Array
    varies: Array


def value_bounds(op: XlaOp) -> ValueBounds:
    """The bounds of an array of integers or booleans; by default those of its type.

    Parameters, random numbers, replica ids and results of operations with side effects vary, as do values computed from
    these; the size of a dynamic dimension varies up to its bound. Constants and sizes of static dimensions do not vary.

    Raises ShapeError unless it is an array of at most 4,096 integers. Source: ValueInference.
    """
    if not _is_known_shape(op.shape):
        raise ShapeError(f"{op.shape} is no array of at most {_MOST_ELEMENTS} integers", hint="ask for sizes")
    found: dict[Instruction, ValueBounds] = {}
    is_varying: dict[Instruction, bool] = {}
    for node in post_order([op.instruction]):
        is_varying[node] = _varies_itself(node) or any(is_varying[o] for o in node.operands)
        if _is_known_shape(node.shape):
            operands = [found[o] for o in node.operands if o in found]
            made = _element_of_tuple(node, found) or _calculated(node, operands)
            found[node] = _of_type(node.shape, is_varying[node]) if made is None else _in_type(made, node.shape)
    return found[op.instruction]


def _varies_itself(node: Instruction) -> bool:
    if isinstance(node.op, GetDimensionSize):
        return node.operands[0].shape.dynamic_dimensions[node.op.dimension]
    return isinstance(node.op, _VARYING) or node.op.has_side_effect


def _is_known_shape(shape: Shape) -> bool:
    if not shape.is_array or shape.is_dynamic or shape.num_elements > _MOST_ELEMENTS:
        return False
    return shape.element_type.is_integral or shape.element_type is PrimitiveType.PRED


def _range_of(kind: PrimitiveType) -> tuple[int, int]:
    if kind is PrimitiveType.PRED:
        return 0, 1
    bits = kind.bit_width
    return (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if kind.is_signed else (0, 2**bits - 1)


def _of_type(shape: Shape, varies: bool) -> ValueBounds:
    low, high = _range_of(shape.element_type)
    sizes = shape.dimensions
    return ValueBounds(np.full(sizes, low, object), np.full(sizes, high, object), np.full(sizes, varies))


def _in_type(made: ValueBounds, shape: Shape) -> ValueBounds:
    """The bounds; an element that may be outside of the type's range, and wrap around, gets the bounds of the type."""
    low, high = _range_of(shape.element_type)
    fits = np.asarray((made.low >= low) & (made.high <= high), bool)
    sizes = shape.dimensions
    lows, highs = (np.where(fits, part, end) for part, end in ((made.low, low), (made.high, high)))
    return ValueBounds(*(np.broadcast_to(part, sizes) for part in (lows, highs, made.varies)))


def _element_of_tuple(node: Instruction, found: dict[Instruction, ValueBounds]) -> ValueBounds | None:
    if not isinstance(node.op, GetTupleElement) or not isinstance(node.operands[0].op, Tuple):
        return None
    return found.get(node.operands[0].operands[node.op.index])


def _calculated(node: Instruction, operands: Sequence[ValueBounds]) -> ValueBounds | None:
    """The bounds of an operation's result, given those of its operands; None if there is no rule for the operation."""
    op = node.op
    if isinstance(op, Constant):
        values = op.literal.to_numpy().astype(object)
        return _exact(values)
    if isinstance(op, Iota):
        along = [-1 if d == op.iota_dimension else 1 for d in range(node.shape.rank)]
        return _exact(np.arange(node.shape.dimensions[op.iota_dimension]).astype(object).reshape(along))
    if isinstance(op, GetDimensionSize):
        shape = node.operands[0].shape
        size, is_dynamic = shape.dimensions[op.dimension], shape.dynamic_dimensions[op.dimension]
        low = 0 if is_dynamic else size
        return None if size < 0 else ValueBounds(np.array(low, object), np.array(size, object), np.array(is_dynamic))
    if len(operands) != len(node.operands) or not operands:
        return None
    if isinstance(op, (Same, Convert)):
        return operands[0]
    if isinstance(op, DataMovement):
        context: Any = _Moved(node)
        first = operands[0]
        return ValueBounds(*(op.evaluate(context, part) for part in (first.low, first.high, first.varies)))
    if isinstance(op, Concatenate):
        low, high, varies = (
            np.concatenate([getattr(o, name) for o in operands], axis=op.dimension)
            for name in ("low", "high", "varies")
        )
        return ValueBounds(low, high, varies)
    rule = _RULES.get(type(op))
    if rule is None:
        return None
    low, high = rule(*operands)
    return ValueBounds(low, high, np.logical_or.reduce(np.broadcast_arrays(*(o.varies for o in operands))))


def _exact(values: Array) -> ValueBounds:
    return ValueBounds(values, values, np.zeros(values.shape, bool))


@dataclass(frozen=True, slots=True)
class _Moved:
    """The evaluation context for ``Op.evaluate`` of operations that only move elements."""

    instruction: Instruction

    @property
    def shape(self) -> Shape:
        return self.instruction.shape


def _products(x: ValueBounds, y: ValueBounds) -> tuple[Array, Array]:
    corners = [a * b for a in (x.low, x.high) for b in (y.low, y.high)]
    return np.minimum.reduce(corners), np.maximum.reduce(corners)


def _selected(pred: ValueBounds, x: ValueBounds, y: ValueBounds) -> tuple[Array, Array]:
    first, second = np.asarray(pred.low == 1, bool), np.asarray(pred.high == 0, bool)
    low = np.where(first, x.low, np.where(second, y.low, np.minimum(x.low, y.low)))
    return low, np.where(first, x.high, np.where(second, y.high, np.maximum(x.high, y.high)))


_RULES: dict[type, Callable[..., tuple[Array, Array]]] = {
    Add: lambda x, y: (x.low + y.low, x.high + y.high),
    Subtract: lambda x, y: (x.low - y.high, x.high - y.low),
    Multiply: _products,
    Negate: lambda x: (-x.high, -x.low),
    Maximum: lambda x, y: (np.maximum(x.low, y.low), np.maximum(x.high, y.high)),
    Minimum: lambda x, y: (np.minimum(x.low, y.low), np.minimum(x.high, y.high)),
    Clamp: lambda a, x, b: tuple(
        np.minimum(np.maximum(getattr(x, end), getattr(a, end)), getattr(b, end)) for end in ("low", "high")
    ),
    Select: _selected,
}
