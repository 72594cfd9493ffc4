"""Results of narrow types are rounded after every operation, and NaNs are stored as one NaN."""

import ml_dtypes
import numpy as np
import pytest
from evaluating import build, shape_of

import xlakit as xla


@pytest.mark.parametrize(("kind", "bits", "nan"), [(ml_dtypes.bfloat16, 0x7FFF, 0x7FC0), (np.float16, 0x7FFF, None)])
def test_every_number_through_a_chain(kind, bits, nan):
    x = np.arange(1 << 16, dtype=np.uint16).view(kind)
    y = np.roll(x[::-1], 77)

    def chain(x, y):
        return ((x * y + x) / xla.max(y, x) - y) * x

    computation = build(chain, shape_of(x), shape_of(y))
    actual, expected = (xla.compile(computation, backend=name)(x, y) for name in ("cpu", "interpreter"))
    same = np.isnan(expected)
    np.testing.assert_array_equal(np.isnan(actual), same)
    np.testing.assert_array_equal(actual[~same].view(np.uint16), expected[~same].view(np.uint16))
    if nan is not None:
        assert set((actual[same].view(np.uint16) & bits).tolist()) == {nan}


def test_computed_nans_are_ordered_as_they_are_stored():
    x = np.array([0x7FC1, 0x7FFF, 0x7FC0, 0x3F80], np.uint16).view(ml_dtypes.bfloat16)
    one = np.ones(4, ml_dtypes.bfloat16)
    text = """
    HloModule order
    ENTRY main {
      x = bf16[4] parameter(0)
      y = bf16[4] parameter(1)
      p = bf16[4] multiply(x, y)
      q = bf16[4] reverse(p), dimensions={0}
      ROOT c = pred[4] compare(p, q), direction=LT, type=TOTALORDER
    }
    """
    module = xla.HloModule.from_text(text)
    actual, expected = (xla.compile(module, backend=name)(x, one) for name in ("cpu", "interpreter"))
    np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("kind", ["s2", "s4"])
@pytest.mark.parametrize("opcode", ["abs", "negate", "popcnt", "count-leading-zeros"])
def test_integers_of_a_few_bits_wrap_before_the_next_operation(opcode, kind):
    text = f"""
    HloModule wrap
    ENTRY main {{
      x = {kind}[16] parameter(0)
      y = {kind}[16] {opcode}(x)
      zero = {kind}[] constant(0)
      wide = {kind}[16] broadcast(zero), dimensions={{}}
      ROOT p = pred[16] compare(y, wide), direction=LT
    }}
    """
    module = xla.HloModule.from_text(text)
    dtype = {"s2": ml_dtypes.int2, "s4": ml_dtypes.int4}[kind]
    x = np.resize(np.arange(ml_dtypes.iinfo(dtype).min, ml_dtypes.iinfo(dtype).max + 1), 16).astype(dtype)
    actual, expected = (xla.compile(module, backend=name)(x) for name in ("cpu", "interpreter"))
    np.testing.assert_array_equal(actual, expected)
    assert expected.any() or (opcode, kind) in (("popcnt", "s4"), ("count-leading-zeros", "s4"))
