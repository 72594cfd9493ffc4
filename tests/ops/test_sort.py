"""Sort by any comparator, and TopK."""

import ml_dtypes
import numpy as np
import pytest
from evaluating import evaluate, infer, refused, same, shape

import xlakit as xla
from xlakit.builder.xla_builder import trace

ODD = np.array([3, np.nan, 1, -np.nan, 0.0, -0.0, np.inf, np.nan, -1, -np.inf], np.float32)
IN_ORDER = np.array([-np.nan, -np.inf, -1, -0.0, 0.0, 1, 3, np.inf, np.nan, np.nan], np.float32)


def lexicographic(a, b, c, d, *_):
    return xla.or_(xla.lt(a, b), xla.and_(xla.eq(a, b), xla.lt(c, d)))


@pytest.mark.parametrize("seed", range(15))
def test_a_comparator_of_several_keys(seed):
    rng = np.random.default_rng(seed)
    sizes = [int(n) for n in rng.integers(1, 12, rng.integers(1, 4))]
    dimension = int(rng.integers(0, len(sizes)))
    first = rng.integers(0, 4, sizes).astype(np.int32)
    second = rng.integers(0, 4, sizes).astype(np.float32)
    place = np.arange(first.size, dtype=np.int64).reshape(sizes)
    results = evaluate(lambda *o: xla.sort(o, lexicographic, dimension, True), first, second, place)
    order = np.lexsort((place, second, first), axis=dimension)
    for result, operand in zip(results, (first, second, place), strict=True):
        same(result, np.take_along_axis(operand, order, dimension))


@pytest.mark.parametrize(
    ("comparator", "sign"),
    [
        (lambda a, b, c, d: xla.lt(a, b), 1),
        (lambda a, b, c, d: xla.gt(b, a), 1),
        (lambda a, b, c, d: xla.gt(a, b), -1),
        (lambda a, b, c, d: xla.lt(xla.neg(a), xla.neg(b)), -1),
        (lambda a, b, c, d: xla.lt(a * 3 + 1, b * 3 + 1), 1),
        (lambda a, b, c, d: xla.lt(a + b, b + b), 1),  # no key of one element
        (lambda a, b, c, d: xla.not_(xla.ge(a, b)), 1),
    ],
)
def test_equal_elements_keep_their_order(comparator, sign):
    rng = np.random.default_rng(0)
    for size in (0, 1, 2, 3, 8, 37):
        keys = rng.integers(-3, 3, (4, size)).astype(np.int32)
        place = np.broadcast_to(np.arange(size, dtype=np.int32), keys.shape).copy()
        results = evaluate(lambda k, p: xla.sort([k, p], comparator), keys, place)
        order = np.argsort(sign * keys, axis=-1, kind="stable")
        same(results[0], np.take_along_axis(keys, order, -1))
        same(results[1], np.take_along_axis(place, order, -1))


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16])
def test_the_default_is_the_total_order(kind):
    same(evaluate(xla.sort, ODD.astype(kind)), IN_ORDER.astype(kind))


@pytest.mark.parametrize("kind", [np.bool_, np.uint8, np.int64, ml_dtypes.int4, ml_dtypes.float4_e2m1fn])
def test_other_types(kind):
    values = np.array([1, 0, 3, 2, 1, 0]).astype(kind)
    same(evaluate(xla.sort, values), np.sort(values.astype(np.int64)).astype(kind))


def test_unsigned_and_extreme_integers():
    unsigned = np.array([2**63, 1, 2**64 - 1, 0], np.uint64)
    same(evaluate(lambda o: xla.sort(o, xla.gt), unsigned), np.sort(unsigned)[::-1])
    signed = np.array([0, -(2**63), 2**63 - 1, -1], np.int64)
    same(evaluate(lambda o: xla.sort(o, xla.gt), signed), np.sort(signed)[::-1])


@pytest.mark.parametrize("comparator", [xla.lt, lambda a, b: xla.eq(a, a), xla.ne, xla.le])
def test_an_inconsistent_comparator_still_gives_a_permutation(comparator):
    values = np.concatenate([ODD, np.arange(27, dtype=np.float32)])
    result = evaluate(lambda o: xla.sort(o, comparator), values)
    same(np.sort(np.abs(result)), np.sort(np.abs(values)))


def test_rules_of_sort():
    vector, matrix = shape(xla.F32, 4), shape(xla.F32, 4, 2)
    assert infer(lambda a, b: xla.sort([a, b]), shape(xla.S8, 4), vector) == "(s8[4], f32[4])"
    refused("same dimensions", lambda a, b: xla.sort([a, b]), vector, matrix)
    refused("out of range", lambda a: xla.sort(a, dimension=2), matrix)
    refused("scalar", xla.sort, shape(xla.F32))
    refused("must give pred", lambda a: xla.sort(a, xla.add), vector)
    comparator = trace(xla.lt, [shape(xla.S32), shape(xla.S32)])
    refused("not a f32 scalar", lambda a: xla.sort(a, comparator), vector)
    refused("4 are needed", lambda a, b: xla.sort([a, b], comparator), vector, vector)


def by_bits(a, b, *_):
    """The comparator of framework code: floats by their bits, which order them as integers but for the sign."""

    def key(x):
        bits = xla.bitcast_convert_type(x, xla.S32)
        negative = xla.lt(bits, 0)
        turned = xla.sub(np.uint32(2**31 - 1), xla.bitcast_convert_type(x, xla.U32))
        return xla.select(negative, xla.bitcast_convert_type(turned, xla.S32), bits)

    return xla.gt(key(a), key(b))


def test_a_comparator_of_bits_runs_on_whole_arrays():
    assert trace(by_bits, [shape(xla.F32), shape(xla.F32)]).computation.is_pointwise
    same(evaluate(lambda o: xla.sort(o, by_bits), ODD), IN_ORDER[::-1])
    values = np.random.default_rng(0).standard_normal(200_000).astype(np.float32)
    same(evaluate(lambda o: xla.sort(o, by_bits), values), np.sort(values)[::-1])


# -- TopK -----------------------------------------------------------------------------------------


def test_top_k_takes_the_total_order_and_the_lower_position_first():
    values = np.array([1, np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 1, 3, np.nan, 0.0], np.float32)
    largest, places = evaluate(lambda o: xla.top_k(o, 11), values)
    same(places, np.array([1, 9, 3, 8, 0, 7, 5, 10, 6, 4, 2], np.int32))
    same(largest, values[places])
    smallest, places = evaluate(lambda o: xla.top_k(o, 10, largest=False), values)
    same(places, np.array([2, 4, 6, 5, 10, 0, 7, 8, 3, 1], np.int32))
    same(smallest, values[places])


@pytest.mark.parametrize("kind", [np.bool_, np.uint8, np.int64, np.float64, ml_dtypes.bfloat16, ml_dtypes.int4])
def test_top_k_of_rows(kind):
    values = np.array([[1, 0, 1, 0], [0, 1, 1, 1]]).astype(kind)
    largest, places = evaluate(lambda o: xla.top_k(o, 3), values)
    same(places, np.array([[0, 2, 1], [1, 2, 3]], np.int32))
    same(largest, np.take_along_axis(values, places, -1))


def test_rules_of_top_k():
    assert infer(lambda o: xla.top_k(o, 2), shape(xla.BF16, 3, 5)) == "(bf16[3,2], s32[3,2])"
    refused("from 0 to the size 5", lambda o: xla.top_k(o, 6), shape(xla.F32, 5))
    refused("from 0 to the size 5", lambda o: xla.top_k(o, -1), shape(xla.F32, 5))
    refused("rank 1 or more", lambda o: xla.top_k(o, 0), shape(xla.F32))
    refused("top-k|topk: complex numbers have no order", lambda o: xla.top_k(o, 1), shape(xla.C64, 5))
