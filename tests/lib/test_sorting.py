"""The greatest elements, exactly and approximately."""

import jax
import ml_dtypes
import numpy as np
import pytest
from both_backends import plain, run

import xlakit as xla
from xlakit.lib import approx_topk, comparators, sorting


def expected_top_k(x, k):
    keys = plain(x)
    if keys.dtype.kind == "f":
        # In total order, NaN of either sign and -0 before 0.
        bits = x.view(f"i{x.dtype.itemsize}").astype(np.int64)
        keys = np.where(bits < 0, bits ^ np.iinfo(np.int64).max >> 64 - 8 * x.dtype.itemsize, bits)
    order = np.argsort(~keys, axis=-1, kind="stable")[..., :k]
    return np.take_along_axis(x, order, -1), order


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, np.int8])
@pytest.mark.parametrize(("shape", "k", "partitions"), [((2, 0, 9), 2, 2), ((3, 40), 5, 6), ((7,), 7, 3)])
def test_the_greatest_elements(dtype, shape, k, partitions):
    rng = np.random.default_rng(3)
    x = rng.integers(0, 6, shape).astype(dtype)
    if dtype != np.int8:
        special = np.array([np.nan, -np.nan, np.inf, -np.inf, -0.0]).astype(dtype)
        x = np.where(rng.random(shape) < 0.3, rng.choice(special, shape), x)
    values, places = expected_top_k(x, k)
    for found in (
        run(lambda a: list(sorting.top_k(a, k, xla.S64)), x),
        run(lambda a: list(sorting.top_k_with_partitions(a, k, partitions, xla.S64)), x),
    ):
        np.testing.assert_array_equal(plain(found[0]), plain(values))
        np.testing.assert_array_equal(found[1], places)


def test_what_has_no_greatest_elements():
    for k, partitions, kind in ((4, 1, xla.S32), (1, 0, xla.S32), (1, 1, xla.F32), (-1, 2, xla.S32)):
        with pytest.raises(xla.ShapeError):
            run(lambda a, k=k, p=partitions, t=kind: sorting.top_k_with_partitions(a, k, p, t), np.zeros(3))
    with pytest.raises(xla.ShapeError, match="does not number"):
        run(lambda a: sorting.top_k(a, 1, xla.S8), np.zeros(200))


def test_sizes_of_reductions_are_those_of_jaxlib():
    rng = np.random.default_rng(4)
    for _ in range(40):
        rank, size, recall = rng.integers(1, 3), int(10 ** rng.uniform(1, 6)), rng.choice([0.5, 0.9, 0.99, 1.0])
        k, override = int(rng.integers(1, min(size, 200))), int(rng.choice([-1, size * 3, size * 50]))
        x = jax.ShapeDtypeStruct((2,) * (rank - 1) + (size,), np.float32)
        settings = {"recall_target": float(recall), "reduction_input_size_override": override}
        theirs = jax.eval_shape(lambda a, k=k, s=settings: jax.lax.approx_max_k(a, k, aggregate_to_topk=False, **s), x)
        ours, _ = approx_topk.approx_top_k_reduction_output_size(size, rank, k, recall, False, override)
        assert ours == theirs[0].shape[-1], (size, rank, k, recall, override)
    assert approx_topk.approx_top_k_reduction_output_size(10, 1, 3, 0.9) == (3, -1)
    # More than there are, where a part is short of two tiles; all are kept then.
    assert approx_topk.approx_top_k_reduction_output_size(1928, 1, 20, 0.95, False, 15424) == (2048, 0)
    found = run(
        lambda a: approx_topk.approx_top_k(
            [a], [xla.constant(a.builder, np.float32(-np.inf))], 20, 0, xla.gt, 0.95, False, 15424
        )[0],
        np.arange(1928, dtype=np.float32),
    )
    assert found.shape == (1928,)
    for recall, override in ((0.0, -1), (1.5, -1), (0.9, 9)):
        with pytest.raises(xla.ArgumentError):
            approx_topk.approx_top_k_reduction_output_size(10, 1, 3, recall, False, override)


def greatest(function, x, k, dimension, **options):
    comparator = comparators.create_scalar_gt_computation([xla.F32, xla.S32])
    index = np.broadcast_to(
        np.arange(x.shape[dimension], dtype=np.int32).reshape([-1, *[1] * (x.ndim - 1 - dimension)]), x.shape
    )
    return run(
        lambda a, i: function(
            [a, i],
            [xla.constant(a.builder, np.float32(-np.inf)), xla.constant(a.builder, np.int32(-1))],
            k,
            dimension,
            comparator,
            **options,
        ),
        x,
        index,
    )


@pytest.mark.parametrize(("shape", "dimension"), [((6000,), 0), ((1001, 3), 0)])
def test_most_of_the_greatest_elements_are_found(shape, dimension):
    x = np.random.default_rng(5).permutation(np.prod(shape)).reshape(shape).astype(np.float32)
    exact = greatest(approx_topk.approx_top_k_fallback, x, 20, dimension)
    best = -np.sort(-x, dimension).take(range(20), dimension)
    np.testing.assert_array_equal(exact[0], best)
    found = greatest(approx_topk.approx_top_k, x, 20, dimension, recall_target=0.8)
    np.testing.assert_array_equal(np.take_along_axis(x, found[1], dimension), found[0])
    assert (np.diff(found[0], axis=dimension) < 0).all()
    rows = zip(
        np.moveaxis(found[0], dimension, -1).reshape(-1, 20),
        np.moveaxis(best, dimension, -1).reshape(-1, 20),
        strict=True,
    )
    assert np.mean([len(set(a) & set(b)) / 20 for a, b in rows]) >= 0.75
    bins = greatest(approx_topk.approx_top_k, x, 20, dimension, recall_target=0.8, aggregate_to_topk=False)
    kept, log2 = approx_topk.approx_top_k_reduction_output_size(shape[dimension], len(shape), 20, 0.8, False)
    assert bins[0].shape[dimension] == kept < shape[dimension] and log2 > 0
    # Each bin keeps the first of its own.
    np.testing.assert_array_equal(np.take_along_axis(x, bins[1], dimension), bins[0])
    for b in (0, kept - 1):
        column = x.take(range(b, shape[dimension], kept), dimension)
        np.testing.assert_array_equal(column.max(dimension), bins[0].take(b, dimension))


def test_one_array_and_rows_of_infinities():
    x = np.full(3000, -np.inf, np.float32)
    found = run(
        lambda a: approx_topk.approx_top_k([a], [xla.constant(a.builder, np.float32(np.inf))], 2, -1, xla.lt), x
    )
    np.testing.assert_array_equal(found[0], x[:2])
    with pytest.raises(xla.ShapeError):
        run(lambda a: approx_topk.approx_top_k([a], [], 2, 0, xla.lt), x)
    with pytest.raises(xla.ShapeError):
        run(lambda a: approx_topk.approx_top_k([a], [a[0]], 3001, 0, xla.lt), x)
