"""Formulas of special functions that are written anew: errors, and formulas that are other functions."""

import math
from pathlib import Path

import numpy as np
import pytest

import xlakit as xla
from xlakit.options import compiling
from xlakit.passes.pipeline import run_pipeline

ERFC = Path(__file__).parent / "golden/special-functions/erfc.hlo"
COUNT = 40_001


def text(count=COUNT):
    return ERFC.read_text(encoding="utf-8").partition("\n// after\n")[0].replace("[8]", f"[{count}]")


def erfc(x):
    return np.asarray(xla.compile(xla.HloModule.from_text(text(len(x))))(x)).astype(np.float64)


@pytest.mark.parametrize("vector_bytes", [16, 32, 64])
def test_erfc_is_as_near_as_rounding_the_square_lets_it(vector_bytes):
    x = np.linspace(1, 9.19, COUNT).astype(np.float32)
    exact = np.array([math.erfc(v) for v in x.tolist()])
    # What the rounded square says: exp(x^2 - rounded x^2) of it.
    error_of_square = x.astype(np.float64) ** 2 - (x * x).astype(np.float64)
    wanted = exact * np.exp(error_of_square)
    with compiling(vector_bytes=vector_bytes):
        above, below = erfc(x), erfc(-x)
    assert np.max(np.abs(above - wanted) / np.spacing(exact.astype(np.float32))) < 6.5
    assert np.max(np.abs(below - (2 - exact))) <= 2.0**-23


def test_special_values_of_erfc():
    x = np.array([0, -0.0, np.inf, -np.inf, np.nan, 12, -12, 1e30, 3e-39, 0.999999], np.float32)
    result = erfc(x)
    assert result[:4].tolist() == [1, 1, 0, 2] and math.isnan(result[4])
    assert result[5:9].tolist() == [0, 2, 0, 1] and abs(result[9] - math.erfc(0.999999)) < 2e-7


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("constant(0.0232682)", "constant(0.0232683)"),
        ("constant(0.564189494)", "constant(0.5641896)"),
        ("compare(abs.3, broadcast.57), direction=LT", "compare(abs.3, broadcast.57), direction=LE"),
        ("exponential(negate.3)", "exponential(multiply.49)"),
        ("select(compare.4, add.28, add.35)", "select(compare.4, add.35, add.28)"),
    ],
)
def test_other_formulas_stay(old, new):
    known, other = text(8), text(8).replace(old, new)
    assert other != known
    for program, changed in ((known, True), (other, False)):
        before = xla.HloModule.from_text(program)
        after = run_pipeline(before, ["special-functions"])
        assert (after.to_text() != before.to_text()) is changed
