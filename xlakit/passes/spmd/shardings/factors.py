"""Factors: the dimensions of an operation's operands and results that can be split together.

A rule gives each dimension a factor, a number that is local to the rule, or None if the dimension is needed whole. The
operation on one part of all dimensions of a factor gives that part of the results. A factor that no result has is
summed: the partial results are combined. An operation without a rule is computed whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from xlakit.data.primitive import PrimitiveType
from xlakit.data.shape import Shape
from xlakit.dataclass import dataclass
from xlakit.ir.attributes import Window, WindowDimension
from xlakit.ir.instruction import Computation, Instruction
from xlakit.ops.communication.collective_moves import AllToAll
from xlakit.ops.communication.collectives import AllGather, ReduceScatter
from xlakit.ops.convolution import Convolution
from xlakit.ops.data import Constant, Parameter
from xlakit.ops.dot import Dot
from xlakit.ops.dynamic import DynamicSlice
from xlakit.ops.fft import Fft
from xlakit.ops.gather import Gather
from xlakit.ops.movement import Broadcast, Concatenate, Pad, Transpose
from xlakit.ops.reduction import Reduce, identity_of
from xlakit.ops.scatter import Scatter
from xlakit.ops.sort import Sort
from xlakit.ops.windows import ReduceWindow, SelectAndScatter

# The frontend attribute of custom calls that gives the number of leading batch dimensions.
BATCH_DIMENSIONS: Final = "num_batch_dims"

Dims = tuple[int | None, ...]


@dataclass(frozen=True)
class Factors:
    """The factors of the dimensions of each operand and each result, and those that are summed over.

    groups: factors of dimensions that consist of groups which must not be cut, with the number of groups.
    """

    operands: tuple[Dims, ...]
    results: tuple[Dims, ...]
    summed: frozenset[int] = frozenset()
    groups: tuple[tuple[int, int], ...] = ()


Rule = Callable[[Instruction], Factors | None]


def factors_of(instruction: Instruction) -> Factors | None:
    """The factors of an instruction; None if none are known for it."""
    arrays = [leaf for i in (instruction, *instruction.operands) for _, leaf in i.shape.leaves()]
    if any(not s.is_array or s.is_dynamic for s in arrays) or any(o.shape.is_tuple for o in instruction.operands):
        return None
    if isinstance(instruction.op, (Constant, Parameter)):
        return None
    rule = _RULES.get(instruction.opcode)
    if rule is not None:
        return rule(instruction)
    return _elementwise(instruction) if instruction.is_pointwise and not instruction.shape.is_tuple else None


def _elementwise(x: Instruction) -> Factors | None:
    dims = tuple(range(x.shape.rank))
    if any(o.shape.rank and o.shape.dimensions != x.shape.dimensions for o in x.operands):
        return None
    return Factors(tuple(dims if o.shape.rank else () for o in x.operands), (dims,))


def _iota(x: Instruction) -> Factors:
    return Factors((), (tuple(range(x.shape.rank)),))


def _broadcast(x: Instruction) -> Factors:
    return Factors((x.op_as(Broadcast).dimensions,), (tuple(range(x.shape.rank)),))


def _transpose(x: Instruction) -> Factors:
    order = x.op_as(Transpose).dimensions
    return Factors((tuple(range(len(order))),), (order,))


def _reshape(x: Instruction) -> Factors:
    """Of dimensions that a reshape merges or splits, the major one can be split."""
    old, new = x.operands[0].shape.dimensions, x.shape.dimensions
    operand: list[int | None] = [None] * len(old)
    result: list[int | None] = [None] * len(new)
    if 0 in old:
        return Factors((tuple(operand),), (tuple(result),))
    i = j = number = 0
    while i < len(old) and j < len(new):
        if old[i] == 1:
            i += 1
            continue
        if new[j] == 1:
            j += 1
            continue
        operand[i] = result[j] = number
        number += 1
        left, right = old[i], new[j]
        i, j = i + 1, j + 1
        while left != right:
            if left < right:
                left, i = left * old[i], i + 1
            else:
                right, j = right * new[j], j + 1
    return Factors((tuple(operand),), (tuple(result),))


def _kept(kept: Sequence[bool], scalars: int = 0) -> Factors:
    """The factors of an operation on one array, whose ``kept`` dimensions stay the same, and some scalars."""
    dims = tuple(d if same else None for d, same in enumerate(kept))
    return Factors((dims, *((),) * scalars), (dims,))


def _reverse(x: Instruction) -> Factors:
    """All dimensions can be split; the parts of reversed ones are permuted."""
    return _kept((True,) * x.shape.rank)


def _slice(x: Instruction) -> Factors:
    sizes = x.operands[0].shape.dimensions
    return _kept([size == own for size, own in zip(sizes, x.shape.dimensions, strict=True)])


def _dynamic_slice(x: Instruction) -> Factors | None:
    if len(x.operands) != 1 + x.shape.rank:
        return None
    return _slice_like(x, x.op_as(DynamicSlice).dynamic_slice_sizes, x.shape.rank)


def _slice_like(x: Instruction, sizes: Sequence[int], scalars: int) -> Factors:
    whole = x.operands[0].shape.dimensions
    return _kept([size == own for size, own in zip(whole, sizes, strict=True)], scalars)


def _dynamic_update_slice(x: Instruction) -> Factors | None:
    if len(x.operands) != 2 + x.shape.rank:
        return None
    update = x.operands[1].shape.dimensions
    dims = _slice_like(x, update, 0).results[0]
    return Factors((dims, dims, *((),) * x.shape.rank), (dims,))


def _pad(x: Instruction) -> Factors:
    padding = x.op_as(Pad).padding
    plain = [not (p.edge_padding_low or p.edge_padding_high or p.interior_padding) for p in padding]
    return _kept(plain, 1)


def _concatenate(x: Instruction) -> Factors:
    along = x.op_as(Concatenate).dimension
    dims = tuple(None if d == along else d for d in range(x.shape.rank))
    return Factors((dims,) * len(x.operands), (dims,))


def can_be_in_parts(computation: Computation, kind: PrimitiveType) -> bool:
    """Whether a reducer is a known one of this type that has an identity."""
    return identity_of(computation, kind) is not None


def _reduce(x: Instruction) -> Factors:
    op = x.op_as(Reduce)
    count = len(x.operands) // 2
    can_be_combined = count == 1 and can_be_in_parts(op.to_apply, x.shape.element_type)
    rank = x.operands[0].shape.rank
    dims = tuple(d if d not in op.dimensions or can_be_combined else None for d in range(rank))
    kept = tuple(d for d in range(rank) if d not in op.dimensions)
    summed = frozenset(op.dimensions) if can_be_combined else frozenset[int]()
    return Factors((dims,) * count + ((),) * count, (kept,) * count, summed)


def _dot(x: Instruction) -> Factors | None:
    op = x.op_as(Dot)
    if len(x.operands) != 2:
        return None
    left: list[int | None] = [None] * x.operands[0].shape.rank
    right: list[int | None] = [None] * x.operands[1].shape.rank
    number = 0
    summed: list[int] = []
    result: list[int] = []
    pairs = list(zip(op.lhs_batch_dims, op.rhs_batch_dims, strict=True))
    contracted = list(zip(op.lhs_contracting_dims, op.rhs_contracting_dims, strict=True))
    for position, (a, b) in enumerate(pairs + contracted):
        left[a] = right[b] = number
        (result if position < len(pairs) else summed).append(number)
        number += 1
    for side in (left, right):
        for d, known in enumerate(side):
            if known is None:
                side[d] = number
                result.append(number)
                number += 1
    found = Factors((tuple(left), tuple(right)), (tuple(result),), frozenset(summed))
    # Partial sums of integers may be added, since they wrap around; sums of PRED are a logical or.
    return _without(found, summed) if x.shape.element_type is PrimitiveType.PRED else found


def _without(factors: Factors, whole: Sequence[int]) -> Factors:
    """The factors without those in ``whole``, whose dimensions are needed whole."""

    def left(dims: Dims) -> Dims:
        return tuple(None if d in whole else d for d in dims)

    return Factors(tuple(map(left, factors.operands)), tuple(map(left, factors.results)), factors.summed - set(whole))


def _convolution(x: Instruction) -> Factors | None:
    op = x.op_as(Convolution)
    if len(x.operands) != 2 or op.sparsity_config is not None:
        return None
    dims = op.dim_labels
    image: list[int | None] = [None] * x.shape.rank
    kernel: list[int | None] = [None] * x.shape.rank
    result: list[int | None] = [None] * x.shape.rank
    kernel[dims.kernel_output_feature_dimension] = result[dims.output_feature_dimension] = 1
    count = max(op.feature_group_count, op.batch_group_count)
    if op.feature_group_count > 1:
        image[dims.input_feature_dimension] = 1
    if op.batch_group_count > 1:
        image[dims.input_batch_dimension] = 1
    else:
        image[dims.input_batch_dimension] = result[dims.output_batch_dimension] = 0
    summed = frozenset[int]()
    if op.feature_group_count == 1 and x.shape.element_type is not PrimitiveType.PRED:
        image[dims.input_feature_dimension] = kernel[dims.kernel_input_feature_dimension] = 2
        summed = frozenset({2})
    return Factors((tuple(image), tuple(kernel)), (tuple(result),), summed, ((1, count),) if count > 1 else ())


def _unwindowed(window: Window) -> Dims:
    """Factors for the dimensions in which windows are single elements without stride and padding."""
    return tuple(d if w == WindowDimension(1) else None for d, w in enumerate(window.dimensions))


def _reduce_window(x: Instruction) -> Factors:
    count = len(x.operands) // 2
    dims = _unwindowed(x.op_as(ReduceWindow).window)
    return Factors((dims,) * count + ((),) * count, (dims,) * count)


def _select_and_scatter(x: Instruction) -> Factors:
    dims = _unwindowed(x.op_as(SelectAndScatter).window)
    return Factors((dims, dims, ()), (dims,))


def _gather(x: Instruction) -> Factors:
    """Dimensions of the indices, and those that each slice takes whole, can be split."""
    op = x.op_as(Gather)
    operand: list[int | None] = [None] * x.operands[0].shape.rank
    indices: list[int | None] = [None] * x.operands[1].shape.rank
    result: list[int | None] = list(range(x.shape.rank))
    left = [
        d for d in range(x.operands[0].shape.rank) if d not in (*op.collapsed_slice_dims, *op.operand_batching_dims)
    ]
    for d, offset in zip(left, op.offset_dims, strict=True):
        if op.slice_sizes[d] == x.operands[0].shape.dimensions[d]:
            operand[d] = offset
        else:
            result[offset] = None
    batch = [d for d in range(x.shape.rank) if d not in op.offset_dims]
    index_dims = [d for d in range(len(indices)) if d != op.index_vector_dim]
    for d, index_dim in zip(batch, index_dims, strict=True):
        indices[index_dim] = d
    for d, index_dim in zip(op.operand_batching_dims, op.start_indices_batching_dims, strict=True):
        operand[d] = indices[index_dim]
    return Factors((tuple(operand), tuple(indices)), (tuple(result),))


def _scatter(x: Instruction) -> Factors | None:
    """Dimensions that each update window covers can be split, and the indices if the reducer has an identity."""
    op = x.op_as(Scatter)
    if len(x.operands) != 3:
        return None
    target, scatter_indices, updates = x.operands
    operand: list[int | None] = [None] * target.shape.rank
    indices: list[int | None] = [None] * scatter_indices.shape.rank
    update: list[int | None] = [None] * updates.shape.rank
    left = [d for d in range(target.shape.rank) if d not in (*op.inserted_window_dims, *op.input_batching_dims)]
    for d, window in zip(left, op.update_window_dims, strict=True):
        if updates.shape.dimensions[window] == target.shape.dimensions[d]:
            operand[d] = update[window] = d
    scattered = [d for d in range(updates.shape.rank) if d not in op.update_window_dims]
    index_dims = [d for d in range(scatter_indices.shape.rank) if d != op.index_vector_dim]
    batches = dict(zip(op.scatter_indices_batching_dims, op.input_batching_dims, strict=True))
    can_be_combined = can_be_in_parts(op.to_apply, x.shape.element_type)
    summed: list[int] = []
    for d, index_dim in zip(scattered, index_dims, strict=True):
        if index_dim in batches:
            operand[batches[index_dim]] = indices[index_dim] = update[d] = batches[index_dim]
        elif can_be_combined:
            indices[index_dim] = update[d] = target.shape.rank + d
            summed.append(target.shape.rank + d)
    return Factors((tuple(operand), tuple(indices), tuple(update)), (tuple(operand),), frozenset(summed))


def _sort(x: Instruction) -> Factors:
    dims = tuple(None if d == x.op_as(Sort).dimension else d for d in range(x.operands[0].shape.rank))
    return Factors((dims,) * len(x.operands), (dims,) * len(x.operands))


def _top_k(x: Instruction) -> Factors:
    dims = (*range(x.operands[0].shape.rank - 1), None)
    return Factors((dims,), (dims, dims))


def _leading(whole: int) -> Rule:
    """A rule for arrays with the same leading dimensions; the last ``whole`` dimensions are needed whole."""

    def rule(x: Instruction) -> Factors:
        dims = (*range(x.shape.rank - whole), *(None,) * whole)
        return Factors((dims,) * len(x.operands), (dims,))

    return rule


def _fft(x: Instruction) -> Factors | None:
    return _leading(len(x.op_as(Fft).fft_length))(x)


def _bitcast_convert(x: Instruction) -> Factors:
    operand, result = x.operands[0].shape.rank, x.shape.rank
    dims = tuple(range(min(operand, result)))
    return Factors(((*dims, *(None,) * (operand - len(dims))),), ((*dims, *(None,) * (result - len(dims))),))


def _collective(along: Callable[[Instruction], int | None]) -> Rule:
    """A rule for a collective of one array, which works along a dimension."""

    def rule(x: Instruction) -> Factors | None:
        if len(x.operands) != 1 or x.shape.is_tuple:
            return None
        return _kept([d != along(x) for d in range(x.shape.rank)])

    return rule


def _custom_call(x: Instruction) -> Factors | None:
    """A function declared to compute batch elements independently; operands of lower rank belong to all of them."""
    text = dict(x.annotations.frontend_attributes).get(BATCH_DIMENSIONS, "")
    if not text.isdecimal() or x.op.has_side_effect:
        return None
    count = int(text)
    operands, results = [o.shape for o in x.operands], [leaf for _, leaf in x.shape.leaves()]
    batches = {s.dimensions[:count] for s in (*operands, *results) if s.rank >= count}
    if len(batches) != 1 or any(s.rank < count for s in results):
        return None

    def dims(shape: Shape) -> Dims:
        return tuple(d if d < count <= shape.rank else None for d in range(shape.rank))

    return Factors(tuple(map(dims, operands)), tuple(map(dims, results)))


_RULES: Final[dict[str, Rule]] = {
    "all-gather": _collective(lambda x: x.op_as(AllGather).all_gather_dimension),
    "all-reduce": _collective(lambda x: -1),
    "all-to-all": _collective(lambda x: x.op_as(AllToAll).split_dimension),
    "bitcast-convert": _bitcast_convert,
    "broadcast": _broadcast,
    "cholesky": _leading(2),
    "collective-permute": _collective(lambda x: -1),
    "concatenate": _concatenate,
    "convolution": _convolution,
    "custom-call": _custom_call,
    "dot": _dot,
    "dynamic-slice": _dynamic_slice,
    "dynamic-update-slice": _dynamic_update_slice,
    "fft": _fft,
    "gather": _gather,
    "iota": _iota,
    "pad": _pad,
    "reduce": _reduce,
    "reduce-scatter": _collective(lambda x: x.op_as(ReduceScatter).scatter_dimension),
    "reduce-window": _reduce_window,
    "reshape": _reshape,
    "reverse": _reverse,
    "scatter": _scatter,
    "select-and-scatter": _select_and_scatter,
    "slice": _slice,
    "sort": _sort,
    "topk": _top_k,
    "transpose": _transpose,
    "triangular-solve": _leading(2),
}
