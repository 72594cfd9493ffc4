"""The layout of a result whose shape the text leaves out, as XLA's parser chooses it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from xlakit.data.shape import Shape, make_tuple_shape
from xlakit.ir.operation import Op
from xlakit.ops.communication.transfer import Domain
from xlakit.ops.control import Call, Conditional, While
from xlakit.ops.data import GetTupleElement, Tuple
from xlakit.ops.elementwise.select import Clamp, Select
from xlakit.ops.movement import Reverse, Transpose
from xlakit.ops.sort import Sort


def laid_out(op: Op, operands: Sequence[Shape], result: Shape) -> Shape:
    """An inferred shape with layouts: those of an operand or callee where they carry over, else the default."""
    source = _source(op, operands)
    return result.with_default_layout() if source is None else _like(source, result)


def _source(op: Op, operands: Sequence[Shape]) -> Shape | None:
    if isinstance(op, Tuple) or (isinstance(op, Sort) and len(operands) > 1):
        return make_tuple_shape(operands)
    if isinstance(op, GetTupleElement):
        return operands[0].tuple_shapes[op.index]
    if isinstance(op, Transpose):
        return _transposed(op.dimensions, operands[0])
    if isinstance(op, Call):
        return op.to_apply.root.shape
    if isinstance(op, Conditional):
        return op.branch_computations[0].root.shape
    if op.pointwise or isinstance(op, (Domain, Reverse, Sort, While)):
        # The layout is that of the first operand that is no scalar, as a scalar may stand for a whole array. The first
        # operand of clamp and select is left out: it may be a scalar, or is a predicate with another element size.
        candidates = operands[isinstance(op, (Clamp, Select)) :]
        return next((o for o in candidates if not o.is_scalar), candidates[0] if candidates else None)
    return None


def _transposed(permutation: Sequence[int], operand: Shape) -> Shape | None:
    """The transposed shape, with the layout under which its elements have the same order in memory as the operand's."""
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
