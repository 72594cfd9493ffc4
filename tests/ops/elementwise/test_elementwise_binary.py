"""The page of binary operations."""

import ml_dtypes
import numpy as np
import pytest
from evaluating import array_of, evaluate, f32, floats, infer, ints, refused, s32, same

import xlakit as xla
from xlakit.ir.instruction import infer_shape
from xlakit.ops.registry import OPERATIONS
from xlakit.ops.shared.numerics import limits

INTEGERS = [xla.S4, xla.U4, xla.S2, xla.S8, xla.U8, xla.S16, xla.S32, xla.U32, xla.S64, xla.U64]
inf, nan = np.inf, np.nan


def pairs(kind):
    """Edge values and others of an integer type, each with each: the arrays, and the numbers in them."""
    low, high = limits(kind)
    rng = np.random.default_rng(kind.value)
    values = {low, low + 1, high, high - 1, 0, 1, 2, 3, high // 2} | ({-1, -2, -7} if kind.is_signed else set())
    values |= {low + int(rng.integers(0, 2**62)) % (high - low + 1) for _ in range(12)}
    values = sorted(v for v in values if low <= v <= high)
    numbers = [(a, b) for a in values for b in values]
    return (array_of(kind, [n[i] for n in numbers]) for i in (0, 1)), numbers


def wrapped(kind, number):
    span = 1 << kind.bit_width
    number %= span
    return number - span if kind.is_signed and number >= span >> 1 else number


def truncated_quotient(kind, a, b):
    if b == 0:
        return -1
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def truncated_remainder(kind, a, b):
    return a if b == 0 else a - b * truncated_quotient(kind, a, b)


def shift(kind, a, b, direction):
    out_of_range = not 0 <= b < kind.bit_width
    if direction == "left":
        return 0 if out_of_range else a << b
    if direction == "logical":
        return 0 if out_of_range else (a % (1 << kind.bit_width)) >> b
    signed = a - (1 << kind.bit_width) if a >= 1 << (kind.bit_width - 1) else a
    return signed >> (kind.bit_width if out_of_range else b)


def power(kind, a, b):
    if b >= 0:
        return pow(a, b, 1 << kind.bit_width)
    return {1: 1, -1: 1 if b % 2 == 0 else -1}.get(a, 0)


EXACT = {
    "add": lambda kind, a, b: a + b,
    "sub": lambda kind, a, b: a - b,
    "mul": lambda kind, a, b: a * b,
    "div": truncated_quotient,
    "rem": truncated_remainder,
    "max": lambda kind, a, b: max(a, b),
    "min": lambda kind, a, b: min(a, b),
    "pow": power,
    "mulhi": lambda kind, a, b: (a * b) >> kind.bit_width,
    "and_": lambda kind, a, b: a & b,
    "or_": lambda kind, a, b: a | b,
    "xor": lambda kind, a, b: a ^ b,
    "shift_left": lambda kind, a, b: shift(kind, a, b, "left"),
    "shift_right_logical": lambda kind, a, b: shift(kind, a, b, "logical"),
    "shift_right_arithmetic": lambda kind, a, b: shift(kind, a, b, "arithmetic"),
}


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize("kind", INTEGERS, ids=lambda kind: kind.hlo_name)
def test_integers_as_python_has_them_modulo_the_width(kind, name):
    (lhs, rhs), numbers = pairs(kind)
    expected = [wrapped(kind, EXACT[name](kind, a, b)) for a, b in numbers]
    same(evaluate(getattr(xla, name), lhs, rhs), array_of(kind, expected))


def test_pred():
    a, b = np.array([False, False, True, True]), np.array([False, True, False, True])
    for function, expected in (
        (xla.add, a | b),
        (xla.mul, a & b),
        (xla.max, a | b),
        (xla.min, a & b),
        (xla.logical_and, a & b),
        (xla.logical_or, a | b),
        (xla.xor, a ^ b),
    ):
        same(evaluate(function, a, b), expected)


# -- floats


def test_nan_wins_and_zeros_are_ordered():
    a, b = floats([-0.0, 0, nan, 1, inf]), floats([0, -0.0, 1, nan, -inf])
    same(evaluate(xla.max, a, b), floats([0, 0, nan, nan, inf]))
    same(evaluate(xla.min, a, b), floats([-0.0, -0.0, nan, nan, -inf]))


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_complex_numbers_are_ordered_by_real_then_imaginary_part(dtype):
    a, b = np.array([1 + 9j, 2 + 3j, -1, nan], dtype), np.array([2 - 5j, 2 + 4j, -1 - 1j, 1], dtype)
    same(evaluate(xla.max, a, b), np.array([2 - 5j, 2 + 4j, -1, nan], dtype))
    same(evaluate(xla.min, a, b), np.array([1 + 9j, 2 + 3j, -1 - 1j, nan], dtype))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e5m2])
def test_remainder_has_the_sign_of_the_dividend(dtype):
    a, b = np.array([-7, 7, 5, inf, 3, -0.0]).astype(dtype), np.array([2, -2, 0, 1, inf, 1]).astype(dtype)
    same(evaluate(xla.rem, a, b), np.array([-1, 1, nan, nan, 3, -0.0]).astype(dtype))


def test_power_of_floats():
    a = floats([0, -8, nan, 1, 2, -2, 0, -0.0, inf])
    b = floats([0, 1 / 3, 0, nan, -1, 3, -1, -1, -1])
    same(evaluate(xla.pow, a, b), floats([1, nan, 1, 1, 0.5, -8, inf, -inf, 0]))


def test_narrow_floats_are_rounded_once():
    a, b = np.array([1.0, 256, 448], ml_dtypes.float8_e4m3fn), np.array([0.0625, 16, 32], ml_dtypes.float8_e4m3fn)
    same(evaluate(xla.add, a, b), np.array([1.0, 272, nan], ml_dtypes.float8_e4m3fn))
    x = np.array([3.0], ml_dtypes.bfloat16)
    same(evaluate(lambda x: 1 / x, x), np.array([0.333984375], ml_dtypes.bfloat16))
    same(evaluate(xla.div, floats([1]), floats([3])), floats([1 / 3]))


def test_atan2_and_atan():
    same(evaluate(xla.atan2, floats([0, 0, -0.0, 1]), floats([1, -1, -1, 0])), floats([0, np.pi, -np.pi, np.pi / 2]))
    same(evaluate(xla.atan, floats([1, -inf])), floats([np.pi / 4, -np.pi / 2]))


# -- complex numbers


def test_complex_products_and_quotients_do_not_overflow_on_the_way():
    a, b = np.array([1e30 + 1e30j], np.complex64), np.array([1e-30 + 1e30j], np.complex64)
    np.testing.assert_allclose(evaluate(xla.div, a, b), [1 - 1j], rtol=1e-7)
    same(evaluate(xla.mul, np.array([1 + 2j]), np.array([3 - 4j])), np.array([11 + 2j]))
    huge = np.array([1e308 + 1e308j])
    same(evaluate(xla.div, huge, huge), np.array([1 + 0j]))


def test_complex_quotients_with_zero_and_infinity():
    a = np.array([1 + 1j, 1 + 1j, complex(inf, 1), 1 + 1j, 0], np.complex64)
    b = np.array([0, complex(-0.0, 0), 2 + 1j, complex(inf, inf), 0], np.complex64)
    expected = [complex(inf, inf), complex(-inf, -inf), complex(inf, -inf), 0, complex(nan, nan)]
    same(evaluate(xla.div, a, b), np.array(expected, np.complex64))


def test_complex_powers():
    a = np.array([0, 0, 1j, 5j, 1, complex(inf, 0), complex(inf, 0), 2])
    b = np.array([0, 2, 2, 0, 3 + 4j, 2, -2, 1j])
    expected = [1, 0, -1, 1, 1, inf, 0, np.exp(1j * np.log(2))]
    np.testing.assert_allclose(evaluate(xla.pow, a, b), expected, rtol=1e-15, atol=1e-300)


def test_complex_powers_at_infinity():
    a = np.array([complex(inf, inf), complex(0, inf), complex(1, inf), 1 + 1j, 0])
    b = np.array([-1, -1, complex(-0.0, inf), complex(nan, inf), complex(1, inf)])
    same(evaluate(xla.pow, a, b), np.array([0, 0, 0, complex(nan, nan), 0]))


def test_complex_angles():
    mp = pytest.importorskip("mpmath")
    mp.mp.prec = 300
    rng = np.random.default_rng(0)
    y, x = (rng.normal(size=40) + 1j * rng.normal(size=40) for _ in range(2))
    y[:10] *= 1e-20
    x[10:20] *= 1e-20
    for top, bottom, result in zip(y, x, evaluate(xla.atan2, y, x), strict=True):
        s, t = mp.mpc(complex(top)), mp.mpc(complex(bottom))
        wanted = -1j * mp.log((t + 1j * s) / mp.sqrt(t * t + s * s))
        assert abs(mp.mpc(complex(result)) - wanted) <= 4e-16 * abs(wanted)
    same(evaluate(xla.atan2, np.array([1 + 0j]), np.array([-1 + 0j])), np.array([3 * np.pi / 4 + 0j]))


def test_parts_make_complex_numbers_as_they_are():
    same(
        evaluate(xla.complex, floats([1, inf]), floats([-0.0, nan])),
        np.array([complex(1, -0.0), complex(inf, nan)], "c8"),
    )
    refused("f32 or f64", xla.complex, *[xla.make_shape(xla.F16, (2,))] * 2)


# -- shapes and types


def test_broadcasting_and_numbers():
    matrix, row = np.ones((2, 3), np.float32), floats([1, 2, 3])
    same(evaluate(lambda x, y: xla.add(x, y, broadcast_dimensions=[1]), matrix, row), matrix + row)
    same(evaluate(lambda x: 2 - x * 3, row), 2 - row * 3)
    same(evaluate(lambda x: (x % 3) << 1, ints([7])), ints([2]))
    same(evaluate(lambda x: x >> 1, np.array([-2], np.int8)), np.array([-1], np.int8))
    same(evaluate(lambda x: x >> 1, np.array([254], np.uint8)), np.array([127], np.uint8))
    refused("broadcast_dimensions", xla.add, f32(2, 3), f32(3))
    refused("size 2", xla.add, f32(2), f32(3))


def test_types_that_are_refused():
    pred, c64 = xla.make_shape(xla.PRED, (2,)), xla.make_shape(xla.C64, (2,))
    for function in (xla.sub, xla.div, xla.rem, xla.pow, xla.atan2, xla.shift_left, xla.mulhi):
        refused("element type", function, pred, pred)
    for function in (xla.rem, xla.and_, xla.shift_right_logical):
        refused("element type", function, c64, c64)
    for function in (xla.and_, xla.or_, xla.xor, xla.mulhi, xla.shift_left):
        refused("element type", function, f32(2), f32(2))
    refused("different element types", xla.add, f32(2), s32(2))


def test_mixed_precision_takes_the_higher():
    a, b = np.array([1.5], ml_dtypes.bfloat16), floats([2.25])
    same(evaluate(xla.add, a, b), floats([3.75]))
    assert infer(xla.mul, xla.make_shape(xla.F16, (2,)), xla.make_shape(xla.BF16, (2,))) == "bf16[2]"


def test_instructions_themselves_broadcast_nothing():
    add = OPERATIONS["add"]()
    for other in (f32(), f32(1), f32(2, 3)):
        with pytest.raises(xla.ShapeError, match=r"rank|size"):
            infer_shape(add, [f32(3), other], None)
    dynamic = f32(4, dynamic=(True,))
    assert str(infer_shape(add, [f32(4), dynamic], None)) == "f32[<=4]"
