"""Sums of integers of fewer than eight bits stay in the range of their type, where they are used at once, too."""

import numpy as np
import pytest
from evaluating import array_of, build, same

import xlakit as xla

SHAPES = [((4, 4), (0, 1)), ((3, 40), (1,)), ((40, 5), (0,)), ((700,), (0,)), ((2, 3, 9), (0, 2)), ((5,), (0,))]


def _agree(kind, dims, program):
    values = array_of(kind, np.random.default_rng(0).integers(0 if kind.is_unsigned else -2, 2, dims))
    built = build(program, xla.make_shape(kind, dims))
    for got, expected in zip(
        xla.compile(built)(values), xla.compile(built, backend="interpreter")(values), strict=True
    ):
        same(got, expected)


@pytest.mark.parametrize("kind", [xla.S4, xla.U4, xla.S2, xla.U2])
@pytest.mark.parametrize(("dims", "over"), SHAPES)
@pytest.mark.parametrize("combine", [xla.add, xla.mul])
def test_a_reduction_that_is_compared(kind, dims, over, combine):
    def program(x):
        y = x - xla.broadcast(xla.constant(x.builder, 1, kind), dims)
        start = xla.constant(x.builder, 1, kind)
        folded = xla.reduce(y, start, combine, over)
        spread = xla.broadcast_in_dim(folded, dims, [d for d in range(len(dims)) if d not in over])
        return xla.lt(x, spread), xla.convert_element_type(folded, xla.S32), folded

    _agree(kind, dims, program)


@pytest.mark.parametrize("kind", [xla.S4, xla.U4])
@pytest.mark.parametrize("before", [True, False])
def test_windows_and_running_totals_that_are_compared(kind, before):
    def program(x):
        zero = xla.constant(x.builder, 0, kind)
        running = xla.reduce_window(x, zero, xla.add, [1, 33], [1, 1], [(0, 0), (32, 0) if before else (0, 32)])
        window = xla.reduce_window(x, zero, xla.add, [3, 3], [1, 1], "SAME")
        return xla.gt(running, x), xla.gt(window, x), xla.convert_element_type(running, xla.S32), window

    _agree(kind, (3, 33), program)
