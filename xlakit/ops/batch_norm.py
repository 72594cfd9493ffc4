"""Batch normalization: training, inference and gradient.

Source: XLA's document "Operation semantics", sections BatchNormTraining, BatchNormInference and BatchNormGrad.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from xlakit.data.shape import UNBOUNDED, Shape, make_tuple_shape
from xlakit.dataclass import dataclass
from xlakit.errors import ShapeError
from xlakit.ir.operation import Array, Evaluation, Kind, Op, Value, attribute, operation
from xlakit.ops.handle import OperandLike, XlaOp, as_ops, building, emit
from xlakit.ops.shared.checks import check_dimension
from xlakit.ops.shared.numerics import from_double, to_double


@dataclass(frozen=True, slots=True, kw_only=True)
class _BatchNorm(Op):
    """The base of the three operations: checks, and arithmetic along all dimensions but the feature one."""

    epsilon: float = attribute(Kind.FLOAT, always=True)
    feature_index: int = attribute(Kind.INT64, always=True)

    def _check(self, operand: Shape, **features: Shape) -> Shape:
        """The shape of one number for each feature; raises ShapeError."""
        if not operand.is_array or not operand.element_type.is_floating or operand.rank == 0:
            raise ShapeError(
                f"the operand must be a floating-point array of rank 1 or more, got {operand}",
                hint="convert it with convert_element_type to a floating-point type; broadcast a scalar",
            )
        check_dimension("feature_index", self.feature_index, operand)
        count = operand.dimensions[self.feature_index]
        for name, shape in features.items():
            if not shape.is_array or shape.rank != 1 or not shape.element_type.is_floating:
                raise ShapeError(
                    f"{name} must be a floating-point array of rank 1, got {shape}",
                    hint=f"reshape it to [{count}] and convert it to a floating-point type",
                )
            if UNBOUNDED not in (count, shape.dimensions[0]) and shape.dimensions[0] != count:
                raise ShapeError(
                    f"{name} has {shape.dimensions[0]} elements, the feature dimension {self.feature_index} of "
                    f"{operand} has {count}",
                    hint=f"give {count} elements, one for each feature",
                )
        return operand.with_dimensions((count,), (operand.dynamic_dimensions[self.feature_index],))

    def _column(self, feature: Array, rank: int) -> Array:
        """A number for each feature in double precision, to broadcast against the operand."""
        shape = [1] * rank
        shape[self.feature_index] = -1
        return to_double(feature).reshape(shape)

    def _others(self, rank: int) -> tuple[int, ...]:
        return tuple(d for d in range(rank) if d != self.feature_index)

    @property
    def _epsilon(self) -> float:
        # HLO holds a single-precision number.
        return float(np.float32(self.epsilon))


@operation("batch-norm-training", arity=3, documents=("BatchNormTraining",))
class BatchNormTraining(_BatchNorm):
    """The operand normalized by its own mean and variance, and those."""

    def result_shape(self, operands: Sequence[Shape], declared: Shape | None) -> Shape:
        operand, scale, offset = operands
        feature = self._check(operand, scale=scale, offset=offset)
        return make_tuple_shape([operand.without_layout(), feature, feature])

    def evaluate(self, context: Evaluation, *operands: Value) -> Value:
        operand: Array = operands[0]
        x = to_double(operand)
        scale, offset = (self._column(o, x.ndim) for o in operands[1:])
        others = self._others(x.ndim)
        with np.errstate(all="ignore"):
            count = np.float64(x.size / x.shape[self.feature_index] if x.size else 0)
            mean = x.sum(axis=others, keepdims=True) / count
            variance = np.square(x - mean).sum(axis=others, keepdims=True) / count
            result = scale * (x - mean) / np.sqrt(variance + self._epsilon) + offset
            return tuple(from_double(v, operand.dtype) for v in (result, mean.reshape(-1), variance.reshape(-1)))


@operation("batch-norm-inference", arity=5, documents=("BatchNormInference",))
class BatchNormInference(_BatchNorm):
    """The operand normalized by a given mean and variance."""

    def result_shape(self, operands: Sequence[Shape], declared: Shape | None) -> Shape:
        operand, scale, offset, mean, variance = operands
        self._check(operand, scale=scale, offset=offset, mean=mean, variance=variance)
        return operand.without_layout()

    def evaluate(self, context: Evaluation, *operands: Value) -> Value:
        operand: Array = operands[0]
        x = to_double(operand)
        scale, offset, mean, variance = (self._column(o, x.ndim) for o in operands[1:])
        with np.errstate(all="ignore"):
            result = scale * (x - mean) / np.sqrt(variance + self._epsilon) + offset
            return from_double(result, operand.dtype)


@operation("batch-norm-grad", arity=5, documents=("BatchNormGrad",))
class BatchNormGrad(_BatchNorm):
    """The gradients of batch-norm-training with respect to operand, scale and offset."""

    def result_shape(self, operands: Sequence[Shape], declared: Shape | None) -> Shape:
        operand, scale, mean, variance, grad_output = operands
        feature = self._check(operand, scale=scale, mean=mean, variance=variance)
        if not grad_output.is_array or not grad_output.element_type.is_floating:
            raise ShapeError(
                f"grad_output must be a floating-point array, got {grad_output}",
                hint="convert it with convert_element_type to a floating-point type",
            )
        if len(grad_output.dimensions) != operand.rank or any(
            UNBOUNDED not in pair and pair[0] != pair[1]
            for pair in zip(operand.dimensions, grad_output.dimensions, strict=True)
        ):
            raise ShapeError(
                f"grad_output must have the dimensions of the operand, {operand}, not {grad_output}",
                hint=f"give the gradient of the first result of the training, {list(operand.dimensions)}",
            )
        return make_tuple_shape([operand.without_layout(), feature, feature])

    def evaluate(self, context: Evaluation, *operands: Value) -> Value:
        operand: Array = operands[0]
        x, grad = to_double(operand), to_double(operands[4])
        scale, mean, variance = (self._column(o, x.ndim) for o in operands[1:4])
        others = self._others(x.ndim)
        with np.errstate(all="ignore"):
            count = np.float64(x.size / x.shape[self.feature_index] if x.size else 0)
            shifted = x - mean
            root = np.sqrt(variance + self._epsilon)
            grad_offset = grad.sum(axis=others, keepdims=True)
            products = (grad * shifted).sum(axis=others, keepdims=True)
            c = products / (variance + self._epsilon) / count
            grad_operand = scale / root * (grad - grad_offset / count - c * shifted)
            grad_scale = products / root
            results = (grad_operand, grad_scale.reshape(-1), grad_offset.reshape(-1))
            return tuple(from_double(v, operand.dtype) for v in results)


@building
def batch_norm_training(
    operand: OperandLike, scale: OperandLike, offset: OperandLike, epsilon: float, feature_index: int
) -> XlaOp:
    """Normalize an array along all dimensions but the feature one, by its own mean and variance.

    operand: a floating-point array of rank 1 or more.
    scale, offset: one floating-point number for each feature; as in XLA, their type may be another than the operand's.
    epsilon: added to the variance.
    feature_index: the number of the feature dimension.

    Gives a tuple: the normalized array, and the mean and the variance of each feature. Raises ShapeError.
    Source: Operation semantics, BatchNormTraining.
    """
    return emit(BatchNormTraining(epsilon=float(epsilon), feature_index=feature_index), *as_ops(operand, scale, offset))


@building
def batch_norm_inference(
    operand: OperandLike,
    scale: OperandLike,
    offset: OperandLike,
    mean: OperandLike,
    variance: OperandLike,
    epsilon: float,
    feature_index: int,
) -> XlaOp:
    """Normalize an array along all dimensions but the feature one, by a given mean and variance.

    operand: a floating-point array of rank 1 or more.
    scale, offset, mean, variance: one floating-point number for each feature, of any type as in batch_norm_training.
    epsilon: added to the variance.
    feature_index: the number of the feature dimension.

    Gives an array like the operand. Raises ShapeError. Source: Operation semantics, BatchNormInference.
    """
    op = BatchNormInference(epsilon=float(epsilon), feature_index=feature_index)
    return emit(op, *as_ops(operand, scale, offset, mean, variance))


@building
def batch_norm_grad(
    operand: OperandLike,
    scale: OperandLike,
    mean: OperandLike,
    variance: OperandLike,
    grad_output: OperandLike,
    epsilon: float,
    feature_index: int,
) -> XlaOp:
    """The gradients of batch_norm_training.

    operand: the array that was normalized.
    scale: its scale, one number for each feature.
    mean, variance: what batch_norm_training gave.
    grad_output: the gradient with respect to the normalized array, of the operand's dimensions.
    epsilon, feature_index: as in batch_norm_training.

    Gives a tuple: the gradients with respect to operand, scale and offset. Raises ShapeError.
    Source: Operation semantics, BatchNormGrad.
    """
    op = BatchNormGrad(epsilon=float(epsilon), feature_index=feature_index)
    return emit(op, *as_ops(operand, scale, mean, variance, grad_output))
