"""The functions that libraries apply to the results of products and convolutions, as HLO."""

from __future__ import annotations

import math
from collections.abc import Callable

from xlakit.errors import UnsupportedError
from xlakit.execution.calls.foreign.meaning import Foreign
from xlakit.ops.data import constant
from xlakit.ops.elementwise.binary import add, max, min, mul, sub
from xlakit.ops.elementwise.compare import gt
from xlakit.ops.elementwise.convert import convert_element_type
from xlakit.ops.elementwise.elementary import erf, exp, expm1, logistic, tanh
from xlakit.ops.elementwise.select import select
from xlakit.ops.handle import XlaOp
from xlakit.ops.movement import broadcast_in_dim
from xlakit.ops.reduction import reduce

Activation = Callable[[Foreign, XlaOp], XlaOp]


def need_floats(foreign: Foreign, name: str, value: XlaOp) -> None:
    """Raise UnsupportedError for functions of values of other types."""
    if not value.shape.element_type.is_floating:
        raise UnsupportedError(
            f"{name} of {value.shape.element_type.hlo_name} has no meaning here", hint="libraries apply it to floats"
        )


def relu(foreign: Foreign, x: XlaOp) -> XlaOp:
    """The function max(x, 0)."""
    return max(x, foreign.scalar(0, x))


def relu6(foreign: Foreign, x: XlaOp) -> XlaOp:
    """The function min(max(x, 0), 6)."""
    return min(relu(foreign, x), foreign.scalar(6, x))


def gelu_tanh(foreign: Foreign, x: XlaOp) -> XlaOp:
    """The function x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))), which is what cuBLAS has as GELU."""
    cube = mul(mul(x, x), x)
    inner = mul(foreign.scalar(math.sqrt(2 / math.pi), x), add(x, mul(foreign.scalar(0.044715, x), cube)))
    return mul(mul(foreign.scalar(0.5, x), x), add(foreign.scalar(1, x), tanh(inner)))


def gelu_erf(foreign: Foreign, x: XlaOp) -> XlaOp:
    """The function x / 2 (1 + erf(x / sqrt(2)))."""
    inner = erf(mul(x, foreign.scalar(math.sqrt(0.5), x)))
    return mul(mul(foreign.scalar(0.5, x), x), add(foreign.scalar(1, x), inner))


def swish(foreign: Foreign, x: XlaOp) -> XlaOp:
    """The function x logistic(x)."""
    return mul(x, logistic(x))


def softmax_along(foreign: Foreign, x: XlaOp, axis: int) -> XlaOp:
    """The function exp(x - max) / sum along a dimension, in the type in which the call computes."""
    x = convert_element_type(x, foreign.sum_type())
    kind, sizes = x.shape.element_type, x.shape.dimensions
    others = [d for d in range(x.shape.rank) if d != axis]
    largest = reduce(x, constant(foreign.builder, float("-inf"), kind), max, [axis])
    powers = exp(sub(x, broadcast_in_dim(largest, sizes, others)))
    total = reduce(powers, constant(foreign.builder, 0, kind), add, [axis])
    return powers / broadcast_in_dim(total, sizes, others)


def leaky_relu(alpha: float) -> Activation:
    """The function that is x for x > 0, else alpha x."""
    return lambda foreign, x: select(gt(x, foreign.scalar(0, x)), x, mul(foreign.scalar(alpha, x), x))


def elu(alpha: float) -> Activation:
    """The function that is x for x > 0, else alpha (exp(x) - 1)."""
    return lambda foreign, x: select(gt(x, foreign.scalar(0, x)), x, mul(foreign.scalar(alpha, x), expm1(x)))
