"""Products, softmax and layer normalization of oneDNN, in programs of XLA's CPU backend."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from xlakit.errors import ShapeError
from xlakit.execution.calls.foreign import activations
from xlakit.execution.calls.foreign.config import Config
from xlakit.execution.calls.foreign.meaning import Foreign
from xlakit.ops.data import constant
from xlakit.ops.dot import DotDimensionNumbers, dot_general
from xlakit.ops.elementwise.binary import add, mul, sub
from xlakit.ops.elementwise.convert import convert_element_type
from xlakit.ops.elementwise.elementary import logistic, rsqrt, tanh
from xlakit.ops.handle import XlaOp
from xlakit.ops.movement import broadcast_in_dim, transpose
from xlakit.ops.reduction import reduce

_FUNCTIONS: Final[dict[str, activations.Activation]] = {
    "RELU": activations.relu,
    "TANH": lambda _, x: tanh(x),
    "GELU_ERF": activations.gelu_erf,
    "GELU_TANH": activations.gelu_tanh,
    "RELU6": activations.relu6,
    "SIGMOID": lambda _, x: logistic(x),
    "SWISH": activations.swish,
}
# Fusions that add an operand of the call.
_ADDED: Final = ("BIAS", "BINARY_ADD", "SUM")
# Fusions with a parameter alpha.
_WITH_ALPHA: Final = ("LINEAR", "ELU")


def matmul(foreign: Foreign) -> XlaOp:
    """The product by ``onednn_matmul_config``: of the last two dimensions, the others are batches; then ``fusions``."""
    config = foreign.config
    config.section("optimization_config").refuse("weights_prepacked")
    ops = config.section("fusions").choices("ops", (*_ADDED, *_FUNCTIONS, *_WITH_ALPHA))
    names = ["lhs", "rhs", *(name for name in ops if name in _ADDED)]
    lhs, rhs, *added = foreign.need_operands(names)
    kind = foreign.sum_type()
    lhs = _ordered(config, "lhs", lhs, "transpose_a")
    rhs = _ordered(config, "rhs", rhs, "transpose_b")
    rank = lhs.shape.rank
    if rank < 2 or rhs.shape.rank != rank:
        raise ShapeError(
            f"lhs and rhs must have the same rank of 2 or more, got {lhs.shape} and {rhs.shape}",
            hint="reshape them: dimensions before the last two are batches",
        )
    batches = tuple(range(rank - 2))
    value = dot_general(
        lhs, rhs, DotDimensionNumbers((rank - 1,), (rank - 2,), batches, batches), preferred_element_type=kind
    )
    operands = iter(added)
    for name in ops:
        if name in _ADDED:
            value = add(value, _spread(convert_element_type(next(operands), kind), value))
        else:
            activations.need_floats(foreign, f"the fusion {name}", value)
            value = _function(name, config)(foreign, value)
    order = _order(config, "result", value.shape.rank)
    # The result's dimensions in this order are those of the product.
    return foreign.finished(transpose(value, sorted(range(len(order)), key=order.__getitem__)))


def softmax(foreign: Foreign) -> XlaOp:
    """exp(x - max) / sum along ``softmax_axis`` of ``onednn_softmax_config``."""
    (x,) = foreign.need_operands(["x"])
    activations.need_floats(foreign, "softmax", x)
    axis = foreign.config.integer("softmax_axis")
    if not 0 <= axis < x.shape.rank:
        raise foreign.config.error("softmax_axis", f"a dimension of {x.shape}")
    return foreign.finished(activations.softmax_along(foreign, x, axis))


def layer_norm(foreign: Foreign) -> XlaOp:
    """The last dimension normalized, times the scale, plus the shift."""
    foreign.config.choice("rescale", ("UNDEFINED", "SCALE_AND_SHIFT"))
    foreign.config.section("fusions").refuse("ops")
    kind = foreign.sum_type()
    x, scale, shift = (convert_element_type(o, kind) for o in foreign.need_operands(["x", "scale", "shift"]))
    sizes, last = x.shape.dimensions, x.shape.rank - 1
    if last < 0 or not scale.shape.dimensions == shift.shape.dimensions == sizes[-1:]:
        raise ShapeError(
            f"the scale {scale.shape} and the shift {shift.shape} do not fit {x.shape}",
            hint="both have the size of its last dimension",
        )
    zero = constant(foreign.builder, 0, kind)

    def mean(array: XlaOp) -> XlaOp:
        total = reduce(array, zero, add, [last])
        return total / foreign.scalar(sizes[last], total)

    centered = sub(x, broadcast_in_dim(mean(x), sizes, range(last)))
    variance = mean(mul(centered, centered))
    factor = rsqrt(add(variance, foreign.scalar(_bits(foreign.config, "epsilon_typecast"), variance)))
    normal = mul(centered, broadcast_in_dim(factor, sizes, range(last)))
    return foreign.finished(
        add(mul(normal, broadcast_in_dim(scale, sizes, [last])), broadcast_in_dim(shift, sizes, [last]))
    )


def _function(name: str, config: Config) -> activations.Activation:
    if name in _FUNCTIONS:
        return _FUNCTIONS[name]
    alpha = _bits(config.section("fusions"), "alpha_typecast")
    if name == "ELU":
        return activations.elu(alpha)
    return lambda foreign, x: mul(foreign.scalar(alpha, x), x)


def _bits(config: Config, key: str) -> float:
    """A float whose bits are written as an integer."""
    bits = config.integer(key)
    if not -(1 << 31) <= bits < 1 << 31:
        raise config.error(key, "the bits of an f32 as an s32")
    (number,) = struct.unpack("<f", struct.pack("<i", bits))
    return number


def _order(config: Config, key: str, rank: int) -> tuple[int, ...]:
    """The order in which the dimensions of an array are read, which the config counts from 1."""
    tensor = config.section(key).section("tensor")
    dimensions = tensor.integers("dimensions")
    if dimensions and sorted(dimensions) != list(range(1, rank + 1)):
        raise tensor.error("dimensions", f"the numbers 1 to {rank} in some order")
    return tuple(d - 1 for d in dimensions) or tuple(range(rank))


def _ordered(config: Config, key: str, operand: XlaOp, transposed: str) -> XlaOp:
    order: Sequence[int] = _order(config, key, operand.shape.rank)
    if config.flag(transposed) and len(order) > 1:
        order = (*order[:-2], order[-1], order[-2])
    return transpose(operand, order)


def _spread(operand: XlaOp, value: XlaOp) -> XlaOp:
    """An operand that is added, along the last dimensions of the product; dimensions of size 1 are repeated."""
    rank = value.shape.rank
    if operand.shape.rank > rank:
        raise ShapeError(f"{operand.shape} cannot be added to {value.shape}", hint="give it the rank of the product")
    return broadcast_in_dim(operand, value.shape.dimensions, range(rank - operand.shape.rank, rank))
