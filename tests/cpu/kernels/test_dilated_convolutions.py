"""Convolutions whose input has zeros between its elements, of which a copy is made where phases would be too many."""

import numpy as np
import pytest
from cpu.agreeing import agree, numbers

import xlakit as xla
import xlakit.cpu.kernels.conv.geometry
from xlakit.options import compiling


def convolved(sizes, kernel, *, kind=np.float32, most_phases=1, **options):
    rank = len(sizes) - 2
    spatial = tuple(range(1, rank + 1))
    dims = xla.ConvolutionDimensionNumbers(
        0, rank + 1, spatial, rank, rank + 1, tuple(range(rank)), 0, rank + 1, spatial
    )
    given = {"window_strides": [1] * rank, "rhs_dilation": [1] * rank, **options}

    def function(x, w):
        return xla.conv_general_dilated(x, w, dimension_numbers=dims, **given)

    with compiling(knobs={"convolution_geometry.most_phases": most_phases}):
        agree(function, numbers(kind, *sizes), numbers(kind, *kernel, seed=1))


@pytest.mark.parametrize("kind", [np.float32, np.complex64, np.int32])
def test_lines_with_holes(kind):
    """20 phases are more than the compiler makes code for without being asked to."""
    convolved((2, 5, 3), (4, 3, 6), kind=kind, most_phases=16, padding=[(1, 2)], lhs_dilation=[20])


@pytest.mark.parametrize("groups", [1, 2, 6])
@pytest.mark.parametrize("padding", [[(1, 2), (1, 1)], [(-1, -1), (1, 2)], [(0, 0), (-1, 3)]])
def test_holes_in_two_dimensions(groups, padding):
    kernel = (3, 2, 6 // groups, 12)
    convolved((2, 5, 4, 6), kernel, padding=padding, lhs_dilation=[2, 3], feature_group_count=groups)


@pytest.mark.parametrize("options", [{"window_strides": [2, 1]}, {"rhs_dilation": [2, 1]}, {"batch_group_count": 2}])
def test_holes_with_strides_and_dilated_kernels(options):
    convolved((4, 5, 4, 3), (3, 2, 3, 6), padding=[(1, 1), (1, 2)], lhs_dilation=[2, 2], **options)


def test_an_input_without_elements():
    convolved((2, 0, 4, 3), (3, 2, 3, 6), padding=[(3, 3), (1, 2)], lhs_dilation=[2, 2])
