"""Conv and its kin in the document "Operation semantics": the pseudo-code as loops, and the stated rules."""

import math

import numpy as np
import pytest
from helpers import close, evaluate, f32, infer, refused, same

import xlakit as xla
from xlakit.ir.attributes import ConvolutionDimensionNumbers

DEFAULT = ConvolutionDimensionNumbers.default(1)


def pseudo_code(input, kernel, stride, pad_low, pad_high):
    """The document's loops for two spatial dimensions, batch and feature first."""
    batch, features, base_y, base_x = input.shape
    outputs, _, kernel_y, kernel_x = kernel.shape
    sizes = [
        (base + low + high - window) // step + 1
        for base, low, high, window, step in zip(
            (base_y, base_x), pad_low, pad_high, (kernel_y, kernel_x), stride, strict=True
        )
    ]
    output = np.zeros((batch, outputs, *sizes), np.float32)
    for b, oz, oy, ox in np.ndindex(*output.shape):
        value = 0.0
        for iz, ky, kx in np.ndindex(features, kernel_y, kernel_x):
            iy = oy * stride[0] + ky - pad_low[0]
            ix = ox * stride[1] + kx - pad_low[1]
            if 0 <= iy < base_y and 0 <= ix < base_x:
                value += input[b, iz, iy, ix] * kernel[oz, iz, ky, kx]
        output[b, oz, oy, ox] = value
    return output


def integers(rng, *sizes):
    """Small integers as floats, so that sums are exact in any order."""
    return rng.integers(-4, 5, sizes).astype(np.float32)


@pytest.mark.parametrize("seed", range(8))
def test_convolution_is_the_pseudo_code(seed):
    rng = np.random.default_rng(seed)
    lhs, rhs = integers(rng, 2, 3, *rng.integers(3, 7, 2)), integers(rng, 4, 3, *rng.integers(1, 4, 2))
    stride = [int(n) for n in rng.integers(1, 4, 2)]
    padding = [(int(a), int(b)) for a, b in rng.integers(-1, 3, (2, 2))]
    expected = pseudo_code(lhs, rhs, stride, [p[0] for p in padding], [p[1] for p in padding])
    same(evaluate(lambda x, k: xla.conv_with_general_padding(x, k, stride, padding), lhs, rhs), expected)


# -- Conv: padding by name ------------------------------------------------------------------------


@pytest.mark.parametrize(("size", "window"), [(5, 3), (6, 3), (5, 2), (4, 4)])
def test_same_padding_keeps_the_sizes_where_the_stride_is_1(size, window):
    rng = np.random.default_rng(0)
    lhs, rhs = integers(rng, 2, 1, size, size), integers(rng, 2, 1, window, window)
    low, high = (window - 1) // 2, window // 2
    result = evaluate(lambda x, k: xla.conv(x, k, (1, 1), "SAME"), lhs, rhs)
    assert result.shape == (2, 2, size, size)
    same(result, pseudo_code(lhs, rhs, (1, 1), (low, low), (high, high)))


def test_same_padding_with_strides_rounds_up():
    result = infer(lambda x, k: xla.conv(x, k, (2, 3), "SAME"), f32(1, 1, 7, 7), f32(1, 1, 3, 3))
    assert result.dimensions == (1, 1, math.ceil(7 / 2), math.ceil(7 / 3))


def test_valid_padding_is_none():
    rng = np.random.default_rng(0)
    lhs, rhs = integers(rng, 2, 3, 5, 6), integers(rng, 2, 3, 3, 2)
    same(
        evaluate(lambda x, k: xla.conv(x, k, (1, 2), "VALID"), lhs, rhs),
        pseudo_code(lhs, rhs, (1, 2), (0, 0), (0, 0)),
    )


# -- what the arguments mean ----------------------------------------------------------------------


def test_a_stride_of_3_places_the_window_at_multiples_of_3():
    lhs, rhs = np.arange(10, dtype=np.float32).reshape(1, 1, 10), np.ones((1, 1, 1), np.float32)
    same(
        evaluate(lambda x, k: xla.conv_with_general_padding(x, k, (3,), [(0, 0)]), lhs, rhs),
        np.array([[[0, 3, 6, 9]]], np.float32),
    )


def test_padding_2_3_is_as_adding_the_zeros_first():
    rng = np.random.default_rng(1)
    lhs, rhs = integers(rng, 1, 2, 4, 4), integers(rng, 2, 2, 2, 2)
    padded = np.pad(lhs, [(0, 0), (0, 0), (0, 0), (2, 3)])
    same(
        evaluate(lambda x, k: xla.conv_with_general_padding(x, k, (1, 1), [(0, 0), (2, 3)]), lhs, rhs),
        evaluate(lambda x, k: xla.conv_with_general_padding(x, k, (1, 1), [(0, 0), (0, 0)]), padded, rhs),
    )


def test_negative_padding_takes_elements_away_first():
    rng = np.random.default_rng(2)
    lhs, rhs = integers(rng, 1, 1, 6, 6), integers(rng, 1, 1, 2, 2)
    same(
        evaluate(lambda x, k: xla.conv_with_general_padding(x, k, (1, 1), [(-1, -2), (0, -1)]), lhs, rhs),
        evaluate(
            lambda x, k: xla.conv_with_general_padding(x, k, (1, 1), [(0, 0), (0, 0)]), lhs[:, :, 1:4, :5].copy(), rhs
        ),
    )


def test_dilation_puts_holes_of_zeros_between_the_elements():
    rng = np.random.default_rng(3)
    lhs, rhs = integers(rng, 1, 1, 7), integers(rng, 1, 1, 3)
    holes = np.zeros((1, 1, 5), np.float32)
    holes[..., ::2] = rhs
    same(
        evaluate(lambda x, k: xla.conv_general_dilated(x, k, (1,), [(1, 1)], (1,), (2,), DEFAULT), lhs, rhs),
        evaluate(lambda x, k: xla.conv_with_general_padding(x, k, (1,), [(1, 1)]), lhs, holes),
    )
    stretched = np.zeros((1, 1, 19), np.float32)
    stretched[..., ::3] = lhs
    same(
        evaluate(lambda x, k: xla.conv_general_dilated(x, k, (1,), [(1, 1)], (3,), (1,), DEFAULT), lhs, rhs),
        evaluate(lambda x, k: xla.conv_with_general_padding(x, k, (1,), [(1, 1)]), stretched, rhs),
    )
    both = {"lhs_dilation": (3,), "rhs_dilation": (2,)}
    same(
        evaluate(lambda x, k: xla.conv_with_general_padding(x, k, (1,), [(1, 1)], **both), lhs, rhs),
        evaluate(lambda x, k: xla.conv_with_general_padding(x, k, (1,), [(1, 1)]), stretched, holes),
    )


def test_feature_groups_are_separate_convolutions_put_together():
    rng = np.random.default_rng(4)
    lhs, rhs = integers(rng, 2, 6, 5), integers(rng, 9, 2, 3)

    def grouped(x, k):
        return xla.conv_with_general_padding(x, k, (1,), [(1, 1)], feature_group_count=3)

    def plain(x, k):
        return xla.conv_with_general_padding(x, k, (1,), [(1, 1)])

    parts = [evaluate(plain, lhs[:, 2 * g : 2 * g + 2].copy(), rhs[3 * g : 3 * g + 3].copy()) for g in range(3)]
    same(evaluate(grouped, lhs, rhs), np.concatenate(parts, axis=1))


def test_a_depthwise_convolution_has_a_group_for_each_feature():
    rng = np.random.default_rng(5)
    lhs, rhs = integers(rng, 1, 3, 5), integers(rng, 6, 1, 2)
    result = evaluate(lambda x, k: xla.conv_with_general_padding(x, k, (1,), [(0, 0)], feature_group_count=3), lhs, rhs)
    for feature in range(6):
        expected = np.correlate(lhs[0, feature // 2], rhs[feature, 0], "valid")
        close(result[0, feature], expected)


def test_batch_groups_pair_parts_of_the_batch_with_output_features():
    rng = np.random.default_rng(6)
    lhs, rhs = integers(rng, 6, 2, 5), integers(rng, 4, 2, 3)

    def plain(x, k):
        return xla.conv_with_general_padding(x, k, (1,), [(0, 0)])

    parts = [evaluate(plain, lhs[3 * g : 3 * g + 3].copy(), rhs[2 * g : 2 * g + 2].copy()) for g in range(2)]
    result = evaluate(lambda x, k: xla.conv_with_general_padding(x, k, (1,), [(0, 0)], batch_group_count=2), lhs, rhs)
    same(result, np.concatenate(parts, axis=1))


# -- rules ----------------------------------------------------------------------------------------


def conv2d(strides=(1, 1), padding=((0, 0), (0, 0)), **options):
    return lambda x, k: xla.conv_with_general_padding(x, k, strides, padding, **options)


LHS, RHS = f32(6, 4, 8, 8), f32(6, 4, 3, 3)


def test_the_result_has_batch_output_feature_and_spatial_dimensions():
    assert infer(conv2d((2, 1), ((1, 0), (0, 2))), LHS, RHS).dimensions == (6, 6, 4, 8)
    assert infer(conv2d(feature_group_count=2), LHS, f32(6, 2, 3, 3)).dimensions == (6, 6, 6, 6)
    assert infer(conv2d(batch_group_count=3), LHS, RHS).dimensions == (2, 6, 6, 6)


@pytest.mark.parametrize(
    ("lhs", "rhs", "options"),
    [
        (LHS, f32(6, 3, 3, 3), {}),  # features differ
        (LHS, f32(6, 4, 3), {}),  # ranks differ
        (LHS, RHS, {"feature_group_count": 2}),  # the kernel sees all features
        (LHS, f32(5, 2, 3, 3), {"feature_group_count": 2}),  # output features do not divide
        (f32(6, 5, 8, 8), f32(6, 2, 3, 3), {"feature_group_count": 2}),  # input features do not divide
        (LHS, RHS, {"batch_group_count": 4}),  # the batch does not divide
        (LHS, f32(5, 4, 3, 3), {"batch_group_count": 2}),  # output features do not divide
        (LHS, f32(6, 2, 3, 3), {"feature_group_count": 2, "batch_group_count": 2}),
        (LHS, RHS, {"feature_group_count": 0}),
        (LHS, RHS, {"batch_group_count": 0}),
        (LHS, RHS, {"strides": (0, 1)}),
        (LHS, RHS, {"strides": (1,)}),
        (LHS, RHS, {"padding": ((0, 0),)}),
    ],
)
def test_convolution_has_rules(lhs, rhs, options):
    refused(conv2d(**options), lhs, rhs)


@pytest.mark.parametrize(("lhs_dilation", "rhs_dilation"), [((0, 1), (1, 1)), ((1, 1), (1, 0)), ((1,), (1, 1))])
def test_dilations_are_at_least_1_and_one_for_each_dimension(lhs_dilation, rhs_dilation):
    numbers = ConvolutionDimensionNumbers.default(2)

    def program(x, k):
        return xla.conv_general_dilated(x, k, (1, 1), [(0, 0), (0, 0)], lhs_dilation, rhs_dilation, numbers)

    refused(program, LHS, RHS)


def test_dimension_numbers_name_every_dimension_once():
    numbers = ConvolutionDimensionNumbers(0, 0, (2, 3), 1, 0, (2, 3), 0, 1, (2, 3))
    refused(
        lambda x, k: xla.conv_general(x, k, (1, 1), [(0, 0), (0, 0)], numbers),
        LHS,
        RHS,
    )
