"""The kernels of sort, against the interpreter and NumPy."""

import itertools

import ml_dtypes
import numpy as np
import pytest
from cpu.kernels.sort.sort_running import make_sort, same_bits
from evaluating import evaluate

import xlakit as xla
from xlakit.cpu.kernels.sort import merge as sort_merge, plan as sort_plan
from xlakit.cpu.kernels.sort.plan import Method
from xlakit.options import compiling

FLOATS = [np.float16, ml_dtypes.bfloat16, np.float32, np.float64]
SMALL_FLOATS = [
    ml_dtypes.float8_e4m3fn,
    ml_dtypes.float8_e5m2,
    ml_dtypes.float8_e3m4,
    ml_dtypes.float8_e4m3fnuz,
    ml_dtypes.float8_e4m3b11fnuz,
    ml_dtypes.float8_e8m0fnu,
    ml_dtypes.float4_e2m1fn,
    ml_dtypes.float6_e3m2fn,
]
INTEGERS = [f"{sign}int{width}" for sign in ("", "u") for width in (8, 16, 32, 64)]


def any_bits(rng, kind, *sizes):
    """Elements with any bits, many of them zero, NaN, infinite or equal."""
    dtype = np.dtype(kind)
    primitive = xla.PrimitiveType.from_dtype(dtype)
    if primitive is xla.PRED:
        return rng.integers(0, 2, sizes).astype(bool)
    bits = rng.integers(0, 1 << min(primitive.bit_width, 63), sizes, dtype=np.int64)
    if primitive.is_floating:
        width = primitive.bit_width
        odd = np.array([0, np.nan, np.inf, 1], np.float64).astype(dtype).view(f"u{dtype.itemsize}").astype(np.int64)
        odd = odd[rng.integers(0, 4, sizes)] | (rng.integers(0, 2, sizes, dtype=np.int64) << (width - 1))
        payload = odd | rng.integers(0, 3, sizes)
        bits = np.where(rng.random(sizes) < 0.5, bits, np.where(rng.random(sizes) < 0.7, odd, payload))
    return bits.astype(f"u{dtype.itemsize}").view(dtype)


def compared(comparator, arrays, dimension=0, *, method=None, parts=(1, 3)):
    """Sort, and hold the results against the interpreter's; gives them."""
    plan, program = make_sort(comparator, arrays, dimension)
    assert method is None or plan.method is method
    expected = evaluate(lambda *o: xla.sort(o, comparator, dimension, True), *arrays)
    expected = expected if isinstance(expected, tuple) else (expected,)
    for number in parts:
        results = [np.full(a.shape, 0, a.dtype) for a in arrays]
        program.run([*arrays, *results], number)
        for result, right in zip(results, expected, strict=True):
            same_bits(result, right, plan.phases)
    inputs = [a.copy() for a in arrays]
    results = [i if alias else np.empty_like(i) for i, alias in zip(inputs, plan.in_place, strict=True)]
    program.run([*inputs, *results])
    for result, right in zip(results, expected, strict=True):
        same_bits(result, right, f"in place, {plan.phases}")
    return results


def total(first, second, *_):
    return xla.lt_total_order(first, second)


def total_descending(first, second, *_):
    return xla.gt_total_order(first, second)


def jax_key(x):
    """Zeros and NaN made one, as JAX compares."""
    builder, kind = x.builder, x.shape.element_type
    zero, nan = (xla.constant(builder, np.array(value, np.float32).astype(kind.dtype)) for value in (0, np.nan))
    return xla.select(xla.ne(x, x), nan, xla.select(xla.eq(x, zero), zero, x))


def as_jax(first, second, *_):
    return xla.lt_total_order(jax_key(first), jax_key(second))


def as_jax_descending(first, second, *_):
    return xla.lt_total_order(xla.neg(jax_key(first)), xla.neg(jax_key(second)))


def less(first, second, *_):
    return xla.lt(first, second)


def greater(first, second, *_):
    return xla.gt(first, second)


def lexicographic(a, b, c, d, *rest):
    before, equal = xla.lt_total_order(jax_key(a), jax_key(b)), xla.eq_total_order(jax_key(a), jax_key(b))
    later = xla.gt(c, d)
    if len(rest) > 1:
        e, f = rest[:2]
        later = xla.select(xla.eq(c, d), xla.lt_total_order(e, f), later)
    return xla.or_(before, xla.and_(equal, later))


def closeness(a, b, *_):
    """No order by a key: by the distance from the middle, in a way that is not looked through."""
    return xla.lt(xla.abs(a - 50), xla.abs(b - 50))


@pytest.mark.parametrize("kind", [*FLOATS, *SMALL_FLOATS])
@pytest.mark.parametrize("comparator", [total, total_descending, as_jax, as_jax_descending])
def test_floats(kind, comparator):
    if kind is ml_dtypes.float8_e8m0fnu and comparator in (as_jax, as_jax_descending):
        pytest.skip("has no zero")
    rng = np.random.default_rng(0)
    # A row that fills no vector is sorted in one direction as in the other.
    for size in (5, 97, 500)[comparator in (total_descending, as_jax_descending) :]:
        compared(comparator, [any_bits(rng, kind, size)])


@pytest.mark.parametrize("kind", [*INTEGERS, bool, ml_dtypes.int4, ml_dtypes.uint4, ml_dtypes.int2])
@pytest.mark.parametrize("comparator", [less, greater])
def test_integers(kind, comparator):
    rng = np.random.default_rng(1)
    for size in (7, 333):
        compared(comparator, [any_bits(rng, kind, size)])


@pytest.mark.parametrize("size", [0, 1, 2, 3, 16, 17, 95, 96, 97, 300])
@pytest.mark.parametrize("comparator", [as_jax, closeness])
def test_sizes(size, comparator):
    rng = np.random.default_rng(size)
    compared(comparator, [np.round(rng.normal(50, 20, (3, size)) * 4).astype(np.float32)], 1)


@pytest.mark.parametrize("comparator", [total, as_jax, closeness])
@pytest.mark.parametrize("sizes", [(40, 3), (5, 130, 2), (200, 1, 37), (3, 4, 9)])
def test_any_dimension(comparator, sizes):
    rng = np.random.default_rng(2)
    for dimension in range(len(sizes)):
        values = rng.integers(0, 100, sizes).astype(np.float32)
        compared(comparator, [values, np.arange(values.size).reshape(sizes)], dimension)


@pytest.mark.parametrize("kind", [np.int8, np.float32, np.float64])
@pytest.mark.parametrize("others", [[np.int32], [np.int8, np.float16], [np.complex128], [np.int64, np.uint32]])
@pytest.mark.parametrize("size", [60, 700])
def test_others_go_along(kind, others, size):
    rng = np.random.default_rng(3)
    keys = rng.integers(0, 50, (4, size)).astype(kind)
    along = [rng.integers(0, 100, (4, size)).astype(o) for o in others]
    compared(less, [keys, *along], 1)


@pytest.mark.parametrize("size", [64, 400])
@pytest.mark.parametrize("second", [np.int8, np.int32, np.int64])
@pytest.mark.parametrize("count", [2, 3, 4])
def test_several_keys(size, second, count):
    rng = np.random.default_rng(5)
    arrays = [
        any_bits(rng, np.float32, 2, size),
        rng.integers(0, 3, (2, size)).astype(second),
        any_bits(rng, np.float64, 2, size),
        rng.integers(0, 9, (2, size)).astype(np.int16),
    ]
    arrays[0] = np.where(rng.random((2, size)) < 0.8, np.float32(1), arrays[0])
    compared(lexicographic, arrays[:count], 1)


@pytest.mark.parametrize("size", [50, 300])
@pytest.mark.parametrize("kind", [np.complex64, np.complex128])
def test_complex_keys(kind, size):
    def by_parts(a, b):
        return lexicographic(xla.real(a), xla.real(b), xla.imag(a), xla.imag(b))

    def by_sums(a, b):
        return xla.lt(xla.real(a) + xla.imag(a), xla.real(b) + xla.imag(b))

    rng = np.random.default_rng(6)
    real, imag = rng.integers(-2, 3, (2, size)).astype(np.float64)
    compared(by_parts, [(real + 1j * imag).astype(kind)])
    compared(by_sums, [(real + 1j * imag).astype(kind)])


def test_plain_comparisons_put_nan_last_and_keep_zeros():
    rng = np.random.default_rng(7)
    for comparator, size in itertools.product((less, greater), (60, 600)):
        values = any_bits(rng, np.float32, size)
        plan, program = make_sort(comparator, [values], 0)
        result = np.empty_like(values)
        program.run([values, result])
        keys = values if comparator is less else -values
        same_bits(result, values[np.argsort(np.where(keys == 0, 0, keys), kind="stable")], plan.phases)


@pytest.mark.parametrize("comparator", [total, as_jax, lexicographic])
@pytest.mark.parametrize("odd", [False, True])
@pytest.mark.parametrize("inner", [1, 2])
def test_long_rows(comparator, odd, inner, monkeypatch):
    monkeypatch.setattr(sort_plan.LONG_ROW, "default", 3000)
    monkeypatch.setattr(sort_plan.CHUNK, "default", 700)
    rng = np.random.default_rng(8)
    keys = any_bits(rng, np.float32, 4001, inner) if odd else rng.normal(size=(4001, inner)).astype(np.float32)
    compared(comparator, [keys, rng.integers(0, 9, keys.shape).astype(np.int64)], method=Method.PARALLEL_RADIX)
    if comparator is not lexicographic:
        # Where lanes of vectors can be compressed, keys alone go by quicksort.
        with compiling(vector_bytes=32):
            compared(comparator, [keys], method=Method.PARALLEL_RADIX)


def test_digits_that_are_all_alike_are_skipped():
    rng = np.random.default_rng(10)
    for shift, size in itertools.product((0, 8, 24, 56), (1000, 1 << 17)):
        compared(less, [rng.integers(0, 5, size) << shift])


@pytest.mark.parametrize("length", [10, 100, 5000])
def test_a_comparator_that_contradicts_itself(length):
    rng = np.random.default_rng(11)
    values = rng.integers(0, 1 << 16, length).astype(np.uint16)
    for comparator in (lambda a, b: xla.eq((a ^ b) & 1, (a | b) & 1), lambda a, b: xla.le(a * 40503, b * 30011)):
        plan, program = make_sort(comparator, [values], 0)
        assert plan.method is Method.MERGE
        result = np.empty_like(values)
        program.run([values, result], 2)
        assert np.array_equal(np.sort(result), np.sort(values))


def test_runs_of_insertion():
    values = np.arange(sort_merge.RUN.value * 3 + 1)[::-1].astype(np.int32).copy()
    compared(closeness, [values])


def test_operands_that_records_do_not_carry_are_not_written_over():
    rng = np.random.default_rng(11)
    arrays = [any_bits(rng, kind, 300) for kind in (np.float32, np.float64, np.float64)]
    compared(total, arrays, method=Method.RADIX)


def test_keys_of_records_of_different_sizes():
    def both(a, b, c, d):
        return (a < b) | ((a == b) & (c < d))

    rng = np.random.default_rng(12)
    compared(both, [rng.integers(0, 9, 300), rng.integers(0, 99, 300).astype(np.int16)], method=Method.RADIX)
