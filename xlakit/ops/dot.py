"""Dot: sums of products over contracting dimensions.

Source: XLA's document "Operation semantics", sections Dot and DotGeneral.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Self

from xlakit.arguments import constructing
from xlakit.data.primitive import PrimitiveType, higher_precision
from xlakit.data.shape import UNBOUNDED, Shape
from xlakit.dataclass import dataclass
from xlakit.errors import ShapeError, UnsupportedError
from xlakit.ir.enums import Precision, PrecisionAlgorithm
from xlakit.ir.operation import Array, Evaluation, Kind, Op, Value, attribute, operation
from xlakit.ops.handle import OperandLike, XlaOp, as_op, as_ops, building, common_builder, emit
from xlakit.ops.shared.checks import check_distinct, need_array
from xlakit.ops.shared.contraction import common_part, contract, free_dimensions
from xlakit.ops.shared.nibbles import is_packed, unpacked


@constructing
@dataclass(frozen=True, slots=True)
class DotDimensionNumbers:
    """Which dimensions of the operands of a dot are contracted, and which are batch dimensions, pairwise."""

    lhs_contracting_dimensions: Sequence[int] = ()
    rhs_contracting_dimensions: Sequence[int] = ()
    lhs_batch_dimensions: Sequence[int] = ()
    rhs_batch_dimensions: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class PrecisionConfig:
    """How exactly a backend should multiply: a precision for each operand, or a named algorithm.

    The interpreter is always more exact than any of them asks for.
    """

    operand_precision: Sequence[Precision | str] = ()
    algorithm: PrecisionAlgorithm | str = PrecisionAlgorithm.ALG_UNSET

    @property
    def precisions(self) -> tuple[Precision, ...]:
        """``operand_precision`` as members, () where all are the default; raises ShapeError for an unknown name."""
        members = tuple(Precision.of(p) for p in self.operand_precision)
        return () if all(p is Precision.DEFAULT for p in members) else members


class Contraction(Op):
    """The base of the dots: batch and contracting dimensions."""

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
                raise ShapeError(
                    f"lhs has {len(left)} {what} dimensions, rhs has {len(right)}",
                    hint="name as many dimensions of lhs as of rhs, in pairs of equal sizes",
                )
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
        left = (*self.lhs_batch_dims, *self.lhs_contracting_dims)
        lhs, rhs = common_part(lhs, rhs, left, (*self.rhs_batch_dims, *self.rhs_contracting_dims))
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

    HLO allows operands of any types; the builder does not mix integers and floats, as the document has one T. Raises
    ShapeError.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class DotAttributes(Contraction):
    """The attributes that dot and scaled-dot share. The interpreter is more exact than any precision asks for."""

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

    @classmethod
    def of(cls, dimension_numbers: DotDimensionNumbers, precision_config: PrecisionConfig | None) -> Self:
        """The operation of a call of the builder."""
        config = precision_config or PrecisionConfig()
        return cls(
            lhs_batch_dims=tuple(dimension_numbers.lhs_batch_dimensions),
            lhs_contracting_dims=tuple(dimension_numbers.lhs_contracting_dimensions),
            rhs_batch_dims=tuple(dimension_numbers.rhs_batch_dimensions),
            rhs_contracting_dims=tuple(dimension_numbers.rhs_contracting_dimensions),
            operand_precision=config.precisions,
            algorithm=PrecisionAlgorithm.of(config.algorithm),
        )


@operation("dot", arity=2, documents=("Dot", "DotGeneral"))
class Dot(DotAttributes):
    """Sums of products over pairs of contracting dimensions, for each index of the batch dimensions."""

    def result_shape(self, operands: Sequence[Shape], declared: Shape | None) -> Shape:
        lhs, rhs = operands
        self._check(lhs, rhs)
        return self._result(lhs, rhs, declared)

    def evaluate(self, context: Evaluation, *operands: Value) -> Value:
        op, dimensions = self.unpacked([o.ndim for o in operands]) if is_packed(self) else (self, ())
        lhs, rhs = unpacked(self, operands, dimensions)
        return op._contract(lhs, rhs, context.shape.element_type)

    def unpacked(self, ranks: Sequence[int]) -> tuple[Dot, Sequence[int]]:
        """The dot of the unpacked operands, and for each operand the dimension along which it is unpacked.

        ranks: of the packed operands. The dimension is contracted; if none is, a new one behind the last is added.
        """
        plain = dataclasses.replace(self, operand_precision=())
        if self.lhs_contracting_dims:
            return plain, (self.lhs_contracting_dims[-1], self.rhs_contracting_dims[-1])
        lhs, rhs = ranks
        return dataclasses.replace(plain, lhs_contracting_dims=(lhs,), rhs_contracting_dims=(rhs,)), (lhs, rhs)

    def swapped(self) -> Dot | None:
        """The dot of the operands in the other order: dot(b, a) has the free dimensions of b before those of a.

        Products commute, so each element is the sum of the same products. None if precisions are given, but not one
        for each operand.
        """
        if len(self.operand_precision) not in (0, 2):
            return None
        return dataclasses.replace(
            self,
            lhs_batch_dims=self.rhs_batch_dims,
            lhs_contracting_dims=self.rhs_contracting_dims,
            rhs_batch_dims=self.lhs_batch_dims,
            rhs_contracting_dims=self.lhs_contracting_dims,
            operand_precision=self.operand_precision[::-1],
        )


def check_packed(op: Op, operands: Sequence[Shape]) -> None:
    """Raise UnsupportedError for a product of packed operands that has no agreed meaning."""
    if not is_packed(op):
        return
    precisions: Sequence[Precision] = getattr(op, "operand_precision", ())
    if (isinstance(op, Contraction) and not isinstance(op, Dot)) or len(operands) != 2:
        raise UnsupportedError(
            f"operand_precision packed_nibble of a {op.opcode} of {len(operands)} operands",
            hint="only a dot and a convolution of two operands take it: unpack the operands with shifts into S8 or U8",
        )
    if list(precisions) != [Precision.PACKED_NIBBLE] * 2:
        raise UnsupportedError(
            "operand_precision packed_nibble of one operand alone: an element of two numbers has no product with one "
            "of a single number",
            hint="make it operand_precision={packed_nibble,packed_nibble}, or unpack the packed operand with shifts",
        )
    for shape in operands:
        if shape.element_type not in (PrimitiveType.S8, PrimitiveType.U8):
            raise UnsupportedError(
                f"operand_precision packed_nibble of an operand of type {shape.element_type.hlo_name}",
                hint="only elements of S8 and U8 hold two numbers of four bits: convert the operand",
            )


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
    op = Dot.of(dimension_numbers, precision_config)
    return emit_product(op, as_ops(lhs, rhs), preferred_element_type)
