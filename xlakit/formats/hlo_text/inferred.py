"""The layout of a result whose shape the text leaves out, as XLA's parser chooses it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from xlakit.data.shape import Shape, make_tuple_shape
from xlakit.ir.operation import Op

# The result lies as this operand does; for all pointwise operations but these it is the first.
_LIKE_OPERAND = {"clamp": 1, "copy": 0, "domain": 0, "reverse": 0, "sort": 0, "while": 0}


def laid_out(op: Op, operands: Sequence[Shape], result: Shape) -> Shape:
    """An inferred shape with layouts: those of what it comes from where they carry over, else the default."""
    source = _source(op, operands)
    return result.with_default_layout() if source is None else _like(source, result)


def _source(op: Any, operands: Sequence[Shape]) -> Shape | None:
    opcode = op.opcode
    if opcode == "tuple" or (opcode == "sort" and len(operands) > 1):
        return make_tuple_shape(operands)
    if opcode == "get-tuple-element":
        return operands[0].tuple_shapes[op.index]
    if opcode == "transpose":
        return _transposed(op.dimensions, operands[0])
    if opcode == "call":
        return op.to_apply.root.shape
    if opcode == "conditional":
        return op.branch_computations[0].root.shape
    if opcode in _LIKE_OPERAND or op.pointwise:
        # A scalar that stands for a whole array has no layout to hand on.
        candidates = operands[_LIKE_OPERAND.get(opcode, 0) :]
        return next((o for o in candidates if not o.is_scalar), candidates[0] if candidates else None)
    return None


def _transposed(permutation: Sequence[int], operand: Shape) -> Shape | None:
    """The shape that lies in memory just as the operand does."""
    if operand.layout is None:
        return None
    order = tuple(permutation.index(d) for d in operand.layout.minor_to_major)
    sizes = [operand.dimensions[d] for d in permutation]
    return replace(operand.with_dimensions(sizes), layout=replace(operand.layout, minor_to_major=order))


def _like(source: Shape, result: Shape) -> Shape:
    if result.is_tuple:
        return make_tuple_shape([_like(s, r) for s, r in zip(source.tuple_shapes, result.tuple_shapes, strict=True)])
    layout = source.layout if source.is_array and source.dimensions == result.dimensions else None
    if layout is None or not result.is_array:
        return result.with_default_layout()
    if source.element_type is not result.element_type:
        layout = replace(layout, element_size_in_bits=0)
    return replace(result, layout=layout)
