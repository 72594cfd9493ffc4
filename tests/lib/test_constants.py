"""Constants against NumPy's and ml_dtypes' limits."""

import ml_dtypes
import numpy as np
import pytest
from both_backends import run

import xlakit as xla
from xlakit.lib import constants

FLOATS = [xla.F64, xla.F32, xla.F16, xla.BF16, xla.F8E5M2, xla.F8E4M3FN, xla.F4E2M1FN]
INTEGERS = [xla.S64, xla.S32, xla.S8, xla.S4, xla.U64, xla.U16, xla.U8, xla.U4]


def test_limits_of_types():
    floats = ("epsilon", "min_positive_normal_value", "min_value", "max_value", "min_finite_value", "max_finite_value")
    cases = [(kind, name) for kind in FLOATS for name in floats]
    cases += [(kind, name) for kind in [*INTEGERS, xla.PRED] for name in floats[2:]]
    found = run(lambda builder: [getattr(constants, name)(builder, kind) for kind, name in cases])
    for (kind, name), value in zip(cases, found, strict=True):
        assert value.dtype == kind.dtype
        info = ml_dtypes.finfo(kind.dtype) if kind.is_floating else None
        if info is None:
            number = int(kind is not xla.PRED) and ml_dtypes.iinfo(kind.dtype)
            least, greatest = (number.min, number.max) if number else (0, 1)
            expected = least if "min" in name else greatest
        else:
            has_infinity = np.isinf(np.asarray(np.inf).astype(kind.dtype).astype(float))
            expected = {
                "epsilon": info.eps,
                "min_positive_normal_value": info.smallest_normal,
                "min_value": -np.inf if has_infinity else info.min,
                "max_value": np.inf if has_infinity else info.max,
                "min_finite_value": info.min,
                "max_finite_value": info.max,
            }[name]
        assert float(value) == float(expected), (kind, name)


def test_arrays_of_one_value():
    x = np.ones((2, 0, 3), np.complex64)
    y = np.ones((3, 2), ml_dtypes.bfloat16)

    def program(x, y):
        pred = xla.make_shape(xla.PRED, (4,))
        return [
            constants.full_like(x, 2j),
            constants.full_like(y, 2.5),
            constants.zeros_like(y),
            constants.zeros(x.builder, pred),
            constants.one(x.builder, xla.S4),
            constants.nan_value(x.builder, xla.BF16),
            constants.scalar_like(y, np.float64(-0.0)),
        ]

    full, half, zero, false, one, nan, negative = run(program, x, y)
    assert (full.shape, full.dtype) == (x.shape, x.dtype)
    assert (half == 2.5).all() and half.shape == (3, 2)
    assert not zero.any() and not false.any() and zero.dtype == ml_dtypes.bfloat16
    assert one == 1 and np.isnan(nan) and np.signbit(negative)


def test_numbers_that_a_type_does_not_hold_are_errors():
    builder = xla.XlaBuilder("none")
    for kind, value in ((xla.S32, 1.5), (xla.PRED, 1.0), (xla.F32, 1j), (xla.TOKEN, 1)):
        with pytest.raises(xla.ShapeError, match="does not hold"):
            constants.constant_r0_with_type(builder, kind, value)
    with pytest.raises(xla.XlakitError):
        constants.constant_r0_with_type(builder, xla.S8, 200)
    with pytest.raises(xla.ShapeError, match="no NaN"):
        constants.nan_value(builder, xla.F4E2M1FN)
    with pytest.raises(xla.ShapeError, match="no order"):
        constants.max_value(builder, xla.C64)
    with pytest.raises(xla.ShapeError, match="no floating point type"):
        constants.epsilon(builder, xla.S32)
