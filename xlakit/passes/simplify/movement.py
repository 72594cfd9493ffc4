"""Movement: removes, merges or sinks reshapes, transposes, broadcasts and reverses.

These operations change no element, so the laws hold for every type; an element-wise operation gives the same results
wherever the elements of its operands are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from xlakit.ir.instruction import Instruction
from xlakit.ir.traits import Elementwise
from xlakit.ops.data import Copy, Iota
from xlakit.ops.movement import Broadcast, Reshape, Reverse, Transpose
from xlakit.ops.registry import OPERATIONS
from xlakit.passes.core.matching import permutation_inverse
from xlakit.passes.core.rewriter import Rewriter
from xlakit.passes.core.rules import Rules

MOVEMENT = Rules("movement")
_rule = MOVEMENT.rule

_POINTWISE = tuple(op for op in OPERATIONS.values() if issubclass(op, Elementwise) and not issubclass(op, Copy))


def _proper(sizes: Sequence[int]) -> list[int]:
    """The dimensions that are not of size 1."""
    return [d for d, size in enumerate(sizes) if size != 1]


def _proper_sizes(sizes: Sequence[int]) -> tuple[int, ...]:
    return tuple(size for size in sizes if size != 1)


# -- reshape ---------------------------------------------------------------------------------------


@_rule("reshape")
def identity_reshape(x: Instruction, make: Rewriter) -> Instruction | None:
    """reshape(x) -> x, where x already has the dimensions of the result."""
    (inner,) = x.operands
    return inner if inner.shape.dimensions == x.shape.dimensions else None


@_rule("reshape", of=Reshape)
def reshape_twice(x: Instruction, make: Rewriter) -> Instruction | None:
    """reshape(reshape(x)) -> reshape(x): the order of elements is the same throughout."""
    return make.reshape(x.operands[0].operands[0], x.shape.dimensions)


@_rule("reshape", of=Broadcast)
def reshape_broadcast(x: Instruction, make: Rewriter) -> Instruction | None:
    """reshape(broadcast(x)) -> broadcast(x), of a scalar, or where only dimensions of size 1 are added or removed."""
    (inner,) = x.operands
    (source,) = inner.operands
    if not source.shape.dimensions:
        return make.broadcast(source, x.shape.dimensions)
    if _proper_sizes(inner.shape.dimensions) != _proper_sizes(x.shape.dimensions):
        return None
    result_dimension = dict(zip(_proper(inner.shape.dimensions), _proper(x.shape.dimensions), strict=True))
    dimensions = inner.op_as(Broadcast).dimensions
    proper_dimensions = _proper(source.shape.dimensions)
    narrow = make.reshape(source, _proper_sizes(source.shape.dimensions))
    return make.broadcast(narrow, x.shape.dimensions, [result_dimension[dimensions[d]] for d in proper_dimensions])


@_rule("reshape", of=Transpose)
def reshape_transpose(x: Instruction, make: Rewriter) -> Instruction | None:
    """reshape(transpose(x)) -> transpose(reshape(x)), where the reshape only removes dimensions of size 1.

    This brings transposes next to operations that can absorb them, such as dots.
    """
    (inner,) = x.operands
    (source,) = inner.operands
    if _proper_sizes(inner.shape.dimensions) != x.shape.dimensions:
        return None
    proper_dimensions = _proper(source.shape.dimensions)
    permutation = [proper_dimensions.index(d) for d in inner.op_as(Transpose).dimensions if d in proper_dimensions]
    return make.transpose(make.reshape(source, _proper_sizes(source.shape.dimensions)), permutation)


# -- transpose -------------------------------------------------------------------------------------


@_rule("transpose")
def identity_transpose(x: Instruction, make: Rewriter) -> Instruction | None:
    """transpose(x) -> x, or reshape(x), where only dimensions of size 1 are moved."""
    (inner,) = x.operands
    permutation = x.op_as(Transpose).dimensions
    moved = [d for d in permutation if inner.shape.dimensions[d] != 1]
    if moved != sorted(moved):
        return None
    return make.reshape(inner, x.shape.dimensions) if list(permutation) != sorted(permutation) else inner


@_rule("transpose", of=Transpose)
def transpose_twice(x: Instruction, make: Rewriter) -> Instruction | None:
    """transpose(transpose(x)) -> transpose(x)."""
    (inner,) = x.operands
    first = inner.op_as(Transpose).dimensions
    return make.transpose(inner.operands[0], [first[d] for d in x.op_as(Transpose).dimensions])


@_rule("transpose", of=Broadcast)
def transpose_broadcast(x: Instruction, make: Rewriter) -> Instruction | None:
    """transpose(broadcast(x)) -> broadcast(x)."""
    (inner,) = x.operands
    inverse = permutation_inverse(x.op_as(Transpose).dimensions)
    dimensions = [inverse[d] for d in inner.op_as(Broadcast).dimensions]
    return make.broadcast(inner.operands[0], x.shape.dimensions, dimensions)


# -- broadcast -------------------------------------------------------------------------------------


@_rule("broadcast")
def identity_broadcast(x: Instruction, make: Rewriter) -> Instruction | None:
    """broadcast(x) -> x, or reshape(transpose(x)), where nothing is repeated."""
    (inner,) = x.operands
    if len(_proper(inner.shape.dimensions)) != len(_proper(x.shape.dimensions)):
        return None
    dimensions = x.op_as(Broadcast).dimensions
    order = sorted(range(len(dimensions)), key=dimensions.__getitem__)
    return make.reshape(make.transpose(inner, order), x.shape.dimensions)


@_rule("broadcast", of=Broadcast)
def broadcast_twice(x: Instruction, make: Rewriter) -> Instruction | None:
    """broadcast(broadcast(x)) -> broadcast(x)."""
    (inner,) = x.operands
    outer = x.op_as(Broadcast).dimensions
    dimensions = [outer[d] for d in inner.op_as(Broadcast).dimensions]
    return make.broadcast(inner.operands[0], x.shape.dimensions, dimensions)


@_rule("broadcast")
def broadcast_of_narrow(x: Instruction, make: Rewriter) -> Instruction | None:
    """broadcast(x[n,1]) -> broadcast(reshape(x)[n]): cancels the reshape that often added the dimension of size 1."""
    (inner,) = x.operands
    sizes = inner.shape.dimensions
    if 1 not in sizes:
        return None
    dimensions = x.op_as(Broadcast).dimensions
    narrow = make.reshape(inner, _proper_sizes(sizes))
    return make.broadcast(narrow, x.shape.dimensions, [dimensions[d] for d in _proper(sizes)])


@_rule("broadcast", of=Iota)
def broadcast_iota(x: Instruction, make: Rewriter) -> Instruction | None:
    """broadcast(iota) -> iota along the dimension that the iota's dimension is mapped to."""
    (inner,) = x.operands
    dimension = x.op_as(Broadcast).dimensions[inner.op_as(Iota).iota_dimension]
    return make.add(Iota(iota_dimension=dimension), shape=x.shape.without_layout())


@_rule("iota")
def iota_of_one(x: Instruction, make: Rewriter) -> Instruction | None:
    """iota -> 0, along a dimension of size 1."""
    if x.shape.dimensions[x.op_as(Iota).iota_dimension] != 1:
        return None
    return make.full(0, x.shape)


# -- reverse ---------------------------------------------------------------------------------------


@_rule("reverse")
def identity_reverse(x: Instruction, make: Rewriter) -> Instruction | None:
    """reverse(x) -> x along dimensions of size 1, and along those that a broadcast has added."""
    (inner,) = x.operands
    dimensions = x.op_as(Reverse).dimensions
    same = {d for d in dimensions if inner.shape.dimensions[d] <= 1}
    if isinstance(inner.op, Broadcast):
        same |= set(dimensions) - set(inner.op_as(Broadcast).dimensions)
    return _reverse(inner, [d for d in dimensions if d not in same], make) if same or not dimensions else None


@_rule("reverse", of=Reverse)
def reverse_twice(x: Instruction, make: Rewriter) -> Instruction | None:
    """reverse(reverse(x)) -> reverse(x), along the dimensions that only one of them reverses."""
    (inner,) = x.operands
    first, second = inner.op_as(Reverse).dimensions, x.op_as(Reverse).dimensions
    return _reverse(inner.operands[0], sorted(set(first) ^ set(second)), make)


def _reverse(operand: Instruction, dimensions: Sequence[int], make: Rewriter) -> Instruction:
    return make.add(Reverse(dimensions=tuple(dimensions)), operand) if dimensions else operand


# -- reshapes after operations on elements ---------------------------------------------------------


@_rule(*_POINTWISE)
def sink_reshape(x: Instruction, make: Rewriter) -> Instruction | None:
    """f(reshape(x)[n,1], reshape(y)[n,1]) -> reshape(f(x, y))[n,1]: reshapes that add dimensions of size 1 sink.

    The reshape then cancels with the broadcast that often follows a reduction. Operands may also be broadcast scalars.
    """
    wide = x.shape.dimensions
    if 1 not in wide:
        return None
    sizes = _proper_sizes(wide)
    reshapes = 0
    for operand in x.operands:
        if operand.shape.dimensions != wide:
            return None
        if isinstance(operand.op, Reshape) and operand.operands[0].shape.dimensions == sizes:
            reshapes += 1
        elif not isinstance(operand.op, Broadcast) or operand.operands[0].shape.dimensions:
            return None
    if not reshapes:
        return None
    narrow = [o.operands[0] if isinstance(o.op, Reshape) else make.broadcast(o.operands[0], sizes) for o in x.operands]
    return make.reshape(make.on(x, *narrow), wide)


# -- broadcasts after operations on elements -------------------------------------------------------


@_rule(*_POINTWISE)
def sink_broadcast(x: Instruction, make: Rewriter) -> Instruction | None:
    """f(broadcast(x), broadcast(y)) -> broadcast(f(x, y)), where that makes fewer elements.

    All arrays must be broadcast along the same dimensions; scalars may be mixed with them. An elementwise operation
    gives equal results for equal elements.
    """
    wide = x.shape.dimensions
    pattern: tuple[int, ...] | None = None
    sizes: tuple[int, ...] = ()
    for operand in x.operands:
        if not isinstance(operand.op, Broadcast):
            if operand.shape.dimensions or not wide:
                return None
            continue
        dimensions = operand.op_as(Broadcast).dimensions
        if not dimensions:
            continue
        inner = operand.operands[0].shape.dimensions
        if pattern is None:
            pattern, sizes = dimensions, inner
        elif pattern != dimensions:
            return None
    if not wide or (pattern is None and not any(o.shape.dimensions for o in x.operands)):
        return None
    if x.shape.num_elements <= math.prod(sizes):
        return None
    narrow = make.on(x, *(_narrowed(o, sizes, make) for o in x.operands))
    return make.broadcast(narrow, wide, pattern or ())


def _narrowed(operand: Instruction, sizes: tuple[int, ...], make: Rewriter) -> Instruction:
    """The source of a broadcast operand, with the dimensions ``sizes``; an operand that is a scalar itself stays."""
    if not isinstance(operand.op, Broadcast):
        return operand
    source = operand.operands[0]
    if source.shape.dimensions == sizes:
        return source
    # The caller has checked that a source of other dimensions is a scalar.
    return make.broadcast(source, sizes)
