"""Dot, RaggedDot and ScaledDot: sums of products over contracting dimensions.

Source: seed document "Operation semantics", sections Dot and DotGeneral; OpenXLA for ragged and scaled dots.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from xlakit.data.primitive import PrimitiveType, higher_precision
from xlakit.data.shape import UNBOUNDED, Shape
from xlakit.errors import ShapeError
from xlakit.ir.enums import Precision, PrecisionAlgorithm
from xlakit.ir.operation import Array, Evaluation, Kind, Op, Value, attribute, operation
from xlakit.ops.contraction import contract, free_dimensions
from xlakit.ops.handle import OperandLike, XlaOp, as_op, building, common_builder, emit
from xlakit.ops.movement import check_distinct, need_array


@dataclass(frozen=True, slots=True)
class DotDimensionNumbers:
    """Which dimensions of the operands of a dot are contracted, and which are batch dimensions, pairwise."""

    lhs_contracting_dimensions: Sequence[int] = ()
    rhs_contracting_dimensions: Sequence[int] = ()
    lhs_batch_dimensions: Sequence[int] = ()
    rhs_batch_dimensions: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class RaggedDotDimensionNumbers:
    """The dimensions of a ragged dot: those of a dot, the ragged one of the lhs, the group one of the rhs."""

    dot_dimension_numbers: DotDimensionNumbers = DotDimensionNumbers()
    lhs_ragged_dimensions: Sequence[int] = ()
    rhs_group_dimensions: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class PrecisionConfig:
    """How exactly a backend should multiply: a precision for each operand, or a named algorithm.

    The interpreter is always more exact than any of them asks for.
    """

    operand_precision: Sequence[Precision | str] = ()
    algorithm: PrecisionAlgorithm | str = PrecisionAlgorithm.ALG_UNSET

    @property
    def precisions(self) -> tuple[Precision, ...]:
        """``operand_precision`` as members; raises ShapeError for an unknown name."""
        return tuple(Precision.of(p) for p in self.operand_precision)


class _Contraction(Op):
    """What the dots have in common: batch and contracting dimensions."""

    __slots__ = ()

    lhs_batch_dims: tuple[int, ...]
    lhs_contracting_dims: tuple[int, ...]
    rhs_batch_dims: tuple[int, ...]
    rhs_contracting_dims: tuple[int, ...]

    def _check(self, lhs: Shape, rhs: Shape) -> None:
        """Raise ShapeError unless the dimension numbers fit the operands."""
        check_distinct("lhs dimensions", (*self.lhs_contracting_dims, *self.lhs_batch_dims), need_array(lhs).rank)
        check_distinct("rhs dimensions", (*self.rhs_contracting_dims, *self.rhs_batch_dims), need_array(rhs).rank)
        for what, left, right in (
            ("contracting", self.lhs_contracting_dims, self.rhs_contracting_dims),
            ("batch", self.lhs_batch_dims, self.rhs_batch_dims),
        ):
            if len(left) != len(right):
                raise ShapeError(f"lhs has {len(left)} {what} dimensions, rhs has {len(right)}")
            for a, b in zip(left, right, strict=True):
                sizes = lhs.dimensions[a], rhs.dimensions[b]
                if sizes[0] != sizes[1] and UNBOUNDED not in sizes:
                    raise ShapeError(
                        f"{what} dimension {a} of lhs has size {sizes[0]}, dimension {b} of rhs {sizes[1]}",
                        hint=f"{what} dimensions are paired in the order given, and must have equal sizes",
                    )

    def _result(
        self, lhs: Shape, rhs: Shape, declared: Shape | None, dropped: Sequence[int] = (), groups: Shape | None = None
    ) -> Shape:
        """The result: groups, batch, free dimensions of lhs, those of rhs without ``dropped``."""
        lhs_kept = [*self.lhs_batch_dims, *free_dimensions(lhs.rank, self.lhs_batch_dims, self.lhs_contracting_dims)]
        rhs_kept = free_dimensions(rhs.rank, self.rhs_batch_dims, self.rhs_contracting_dims, dropped)
        sizes = [lhs.dimensions[d] for d in lhs_kept] + [rhs.dimensions[d] for d in rhs_kept]
        dynamic = [lhs.dynamic_dimensions[d] for d in lhs_kept] + [rhs.dynamic_dimensions[d] for d in rhs_kept]
        if groups is not None:
            sizes.insert(0, groups.dimensions[-1])
            dynamic.insert(0, groups.dynamic_dimensions[-1])
        return Shape(result_type(lhs, rhs, declared), tuple(sizes), None, tuple(dynamic))

    def _contract(self, lhs: Array, rhs: Array, kind: PrimitiveType) -> Array:
        return contract(
            lhs,
            rhs,
            (self.lhs_batch_dims, self.rhs_batch_dims),
            (self.lhs_contracting_dims, self.rhs_contracting_dims),
            kind,
        )


def result_type(lhs: Shape, rhs: Shape, declared: Shape | None) -> PrimitiveType:
    """The declared element type (the preferred one), else the more precise of the operands'."""
    if declared is not None and declared.is_array:
        return declared.element_type
    return higher_precision(lhs.element_type, rhs.element_type)


def emit_product(op: Op, operands: Sequence[XlaOp], preferred_element_type: PrimitiveType | None) -> XlaOp:
    """Add a dot or a convolution whose result has the preferred element type where one is given.

    HLO lets any types meet; here integers and floats do not, as the document has one T. Raises ShapeError.
    """
    lhs, rhs = (need_array(o.shape).element_type for o in operands[:2])
    if (lhs.is_floating, lhs.is_integral, lhs.is_complex) != (rhs.is_floating, rhs.is_integral, rhs.is_complex):
        raise ShapeError(
            f"the operands have types {lhs.hlo_name} and {rhs.hlo_name}",
            hint="convert one of them, with convert_element_type",
        )
    if preferred_element_type is None:
        return emit(op, *operands)
    inferred = op.result_shape([o.shape for o in operands], None)
    return emit(op, *operands, shape=inferred.with_element_type(preferred_element_type))


# -- dot -----------------------------------------------------------------------------------------


@operation("dot", arity=2, documents=("Dot", "DotGeneral"))
class Dot(_Contraction):
    """Sums of products over pairs of contracting dimensions, for each index of the batch dimensions."""

    lhs_batch_dims: tuple[int, ...] = attribute(
        Kind.INT64_LIST, default=(), proto="dot_dimension_numbers.lhs_batch_dimensions"
    )
    lhs_contracting_dims: tuple[int, ...] = attribute(
        Kind.INT64_LIST, default=(), proto="dot_dimension_numbers.lhs_contracting_dimensions", always=True
    )
    rhs_batch_dims: tuple[int, ...] = attribute(
        Kind.INT64_LIST, default=(), proto="dot_dimension_numbers.rhs_batch_dimensions"
    )
    rhs_contracting_dims: tuple[int, ...] = attribute(
        Kind.INT64_LIST, default=(), proto="dot_dimension_numbers.rhs_contracting_dimensions", always=True
    )
    operand_precision: tuple[Precision, ...] = attribute(
        Kind.PRECISION_LIST, default=(), proto="precision_config.operand_precision"
    )
    algorithm: PrecisionAlgorithm = attribute(
        Kind.ENUM,
        enum=PrecisionAlgorithm,
        default=PrecisionAlgorithm.ALG_UNSET,
        proto="precision_config.algorithm",
    )

    def result_shape(self, operands: Sequence[Shape], declared: Shape | None) -> Shape:
        lhs, rhs = operands
        self._check(lhs, rhs)
        return self._result(lhs, rhs, declared)

    def evaluate(self, context: Evaluation, *operands: Value) -> Value:
        return self._contract(operands[0], operands[1], context.shape.element_type)


@building
def dot(
    lhs: OperandLike,
    rhs: OperandLike,
    precision_config: PrecisionConfig | None = None,
    preferred_element_type: PrimitiveType | None = None,
) -> XlaOp:
    """The product of vectors and matrices: the second dimension of lhs (or its only one) with the first of rhs.

    lhs, rhs: arrays of T: [n] . [n] gives a scalar, [m, k] . [k] gives [m], [m, k] . [k, n] gives [m, n].
    precision_config: how exactly backends should multiply.
    preferred_element_type: the element type of the result, by default T.

    Raises ShapeError. Source: Operation semantics, Dot.
    """
    builder = common_builder([lhs, rhs])
    rank = need_array(as_op(builder, lhs).shape).rank
    numbers = DotDimensionNumbers([0 if rank == 1 else 1], [0])
    return dot_general(lhs, rhs, numbers, precision_config, preferred_element_type)


@building
def dot_general(
    lhs: OperandLike,
    rhs: OperandLike,
    dimension_numbers: DotDimensionNumbers,
    precision_config: PrecisionConfig | None = None,
    preferred_element_type: PrimitiveType | None = None,
) -> XlaOp:
    """Sums of products over chosen dimensions.

    lhs, rhs: arrays of T.
    dimension_numbers: contracting and batch dimensions, in pairs of equal sizes.
    precision_config: how exactly backends should multiply.
    preferred_element_type: the element type of the result, by default T.

    Gives the batch dimensions, then the other dimensions of lhs that are not contracted, then those of rhs.
    Raises ShapeError. Source: Operation semantics, DotGeneral.
    """
    builder = common_builder([lhs, rhs])
    config = precision_config or PrecisionConfig()
    op = Dot(
        lhs_batch_dims=tuple(dimension_numbers.lhs_batch_dimensions),
        lhs_contracting_dims=tuple(dimension_numbers.lhs_contracting_dimensions),
        rhs_batch_dims=tuple(dimension_numbers.rhs_batch_dimensions),
        rhs_contracting_dims=tuple(dimension_numbers.rhs_contracting_dimensions),
        operand_precision=config.precisions,
        algorithm=PrecisionAlgorithm.of(config.algorithm),
    )
    return emit_product(op, [as_op(builder, lhs), as_op(builder, rhs)], preferred_element_type)


# -- ragged dot ----------------------------------------------------------------------------------

_RAGGED = "ragged_dot_dimension_numbers."


@operation("ragged-dot", arity=3)
class RaggedDot(_Contraction):
    """A dot whose lhs is cut, along one dimension, into groups of sizes that the third operand gives.

    If the ragged dimension is a free one, each group meets its own slice of rhs: [m,k], [g,k,n] -> [m,n].
    If it is contracted, each group is summed apart: [m,k], [k,n] -> [g,m,n].
    If it is a batch dimension, only the batches that the groups count are computed: [b,m,k], [b,k,n] -> [b,m,n].
    What lies in no group is zero.
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
            raise ShapeError(f"lhs must have exactly one ragged dimension, got {list(self.lhs_ragged_dims)}")
        ragged = self.lhs_ragged_dims[0]
        check_distinct("lhs_ragged_dims", [ragged], lhs.rank)
        self._check_groups(lhs, groups)
        check_distinct("rhs_group_dims", self.rhs_group_dims, rhs.rank)
        if set(self.rhs_group_dims) & {*self.rhs_batch_dims, *self.rhs_contracting_dims}:
            raise ShapeError("the group dimension of rhs cannot be a batch or contracting dimension")
        is_free = ragged not in self.lhs_batch_dims and ragged not in self.lhs_contracting_dims
        if len(self.rhs_group_dims) != int(is_free):
            raise ShapeError(
                f"rhs has {len(self.rhs_group_dims)} group dimensions, {int(is_free)} are needed",
                hint="rhs has one exactly where the ragged dimension is neither batch nor contracting",
            )
        if is_free:
            sizes = groups.dimensions[-1], rhs.dimensions[self.rhs_group_dims[0]]
            if sizes[0] != sizes[1] and UNBOUNDED not in sizes:
                raise ShapeError(f"there are {sizes[0]} group sizes, but rhs has {sizes[1]} groups")
        per_group = groups if ragged in self.lhs_contracting_dims else None
        return self._result(lhs, rhs, declared, self.rhs_group_dims, per_group)

    def _prefix(self, rank: int) -> list[int]:
        """The dimensions of lhs before the ragged one, for each index of which the groups may have other sizes."""
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
            raise ShapeError(f"group sizes must be an array of integers, got {groups}")
        prefix = tuple(lhs.dimensions[d] for d in self._prefix(lhs.rank))
        if groups.rank != 1 and groups.dimensions[:-1] != prefix:
            raise ShapeError(
                f"group sizes have dimensions {list(groups.dimensions)}, the shape must be "
                f"[{', '.join(map(str, prefix))}{', ' * bool(prefix)}{groups.dimensions[-1]}]",
                hint="give one vector of sizes, or one for each index of the dimensions before the ragged one",
            )

    def evaluate(self, context: Evaluation, *operands: Value) -> Value:
        lhs, rhs, groups = operands
        kind = context.shape.element_type
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
        return np.where(counted, product, product.dtype.type(0))

    def _ragged_free(self, lhs: Array, rhs: Array, ends: Array, kind: PrimitiveType) -> Array:
        ragged, group_dim = self.lhs_ragged_dims[0], self.rhs_group_dims[0]
        # Removing the group dimension renumbers the others.
        batch = [d - (d > group_dim) for d in self.rhs_batch_dims]
        contracting = [d - (d > group_dim) for d in self.rhs_contracting_dims]
        owner = _first_group(lhs.shape[ragged], ends)
        free = free_dimensions(rhs.ndim, self.rhs_batch_dims, self.rhs_contracting_dims, [group_dim])
        lhs_kept = [*self.lhs_batch_dims, *free_dimensions(lhs.ndim, self.lhs_batch_dims, self.lhs_contracting_dims)]
        result = np.zeros([*(lhs.shape[d] for d in lhs_kept), *(rhs.shape[d] for d in free)], dtype=kind.dtype)
        axis = owner.ndim - 1
        for group in range(ends.shape[-1]):
            rows = np.flatnonzero((owner == group).reshape(-1, owner.shape[-1]).any(axis=0))
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
            place = (slice(None),) * axis + (span,)
            mine = mine.reshape(*mine.shape, *[1] * (part.ndim - mine.ndim))
            result[place] = np.where(mine, part, result[place])
        return result

    def _ragged_contracting(self, lhs: Array, rhs: Array, ends: Array, kind: PrimitiveType) -> Array:
        ragged = self.lhs_ragged_dims[0]
        axes = [*self._prefix(lhs.ndim), ragged]
        partner = dict(zip(self.lhs_contracting_dims, self.rhs_contracting_dims, strict=True))
        partner.update(zip(self.lhs_batch_dims, self.rhs_batch_dims, strict=True))
        place = np.arange(lhs.shape[ragged])
        parts: list[Array] = []
        for group in range(ends.shape[-1]):
            start = ends[..., group - 1, None] if group else 0
            inside = (place >= start) & (place < ends[..., group, None])
            parts.append(
                self._contract(_keep(lhs, inside, axes), _keep(rhs, inside, [partner[axis] for axis in axes]), kind)
            )
        if not parts:
            return np.zeros((0, *self._contract(lhs, rhs, kind).shape), dtype=kind.dtype)
        return np.stack(parts)


def _first_group(count: int, ends: Array) -> Array:
    """For each of ``count`` places the first group that ends after it; -1 for places after the last group."""
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
class ScaledDot(_Contraction):
    """A dot of operands that are multiplied first by scales, each of which covers a block of elements."""

    lhs_batch_dims: tuple[int, ...] = attribute(
        Kind.INT64_LIST, default=(), proto="dot_dimension_numbers.lhs_batch_dimensions"
    )
    lhs_contracting_dims: tuple[int, ...] = attribute(
        Kind.INT64_LIST, default=(), proto="dot_dimension_numbers.lhs_contracting_dimensions", always=True
    )
    rhs_batch_dims: tuple[int, ...] = attribute(
        Kind.INT64_LIST, default=(), proto="dot_dimension_numbers.rhs_batch_dimensions"
    )
    rhs_contracting_dims: tuple[int, ...] = attribute(
        Kind.INT64_LIST, default=(), proto="dot_dimension_numbers.rhs_contracting_dimensions", always=True
    )
    operand_precision: tuple[Precision, ...] = attribute(
        Kind.PRECISION_LIST, default=(), proto="precision_config.operand_precision"
    )
    algorithm: PrecisionAlgorithm = attribute(
        Kind.ENUM,
        enum=PrecisionAlgorithm,
        default=PrecisionAlgorithm.ALG_UNSET,
        proto="precision_config.algorithm",
    )

    def result_shape(self, operands: Sequence[Shape], declared: Shape | None) -> Shape:
        lhs, rhs, lhs_scale, rhs_scale = operands
        self._check(lhs, rhs)
        for what, operand, scale in (("lhs", lhs, lhs_scale), ("rhs", rhs, rhs_scale)):
            need_array(scale)
            unscaled = scale.element_type is operand.element_type is PrimitiveType.BF16
            if unscaled and all(size == 1 for size in scale.dimensions):
                continue
            if scale.rank != operand.rank:
                raise ShapeError(f"the scale of {what} has rank {scale.rank}, the operand {operand.rank}")
            if len(self.lhs_contracting_dims) != 1:
                raise ShapeError(f"a scaled dot contracts exactly one dimension, not {len(self.lhs_contracting_dims)}")
            for d, (size, blocks) in enumerate(zip(operand.dimensions, scale.dimensions, strict=True)):
                if blocks == 0 or size % blocks:
                    raise ShapeError(f"dimension {d} of {what} has size {size}, not a multiple of its scale's {blocks}")
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
    config = precision_config or PrecisionConfig()
    op = ScaledDot(
        lhs_batch_dims=tuple(dimension_numbers.lhs_batch_dimensions),
        lhs_contracting_dims=tuple(dimension_numbers.lhs_contracting_dimensions),
        rhs_batch_dims=tuple(dimension_numbers.rhs_batch_dimensions),
        rhs_contracting_dims=tuple(dimension_numbers.rhs_contracting_dimensions),
        operand_precision=config.precisions,
        algorithm=PrecisionAlgorithm.of(config.algorithm),
    )
    return emit_product(op, [as_op(builder, o) for o in (lhs, rhs, lhs_scale, rhs_scale)], preferred_element_type)
