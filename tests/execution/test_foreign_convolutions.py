"""Calls of cuDNN's convolutions compute what plain convolutions do, and gradients are adjoint to those."""

from functools import cache

import numpy as np
import pytest
from foreign_programs import check, drawn, program, wide

import xlakit
from xlakit.errors import ShapeError, UnsupportedError

KINDS = pytest.mark.parametrize("kind", ["f16", "bf16", "f32", "f64"])
# Shapes of input, kernel and output, and the attributes.
CASES = {
    "plain": ("[2,3,6,7]", "[4,3,3,2]", "[2,4,4,6]", "window={size=3x2}, dim_labels=bf01_oi01->bf01"),
    "strides and padding": (
        "[2,7,6,3]",
        "[3,3,3,4]",
        "[2,4,3,4]",
        "window={size=3x3 stride=2x2 pad=1_1x0_1}, dim_labels=b01f_01io->b01f",
    ),
    "left over": ("[1,2,8]", "[3,2,3]", "[1,3,3]", "window={size=3 stride=2}, dim_labels=bf0_oi0->bf0"),
    "dilation": (
        "[2,2,7,7]",
        "[3,2,2,3]",
        "[2,3,7,5]",
        "window={size=2x3 pad=1_1x2_0 rhs_dilate=2x2}, dim_labels=bf01_oi01->bf01",
    ),
    "reversal": ("[2,2,6]", "[3,2,3]", "[2,3,4]", "window={size=3 rhs_reversal=1}, dim_labels=bf0_oi0->bf0"),
    "groups": (
        "[2,4,5,5]",
        "[6,2,3,3]",
        "[2,6,5,5]",
        "window={size=3x3 pad=1_1x1_1}, dim_labels=bf01_oi01->bf01, feature_group_count=2",
    ),
    "groups in the other order": (
        "[2,5,6]",
        "[3,3,4]",
        "[2,2,4]",
        "window={size=3 stride=2}, dim_labels=b0f_0io->b0f, feature_group_count=2",
    ),
}
CASE = pytest.mark.parametrize("case", list(CASES))


def config(**fields):
    found = {"activation_mode": "kNone", "conv_result_scale": 1, "side_input_scale": 0, "leakyrelu_alpha": 0}
    return {
        "operation_queue_id": "0",
        "cudnn_conv_backend_config": {**found, **fields},
        "force_earliest_schedule": False,
    }


def sizes(shape):
    return tuple(int(size) for size in shape.strip("[]").split(","))


def plain(case, x, w):
    """The convolution in double precision, by the interpreter's ``convolution``."""
    return np.asarray(_executable(case)(wide(x), wide(w)))


@cache
def _executable(case):
    inputs, kernel, output, attributes = CASES[case]
    text = f"""HloModule m
ENTRY e {{
  x = f64{inputs} parameter(0)
  w = f64{kernel} parameter(1)
  ROOT r = f64{output} convolution(x, w), {attributes}
}}
"""
    return xlakit.compile(xlakit.HloModule.from_text(text), backend="interpreter")


def call(target, kind, operands, result, case, fields=None):
    shapes = [f"{kind}{shape}" for shape in operands]
    attributes = f", {CASES[case][3]}"
    return program(shapes, f"({kind}{result}, u8[1024])", f"__cudnn${target}", fields or config(), attributes)


def arrays(case, kind):
    return [drawn(sizes(shape), kind, seed) for seed, shape in enumerate(CASES[case][:3])]


@KINDS
@CASE
def test_forward(case, kind):
    inputs, kernel, output, _ = CASES[case]
    x, w, _ = arrays(case, kind)
    text = call("convForward", kind, [inputs, kernel], output, case, config(conv_result_scale=0.5))
    check(text, [x, w], 0.5 * plain(case, x, w), kind)


def gradient(case, g, of, other):
    """The gradient of sum(g conv) for operand ``of``, from the convolutions of its unit vectors."""
    shape = sizes(CASES[case][of])
    found = np.zeros(shape)
    for index in np.ndindex(*shape):
        unit = np.zeros(shape)
        unit[index] = 1
        found[index] = (g * (plain(case, unit, other) if of == 0 else plain(case, other, unit))).sum()
    return found


@CASE
def test_gradient_of_the_input(case):
    inputs, kernel, output, _ = CASES[case]
    _, w, g = arrays(case, "f64")
    wanted = gradient(case, g, 0, w)
    for kind in ("f64", "f32"):
        text = call("convBackwardInput", kind, [output, kernel], inputs, case)
        check(text, [g.astype(kind.replace("f", "float")), w.astype(kind.replace("f", "float"))], wanted, "f32")


@CASE
def test_gradient_of_the_kernel(case):
    inputs, kernel, output, _ = CASES[case]
    x, _, g = arrays(case, "f64")
    wanted = gradient(case, g, 1, x)
    for kind in ("f64", "f32"):
        text = call("convBackwardFilter", kind, [inputs, output], kernel, case)
        check(text, [x.astype(kind.replace("f", "float")), g.astype(kind.replace("f", "float"))], wanted, "f32")


ACTIVATIONS = {
    "kNone": lambda x: x,
    "kRelu": lambda x: np.maximum(x, 0),
    "kRelu6": lambda x: np.clip(x, 0, 6),
    "kTanh": np.tanh,
    "kSigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "kElu": lambda x: np.where(x > 0, x, np.expm1(x)),
    "kLeakyRelu": lambda x: np.where(x > 0, x, 0.25 * x),
}


@KINDS
@pytest.mark.parametrize("name", list(ACTIVATIONS))
def test_bias_and_activation(kind, name):
    case = "plain"
    inputs, kernel, output, attributes = CASES[case]
    x, w, side = arrays(case, kind)
    bias = drawn((4,), "f32", 9)
    fields = config(activation_mode=name, conv_result_scale=0.5, side_input_scale=2, leakyrelu_alpha=0.25)
    shapes = [f"{kind}{inputs}", f"{kind}{kernel}", "f32[4]", f"{kind}{output}"]
    target = "__cudnn$convBiasActivationForward"
    text = program(shapes, f"({kind}{output}, u8[0])", target, fields, f", {attributes}")
    inner = 0.5 * plain(case, x, w) + 2 * wide(side) + wide(bias)[:, None, None]
    check(text, [x, w, bias, side], ACTIVATIONS[name](inner), kind)


@pytest.mark.parametrize(
    ("target", "old", "new", "error", "rule"),
    [
        ("convForward", ", dim_labels=bf01_oi01->bf01", "", ShapeError, "the call has no dim_labels"),
        ("convForward", "size=3x2", "size=3", ShapeError, "2 spatial dimensions, the window has 1"),
        ("convForward", "size=3x2", "size=2x2", ShapeError, "custom-call 'call'"),
        ("convForward", "size=3x2", "size=3x2 lhs_dilate=2x2", UnsupportedError, "base dilation"),
        ("convForward", "kNone", "kRelu", UnsupportedError, "activation_mode has no meaning"),
        ("convForward", '"side_input_scale": 0', '"side_input_scale": 1', UnsupportedError, "side_input_scale 1"),
        ("convBiasActivationForward", "kNone", "kRelu", ShapeError, r"3 operands \(input, kernel, bias\), got 2"),
        ("convForwardGraph", "kNone", "kNone", UnsupportedError, "graphs of cuDNN"),
    ],
)
def test_what_breaks_a_rule(target, old, new, error, rule):
    inputs, kernel, output, _ = CASES["plain"]
    text = call(target, "f32", [inputs, kernel], output, "plain")
    assert old in text
    with pytest.raises(error, match=rule):
        xlakit.compile(xlakit.HloModule.from_text(text.replace(old, new)))
