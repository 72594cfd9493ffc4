"""Reductions of single elements, broadcasts, transposes, stacks and other reductions; sorts of single elements.

A reduction may combine elements in any order and with any grouping; the rules that merge reductions are exact anyway.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from xlakit.data.primitive import PrimitiveType
from xlakit.ir.instruction import Computation, Instruction
from xlakit.ir.operation import Array, Op
from xlakit.ir.traits import Idempotent
from xlakit.ops.data import Constant, Iota, Parameter, Tuple
from xlakit.ops.elementwise.binary import Add, Maximum, Minimum, Multiply
from xlakit.ops.movement import Broadcast, Concatenate, Transpose
from xlakit.ops.reduction import Reduce, identity_element, reducer_op
from xlakit.ops.sort import Sort
from xlakit.passes.core.matching import one_type, same_bits, same_value, scalar_source, uniform
from xlakit.passes.core.rewriter import Rewriter
from xlakit.passes.core.rules import Rules

REDUCTIONS = Rules("reductions")
_rule = REDUCTIONS.rule
# The most instructions of a reducer that are written out for all pieces of a stack together.
_MOST_WRITTEN_OUT = 128


def _known(x: Instruction) -> Op | None:
    """The operation of the reducer, if ``x`` reduces one array, in its own type, with a known operation; else None."""
    if len(x.operands) != 2 or not one_type(x):
        return None
    computation = x.op_as(Reduce).to_apply
    same_type = computation.root.shape.element_type is x.shape.element_type
    return reducer_op(computation) if same_type else None


def is_identity(op: Op, number: Array | None) -> bool:
    """Whether ``number`` is the identity of an operation: op(x, number) is x for all x. Of a float add it is -0."""
    if number is None:
        return False
    identity = identity_element(op, PrimitiveType.from_dtype(number.dtype))
    return identity is not None and same_bits(identity, number)


@_rule("reduce")
def reduce_one_element(x: Instruction, make: Rewriter) -> Instruction | None:
    """reduce(x, v, f) -> f(v, reshape(x)) along dimensions of size 1, and reshape(x) where v is f's identity.

    The identity of a sum of floats is -0: 0 + -0 is 0.
    """
    op = _known(x)
    if op is None:
        return None
    operand, init = x.operands
    if any(operand.shape.dimensions[d] != 1 for d in x.op_as(Reduce).dimensions):
        return None
    element = make.reshape(operand, x.shape.dimensions)
    if is_identity(op, uniform(init)):
        return element
    return make.add(op, element, make.broadcast(init, x.shape.dimensions))


@_rule("reduce")
def reduce_narrow_dimension(x: Instruction, make: Rewriter) -> Instruction | None:
    """reduce(x[n,1], {0,1}) -> reduce(reshape(x)[n], {0}): dimensions of size 1 have nothing to combine."""
    if len(x.operands) != 2:
        return None
    operand, init = x.operands
    op = x.op_as(Reduce)
    sizes = operand.shape.dimensions
    dropped = {d for d in op.dimensions if sizes[d] == 1}
    if not dropped or len(dropped) == len(op.dimensions):
        return None
    remaining = [d for d in range(len(sizes)) if d not in dropped]
    dimensions = tuple(remaining.index(d) for d in op.dimensions if d not in dropped)
    narrow = make.reshape(operand, [sizes[d] for d in remaining])
    return _in_type_of(x, make.add(dataclasses.replace(op, dimensions=dimensions), narrow, init))


def _in_type_of(x: Instruction, reduced: Instruction) -> Instruction:
    """``reduced`` with the declared element type of ``x``."""
    kind = x.shape.element_type
    return (
        reduced if reduced.shape.element_type is kind else reduced.replace(shape=reduced.shape.with_element_type(kind))
    )


@_rule("reduce")
def reduce_twice(x: Instruction, make: Rewriter) -> Instruction | None:
    """reduce(reduce(x, u, f, A), v, f, B) -> reduce(x, v, f, A and B), of integers and PRED, and of max and min.

    u is combined once into each element of the inner result, so it must be the identity of f, or equal to v if f is
    idempotent. Sums of floats are left alone, since they would round otherwise.
    """
    inner, init = x.operands[0], x.operands[-1]
    op = _known(x)
    if op is None or not isinstance(inner.op, Reduce) or make.uses(inner) > 1 or _known(inner) != op:
        return None
    kind = x.shape.element_type
    if (kind.is_floating or kind.is_complex) and not isinstance(op, (Maximum, Minimum)):
        return None
    operand, first = inner.operands
    twice = isinstance(op, Idempotent) and same_value(first, init)
    if not twice and not is_identity(op, uniform(first)):
        return None
    inner_dimensions = inner.op_as(Reduce).dimensions
    left = [d for d in range(operand.shape.rank) if d not in inner_dimensions]
    dimensions = tuple(sorted([*inner_dimensions, *(left[d] for d in x.op_as(Reduce).dimensions)]))
    return make.add(dataclasses.replace(x.op_as(Reduce), dimensions=dimensions), operand, init)


@_rule("reduce")
def reduce_transpose(x: Instruction, make: Rewriter) -> Instruction | None:
    """reduce(transpose(x)) -> reduce(x), where the dimensions that stay are in order.

    Elements are combined in another order, as any reduction may; each result combines the same ones.
    """
    if len(x.operands) != 2 or not isinstance(x.operands[0].op, Transpose) or _known(x) is None:
        return None
    inner, init = x.operands
    permutation = inner.op_as(Transpose).dimensions
    op = x.op_as(Reduce)
    remaining = [permutation[d] for d in range(len(permutation)) if d not in op.dimensions]
    if remaining != sorted(remaining):
        return None
    dimensions = tuple(sorted(permutation[d] for d in op.dimensions))
    return make.add(dataclasses.replace(op, dimensions=dimensions), inner.operands[0], init)


@_rule("reduce")
def reduce_the_same(x: Instruction, make: Rewriter) -> Instruction | None:
    """reduce(broadcast(x), v, f) -> reduce(x, v, f) without the dimensions that were added; f is max, min, and, or.

    These operations are idempotent. The added dimensions must not be empty.
    """
    op = _known(x)
    inner, init = x.operands[0], x.operands[-1]
    if not isinstance(op, Idempotent) or not isinstance(inner.op, Broadcast) or 0 in inner.shape.dimensions:
        return None
    (source,) = inner.operands
    pattern = inner.op_as(Broadcast).dimensions
    op = x.op_as(Reduce)
    added = [d for d in op.dimensions if d not in pattern]
    if not added:
        return None
    remaining = [d for d in range(inner.shape.rank) if d not in added]
    narrow = make.broadcast(
        source, [inner.shape.dimensions[d] for d in remaining], [remaining.index(d) for d in pattern]
    )
    dimensions = tuple(remaining.index(d) for d in op.dimensions if d not in added)
    return make.add(dataclasses.replace(op, dimensions=dimensions), narrow, init)


@_rule("reduce")
def reduce_stack(x: Instruction, make: Rewriter) -> Instruction | None:
    """reduce(concatenate(a[1,n], b[1,n]), v, f, {0}) -> f(f(v, a), b), for few pieces, with f over whole arrays.

    The loop of a reduction would choose a piece in each of its iterations. Where f has several operands, others may be
    iotas, or broadcasts of scalars: the largest of a stack and its position is how `jax.numpy.select` chooses. Sums of
    narrow floats are left alone, since they would be rounded after each piece.
    """
    op = x.op_as(Reduce)
    count = len(x.operands) // 2
    arrays, inits, reducer = x.operands[:count], x.operands[count:], op.to_apply
    sizes = arrays[0].shape.dimensions
    if len(op.dimensions) != 1 or not any(isinstance(a.op, Concatenate) for a in arrays):
        return None
    (dimension,) = op.dimensions
    if sizes[dimension] * len(reducer.instructions) > _MOST_WRITTEN_OUT or not _is_pointwise(reducer, x.operands):
        return None
    stacks = [_pieces(a, dimension, make) for a in arrays]
    kept = [size for d, size in enumerate(sizes) if d != dimension]
    values = [make.broadcast(init, kept) for init in inits]
    for number in range(sizes[dimension]):
        pieces = [stack[number] for stack in stacks if stack]
        if len(pieces) < count:
            return None
        values = _applied(reducer, [*values, *pieces], make)
    return make.tuple(*values) if x.shape.is_tuple else values[0]


def _is_pointwise(reducer: Computation, operands: Sequence[Instruction]) -> bool:
    """Whether a reducer may be applied to whole arrays, each time in the types of its operands."""
    kinds = [o.shape.element_type for o in operands]
    results = reducer.root.shape.tuple_shapes_or_self
    if [p.shape.element_type for p in reducer.parameters] != kinds:
        return False
    if [r.element_type for r in results] != kinds[: len(results)]:
        return False
    narrow = any(kind.is_floating and kind.bit_width < 32 for kind in kinds)
    if narrow and any(isinstance(i.op, (Add, Multiply)) for i in reducer.instructions):
        return False
    root = reducer.root
    computed = reducer.instructions[:-1] if isinstance(root.op, Tuple) else reducer.instructions
    return reducer.instructions[-1] is root and all(i.op.pointwise and i.shape.is_array for i in computed)


def _pieces(array: Instruction, dimension: int, make: Rewriter) -> list[Instruction]:
    """The arrays that are stacked along a dimension, without it; empty where they are not known."""
    sizes = list(array.shape.dimensions)
    count = sizes.pop(dimension)
    if isinstance(array.op, Concatenate) and array.op.dimension == dimension and len(array.operands) == count:
        return [make.reshape(piece, sizes) for piece in array.operands]
    shape = array.shape.with_dimensions(tuple(sizes))
    # All numbers of a short iota are numbers of a type of 16 bits.
    if isinstance(array.op, Iota) and shape.element_type.bit_width >= 16:
        along = array.op.iota_dimension
        if along != dimension:
            return [make.iota(shape, along - (along > dimension))] * count
        return [make.full(number, shape) for number in range(count)]
    scalar = scalar_source(array)
    return [] if scalar is None else [make.broadcast(scalar, sizes)] * count


def _applied(reducer: Computation, operands: Sequence[Instruction], make: Rewriter) -> list[Instruction]:
    """The results of a reducer on whole arrays."""
    values: dict[Instruction, Instruction] = {}
    sizes = operands[0].shape.dimensions
    for old in reducer.instructions:
        if isinstance(old.op, Parameter):
            values[old] = operands[old.op.number]
        elif isinstance(old.op, Constant):
            values[old] = make.broadcast(make.add(old.op), sizes)
        elif not isinstance(old.op, Tuple):
            shape = old.shape.with_dimensions(sizes)
            values[old] = make.add(old.op, *(values[o] for o in old.operands), shape=shape)
    root = reducer.root
    return [values[o] for o in root.operands] if isinstance(root.op, Tuple) else [values[root]]


@_rule("sort")
def sort_one_element(x: Instruction, make: Rewriter) -> Instruction | None:
    """sort(x, y) -> (x, y), along a dimension of at most one element."""
    if x.operands[0].shape.dimensions[x.op_as(Sort).dimension] > 1:
        return None
    return x.operands[0] if x.shape.is_array else make.tuple(*x.operands)
