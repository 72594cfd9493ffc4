"""Formulas that are computed otherwise: errors of special functions, other formulas, and compared magnitudes."""

import math
from pathlib import Path

import numpy as np
import pytest

import xlakit as xla
from xlakit.options import compiling
from xlakit.passes.pipeline import run_pipeline

ERFC = Path(__file__).parents[1] / "golden/special-functions/erfc.hlo"
COUNT = 40_001


def text(count=COUNT):
    return ERFC.read_text(encoding="utf-8").partition("\n// after\n")[0].replace("[8]", f"[{count}]")


def erfc(x):
    return np.asarray(xla.compile(xla.HloModule.from_text(text(len(x))))(x)).astype(np.float64)


@pytest.mark.parametrize("vector_bytes", [16, 32, 64])
def test_erfc_is_as_near_as_rounding_the_square_lets_it(vector_bytes):
    x = np.linspace(0, 9.19, COUNT).astype(np.float32)
    exact = np.array([math.erfc(v) for v in x.tolist()])
    # What the rounded square says: exp(x^2 - rounded x^2) of it.
    error_of_square = x.astype(np.float64) ** 2 - (x * x).astype(np.float64)
    wanted = exact * np.exp(error_of_square)
    with compiling(vector_bytes=vector_bytes):
        above, below = erfc(x), erfc(-x)
    # Cephes' formula has 7.6 just below 1.
    assert np.max(np.abs(above - wanted) / np.spacing(exact.astype(np.float32))) < 5.5
    assert np.max(np.abs(below - (2 - exact))) <= 3 * 2.0**-23


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
        ("constant(7.85386146e-05)", "constant(7.85386e-05)"),
        ("subtract(broadcast.58, multiply.56)", "subtract(broadcast.37, multiply.56)"),
        ("multiply(x, add.41)", "multiply(abs.3, add.41)"),
        ("constant(-88.7228394)", "constant(-4)"),
        ("compare(negate.3, broadcast.39), direction=LT", "compare(negate.3, broadcast.39), direction=GT"),
        ("compare(negate.3, broadcast.39)", "compare(x, broadcast.39)"),
    ],
)
def test_other_formulas_stay(old, new):
    known, other = text(8), text(8).replace(old, new)
    assert other != known
    for program, changed in ((known, True), (other, False)):
        before = xla.HloModule.from_text(program)
        after = run_pipeline(before, ["special-functions"])
        assert (after.to_text() != before.to_text()) is changed


# -- magnitudes that are only compared ---------------------------------------------------------------

NUMBERS = 30_001
COMPARE = {"LT": np.less, "LE": np.less_equal, "GT": np.greater, "GE": np.greater_equal}
BOUNDS = [2.0, 1.0, 0.1, 3e38, 1.1754944e-38, 0.0, -0.0, -3.0]


def around(bound):
    """Numbers whose magnitudes are the bound or next to it, and special ones."""
    rng = np.random.default_rng(4)
    angle = rng.uniform(0, 2 * np.pi, NUMBERS)
    steps = rng.integers(-2, 3, NUMBERS) * 2.0**-24
    with np.errstate(all="ignore"):
        z = ((abs(bound) * (1 + steps)) * np.exp(1j * angle)).astype(np.complex64)
    special = np.array([0, -0.0, 1, bound, np.inf, -np.inf, np.nan, 3e38, 1e-38], np.float32)
    pairs = np.array([complex(a, b) for a in special for b in special], np.complex64)
    z[: len(pairs)] = pairs
    return z


def magnitudes(bound, direction, root):
    return xla.HloModule.from_text(f"""HloModule magnitudes
ENTRY e {{
  z = c64[{NUMBERS}] parameter(0)
  a = f32[{NUMBERS}] abs(z)
  c = f32[] constant({bound!r})
  cs = f32[{NUMBERS}] broadcast(c), dimensions={{}}
  less = pred[{NUMBERS}] compare(a, cs), direction={direction}
  ROOT r = {root}
}}""")


@pytest.mark.parametrize("direction", COMPARE)
@pytest.mark.parametrize("bound", BOUNDS)
def test_comparisons_are_those_of_the_magnitudes(bound, direction):
    z = around(bound)
    for vector_bytes in (16, 64):
        with compiling(vector_bytes=vector_bytes):
            executable = xla.compile(magnitudes(bound, direction, f"pred[{NUMBERS}] copy(less)"))
            sizes = np.asarray(xla.compile(magnitudes(bound, direction, f"f32[{NUMBERS}] copy(a)"))(z))
        found = np.asarray(executable(z))
        np.testing.assert_array_equal(found, COMPARE[direction](sizes, np.float32(bound)))
        # Of numbers on both sides, where there are any.
        assert bound <= 0 or (found.any() and not found.all())


# -- gates -------------------------------------------------------------------------------------------

HALF_OF_TANH = """
  t = TYPE tanh(x)
  sum = TYPE add(t, ones)
  ROOT r = TYPE multiply(sum, halves)"""
SIGMOID = """
  n = TYPE negate(x)
  e = TYPE exponential(n)
  sum = TYPE add(e, ones)
  ROOT r = TYPE divide(ones, sum)"""


def gate(formula, count, kind):
    text = f"""HloModule gate
ENTRY e {{
  x = TYPE parameter(0)
  one = {kind}[] constant(1)
  ones = TYPE broadcast(one), dimensions={{}}
  half = {kind}[] constant(0.5)
  halves = TYPE broadcast(half), dimensions={{}}{formula}
}}"""
    return xla.HloModule.from_text(text.replace("TYPE", f"{kind}[{count}]"))


@pytest.mark.parametrize("vector_bytes", [16, 32, 64])
@pytest.mark.parametrize(("kind", "dtype"), [("f32", np.float32), ("f64", np.float64)])
@pytest.mark.parametrize(("formula", "factor"), [(HALF_OF_TANH, 2), (SIGMOID, 1)])
def test_gates_keep_their_bits_where_they_are_small(formula, factor, kind, dtype, vector_bytes):
    x = np.linspace(-80, 40, NUMBERS).astype(dtype) / dtype(factor)
    exact = 1 / (1 + np.exp(-factor * x.astype(np.longdouble)))
    with compiling(vector_bytes=vector_bytes):
        executable = xla.compile(gate(formula, NUMBERS, kind))
    error = np.abs(np.asarray(executable(x)).astype(np.longdouble) - exact)
    # tanh(x) + 1 would be 0 below -9 and -19.
    assert np.max(error / np.spacing(exact.astype(dtype))) < 3
    special = np.zeros(NUMBERS, dtype)
    special[:5] = [np.inf, -np.inf, np.nan, np.finfo(dtype).max, np.finfo(dtype).min]
    found = np.asarray(executable(special))
    assert found[[0, 1, 3, 4, 5]].tolist() == [1, 0, 1, 0, 0.5] and math.isnan(found[2])
