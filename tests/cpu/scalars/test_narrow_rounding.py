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


@pytest.mark.parametrize("kind", ["f8e5m2", "f8e4m3", "f8e3m4", "f8e4m3fn", "f8e5m2fnuz"])
def test_moved_numbers_keep_their_bits_and_computed_nans_are_one(kind):
    x = np.arange(256, dtype=np.uint8)
    text = f"""
    HloModule bits
    ENTRY main {{
      x = u8[256] parameter(0)
      y = {kind}[256] bitcast-convert(x)
      moved = {kind}[256] reverse(y), dimensions={{0}}
      less = pred[256] compare(y, moved), direction=LT, type=TOTALORDER
      sum = {kind}[256] add(y, moved)
      there = u8[256] bitcast-convert(moved)
      added = u8[256] bitcast-convert(sum)
      ROOT r = (u8[256], pred[256], u8[256]) tuple(there, less, added)
    }}
    """
    module = xla.HloModule.from_text(text)
    actual, expected = (xla.compile(module, backend=name)(x) for name in ("cpu", "interpreter"))
    np.testing.assert_array_equal(actual[0], x[::-1])
    np.testing.assert_array_equal(actual[1], expected[1])
    # Of a sum of two NaNs the sign is that of one of them.
    np.testing.assert_array_equal(actual[2] & 0x7F, expected[2] & 0x7F)


@pytest.mark.parametrize("opcode", ["atan2", "divide", "multiply", "power"])
def test_what_is_too_small_for_f32_is_not_nan_in_a_type_without_zero(opcode):
    text = f"""
    HloModule tiny
    ENTRY main {{
      x = f8e8m0fnu[256] parameter(0)
      y = f8e8m0fnu[256] reverse(x), dimensions={{0}}
      i = f8e8m0fnu[256] imag(x)
      z = f8e8m0fnu[256] {opcode}(x, {"x" if opcode == "multiply" else "y"})
      ROOT r = (f8e8m0fnu[256], f8e8m0fnu[256]) tuple(z, i)
    }}
    """
    x = np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e8m0fnu)
    module = xla.HloModule.from_text(text)
    results = [xla.compile(module, backend=name)(x) for name in ("cpu", "interpreter")]
    for actual, expected in zip(*results, strict=True):
        np.testing.assert_array_equal(actual.view(np.uint8), expected.view(np.uint8))


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


_OPERATIONS = ("negate", "ceil", "floor", "sign", "abs", "round-nearest-even", "round-nearest-afz")


@pytest.mark.parametrize("kind", ["f8e5m2fnuz", "f8e4m3fnuz", "f8e4m3b11fnuz", "f8e8m0fnu", "f8e4m3", "f4e2m1fn"])
@pytest.mark.parametrize("opcode", _OPERATIONS)
def test_zeros_have_signs_only_in_types_that_have_such_zeros(kind, opcode):
    module = xla.HloModule.from_text(f"""HloModule signs
    ENTRY e {{
      x = f32[6] parameter(0)
      narrow = {kind}[6] convert(x)
      made = {kind}[6] {opcode}(narrow)
      ROOT wide = f32[6] convert(made)
    }}""")
    x = np.array([0, -0.25, -0.0, -1, 1, 0.5], np.float32)
    actual, expected = (np.asarray(xla.compile(module, backend=name)(x)) for name in ("cpu", "interpreter"))
    np.testing.assert_array_equal(actual, expected)
    said = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(actual)[said], np.signbit(expected)[said])


@pytest.mark.parametrize("opcode", _OPERATIONS)
def test_roundings_past_the_largest_number_of_a_type_are_infinite(opcode):
    module = xla.HloModule.from_text(f"""HloModule largest
    ENTRY e {{
      x = f8e3m4[256] parameter(0)
      made = f8e3m4[256] {opcode}(x)
      ROOT wide = f32[256] convert(made)
    }}""")
    x = np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e3m4)
    actual, expected = (np.asarray(xla.compile(module, backend=name)(x)) for name in ("cpu", "interpreter"))
    np.testing.assert_array_equal(actual, expected)
    assert np.isinf(expected).sum() == {"sign": 0, "negate": 2, "abs": 2, "floor": 3, "ceil": 3}.get(opcode, 4)


@pytest.mark.parametrize("kind", ["f4e2m1fn", "f6e2m3fn", "f6e3m2fn", "f8e4m3fn", "f8e8m0fnu"])
def test_remainders_of_divisions_by_zero_are_of_their_type(kind):
    """Types without NaN have a number in its place."""
    module = xla.HloModule.from_text(f"""HloModule zero
    ENTRY e {{
      x = {kind}[4] parameter(0)
      y = {kind}[4] parameter(1)
      made = {kind}[4] remainder(x, y)
      ROOT wide = f32[4] convert(made)
    }}""")
    x, y = (np.array(v, module.entry.parameters[0].shape.element_type.dtype) for v in ([1, 2, 1, 0.5], [0, 1, -0.0, 0]))
    actual, expected = (np.asarray(xla.compile(module, backend=name)(x, y)) for name in ("cpu", "interpreter"))
    np.testing.assert_array_equal(actual, expected)
