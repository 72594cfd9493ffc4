"""Texts of Literal. What is expected is what jaxlib 0.6.0 prints."""

import numpy as np
import pytest

from xlakit.compat import xla_client as xc


@pytest.mark.parametrize(
    ("shape", "values", "text"),
    [
        ("f32[]", 1.5, "f32[] 1.5"),
        ("pred[]", True, "pred[] true"),
        ("pred[3]", [1, 0, 1], "pred[3] {1, 0, 1}"),
        ("c64[2]", [1 + 2j, 3], "c64[2] {(1, 2), (3, 0)}"),
        ("f64[2]", [1e-300, np.nan], "f64[2] {1e-300, nan}"),
        ("f32[4]", [1e10, -0.0, -np.inf, 123456789], "f32[4] {1e+10, -0, -inf, 123456792}"),
        ("f32[2,2]{0,1}", [[0, 1 / 3], [2, 3]], "f32[2,2] {\n  { 0, 0.333333343 },\n  { 2, 3 }\n}"),
        ("s8[0]", [], "s8[0] {}"),
        ("s8[2,0]", np.zeros((2, 0)), "s8[2,0] {\n  {},\n  {}\n}"),
        ("s8[0,2]", np.zeros((0, 2)), "s8[0,2] {\n\n}"),
        ("s8[1,1]", 3, "s8[1,1] {\n  {3}\n}"),
        ("s32[2,1,2]", [[[0, 1]], [[2, 3]]], "s32[2,1,2] {\n{\n  { 0, 1 }\n},\n{\n  { 2, 3 }\n}\n}"),
        ("s32[1,2,1,2]", [[[[0, 1]], [[2, 3]]]],
         "s32[1,2,1,2] {\n{ /*i0=0*/\n{ /*i1=0*/\n  { 0, 1 }\n},\n{ /*i1=1*/\n  { 2, 3 }\n}\n}\n}"),
    ],
)  # fmt: skip
def test_arrays(shape, values, text):
    literal = xc._xla.Literal(xc.Shape(shape))
    np.asarray(literal)[...] = values
    assert str(literal) == repr(literal) == text


def test_tuples_and_tokens():
    literal = xc._xla.Literal(xc.Shape("((s32[2], f32[]), s8[1,1])"))
    assert str(literal) == "(\n(\ns32[2] {0, 0},\nf32[] 0\n),\ns8[1,1] {\n  {0}\n}\n)"
    assert str(xc._xla.Literal(xc.Shape("token[]"))) == "token"
