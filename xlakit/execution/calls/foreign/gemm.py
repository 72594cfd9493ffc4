"""Products of cuBLAS and cuBLASLt: alpha lhs rhs + beta c + bias, and a function of that."""

from __future__ import annotations

from typing import Final

from xlakit.data.shape import Shape
from xlakit.errors import ShapeError, UnsupportedError
from xlakit.execution.calls.foreign.activations import Activation, gelu_tanh, need_floats, relu, swish
from xlakit.execution.calls.foreign.config import Config
from xlakit.execution.calls.foreign.meaning import Foreign
from xlakit.ops.dot import DotDimensionNumbers, dot_general
from xlakit.ops.elementwise.binary import add, mul
from xlakit.ops.elementwise.convert import convert_element_type
from xlakit.ops.handle import XlaOp
from xlakit.ops.movement import broadcast_in_dim

# What follows the product: whether a bias is added, and the function then.
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
EIGHT_BITS: Final = "products of 8-bit floats and their scales are not supported"


def gemm(foreign: Foreign) -> XlaOp:
    """The product by ``gemm_backend_config``. Its third operand is c where beta is not zero; a bias comes last."""
    config = foreign.config
    # Outputs beside the value, and factors of 8-bit floats.
    config.refuse("damax_output", "grad_x", "grad_y")
    biased, activation = _EPILOGUES[config.choice("epilogue", tuple(_EPILOGUES))]
    alpha = complex(config.number("alpha_real"), config.number("alpha_imag"))
    beta = config.number("beta")
    names = ["lhs", "rhs", *(["c"] if beta else []), *(["bias"] if biased else [])]
    operands = dict(zip(names, foreign.need_operands(names), strict=True))
    kind = foreign.sum_type()
    numbers = _numbers(config)
    value = dot_general(operands["lhs"], operands["rhs"], numbers, preferred_element_type=kind)
    value = _scaled(foreign, "alpha_real", alpha, value)
    if beta:
        value = add(value, _scaled(foreign, "beta", beta, convert_element_type(operands["c"], kind)))
    if biased:
        value = add(value, _spread(foreign, convert_element_type(operands["bias"], kind), value.shape))
    if activation is not None:
        need_floats(foreign, "the epilogue", value)
        value = activation(foreign, value)
    return foreign.finished(value)


def eight_bit_gemm(foreign: Foreign) -> XlaOp:
    """Raise UnsupportedError."""
    raise UnsupportedError(EIGHT_BITS, hint="register a function for the call with xlakit.register_custom_call")


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
