"""Attention of cuDNN: softmax(scale query key^T + bias) value, and its gradients.

Products, softmax and gradients are in f32, and the results are rounded once. Masked positions, and positions behind the
end of a sequence, have the weight zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from xlakit.data.primitive import PrimitiveType
from xlakit.data.shape import make_shape
from xlakit.dataclass import dataclass
from xlakit.errors import ShapeError, UnsupportedError
from xlakit.execution.calls.foreign.config import Config
from xlakit.execution.calls.foreign.meaning import Foreign
from xlakit.lib.constants import zeros_like
from xlakit.ops.data import constant, iota
from xlakit.ops.dot import DotDimensionNumbers, dot_general
from xlakit.ops.elementwise.binary import add, and_, max, mul, sub
from xlakit.ops.elementwise.compare import gt, le, lt
from xlakit.ops.elementwise.convert import convert_element_type
from xlakit.ops.elementwise.elementary import exp, log
from xlakit.ops.elementwise.select import select
from xlakit.ops.handle import XlaOp
from xlakit.ops.movement import broadcast_in_dim, reshape, transpose
from xlakit.ops.reduction import reduce

_MASKS: Final = ("NO_MASK", "PADDING", "CAUSAL", "PADDING_CAUSAL")


def forward(foreign: Foreign) -> XlaOp:
    """The attention, and for training the logarithm of the sum of exponentials of each row."""
    names = ["query", "key", "value", *_bias_and_lengths(foreign)]
    operands = dict(zip(names, foreign.need_operands(names), strict=True))
    first, second = (_numbers(foreign.config, f"bmm{number}_dot_dimension_numbers") for number in (1, 2))
    query = _by_head(foreign, operands["query"], first, "lhs")
    heads = query.shape.dimensions[1]
    key = _repeated(_by_head(foreign, operands["key"], first, "rhs"), heads)
    value = _repeated(_by_head(foreign, operands["value"], second, "rhs"), heads)
    scores = _Scores.of(foreign, query, key, operands)
    largest = reduce(scores.values, constant(foreign.builder, float("-inf"), scores.kind), max, [3])
    powers = scores.masked(exp(sub(scores.values, _along_rows(largest, scores.sizes))))
    total = reduce(powers, constant(foreign.builder, 0, scores.kind), add, [3])
    # The result is zero in rows in which every position is masked.
    divisor = select(gt(total, foreign.scalar(0, total)), total, foreign.scalar(1, total))
    weights = powers / _along_rows(divisor, scores.sizes)
    results = [_product(weights, value, (3, 2), scores.kind)]
    if len(foreign.results) > 2:
        results.append(add(largest, log(divisor)))
    return foreign.all_finished(results)


def backward(foreign: Foreign) -> XlaOp:
    """The gradients of query, key and value, and of the bias where the result has it."""
    extra = _bias_and_lengths(foreign)
    bias = extra[: extra.count("bias")]
    names = ["query", "key", "value", "statistics", "gradient", *bias, "output", *extra[len(bias) :]]
    operands = dict(zip(names, foreign.need_operands(names), strict=True))
    numbers = {key: _numbers(foreign.config, f"{key}_dot_dimension_numbers") for key in _GRADIENT_PRODUCTS}
    query = _by_head(foreign, operands["query"], numbers["bmm1_grad_gemm1"], "rhs")
    key = _by_head(foreign, operands["key"], numbers["bmm1_grad_gemm2"], "rhs")
    gradient, output = (
        _by_head(foreign, operands[name], numbers["bmm2_grad_gemm2"], "lhs") for name in ("gradient", "output")
    )
    value = _by_head(foreign, operands["value"], numbers["bmm2_grad_gemm2"], "rhs")
    few, heads = key.shape.dimensions[1], query.shape.dimensions[1]
    key, value = _repeated(key, heads), _repeated(value, heads)
    scores = _Scores.of(foreign, query, key, operands)
    zero = constant(foreign.builder, 0, scores.kind)
    statistics = convert_element_type(operands["statistics"], scores.kind)
    weights = scores.masked(exp(sub(scores.values, _along_rows(statistics, scores.sizes))))
    of_weights = _product(gradient, value, (3, 3), scores.kind)
    rows = reduce(mul(gradient, output), zero, add, [3])
    of_scores = mul(weights, sub(of_weights, _along_rows(rows, scores.sizes)))
    scale = foreign.config.number("fmha_scale", 1.0)
    scaled = mul(of_scores, foreign.scalar(scale, of_scores))
    gradients = [
        _product(scaled, key, (3, 2), scores.kind),
        _summed(_product(scaled, query, (2, 2), scores.kind), few),
        _summed(_product(weights, gradient, (2, 2), scores.kind), few),
    ]
    if bias and len(foreign.results) > 4:
        sizes = foreign.results[3].dimensions
        repeated = [d for d in range(len(sizes)) if sizes[d] == 1]
        gradients.append(reshape(reduce(of_scores, zero, add, repeated), new_sizes=sizes))
    return foreign.all_finished(gradients)


_GRADIENT_PRODUCTS: Final = ("bmm1_grad_gemm1", "bmm1_grad_gemm2", "bmm2_grad_gemm2")


def eight_bits(foreign: Foreign) -> XlaOp:
    """Raise UnsupportedError."""
    raise UnsupportedError(
        "attention in 8-bit floats with scales has no meaning here",
        hint="register a function for the call with xlakit.register_custom_call",
    )


@dataclass(frozen=True, slots=True)
class _Scores:
    """The scaled products of queries and keys plus the bias, [batch, head, query, key], and the mask of valid ones."""

    values: XlaOp
    mask: XlaOp | None

    @classmethod
    def of(cls, foreign: Foreign, query: XlaOp, key: XlaOp, operands: dict[str, XlaOp]) -> _Scores:
        kind = query.shape.element_type
        values = _product(query, key, (3, 3), kind)
        values = mul(values, foreign.scalar(foreign.config.number("fmha_scale", 1.0), values))
        if "bias" in operands:
            bias = operands["bias"]
            if bias.shape.rank != 4:
                raise ShapeError(
                    f"the bias has shape {bias.shape}", hint="it has four dimensions, of size 1 or as the scores"
                )
            values = add(values, broadcast_in_dim(convert_element_type(bias, kind), values.shape.dimensions, range(4)))
        mask = _mask(foreign, values, operands)
        if mask is not None:
            values = select(mask, values, foreign.scalar(-3e38, values))
        return cls(values, mask)

    @property
    def kind(self) -> PrimitiveType:
        return self.values.shape.element_type

    @property
    def sizes(self) -> tuple[int, ...]:
        return self.values.shape.dimensions

    def masked(self, weights: XlaOp) -> XlaOp:
        """The weights, with zeros where the mask is false."""
        return weights if self.mask is None else select(self.mask, weights, zeros_like(weights))


def _bias_and_lengths(foreign: Foreign) -> list[str]:
    """The names of the further operands that the target and the mask require. Raises UnsupportedError for others."""
    config = foreign.config
    config.refuse("dropout_rate", "is_paged_attention")
    if config.integer("max_seg_per_batch") > 1:
        config.refuse("max_seg_per_batch")
    names = ["bias"] if "ScaleBias" in foreign.op.custom_call_target else []
    if config.choice("mask_type", _MASKS).startswith("PADDING"):
        names += ["query lengths", "key lengths"]
    return names


def _mask(foreign: Foreign, scores: XlaOp, operands: dict[str, XlaOp]) -> XlaOp | None:
    """The mask of the scores that are valid; None if all are."""
    config = foreign.config
    kind = config.choice("mask_type", _MASKS)
    shape = make_shape(PrimitiveType.S32, scores.shape.dimensions)
    rows, columns = iota(foreign.builder, shape, 2), iota(foreign.builder, shape, 3)
    conditions: list[XlaOp] = []
    if kind.endswith("CAUSAL"):
        conditions.append(le(columns, rows))
    window = config.integer("sliding_window_length")
    if window > 0:
        conditions.append(gt(columns, sub(rows, foreign.scalar(window, rows))))
    if kind.startswith("PADDING"):
        for name, places in (("query lengths", rows), ("key lengths", columns)):
            lengths = reshape(convert_element_type(operands[name], PrimitiveType.S32), new_sizes=[shape.dimensions[0]])
            conditions.append(lt(places, broadcast_in_dim(lengths, shape.dimensions, [0])))
    if not conditions:
        return None
    mask = conditions[0]
    for condition in conditions[1:]:
        mask = and_(mask, condition)
    return mask


def _numbers(config: Config, key: str) -> Config:
    if key not in config:
        raise ShapeError(f"backend_config has no {key}", hint="it says which dimensions of the operands are summed")
    return config.section(key)


def _by_head(foreign: Foreign, operand: XlaOp, numbers: Config, side: str) -> XlaOp:
    """An operand in f32 (f64 if the call has it) as [batch, head, position, feature]."""
    batch = numbers.integers(f"{side}_batch_dimensions")
    if operand.shape.rank != 4 or len(batch) != 2 or not set(batch) < {0, 1, 2} or len(set(batch)) != 2:
        raise ShapeError(
            f"{operand.shape} with {numbers.name(f'{side}_batch_dimensions')} {list(batch)} is no operand of attention",
            hint="operands have four dimensions, the last of them features; two others are those of batches",
        )
    order = [*batch, *(d for d in range(3) if d not in batch), 3]
    return transpose(convert_element_type(operand, foreign.sum_type()), order)


def _repeated(array: XlaOp, heads: int) -> XlaOp:
    """Keys or values with each head repeated, so that there is one for each head of the queries."""
    batch, few, places, features = array.shape.dimensions
    if few == heads or not few or heads % few:
        return array
    sizes = [batch, few, heads // few, places, features]
    return reshape(broadcast_in_dim(array, sizes, [0, 1, 3, 4]), new_sizes=[batch, heads, places, features])


def _summed(array: XlaOp, few: int) -> XlaOp:
    """The gradient of the argument of :func:`_repeated`: the sum over the repetitions."""
    batch, heads, places, features = array.shape.dimensions
    if few == heads or not few or heads % few:
        return array
    parts = reshape(array, new_sizes=[batch, few, heads // few, places, features])
    return reduce(parts, constant(array.builder, 0, array.shape.element_type), add, [2])


def _product(lhs: XlaOp, rhs: XlaOp, contracting: tuple[int, int], kind: PrimitiveType) -> XlaOp:
    left, right = contracting
    numbers = DotDimensionNumbers((left,), (right,), (0, 1), (0, 1))
    return dot_general(lhs, rhs, numbers, preferred_element_type=kind)


def _along_rows(values: XlaOp, sizes: Sequence[int]) -> XlaOp:
    return broadcast_in_dim(values, sizes, [0, 1, 2])
