"""Conditionals whose branches give arrays of different sizes."""

import numpy as np
import pytest
from evaluating import build, compiled

import xlakit as xla
from xlakit.lib.dynamic_shaped_ops import dynamic_conditional

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
