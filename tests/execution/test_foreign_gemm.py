"""Calls of cuBLAS and cuBLASLt compute what their backend_config says, on both backends."""

import math

import numpy as np
import pytest
from foreign_programs import TYPES, check, drawn, program, wide

import xlakit
from xlakit.errors import ShapeError, UnsupportedError

KINDS = pytest.mark.parametrize("kind", list(TYPES))
FLOATS = pytest.mark.parametrize("kind", [kind for kind in TYPES if kind != "c64"])


def config(lhs=(1,), rhs=(0,), lhs_batch=(), rhs_batch=(), **fields):
    """A backend_config as XLA prints it: integers of 64 bits are text."""
    numbers = {
        "lhs_contracting_dimensions": list(map(str, lhs)),
        "rhs_contracting_dimensions": list(map(str, rhs)),
        "lhs_batch_dimensions": list(map(str, lhs_batch)),
        "rhs_batch_dimensions": list(map(str, rhs_batch)),
    }
    found = {
        "alpha_real": 1,
        "alpha_imag": 0,
        "beta": 0,
        "dot_dimension_numbers": numbers,
        "epilogue": "DEFAULT",
        "precision_config": {"operand_precision": ["DEFAULT", "DEFAULT"], "algorithm": "ALG_UNSET"},
        "lhs_stride": "6",
        "rhs_stride": "12",
        "damax_output": False,
    }
    return {"operation_queue_id": "0", "gemm_backend_config": {**found, **fields}, "wait_on_operation_queues": []}


@KINDS
@pytest.mark.parametrize("target", ["__cublas$gemm", "__cublas$lt$matmul"])
def test_product_with_a_workspace(kind, target):
    text = program([f"{kind}[4,3]", f"{kind}[3,5]"], f"({kind}[4,5]{{0,1}}, s8[4096])", target, config(alpha_real=0.5))
    a, b = drawn((4, 3), kind, 0), drawn((3, 5), kind, 1)
    check(text, [a, b], 0.5 * wide(a) @ wide(b), kind)


@KINDS
def test_batches_and_c(kind):
    shapes = [f"{kind}[3,2,4]", f"{kind}[2,5,3]", f"{kind}[2,4,5]"]
    numbers = config(lhs=(0,), rhs=(2,), lhs_batch=(1,), rhs_batch=(0,), beta=-2.0)
    a, b, c = drawn((3, 2, 4), kind, 0), drawn((2, 5, 3), kind, 1), drawn((2, 4, 5), kind, 2)
    wanted = np.einsum("kbm,bnk->bmn", wide(a), wide(b)) - 2 * wide(c)
    check(program(shapes, f"{kind}[2,4,5]", "__cublas$gemm", numbers), [a, b, c], wanted, kind)


def test_config_that_is_not_nested_and_complex_alpha():
    inner = config(alpha_real=1, alpha_imag=2)["gemm_backend_config"]
    a, b = drawn((4, 3), "c64", 0), drawn((3, 5), "c64", 1)
    text = program(["c64[4,3]", "c64[3,5]"], "c64[4,5]", "__cublas$gemm", inner)
    check(text, [a, b], (1 + 2j) * wide(a) @ wide(b), "c64")


def test_integers():
    a, b = (np.arange(-6, 6, dtype=np.int8).reshape(shape) for shape in ((4, 3), (3, 4)))
    text = program(["s8[4,3]", "s8[3,4]"], "s32[4,4]", "__cublas$gemm", config())
    check(text, [a, b], wide(a) @ wide(b), "f32")


EPILOGUES = {
    "RELU": lambda x: np.maximum(x, 0),
    "GELU": lambda x: x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "SILU": lambda x: x / (1 + np.exp(-x)),
    "DEFAULT": lambda x: x,
}


@FLOATS
@pytest.mark.parametrize("name", list(EPILOGUES))
@pytest.mark.parametrize("layout", ["{1,0}", "{0,1}"])
def test_epilogues_with_bias(kind, name, layout):
    rows = layout == "{0,1}"  # the bias is along the dimension that lies closest together
    bias = drawn((4 if rows else 5,), kind, 2)
    a, b = drawn((4, 3), kind, 0), drawn((3, 5), kind, 1)
    wanted = EPILOGUES[name](wide(a) @ wide(b) + (wide(bias)[:, None] if rows else wide(bias)))
    fields = config(epilogue="BIAS" if name == "DEFAULT" else f"BIAS_{name}")
    operands = [f"{kind}[4,3]", f"{kind}[3,5]", f"{kind}[{len(bias)}]"]
    text = program(operands, f"({kind}[4,5]{layout}, s8[64])", "__cublas$lt$matmul", fields)
    check(text, [a, b, bias], wanted, kind)


def test_c_and_bias_and_function_together():
    a, b, c, bias = (drawn(shape, "f32", seed) for seed, shape in enumerate([(4, 3), (3, 5), (4, 5), (5,)]))
    wanted = np.maximum(wide(a) @ wide(b) + 0.5 * wide(c) + wide(bias), 0)
    fields = config(epilogue="BIAS_RELU", beta=0.5)
    text = program(["f32[4,3]", "f32[3,5]", "f32[4,5]", "f32[5]"], "f32[4,5]", "__cublas$lt$matmul", fields)
    check(text, [a, b, c, bias], wanted, "f32")


def test_products_of_groups_of_rows():
    product = config()["gemm_backend_config"]
    ragged = {
        "dot_dimension_numbers": {"lhs_contracting_dimensions": ["1"], "rhs_contracting_dimensions": ["1"]},
        "lhs_ragged_dimensions": ["0"],
        "rhs_group_dimensions": ["0"],
    }
    grouped = {"gemm_backend_config": {**product, "alpha_real": 2}, "ragged_dot_dimension_numbers": ragged}
    text = program(
        ["f32[6,3]", "f32[2,3,4]", "s32[2]"],
        "(f32[6,4], s8[64])",
        "__cublas$lt$groupedMatmul",
        {"grouped_gemm_backend_config": grouped},
    )
    a, b = drawn((6, 3), "f32", 0), drawn((2, 3, 4), "f32", 1)
    wanted = 2 * np.concatenate([wide(a)[:2] @ wide(b)[0], wide(a)[2:] @ wide(b)[1]])
    check(text, [a, b, np.array([2, 4], np.int32)], wanted, "f32")
    product["epilogue"] = "RELU"
    refused = program(
        ["f32[6,3]", "f32[2,3,4]", "s32[2]"],
        "(f32[6,4], s8[64])",
        "__cublas$lt$groupedMatmul",
        {"grouped_gemm_backend_config": {**grouped, "gemm_backend_config": product}},
    )
    with pytest.raises(UnsupportedError, match="'RELU', which has no meaning here"):
        xlakit.compile(xlakit.HloModule.from_text(refused))


def test_it_is_the_dot_of_the_program_before_optimization():
    plain = """HloModule m
ENTRY e {
  p0 = f32[4,3] parameter(0)
  p1 = f32[3,5] parameter(1)
  d = f32[4,5] dot(p0, p1), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  zero = f32[] constant(0)
  zeros = f32[4,5] broadcast(zero), dimensions={}
  ROOT r = f32[4,5] maximum(d, zeros)
}
"""
    a, b = drawn((4, 3), "f32", 0), drawn((3, 5), "f32", 1)
    wanted = xlakit.compile(xlakit.HloModule.from_text(plain), backend="interpreter")(a, b)
    text = program(["f32[4,3]", "f32[3,5]"], "f32[4,5]", "__cublas$lt$matmul", config(epilogue="RELU"))
    check(text, [a, b], np.asarray(wanted, np.float64), "f32")


TWO = ["f32[4,3]", "f32[3,5]"]


@pytest.mark.parametrize(
    ("operands", "result", "fields", "error", "rule"),
    [
        (TWO, "f32[4,5]", {}, ShapeError, "backend_config has no dot_dimension_numbers"),
        (TWO, "f32[4,5]", config(alpha_real="much"), ShapeError, 'alpha_real "much", it must be a number'),
        (TWO, "f32[4,5]", config(lhs=("x",)), ShapeError, "dot_dimension_numbers.lhs_contracting_dimensions"),
        (TWO, "f32[4,5]", config(lhs=(7,)), ShapeError, "lhs dimensions"),
        (TWO, "f32[4,5]", config(lhs=(0,)), ShapeError, "contracting dimension 0 of lhs has size 4"),
        (TWO, "f32[5,4]", config(), ShapeError, r"dimensions \[4, 5\], the declared shape is f32\[5,4\]"),
        (TWO, "f32[4,5]", config(beta=1), ShapeError, r"3 operands \(lhs, rhs, c\), got 2"),
        (TWO, "f32[4,5]", config(epilogue="BIAS"), ShapeError, r"3 operands \(lhs, rhs, bias\), got 2"),
        ([*TWO, "f32[4]"], "f32[4,5]", config(epilogue="BIAS"), ShapeError, "the bias has shape"),
        (TWO, "f32[4,5]", config(epilogue="GELU_AUX"), UnsupportedError, "epilogue 'GELU_AUX'"),
        (TWO, "f32[4,5]", config(damax_output=True), UnsupportedError, "damax_output True"),
        (TWO, "f32[4,5]", config(alpha_imag=1), UnsupportedError, "imaginary"),
        (["f8e4m3fn[4,3]", "f8e4m3fn[3,5]"], "f32[4,5]", config(), UnsupportedError, "of f8e4m3fn has no meaning"),
        (TWO, "()", config(), ShapeError, "the result must be an array"),
    ],
)
@pytest.mark.parametrize("backend", ["cpu", "interpreter"])
def test_what_breaks_a_rule(operands, result, fields, error, rule, backend):
    text = program(operands, result, "__cublas$lt$matmul", fields)
    if result == "()":
        text = text.replace("ROOT r = , index=0", "").replace("call =", "ROOT call =")
        text = "\n".join(line for line in text.splitlines() if "get-tuple-element" not in line)
    with pytest.raises(error, match=rule) as caught:
        xlakit.compile(xlakit.HloModule.from_text(text), backend=backend)
    assert "custom-call 'call'" in str(caught.value)


def test_config_that_is_not_json():
    text = program(TWO, "f32[4,5]", "__cublas$gemm", '"{broken"')
    with pytest.raises(ShapeError, match="backend_config is not JSON"):
        xlakit.compile(xlakit.HloModule.from_text(text))


def test_eight_bit_results_are_named():
    text = program(TWO, "f8e4m3fn[4,5]", "__cublas$lt$matmul$f8", config())
    with pytest.raises(UnsupportedError, match="a result of f8e4m3fn and its scale"):
        xlakit.compile(xlakit.HloModule.from_text(text))


def test_a_function_of_ones_own_goes_first():
    text = program(TWO, "f32[4,5]", "__cublas$gemm", "{}")
    calls = {"__cublas$gemm": lambda a, b: np.zeros((4, 5), np.float32)}
    made = xlakit.compile(xlakit.HloModule.from_text(text), custom_calls=calls)
    assert not np.asarray(made(drawn((4, 3), "f32", 0), drawn((3, 5), "f32", 1))).any()
