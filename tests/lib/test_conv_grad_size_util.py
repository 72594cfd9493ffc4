"""The padding of gradients of convolutions: what it gives is the transpose of the convolution's matrix."""

import itertools

import numpy as np
import pytest

import xlakit as xla
from xlakit.lib import conv_grad_extract_and_verify_dimension
from xlakit.ops.shared.padding import make_padding


def matrix(size, kernel, dilation, stride, pads):
    """The matrix that a convolution of vectors is."""
    columns = np.pad(np.eye(size), [(0, 0), pads])
    starts = range(0, size + sum(pads) - (len(kernel) - 1) * dilation, stride)
    return np.array([[sum(k * c[s + i * dilation] for i, k in enumerate(kernel)) for c in columns] for s in starts])


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
def test_the_padded_gradient_convolved_is_that_of_the_input(padding):
    rng = np.random.default_rng(0)
    for size, taps, dilation, stride in itertools.product((5, 6, 9), (1, 2, 3), (1, 2), (1, 2, 3)):
        window = (taps - 1) * dilation + 1
        kernel = rng.integers(1, 9, taps)
        (pads,) = make_padding([size], [window], [stride], padding)
        forward = matrix(size, kernel, dilation, stride, pads)
        found = conv_grad_extract_and_verify_dimension(size, taps, len(forward), dilation, stride, padding)
        gradient = rng.integers(1, 9, len(forward))
        spread = np.zeros(found.output_size)
        spread[::stride] = gradient
        assert found.pad_before >= 0
        # A negative padding removes zeros, or elements that no input has part in.
        padded = np.pad(spread, (found.pad_before, max(found.pad_after, 0)))
        padded = padded[: len(padded) + min(found.pad_after, 0)]
        backward = matrix(len(padded), kernel[::-1], dilation, 1, (0, 0)) @ padded
        assert np.array_equal(backward, forward.T @ gradient)


def test_sizes_that_no_convolution_has():
    with pytest.raises(xla.ShapeError, match="gives 3"):
        conv_grad_extract_and_verify_dimension(5, 3, 4, 1, 1, "VALID")
    with pytest.raises(xla.ShapeError, match="at least 1"):
        conv_grad_extract_and_verify_dimension(5, 0, 4, 1, 1, "SAME")
