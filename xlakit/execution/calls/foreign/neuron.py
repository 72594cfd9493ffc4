"""Functions of AWS Neuron's compiler, in programs that PyTorch makes for Trainium and Inferentia."""

from __future__ import annotations

import math

from xlakit.errors import ShapeError
from xlakit.execution.calls.foreign import activations
from xlakit.execution.calls.foreign.meaning import Foreign
from xlakit.lib.arithmetic import arg_min_max
from xlakit.ops.data import constant, get_tuple_element
from xlakit.ops.elementwise.binary import add, mul, sub
from xlakit.ops.elementwise.convert import convert_element_type
from xlakit.ops.elementwise.elementary import erf as erf_of, exp, rsqrt
from xlakit.ops.handle import XlaOp
from xlakit.ops.movement import broadcast_in_dim
from xlakit.ops.reduction import reduce
from xlakit.ops.sort import top_k as top_k_of


def erf(foreign: Foreign) -> XlaOp:
    """The error function."""
    return _each(foreign, lambda _, x: erf_of(x))


def gelu(foreign: Foreign) -> XlaOp:
    """The function x / 2 (1 + erf(x / sqrt(2)))."""
    return _each(foreign, activations.gelu_erf)


def approximate_gelu(foreign: Foreign) -> XlaOp:
    """The same by a hyperbolic tangent."""
    return _each(foreign, activations.gelu_tanh)


def gelu_slope(foreign: Foreign) -> XlaOp:
    """The derivative of GELU, which the program multiplies by the gradient."""

    def slope(_: Foreign, x: XlaOp) -> XlaOp:
        distribution = mul(foreign.scalar(0.5, x), foreign.scalar(1, x) + erf_of(mul(foreign.scalar(0.5**0.5, x), x)))
        density = mul(foreign.scalar((2 * math.pi) ** -0.5, x), exp(mul(foreign.scalar(-0.5, x), mul(x, x))))
        return add(distribution, mul(x, density))

    return _each(foreign, slope)


def silu(foreign: Foreign) -> XlaOp:
    """The function x logistic(x)."""
    return _each(foreign, activations.swish)


def softmax(foreign: Foreign) -> XlaOp:
    """exp(x - max) / sum along the dimension that is the config."""
    (x,) = foreign.need_operands(["x"])
    return foreign.finished(activations.softmax_along(foreign, x, _dimension(foreign, x)))


def softmax_gradient(foreign: Foreign) -> XlaOp:
    """The gradient of softmax's operand, from that of its result and the result."""
    operands = foreign.need_operands(["gradient", "result"])
    along = _dimension(foreign, operands[1])
    gradient, result = (convert_element_type(o, foreign.sum_type()) for o in operands)
    return foreign.finished(mul(result, sub(gradient, _total(foreign, mul(gradient, result), along))))


def rms_norm(foreign: Foreign) -> XlaOp:
    """The dimension that is the config divided by its root mean square, times the scale."""
    operands = foreign.need_operands(["x", "scale", "epsilon"])
    along = _dimension(foreign, operands[0])
    x, scale, epsilon = (convert_element_type(o, foreign.sum_type()) for o in operands)
    sizes = x.shape.dimensions
    if scale.shape.dimensions != (sizes[along],) or epsilon.shape.rank:
        raise ShapeError(
            f"the scale {scale.shape} and epsilon {epsilon.shape} do not fit dimension {along} of {x.shape}",
            hint="the scale has the size of that dimension, epsilon is a scalar",
        )
    mean = _total(foreign, mul(x, x), along) / foreign.scalar(sizes[along], x)
    factor = rsqrt(add(mean, broadcast_in_dim(epsilon, sizes, [])))
    return foreign.finished(mul(mul(x, factor), broadcast_in_dim(scale, sizes, [along])))


def arg_max(foreign: Foreign) -> XlaOp:
    """The position of the largest element along the dimension that is the config."""
    return _position(foreign, False)


def arg_min(foreign: Foreign) -> XlaOp:
    """The position of the smallest element along the dimension that is the config."""
    return _position(foreign, True)


def top_k(foreign: Foreign) -> XlaOp:
    """The largest elements of the last dimension, as many as the config says, in order, and their positions."""
    (x,) = foreign.need_operands(["x"])
    activations.need_floats(foreign, foreign.op.custom_call_target, x)
    found = top_k_of(x, foreign.config.needed_integer("k"))
    return foreign.all_finished([get_tuple_element(found, 0), get_tuple_element(found, 1)])


def _position(foreign: Foreign, is_min: bool) -> XlaOp:
    (x,) = foreign.need_operands(["x"])
    along, kind = _dimension(foreign, x), foreign.result.element_type
    return foreign.finished(arg_min_max(x, kind, along, is_min))


def _each(foreign: Foreign, function: activations.Activation) -> XlaOp:
    (x,) = foreign.need_operands(["x"])
    activations.need_floats(foreign, foreign.op.custom_call_target, x)
    return foreign.finished(function(foreign, convert_element_type(x, foreign.sum_type())))


def _dimension(foreign: Foreign, x: XlaOp) -> int:
    activations.need_floats(foreign, foreign.op.custom_call_target, x)
    along = foreign.config.needed_integer("dimension")
    if not 0 <= along < x.shape.rank:
        raise foreign.config.error("dimension", f"a dimension of {x.shape}")
    return along


def _total(foreign: Foreign, x: XlaOp, along: int) -> XlaOp:
    """The sums along a dimension, in the shape of x."""
    others = [d for d in range(x.shape.rank) if d != along]
    total = reduce(x, constant(foreign.builder, 0, x.shape.element_type), add, [along])
    return broadcast_in_dim(total, x.shape.dimensions, others)
