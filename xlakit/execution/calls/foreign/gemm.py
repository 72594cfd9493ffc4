"""Products of cuBLAS and cuBLASLt: alpha lhs rhs + beta c + bias, and a function of that."""

from __future__ import annotations

import math
from typing import Final

import ml_dtypes

from xlakit.data.primitive import PrimitiveType
from xlakit.data.shape import Shape
from xlakit.errors import ShapeError, UnsupportedError
from xlakit.execution.calls.foreign.activations import Activation, gelu_tanh, need_floats, relu, swish
from xlakit.execution.calls.foreign.config import Config
from xlakit.execution.calls.foreign.meaning import Foreign
from xlakit.ops.data import constant
from xlakit.ops.dot import DotDimensionNumbers, dot_general
from xlakit.ops.dot_variants import RaggedDotDimensionNumbers, ragged_dot
from xlakit.ops.elementwise.binary import add, max as larger, mul
from xlakit.ops.elementwise.convert import convert_element_type
from xlakit.ops.handle import XlaOp
from xlakit.ops.movement import broadcast_in_dim, reshape, slice_in_dim
from xlakit.ops.reduction import reduce

_GEMM: Final = "gemm_backend_config"
# Epilogues of the product: whether a bias is added, and the activation function after that.
_EPILOGUES: Final[dict[str, tuple[bool, Activation | None]]] = {
    "DEFAULT": (False, None),
    "BIAS": (True, None),
    "RELU": (False, relu),
    "BIAS_RELU": (True, relu),
    "GELU": (False, gelu_tanh),
    "BIAS_GELU": (True, gelu_tanh),
    "SILU": (False, swish),
    "BIAS_SILU": (True, swish),
}
_WIDE: Final = (PrimitiveType.F16, PrimitiveType.BF16, PrimitiveType.F32)


def gemm(foreign: Foreign) -> XlaOp:
    """The product by ``gemm_backend_config``. Its third operand is c where beta is not zero; a bias comes last."""
    config = foreign.config
    operands = _operands(foreign)
    kind = foreign.sum_type()
    value = dot_general(operands["lhs"], operands["rhs"], _numbers(config), preferred_element_type=kind)
    return _finished(foreign, value, operands, complex(config.number("alpha_real"), config.number("alpha_imag")))


def _operands(foreign: Foreign, *scales: str) -> dict[str, XlaOp]:
    """The operands by name: c and a bias are there where the config says so."""
    # Options with further results, and scales of 8-bit floats.
    foreign.config.refuse("damax_output", "grad_x", "grad_y")
    c, bias = ["c"] * bool(foreign.config.number("beta")), ["bias"] * _epilogue(foreign)[0]
    names = ["lhs", "rhs", *c, *scales, *bias]
    return dict(zip(names, foreign.need_operands(names), strict=True))


def _epilogue(foreign: Foreign) -> tuple[bool, Activation | None]:
    return _EPILOGUES[foreign.config.choice("epilogue", tuple(_EPILOGUES))]


def _finished(foreign: Foreign, value: XlaOp, operands: dict[str, XlaOp], alpha: complex) -> XlaOp:
    """The result, given the product of the operands."""
    kind = value.shape.element_type
    value = _scaled(foreign, "alpha_real", alpha, value)
    if "c" in operands:
        beta = foreign.config.number("beta")
        value = add(value, _scaled(foreign, "beta", beta, convert_element_type(operands["c"], kind)))
    if "bias" in operands:
        value = add(value, _spread(foreign, convert_element_type(operands["bias"], kind), value.shape))
    activation = _epilogue(foreign)[1]
    if activation is not None:
        need_floats(foreign, "the epilogue", value)
        value = activation(foreign, value)
    return foreign.finished(value)


def grouped_gemm(foreign: Foreign) -> XlaOp:
    """The products of groups of rows, by ``ragged_dot_dimension_numbers``; the third operand has the groups' sizes."""
    product = foreign.config.section(_GEMM)
    product.refuse("damax_output", "grad_x", "grad_y", "beta", "alpha_imag")
    product.choice("epilogue", ("DEFAULT",))
    ragged = foreign.config.section("ragged_dot_dimension_numbers")
    lhs, rhs, sizes = foreign.need_operands(["lhs", "rhs", "group_sizes"])
    numbers = RaggedDotDimensionNumbers(
        _numbers(ragged), ragged.integers("lhs_ragged_dimensions"), ragged.integers("rhs_group_dimensions")
    )
    value = ragged_dot(lhs, rhs, sizes, numbers, preferred_element_type=foreign.sum_type())
    return foreign.finished(_scaled(foreign, "alpha_real", complex(product.number("alpha_real")), value))


def eight_bit_gemm(foreign: Foreign) -> XlaOp:
    """The product of 8-bit floats, each times its scale, an f32 scalar: alpha lhs rhs + beta c + bias.

    Raises UnsupportedError for a result in 8 bits, which has a scale of its own.
    """
    config = foreign.config
    config.refuse("alpha_imag")
    if foreign.result.element_type not in _WIDE:
        raise UnsupportedError(
            f"a result of {foreign.result.element_type.hlo_name} and its scale have no meaning here",
            hint="register a function for the call with xlakit.register_custom_call",
        )
    scales = ("scale of lhs", "scale of rhs")
    operands = {
        name: convert_element_type(operand, PrimitiveType.F32) for name, operand in _operands(foreign, *scales).items()
    }
    value = dot_general(operands["lhs"], operands["rhs"], _numbers(config))
    for name in scales:
        value = _times_scale(value, operands[name], name)
    return _finished(foreign, value, operands, config.number("alpha_real"))


def block_scaled_dot(foreign: Foreign) -> XlaOp:
    """The product along the last dimensions of operands whose blocks along that dimension have scales.

    A first dimension of three is a batch. The right operand may have no scales. Scales behind the last block do not
    count. A fifth operand is a scale of the product.
    """
    names = ["lhs", "rhs", "scales of lhs", "scales of rhs", "scale of all"][: max(3, len(foreign.operands))]
    lhs, rhs, *scales = foreign.need_operands(names)
    size = foreign.config.integer("block_size")
    lhs = _dequantized(lhs, scales[0], size)
    rhs = _dequantized(rhs, scales[1], size) if len(scales) > 1 else convert_element_type(rhs, PrimitiveType.F32)
    last, batch = lhs.shape.rank - 1, tuple(range(lhs.shape.rank - 2))
    value = dot_general(lhs, rhs, DotDimensionNumbers((last,), (last,), batch, batch))
    return foreign.finished(_times_scale(value, scales[2], names[4]) if len(scales) > 2 else value)


def dequantize(foreign: Foreign) -> XlaOp:
    """The elements times the scales of their blocks along the last dimension."""
    value, scales = foreign.need_operands(["value", "scales"])
    return foreign.finished(_dequantized(value, scales, foreign.config.integer("block_size")))


def quantize(foreign: Foreign) -> XlaOp:
    """The elements divided by the scales of their blocks along the last dimension, and these scales.

    A scale is the largest absolute value of its block by the largest power of two that the result's type has.
    """
    (value,) = foreign.need_operands(["value"])
    need_floats(foreign, "quantize", value)
    sizes, kind = value.shape.dimensions, value.shape.element_type
    result, of_scales = foreign.result, foreign.results[-1]
    counts = of_scales.dimensions if of_scales.is_array else ()
    if not sizes or not counts or sizes[:-1] != counts[:-1] or counts[-1] < 1 or sizes[-1] % counts[-1]:
        raise ShapeError(
            f"{value.shape} cannot be quantized with the scales {of_scales}",
            hint="the second result has the same dimensions but the last, which counts blocks of equal size",
        )
    if not (result.element_type.is_floating and of_scales.element_type.is_floating):
        raise UnsupportedError(
            f"{value.shape} as {foreign.declared} has no meaning here", hint="values and scales are floats"
        )
    blocks = (*counts, sizes[-1] // counts[-1])
    zero = constant(foreign.builder, 0, kind)
    largest = reduce(abs(reshape(value, new_sizes=blocks)), zero, larger, [len(counts)])
    power = 2.0 ** math.floor(math.log2(float(ml_dtypes.finfo(result.element_type.dtype).max)))
    scales = convert_element_type(largest / foreign.scalar(power, largest), of_scales.element_type)
    spread = broadcast_in_dim(convert_element_type(scales, kind), blocks, range(len(counts)))
    return foreign.all_finished([value / reshape(spread, new_sizes=sizes), scales])


def _times_scale(value: XlaOp, scale: XlaOp, name: str) -> XlaOp:
    if scale.shape.num_elements != 1:
        raise ShapeError(f"the {name} has shape {scale.shape}", hint="a scale is one number")
    number = reshape(convert_element_type(scale, value.shape.element_type), new_sizes=[])
    return mul(value, broadcast_in_dim(number, value.shape.dimensions, []))


def _dequantized(value: XlaOp, scales: XlaOp, size: int) -> XlaOp:
    """The elements in f32, times the scales of their blocks. size: of a block; 0 where scales are not padded."""
    sizes, counts = value.shape.dimensions, scales.shape.dimensions
    fits = len(sizes) in (2, 3) and sizes[:-1] == counts[:-1] and counts[-1] > 0
    size = size or (sizes[-1] // counts[-1] if fits else 0)
    blocks = -(-sizes[-1] // size) if fits and size > 0 else 0
    if not fits or size <= 0 or blocks * size != sizes[-1] or blocks > counts[-1]:
        raise ShapeError(
            f"{value.shape} cannot have the scales {scales.shape} of blocks of {size or 'an unknown size'}",
            hint="values have two or three dimensions, scales the same but the last, which counts blocks; block_size "
            "is needed where they are padded",
        )
    used = slice_in_dim(convert_element_type(scales, PrimitiveType.F32), 0, blocks, 1, len(sizes) - 1)
    spread = broadcast_in_dim(used, [*sizes[:-1], blocks, size], range(len(sizes)))
    return mul(convert_element_type(value, PrimitiveType.F32), reshape(spread, new_sizes=sizes))


def _numbers(config: Config) -> DotDimensionNumbers:
    if "dot_dimension_numbers" not in config:
        raise ShapeError(
            "backend_config has no dot_dimension_numbers", hint="it says which dimensions of the operands are summed"
        )
    numbers = config.section("dot_dimension_numbers")
    return DotDimensionNumbers(
        lhs_contracting_dimensions=numbers.integers("lhs_contracting_dimensions"),
        rhs_contracting_dimensions=numbers.integers("rhs_contracting_dimensions"),
        lhs_batch_dimensions=numbers.integers("lhs_batch_dimensions"),
        rhs_batch_dimensions=numbers.integers("rhs_batch_dimensions"),
    )


def _scaled(foreign: Foreign, key: str, factor: complex, value: XlaOp) -> XlaOp:
    """The value times a factor, which for integers must be one."""
    kind = value.shape.element_type
    if factor == 1:
        return value
    if kind.is_integral or (complex(factor).imag and not kind.is_complex):
        raise UnsupportedError(
            f"backend_config has {key} {factor} for a product of {kind.hlo_name}",
            hint="integers are not scaled, and imaginary factors are for complex numbers",
        )
    return mul(value, foreign.scalar(factor, value))


def _spread(foreign: Foreign, bias: XlaOp, product: Shape) -> XlaOp:
    """A bias along those dimensions of the result that lie closest together in memory, as cuBLASLt reads it."""
    order = foreign.result.layout_or_default.minor_to_major
    along = sorted(order[: bias.shape.rank])
    if tuple(product.dimensions[d] for d in along if d < product.rank) != bias.shape.dimensions:
        raise ShapeError(
            f"the bias has shape {bias.shape}, the most minor dimensions of the result {foreign.result} are {along}",
            hint="the bias has the sizes of the result's most minor dimensions",
        )
    return broadcast_in_dim(bias, product.dimensions, along)
