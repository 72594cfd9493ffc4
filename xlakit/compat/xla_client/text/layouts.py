"""The layouts that XLA's builder gives to shapes, as a side effect of its shape inference.

A transpose moves nothing: its result lies as its operand does. What has the shape of an operand has its layout, too.
All else is as it is declared, or major to minor. Such layouts are printed and mean nothing to programs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xlakit.data.layout import Layout
from xlakit.data.shape import Shape, make_tuple_shape
from xlakit.ir.instruction import Computation, HloModule, Instruction
from xlakit.ir.rebuilding import rebuilt
from xlakit.ir.traits import Elementwise
from xlakit.ops.control import Call, Conditional, While
from xlakit.ops.data import GetTupleElement, OptimizationBarrier, Tuple
from xlakit.ops.dynamic import DynamicUpdateSlice
from xlakit.ops.elementwise.convert import BitcastConvert
from xlakit.ops.elementwise.select import Clamp, Select
from xlakit.ops.movement import Broadcast, Reverse, Transpose
from xlakit.ops.sort import Sort

# Maps a computation to the shape of its root.
_Roots = Callable[[Computation], Shape]


def with_inferred_layouts(module: HloModule) -> HloModule:
    """The module as XLA's builder would have it, with the layout of each array."""
    if not any(isinstance(i.op, Transpose) for i in module.instructions):
        return module

    def laid_out(_: Instruction, i: Instruction) -> Instruction:
        return i.replace(shape=_shape(i, [o.shape for o in i.operands], lambda c: c.root.shape))

    return rebuilt(module, laid_out)


def inferred_shape(instruction: Instruction) -> Shape:
    """The shape of one instruction with its layouts."""
    # Operands first, with a stack instead of recursion.
    shapes: dict[Instruction, Shape] = {}
    waiting = [instruction]
    while waiting:
        i = waiting[-1]
        missing = [o for o in i.operands if o not in shapes]
        if missing:
            waiting.extend(missing)
        else:
            shapes[i] = _shape(i, [shapes[o] for o in i.operands], lambda c: inferred_shape(c.root))
            waiting.pop()
    return shapes[instruction]


def _shape(i: Instruction, operands: Sequence[Shape], roots: _Roots) -> Shape:
    """The shape of a result with the layout that XLA's shape inference gives it."""
    if isinstance(i.op, Tuple):
        return make_tuple_shape(operands)
    if isinstance(i.op, Sort):
        return _like(i.shape, operands[0] if i.shape.is_array else make_tuple_shape(operands))
    if isinstance(i.op, GetTupleElement):
        return _like(i.shape, operands[0].tuple_shapes[i.op.index])
    if isinstance(i.op, Call):
        return _like(i.shape, roots(i.op.called_computations[0]))
    if isinstance(i.op, Conditional):
        return _like(i.shape, roots(i.op.branch_computations[0]))
    if isinstance(i.op, While):
        return _like(i.shape, operands[0])
    if isinstance(i.op, Transpose):
        order = operands[0].layout_or_default.minor_to_major
        return i.shape.with_layout(Layout(tuple(i.op.dimensions.index(d) for d in order)))
    source = _source(i)
    if source is None:
        return i.shape.with_implied_layouts()
    if isinstance(i.op, Elementwise) and len(operands) == 2 and _is_number(i.operands[1]):
        # XLA makes a new shape for an operation on an array and a number, which has the default layout.
        return i.shape.without_layout().with_implied_layouts()
    return _like(i.shape, operands[source])


def _source(i: Instruction) -> int | None:
    """The number of the operand whose layout the result has."""
    if isinstance(i.op, Clamp):
        return 1
    if isinstance(i.op, Select):
        return int(_is_number(i.operands[0]))
    copies = isinstance(i.op, (Elementwise, BitcastConvert, OptimizationBarrier, Reverse, DynamicUpdateSlice))
    return 0 if copies and i.operands else None


def _is_number(i: Instruction) -> bool:
    return isinstance(i.op, Broadcast) and not i.op.dimensions


def _like(shape: Shape, other: Shape) -> Shape:
    """A shape with the layouts of another one, where both have the same dimensions."""
    if shape.is_tuple and other.is_tuple and len(shape.tuple_shapes) == len(other.tuple_shapes):
        return make_tuple_shape(list(map(_like, shape.tuple_shapes, other.tuple_shapes)))
    if shape.is_array and other.is_array and shape.dimensions == other.dimensions:
        return shape.with_layout(Layout(other.layout_or_default.minor_to_major))
    return shape.with_implied_layouts()
