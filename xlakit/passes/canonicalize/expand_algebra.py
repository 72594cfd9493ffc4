"""Expansions of algorithms on whole arrays: batch norms, scaled dots, linear algebra in narrow types.

Types narrower than F32 are computed in F32 and rounded once at the end.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from xlakit.data.primitive import PrimitiveType
from xlakit.data.shape import Shape
from xlakit.ir.instruction import Computation, Instruction
from xlakit.ops.batch_norm import BatchNormGrad, BatchNormInference, BatchNormTraining
from xlakit.ops.dot import Dot
from xlakit.ops.dot_variants import ScaledDot
from xlakit.ops.elementwise.binary import Add
from xlakit.ops.reduction import Reduce
from xlakit.passes.core.computation_builder import ReplacementBuilder, binary_computation


def _wide(*kinds: PrimitiveType) -> PrimitiveType:
    return PrimitiveType.F64 if PrimitiveType.F64 in kinds else PrimitiveType.F32


class Features(ReplacementBuilder):
    """Builds a batch norm from arrays that have one number for each feature, and arrays of the shape of the operand."""

    def __init__(self, make: ReplacementBuilder, x: Shape) -> None:
        super().__init__(make.builder, make.old)
        self._sizes = x.dimensions
        op: Any = self.old.op
        self.feature: int = op.feature_index
        self.kind = _wide(x.element_type)
        self._others = tuple(d for d in range(len(self._sizes)) if d != self.feature)
        self._sum: Computation | None = None

    def wide(self, operand: Instruction) -> Instruction:
        """The operand converted to the type of the computation, F32 or F64."""
        return self.convert(operand, self.kind)

    def all(self, feature: Instruction) -> Instruction:
        """An array with one number for each feature, broadcast to the shape of the operand."""
        return self.broadcast(feature, self._sizes, (self.feature,))

    def sum(self, x: Instruction) -> Instruction:
        """The sum over all dimensions but the feature dimension."""
        if not self._others:
            return x
        if self._sum is None:
            self._sum = binary_computation("sum", Add(), self.kind, self.context)
        zero = self.scalar(0, self.kind)
        return self.add(Reduce(dimensions=self._others, to_apply=self._sum), x, zero)

    def mean(self, x: Instruction) -> Instruction:
        """The mean over all dimensions but the feature dimension."""
        total = self.sum(x)
        return self.apply("divide", total, self.counts(total))

    def counts(self, like: Instruction) -> Instruction:
        """The number of elements of each feature, as an array of the shape of ``like``."""
        return self._all_of(math.prod(self._sizes[d] for d in self._others), like)

    def _all_of(self, number: float, like: Instruction) -> Instruction:
        return self.full(like.shape.element_type.dtype.type(number), like.shape)

    def padded(self, variance: Instruction, epsilon: float) -> Instruction:
        """The variance plus epsilon, which HLO stores in single precision."""
        return self.apply("add", variance, self._all_of(float(np.float32(epsilon)), variance))

    def normalized(
        self, centered: Instruction, scale: Instruction, offset: Instruction, variance: Instruction, epsilon: float
    ) -> Instruction:
        """``centered * (scale / sqrt(variance + epsilon)) + offset``."""
        root = self.apply("sqrt", self.padded(variance, epsilon))
        factor = self.apply("divide", self.wide(scale), root)
        return self.apply("add", self.apply("multiply", centered, self.all(factor)), self.all(self.wide(offset)))


def _training(operands: Sequence[Instruction], make: Features) -> Instruction:
    """Training: computes mean and variance, and normalizes the operand with them."""
    op, (x, scale, offset) = make.old.op_as(BatchNormTraining), operands
    wide = make.wide(x)
    mean = make.mean(wide)
    centered = make.apply("subtract", wide, make.all(mean))
    variance = make.mean(make.apply("multiply", centered, centered))
    result = make.normalized(centered, scale, offset, variance, op.epsilon)
    parts = [make.convert(part, x.shape.element_type) for part in (result, mean, variance)]
    return make.tuple(*parts)


def _inference(operands: Sequence[Instruction], make: Features) -> Instruction:
    """Inference: normalizes the operand with a given mean and variance."""
    op, (x, scale, offset, mean, variance) = make.old.op_as(BatchNormInference), operands
    centered = make.apply("subtract", make.wide(x), make.all(make.wide(mean)))
    result = make.normalized(centered, scale, offset, make.wide(variance), op.epsilon)
    return make.convert(result, x.shape.element_type)


def _grad(operands: Sequence[Instruction], make: Features) -> Instruction:
    """The gradients by the chain rule."""
    op, (x, scale, mean, variance, gradient) = make.old.op_as(BatchNormGrad), operands
    gradient = make.wide(gradient)
    centered = make.apply("subtract", make.wide(x), make.all(make.wide(mean)))
    padded = make.padded(make.wide(variance), op.epsilon)
    root = make.apply("sqrt", padded)
    offset, products = make.sum(gradient), make.sum(make.apply("multiply", gradient, centered))
    count = make.counts(products)
    slope = make.apply("divide", make.apply("divide", products, padded), count)
    rest = make.apply("subtract", gradient, make.all(make.apply("divide", offset, count)))
    rest = make.apply("subtract", rest, make.apply("multiply", make.all(slope), centered))
    result = make.apply("multiply", make.all(make.apply("divide", make.wide(scale), root)), rest)
    results = (result, make.apply("divide", products, root), offset)
    return make.tuple(*(make.convert(part, x.shape.element_type) for part in results))


_BATCH_NORMS: dict[str, Callable[[Sequence[Instruction], Features], Instruction]] = {
    "batch-norm-training": _training,
    "batch-norm-inference": _inference,
    "batch-norm-grad": _grad,
}


def batch_norm(operands: Sequence[Instruction], make: ReplacementBuilder) -> Instruction | None:
    """batch-norm(x, ..) -> its formula in reductions and element-wise operations."""
    if not make.context.spend("batch-norm"):
        return None
    return batch_norm_of(operands, Features(make, operands[0].shape))


def batch_norm_of(operands: Sequence[Instruction], make: Features) -> Instruction:
    """The expansion of a batch norm on these operands, built by ``make``."""
    return _BATCH_NORMS[make.old.op.opcode](operands, make)


def scaled_dot(operands: Sequence[Instruction], make: ReplacementBuilder) -> Instruction | None:
    """scaled-dot(x, y, s, t) -> dot(x * s, y * t), each scale repeated over its block."""
    old = make.old
    op, kind = old.op_as(ScaledDot), old.shape.element_type
    kinds = [o.shape.element_type for o in operands]
    pairs = list(zip(operands[:2], operands[2:], strict=True))
    ranks = all(scale.shape.rank in (0, x.shape.rank) for x, scale in pairs)
    if not (kind.is_floating and all(k.is_floating for k in kinds) and ranks) or not make.context.spend("scaled-dot"):
        return None
    wide = _wide(kind, *kinds)
    products: list[Instruction] = []
    for x, scale in pairs:
        sizes, blocks = x.shape.dimensions, scale.shape.dimensions
        split = [n for size, count in zip(sizes, blocks, strict=False) for n in (count, size // count)]
        factor = make.convert(scale, wide)
        if blocks:
            factor = make.reshape(make.broadcast(factor, split, range(0, len(split), 2)), sizes)
        products.append(make.apply("multiply", make.convert(x, wide), make.broadcast(factor, sizes)))
    dot = Dot(
        lhs_batch_dims=op.lhs_batch_dims,
        lhs_contracting_dims=op.lhs_contracting_dims,
        rhs_batch_dims=op.rhs_batch_dims,
        rhs_contracting_dims=op.rhs_contracting_dims,
    )
    shape = old.shape.without_layout().with_element_type(wide)
    return make.convert(make.add(dot, *products, shape=shape), kind)


def widened(operands: Sequence[Instruction], make: ReplacementBuilder) -> Instruction | None:
    """f(x) -> convert(f(convert(x))), where x is narrower than F32."""
    kind = make.old.shape.element_type
    if not kind.is_floating or kind.bit_width >= 32 or not make.context.spend("widened"):
        return None
    wide = [make.convert(x, PrimitiveType.F32) for x in operands]
    return make.convert(make.add(make.old.op, *wide), kind)
