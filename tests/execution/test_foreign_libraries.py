"""Calls of cuSOLVER, oneDNN and Neuron compute what their backend_config says, on both backends."""

import math
import struct

import numpy as np
import pytest
from foreign_programs import check, drawn, program, wide
from scipy import special

import xlakit
from xlakit.errors import ShapeError, UnsupportedError
from xlakit.ir.operation import Array

FLOATS = pytest.mark.parametrize("kind", ["f16", "bf16", "f32", "f64"])


def positive(kind: str) -> Array:
    a = np.asarray(drawn((2, 4, 4), "f64", 3))
    matrices = a @ a.transpose(0, 2, 1) + 4 * np.eye(4)
    return matrices if kind == "f64" else matrices.astype(np.float32)


@pytest.mark.parametrize("kind", ["f32", "f64"])
@pytest.mark.parametrize("lower", [True, False])
def test_cholesky(kind, lower):
    a = positive(kind)
    wanted = np.linalg.cholesky(wide(a))
    layout = f"{kind}[2,4,4]{{1,2,0}}"
    config = {"lower": lower} if lower else {}
    text = program([f"{kind}[2,4,4]"], f"({layout}, s8[256], s32[2])", "__cusolver$cholesky", config)
    text = text.replace(f"p0 = {kind}[2,4,4]", f"p0 = {layout}")
    check(text, [a], wanted if lower else wanted.transpose(0, 2, 1), kind)


def test_cholesky_says_which_matrices_have_no_factor():
    a = positive("f32")
    a[1] = -a[1]
    text = program(["f32[2,4,4]"], "(f32[2,4,4], s8[256], s32[2])", "__cusolver$cholesky", {"lower": True}, element=2)
    check(text, [a], np.array([0.0, 1.0]), "f32")


def test_cholesky_needs_all_its_results():
    text = program(["f32[2,4,4]"], "(f32[2,4,4], s32[2])", "__cusolver$cholesky", {"lower": True})
    with pytest.raises(ShapeError, match="the results must be the factor, a workspace"):
        xlakit.compile(xlakit.HloModule.from_text(text))


def onednn(**fields):
    return {"onednn_matmul_config": fields, "outer_dimension_partitions": []}


@FLOATS
def test_product_with_transposed_operands_and_a_workspace(kind):
    a, b = drawn((2, 3, 4), kind, 0), drawn((2, 5, 3), kind, 1)
    config = onednn(transpose_a=True, transpose_b=True, optimization_config={"user_scratchpad": True})
    text = program([f"{kind}[2,3,4]", f"{kind}[2,5,3]"], f"({kind}[2,4,5], u8[32])", "__onednn$matmul", config)
    check(text, [a, b], np.einsum("bkm,bnk->bmn", wide(a), wide(b)), kind)


def test_orders_of_dimensions():
    def order(*dimensions):
        return {"dims": "4", "tensor": {"dimensions": [str(d) for d in dimensions], "shape": []}}

    a, b = drawn((2, 4, 3, 6), "f32", 0), drawn((2, 6, 5, 3), "f32", 1)
    config = onednn(lhs=order(1, 3, 2, 4), rhs=order(1, 4, 2, 3), result=order(1, 4, 2, 3))
    text = program(["f32[2,4,3,6]", "f32[2,6,5,3]"], "f32[2,4,5,3]", "__onednn$matmul", config)
    # The result's dimensions 1, 4, 2, 3 are batch, head, row and column of the product.
    check(text, [a, b], np.einsum("bmhk,bknh->bmnh", wide(a), wide(b)), "f32")


FUNCTIONS = {
    "RELU": lambda x: np.maximum(x, 0),
    "RELU6": lambda x: np.clip(x, 0, 6),
    "TANH": np.tanh,
    "SIGMOID": special.expit,
    "SWISH": lambda x: x * special.expit(x),
    "GELU_TANH": lambda x: x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "GELU_ERF": lambda x: x / 2 * (1 + special.erf(x / math.sqrt(2))),
    "ELU": lambda x: np.where(x > 0, x, 0.25 * np.expm1(x)),
    "LINEAR": lambda x: 0.25 * x,
}


@FLOATS
@pytest.mark.parametrize("name", list(FUNCTIONS))
def test_fusions(kind, name):
    a, b, bias, added = (drawn(s, kind, i) for i, s in enumerate([(4, 3), (3, 5), (5,), (1, 5)]))
    (alpha,) = struct.unpack("<i", struct.pack("<f", 0.25))
    config = onednn(fusions={"ops": ["BIAS", name, "BINARY_ADD"], "alpha_typecast": alpha})
    operands = [f"{kind}[4,3]", f"{kind}[3,5]", f"{kind}[5]", f"{kind}[1,5]"]
    wanted = FUNCTIONS[name](wide(a) @ wide(b) + wide(bias)) + wide(added)
    check(program(operands, f"{kind}[4,5]", "__onednn$matmul", config), [a, b, bias, added], wanted, kind)


@FLOATS
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_softmax(kind, axis):
    x = drawn((3, 4, 5), kind, 0) * np.asarray(8, drawn((), kind, 0).dtype)
    config = {"onednn_softmax_config": {"softmax_axis": axis}}
    check(
        program([f"{kind}[3,4,5]"], f"{kind}[3,4,5]", "__onednn$softmax", config),
        [x],
        special.softmax(wide(x), axis),
        kind,
    )


@pytest.mark.parametrize(
    ("fields", "operands", "error", "rule"),
    [
        ({"fusions": {"ops": ["BIAS"]}}, 2, ShapeError, r"3 operands \(lhs, rhs, BIAS\), got 2"),
        ({"fusions": {"ops": ["CLIP"]}}, 2, UnsupportedError, "fusions.ops 'CLIP', which has no meaning"),
        ({"fusions": {"ops": "RELU"}}, 2, ShapeError, "fusions.ops .* must be a list of names"),
        ({"fusions": {"ops": ["ELU"], "alpha_typecast": "5000000000"}}, 2, ShapeError, "fusions.alpha_typecast"),
        ({"optimization_config": {"weights_prepacked": True}}, 2, UnsupportedError, "optimization_config.weights_prep"),
        ({"lhs": {"tensor": {"dimensions": ["1", "3"]}}}, 2, ShapeError, "lhs.tensor.dimensions .* the numbers 1 to 2"),
        ({"transpose_a": "yes"}, 2, ShapeError, "transpose_a .* must be true or false"),
        ({"transpose_a": True}, 2, ShapeError, "contracting dimension"),
    ],
)
def test_what_breaks_a_rule(fields, operands, error, rule):
    text = program(["f32[4,3]", "f32[3,5]"][:operands], "f32[4,5]", "__onednn$matmul", onednn(**fields))
    with pytest.raises(error, match=rule) as caught:
        xlakit.compile(xlakit.HloModule.from_text(text))
    assert "custom-call 'call'" in str(caught.value)


@FLOATS
def test_layer_normalization(kind):
    x, scale, shift = (drawn(s, kind, i) for i, s in enumerate([(3, 4, 5), (5,), (5,)]))
    (epsilon,) = struct.unpack("<i", struct.pack("<f", 0.25))
    config = {"onednn_layer_norm_config": {"rescale": "SCALE_AND_SHIFT", "epsilon_typecast": epsilon}}
    centered = wide(x) - wide(x).mean(-1, keepdims=True)
    wanted = centered / np.sqrt((centered**2).mean(-1, keepdims=True) + 0.25) * wide(scale) + wide(shift)
    text = program([f"{kind}[3,4,5]", f"{kind}[5]", f"{kind}[5]"], f"{kind}[3,4,5]", "__onednn$layernorm", config)
    check(text, [x, scale, shift], wanted, kind)
    wrong = text.replace(f"p2 = {kind}[5]", f"p2 = {kind}[4]")
    with pytest.raises(ShapeError, match=r"the scale .* and the shift .* do not fit"):
        xlakit.compile(xlakit.HloModule.from_text(wrong))


def test_softmax_of_a_dimension_that_is_not_there():
    text = program(["f32[3,4]"], "f32[3,4]", "__onednn$softmax", {"onednn_softmax_config": {"softmax_axis": 2}})
    with pytest.raises(ShapeError, match="softmax_axis 2, it must be a dimension of"):
        xlakit.compile(xlakit.HloModule.from_text(text))


def neuron(kind: str, shapes: list[str], name: str, config: str = "") -> str:
    return program([f"{kind}[{shape}]" for shape in shapes], f"{kind}[{shapes[0]}]", f"AwsNeuron{name}", f'"{config}"')


NEURON = {
    "Erf": special.erf,
    "Gelu": FUNCTIONS["GELU_ERF"],
    "GeluApprxTanh": FUNCTIONS["GELU_TANH"],
    "GeluBackward": lambda x: special.ndtr(x) + x * np.exp(-x * x / 2) / math.sqrt(2 * math.pi),
    "Silu": FUNCTIONS["SWISH"],
}


@pytest.mark.parametrize("name", NEURON)
@pytest.mark.parametrize("kind", ["bf16", "f32"])
def test_functions_of_neuron(name, kind):
    x = drawn((3, 5), kind, 0)
    check(neuron(kind, ["3,5"], name), [x], NEURON[name](wide(x)), kind)


@pytest.mark.parametrize("axis", [0, 1])
def test_softmax_and_norm_of_neuron(axis):
    x, y = drawn((4, 6), "f32", 0), drawn((4, 6), "f32", 1)
    check(neuron("f32", ["4,6"], "Softmax", f"{axis}"), [x], special.softmax(wide(x), axis), "f32")
    gradient = wide(y) * (wide(x) - (wide(x) * wide(y)).sum(axis, keepdims=True))
    check(neuron("f32", ["4,6", "4,6"], "SoftmaxBackward", f"{axis}"), [x, y], gradient, "f32")
    scale, epsilon = drawn((x.shape[axis],), "f32", 2), np.float32(0.5)
    factor = 1 / np.sqrt((wide(x) ** 2).mean(axis, keepdims=True) + 0.5)
    wanted = wide(x) * factor * np.expand_dims(wide(scale), 1 - axis)
    check(neuron("f32", ["4,6", f"{x.shape[axis]}", ""], "RmsNorm", f"{axis}"), [x, scale, epsilon], wanted, "f32")


@pytest.mark.parametrize("axis", [0, 1])
def test_positions_and_largest_elements_of_neuron(axis):
    x = np.float32([[1, 3, 3, 0, 2, -5], [7, 3, -1, -5, 2, 0]])
    for name, wanted in (("ArgMax", x.argmax(axis)), ("ArgMin", x.argmin(axis))):
        check(program(["f32[2,6]"], f"u32[{wanted.size}]", f"AwsNeuron{name}", f'"{axis}"'), [x], wanted, "f32")
    order = np.argsort(-x, axis=-1, kind="stable")[:, :3]
    wanted = order if axis else np.take_along_axis(x, order, -1)
    check(program(["f32[2,6]"], "(f32[2,3], u32[2,3])", "AwsNeuronTopK", '"3"', element=axis), [x], wanted, "f32")


@pytest.mark.parametrize(
    ("shapes", "name", "config", "problem"),
    [
        (["4,6"], "Softmax", "2", "has dimension .*, it must be a dimension of"),
        (["4,6"], "Softmax", "x", "has dimension .*, it must be integers"),
        (["4,6", "4", ""], "RmsNorm", "1", "do not fit dimension 1"),
        (["4,6", "4,6"], "Gelu", "", "it takes 1 operands"),
        (["4,6"], "Gelu", "1", 'backend_config is "?1'),
        (["4,6"], "Softmax", "", "backend_config has no dimension"),
        (["4,6"], "ArgMax", "", "backend_config has no dimension"),
        (["4,6"], "ArgMax", "0", "positions are integers, not f32"),
        (["4,6"], "TopK", "7", "must be from 0 to the size 6"),
    ],
)
def test_calls_of_neuron_that_do_not_fit(shapes, name, config, problem):
    with pytest.raises(ShapeError, match=problem):
        xlakit.compile(xlakit.HloModule.from_text(neuron("f32", shapes, name, config)))


def test_a_call_of_neuron_whose_operands_are_not_public_says_so():
    module = xlakit.HloModule.from_text(neuron("f32", ["4", "4"], "SiluBackward"))
    with pytest.raises(xlakit.UnsupportedError, match="AwsNeuronSiluBackward") as error:
        xlakit.compile(module)
    assert "is not public" in error.value.hint
