"""RaggedDot and ScaledDot: dots over groups of rows, and dots of operands with scales.

Source: OpenXLA's shape inference and evaluation of these; the document does not have them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

import numpy as np

from xlakit.data.primitive import PrimitiveType
from xlakit.data.shape import UNBOUNDED, Shape
from xlakit.dataclass import dataclass
from xlakit.errors import ShapeError
from xlakit.ir.enums import Precision
from xlakit.ir.operation import Array, Evaluation, Kind, Value, attribute, operation
from xlakit.ops.dot import Contraction, DotAttributes, DotDimensionNumbers, PrecisionConfig, emit_product
from xlakit.ops.handle import OperandLike, XlaOp, as_op, building, common_builder
from xlakit.ops.shared.checks import check_distinct, need_array
from xlakit.ops.shared.contraction import contract, free_dimensions
from xlakit.ops.shared.numerics import that_can_be_zero, zeros


@dataclass(frozen=True, slots=True)
class RaggedDotDimensionNumbers:
    """The dimensions of a ragged dot: those of a dot, the ragged one of the lhs, the group one of the rhs."""

    dot_dimension_numbers: DotDimensionNumbers = field(default_factory=DotDimensionNumbers)
    lhs_ragged_dimensions: Sequence[int] = ()
    rhs_group_dimensions: Sequence[int] = ()


# -- ragged dot ----------------------------------------------------------------------------------

_RAGGED = "ragged_dot_dimension_numbers."


@operation("ragged-dot", arity=3)
class RaggedDot(Contraction):
    """A dot whose lhs is cut, along one dimension, into groups of sizes that the third operand gives.

    If the ragged dimension is a free one, each group is multiplied with its own slice of rhs: [m,k], [g,k,n] -> [m,n].
    If it is contracted, each group is summed separately: [m,k], [k,n] -> [g,m,n].
    If it is a batch dimension, only the batches that are in a group are computed: [b,m,k], [b,k,n] -> [b,m,n].
    Elements of the result that belong to no group are zero.
    """

    lhs_batch_dims: tuple[int, ...] = attribute(
        Kind.INT64_LIST, default=(), proto=_RAGGED + "dot_dimension_numbers.lhs_batch_dimensions"
    )
    lhs_contracting_dims: tuple[int, ...] = attribute(
        Kind.INT64_LIST, default=(), proto=_RAGGED + "dot_dimension_numbers.lhs_contracting_dimensions", always=True
    )
    rhs_batch_dims: tuple[int, ...] = attribute(
        Kind.INT64_LIST, default=(), proto=_RAGGED + "dot_dimension_numbers.rhs_batch_dimensions"
    )
    rhs_contracting_dims: tuple[int, ...] = attribute(
        Kind.INT64_LIST, default=(), proto=_RAGGED + "dot_dimension_numbers.rhs_contracting_dimensions", always=True
    )
    lhs_ragged_dims: tuple[int, ...] = attribute(Kind.INT64_LIST, default=(), proto=_RAGGED + "lhs_ragged_dimensions")
    rhs_group_dims: tuple[int, ...] = attribute(Kind.INT64_LIST, default=(), proto=_RAGGED + "rhs_group_dimensions")
    operand_precision: tuple[Precision, ...] = attribute(
        Kind.PRECISION_LIST, default=(), proto="precision_config.operand_precision"
    )

    def result_shape(self, operands: Sequence[Shape], declared: Shape | None) -> Shape:
        lhs, rhs, groups = operands
        self._check(lhs, rhs)
        if len(self.lhs_ragged_dims) != 1:
            raise ShapeError(
                f"lhs must have exactly one ragged dimension, got {list(self.lhs_ragged_dims)}",
                hint="give the one dimension of lhs that is cut into groups",
            )
        ragged = self.lhs_ragged_dims[0]
        check_distinct("lhs_ragged_dims", [ragged], lhs.rank)
        self._check_groups(lhs, groups)
        check_distinct("rhs_group_dims", self.rhs_group_dims, rhs.rank)
        if set(self.rhs_group_dims) & {*self.rhs_batch_dims, *self.rhs_contracting_dims}:
            raise ShapeError(
                "the group dimension of rhs cannot be a batch or contracting dimension",
                hint="give rhs_group_dims a dimension of rhs that is in neither list",
            )
        is_free = ragged not in self.lhs_batch_dims and ragged not in self.lhs_contracting_dims
        if len(self.rhs_group_dims) != int(is_free):
            raise ShapeError(
                f"rhs has {len(self.rhs_group_dims)} group dimensions, {int(is_free)} are needed",
                hint="rhs has one exactly where the ragged dimension is neither batch nor contracting",
            )
        if is_free:
            sizes = groups.dimensions[-1], rhs.dimensions[self.rhs_group_dims[0]]
            if sizes[0] != sizes[1] and UNBOUNDED not in sizes:
                raise ShapeError(
                    f"there are {sizes[0]} group sizes, but rhs has {sizes[1]} groups",
                    hint=f"give {sizes[1]} group sizes, or an rhs of {sizes[0]} groups",
                )
        per_group = groups if ragged in self.lhs_contracting_dims else None
        return self._result(lhs, rhs, declared, self.rhs_group_dims, per_group)

    def _prefix(self, rank: int) -> list[int]:
        """The dimensions of lhs before the ragged one: each of their indices may have its own group sizes."""
        ragged = self.lhs_ragged_dims[0]
        batch = list(self.lhs_batch_dims)
        if ragged in batch:
            return batch[: batch.index(ragged)]
        own = list(self.lhs_contracting_dims)
        if ragged not in own:
            own = free_dimensions(rank, batch, own)
        return batch + own[: own.index(ragged)]

    def _check_groups(self, lhs: Shape, groups: Shape) -> None:
        if not groups.is_array or not groups.element_type.is_integral or groups.rank == 0:
            raise ShapeError(
                f"group sizes must be an array of integers, got {groups}",
                hint="give the number of rows of each group, as s32 or s64",
            )
        prefix = tuple(lhs.dimensions[d] for d in self._prefix(lhs.rank))
        if groups.rank != 1 and groups.dimensions[:-1] != prefix:
            raise ShapeError(
                f"group sizes have dimensions {list(groups.dimensions)}, the shape must be "
                f"[{', '.join(map(str, prefix))}{', ' * bool(prefix)}{groups.dimensions[-1]}]",
                hint="give one vector of sizes, or one for each index of the dimensions before the ragged one",
            )

    def evaluate(self, context: Evaluation, *operands: Value) -> Value:
        lhs, rhs = map(that_can_be_zero, operands[:2])
        groups, kind = operands[2], context.shape.element_type
        prefix = self._prefix(lhs.ndim)
        ends = np.cumsum(groups.astype(np.int64), axis=-1)
        ends = np.broadcast_to(ends, (*(lhs.shape[d] for d in prefix), ends.shape[-1]))
        ragged = self.lhs_ragged_dims[0]
        if ragged in self.lhs_batch_dims:
            return self._ragged_batch(lhs, rhs, ends, kind)
        if ragged in self.lhs_contracting_dims:
            return self._ragged_contracting(lhs, rhs, ends, kind)
        return self._ragged_free(lhs, rhs, ends, kind)

    def _ragged_batch(self, lhs: Array, rhs: Array, ends: Array, kind: PrimitiveType) -> Array:
        product = self._contract(lhs, rhs, kind)
        axis = ends.ndim - 1
        total = ends[..., -1] if ends.shape[-1] else np.zeros(ends.shape[:-1], np.int64)
        counted = np.arange(product.shape[axis]) < total[..., None]
        counted = counted.reshape(*counted.shape, *[1] * (product.ndim - counted.ndim))
        return np.where(counted, product, zeros((), kind))

    def _ragged_free(self, lhs: Array, rhs: Array, ends: Array, kind: PrimitiveType) -> Array:
        ragged, group_dim = self.lhs_ragged_dims[0], self.rhs_group_dims[0]
        # Removing the group dimension renumbers the others.
        batch = [d - (d > group_dim) for d in self.rhs_batch_dims]
        contracting = [d - (d > group_dim) for d in self.rhs_contracting_dims]
        owner = _first_group(lhs.shape[ragged], ends)
        free = free_dimensions(rhs.ndim, self.rhs_batch_dims, self.rhs_contracting_dims, [group_dim])
        lhs_kept = [*self.lhs_batch_dims, *free_dimensions(lhs.ndim, self.lhs_batch_dims, self.lhs_contracting_dims)]
        result = zeros([*(lhs.shape[d] for d in lhs_kept), *(rhs.shape[d] for d in free)], kind)
        axis = owner.ndim - 1
        for group in range(ends.shape[-1]):
            rows = np.flatnonzero((owner == group).any(axis=tuple(range(owner.ndim - 1))))
            if rows.size == 0:
                continue
            span = slice(int(rows[0]), int(rows[-1]) + 1)
            part = contract(
                lhs[(slice(None),) * ragged + (span,)],
                rhs.take(group, axis=group_dim),
                (self.lhs_batch_dims, batch),
                (self.lhs_contracting_dims, contracting),
                kind,
            )
            mine = owner[..., span] == group
            index = (slice(None),) * axis + (span,)
            mine = mine.reshape(*mine.shape, *[1] * (part.ndim - mine.ndim))
            result[index] = np.where(mine, part, result[index])
        return result

    def _ragged_contracting(self, lhs: Array, rhs: Array, ends: Array, kind: PrimitiveType) -> Array:
        ragged = self.lhs_ragged_dims[0]
        axes = [*self._prefix(lhs.ndim), ragged]
        partner = dict(zip(self.lhs_contracting_dims, self.rhs_contracting_dims, strict=True))
        partner.update(zip(self.lhs_batch_dims, self.rhs_batch_dims, strict=True))
        index = np.arange(lhs.shape[ragged])
        parts: list[Array] = []
        for group in range(ends.shape[-1]):
            start = ends[..., group - 1, None] if group else 0
            inside = (index >= start) & (index < ends[..., group, None])
            parts.append(
                self._contract(_keep(lhs, inside, axes), _keep(rhs, inside, [partner[axis] for axis in axes]), kind)
            )
        if not parts:
            return np.zeros((0, *self._contract(lhs, rhs, kind).shape), dtype=kind.dtype)
        return np.stack(parts)


def _first_group(count: int, ends: Array) -> Array:
    """For each of ``count`` indices the first group that ends after it; -1 for indices after the last group."""
    before = np.arange(count)[:, None] < ends[..., None, :]
    if ends.shape[-1] == 0:
        return np.full(before.shape[:-1], -1)
    return np.where(before.any(axis=-1), before.argmax(axis=-1), -1)


def _keep(array: Array, mask: Array, axes: Sequence[int]) -> Array:
    """``array`` with zeros where ``mask``, whose dimension i is dimension ``axes[i]`` of the array, is false."""
    order = np.argsort(axes)
    sizes = [1] * array.ndim
    for i, axis in enumerate(axes):
        sizes[axis] = mask.shape[i]
    return np.where(mask.transpose(order).reshape(sizes), array, array.dtype.type(0))


@building
def ragged_dot(
    lhs: OperandLike,
    rhs: OperandLike,
    group_sizes: OperandLike,
    dimension_numbers: RaggedDotDimensionNumbers,
    precision_config: PrecisionConfig | None = None,
    preferred_element_type: PrimitiveType | None = None,
) -> XlaOp:
    """A dot over groups of different sizes along one dimension of lhs.

    lhs, rhs: arrays of T.
    group_sizes: integers [g], or one vector of them for each index of the dimensions before the ragged one.
    dimension_numbers: those of a dot, the ragged dimension of lhs, and the group dimension of rhs where the ragged
        dimension is neither batch nor contracting.
    preferred_element_type: the element type of the result, by default T.

    Gives what dot_general gives, with a group dimension in front where the ragged dimension is contracted.
    Raises ShapeError. Source: XlaBuilder::RaggedDot.
    """
    builder = common_builder([lhs, rhs, group_sizes])
    config = precision_config or PrecisionConfig()
    numbers = dimension_numbers.dot_dimension_numbers
    op = RaggedDot(
        lhs_batch_dims=tuple(numbers.lhs_batch_dimensions),
        lhs_contracting_dims=tuple(numbers.lhs_contracting_dimensions),
        rhs_batch_dims=tuple(numbers.rhs_batch_dimensions),
        rhs_contracting_dims=tuple(numbers.rhs_contracting_dimensions),
        lhs_ragged_dims=tuple(dimension_numbers.lhs_ragged_dimensions),
        rhs_group_dims=tuple(dimension_numbers.rhs_group_dimensions),
        operand_precision=config.precisions,
    )
    return emit_product(op, [as_op(builder, o) for o in (lhs, rhs, group_sizes)], preferred_element_type)


# -- scaled dot ----------------------------------------------------------------------------------


@operation("scaled-dot", arity=4)
class ScaledDot(DotAttributes):
    """A dot of operands that are multiplied first by scales, each of which covers a block of elements."""

    def result_shape(self, operands: Sequence[Shape], declared: Shape | None) -> Shape:
        lhs, rhs, lhs_scale, rhs_scale = operands
        self._check(lhs, rhs)
        for what, operand, scale in (("lhs", lhs, lhs_scale), ("rhs", rhs, rhs_scale)):
            need_array(scale)
            unscaled = scale.element_type is operand.element_type is PrimitiveType.BF16
            if unscaled and all(size == 1 for size in scale.dimensions):
                continue
            if scale.rank != operand.rank:
                raise ShapeError(
                    f"the scale of {what} has rank {scale.rank}, the operand {operand.rank}",
                    hint=f"reshape it to rank {operand.rank}; a scale is for a block, maybe of a whole dimension",
                )
            if len(self.lhs_contracting_dims) != 1:
                raise ShapeError(
                    f"a scaled dot contracts exactly one dimension, not {len(self.lhs_contracting_dims)}",
                    hint="reshape the contracting dimensions to one",
                )
            for d, (size, blocks) in enumerate(zip(operand.dimensions, scale.dimensions, strict=True)):
                if blocks == 0 or size % blocks:
                    raise ShapeError(
                        f"dimension {d} of {what} has size {size}, not a multiple of its scale's {blocks}",
                        hint=f"give a scale of a size that divides {size}",
                    )
        if lhs_scale.is_scalar and rhs_scale.is_scalar:
            raise ShapeError("at least one of the scales must not be a scalar", hint="use dot")
        return self._result(lhs, rhs, declared)

    def evaluate(self, context: Evaluation, *operands: Value) -> Value:
        lhs, rhs, lhs_scale, rhs_scale = operands
        return self._contract(_scaled(lhs, lhs_scale), _scaled(rhs, rhs_scale), context.shape.element_type)


def _scaled(array: Array, scale: Array) -> Array:
    """``array`` times ``scale``, each element of which is repeated over its block, in float64."""
    wide = scale.astype(np.float64)
    for axis, (size, blocks) in enumerate(zip(array.shape, scale.shape, strict=False)):
        wide = np.repeat(wide, size // blocks, axis=axis)
    with np.errstate(all="ignore"):
        return array.astype(np.float64) * wide


@building
def scaled_dot(
    lhs: OperandLike,
    rhs: OperandLike,
    lhs_scale: OperandLike,
    rhs_scale: OperandLike,
    dimension_numbers: DotDimensionNumbers,
    precision_config: PrecisionConfig | None = None,
    preferred_element_type: PrimitiveType | None = None,
) -> XlaOp:
    """A dot of block-scaled operands.

    lhs, rhs: arrays. lhs_scale, rhs_scale: arrays of the same rank, each size of which divides the operand's; or
        ones of size 1 in BF16 for a BF16 operand that is not scaled.
    dimension_numbers: as for dot_general, with one contracting dimension.
    preferred_element_type: the element type of the result.

    Gives what dot_general gives. Raises ShapeError. Source: XlaBuilder::ScaledDot.
    """
    builder = common_builder([lhs, rhs, lhs_scale, rhs_scale])
    op = ScaledDot.of(dimension_numbers, precision_config)
    return emit_product(op, [as_op(builder, o) for o in (lhs, rhs, lhs_scale, rhs_scale)], preferred_element_type)
