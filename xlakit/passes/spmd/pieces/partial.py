"""Partial reductions: the operands of each partition's partial result, and the combination of the partial results."""

from __future__ import annotations

import numpy as np

from xlakit.data.primitive import PrimitiveType
from xlakit.data.shape import Shape
from xlakit.ir.instruction import Computation, Instruction
from xlakit.ir.operation import Op
from xlakit.ir.traits import Idempotent
from xlakit.ops.elementwise.binary import Add
from xlakit.ops.elementwise.select import Select
from xlakit.ops.reduction import Reduce, identity_of, reducer_op
from xlakit.ops.scatter import Scatter
from xlakit.passes.core.matching import is_zero, uniform
from xlakit.passes.simplify.reductions import is_identity
from xlakit.passes.spmd.pieces.emit import Emitter
from xlakit.passes.spmd.shardings.scopes import Scope
from xlakit.passes.spmd.shardings.tilings import Split


def spread(make: Emitter, value: Instruction, numbers: Split, scope: Scope) -> Instruction:
    """A value as partial sums: the value on members with number 0, the identity of addition on all others."""
    shape = value.shape
    if is_zero(uniform(value)):
        return value
    number = make.broadcast(make.number(numbers, scope), shape.dimensions)
    zeros = make.zeros(PrimitiveType.S32, shape.dimensions)
    is_first = make.compare(number, zeros, "EQ")
    kind = shape.element_type
    nothing = make.additive_identity(kind) if kind.is_floating or kind.is_complex else make.zeros(kind)
    return make.add(Select(), is_first, value, make.broadcast(nothing, shape.dimensions))


def is_plain_sum(old: Instruction, local: list[Instruction]) -> bool:
    """Whether the total is the sum of the partial results, without a separate initial value."""
    if isinstance(old.op, Reduce):
        return isinstance(reducer_op(old.op.to_apply), Add) and _may_repeat(old.op, local[1])
    if isinstance(old.op, Scatter):
        return isinstance(reducer_op(old.op.to_apply), Add) and _may_repeat(old.op, local[0])
    return True


def contribution(make: Emitter, old: Instruction, local: list[Instruction]) -> list[Instruction]:
    """The operands of a partial result, without an initial value that must count only once: see :func:`total`."""
    if isinstance(old.op, Reduce):
        return local if _may_repeat(old.op, local[1]) else [local[0], _identity(make, old.op.to_apply, old.shape)]
    if isinstance(old.op, Scatter) and not _may_repeat(old.op, local[0]):
        nothing = _identity(make, old.op.to_apply, old.shape)
        return [make.broadcast(nothing, local[0].shape.dimensions), *local[1:]]
    return local


def total(make: Emitter, old: Instruction, made: Instruction, local: list[Instruction]) -> Instruction:
    """The total of the partial results and the initial value."""
    if isinstance(old.op, Scatter) and not _may_repeat(old.op, local[0]):
        return make.add(combining(old), local[0], made)
    if isinstance(old.op, Reduce) and not _may_repeat(old.op, local[1]):
        return make.add(combining(old), made, make.broadcast(local[1], made.shape.dimensions))
    return made


def _may_repeat(op: Reduce | Scatter, init: Instruction) -> bool:
    """Whether every partition may start with the initial value."""
    reducer, number = reducer_op(op.to_apply), uniform(init)
    if isinstance(reducer, Idempotent):
        return True
    if reducer is None or number is None:
        return False
    return is_identity(reducer, number) or (isinstance(reducer, Add) and is_zero(number, negative=None))


def combining(old: Instruction) -> Op:
    """The operation that combines the parts of two partitions."""
    return (reducer_op(old.op.to_apply) if isinstance(old.op, (Reduce, Scatter)) else None) or Add()


def _identity(make: Emitter, computation: Computation, shape: Shape) -> Instruction:
    number = identity_of(computation, shape.element_type)
    return make.constant(np.asarray(number))
