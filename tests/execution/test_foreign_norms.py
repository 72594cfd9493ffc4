"""Layer normalization of cuDNN computes what its operands and backend_config say, on both backends."""

import numpy as np
import pytest
from foreign_programs import check, drawn, program, wide

import xlakit
from xlakit.errors import ShapeError

ALONG = (1, 2)


def normalized(x, scale, bias):
    centered = x - x.mean(ALONG, keepdims=True)
    factor = 1 / np.sqrt((centered**2).mean(ALONG, keepdims=True) + 1e-3)
    return centered * factor * scale + bias, factor


def config(kind):
    return {"cudnn_norm_backend_config": {"epsilon": 1e-3, "kind": kind}}


def shape(kind, array):
    return f"{kind}[{','.join(map(str, array.shape))}]"


def operands(kind):
    return [drawn(sizes, kind, seed) for seed, sizes in enumerate([(2, 3, 4, 1), (1, 3, 4, 1), (1, 3, 4, 1)])]


@pytest.mark.parametrize("kind", ["f32", "bf16"])
def test_inference(kind):
    given = operands(kind)
    text = program(
        [shape(kind, x) for x in given], f"({kind}[2,3,4,1], u8[0])", "__cudnn$norm", config("LAYER_FWD_INFER")
    )
    check(text, given, normalized(*map(wide, given))[0], kind)


@pytest.mark.parametrize("element", [1, 2])
def test_training_gives_mean_and_factor(element):
    given = operands("f32")
    results = "(f32[2,3,4,1], f32[2,1,1,1], f32[2,1,1,1], u8[0])"
    text = program(
        [shape("f32", x) for x in given], results, "__cudnn$norm", config("LAYER_FWD_TRAIN"), element=element
    )
    wanted = given[0].mean(ALONG, keepdims=True) if element == 1 else normalized(*map(wide, given))[1]
    check(text, given, wide(wanted), "f32")


def test_gradients_are_those_of_the_normalization():
    x, scale, bias = operands("f64")
    gradient = drawn(x.shape, "f64", 4)
    given = [x, scale, gradient, x.mean(ALONG, keepdims=True), normalized(x, scale, bias)[1]]
    results = "(f64[2,3,4,1], f64[1,3,4,1], f64[1,3,4,1], u8[0])"
    for element, base in enumerate((x, scale, bias)):
        text = program([shape("f64", v) for v in given], results, "__cudnn$norm", config("LAYER_BWD"), element=element)
        found = np.asarray(xlakit.compile(xlakit.HloModule.from_text(text))(*given))
        step = drawn(base.shape, "f64", 9)
        up, down = (
            [v + h * step if i == element else v for i, v in enumerate((x, scale, bias))] for h in (1e-5, -1e-5)
        )
        change = (normalized(*up)[0] - normalized(*down)[0]) / 2e-5
        assert np.isclose((gradient * change).sum(), (found * step).sum(), rtol=1e-6)


def test_the_scale_must_fit():
    text = program(["f32[2,3]", "f32[3]", "f32[3]"], "(f32[2,3], u8[0])", "__cudnn$norm", config("LAYER_FWD_INFER"))
    with pytest.raises(ShapeError, match=r"the scale has shape f32\[3\]"):
        xlakit.compile(xlakit.HloModule.from_text(text))
