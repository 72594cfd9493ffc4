"""Programs that declare results in another floating point precision than the rule gives, or let precisions meet."""

import numpy as np
import pytest

import xlakit
from xlakit.ir.instruction import HloModule

SINGLE = np.float32([0.1, 1.5, -2.25, 1e-3, 7.1])
DOUBLE = np.float64([1 / 3, 1 + 2.0**-40, -9.0, 1e30, -1e-300])

PROGRAMS = {
    "f32[5] add(y, y)": lambda x, y: (y + y).astype(np.float32),
    "f64[5] add(x, y)": lambda x, y: x.astype(np.float64) + y,
    "f64[5] multiply(x, x)": lambda x, y: (x * x).astype(np.float64),
    "f32[5] maximum(x, y)": lambda x, y: np.maximum(x, y).astype(np.float32),
    "pred[5] compare(x, y), direction=LT": lambda x, y: x < y,
    "f64[5] copy(x)": lambda x, y: x.astype(np.float64),
    "f32[3] slice(y), slice={[1:4]}": lambda x, y: y[1:4].astype(np.float32),
    "f64[5] reverse(x), dimensions={0}": lambda x, y: x[::-1].astype(np.float64),
    "f32[10] concatenate(x, y), dimensions={0}": lambda x, y: np.concatenate([x, y.astype(np.float32)]),
    "f32[] reduce(y, x0), dimensions={0}, to_apply=largest": lambda x, y: y.max().astype(np.float32),
    "f64[5] dynamic-update-slice(y, x2, one)": lambda x, y: np.concatenate([y[:1], x[:2], y[3:]]),
}


@pytest.mark.parametrize("backend", ["cpu", "interpreter"])
@pytest.mark.parametrize("operation", PROGRAMS)
def test_results_have_the_declared_type(operation: str, backend: str) -> None:
    module = HloModule.from_text(
        f"""HloModule mixed
        largest {{
          a = f64[] parameter(0)
          b = f64[] parameter(1)
          ROOT m = f64[] maximum(a, b)
        }}
        ENTRY main {{
          x = f32[5] parameter(0)
          y = f64[5] parameter(1)
          x0 = f32[] constant(-inf)
          x2 = f32[2] slice(x), slice={{[0:2]}}
          one = s32[] constant(1)
          ROOT result = {operation}
        }}"""
    )
    result = xlakit.compile(module, backend=backend)(SINGLE, DOUBLE)
    with np.errstate(over="ignore", under="ignore"):
        expected = PROGRAMS[operation](SINGLE, DOUBLE)
    assert result.dtype == expected.dtype
    np.testing.assert_array_equal(result, expected)
