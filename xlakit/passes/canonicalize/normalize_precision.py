"""Precision normalization: afterwards every operation has floats of one type, and the result type of its shape rule.

HLO lets a program mix floats of different precisions in one operation, and declare a result in another precision than
the shape rule gives; both imply a conversion. Code generation relies on element types, so this pass inserts converts.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import reduce

from xlakit.data.primitive import PrimitiveType, higher_precision
from xlakit.data.shape import Shape, floating_types
from xlakit.ir.instruction import Computation, Instruction, infer_shape
from xlakit.ops.communication.asynchronous import Async, CopyDone, CopyStart
from xlakit.ops.communication.transfer import Domain, Infeed, Outfeed, Recv, RecvDone, Send, SendDone
from xlakit.ops.control import Call, Conditional, Scan, While
from xlakit.ops.convolution import Convolution
from xlakit.ops.custom_call import CustomCall
from xlakit.ops.data import Constant, GetTupleElement, OptimizationBarrier, Parameter, Tuple
from xlakit.ops.dot import Contraction
from xlakit.ops.dynamic import DynamicUpdateSlice
from xlakit.ops.elementwise.convert import BitcastConvert, Convert, StochasticConvert
from xlakit.ops.movement import Concatenate, Pad
from xlakit.ops.reduction import Map, Reduce
from xlakit.ops.scatter import Scatter
from xlakit.ops.windows import ReduceWindow, SelectAndScatter
from xlakit.passes.core.computation_builder import ComputationCloner
from xlakit.passes.core.framework import ComputationPass, PassContext

# Operations that may mix types: their result type follows from operands, computations or attributes.
_ANY_TYPES = (
    Contraction,
    Convolution,
    Convert,
    BitcastConvert,
    StochasticConvert,
    Parameter,
    Constant,
    Tuple,
    GetTupleElement,
    OptimizationBarrier,
    Domain,
    Call,
    While,
    Conditional,
    Scan,
    CustomCall,
    Infeed,
    Outfeed,
    Send,
    SendDone,
    Recv,
    RecvDone,
    Async,
    CopyStart,
    CopyDone,
)


class NormalizePrecision(ComputationPass):
    """Insert the conversions that operations on floats of different precisions imply."""

    name = "normalize-precision"
    left_out_by = ""
    is_needed = True

    def change(self, computation: Computation, context: PassContext) -> Computation:
        """Convert operands and results of the operations of one computation."""
        mixed = {i for i in computation.instructions if not isinstance(i.op, _ANY_TYPES) and _is_mixed(i)}
        if not mixed:
            return computation
        cloner = ComputationCloner(computation, context)
        changed = 0
        for old in computation.instructions:
            if old in mixed and _write_conversions(old, cloner):
                changed += 1
            else:
                cloner.clone(old)
        if not changed or not context.spend("conversion", changed):
            return computation
        return cloner.build()


def _is_mixed(instruction: Instruction) -> bool:
    """Whether operands, results and the parameters of called computations have floats of several types."""
    shapes = [instruction.shape, *[o.shape for o in instruction.operands]]
    if instruction.op.can_call:
        shapes += [p.shape for computation in instruction.op.called_computations for p in computation.parameters]
    # Nearly all operations have one type.
    return len({shape.element_type for shape in shapes}) > 1 and len(floating_types(shapes)) > 1


def _write_conversions(old: Instruction, cloner: ComputationCloner) -> bool:
    """Replace ``old`` by an operation on floats of one type; False if it is one already."""
    operands, make = [cloner.clones[o] for o in old.operands], cloner.at(old)
    taken = [make.convert(o, kind) for o, kind in zip(operands, _taken_types(old), strict=True)]
    shape = _with_types(old.shape, infer_shape(old.op, [o.shape for o in taken], old.shape))
    if shape == old.shape and all(new is given for new, given in zip(taken, operands, strict=True)):
        return False
    new = old.replace(
        operands=taken, shape=shape, control_predecessors=[cloner.clones[p] for p in old.control_predecessors]
    )
    cloner.substitute(old, _as_declared(cloner.append(new), old, cloner))
    return True


def _taken_types(instruction: Instruction) -> Sequence[PrimitiveType]:
    """The element types that the operands of an operation must be converted to."""
    op = instruction.op
    kinds = [o.shape.element_type for o in instruction.operands]
    half = len(kinds) // 2
    if isinstance(op, Map):
        return _parameter_types(op.to_apply)
    if isinstance(op, (Reduce, ReduceWindow)):
        types = _parameter_types(op.to_apply)
        return [*types[half:], *types[:half]]
    if isinstance(op, Scatter):
        types = _parameter_types(op.to_apply)
        return [*types[:half], kinds[half], *types[half:]]
    if isinstance(op, SelectAndScatter):
        running, element = _parameter_types(op.scatter)
        return [running, element, running]
    if op.can_call:
        # Arguments of other called computations already have the types of the parameters.
        return kinds
    if isinstance(op, DynamicUpdateSlice):
        return [kinds[0], kinds[0], *kinds[2:]]
    if op.is_pointwise or isinstance(op, (Concatenate, Pad)):
        floats = [kind for kind in kinds if kind.is_floating]
        return [reduce(higher_precision, floats) if kind.is_floating else kind for kind in kinds]
    return kinds


def _parameter_types(computation: Computation) -> list[PrimitiveType]:
    return [parameter.shape.element_type for parameter in computation.parameters]


def _with_types(shape: Shape, other: Shape) -> Shape:
    """The shape with the element types of another one."""
    if shape.is_tuple:
        parts = zip(shape.tuple_shapes, other.tuple_shapes, strict=True)
        return dataclasses.replace(shape, tuple_shapes=tuple(_with_types(s, o) for s, o in parts))
    return shape if shape.element_type is other.element_type else shape.with_element_type(other.element_type)


def _as_declared(new: Instruction, old: Instruction, cloner: ComputationCloner) -> Instruction:
    """The result of ``new``, converted to the types that ``old`` is declared in."""
    make = cloner.at(old)
    if not old.shape.is_tuple:
        return make.convert(new, old.shape.element_type)
    if new.shape == old.shape:
        return new
    shapes = enumerate(old.shape.tuple_shapes)
    parts = [make.convert(make.element(new, n), s.element_type) for n, s in shapes]
    return make.tuple(*parts)
