"""The verifier: each rule is broken once, and the error names the instruction."""

import pytest

import xlakit as xla
from xlakit.errors import XlakitError


def module(body: str, header: str = "HloModule m") -> xla.HloModule:
    return xla.HloModule.from_text(f"{header}\n\nENTRY main {{\n{body}\n}}\n")


def test_a_well_formed_module_passes():
    module("x = f32[2] parameter(0)\nROOT y = f32[2] add(x, x)").verify()


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("x = f32[2] parameter(0)\nROOT y = f32[3] add(x, x)", "'y'"),
        ("x = f32[2] parameter(0)\nROOT y = s32[2] add(x, x)", "'y'"),
        ("x = f32[2] parameter(0)\nz = f32[3] parameter(1)\nROOT y = f32[2] add(x, z)", "'y'"),
        ("x = f32[2] parameter(1)\nROOT y = f32[2] add(x, x)", "parameters numbered"),
        ("x = f32[2] parameter(0)\nz = f32[2] parameter(0)\nROOT y = f32[2] add(x, z)", "parameters numbered"),
        ("x = f32[2] parameter(0)\nROOT y = (f32[2], f32[3]) tuple(x, x)", "'y'"),
        ("x = f32[2] parameter(0)\nROOT y = f32[] get-tuple-element(x), index=0", "tuple"),
        ("x = f32[2,3] parameter(0)\nROOT y = f32[2,3] transpose(x), dimensions={1,0}", "'y'"),
        ("x = f32[2,3] parameter(0)\nROOT y = f32[7] reshape(x)", "reshape"),
    ],
)
def test_broken_rules_are_named(body, message):
    with pytest.raises(XlakitError) as error:
        module(body).verify()
    assert message in str(error.value)


@pytest.mark.parametrize(
    "header",
    [
        "HloModule m, entry_computation_layout={(f32[3]{0})->f32[2]{0}}",
        "HloModule m, entry_computation_layout={(f32[2]{0})->f32[3]{0}}",
        "HloModule m, entry_computation_layout={()->f32[2]{0}}",
        "HloModule m, input_output_alias={ {}: (1, {}, may-alias) }",
        "HloModule m, input_output_alias={ {0}: (0, {}, may-alias) }",
        "HloModule m, buffer_donor={ (2, {}) }",
    ],
)
def test_headers_must_fit_the_entry(header):
    with pytest.raises(XlakitError):
        module("x = f32[2] parameter(0)\nROOT y = f32[2] add(x, x)", header).verify()


def test_float_types_may_differ_in_precision_and_layouts_may_differ():
    module("x = bf16[2] parameter(0)\nROOT y = f32[2] add(x, x)").verify()
    module("x = f32[2,3]{1,0} parameter(0)\nROOT y = f32[2,3]{0,1} add(x, x)").verify()


def test_an_error_of_a_dump_points_into_the_source():
    text = 'ROOT y = f32[3] add(x, x), metadata={op_name="f" source_file="model.py" source_line=7}'
    with pytest.raises(xla.ShapeError, match=r"model\.py:7"):
        module(f"x = f32[2] parameter(0)\n{text}").verify()
