"""Conditionals whose branches give arrays of different sizes."""

import numpy as np
import pytest
from evaluating import build, compiled

import xlakit as xla
from xlakit.lib.dynamic_shaped_ops import (
    dynamic_conditional,
    set_all_dimension_sizes,
    set_dimension_size_with_rebound,
)

X = np.arange(6, dtype=np.float32)


def run(function, *arguments):
    return compiled(build(function, *(xla.make_shape(a.dtype, a.shape) for a in map(np.asarray, arguments))))(
        *arguments
    )


@pytest.mark.parametrize("backend", ["interpreter", "cpu"], indirect=True)
def test_branches_of_different_sizes(backend):
    def halves(p, x):
        return dynamic_conditional(p, x, lambda a: xla.neg(a[:2]), x, lambda a: a)

    assert run(halves, True, X).tolist() == [0, -1]
    assert run(halves, False, X).tolist() == X.tolist()

    def parts(i, x):
        branches = [lambda a, n=n: xla.tuple_(a[:n].reshape(n, 1), a[n]) for n in (3, 0, 5)]
        result = dynamic_conditional(i, branches, [x] * 3)
        # What follows sees only the elements that there are.
        return [result[0], result[1], xla.reduce(result[0], 0, xla.add, [0, 1])]

    for i, n in ((0, 3), (1, 0), (2, 5), (-1, 5)):
        array, element, total = run(parts, np.int32(i), X)
        assert (array.tolist(), element, total) == ([[v] for v in X[:n]], n, sum(range(n)))


@pytest.mark.parametrize("backend", ["interpreter", "cpu"], indirect=True)
def test_dynamic_and_equal_sizes(backend):
    def one_is_dynamic(p, x, n):
        smaller = lambda a: xla.set_dimension_size(a[0][:4], a[1], 0)  # noqa: E731
        return dynamic_conditional(p, xla.tuple_(x, n), smaller, x, lambda a: a)

    assert run(one_is_dynamic, True, X, np.int32(3)).tolist() == [0, 1, 2]
    assert run(one_is_dynamic, False, X, np.int32(3)).tolist() == X.tolist()
    equal = build(
        lambda p, x: dynamic_conditional(p, x, xla.neg, x, xla.exp),
        xla.make_shape(bool, ()),
        xla.make_shape(X.dtype, (6,)),
    )
    assert not equal.program_shape.result.is_dynamic


def test_results_that_have_nothing_in_common():
    for second in (
        lambda a: a.reshape(2, 3),
        lambda a: xla.convert_element_type(a, xla.S32),
        lambda a: xla.tuple_(a, a),
    ):
        with pytest.raises(xla.ShapeError, match="branches give"):
            run(lambda p, x, s=second: dynamic_conditional(p, x, lambda a: a[:2], x, s), True, X)
    with pytest.raises(xla.ShapeError, match="1 branches have 2 operands"):
        run(lambda i, x: dynamic_conditional(i, [xla.neg], [x, x]), np.int32(0), X)
    with pytest.raises(xla.ArgumentError, match="3 or 5"):
        run(dynamic_conditional, True, X)


@pytest.mark.parametrize("backend", ["interpreter", "cpu"], indirect=True)
def test_bounds_become_less_where_sizes_are_known_to_be_less(backend):
    def cut(x, n):
        return set_dimension_size_with_rebound(x, xla.min(n, 4), 0)

    assert build(cut, *shapes(X, np.int32(0))).program_shape.result == xla.make_shape(
        xla.F32, (4,), dynamic_dimensions=[True]
    )
    for n, expected in ((3, [0, 1, 2]), (0, []), (9, [0, 1, 2, 3])):
        assert run(cut, X, np.int32(n)).tolist() == expected
    unknown = build(lambda x, n: set_dimension_size_with_rebound(x, n, 0), *shapes(X, np.int32(0)))
    assert unknown.program_shape.result.dimensions == (6,)


@pytest.mark.parametrize("backend", ["interpreter", "cpu"], indirect=True)
def test_a_vector_of_sizes_makes_dimensions_dynamic_where_it_varies(backend):
    def sized(x, n):
        sizes = xla.concat_in_dim([xla.constant(n.builder, np.int64([2])), xla.clamp(1, n, 2).reshape(1)], 0)
        return set_all_dimension_sizes(x.reshape(2, 3), sizes)

    shape = build(sized, *shapes(X, np.int64(0))).program_shape.result
    assert (shape.dimensions, shape.dynamic_dimensions) == ((2, 2), (False, True))
    assert run(sized, X, np.int64(1)).tolist() == [[0], [3]]
    for wrong in (np.array([2]), np.array([2.0, 3.0])):
        with pytest.raises(xla.ShapeError, match="sizes are"):
            build(lambda x, n: set_all_dimension_sizes(x.reshape(2, 3), n), *shapes(X, wrong))


def shapes(*arrays):
    return [xla.make_shape(a.dtype, a.shape) for a in map(np.asarray, arrays)]
