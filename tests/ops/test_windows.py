"""The page of windows, against loops over placements."""

import numpy as np
import pytest
from evaluating import build, evaluate, f32, infer, refused, s32, same

import xlakit as xla
from xlakit.ir.attributes import WindowDimension
from xlakit.ops.shared.window_geometry import make_window


def spots(place, window, sizes):
    """The elements under a placement, in order."""
    for inside in np.ndindex(*(d.size for d in window)):
        at = [
            p * d.stride - d.padding_low + i * d.window_dilation for p, i, d in zip(place, inside, window, strict=True)
        ]
        if all(a % d.base_dilation == 0 for a, d in zip(at, window, strict=True)):
            index = tuple(a // d.base_dilation for a, d in zip(at, window, strict=True))
            if all(0 <= i < size for i, size in zip(index, sizes, strict=True)):
                yield index


def by_loops(x, init, function, window):
    result = np.empty([d.output_size(n) for d, n in zip(window, x.shape, strict=True)], x.dtype)
    for place in np.ndindex(*result.shape):
        value = init
        for index in spots(place, window, x.shape):
            value = function(value, x[index])
        result[place] = value
    return result


def reduced(computation, init, window):
    return lambda x: xla.reduce_window_with_general_padding(
        x,
        init,
        computation,
        [d.size for d in window],
        [d.stride for d in window],
        [d.base_dilation for d in window],
        [d.window_dilation for d in window],
        [(d.padding_low, d.padding_high) for d in window],
    )


REDUCERS = [
    (xla.add, 0, lambda a, b: a + b),
    (xla.max, -99, max),
    (lambda a, b: (a + b) + 0, 0, lambda a, b: a + b),
    (lambda a, b: a + xla.select(xla.eq(b, 0), a * 0, b), 0, lambda a, b: a + b),
]


@pytest.mark.parametrize("seed", range(20))
def test_reduce_window_is_its_definition(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(0, 4))
    x = rng.integers(-9, 10, rng.integers(0, 6, n)).astype(np.int32)
    window = [WindowDimension(*rng.integers([1, 1, -1, -1, 1, 1], [4, 4, 4, 4, 3, 4]).tolist()) for _ in range(n)]
    for computation, init, function in REDUCERS:
        same(evaluate(reduced(computation, init, window), x), by_loops(x, init, function, window))


@pytest.mark.parametrize("seed", range(20))
def test_long_windows(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 90))
    x = np.moveaxis(rng.integers(-9, 10, (2, n)).astype(np.int32), 0, seed % 2)
    long = WindowDimension(*rng.integers([32, 1, -3, -3, 1], [120, 4, 120, 120, 3]).tolist())
    window = [WindowDimension(1), long] if seed % 2 == 0 else [long, WindowDimension(1)]
    for computation, init, function in REDUCERS:
        same(evaluate(reduced(computation, init, window), x), by_loops(x, init, function, window))


def test_a_cumulative_sum_of_many_elements():
    x = np.random.default_rng(0).integers(0, 9, 100_000).astype(np.int32)
    whole = [WindowDimension(x.size, 1, x.size - 1, 0)]
    same(evaluate(reduced(xla.add, 0, whole), x), np.cumsum(x, dtype=np.int32))


def test_the_order_of_a_long_window_is_kept():
    def join(value, scale, digit, ten):
        return (value * ten + digit) % 1000003, (scale * ten) % 1000003

    digits = np.arange(40, dtype=np.int64) % 10
    tens = np.full_like(digits, 10)

    def cumulative(d, t):
        return xla.reduce_window_with_general_padding([d, t], [0, 1], join, [40], [1], [], [], [(39, 0)])

    values, scales = evaluate(cumulative, digits, tens)
    running, expected = 0, []
    for digit in digits:
        running = (running * 10 + int(digit)) % 1000003
        expected.append(running)
    same(values, np.array(expected))
    same(scales, np.array([pow(10, i + 1, 1000003) for i in range(40)]))


def test_windows_of_small_floats_round_once():
    x = np.full((1, 40), 0.1, np.float32)
    expected = np.float32(sum([float(np.float32(0.1))] * 40))
    same(evaluate(lambda x: xla.reduce_window(x, 0, xla.add, [1, 40], [1, 1], "VALID"), x), [[expected]])


def test_shapes_of_reduce_window():
    shape = f32(5, 6, dynamic=[True, False])
    assert infer(lambda x: xla.reduce_window(x, 0, xla.add, [2, 3], [2, 1], "VALID"), shape) == "f32[<=2,4]"
    pair = lambda x: xla.reduce_window([x, x], [0, 0], lambda a, b, c, d: (a + c, b + d), [2], [1], "SAME")  # noqa: E731
    assert infer(pair, f32(4)) == "(f32[4], f32[4])"


def test_reduce_window_refuses():
    refused("size 0", lambda x: xla.reduce_window(x, 0, xla.add, [0], [1], "VALID"), f32(3))
    refused("stride", lambda x: xla.reduce_window(x, 0, xla.add, [1], [0], "VALID"), f32(3))
    refused("stride", lambda x: xla.reduce_window(x, 0, xla.add, [1], [0], "SAME"), f32(3))
    refused("rank", lambda x: xla.reduce_window(x, 0, xla.add, [1], [1], [(0, 0)]), f32(3, 3))
    refused("numbers must be equal", lambda x: xla.reduce_window(x, 0, xla.add, [1], [1], "SAME"), f32(3, 3))
    refused("initial values", lambda x: xla.reduce_window([x, x], [0], xla.add, [1], [1], "SAME"), f32(3))
    refused("initial value", lambda x, i: xla.reduce_window(x, i, xla.add, [1], [1], "SAME"), f32(3), s32())

    def dilated(base, window):
        return lambda x: xla.reduce_window_with_general_padding(x, 0, xla.add, [1], [1], base, window, [(0, 0)])

    refused("base dilation", dilated([0], [1]), f32(3))
    refused("window dilation", dilated([1], [0]), f32(3))


# -- select and scatter


def select_by_loops(x, source, init, window, select, scatter):
    result = np.full(x.shape, init, x.dtype)
    for place in np.ndindex(*source.shape):
        chosen = None
        for index in spots(place, window, x.shape):
            if chosen is None or not select(x[chosen], x[index]):
                chosen = index
        if chosen is not None:
            result[chosen] = scatter(result[chosen], source[place])
    return result


@pytest.mark.parametrize("seed", range(20))
def test_select_and_scatter_is_its_definition(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(0, 4))
    x = rng.integers(-3, 4, rng.integers(1, 6, n)).astype(np.int32)
    window = [WindowDimension(*rng.integers([1, 1, 0, 0], [4, 4, 3, 3]).tolist()) for _ in range(n)]
    source = rng.integers(-9, 10, [d.output_size(s) for d, s in zip(window, x.shape, strict=True)]).astype(np.int32)
    # Subtraction is not associative: it shows that each element sees its sources in order.
    for select, compare in ((xla.ge, np.greater_equal), (xla.lt, np.less)):
        for scatter, combine in ((xla.add, np.add), (xla.sub, np.subtract)):

            def run(x, source, select=select, scatter=scatter):
                sizes, strides = [d.size for d in window], [d.stride for d in window]
                pads = [(d.padding_low, d.padding_high) for d in window]
                return xla.select_and_scatter_with_general_padding(
                    x, select, sizes, strides, pads, source, 100, scatter
                )

            same(evaluate(run, x, source), select_by_loops(x, source, 100, window, compare, combine))


def test_select_and_scatter_refuses():
    def scattered(select=xla.ge, scatter=xla.add, init=0):
        return lambda x, s: xla.select_and_scatter(x, select, [2], [2], "VALID", s, init, scatter)

    refused("placements", scattered(), f32(4), f32(3))
    refused("pred scalar", scattered(select=xla.add), f32(4), f32(2))
    refused("running value", scattered(scatter=xla.ge), f32(4), f32(2))
    refused("initial value", scattered(), f32(4), s32(2))
    refused("fit", scattered(init=np.int32(0)), f32(4), s32(2))
    one = build(xla.is_finite, f32())
    refused("2 parameters", scattered(select=one), f32(4), f32(2))


# -- geometry


def test_make_padding_is_by_the_high_end():
    assert xla.make_padding([5, 4, 3], [3, 2, 1], [1, 1, 2], "SAME") == [(1, 1), (0, 1), (0, 0)]
    assert xla.make_padding([5], [3], [2], "VALID") == [(0, 0)]
    with pytest.raises(xla.ShapeError, match="unknown Padding"):
        xla.make_padding([5], [3], [2], "HALF")


def test_make_window_takes_defaults():
    assert make_window([2, 3]).dimensions == (WindowDimension(2), WindowDimension(3))
