"""Loops and branches that leave fewer elements than they are declared with; compiled, and on the interpreter."""

import itertools

import numpy as np
import pytest
from evaluating import build, same, shape

import xlakit as xla


def _shortened(x, n, times):
    """A loop whose parameter is declared full, and whose body leaves it n rows."""

    def body(state):
        count, rows, size = (xla.get_tuple_element(state, i) for i in range(3))
        one = xla.constant(state.builder, np.int32(1))
        return xla.tuple_(count - one, xla.set_dimension_size(xla.neg(rows), size, 0), size)

    def more(state):
        return xla.gt(xla.get_tuple_element(state, 0), xla.constant(state.builder, np.int32(0)))

    return xla.get_tuple_element(xla.while_(more, body, xla.tuple_(times, x, n)), 1)


def _in_a_loop(x, n, times):
    def body(state):
        count, rows, size = (xla.get_tuple_element(state, i) for i in range(3))
        one = xla.constant(state.builder, np.int32(1))
        return xla.tuple_(count - one, _shortened(rows, size, one), size)

    def more(state):
        return xla.gt(xla.get_tuple_element(state, 0), xla.constant(state.builder, np.int32(0)))

    return xla.get_tuple_element(xla.while_(more, body, xla.tuple_(times, x, n)), 1)


def _in_a_branch(x, n, times):
    given = xla.tuple_(x, n)

    def shorter(p):
        return xla.set_dimension_size(xla.get_tuple_element(p, 0), xla.get_tuple_element(p, 1), 0)

    none = xla.eq(times, xla.constant(x.builder, np.int32(0)))
    return xla.conditional(none, given, lambda p: xla.get_tuple_element(p, 0), given, shorter)


@pytest.mark.parametrize("shorter", [_shortened, _in_a_loop, _in_a_branch])
def test_what_a_loop_leaves_shorter_than_declared_meets_whole_arrays(shorter):
    def program(x, n, times):
        left = shorter(x, n, times)
        total = xla.reduce(xla.mul(left, x), np.int32(0), xla.add, [0, 1])
        called = xla.call(x.builder, xla.add, [left, x])
        return xla.tuple_(total, left, xla.reduce(called, np.int32(0), xla.add, [0]))

    whole, number = shape(xla.S32, 4, 2), shape(xla.S32)
    computation = build(program, whole, number, number)
    compiled, reference = (xla.compile(computation, backend=b, cache=False) for b in ("cpu", "interpreter"))
    for size, times in itertools.product((0, 1, 3, 4), (0, 1, 2)):
        given = np.arange(1, 9, dtype=np.int32).reshape(4, 2), np.int32(size), np.int32(times)
        for actual, expected in zip(compiled(*given), reference(*given), strict=True):
            same(actual, expected)
