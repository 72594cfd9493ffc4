"""The kernel of scatter, against the interpreter."""

import ml_dtypes
import numpy as np
import pytest
from cpu.agreeing import agree, numbers
from evaluating import build, shape_of

import xlakit as xla
from xlakit.cpu.kernels.scatter.plan import Sharing, plan_scatter


def overwrite(old, new):
    return new


def by_rows(combine, **options):
    """Adds windows that are rows."""

    def function(x, i, u):
        return xla.scatter(
            x,
            i,
            u,
            combine,
            index_vector_dim=1,
            update_window_dims=[1],
            inserted_window_dims=[0],
            scatter_dims_to_operand_dims=[0],
            **options,
        )

    return function


def by_elements(combine, **options):
    def function(x, i, u):
        return xla.scatter(
            x, i, u, combine, index_vector_dim=1, inserted_window_dims=[0], scatter_dims_to_operand_dims=[0], **options
        )

    return function


def places(bound, *sizes, kind=np.int32):
    """Some of them outside."""
    return np.random.default_rng(5).integers(-1, bound + 1, sizes).astype(kind)


def plan(function, *values):
    computation = build(function, *(shape_of(v) for v in values))
    return plan_scatter(computation.computation.root)


def sharing(function, *values):
    return plan(function, *values).sharing


@pytest.mark.parametrize("kind", [np.int8, np.float32, ml_dtypes.bfloat16, np.complex64, np.int64])
@pytest.mark.parametrize("combine", [xla.add, overwrite, lambda a, b: a * b - a])
def test_rows(kind, combine):
    values = numbers(kind, 50, 100), places(50, 20), numbers(kind, 20, 100, seed=1)
    agree(by_rows(combine), *values)


@pytest.mark.parametrize(
    ("width", "way"), [(3, Sharing.ALONE), (64, Sharing.ALONE), (512, Sharing.TARGETS), (4096, Sharing.WINDOW)]
)
def test_rows_shared_by_tasks(width, way):
    count = 40_000 // width + 5
    values = numbers(np.float32, 30, width), places(30, count), numbers(np.float32, count, width, seed=1)
    assert sharing(by_rows(xla.add), *values) is way
    agree(by_rows(xla.add), *values)


@pytest.mark.parametrize("combine", [xla.add, xla.max, xla.min, overwrite])
@pytest.mark.parametrize("kind", [np.int32, np.uint8, np.float32, ml_dtypes.bfloat16])
def test_a_histogram(kind, combine):
    values = numbers(kind, 100), places(100, 20_000), np.ones(20_000, kind)
    if kind is ml_dtypes.bfloat16 and combine is xla.add:
        values = (values[0], values[1], (np.arange(20_000) % 200 == 0).astype(kind))
    assert (sharing(by_elements(combine), *values) is Sharing.PARTS) == (combine is not overwrite)
    agree(by_elements(combine), *values)


def test_updates_that_do_not_meet_are_shared():
    values = (
        numbers(np.float32, 30_000),
        np.random.default_rng(0).permutation(30_000),
        numbers(np.float32, 30_000, seed=1),
    )
    function = by_elements(xla.add, unique_indices=True)
    assert sharing(function, *values) is Sharing.UPDATES
    agree(function, *values)


@pytest.mark.parametrize("kind", [np.uint8, np.int64, np.uint64])
def test_indices_of_all_types(kind):
    i = np.array([0, 3, 99, 100, 200, 255], kind)
    if kind == np.uint64:
        i[5] = 2**64 - 1
    agree(by_elements(xla.add), numbers(np.float32, 250), i, numbers(np.float32, 6))


def test_windows_anywhere():
    def function(x, i, u):
        return xla.scatter(
            x, i, u, xla.add, index_vector_dim=0, update_window_dims=[0, 2], scatter_dims_to_operand_dims=[1, 0]
        )

    agree(function, numbers(np.float32, 20, 30), places(28, 2, 9), numbers(np.float32, 3, 9, 4, seed=1))


def test_windows_that_may_overlap_are_not_shared():
    """Those of different updates would meet at the borders between tasks."""

    def anywhere(x, i, u):
        return xla.scatter(
            x, i, u, xla.add, index_vector_dim=1, update_window_dims=[1, 2], scatter_dims_to_operand_dims=[0, 1]
        )

    def two_rows(x, i, u):
        return xla.scatter(
            x, i, u, xla.add, index_vector_dim=1, update_window_dims=[1, 2], scatter_dims_to_operand_dims=[0]
        )

    u = numbers(np.float32, 5, 2, 4096)
    assert sharing(anywhere, numbers(np.float32, 20, 4200), places(18, 5, 2), u) is Sharing.ALONE
    found = plan(two_rows, numbers(np.float32, 20, 4096), places(18, 5), u)
    # Both rows together begin at different positions.
    assert (found.sharing, found.window[-1].extent) == (Sharing.WINDOW, 4096)


def test_batches_in_another_order_than_the_indices():
    def function(x, i, u):
        return xla.scatter(
            x,
            i,
            u,
            xla.add,
            index_vector_dim=3,
            inserted_window_dims=[2],
            scatter_dims_to_operand_dims=[2],
            input_batching_dims=[0, 1],
            scatter_indices_batching_dims=[1, 0],
        )

    agree(function, numbers(np.float32, 6, 5, 70), places(70, 5, 6, 9), numbers(np.float32, 5, 6, 9, seed=1))


def test_batches():
    def function(x, i, u):
        return xla.scatter(
            x,
            i,
            u,
            xla.add,
            index_vector_dim=2,
            inserted_window_dims=[1],
            scatter_dims_to_operand_dims=[1],
            input_batching_dims=[0],
            scatter_indices_batching_dims=[1],
        )

    agree(function, numbers(np.float32, 40, 70), places(70, 500, 40), numbers(np.float32, 500, 40, seed=1))


def test_several_arrays_at_once():
    def function(x, y, i, u, v):
        made = xla.scatter(
            [x, y],
            i,
            [u, v],
            lambda a, b, c, d: (xla.max(a, c), xla.select(xla.gt(c, a), d, b)),
            index_vector_dim=1,
            inserted_window_dims=[0],
            scatter_dims_to_operand_dims=[0],
        )
        return [xla.get_tuple_element(made, n) for n in (0, 1)]

    x, u = numbers(np.float32, 30), numbers(np.float32, 200, seed=1)
    agree(function, x, np.zeros(30, np.int32), places(30, 200), u, np.arange(200, dtype=np.int32))
