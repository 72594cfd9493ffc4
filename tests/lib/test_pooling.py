"""Pooling and packed integers against NumPy; the gradient is the adjoint of the average."""

import itertools

import ml_dtypes
import numpy as np
import pytest
from both_backends import plain, run

import xlakit as xla
from xlakit.lib import pooling, quantize

NHWC = pooling.TensorFormat(0, 3, [1, 2])
NCW = pooling.TensorFormat(0, 1, (2,))


def pooled(x, kernel, stride, padding, reduce):
    """``reduce`` on the elements inside of each placement, which has all padding in it."""
    counts = [(n + sum(p) - k) // s + 1 for n, p, k, s in zip(x.shape, padding, kernel, stride, strict=True)]
    result = np.zeros(counts, x.dtype)
    for place in itertools.product(*map(range, counts)):
        starts = [i * s - low for i, s, (low, _) in zip(place, stride, padding, strict=True)]
        result[place] = reduce(x[tuple(slice(max(a, 0), max(a + k, 0)) for a, k in zip(starts, kernel, strict=True))])
    return result


CASES = [
    (NHWC, (2, 7, 6, 3), (1, 3, 2, 1), (1, 2, 3, 1)),
    (NCW, (2, 3, 9), (1, 1, 4), (1, 1, 2)),
    (NCW, (2, 0, 5), (1, 1, 2), (1, 1, 1)),
]


@pytest.mark.parametrize(("form", "shape", "kernel", "stride"), CASES)
@pytest.mark.parametrize("dtype", [np.float64, np.int8])
def test_the_greatest_element(form, shape, kernel, stride, dtype):
    x = np.random.default_rng(1).integers(-90, 90, shape).astype(dtype)
    if dtype == np.float64 and x.size:
        x[0, 1, 0] = np.nan
    for padding in ("SAME", "VALID"):
        spatial = pooling.make_spatial_padding(shape, kernel, stride, padding, form)
        pairs = [(0, 0)] * len(shape)
        for d, pair in zip(form.spatial_dimensions, spatial, strict=True):
            pairs[d] = pair
        found = run(lambda a, p=padding: pooling.max_pool(a, kernel, stride, p, form), x)
        np.testing.assert_array_equal(found, pooled(x, kernel, stride, pairs, np.max))


@pytest.mark.parametrize(("form", "shape", "kernel", "stride"), CASES)
@pytest.mark.parametrize("with_padding", [False, True])
def test_averages_and_their_gradient(form, shape, kernel, stride, with_padding):
    spatial = [(1, 2), (2, 0)][: len(form.spatial_dimensions)]
    pairs = [(0, 0)] * len(shape)
    for d, pair in zip(form.spatial_dimensions, spatial, strict=True):
        pairs[d] = pair
    rng = np.random.default_rng(2)
    x = rng.normal(size=shape)
    average = run(lambda a: pooling.avg_pool(a, kernel, stride, spatial, form, with_padding), x, exact=False)
    count = np.prod(kernel)
    with np.errstate(invalid="ignore"):
        expected = pooled(x, kernel, stride, pairs, lambda a: a.sum() / (count if with_padding else a.size))
    np.testing.assert_allclose(average, expected, atol=1e-12)
    back = rng.normal(size=average.shape)

    def gradient(g):
        return pooling.avg_pool_grad(g, shape, kernel, stride, spatial, form, with_padding)

    # A window with no element inside takes nothing from the array, and its average is NaN.
    here = np.isfinite(average)
    found = run(gradient, np.where(here, back, 0), exact=False)
    assert found.shape == shape
    known = np.nan_to_num(average)
    np.testing.assert_allclose((known * back)[here].sum(), (x * np.nan_to_num(found)).sum(), atol=1e-10)


def test_averages_of_integers_and_short_floats():
    x = np.array([[[7, 8, -8, 3, 1]]])
    whole = run(lambda a: pooling.avg_pool(a, [1, 1, 2], [1, 1, 2], [(1, 0)], NCW, False), x.astype(np.int32))
    assert whole.tolist() == [[[7, 0, 2]]]
    short = run(lambda a: pooling.avg_pool(a, [1, 1, 2], [1, 1, 2], [(1, 0)], NCW, True), x.astype(ml_dtypes.bfloat16))
    np.testing.assert_array_equal(plain(short), [[[3.5, 0, 2]]])


def test_windows_that_do_not_fit():
    x = np.zeros((2, 3, 9))
    for kernel, stride in (([1, 1], [1, 1, 1]), ([1, 1, 0], [1, 1, 1]), ([1, 1, 2], [1, 1, 0])):
        with pytest.raises(xla.ShapeError, match="windows of"):
            run(lambda a, k=kernel, s=stride: pooling.max_pool(a, k, s, "SAME", NCW), x)
    with pytest.raises(xla.ShapeError, match="spatial dimensions"):
        run(lambda a: pooling.avg_pool(a, [1, 1, 2], [1, 1, 1], [(-1, 0)], NCW, True), x)
    with pytest.raises(xla.ShapeError, match="the result has"):
        run(lambda a: pooling.avg_pool_grad(a, [2, 3, 8], [1, 1, 2], [1, 1, 1], [(0, 0)], NCW, True), x)
    with pytest.raises(xla.ShapeError, match="name each one once"):
        pooling.TensorFormat(0, 0, [1])


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
@pytest.mark.parametrize("shape", [(8,), (3, 16), (2, 0)])
def test_packed_integers(dtype, shape):
    integers = np.random.default_rng(3).integers(0, np.iinfo(dtype).max, shape, endpoint=True).astype(dtype)
    count = 4 // integers.itemsize
    words = quantize.pack_to_uint32(integers.reshape(-1)).reshape(*shape[:-1], -1)
    if integers.size:
        assert words.reshape(-1)[0] >> 32 - 8 * integers.itemsize == integers.reshape(-1)[0]
    bounds = quantize.QuantizedRange(-1.5, 3.3)
    kind = xla.PrimitiveType.from_dtype(integers.dtype)
    flat, turned = run(
        lambda w: [quantize.dequantize(w, bounds, transpose_output=t, type=kind) for t in (False, True)], words
    )
    assert words.size * count == integers.size
    bf16 = ml_dtypes.bfloat16
    low, high = bf16(-1.5), bf16(3.3)
    expected = integers.astype(bf16) * ((high - low) / np.asarray(np.iinfo(dtype).max, bf16)) + low
    np.testing.assert_array_equal(plain(flat), plain(expected))
    np.testing.assert_array_equal(plain(turned), plain(flat).T)


def test_words_that_cannot_be_unpacked():
    bounds = quantize.QuantizedRange(0, 1)
    assert quantize.QuantizedRange() == quantize.QuantizedRange(0.0, 0.0)
    assert quantize.pack_to_uint32(np.array([1, 2, 3, 4, 5], np.uint8)).tolist() == [0x01020304, 0x05000000]
    with pytest.raises(xla.ArgumentError, match="only mode"):
        run(lambda w: quantize.dequantize(w, bounds, "SCALED"), np.zeros(3, np.uint32))
    for words, kind in ((np.zeros(3, np.int32), xla.U8), (np.uint32(1), xla.U8), (np.zeros(3, np.uint32), xla.S8)):
        with pytest.raises(xla.ShapeError):
            run(lambda w, t=kind: quantize.dequantize(w, bounds, type=t), words)
    with pytest.raises(xla.ArgumentError, match="vector of uint8"):
        quantize.pack_to_uint32(np.zeros((2, 2), np.uint8))
