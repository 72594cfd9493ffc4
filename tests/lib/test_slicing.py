"""Parts of arrays against NumPy."""

import ml_dtypes
import numpy as np
import pytest
from both_backends import plain, run

import xlakit as xla
from xlakit.lib import slicing

X = np.arange(60, dtype=np.int16).reshape(3, 4, 5)


def test_slices_in_minor_dimensions():
    def program(x, update, i, j):
        return [
            slicing.slice_in_minor_dims(x, [1, 2], [3, 2]),
            slicing.slice_in_minor_dims(x, [], []),
            slicing.dynamic_slice_in_minor_dims(x, [i, 9], [2, 3]),
            slicing.update_slice(x, update, [2, 2, 3]),
            slicing.update_slice_in_minor_dims(x, update, [1, 0]),
            slicing.dynamic_update_slice_in_minor_dims(x, update, [j, i]),
            slicing.dynamic_strided_slice(x, [0, i, j], [3, 3, 4], [2, 1, 3]),
        ]

    update = -np.ones((1, 2, 2), np.int16)
    found = run(program, X, update, np.uint8(1), np.uint8(1))
    expected = [X.copy() for _ in range(3)]
    expected[0][2:, 2:, 3:] = expected[1][:1, 1:3, :2] = expected[2][:1, 1:3, 1:3] = update
    parts = [X[..., 1:3, 2:2], X, X[..., 1:3, 2:], *expected, X[::2, 1:4, 1:5:3]]
    for a, b in zip(found, parts, strict=True):
        np.testing.assert_array_equal(a, b)


def test_slices_outside_are_errors():
    for function in (
        lambda x: slicing.update_slice(x, x, [1, 0, 0]),
        lambda x: slicing.update_slice_in_minor_dims(x, x, [0, 0, 0, 0]),
        lambda x: slicing.slice_in_minor_dims(x, [0], [6]),
        lambda x: slicing.dynamic_slice_in_minor_dims(x, [0] * 4, [1] * 4),
        lambda x: slicing.concat_vectors(x, x),
    ):
        with pytest.raises(xla.ShapeError):
            run(function, X)


def test_vectors_one_after_the_other():
    a, b = np.arange(3), np.arange(0)
    np.testing.assert_array_equal(run(slicing.concat_vectors, a, b), a)


@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize("dim", [0, -1])
@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.complex64, np.bool_, np.uint64])
def test_elements_at_positions_along_a_dimension(dtype, dim, sparse):
    rng = np.random.default_rng(1)
    x = (rng.integers(-3, 4, (3, 4, 5)) * np.float32(-0.0 if dtype != np.uint64 else 1)).astype(dtype)
    x = np.where(rng.random(x.shape) < 0.5, x, rng.integers(0, 9, x.shape).astype(dtype))
    sizes = list(x.shape)
    sizes[dim] = 7
    index = rng.integers(0, x.shape[dim], sizes).astype(np.uint8)
    found = run(lambda a, i: slicing.torch_gather(a, i, dim, sparse), x, index)
    expected = np.take_along_axis(x, index.astype(int), dim)
    np.testing.assert_array_equal(plain(found), plain(expected))
    if xla.PrimitiveType.from_dtype(x.dtype).is_floating:
        np.testing.assert_array_equal(np.signbit(plain(found)), np.signbit(plain(expected)))


def test_positions_outside():
    x = np.array([np.nan, 1, 2], np.float32)
    index = np.array([-1, 3, 0, 2**31 - 1], np.int32)
    near, none = run(lambda a, i: [slicing.torch_gather(a, i, 0, s) for s in (True, False)], x, index)
    np.testing.assert_array_equal(near, [np.nan, 2, np.nan, 2])
    np.testing.assert_array_equal(none, [0, 0, np.nan, 0])
    for sparse in (True, False):
        assert not run(lambda a, i, s=sparse: slicing.torch_gather(a, i, 0, s), x[:0], index).any()
    assert not run(lambda a, i: slicing.torch_index_select(a, i, 0), x[:0], index).any()
    # Positions of 8 bits do not come again beyond 256.
    long = np.arange(300, dtype=np.float32)
    assert run(lambda a, i: slicing.torch_gather(a, i, 0, False), long, np.array([44], np.uint8)) == 44


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_elements_combined_at_positions(dim):
    rng = np.random.default_rng(2)
    sizes = list(X.shape)
    sizes[dim] = 6
    index = rng.integers(-1, X.shape[dim] + 1, sizes).astype(np.int32)
    src = rng.integers(-9, 9, sizes).astype(np.int16)
    results = run(
        lambda a, i, s: [slicing.torch_scatter_dense(a, i, s, dim, c) for c in (xla.add, xla.max)], X, index, src
    )
    for found, combine in zip(results, (np.add, np.maximum), strict=True):
        expected = X.copy()
        for place in np.ndindex(*sizes):
            target = (*place[:dim], index[place], *place[dim + 1 :])
            if 0 <= index[place] < X.shape[dim]:
                expected[target] = combine(expected[target], src[place])
        np.testing.assert_array_equal(found, expected)


def test_entries_at_indices():
    index = np.array([3, 0, 0, 9, -2], np.int64)
    found = run(lambda a, i: slicing.torch_index_select(a, i, 1), X, index)
    np.testing.assert_array_equal(found, X[:, np.clip(index, 0, 3)])
    batched = np.array([[1, 0], [4, 4], [2, 3]], np.uint16)
    found = run(lambda a, i: slicing.torch_index_select(a, i, -1, 1), X, batched)
    np.testing.assert_array_equal(found, np.take_along_axis(X, batched[:, None, :].astype(int), 2))
    assert run(lambda a, i: slicing.torch_index_select(a, i, 2), X, index[:0]).shape == (3, 4, 0)
    for i, dim, batch in ((index, 0, 1), (batched, 1, 0), (index.astype(float), 1, 0), (batched[:2], 1, 1)):
        with pytest.raises(xla.ShapeError, match="does not select"):
            run(lambda a, j, d=dim, b=batch: slicing.torch_index_select(a, j, d, b), X, i)
    with pytest.raises(xla.ShapeError, match="does not index"):
        run(lambda a, i: slicing.torch_gather(a, i, 0), X, index)
    with pytest.raises(xla.ShapeError, match="same sizes"):
        run(lambda a, i: slicing.torch_scatter_dense(a, i, a[0], 0, xla.add), X, X)
