"""Layer normalization of cuDNN: scale (x - mean) / sqrt(variance + epsilon) + bias, and its gradients.

The dimensions that are normalized are those of the scale whose size is not 1. All is in f32, rounded once.
"""

from __future__ import annotations

import math
from typing import Final

from xlakit.data.primitive import PrimitiveType
from xlakit.dataclass import dataclass
from xlakit.errors import ShapeError
from xlakit.execution.calls.foreign.activations import need_floats
from xlakit.execution.calls.foreign.meaning import Foreign
from xlakit.ops.data import constant
from xlakit.ops.elementwise.binary import add, mul, sub
from xlakit.ops.elementwise.convert import convert_element_type
from xlakit.ops.elementwise.elementary import rsqrt
from xlakit.ops.handle import XlaOp
from xlakit.ops.movement import broadcast_in_dim, reshape
from xlakit.ops.reduction import reduce

_KINDS: Final = ("LAYER_FWD_INFER", "LAYER_FWD_TRAIN", "LAYER_BWD")


def norm(foreign: Foreign) -> XlaOp:
    """By ``kind``: the normalized array; with its mean and 1 / sqrt(variance + epsilon); or the gradients."""
    kind = foreign.config.choice("kind", _KINDS)
    is_backward = kind == "LAYER_BWD"
    names = ["x", "scale", *(["gradient", "mean", "factor"] if is_backward else ["bias"])]
    operands = dict(zip(names, foreign.need_operands(names), strict=True))
    norms = _Norm.of(foreign, operands["x"], operands["scale"])
    x, scale = norms.wide("x", operands), norms.spread(norms.wide("scale", operands))
    if is_backward:
        return foreign.all_finished(_gradients(norms, x, scale, operands))
    mean = norms.mean(x)
    centered = sub(x, norms.spread(mean))
    variance = norms.mean(mul(centered, centered))
    factor = rsqrt(add(variance, foreign.scalar(foreign.config.number("epsilon"), variance)))
    bias = norms.spread(norms.wide("bias", operands))
    normalized = add(mul(mul(centered, norms.spread(factor)), scale), bias)
    return foreign.all_finished([normalized, mean, factor] if kind == "LAYER_FWD_TRAIN" else [normalized])


@dataclass(frozen=True, slots=True)
class _Norm:
    """Which dimensions of an array are normalized, and the type of the calculation."""

    foreign: Foreign
    sizes: tuple[int, ...]
    along: tuple[int, ...]
    kind: PrimitiveType

    @classmethod
    def of(cls, foreign: Foreign, x: XlaOp, scale: XlaOp) -> _Norm:
        sizes, scales = x.shape.dimensions, scale.shape.dimensions
        if len(sizes) != len(scales) or any(n not in (1, size) for n, size in zip(scales, sizes, strict=True)):
            raise ShapeError(
                f"the scale has shape {scale.shape}, x has {x.shape}",
                hint="the scale has the dimensions of x, those that are not normalized of size 1",
            )
        kind = foreign.sum_type()
        need_floats(foreign, "normalization", x)
        return cls(foreign, sizes, tuple(d for d, n in enumerate(scales) if n != 1), kind)

    def wide(self, name: str, operands: dict[str, XlaOp]) -> XlaOp:
        """An operand in the type of the calculation."""
        return convert_element_type(operands[name], self.kind)

    def spread(self, value: XlaOp) -> XlaOp:
        """A value broadcast along its dimensions of size 1 to the shape of x."""
        return broadcast_in_dim(value, self.sizes, range(len(self.sizes)))

    def total(self, value: XlaOp, along: tuple[int, ...]) -> XlaOp:
        """The sums along dimensions, which are kept with size 1."""
        left = [1 if d in along else size for d, size in enumerate(self.sizes)]
        return reshape(reduce(value, constant(self.foreign.builder, 0, self.kind), add, list(along)), new_sizes=left)

    def mean(self, value: XlaOp) -> XlaOp:
        """The mean along the normalized dimensions, which are kept with size 1."""
        total = self.total(value, self.along)
        return mul(total, self.foreign.scalar(1 / math.prod(self.sizes[d] for d in self.along), total))


def _gradients(norms: _Norm, x: XlaOp, scale: XlaOp, operands: dict[str, XlaOp]) -> list[XlaOp]:
    """The gradients of x, scale and bias, from the gradient of the result."""
    gradient = norms.wide("gradient", operands)
    factor = norms.spread(norms.wide("factor", operands))
    normal = mul(sub(x, norms.spread(norms.wide("mean", operands))), factor)
    scaled = mul(gradient, scale)
    mean, slope = norms.spread(norms.mean(scaled)), norms.spread(norms.mean(mul(scaled, normal)))
    of_x = mul(factor, sub(sub(scaled, mean), mul(normal, slope)))
    others = tuple(d for d in range(len(norms.sizes)) if d not in norms.along)
    return [of_x, norms.total(mul(gradient, normal), others), norms.total(gradient, others)]
