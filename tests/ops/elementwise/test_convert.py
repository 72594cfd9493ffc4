"""The page of conversions: convert, bitcast-convert, bitcast, reduce-precision, stochastic-convert."""

from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from evaluating import array_of, evaluate, f32, floats, infer, ints, refused, s32, same

import xlakit as xla
from xlakit.ops.shared.numerics import limits, to_double

inf, nan = np.inf, np.nan
ALL = [kind for kind in xla.PrimitiveType if kind.is_array]
FLOATS = [kind for kind in ALL if kind.is_floating]
INTEGERS = [kind for kind in ALL if kind.is_integral]


def by_name(kind):
    return kind.hlo_name


def convert(x, kind):
    return evaluate(lambda operand: xla.convert_element_type(operand, kind), x)


# -- convert


@pytest.mark.parametrize("kind", INTEGERS, ids=by_name)
def test_floats_become_integers_by_truncation_and_saturation(kind):
    low, high = limits(kind)
    values = [0, -0.9, 0.9, 1.5, -1.5, 3.99, 1e30, -1e30, inf, -inf, nan, 2.0**63, -(2.0**63), 2.0**64, 2.0**31]
    expected = [0 if v != v else high if v == inf else low if v == -inf else int(v) for v in values]
    expected = [min(max(v, low), high) for v in expected]
    same(convert(np.array(values), kind), array_of(kind, expected))
    same(convert(floats(values), kind), array_of(kind, expected))


def nearest(kind, number, table):
    """The finite value of a format that is nearest to an integer, of two the one with an even last bit."""
    lower = table[np.searchsorted(table, number, side="right") - 1]
    upper = table[min(np.searchsorted(table, number, side="right"), len(table) - 1)]
    below, above = Fraction(number) - Fraction(float(lower)), Fraction(float(upper)) - Fraction(number)
    if below == above:
        even = [v for v in (lower, upper) if not np.array(v).astype(kind.dtype).view(np.uint16) & 1]
        return even[0]
    return lower if below < above else upper


@pytest.mark.parametrize("kind", [xla.BF16, xla.F16], ids=by_name)
def test_integers_become_floats_in_one_rounding(kind):
    patterns = np.arange(1 << 16, dtype=np.uint16).view(kind.dtype)
    table = np.unique(to_double(patterns)[np.isfinite(to_double(patterns))])
    rng = np.random.default_rng(1)
    top = 2**63 - 1 if kind is xla.BF16 else 65504
    numbers = [int(v) for v in rng.integers(-top, top, 100)]
    # Just beside the middle of two values, by less than a double can hold.
    numbers += (
        [2**62 + 2**54 + 1, 2**62 + 2**54 - 1, -(2**60) - 2**52 - 1, 2**53 + 1] if kind is xla.BF16 else [2049, 4098]
    )
    expected = np.array([nearest(kind, n, table) for n in numbers]).astype(kind.dtype)
    same(convert(np.array(numbers), kind), expected)


def test_large_integers():
    numbers = np.array([2**24 + 1, 2**62 + 2**38 + 1, -(2**62) - 2**38 - 1, 2**63 - 1])
    expected = [float(2**24), 2.0**62 + 2**39, -(2.0**62) - 2**39, 2.0**63]
    same(convert(numbers, xla.F32), floats(expected))
    same(convert(np.array([2**64 - 1, 2**53 + 1], np.uint64), xla.F64), np.array([2.0**64, 2.0**53]))


@pytest.mark.parametrize("kind", [k for k in FLOATS if k not in (xla.F64, xla.F32, xla.F8E8M0FNU)], ids=by_name)
def test_doubles_are_rounded_once(kind):
    patterns = np.arange(1 << max(8, kind.bit_width), dtype=f"u{kind.dtype.itemsize}").view(kind.dtype)
    patterns = patterns[: 1 << kind.bit_width]
    table = np.unique(to_double(patterns)[np.isfinite(to_double(patterns))])
    middle = (table[1:] + table[:-1]) / 2
    np.testing.assert_array_equal(to_double(convert(np.nextafter(middle, inf), kind)), table[1:])
    np.testing.assert_array_equal(to_double(convert(np.nextafter(middle, -inf), kind)), table[:-1])
    even = to_double(convert(middle, kind))
    assert np.all((even == table[1:]) | (even == table[:-1]))
    assert not np.any(array_of(kind, even).view(f"u{kind.dtype.itemsize}") & 1)


def test_overflow_is_the_types_own():
    x = floats([1e30, -1e30, inf, nan])
    same(convert(x, xla.F16), np.array([inf, -inf, inf, nan], np.float16))
    same(convert(x, xla.F8E5M2), np.array([inf, -inf, inf, nan], ml_dtypes.float8_e5m2))
    same(convert(x, xla.F8E4M3FN), np.array([nan] * 4, ml_dtypes.float8_e4m3fn))
    same(convert(x, xla.F4E2M1FN), np.array([6, -6, 6, -0.0], ml_dtypes.float4_e2m1fn))


def test_integers_wrap():
    same(convert(ints([300, -1, 128]), xla.S8), np.array([44, -1, -128], np.int8))
    same(convert(ints([-1, 17]), xla.U4), np.array([15, 1], ml_dtypes.uint4))
    same(convert(np.array([2**64 - 1], np.uint64), xla.S64), np.array([-1]))
    same(convert(np.array([-8, 7], ml_dtypes.int4), xla.U16), np.array([65528, 7], np.uint16))


def test_pred_and_complex():
    same(convert(floats([0, -0.0, nan, 0.5]), xla.PRED), np.array([False, False, True, True]))
    same(convert(np.array([0, 256]), xla.PRED), np.array([False, True]))
    same(convert(np.array([True, False]), xla.F8E5M2), np.array([1, 0], ml_dtypes.float8_e5m2))
    same(convert(np.array([2.7 + 5j]), xla.S32), ints([2]))
    same(convert(floats([1.5]), xla.C128), np.array([1.5 + 0j]))
    same(convert(np.array([1 / 3 + 1j]), xla.C64), np.array([1 / 3 + 1j], np.complex64))


def test_every_type_converts_to_every_other():
    kinds = [kind for kind in ALL if kind is not xla.S1]  # which does not hold 1
    for source in kinds:
        given = array_of(source, [1])
        results = evaluate(lambda x: tuple(xla.convert_element_type(x, kind) for kind in kinds), given)
        same(results, tuple(array_of(kind, [1]) for kind in kinds))


def test_convert_takes_dtypes_and_only_arrays():
    assert infer(lambda x: xla.convert_element_type(x, np.int16), f32(2, 3)) == "s16[2,3]"
    token = xla.TOKEN_SHAPE
    refused("array", lambda x: xla.convert_element_type(x, xla.F32), token)


# -- bitcast-convert and bitcast


def bitcast_convert(x, kind):
    return evaluate(lambda operand: xla.bitcast_convert_type(operand, kind), x)


def test_bits_of_the_same_width():
    same(bitcast_convert(floats([1, -0.0]), xla.U32), np.array([0x3F800000, 0x80000000], np.uint32))
    same(bitcast_convert(np.array([15, 8], ml_dtypes.uint4), xla.S4), np.array([-1, -8], ml_dtypes.int4))


def test_bits_of_other_widths():
    ones = np.full((3, 6), -1, ml_dtypes.int1)
    same(bitcast_convert(ones, xla.F6E2M3FN), np.full(3, -7.5, ml_dtypes.float6_e2m3fn))
    same(bitcast_convert(floats([1]), xla.U16), np.array([[0, 0x3F80]], np.uint16))
    same(bitcast_convert(np.array([0x21, 0x43], np.uint8), xla.U4), np.array([[1, 2], [3, 4]], ml_dtypes.uint4))
    same(bitcast_convert(np.array([[1, 2], [3, -4]], ml_dtypes.int4), xla.U8), np.array([0x21, 0xC3], np.uint8))
    same(bitcast_convert(np.array([1, 0, 0, 0, 0, 0, 0, 1], ml_dtypes.uint1), xla.U8), np.array(129, np.uint8))
    x = np.arange(24, dtype=np.int64).reshape(2, 3, 4)
    same(bitcast_convert(bitcast_convert(x, xla.S8), xla.S64), x)
    same(bitcast_convert(np.array([1 + 2j]), xla.C64).view(np.complex128), np.array([[1 + 2j]]))


def test_shapes_of_bitcast_convert():
    to = lambda kind: lambda x: xla.bitcast_convert_type(x, kind)  # noqa: E731
    assert infer(to(xla.F16), f32(10)) == "f16[10,2]"
    assert infer(to(xla.F16), f32()) == "f16[2]"
    assert infer(to(xla.F32), xla.make_shape(xla.F16, (10, 2))) == "f32[10]"
    refused("last dimension must be 2", to(xla.F32), xla.make_shape(xla.F16, (10, 3)))
    refused("missing", to(xla.F32), xla.make_shape(xla.F16, ()))
    refused("complex and real", to(xla.C64), xla.make_shape(xla.F64, ()))
    refused("neither divides", to(xla.U8), xla.make_shape(xla.F6E2M3FN, (4,)))


def test_bitcast_reads_memory_in_the_layouts():
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    column_major = xla.make_shape(xla.F32, (3, 2), layout=(0, 1))
    same(evaluate(lambda operand: xla.bitcast(operand, column_major), x), x.T)
    flat = xla.make_shape(xla.S32, (6,))
    same(evaluate(lambda operand: xla.bitcast(operand, flat), x), x.reshape(-1).view(np.int32))
    packed = xla.make_shape(xla.U4, (3,), layout=xla.Layout((0,), element_size_in_bits=4))
    pair = xla.make_shape(xla.U8, (2,))
    same(
        evaluate(lambda operand: xla.bitcast(xla.bitcast(operand, packed), pair), np.array([0x21, 0x03], np.uint8)),
        np.array([0x21, 0x03], np.uint8),
    )
    refused("bytes of memory", lambda operand: xla.bitcast(operand, flat), f32(5))


# -- reduce-precision


def reduce_precision(x, exponent_bits, mantissa_bits):
    return evaluate(lambda operand: xla.reduce_precision(operand, exponent_bits, mantissa_bits), x)


def test_reduce_precision_rounds_half_to_even():
    same(reduce_precision(floats([1.25, 1.75, 1.125, -1.375, 1.96]), 8, 1), floats([1, 2, 1, -1.5, 2]))
    same(reduce_precision(floats([1.1, nan]), 8, 30), floats([1.1, nan]))


def test_reduce_precision_clamps_the_exponent():
    x = floats([65504, 65519, 65520, -1e6, 6.2e-5, 6.0e-5, -1e-30, inf, -inf, nan, -0.0])
    expected = [65504, 65504, inf, -inf, 6.198883056640625e-05, 0, -0.0, inf, -inf, nan, -0.0]
    same(reduce_precision(x, 5, 10), floats(expected))
    same(reduce_precision(floats([nan, 1.5, 0.5]), 1, 0), floats([nan, inf, 0]))


@pytest.mark.parametrize("dtype", [np.float64, np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e5m2])
def test_reduce_precision_of_other_types(dtype):
    x = np.array([1.25, 1.75, 3, 1e4, 1e-3]).astype(dtype)
    same(reduce_precision(x, 4, 1), np.array([1, 2, 3, inf, 0]).astype(dtype))


def test_reduce_precision_needs_an_exponent():
    refused("exponent_bits", lambda x: xla.reduce_precision(x, 0, 3), f32())
    refused("mantissa_bits", lambda x: xla.reduce_precision(x, 5, -1), f32())
    refused("floating point", lambda x: xla.reduce_precision(x, 5, 2), s32())


# -- stochastic-convert


def test_stochastic_convert_goes_up_as_often_as_the_fraction_says():
    x = floats([1.5, 1.5, -1.5, -1.5, 2, nan, inf, -inf, 300, -127.5])
    random = np.array([2**31 - 1, 2**31, 0, 2**32 - 1, 0, 0, 0, 0, 0, 0], np.uint32)
    result = evaluate(lambda a, b: xla.stochastic_convert_type(a, b, xla.S8), x, random)
    same(result, np.array([2, 1, -2, -1, 2, 0, 127, -128, 127, -128], np.int8))


def test_stochastic_convert_refuses():
    u16, u32 = xla.make_shape(xla.U16, (2,)), xla.make_shape(xla.U32, (2,))
    to = lambda a, b: xla.stochastic_convert_type(a, b, xla.S8)  # noqa: E731
    refused("as wide", to, f32(2), u16)
    refused("unsigned", to, f32(2), s32(2))
    refused("floating point", to, s32(2), u32)
    refused("same dimensions", to, f32(3), u32)
    with pytest.raises(xla.UnsupportedError, match="bf16"):
        evaluate(lambda a, b: xla.stochastic_convert_type(a, b, xla.BF16), floats([1]), np.array([1], np.uint32))
