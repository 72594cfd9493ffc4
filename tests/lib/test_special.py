"""Special functions against mpmath, SciPy, their own laws, and at the ends of their domains."""

import ml_dtypes
import numpy as np
import pytest
from scipy import special as scipy_special

import xlakit as xla
from fuzz import special_coefficients, special_functions

# Errors in F64, in units in the last place, that the points of these tests stay below. Results of small numbers of
# points; docs/lib.md has a table of more.
BOUNDS = {
    "lgamma": 8,
    "digamma": 8,
    "erfc": 8,
    "erf_inv": 8,
    "bessel_i0e": 6,
    "bessel_i1e": 10,
    "igamma": 60,
    "igammac": 60,
    "igamma_grad_a": 100,
    "random_gamma_grad": 60,
    "regularized_incomplete_beta": 40,
    "zeta": 12,
    "polygamma": 12,
}
INF, NAN = np.inf, np.nan
# Rows of fewer elements are repeated up to this number: most of these tests then run the same program of a function,
# which takes up to a second to compile.
LENGTH = special_functions.LENGTH


def compiled(name, *arrays, backend="cpu"):
    arrays = [np.asarray(a) for a in arrays]
    (count, *others), *_ = shapes = [a.shape or (0,) for a in arrays]
    is_repeated = 0 < count < LENGTH and not others and len({*shapes}) == 1
    given = [np.resize(a, LENGTH) for a in arrays] if is_repeated else arrays
    program = special_functions.program(name, tuple(xla.make_shape(a.dtype, a.shape) for a in given), backend)
    # No part of it runs in Python.
    assert backend == "interpreter" or not program.host_instructions
    found = program(*given)
    return found[:count] if is_repeated else found


# Machine code of these takes half a second and more.
LONG = {"igamma", "igammac", "igamma_grad_a", "random_gamma_grad", "regularized_incomplete_beta", "polygamma"}


@pytest.mark.parametrize("name", BOUNDS)
def test_results_are_those_of_mpmath(name):
    points = 60 if name not in special_functions.SLOW else 12
    assert special_functions.measure(name, "f64", points, seed=1).worst < BOUNDS[name]
    # F32 is what F64 gives, rounded: the other functions show that machine code does that.
    backend = "interpreter" if name in LONG else "cpu"
    assert special_functions.measure(name, "f32", points, seed=2, backend=backend).worst < 0.51


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_short_types_are_rounded_once(kind):
    assert special_functions.measure("lgamma", kind, 60).worst < 0.51


def test_coefficients_are_those_that_the_command_writes():
    assert special_coefficients.main(["--check"]) == 0


@pytest.mark.parametrize(("dtype", "backend"), [(np.float64, "cpu"), (ml_dtypes.bfloat16, "interpreter")])
@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("lgamma", [[0.0, -0.0, 1, 2, -1, -3, -1e308, INF, -INF, NAN]], [INF, INF, 0, 0, INF, INF, INF, INF, INF, NAN]),
        ("digamma", [[0.0, -0.0, -1, -7, INF, -INF, NAN]], [NAN, NAN, NAN, NAN, INF, NAN, NAN]),
        ("erfc", [[0.0, -0.0, INF, -INF, NAN, 30, -30]], [1, 1, 0, 2, NAN, 0, 2]),
        ("erf_inv", [[0.0, 1, -1, 2, -2, INF, NAN]], [0, INF, -INF, NAN, NAN, NAN, NAN]),
        ("bessel_i0e", [[0.0, INF, -INF, NAN]], [1, 0, 0, NAN]),
        ("bessel_i1e", [[0.0, INF, -INF, NAN]], [0, 0, 0, NAN]),
        ("igamma", [[1.0, 0, -1, 1, 1, INF, NAN, 1, INF], [0.0, 1, 1, -1, INF, 1, 1, NAN, INF]],
         [0, 1, NAN, NAN, 1, 0, NAN, NAN, NAN]),
        ("igamma", [[0.0, -0.0, 0, 0, INF], [0.0, 1, INF, -1, 0]], [NAN, 1, 1, NAN, 0]),
        ("igammac", [[0.0, -0.0, 0, 0, INF], [0.0, 1, INF, -1, 0]], [NAN, 0, 0, NAN, 1]),
        ("igammac", [[1.0, 0, -1, 1, 1, INF, NAN, 1, INF], [0.0, 1, 1, -1, INF, 1, 1, NAN, INF]],
         [1, 0, NAN, NAN, 0, 1, NAN, NAN, NAN]),
        ("igamma_grad_a", [[1.0, 0, 1, 1, NAN], [0.0, 1, -1, INF, 1]], [0, NAN, NAN, 0, NAN]),
        ("random_gamma_grad", [[1.0, 0, 1, NAN], [0.0, 1, -1, 1]], [0, NAN, NAN, NAN]),
        ("regularized_incomplete_beta",
         [[1.0, 1, 0, 1, INF, 1, NAN], [1.0, 1, 1, 1, 1, INF, 1], [0.0, 1, 0.5, 2, 0.5, 0.5, 0]],
         [0, 1, NAN, NAN, 0, 1, NAN]),
        ("zeta", [[1.0, 0.5, 2, 3, 2, 2.5, NAN, 2, INF], [1.0, 1, 0, 0, -1, -0.5, 1, NAN, 2]],
         [INF, NAN, INF, NAN, INF, NAN, NAN, NAN, 0]),
        ("zeta", [[2.0, INF, INF, INF], [INF, INF, 1, 0.5]], [0, 0, 1, INF]),
        ("polygamma", [[0.5, -1, NAN, 1, 0], [1.0, 1, 1, NAN, 0]], [NAN, NAN, NAN, NAN, NAN]),
        ("polygamma", [[INF, INF, 0, 1, 1, 2], [1.0, INF, INF, INF, 0, 0]], [NAN, NAN, INF, 0, INF, NAN]),
    ],
)  # fmt: skip
def test_ends_of_domains(name, arguments, expected, dtype, backend):
    found = compiled(name, *(np.asarray(a, dtype) for a in arguments), backend=backend)
    assert found.dtype == dtype
    np.testing.assert_array_equal(found.astype(np.float64), expected)


def test_signs_of_zeros_stay():
    zeros = np.array([0.0, -0.0])
    for name in ("erf_inv", "bessel_i1e"):
        assert np.signbit(compiled(name, zeros)).tolist() == [False, True]


@pytest.mark.parametrize(
    ("name", "reference"), [("lgamma", "gammaln"), ("digamma", "psi"), ("erfc", "erfc"), ("bessel_i1e", "i1e")]
)
def test_negative_numbers(name, reference):
    x = np.linspace(-20.3, -0.01, 501)
    np.testing.assert_allclose(compiled(name, x), getattr(scipy_special, reference)(x), rtol=1e-12, atol=1e-13)


def test_zeta_of_negative_numbers_is_the_sum():
    x, q = (a.ravel() for a in np.meshgrid([2.0, 3.0, 8.0], [-0.25, -3.5, -1000.75]))
    expected = [
        sum((b + k) ** -a for k in range(1100)) + scipy_special.zeta(a, b + 1100) for a, b in zip(x, q, strict=True)
    ]
    np.testing.assert_allclose(compiled("zeta", x, q), expected, rtol=1e-11)


@pytest.mark.parametrize("a", [1e-3, 0.5, 7.9, 8.1, 300.0, 1e5, 2e7, 1e12])
def test_the_incomplete_gamma_functions_are_a_whole(a):
    x = np.maximum(a + np.sqrt(a) * np.linspace(-0.9, 6, 40), a / 10)
    first = np.full_like(x, a)
    lower, upper = compiled("igamma", first, x), compiled("igammac", first, x)
    np.testing.assert_allclose(lower + upper, 1, rtol=1e-13)
    assert (np.diff(lower) >= -1e-12).all()
    np.testing.assert_allclose(lower, scipy_special.gammainc(first, x), atol=1e-5 if a > 1e7 else 1e-11)


def test_the_derivative_is_the_limit_of_differences():
    a, x = (v.ravel() for v in np.meshgrid([0.3, 2.0, 40.0, 900.0], [0.05, 1.5, 38.0, 45.0, 950.0]))
    step = a * 1e-5
    difference = (scipy_special.gammainc(a + step, x) - scipy_special.gammainc(a - step, x)) / (2 * step)
    np.testing.assert_allclose(compiled("igamma_grad_a", a, x), difference, atol=1e-8)


@pytest.mark.parametrize("shape", [(), (0,), (1, 3), (3, 35, 20)])
def test_arrays_of_any_shape(shape):
    x = np.random.default_rng(3).uniform(0.1, 9, shape)
    np.testing.assert_allclose(compiled("zeta", x + 1, x), scipy_special.zeta(x + 1, x), rtol=1e-12)


def test_several_loops_over_an_array_of_three_dimensions():
    x = np.random.default_rng(3).uniform(0.1, 9, (3, 35, 20))
    np.testing.assert_allclose(compiled("igamma", x, x), scipy_special.gammainc(x, x), rtol=1e-12)


def test_arrays_must_agree():
    with pytest.raises(xla.ShapeError, match="one shape"):
        compiled("igamma", np.zeros(3), np.zeros(4))
    with pytest.raises(xla.ShapeError, match="floating point"):
        compiled("zeta", np.zeros(3, np.int32), np.zeros(3, np.int32))


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        # Of mpmath, with 50 digits.
        ("igammac", (1e-300, 0.5), 5.597735947761608e-301),
        ("igammac", (1e-8, 1.0), 2.1938393664027067e-09),
        ("igammac", (0.01, 1e-8), 0.16348974531476665),
        ("igamma", (10.0, 1e-8), 2.7557318973464813e-87),
        ("zeta", (1.5, 1e300), 2e-150),
        ("zeta", (2.0, 1e300), 1e-300),
    ],
)
def test_small_results_keep_their_digits(name, arguments, expected):
    (found,) = compiled(name, *(np.array([argument]) for argument in arguments))
    assert abs(found - expected) <= 2e-14 * expected


@pytest.mark.parametrize(
    ("name", "cases"),
    [
        # Arguments and results of mpmath, with 40 digits. 1 - P has few digits for small a, and so has a fraction of
        # many factors.
        (
            "igammac",
            [
                (0.10269, 0.953941, 0.02674921660703566),
                (0.5, 0.75, 0.2206713619198468),
                (0.9, 0.96, 0.33868553156391623),
                (0.006938, 1.1126, 0.0012739356611582927),
                (0.3823, 1.0113, 0.11126965413774564),
                (1.7e308, 1.7e308, 0.5),
                (1.7e308, 1e300, 1.0),
            ],
        ),
        # log(x) - digamma(a) is a small difference.
        ("igamma_grad_a", [(624.848, 623.765, -0.015960605348584934)]),
        ("random_gamma_grad", [(624.848, 623.765, 0.9993994309270949)]),
        # Below the mean, and where logarithms of numbers near 1, or products of large numbers, have few digits.
        (
            "regularized_incomplete_beta",
            [
                (87.8183, 1.86729, 0.968488, 0.19885237270305106),
                (73.5271615, 1.06923351, 0.97251517, 0.14376851486131295),
                (1.0, 1e300, 1e-300, 0.6321205588285577),
                (1.0, 1e300, 1e-30, 1.0),
                (1e300, 1e-30, 0.5, 0.0),
                (1e300, 1e300, 0.5, 0.5),
                (1.7e308, 1.7e308, 0.5, 0.5),
                (1e300, 1e300, 0.4, 0.0),
                (1e300, 3e300, 0.6, 1.0),
            ],
        ),
    ],
)
def test_results_that_small_differences_would_spoil(name, cases):
    *arguments, expected = map(np.array, zip(*cases, strict=True))
    assert (abs(compiled(name, *arguments) - expected) <= 4e-15 * abs(expected)).all()


def test_the_nearly_normal_probabilities():
    """Both arguments from 1e12 on; x is within a few deviations of the mean, where its own rounding counts."""
    mpmath = pytest.importorskip("mpmath")
    cases = [
        (a, b, a / (a + b) + at * np.sqrt(a * b / (a + b) ** 3))
        for a, b in [(1e12, 1e12), (3e13, 1.1e12), (2e12, 7e15)]
        for at in (-5.0, -1.0, -1e-4, 1e-3, 2.0)
    ]
    expected: list[float] = []
    with mpmath.workdps(60):
        for a, b, x in [tuple(map(mpmath.mpf, case)) for case in cases]:
            total = a + b
            exponent = a * mpmath.log(x * total / a) + b * mpmath.log((1 - x) * total / b)
            w = mpmath.sqrt(-2 * exponent) * mpmath.sign(x - a / total)
            u = (x * total - a) / mpmath.sqrt(a * b / total)
            expected.append(float(mpmath.ncdf(w) + mpmath.npdf(w) * (1 / w - 1 / u)))
    arguments = [np.array(values) for values in zip(*cases, strict=True)]
    conditions = np.sqrt(np.maximum(arguments[0], arguments[1])) * 2.0**-53
    error = abs(compiled("regularized_incomplete_beta", *arguments) - expected)
    assert (error <= 20 * conditions * np.array(expected)).all()


def test_probabilities_are_not_negative():
    a, b, x = np.meshgrid([1e-8, 0.01, 0.5, 2.5], [1e-300, 1e-20, 0.1], [0.3, 0.9999, 1 - 1e-12])
    found = compiled("regularized_incomplete_beta", a.ravel(), b.ravel(), x.ravel())
    assert ((found >= 0) & (found <= 1)).all()
