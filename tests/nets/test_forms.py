"""Modules of forms of loops: all forms in all types are drawn, and agree with the interpreter to the bit."""

import re
from collections import Counter

import numpy as np

from fuzz.forms import drawn, judge, program_of
from fuzz.modules import difference_in_bits
from fuzz.programs.forms.expressions import expressions
from fuzz.programs.forms.modules import forms_module
from fuzz.programs.values import ALL_TYPES
from xlakit.options import DEFAULT

_FORMS = (
    "reduce", "reduce-window", "transpose", "reverse", "slice", "pad", "concatenate", "reshape", "dynamic-slice",
    "dynamic-update-slice", "gather", "scatter", "sort", "dot", "map", "select", "convert", "bitcast-convert",
    "while",
)  # fmt: skip


def test_every_form_meets_every_kind_of_type():
    forms, types, folded = Counter(), Counter(), set()
    for number in range(300):
        text = forms_module(7, number).text
        forms.update(re.findall(r" ([a-z-]+)\(", text))
        types.update(re.findall(r" ([a-z0-9]+)\[[0-9,]*\] ", text))
        folded.update(re.findall(r" (\w+)\[[0-9,]*\] reduce\(", text))
    assert min(forms[form] for form in _FORMS) > 5
    assert all(types[kind] for kind in ALL_TYPES if kind != "f8e8m0fnu")
    assert {"pred", "s8", "u4", "s64", "bf16", "f16", "f64", "c64"} <= folded


def test_forms_agree():
    assert not [fault for number in range(8) if (fault := judge(forms_module(5, number)))]


def test_expressions_of_every_type_agree():
    assert {expressions(5, number).case for number in range(200)} >= {"s4", "u64", "f8e8m0fnu", "bf16", "pred", "s16"}
    assert not [fault for number in range(6) if (fault := judge(expressions(5, number)))]


def test_arrays_are_compared_to_the_bit_but_for_nans():
    x = np.array([0.0, np.nan, 1.0], np.float32)
    assert not difference_in_bits(x, x.copy())
    assert not difference_in_bits(x, np.array([0.0, -np.nan, 1.0], np.float32))
    assert "-0.0 instead of 0.0" in difference_in_bits(np.array([-0.0], np.float32), np.array([0.0], np.float32))
    assert "1 of 3 elements differ" in difference_in_bits(x, np.array([0.0, 2.0, 1.0], np.float32))
    assert "instead of" in difference_in_bits(x, x.astype(np.float64))


def test_modules_are_compiled_as_usual_for_other_vectors_and_with_knobs():
    assert drawn(3, 0) == DEFAULT
    ways = [drawn(3, number) for number in range(60)]
    assert {way.vector_bytes for way in ways} >= {16, 32, 64}
    assert not any(way.knobs for way in ways[1::3])
    assert any(way.knobs for way in ways[2::3])


def test_a_program_is_that_of_its_seed_and_number():
    assert forms_module(3, 4).text == program_of(3, 4).text != program_of(4, 4).text
    assert expressions(3, 7).text == program_of(3, 7).text != program_of(4, 7).text
