"""Results that are put together from pieces."""

import numpy as np
import pytest
from cpu.agreeing import KINDS, agree, numbers
from evaluating import build

import xlakit as xla


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dimension", [0, 1, 2])
def test_arrays_are_concatenated(kind, dimension):
    sizes = [[6, 7, 8] for _ in range(4)]
    for number, own in enumerate(sizes):
        own[dimension] += 3 * number
    agree(lambda *x: xla.concat_in_dim(x, dimension), *(numbers(kind, *own, seed=n) for n, own in enumerate(sizes)))


def test_one_array_is_concatenated_with_itself():
    agree(lambda x: xla.concat_in_dim([x, x, x], 1), numbers(np.float32, 40, 33))


def test_long_runs_are_shared_by_tasks():
    agree(lambda x, y: xla.concat_in_dim([x, y], 0), numbers(np.int8, 200_001), numbers(np.int8, 70_003))


@pytest.mark.parametrize("dimension", [0, 1])
def test_producers_are_fused_into_their_pieces(dimension):
    x, y = numbers(np.float32, 40, 50), numbers(np.float32, 40, 50, seed=1)
    agree(lambda x, y: xla.abs(xla.concat_in_dim([x * y, xla.neg(x), y], dimension)), x, y)


@pytest.mark.parametrize(
    "padding",
    [
        [(1, 2, 0), (3, 4, 0)],
        [(0, 0, 0), (1, 0, 0)],
        [(-1, 2, 0), (5, -3, 0)],
        [(1, 1, 1), (0, 3, 2)],
        [(40, 0, 0), (0, 0, 0)],
    ],
)
def test_an_array_is_padded(padding):
    agree(lambda x: xla.pad(x, np.float32(9), padding) * np.float32(2), numbers(np.float32, 30, 41))


def test_a_reshape_of_pieces():
    x, y = numbers(np.float32, 30, 40), numbers(np.float32, 18, 40, seed=1)
    agree(lambda x, y: xla.reshape(xla.concat_in_dim([x, y], 0), [48 * 40]) + np.float32(1), x, y)
    agree(lambda x, y: xla.reshape(xla.concat_in_dim([x, y], 0), [16, 120]) + np.float32(1), x, y)


def test_pieces_of_a_short_row():
    x, y = numbers(np.float32, 300, 2), numbers(np.float32, 300, 1, seed=1)
    agree(lambda x, y: xla.concat_in_dim([x, y], 1) * np.float32(3), x, y)


@pytest.mark.parametrize("strides", [(1, 1), (2, 2), (3, 1)])
@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize("channels_last", [True, False])
def test_windows_reach_over_borders(strides, padding, channels_last):
    def spread(a, b):
        return (1, a, b, 1) if channels_last else (1, 1, a, b)

    x = numbers(np.float32, *((2, 13, 17, 6) if channels_last else (2, 6, 13, 17)))
    for window in ((2, 2), (3, 3), (1, 5), (7, 7)):
        agree(
            lambda x, window=window: (
                xla.reduce_window(x, np.float32(0), xla.add, spread(*window), spread(*strides), padding),
                xla.reduce_window(x, np.float32(-np.inf), xla.max, spread(*window), spread(*strides), padding),
            ),
            x,
        )


def test_windows_with_holes():
    x = numbers(np.float32, 3, 30, 31)
    agree(
        lambda x: xla.reduce_window_with_general_padding(
            x, np.float32(0), xla.add, (1, 3, 2), (1, 2, 1), (1, 2, 1), (1, 1, 3), [(0, 0), (2, 1), (0, 4)]
        ),
        x,
    )


@pytest.mark.parametrize("size", [20, 36, 37, 100])
@pytest.mark.parametrize("axis", [0, 1])
def test_long_windows(size, axis):
    window = [1, 1]
    window[axis] = size
    agree(lambda x: xla.reduce_window(x, np.float32(0), xla.add, window, (1, 1), "SAME"), numbers(np.float32, 120, 110))


def test_small_windows_are_written_in_few_regions():
    x = numbers(np.float32, 4, 5, 6, 7)

    def sums(x):
        return xla.reduce_window(x, np.float32(0), xla.add, (2, 2, 2, 2), (1, 1, 1, 1), "SAME")

    agree(sums, x)
    written = xla.compile(build(sums, xla.make_shape(np.float32, x.shape))).llvm_ir(optimized=False)
    # With a region for each side of each dimension there were eight; each writes out its windows.
    assert 1 < sum(line.startswith("define") and ".region" in line for line in written.splitlines()) <= 4


def test_rolls_of_short_rows_are_written_in_regions():
    def neighbors(x):
        left = xla.concat_in_dim([x[47:48], x[0:47]], 0)
        right = xla.concat_in_dim([x[1:48], x[0:1]], 0)
        return left + right * x

    x = numbers(np.float32, 48)
    agree(neighbors, x)
    written = xla.compile(build(neighbors, xla.make_shape(np.float32, x.shape))).llvm_ir(optimized=False)
    # No condition says for each element where it comes from.
    assert " phi float " not in written


@pytest.mark.parametrize("sizes", [(1, 37, 2), (3, 64), (5, 9, 17)])
def test_pieces_of_rows_are_computed_in_vectors(sizes):
    arrays = [numbers(np.float32, 40, size, seed=n) for n, size in enumerate(sizes)]

    def joined(*x):
        return xla.concat_in_dim([a * a for a in x], 1)

    agree(joined, *arrays)
    shapes = [xla.make_shape(np.float32, a.shape) for a in arrays]
    assert "fmul <" in xla.compile(build(joined, *shapes)).llvm_ir(optimized=False)
