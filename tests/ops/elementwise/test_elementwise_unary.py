"""The pages of unary operations: exact ones, and the elementary functions against mpmath."""

import math
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest
from evaluating import evaluate, floats, infer, ints, refused, same

import xlakit as xla
from xlakit.builder.xla_builder import trace
from xlakit.ir.attributes import ResultAccuracy
from xlakit.ops.shared.numerics import from_double

bf16 = np.dtype(ml_dtypes.bfloat16)
NARROW = [kind.dtype for kind in xla.PrimitiveType if kind.is_array and kind.is_floating and kind.bit_width == 8]


def all_of(dtype):
    return np.arange(256, dtype=np.uint8).view(dtype)


def bits(values):
    values = np.asarray(values)
    return values.view(f"u{values.dtype.itemsize}")


# -- signs and rounding to integers


def test_abs():
    same(evaluate(xla.abs, np.array([-128, -3, 5], np.int8)), np.array([-128, 3, 5], np.int8))
    same(evaluate(xla.abs, floats([-0.0, -2.5])), floats([0, 2.5]))
    same(evaluate(xla.abs, np.array([3 + 4j, 3e38 + 3e38j], np.complex64)), floats([5, np.inf]))
    same(evaluate(xla.abs, np.array([3e300 + 4e300j])), np.array([5e300]))
    same(evaluate(xla.abs, np.array([-8, 7], ml_dtypes.int4)), np.array([-8, 7], ml_dtypes.int4))


def test_sign_keeps_zeros_and_nan():
    result = evaluate(xla.sign, floats([-3, -0.0, 0, np.nan, np.inf]))
    same(result, floats([-1, -0.0, 0, np.nan, 1]))
    assert list(np.signbit(result)) == [True, True, False, np.signbit(result[3]), False]
    same(evaluate(xla.sign, ints([-5, 0, 9])), ints([-1, 0, 1]))
    same(evaluate(xla.sign, np.array([3 + 4j, 0])), np.array([0.6 + 0.8j, 0]))
    same(evaluate(xla.sign, np.array([1e308 + 1e308j]).astype(complex)).real, np.array([np.sqrt(0.5)]))


def test_negation_wraps():
    same(evaluate(xla.neg, np.array([-128, 1], np.int8)), np.array([-128, -1], np.int8))
    same(evaluate(xla.neg, np.array([1, 0], np.uint8)), np.array([255, 0], np.uint8))
    same(evaluate(xla.neg, np.array([-8, 3], ml_dtypes.int4)), np.array([-8, -3], ml_dtypes.int4))
    assert np.signbit(evaluate(xla.neg, floats(0.0)))


def test_rounding_to_integers():
    values = floats([-2.5, -1.5, -0.5, 0.49999997, 0.5, 1.5, 2.5, 8388609, np.inf])
    same(evaluate(xla.round, values), floats([-3, -2, -1, 0, 1, 2, 3, 8388609, np.inf]))
    same(evaluate(xla.round_nearest_even, values), floats([-2, -2, -0.0, 0, 0, 2, 2, 8388609, np.inf]))
    same(evaluate(xla.floor, values), floats([-3, -2, -1, 0, 0, 1, 2, 8388609, np.inf]))
    same(evaluate(xla.ceil, values), floats([-2, -1, -0.0, 1, 1, 2, 3, 8388609, np.inf]))
    same(evaluate(xla.round, np.array(0.49999999999999994)), np.array(0.0))
    assert np.signbit(evaluate(xla.round, floats(-0.3)))


# -- parts and bits


def test_parts_of_complex_numbers():
    z = np.array([1 + 2j, 3 - 4j], np.complex64)
    same(evaluate(xla.real, z), floats([1, 3]))
    same(evaluate(xla.imag, z), floats([2, -4]))
    same(evaluate(xla.conj, z), z.conj())
    same(evaluate(xla.real, floats([7])), floats([7]))
    same(evaluate(xla.imag, floats([7])), floats([0]))
    assert infer(xla.real, xla.make_shape(xla.C128, (3,))) == "f64[3]"


def test_is_finite():
    same(evaluate(xla.is_finite, floats([1, np.inf, -np.inf, np.nan])), np.array([True, False, False, False]))
    same(evaluate(xla.is_finite, np.array([448, np.nan], ml_dtypes.float8_e4m3fn)), np.array([True, False]))


@pytest.mark.parametrize("dtype", [np.int8, np.uint16, np.int32, np.int64, np.uint64, ml_dtypes.uint4])
def test_bits_are_counted_in_the_type_itself(dtype):
    width = xla.PrimitiveType.from_dtype(dtype).bit_width
    values = np.array([0, 1, 2, 5, -1] if np.dtype(dtype).kind == "i" else [0, 1, 2, 5, 7]).astype(dtype)
    patterns = [int(v) % (1 << width) for v in values]
    expected = np.array([width - p.bit_length() for p in patterns]).astype(dtype)
    same(evaluate(xla.clz, values), expected)
    same(evaluate(xla.population_count, values), np.array([p.bit_count() for p in patterns]).astype(dtype))
    same(evaluate(xla.not_, evaluate(xla.not_, values)), values)


def test_not():
    same(evaluate(xla.logical_not, np.array([True, False])), np.array([False, True]))
    same(evaluate(xla.not_, ints([0, 5])), ints([-1, -6]))


# -- which types an operation takes


def test_types_that_are_refused():
    pred, s32, u32, f32, c64 = (xla.make_shape(k, (2,)) for k in (xla.PRED, xla.S32, xla.U32, xla.F32, xla.C64))
    for function, shapes in {
        xla.exp: (pred, s32),
        xla.erf: (s32, c64),
        xla.cbrt: (c64,),
        xla.floor: (s32, c64),
        xla.real: (s32,),
        xla.abs: (pred, u32),
        xla.sign: (pred, u32),
        xla.neg: (pred,),
        xla.clz: (pred, f32),
        xla.population_count: (pred, f32),
        xla.not_: (f32, c64),
        xla.is_finite: (s32, c64),
    }.items():
        for shape in shapes:
            refused("element type", function, shape)


def test_accuracy_that_is_asked_for_is_kept():
    accuracy = ResultAccuracy("HIGHEST")
    computation = trace(lambda x: xla.exp(x, accuracy), [xla.make_shape(xla.F32, ())])
    assert computation.computation.root.op.result_accuracy == accuracy
    bad = ResultAccuracy(tolerance=(-1.0, 0.0, 0))
    refused("negative tolerance", lambda x: xla.exp(x, bad), xla.make_shape(xla.F32, ()))


# -- elementary functions

FUNCTIONS = {
    "acos": (-1, 1),
    "acosh": (1, 50),
    "asin": (-1, 1),
    "asinh": (-50, 50),
    "atanh": (-1, 1),
    "cbrt": (-50, 50),
    "cos": (-50, 50),
    "cosh": (-50, 50),
    "erf": (-4, 4),
    "exp": (-50, 50),
    "expm1": (-5, 50),
    "log": (0.01, 50),
    "log1p": (-0.99, 50),
    "logistic": (-50, 50),
    "rsqrt": (0.01, 50),
    "sin": (-50, 50),
    "sinh": (-50, 50),
    "sqrt": (0, 50),
    "tan": (-50, 50),
    "tanh": (-50, 50),
}


def truth(name):
    mp = pytest.importorskip("mpmath")
    mp.mp.prec = 1200  # holds 1 + 1e-300
    special = {
        "log1p": lambda x: mp.log(1 + x),
        "expm1": lambda x: mp.exp(x) - 1,
        "logistic": lambda x: 1 / (1 + mp.exp(-x)),
        "rsqrt": lambda x: 1 / mp.sqrt(x),
        "cbrt": lambda x: mp.sign(x) * mp.cbrt(abs(x)),
    }
    return mp, special.get(name, getattr(mp, name, None))


def samples(name, count=60):
    low, high = FUNCTIONS[name]
    rng = np.random.default_rng(len(name))
    near_zero = np.sign(rng.normal(size=20)) * 10.0 ** rng.uniform(-300, -1, 20)
    x = np.concatenate([rng.uniform(low, high, count), near_zero])
    return x[(x >= low) & (x <= high)]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_doubles_are_within_two_units(name):
    mp, exact = truth(name)
    x = samples(name)
    for argument, result in zip(x, evaluate(getattr(xla, name), x), strict=True):
        wanted = exact(mp.mpf(float(argument)))
        assert abs(mp.mpf(float(result)) - wanted) <= 2 * np.spacing(abs(float(wanted))), argument


@pytest.mark.parametrize("dtype", [np.dtype(np.float32), np.dtype(np.float16), bf16])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_narrow_floats_are_rounded_once(name, dtype):
    mp, exact = truth(name)
    x = samples(name, 30).astype(dtype)
    low, high = FUNCTIONS[name]
    x = x[(x.astype(np.float64) >= low) & (x.astype(np.float64) <= high) & (np.abs(x.astype(np.float64)) < 1e300)]
    x = x[x.astype(np.float64) != 0]
    expected = from_double(np.array([float(exact(mp.mpf(float(v)))) for v in x]), dtype)
    same(evaluate(getattr(xla, name), x), expected)


@pytest.mark.reference
@pytest.mark.parametrize("name", [n for n in FUNCTIONS if n not in ("cbrt", "erf")])
def test_complex_numbers_are_within_some_units_of_their_length(name, backend):
    mp, exact = truth(name)
    units = 2 if backend == "interpreter" else 3
    rng = np.random.default_rng(3)
    z = rng.normal(size=24) * 3 + 1j * rng.normal(size=24) * 3
    near = [1e-9 + 1e-10j, -1e-9 + 2e-8j, -1 + 1e-9 + 1e-9j, 1e-7 + 3.1415926j, 1.5707963j + 1e-8, 1 + 1e-10 - 1e-9j]
    z = np.concatenate([z, near])
    for dtype, spacing in ((np.complex128, np.float64), (np.complex64, np.float32)):
        narrow = z.astype(dtype)
        for argument, result in zip(narrow, evaluate(getattr(xla, name), narrow), strict=True):
            wanted = mp.mpc(exact(mp.mpc(complex(argument))))
            error = abs(mp.mpc(complex(result)) - wanted)
            assert error <= units * float(np.spacing(spacing(abs(wanted)))), (dtype, argument)


@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_every_value_of_eight_bits(dtype):
    x = all_of(dtype)
    with np.errstate(all="ignore"):
        same(evaluate(xla.floor, x), from_double(np.floor(x.astype(np.float64)), dtype))
        same(evaluate(xla.exp, x), from_double(np.exp(x.astype(np.float64)), dtype))
        same(evaluate(xla.rsqrt, x), from_double(1 / np.sqrt(x.astype(np.float64)), dtype))


def test_ends_of_the_range():
    same(evaluate(xla.logistic, np.array([-745.0, 800, -np.inf, np.nan])), np.array([5e-324, 1, 0, np.nan]))
    same(evaluate(xla.logistic, floats([-100])), floats([np.exp(-100.0)]))
    same(evaluate(xla.log1p, floats([-1, -2, 1e-20])), floats([-np.inf, np.nan, 1e-20]))
    same(evaluate(xla.rsqrt, floats([0, np.inf, -1])), floats([np.inf, 0, np.nan]))
    # The last bit is that of NumPy's asinh, which depends on how NumPy was built.
    np.testing.assert_array_max_ulp(evaluate(xla.asinh, np.array([1e300, -1e-300])), [691.4686750787736, -1e-300], 2)
    same(evaluate(xla.cbrt, floats([-27, -0.0, np.inf])), floats([-3, -0.0, np.inf]))
    same(evaluate(xla.erf, floats([np.inf, -np.inf])), floats([1, -1]))


def test_complex_functions_at_infinity_and_zero():
    inf = np.inf
    z = np.array([0, inf, complex(-inf, 0), complex(inf, 1)], np.complex64)
    same(evaluate(xla.sqrt, z), np.array([0, inf, complex(0, inf), inf], np.complex64))
    same(evaluate(xla.rsqrt, z), np.array([complex(inf, np.nan)] + 3 * [complex(0, -0.0)], np.complex64))
    same(evaluate(xla.tanh, z), np.array([0, 1, -1, 1], np.complex64))
    same(evaluate(xla.logistic, z), np.array([0.5, 1, 0, 1], np.complex64))
    same(evaluate(xla.exp, z[:3]), np.array([1, inf, 0], np.complex64))
    same(evaluate(xla.expm1, z[:3]), np.array([0, inf, -1], np.complex64))
    # No direction is left: XLA's answer is NaN, where C's would be -1 or infinity.
    aimless = np.array([complex(a, b) for a in (-inf, inf) for b in (-inf, inf, np.nan)])
    same(evaluate(xla.expm1, aimless), np.full(6, complex(np.nan, np.nan)))
    log = evaluate(xla.log, np.array([complex(-1, 0.0), complex(-1, -0.0)]))
    same(log.imag, np.array([np.pi, -np.pi]))


def test_erf_of_no_element_and_of_one():
    assert evaluate(xla.erf, floats([])).shape == (0,)
    same(evaluate(xla.erf, np.float32(0.5)), np.float32(math.erf(0.5)))


def test_a_constant_is_folded_without_scipy():
    """JAX's initializers have such constants, and SciPy takes longer to load than they take to compile."""
    code = """
import sys
import xlakit as xla

text = "ENTRY e {\\n x = f32[] constant(0.5)\\n ROOT y = f32[] erf(x)\\n}"
module = xla.HloModule.from_text("HloModule m\\n" + text)
print(xla.compile(module, cache=False)(), "scipy.special" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    value, is_loaded = done.stdout.split()
    assert abs(float(value) - math.erf(0.5)) < 1e-6
    assert is_loaded == "False"


def test_functions_made_of_several():
    x = floats([1, -np.inf, np.nan, np.inf])
    same(evaluate(xla.is_nan, x), np.isnan(x))
    same(evaluate(xla.is_inf, x), np.isinf(x))
    same(evaluate(xla.is_pos_inf, x), np.isposinf(x))
    same(evaluate(xla.is_neg_inf, x), np.isneginf(x))
    same(evaluate(xla.square, ints([-3])), ints([9]))
    same(evaluate(xla.reciprocal, floats([4])), floats([0.25]))
