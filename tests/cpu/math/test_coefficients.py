import mpmath
import pytest

from fuzz.minimax import bits, computed, fits
from xlakit.cpu.math import coefficients

NAMES = [name for name in dir(coefficients) if name.isupper()]


def test_each_polynomial_has_its_function():
    assert sorted(fits()) == sorted(NAMES)


@pytest.mark.parametrize(
    "name", ["EXP_SINGLE", "EXP_WIDE", "SIN_SINGLE", "COS_WIDE", "LOG_WIDE", "EXP2_SINGLE", "TANH_BF16"]
)
def test_coefficients_are_those_that_are_computed(name):
    with mpmath.workdps(50):
        fit, present = fits()[name], getattr(coefficients, name)
        assert tuple(computed(name, fit, len(present) - 1)) == present


@pytest.mark.parametrize("name", NAMES)
def test_polynomials_are_good_enough_for_their_types(name):
    # Singles and wide ones have 24 bits to serve, doubles 53, the others 11 and 8, to which they are rounded again;
    # what pow's logarithm keeps is far more.
    least = {"DOUBLE": 54, "F16": 18, "BF16": 15}.get(name.rpartition("_")[2], 27)
    least = {"POW_LOG": 65, "ERFC_ROOT_SINGLE": 26}.get(name, least)
    with mpmath.workdps(50):
        assert bits(fits()[name], getattr(coefficients, name), steps=60) > least
