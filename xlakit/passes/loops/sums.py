"""Replaces sums of products over the iterations of a loop by one product after the loop.

The gradient of a weight of a recurrence is such a sum. The operands of all iterations mostly exist as arrays already
(*stacks*): one operand is a slice of an array of all iterations, the other is written into such an array.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence

from xlakit.data.primitive import PrimitiveType
from xlakit.data.shape import Shape, make_tuple_shape
from xlakit.dataclass import dataclass
from xlakit.errors import InternalError
from xlakit.ir.def_use import use_counts
from xlakit.ir.instruction import Computation, Instruction
from xlakit.ops.control import While
from xlakit.ops.data import GetTupleElement, Tuple
from xlakit.ops.dot import Dot
from xlakit.ops.dynamic import DynamicSlice, DynamicUpdateSlice
from xlakit.ops.elementwise.binary import Add, Subtract
from xlakit.ops.movement import Broadcast, Reshape
from xlakit.options import knob
from xlakit.passes.analysis.loops import Loop, LoopPass, counted_elements, elements_read, loop_of, trip_count
from xlakit.passes.core.computation_builder import ComputationCloner, StateCloner
from xlakit.passes.core.framework import PassContext, is_fixed
from xlakit.passes.core.matching import as_integer, uniform

# Sums of narrower floats are rounded in each iteration, which the rewrite would change visibly.
_KINDS = frozenset({PrimitiveType.F32, PrimitiveType.F64, PrimitiveType.C64, PrimitiveType.C128})
_FEWEST_ITERATIONS = knob("loop_sums.fewest_iterations", 4, 1)
# A product that contracts more terms than this in each iteration is efficient already.
_MOST_TERMS = 256
# The bytes that an iteration writes to a new stack, for each byte of the sum. Of the gradients of recurrences with a
# state of 128 or 256, those with 1/64 take 0.6 of the time without the pass, with 1/16 0.9, with 1/8 0.95 to 1.2, with
# 1/4 1.4; and new stacks take half of the temporaries again.
_LARGEST_PIECE = knob("loop_sums.largest_piece", 1 / 16, 10.0)
# The size of a new stack, relative to the existing one.
_MOST_TIMES = knob("loop_sums.most_times", 8, 1000)


@dataclass(frozen=True, slots=True)
class _Stack:
    """The array of the pieces of all iterations: an element of the loop's state, stacked along a dimension.

    start: the index of an iteration's piece. element: None if there is no such element yet.
    """

    element: int | None
    dimension: int
    start: Instruction


@dataclass(frozen=True, slots=True)
class _Sum:
    """An element of a loop to which each iteration adds a product, and the stacks of the product's operands.

    added: the add. product: the dot.
    """

    element: int
    added: Instruction
    product: Instruction
    lhs: _Stack
    rhs: _Stack

    @property
    def new(self) -> Instruction | None:
        """The operand that has no stack yet; its stack becomes the element that was the sum."""
        for operand, stack in zip(self.product.operands, (self.lhs, self.rhs), strict=True):
            if stack.element is None:
                return operand
        return None


class WhileSums(LoopPass):
    """Replace sums of products in a loop by one product of all iterations' operands, after the loop.

    ``s + dot(a[0], b[0]) + dot(a[1], b[1]) + ..`` is ``s + dot(a, b)``, which contracts the iterations, too.
    """

    name = "while-sums"

    def change(self, computation: Computation, context: PassContext) -> Computation:
        """Change the loops of one computation."""
        loops = [loop for loop in map(loop_of, computation.instructions) if loop is not None]
        read = elements_read(computation, [loop.instruction for loop in loops])
        found: dict[Instruction, tuple[Loop, list[_Sum]]] = {}
        for loop in loops:
            sums = [] if -1 in read[loop.instruction] else _sums(loop)
            if sums and context.spend("sum", len(sums)):
                found[loop.instruction] = loop, sums
        return _rebuilt(computation, found, context) if found else computation


# -- analysis --------------------------------------------------------------------------------------------


def _sums(loop: Loop) -> list[_Sum]:
    iterations = trip_count(loop)
    root = loop.body.root
    if (
        iterations is None
        or iterations < _FEWEST_ITERATIONS.value
        or not isinstance(root.op, Tuple)
        or loop.initial(0) is None
    ):
        return []
    condition = loop.condition.parameters[0]
    tested = elements_read(loop.condition, [condition])[condition]
    if -1 in tested or -1 in elements_read(loop.body, [loop.parameter])[loop.parameter]:
        return []
    uses = use_counts(loop.body.instructions, control=True)
    stacks = _Stacks(loop, iterations)
    found: list[_Sum] = []
    for number in range(loop.count):
        if number not in tested:
            one = _sum(loop, number, uses, stacks)
            if one is not None:
                found.append(one)
    return found


def _sum(loop: Loop, number: int, uses: Counter[Instruction], stacks: _Stacks) -> _Sum | None:
    """The sum of products that an element is, if the loop uses the element for nothing else; else None."""
    added = loop.given(number)
    if added is None or not isinstance(added.op, Add) or is_fixed(added) or uses[added] != 1:
        return None
    if added.shape.element_type not in _KINDS and not added.shape.element_type.is_integral:
        return None
    given, product = added.operands
    if loop.element(given) != number:
        given, product = product, given
    if loop.element(given) != number or uses[given] != 1 or not isinstance(product.op, Dot):
        return None
    readers = [i for i in loop.body.instructions if loop.element(i) == number]
    if len(readers) != 1 or uses[product] != 1 or is_fixed(product) or len(product.operands) != 2:
        return None
    lhs, rhs = product.operands
    terms = lhs.shape.num_elements * rhs.shape.num_elements
    if lhs is rhs or terms > _MOST_TERMS**2 * product.shape.num_elements:
        return None
    first, second = stacks.of(lhs), stacks.of(rhs)
    if first is not None and second is None and _may_be_stacked(rhs, lhs, product):
        second = _Stack(None, 0, first.start)
    elif second is not None and first is None and _may_be_stacked(lhs, rhs, product):
        first = _Stack(None, 0, second.start)
    if first is None or second is None or first.start is not second.start:
        return None
    return _Sum(number, added, product, first, second)


def _may_be_stacked(piece: Instruction, other: Instruction, product: Instruction) -> bool:
    """Whether storing a piece in each iteration costs less than adding to the sum, and not too much memory."""
    size = piece.shape.byte_size
    return size <= _LARGEST_PIECE.value * product.shape.byte_size and size <= _MOST_TIMES.value * other.shape.byte_size


class _Stacks:
    """Finds the stacks of a loop: arrays of which each iteration reads or writes one piece, no piece twice."""

    def __init__(self, loop: Loop, iterations: int) -> None:
        self._loop = loop
        self._trip_count = iterations
        self._counted = counted_elements(loop)
        # The values that each iteration writes into a stack.
        self._written: dict[Instruction, _Stack] = {}
        for number in range(loop.count):
            update = loop.given(number)
            if update is None or not isinstance(update.op, DynamicUpdateSlice) or is_fixed(update):
                continue
            target, piece, *starts = update.operands
            if loop.element(target) == number:
                stack = self._stack(number, target.shape, piece.shape.dimensions, starts)
                if stack is not None and _is_squeezed(piece, stack.dimension):
                    self._written[piece.operands[0]] = stack

    def of(self, piece: Instruction) -> _Stack | None:
        """The stack of which a value of the body is a piece; None if there is none."""
        if piece in self._written:
            return self._written[piece]
        cut = piece.operands[0] if isinstance(piece.op, Reshape) else None
        if cut is None or not isinstance(cut.op, DynamicSlice) or is_fixed(cut):
            return None
        whole, *starts = cut.operands
        number = self._loop.element(whole)
        if number is None or number not in self._loop.unchanged:
            return None
        stack = self._stack(number, whole.shape, cut.op.dynamic_slice_sizes, starts)
        squeezed = stack is not None and _squeezed(cut.shape.dimensions, stack.dimension) == piece.shape.dimensions
        return stack if squeezed else None

    def _stack(self, number: int, shape: Shape, sizes: Sequence[int], starts: Sequence[Instruction]) -> _Stack | None:
        along = [d for d, size in enumerate(sizes) if size != shape.dimensions[d]]
        if len(along) != 1 or sizes[along[0]] != 1 or shape.dimensions[along[0]] != self._trip_count:
            return None
        (dimension,) = along
        return _Stack(number, dimension, starts[dimension]) if self._counts(starts[dimension]) else None

    def _counts(self, index: Instruction) -> bool:
        """Whether an index of the body takes every value from 0 to the trip count minus 1, one in each iteration."""
        sign, offset, node = 1, 0, index
        number = self._loop.element(node)
        while number is None or number in self._loop.unchanged:
            if not isinstance(node.op, (Add, Subtract)):
                return False
            left, right = node.operands
            known = [as_integer(uniform(o)) for o in (left, right)]
            if known[1] is not None:
                offset += sign * (known[1] if isinstance(node.op, Add) else -known[1])
                node = left
            elif known[0] is not None:
                offset += sign * known[0]
                sign, node = (sign, right) if isinstance(node.op, Add) else (-sign, right)
            else:
                return False
            number = self._loop.element(node)
        if number not in self._counted:
            return False
        ends = sorted(sign * end + offset for end in self._counted[number])
        return ends == [0, self._trip_count - 1]


def _squeezed(dimensions: Sequence[int], dimension: int) -> tuple[int, ...]:
    return tuple(n for d, n in enumerate(dimensions) if d != dimension)


def _is_squeezed(piece: Instruction, dimension: int) -> bool:
    """Whether a piece is a reshape that only adds a dimension of size 1."""
    if not isinstance(piece.op, Reshape):
        return False
    return piece.operands[0].shape.dimensions == _squeezed(piece.shape.dimensions, dimension)


# -- the new loop ------------------------------------------------------------------------------------------


def _rebuilt(
    computation: Computation, found: dict[Instruction, tuple[Loop, list[_Sum]]], context: PassContext
) -> Computation:
    cloner = ComputationCloner(computation, context)
    for old in computation.instructions:
        source = old.operands[0] if isinstance(old.op, GetTupleElement) else None
        if old in found:
            _loop(cloner, *found[old])
        elif source in found:
            _element(cloner, old, *found[source])
        else:
            cloner.clone(old)
    return cloner.build()


def _loop(cloner: ComputationCloner, loop: Loop, sums: Sequence[_Sum]) -> None:
    """Append the loop without its sums; a new stack takes the number of the sum in the state."""
    old = loop.instruction
    iterations = trip_count(loop) or 0
    shapes = list(old.shape.tuple_shapes)
    start = cloner.clones[old.operands[0]]
    begin = list(start.operands)
    for one in sums:
        new = one.new
        if new is not None:
            shapes[one.element] = new.shape.with_dimensions((iterations, *new.shape.dimensions))
            zero = cloner.scalar(0, new.shape.element_type)
            begin[one.element] = cloner.add(Broadcast(dimensions=()), zero, like=old, shape=shapes[one.element])
    if shapes != list(old.shape.tuple_shapes):
        start = cloner.at(start).tuple(*begin)
    shape = make_tuple_shape(shapes)
    made = While(condition=_condition(loop, shape, cloner.context), body=_body(loop, sums, shape, cloner.context))
    cloner.substitute(old, cloner.append(old.replace(op=made, operands=[start], shape=shape)))


def _condition(loop: Loop, shape: Shape, context: PassContext) -> Computation:
    cloner = StateCloner(loop.condition, shape, context)
    cloner.substitute(cloner.old_state, cloner.state)
    for old in loop.condition.instructions:
        if old is not cloner.old_state:
            cloner.clone(old)
    return cloner.finish()


def _body(loop: Loop, sums: Sequence[_Sum], shape: Shape, context: PassContext) -> Computation:
    cloner = StateCloner(loop.body, shape, context)
    by_sum = {one.added: one for one in sums}
    products = {one.product for one in sums}
    elements = {one.element for one in sums}
    root = loop.body.root
    for old in loop.body.instructions:
        number = loop.element(old)
        if old is loop.parameter:
            cloner.substitute(old, cloner.state)
        elif number in elements:
            cloner.substitute(old, cloner.at(old).element(cloner.state, number))
        elif old in by_sum:
            cloner.substitute(old, _carried(cloner, by_sum[old]))
        elif old is root:
            cloner.substitute(old, cloner.at(old).tuple(*[cloner.clones[o] for o in old.operands]))
        elif old not in products:
            cloner.clone(old)
    return cloner.finish()


def _carried(cloner: ComputationCloner, one: _Sum) -> Instruction:
    """The element of the next iteration that replaces the sum: the stack with its piece, or the unchanged element."""
    given = next(cloner.clones[o] for o in one.added.operands if o is not one.product)
    piece = one.new
    if piece is None:
        return given
    like = one.added
    start = cloner.clones[(one.lhs if one.lhs.element is not None else one.rhs).start]
    flat = cloner.add(
        Reshape(), cloner.clones[piece], like=like, shape=piece.shape.with_dimensions((1, *piece.shape.dimensions))
    )
    zero = cloner.scalar(0, start.shape.element_type)
    return cloner.add(DynamicUpdateSlice(), given, flat, start, *[zero] * piece.shape.rank, like=like)


def _element(cloner: ComputationCloner, old: Instruction, loop: Loop, sums: Sequence[_Sum]) -> None:
    """The replacement of an element of the loop's result: for a sum, its initial value plus the product of stacks."""
    number = old.op_as(GetTupleElement).index
    one = next((s for s in sums if s.element == number), None)
    if one is None:
        cloner.clone(old)
        return
    like, start = one.product, loop.initial(number)
    if start is None:
        raise InternalError(f"{loop.instruction.name} does not begin with a tuple")
    whole = cloner.clones[loop.instruction]
    numbers = [one.element if s.element is None else s.element for s in (one.lhs, one.rhs)]
    lhs, rhs = (cloner.at(like).element(whole, n) for n in numbers)
    product = cloner.add(_of_all_iterations(one), lhs, rhs, like=like, shape=like.shape)
    cloner.substitute(old, cloner.at(one.added).apply("add", cloner.clones[start], product))


def _of_all_iterations(one: _Sum) -> Dot:
    """The dot of the stacks, which also contracts the dimensions of the iterations."""
    op = one.product.op_as(Dot)
    lhs, rhs = one.lhs.dimension, one.rhs.dimension
    return dataclasses.replace(
        op,
        lhs_batch_dims=_beside(lhs, op.lhs_batch_dims),
        lhs_contracting_dims=(lhs, *_beside(lhs, op.lhs_contracting_dims)),
        rhs_batch_dims=_beside(rhs, op.rhs_batch_dims),
        rhs_contracting_dims=(rhs, *_beside(rhs, op.rhs_contracting_dims)),
    )


def _beside(dimension: int, dimensions: Sequence[int]) -> tuple[int, ...]:
    """Dimensions of a piece, renumbered as dimensions of its stack."""
    return tuple(d + (d >= dimension) for d in dimensions)
