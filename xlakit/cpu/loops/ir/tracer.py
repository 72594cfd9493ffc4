"""Traces HLO to nodes: the computation of an element of an instruction, given its index."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from xlakit.cpu.declined import DeclinedError
from xlakit.cpu.loops.ir.bits import as_bits, as_ordered, bits_of
from xlakit.cpu.loops.ir.index import ZERO, Affine, Node, Opaque, Variable, linear, number, of
from xlakit.cpu.loops.ir.nodes import (
    Apply,
    Bound,
    ClampedIndex,
    Constant,
    Divided,
    Guarded,
    GuardedReduction,
    JoinBits,
    Part,
    Position,
    Reduction,
    SplitBits,
)
from xlakit.cpu.loops.ir.space import Space
from xlakit.cpu.scalars import is_scalar_operation
from xlakit.data.primitive import PrimitiveType
from xlakit.data.shape import Shape
from xlakit.ir.enums import ComparisonType
from xlakit.ir.instruction import Computation, Instruction
from xlakit.ir.operation import OPERATIONS
from xlakit.ops.data import Constant as ConstantOp, GetTupleElement, Iota, Parameter
from xlakit.ops.dot import Dot
from xlakit.ops.dynamic import DynamicSlice
from xlakit.ops.elementwise.compare import Compare
from xlakit.ops.elementwise.convert import Convert
from xlakit.ops.gather import Gather
from xlakit.ops.movement import Broadcast, Concatenate, Pad, Reverse, Slice, Transpose
from xlakit.ops.reduction import Map, Reduce
from xlakit.ops.windows import ReduceWindow

Index = tuple[Affine, ...]
# Gives the node of an instruction outside of the traced code: its element at an index, of a part if it is a tuple.
Source = Callable[[Index, int], Node]


class Tracer:
    """Traces the instructions of one fused computation.

    sources: the nodes for parameters (and for results of earlier stages). space: makes the loop variables of nested
    reductions.
    """

    def __init__(self, sources: dict[Instruction, Source], space: Space) -> None:
        self.sources = sources
        self._space = space
        self._memo: dict[tuple[Instruction, Index, int], Node] = {}
        # Opaque terms compare by identity, so equal ones must be one object.
        self._opaques: dict[tuple[Affine, int, bool], Opaque] = {}
        self._clamped: dict[tuple[Node, int], Opaque] = {}

    def element(self, instruction: Instruction, index: Index, part: int = 0) -> Node:
        """The element of an instruction (of part ``part`` of its tuple) at an index."""
        key = (instruction, index, part)
        found = self._memo.get(key)
        if found is None:
            source = self.sources.get(instruction)
            found = source(index, part) if source is not None else self._trace(instruction, index, part)
            self._memo[key] = found
        return found

    def _trace(self, instruction: Instruction, index: Index, part: int) -> Node:
        rule = _RULES.get(instruction.opcode)
        if rule is not None:
            return rule(self, instruction, index, part)
        if is_scalar_operation(instruction.opcode):
            arguments = [self.element(o, index if o.shape.dimensions else ()) for o in instruction.operands]
            if isinstance(instruction.op, Compare) and instruction.op.type is ComparisonType.TOTALORDER:
                arguments = [as_ordered(a) for a in arguments]
            return Apply(instruction.shape.element_type, instruction.op, arguments)
        raise DeclinedError(f"no loop is made for {instruction.opcode}")

    # -- data ------------------------------------------------------------------------------------

    def constant(self, instruction: Instruction, index: Index, part: int) -> Node:
        """A scalar constant; arrays are parameters of the kernel."""
        literal = instruction.op_as(ConstantOp).literal
        array = literal.array
        if array.size != 1 and not _all_same(array):
            # Fusions made by this compiler take arrays as operands; those of another compiler may contain them.
            raise DeclinedError(f"no loop is made for a fusion that holds the array of the constant {instruction.name}")
        return Constant(instruction.shape.element_type, array.reshape(-1)[0])

    def iota(self, instruction: Instruction, index: Index, part: int) -> Node:
        """The index along a dimension."""
        return _position(instruction.shape.element_type, index[instruction.op_as(Iota).iota_dimension])

    def tuple_element(self, instruction: Instruction, index: Index, part: int) -> Node:
        """An element of one result of a tuple or of a variadic operation."""
        return self.element(instruction.operands[0], index, instruction.op_as(GetTupleElement).index)

    def tuple(self, instruction: Instruction, index: Index, part: int) -> Node:
        """One of the parts of a tuple."""
        return self.element(instruction.operands[part], index)

    def same(self, instruction: Instruction, index: Index, part: int) -> Node:
        """The operand itself."""
        return self.element(instruction.operands[0], index, part)

    # -- movement --------------------------------------------------------------------------------

    def broadcast(self, instruction: Instruction, index: Index, part: int) -> Node:
        """The operand's element at the index of the dimensions that it has."""
        operand = instruction.operands[0]
        dimensions = instruction.op_as(Broadcast).dimensions
        return self.element(operand, tuple(index[d] for d in dimensions))

    def reshape(self, instruction: Instruction, index: Index, part: int) -> Node:
        """The operand's element at the same position in row-major order."""
        operand = instruction.operands[0]
        return self.element(operand, self.reindexed(index, instruction.shape.dimensions, operand.shape.dimensions))

    def reindexed(self, index: Index, sizes: tuple[int, ...], others: tuple[int, ...]) -> Index:
        """The index, into an array of other dimensions, of the element at the same position in row-major order."""
        found: list[Affine] = []
        for own, other in _groups(sizes, others):
            position = linear([index[i] for i in own], tuple(sizes[i] for i in own))
            minor_first: list[Affine] = []
            for dimension in reversed(other[1:]):
                position, rest = self._divided(position, others[dimension])
                minor_first.append(rest)
            found.extend([position, *reversed(minor_first)] if other else [])
        return tuple(found)

    def _divided(self, index: Affine, size: int) -> tuple[Affine, Affine]:
        """The quotient and the rest of an index; as opaque nodes where they are no sums of loop variables."""
        quotient_and_rest = index.split(size)
        if quotient_and_rest is not None:
            return quotient_and_rest
        extent = index.bounds[1] + 1
        quotient = self._opaque((index, size, False), -(-extent // size))
        return of(quotient), of(self._opaque((index, size, True), size))

    def _opaque(self, key: tuple[Affine, int, bool], extent: int) -> Opaque:
        found = self._opaques.get(key)
        if found is None:
            index, size, is_remainder = key
            found = self._opaques[key] = Opaque(Divided(index, size, is_remainder=is_remainder), extent)
        return found

    def transpose(self, instruction: Instruction, index: Index, part: int) -> Node:
        """Dimension i of the result is dimension ``dimensions[i]`` of the operand."""
        dimensions = instruction.op_as(Transpose).dimensions
        inner: list[Affine] = [ZERO] * len(dimensions)
        for k, dimension in enumerate(dimensions):
            inner[dimension] = index[k]
        return self.element(instruction.operands[0], tuple(inner))

    def slice(self, instruction: Instruction, index: Index, part: int) -> Node:
        """The operand's element, by the start and stride of each dimension."""
        ranges = instruction.op_as(Slice).slice
        inner = tuple(i * r.stride + r.start for i, r in zip(index, ranges, strict=True))
        return self.element(instruction.operands[0], inner)

    def reverse(self, instruction: Instruction, index: Index, part: int) -> Node:
        """The operand's element, counted from the other end of the reversed dimensions."""
        turned = instruction.op_as(Reverse).dimensions
        sizes = instruction.shape.dimensions
        inner = tuple(i * -1 + (sizes[d] - 1) if d in turned else i for d, i in enumerate(index))
        return self.element(instruction.operands[0], inner)

    def pad(self, instruction: Instruction, index: Index, part: int) -> Node:
        """The operand's element if the index is at one, else the padding value."""
        operand, value = instruction.operands
        bounds: list[Bound] = []
        inner: list[Affine] = []
        for i, size, p in zip(index, operand.shape.dimensions, instruction.op_as(Pad).padding, strict=True):
            step = p.interior_padding + 1
            high = p.edge_padding_low + (size - 1) * step
            bounds.append((i, p.edge_padding_low, high, step))
            inner.append(ZERO if size == 1 else self._stepped(i, p.edge_padding_low, step))
        outside = self.element(value, ())
        if not operand.shape.num_elements or any(_never(b) for b in bounds):
            return outside
        return _guarded(bounds, self.element(operand, tuple(inner)), outside)

    def _stepped(self, index: Affine, low: int, step: int) -> Affine:
        moved = index + -low
        if step == 1:
            return moved
        quotient_and_rest = moved.split(step) if moved.bounds[0] >= 0 else None
        return quotient_and_rest[0] if quotient_and_rest else of(self._opaque((moved, step, False), 1 << 40))

    def concatenate(self, instruction: Instruction, index: Index, part: int) -> Node:
        """The element of the operand in whose range the index is."""
        dimension = instruction.op_as(Concatenate).dimension
        position, start = index[dimension], 0
        pieces: list[tuple[int, Instruction]] = []
        for operand in instruction.operands:
            if operand.shape.dimensions[dimension]:
                pieces.append((start, operand))
            start += operand.shape.dimensions[dimension]
        found: Node | None = None
        for begin, operand in reversed(pieces):
            low, high = position.bounds
            end = begin + operand.shape.dimensions[dimension]
            # In an operand of a single element, the index is 0, and does not depend on the loop.
            own = ZERO if end - begin == 1 else position + -begin
            inner = (*index[:dimension], own, *index[dimension + 1 :])
            if high < begin or low >= end:
                continue
            value = self.element(operand, inner)
            found = value if found is None else _guarded([(position, begin, end - 1, 1)], value, found)
        if found is None:
            # An index outside of all operands; a pad around the concatenation never uses this element.
            return Constant(instruction.shape.element_type, np.zeros((), instruction.shape.element_type.dtype))
        return found

    # -- dynamic movement ------------------------------------------------------------------------

    def start_index(self, operand: Instruction, index: Index, limit: int) -> Affine:
        """A start index that is read at run time, clamped to 0..limit."""
        node = self.element(operand, index)
        if limit <= 0:
            return ZERO
        if isinstance(node, Constant):
            return number(max(0, min(int(node.value), limit)))
        found = self._clamped.get((node, limit))
        if found is None:
            found = self._clamped[node, limit] = Opaque(ClampedIndex(node, limit), limit + 1)
        return of(found)

    def dynamic_slice(self, instruction: Instruction, index: Index, part: int) -> Node:
        """The element of the slice that starts at the clamped indices."""
        operand, *starts = instruction.operands
        sizes = instruction.op_as(DynamicSlice).dynamic_slice_sizes
        offsets = self.starts(starts, operand.shape, sizes)
        return self.element(operand, tuple(i + o for i, o in zip(index, offsets, strict=True)))

    def starts(self, starts: Sequence[Instruction], shape: Shape, sizes: Sequence[int]) -> list[Affine]:
        """The clamped start indices of a dynamic slice or update, one array or a scalar for each dimension."""
        limits = [size - taken for size, taken in zip(shape.dimensions, sizes, strict=True)]
        if len(starts) == 1 and starts[0].shape.dimensions:
            return [self.start_index(starts[0], (number(d),), limit) for d, limit in enumerate(limits)]
        return [self.start_index(start, (), limit) for start, limit in zip(starts, limits, strict=True)]

    def gather(self, instruction: Instruction, index: Index, part: int) -> Node:
        """The element of the slice that starts at the index vector for the batch part of the index."""
        operand, indices = instruction.operands
        op = instruction.op_as(Gather)
        if 0 in op.slice_sizes:
            # The slice has no elements, and the operand may have none either.
            kind = instruction.shape.element_type
            return Constant(kind, np.zeros((), kind.dtype))
        batch = [i for d, i in enumerate(index) if d not in op.offset_dims]
        offsets = [index[d] for d in op.offset_dims]
        inner: list[Affine] = []
        for dimension, size in enumerate(operand.shape.dimensions):
            fixed = dimension in op.collapsed_slice_dims or dimension in op.operand_batching_dims
            own = ZERO if fixed else offsets.pop(0)
            if dimension in op.start_index_map:
                position = op.start_index_map.index(dimension)
                where = list(batch)
                if op.index_vector_dim < indices.shape.rank:
                    where.insert(op.index_vector_dim, number(position))
                own = own + self.start_index(indices, tuple(where), size - op.slice_sizes[dimension])
            elif dimension in op.operand_batching_dims:
                of_indices = op.start_indices_batching_dims[op.operand_batching_dims.index(dimension)]
                own = own + batch[of_indices - (of_indices > op.index_vector_dim)]
            inner.append(own)
        return self.element(operand, tuple(inner))

    # -- reductions ------------------------------------------------------------------------------

    def reduce(self, instruction: Instruction, index: Index, part: int) -> Node:
        """A reduction, with a loop over the reduced dimensions."""
        op = instruction.op_as(Reduce)
        sizes = instruction.operands[0].shape.dimensions
        axes = {d: self._space.axis(sizes[d]) for d in sorted(op.dimensions)}
        outer = iter(index)
        inner = tuple(axes[d].index if d in axes else next(outer) for d in range(len(sizes)))
        over = [variable for axis in axes.values() for variable in axis.variables]
        return self._reduction(instruction, index, over, inner, [], part)

    def reduce_window(self, instruction: Instruction, index: Index, part: int) -> Node:
        """A reduction with a loop over the positions of the window, without those in the padding."""
        op = instruction.op_as(ReduceWindow)
        sizes = instruction.operands[0].shape.dimensions
        over: list[Variable] = []
        bounds: list[Bound] = []
        inner: list[Affine] = []
        for i, size, d in zip(index, sizes, op.window.dimensions, strict=True):
            position = i * d.stride + -d.padding_low
            axis = self._space.axis(d.size)
            over.extend(axis.variables)
            # A reversed window has the same positions in reverse order.
            position = position + axis.index * d.window_dilation
            bounds.append((position, 0, (size - 1) * d.base_dilation, d.base_dilation))
            inner.append(self._stepped(position, 0, d.base_dilation))
        return self._reduction(instruction, index, over, tuple(inner), bounds, part)

    def _reduction(
        self,
        instruction: Instruction,
        index: Index,
        over: Sequence[Variable],
        inner: Index,
        bounds: Sequence[Bound],
        part: int,
    ) -> Node:
        count = len(instruction.operands) // 2
        arrays, inits = instruction.operands[:count], instruction.operands[count:]
        computation = instruction.op.called_computations[0]
        kinds = [init.shape.element_type for init in inits]
        initial = [self.element(init, ()) for init in inits]
        empty = not arrays[0].shape.num_elements
        inputs = (
            initial
            if empty
            else [as_kind(self.element(array, inner), kind) for array, kind in zip(arrays, kinds, strict=True)]
        )
        reduction = GuardedReduction(computation, over, inputs, initial, [b for b in bounds if not _always(b)])
        parts = [Part(kind, reduction, k) for k, kind in enumerate(kinds)]
        for k, node in enumerate(parts):
            self._memo[instruction, index, k] = node
        return parts[part]

    def dot(self, instruction: Instruction, index: Index, part: int) -> Node:
        """A small product of matrices, as a reduction of products."""
        op = instruction.op_as(Dot)
        lhs, rhs = instruction.operands
        kind = instruction.shape.element_type
        if {lhs.shape.element_type, rhs.shape.element_type} != {kind} or kind.bit_width < 32:
            raise DeclinedError(f"no loop is made for a dot of {lhs.shape.element_type.hlo_name}")
        axes = [self._space.axis(lhs.shape.dimensions[d]) for d in op.lhs_contracting_dims]
        batch, free = index[: len(op.lhs_batch_dims)], iter(index[len(op.lhs_batch_dims) :])
        indices: list[Index] = []
        for operand, batches, contracted in (
            (lhs, op.lhs_batch_dims, op.lhs_contracting_dims),
            (rhs, op.rhs_batch_dims, op.rhs_contracting_dims),
        ):
            known = dict(zip(batches, batch, strict=True)) | {d: a.index for d, a in zip(contracted, axes, strict=True)}
            indices.append(tuple(known[d] if d in known else next(free) for d in range(operand.shape.rank)))
        factors = [self.element(lhs, indices[0]), self.element(rhs, indices[1])]
        product = Apply(kind, OPERATIONS["multiply"](), factors)
        over = [variable for axis in axes for variable in axis.variables]
        zero = Constant(kind, np.zeros((), kind.dtype))
        if not over:
            # A reduction forgets the values computed in it, so that the next dot of a chain would compute them again.
            return Apply(kind, OPERATIONS["add"](), [zero, product])
        return Part(kind, Reduction(_sum_of(kind), over, [product], [zero]), 0)

    def map(self, instruction: Instruction, index: Index, part: int) -> Node:
        """The element of the computation, inlined."""
        computation = instruction.op_as(Map).to_apply
        arguments = [self.element(o, index) for o in instruction.operands]
        return self.inlined(computation, arguments, part)

    def inlined(self, computation: Any, arguments: Sequence[Node], part: int = 0) -> Node:
        """The element of a computation on scalars whose parameters are nodes."""
        sources: dict[Instruction, Source] = {
            p: (lambda _, __, node=node: node) for p, node in zip(computation.parameters, arguments, strict=True)
        }
        return Tracer(sources, self._space).element(computation.root, (), part)

    # -- bits ------------------------------------------------------------------------------------

    def bitcast_convert(self, instruction: Instruction, index: Index, part: int) -> Node:
        """The element with the same bits; a narrower type adds a dimension, a wider one removes one."""
        operand = instruction.operands[0]
        kind, source = instruction.shape.element_type, operand.shape.element_type
        if kind.bit_width == source.bit_width:
            return bits_of(self.element(operand, index), kind)
        if kind.bit_width < source.bit_width:
            return SplitBits(kind, as_bits(self.element(operand, index[:-1])), index[-1])
        count = kind.bit_width // source.bit_width
        return JoinBits(kind, [as_bits(self.element(operand, (*index, number(k)))) for k in range(count)])


@cache
def _sum_of(kind: PrimitiveType) -> Computation:
    """The computation that adds two scalars."""
    shape = Shape(kind)
    given = [Instruction(Parameter(number=n), (), shape, f"p{n}") for n in (0, 1)]
    total = Instruction(OPERATIONS["add"](), given, shape, "sum")
    return Computation("add", (*given, total), total)


def as_kind(node: Node, kind: PrimitiveType) -> Node:
    """A node converted to an element type."""
    return node if node.kind is kind else Apply(kind, Convert(), [node])


def _position(kind: PrimitiveType, index: Affine) -> Node:
    if (kind.is_integral and kind.bit_width >= 8) or kind is PrimitiveType.S64:
        return Position(kind, index)
    return as_kind(Position(PrimitiveType.S64, index), kind)


def _always(bound: Bound) -> bool:
    index, low, high, step = bound
    least, greatest = index.bounds
    return low <= least and greatest <= high and step == 1


def _never(bound: Bound) -> bool:
    index, low, high, _ = bound
    least, greatest = index.bounds
    return greatest < low or least > high


def _guarded(bounds: Sequence[Bound], inside: Node, outside: Node) -> Node:
    needed = [b for b in bounds if not _always(b)]
    return Guarded(needed, inside, outside) if needed else inside


def _all_same(array: Any) -> bool:
    return bool(array.size) and array.tobytes() == array.reshape(-1)[:1].tobytes() * array.size


def _groups(a: tuple[int, ...], b: tuple[int, ...]) -> list[tuple[range, range]]:
    """The dimensions of two shapes of equal size, in the smallest groups of equal size."""
    if 0 in a or 0 in b:
        return [(range(len(a)), range(len(b)))]
    groups: list[tuple[range, range]] = []
    i = j = 0
    while i < len(a) or j < len(b):
        first, second = i, j
        left = a[i] if i < len(a) else 1
        right = b[j] if j < len(b) else 1
        i, j = min(i + 1, len(a)), min(j + 1, len(b))
        while left != right:
            if left < right:
                left, i = left * a[i], i + 1
            else:
                right, j = right * b[j], j + 1
        groups.append((range(first, i), range(second, j)))
    return groups


_RULES: dict[str, Callable[[Tracer, Instruction, Index, int], Node]] = {
    "constant": Tracer.constant,
    "iota": Tracer.iota,
    "get-tuple-element": Tracer.tuple_element,
    "tuple": Tracer.tuple,
    "opt-barrier": Tracer.same,
    "copy": Tracer.same,
    "broadcast": Tracer.broadcast,
    "reshape": Tracer.reshape,
    "transpose": Tracer.transpose,
    "slice": Tracer.slice,
    "reverse": Tracer.reverse,
    "pad": Tracer.pad,
    "concatenate": Tracer.concatenate,
    "dynamic-slice": Tracer.dynamic_slice,
    "gather": Tracer.gather,
    "reduce": Tracer.reduce,
    "dot": Tracer.dot,
    "reduce-window": Tracer.reduce_window,
    "map": Tracer.map,
    "bitcast-convert": Tracer.bitcast_convert,
}


def is_traced(opcode: str) -> bool:
    """Whether the tracer can make an operation a part of a loop."""
    return opcode in _RULES or is_scalar_operation(opcode)
