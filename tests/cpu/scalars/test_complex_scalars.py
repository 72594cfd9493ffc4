"""Complex element-wise operations in machine code, against the interpreter, which computes in a wider type."""

import numpy as np
import pytest
from evaluating import build, shape_of

import xlakit as xla
from xlakit.options import compiling

UNARY = [
    *("abs", "sign", "sqrt", "rsqrt", "exp", "expm1", "log", "log1p", "logistic", "sin", "cos", "tan"),
    *("sinh", "cosh", "tanh", "asin", "acos", "asinh", "acosh", "atanh"),
]
BINARY = ["mul", "div", "pow", "atan2", "max", "min"]
SPECIAL = np.array([0.0, -0.0, 1.0, -1.0, 0.5, np.inf, -np.inf, np.nan])


def values(kind, special, seed):
    rng = np.random.default_rng(seed)
    parts = rng.standard_normal((2, 600)) * np.where(rng.random((2, 600)) < 0.3, np.exp2(rng.uniform(-9, 9)), 1)
    if special:
        parts = np.where(rng.random(parts.shape) < 0.4, rng.choice(SPECIAL, parts.shape), parts)
    found = np.empty(600, kind)
    found.real, found.imag = parts
    return found


def check(name, operands, ulps, *others):
    """Compare the results of one program for operands, and for other ones of the same shapes."""
    computation = build(getattr(xla, name), *(shape_of(o) for o in operands))
    executable = xla.compile(computation, backend="cpu")
    assert not executable.host_instructions
    for each in (operands, *others):
        compare(computation, executable, each, ulps)


def compare(computation, executable, operands, ulps):
    actual, expected = np.asarray(executable(*operands)), xla.compile(computation, backend="interpreter")(*operands)
    # Infinity and NaN in one part: the other part says nothing.
    finite = np.isfinite(actual) | np.isfinite(expected)
    info = np.finfo(actual.dtype)
    with np.errstate(all="ignore"):
        size = np.maximum(np.abs(expected.astype(np.clongdouble)), info.tiny)
        near = np.abs(actual.astype(np.clongdouble) - expected) <= ulps * info.eps * size
    wrong = finite & ~(near | (actual == expected))
    assert not wrong.any(), [o[wrong][0] for o in operands]


@pytest.mark.parametrize("kind", [np.complex64, np.complex128])
@pytest.mark.parametrize("name", UNARY)
def test_functions_of_one(name, kind):
    check(name, [values(kind, False, 1)], 4, [values(kind, True, 1)])


@pytest.mark.parametrize("kind", [np.complex64, np.complex128])
@pytest.mark.parametrize("name", BINARY)
def test_functions_of_two(name, kind):
    special = [values(kind, True, 1), values(kind, True, 2)]
    # C tells no special values of some.
    others = [] if name in ("pow", "atan2") else [special]
    check(name, [values(kind, False, 1), values(kind, False, 2)], 200 if name == "pow" else 8, *others)


def test_no_step_overflows():
    most = np.finfo(np.float64).max
    least = np.finfo(np.float64).smallest_subnormal
    parts = [most, -most / 3, least, 1.0, 1e-160, 1e200]
    x = np.array([complex(a, b) for a in parts for b in parts])
    for name in ("abs", "sign", "sqrt", "rsqrt", "log", "log1p", "asin", "acos", "asinh", "acosh", "atanh"):
        check(name, [x], 8)
    pairs = np.meshgrid(x, x)
    check("div", [pairs[0].reshape(-1), pairs[1].reshape(-1)], 8)


@pytest.mark.parametrize("kind", [np.complex64, np.complex128])
def test_only_the_real_part_of_a_complex_number_tells_whether_it_is_true(kind):
    x = np.array([2j, 1, 0, -1 - 1j, np.nan, complex(0, np.nan)], kind)
    name = xla.PrimitiveType.from_dtype(x.dtype).hlo_name
    module = xla.HloModule.from_text(
        f"HloModule m\nENTRY e {{ x = {name}[6] parameter(0)\n ROOT r = pred[6] convert(x) }}"
    )
    for backend in ("cpu", "interpreter"):
        assert xla.compile(module, backend=backend)(x).tolist() == [False, True, False, True, True, False]


@pytest.mark.parametrize("name", ["sin", "cos", "tan", "sinh", "cosh", "tanh", "log"])
def test_zeros_have_the_signs_that_c_gives_them(name):
    parts = [0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 4.0, -4.0]
    x = np.array([complex(a, b) for a in parts for b in parts if name != "log" or a or b])
    actual = np.asarray(xla.compile(build(getattr(xla, name), shape_of(x)), backend="cpu")(x))
    expected = getattr(np, name)(x)
    assert (np.signbit(actual.real) == np.signbit(expected.real)).all()
    assert (np.signbit(actual.imag) == np.signbit(expected.imag)).all()


@pytest.mark.parametrize("vector_bytes", [16, None])
def test_quotients_of_all_magnitudes_in_vectors_and_alone(vector_bytes):
    rng = np.random.default_rng(7)
    # Subnormal numbers, and magnitudes whose squares and quotients overflow F32.
    exponents = rng.integers(-149, 128, (4, 1003))
    parts = (rng.uniform(1, 2, exponents.shape) * rng.choice([-1, 1], exponents.shape) * np.exp2(exponents)).astype("f")
    parts = np.where(rng.random(parts.shape) < 0.1, rng.choice(SPECIAL, parts.shape).astype("f"), parts)
    x, y = np.empty((2, 1003), np.complex64)
    x.real, x.imag, y.real, y.imag = parts
    program = build(xla.div, shape_of(x), shape_of(y))
    with compiling(vector_bytes=vector_bytes):
        quotient = np.asarray(xla.compile(program, backend="cpu")(x, y))
    expected = xla.compile(program, backend="interpreter")(x, y)
    for a, b in ((quotient.real, expected.real), (quotient.imag, expected.imag)):
        np.testing.assert_array_max_ulp(np.nan_to_num(a), np.nan_to_num(b), 1)
        assert np.array_equal(np.isnan(a), np.isnan(b))
    with compiling(plain={"llvm"}):
        alone = np.asarray(xla.compile(program, backend="cpu")(x, y))
    same = (quotient.view(np.uint64) == alone.view(np.uint64)) | np.isnan(quotient)
    assert same.all()


PARTS = [0.0, -0.0, 1.0, -1.0, 2.0, -4.0, np.inf, -np.inf, np.nan]


def numbers(kind):
    found = np.empty(len(PARTS) ** 2, kind)
    found.real, found.imag = np.repeat(PARTS, len(PARTS)), np.tile(PARTS, len(PARTS))
    return found


def on_both(name, *operands):
    program = build(getattr(xla, name), *(shape_of(x) for x in operands))
    return [np.asarray(xla.compile(program, backend=backend)(*operands)) for backend in ("cpu", "interpreter")]


def assert_same_parts(actual, expected):
    for a, b in ((actual.real, expected.real), (actual.imag, expected.imag)):
        np.testing.assert_array_equal(a, b)
        assert (np.isnan(b) | (np.signbit(a) == np.signbit(b))).all()


# Parts that cancel have the sign of the denominator's larger part, unless both terms are -0; those are jaxlib's.
QUOTIENTS = [
    (0j, complex(0, -1), complex(-0.0, 0.0)),
    (0j, complex(-1, 0), complex(-0.0, -0.0)),
    (complex(-1, -1), complex(-1, -1), complex(1, -0.0)),
    (1 + 1j, 1 + 1j, 1 + 0j),
    (complex(-0.0, 1), complex(0.0, -1), complex(-1, -0.0)),
    (0j, complex(1, -np.inf), complex(-0.0, 0.0)),
    (0j, complex(np.nan, -np.inf), 0j),
]


@pytest.mark.parametrize("kind", [np.complex64, np.complex128])
def test_zeros_of_quotients_have_the_signs_that_jaxlib_gives_them(kind):
    top, bottom, quotient = (np.array(column, kind) for column in zip(*QUOTIENTS, strict=True))
    for found in on_both("div", top, bottom):
        assert_same_parts(found, quotient)
    for lanes in ({"llvm"}, set()):
        with compiling(plain=lanes):
            pairs = [x.reshape(-1) for x in np.meshgrid(numbers(kind), numbers(kind))]
            assert_same_parts(*on_both("div", *pairs))


@pytest.mark.parametrize("kind", [np.complex64, np.complex128])
def test_an_infinite_number_divided_by_a_finite_one_has_no_sign_where_infinities_cancel(kind):
    for found in on_both("div", np.array([complex(np.inf, np.inf)], kind), np.array([1 + 3j], kind)):
        assert found.real[0] == np.inf
        assert np.isnan(found.imag[0])


@pytest.mark.parametrize("kind", [np.complex64, np.complex128])
@pytest.mark.parametrize("name", ["rsqrt", "exp", "logistic", "sqrt", "log", "mul"])
def test_zeros_and_infinities_have_one_sign_on_both_backends(name, kind):
    x = numbers(kind)
    operands = [a.reshape(-1) for a in np.meshgrid(x, x)] if name == "mul" else [x]
    actual, expected = on_both(name, *operands)
    told = ~(np.isnan(actual) | np.isnan(expected))
    for a, b in ((actual.real, expected.real), (actual.imag, expected.imag)):
        alike = told & ((a == 0) & (b == 0) | np.isinf(a) & np.isinf(b))
        assert alike.any()
        assert (np.signbit(a) == np.signbit(b))[alike].all()


def test_the_inverse_root_of_a_positive_number_is_the_conjugate_of_one():
    x = np.array([1 + 0j, complex(1, -0.0), complex(-1, 0.0), complex(-1, -0.0)])
    for found in on_both("rsqrt", x):
        assert_same_parts(found, np.array([complex(1, -0.0), 1 + 0j, complex(0, -1), complex(0, 1)]))


def test_the_cosine_of_an_imaginary_infinity_is_infinite():
    for found in on_both("cos", np.array([complex(0, np.inf), complex(0, -np.inf)])):
        assert_same_parts(found, np.array([complex(np.inf, -0.0), complex(np.inf, 0.0)]))


def assert_same_nans(actual, expected):
    for a, b in ((actual.real, expected.real), (actual.imag, expected.imag)):
        np.testing.assert_array_equal(np.isnan(a), np.isnan(b))


# Where XLA's CPU backend and its evaluator agree on something else than C: a function, numbers, and its results.
_NO, _FAR, _LESS = np.nan, np.inf, -0.0
LIKE_XLA = {
    "sqrt": [
        ((-1, _LESS), (0, 1)),
        ((1, _LESS), (1, 0)),
        ((-_FAR, _LESS), (0, _FAR)),
        ((_FAR, _NO), (_NO, _NO)),
        ((_NO, _FAR), (_NO, _NO)),
    ],
    "exp": [
        ((0, _LESS), (1, 0)),
        ((-_FAR, _LESS), (0, 0)),
        ((_NO, _LESS), (_NO, 0)),
        ((_FAR, _FAR), (_NO, _NO)),
        ((-_FAR, _NO), (_NO, _NO)),
    ],
    "expm1": [((_LESS, _LESS), (0, 0)), ((_LESS, 0), (0, 0)), ((-_FAR, _LESS), (-1, 0)), ((_FAR, _NO), (_NO, _NO))],
    "logistic": [
        ((0, _LESS), (0.5, 0)),
        ((_FAR, _LESS), (1, 0)),
        ((_FAR, -1), (1, 0)),
        ((-_FAR, _LESS), (0, 0)),
        ((-_FAR, -1), (0, _LESS)),
        ((_NO, 0), (_NO, _NO)),
    ],
    "log": [((_FAR, _NO), (_NO, _NO)), ((_NO, -_FAR), (_NO, _NO))],
    "log1p": [((_FAR, _NO), (_NO, _NO)), ((_NO, -_FAR), (_NO, _NO))],
}


@pytest.mark.parametrize("kind", [np.complex64, np.complex128])
@pytest.mark.parametrize("name", LIKE_XLA)
def test_zeros_and_nans_that_xla_gives_otherwise_than_c(name, kind):
    pairs = [[complex(*number) for number in row] for row in LIKE_XLA[name]]
    given, expected = (np.array(column, kind) for column in zip(*pairs, strict=True))
    for found in on_both(name, given):
        assert_same_parts(found, expected)


@pytest.mark.parametrize("kind", [np.complex64, np.complex128])
@pytest.mark.parametrize(
    "name", ["sin", "cos", "tan", "sinh", "cosh", "tanh", "asin", "acos", "asinh", "acosh", "atanh", "logistic", "log"]
)
def test_parts_are_nan_on_both_backends(name, kind):
    assert_same_nans(*on_both(name, numbers(kind)))


@pytest.mark.parametrize("kind", [np.complex64, np.complex128])
def test_powers_of_zero_have_no_direction_at_their_pole(kind):
    zeros = np.array([complex(x, y) for x in (0.0, -0.0) for y in (0.0, -0.0)], kind)
    for exponent in (-1, -2.5, complex(-1, 1), -np.inf):
        for found in on_both("pow", zeros, np.full(4, exponent, kind)):
            assert np.isnan(found.real).all()
            assert np.isnan(found.imag).all()
