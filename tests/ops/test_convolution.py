"""The page of convolution, against its definition in loops."""

import ml_dtypes
import numpy as np
import pytest
from evaluating import compiled, evaluate, f32, floats, infer, ints, refused, s32, same

import xlakit as xla
from xlakit.ir.attributes import ConvolutionDimensionNumbers, Window, WindowDimension
from xlakit.ops.convolution import Convolution
from xlakit.ops.shared.padding import Padding


def by_loops(lhs, rhs, window, features=1, batches=1):
    """Batch and feature first; ``window`` has a WindowDimension for each spatial dimension."""
    batch, outputs = lhs.shape[0] // batches, rhs.shape[0]
    sizes = [d.output_size(n) for d, n in zip(window, lhs.shape[2:], strict=True)]
    result = np.zeros((batch, outputs, *sizes), np.float64)
    for n, o, *place in np.ndindex(batch, outputs, *sizes):
        group = o // (outputs // features)
        row = n + o // (outputs // batches) * batch
        for c, *k in np.ndindex(*rhs.shape[1:]):
            spots = [
                p * d.stride - d.padding_low + i * d.window_dilation for p, i, d in zip(place, k, window, strict=True)
            ]
            index = [s // d.base_dilation for s, d in zip(spots, window, strict=True)]
            hole = any(s % d.base_dilation for s, d in zip(spots, window, strict=True))
            if hole or any(not 0 <= i < size for i, size in zip(index, lhs.shape[2:], strict=True)):
                continue
            weight = [d.size - 1 - i if d.window_reversal else i for i, d in zip(k, window, strict=True)]
            result[(n, o, *place)] += lhs[(row, group * rhs.shape[1] + c, *index)] * rhs[(o, c, *weight)]
    return result


@pytest.mark.parametrize("seed", range(30))
def test_convolution_is_its_definition(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(0, 4))
    features, batches = [(1, 1), (2, 1), (3, 1), (1, 2)][rng.integers(4)]
    lhs = rng.integers(-4, 5, (batches * rng.integers(1, 3), features * rng.integers(1, 3), *rng.integers(1, 6, n)))
    rhs = rng.integers(-4, 5, (features * batches * 2, lhs.shape[1] // features, *rng.integers(1, 4, n)))
    window = [
        WindowDimension(size, *rng.integers([1, -1, -1, 1, 1], [3, 3, 3, 3, 3]).tolist(), bool(rng.integers(2)))
        for size in rhs.shape[2:]
    ]
    orders = [rng.permutation(n + 2) for _ in range(3)]
    at = [np.argsort(order).tolist() for order in orders]
    numbers = ConvolutionDimensionNumbers(
        at[0][0], at[0][1], tuple(at[0][2:]), at[1][1], at[1][0], tuple(at[1][2:]), at[2][0], at[2][1], tuple(at[2][2:])
    )

    def convolve(a, b):
        return xla.conv_general_dilated(
            a,
            b,
            [d.stride for d in window],
            [(d.padding_low, d.padding_high) for d in window],
            [d.base_dilation for d in window],
            [d.window_dilation for d in window],
            numbers,
            features,
            batches,
            window_reversal=[d.window_reversal for d in window],
        )

    expected = by_loops(lhs, rhs, window, features, batches).transpose(orders[2])
    for dtype in (np.float32, np.int32):
        a, b = lhs.transpose(orders[0]).astype(dtype), rhs.transpose(orders[1]).astype(dtype)
        same(evaluate(convolve, a, b), expected.astype(dtype))


def test_padding_by_name():
    x, k = floats(np.arange(12).reshape(1, 1, 3, 4)), floats(np.ones((1, 1, 2, 3)))
    # The larger half of an odd amount of padding is at the high end.
    padded = np.pad(x[0, 0], [(0, 1), (1, 1)])
    sums = [[padded[i : i + 2, j : j + 3].sum() for j in range(4)] for i in range(3)]
    same(evaluate(lambda x, k: xla.conv(x, k, [1, 1], "SAME"), x, k), floats([[sums]]))
    same(evaluate(lambda x, k: xla.conv(x, k, [1, 1], "valid"), x, k), floats([[np.array(sums)[:2, 1:3]]]))
    same(evaluate(lambda x, k: xla.conv(x, k, [2, 2], Padding.SAME), x, k).shape, (1, 1, 2, 2))


def test_types():
    x, k = np.full((1, 1, 3), 100, np.int8), np.full((1, 1, 2), 1, np.int8)
    same(evaluate(lambda x, k: xla.conv(x, k, [1], "VALID"), x, k), np.full((1, 1, 2), -56, np.int8))
    wide = evaluate(lambda x, k: xla.conv(x, k, [1], "VALID", preferred_element_type=xla.S32), x, k)
    same(wide, np.full((1, 1, 2), 200, np.int32))
    z = np.array([[[1 + 2j, 3 - 1j]]], np.complex64)
    same(evaluate(lambda x: xla.conv(x, x, [1], "VALID"), z), np.array([[[(z * z).sum()]]], np.complex64))
    h = np.ones((1, 300, 1), ml_dtypes.bfloat16)
    same(evaluate(lambda x: xla.conv(x, x, [1], "VALID"), h), np.array([[[300]]]).astype(ml_dtypes.bfloat16))


def test_empty_results_and_empty_sums():
    x, k = np.ones((1, 1, 2), np.float32), np.ones((1, 1, 3), np.float32)
    same(evaluate(lambda x, k: xla.conv(x, k, [1], "VALID"), x, k), np.zeros((1, 1, 0), np.float32))
    x, k = np.ones((2, 0, 3), np.float32), np.ones((4, 0, 2), np.float32)
    same(evaluate(lambda x, k: xla.conv(x, k, [1], "VALID"), x, k), np.zeros((2, 4, 2), np.float32))


def test_dynamic_batch():
    shape = infer(lambda x, k: xla.conv(x, k, [1], "VALID"), f32(4, 2, 5, dynamic=[True, False, False]), f32(3, 2, 2))
    assert shape == "f32[<=4,3,4]"
    x, k = floats(np.ones((4, 1, 2))), floats(np.ones((1, 1, 2)))
    got = evaluate(lambda x, k, n: xla.conv(xla.set_dimension_size(x, n, 0), k, [1], "VALID"), x, k, ints(3))
    same(got, floats(np.full((3, 1, 1), 2)))


@pytest.mark.parametrize(
    ("lhs", "rhs", "options", "message"),
    [
        ((1, 3, 5), (4, 2, 2), {}, "features"),
        ((1, 4, 5), (3, 2, 2), {"feature_group_count": 2}, "divisible by feature_group_count"),
        ((1, 3, 5), (4, 2, 2), {"feature_group_count": 2}, "features"),
        ((3, 2, 5), (4, 2, 2), {"batch_group_count": 2}, "batch 3"),
        ((4, 2, 5), (3, 2, 2), {"batch_group_count": 2}, "divisible by batch_group_count"),
        ((4, 4, 5), (4, 2, 2), {"batch_group_count": 2, "feature_group_count": 2}, "both"),
        ((1, 2, 5), (4, 2, 2), {"feature_group_count": 0}, "at least 1"),
        ((1, 2, 5), (4, 2, 0), {}, "size 0"),
        ((1, 2), (4, 2, 2), {}, "out of range"),
    ],
)
def test_conv_refuses(lhs, rhs, options, message):
    refused(message, lambda x, k: xla.conv(x, k, [1], "VALID", **options), f32(*lhs), f32(*rhs))


def test_window_rules():
    numbers = ConvolutionDimensionNumbers.default(1)

    def dilated(strides, base, window):
        return lambda x, k: xla.conv_general_dilated(x, k, strides, [(0, 0)], base, window, numbers)

    shapes = f32(1, 2, 5), f32(4, 2, 2)
    refused("stride 0", dilated([0], [1], [1]), *shapes)
    refused("base dilation 0", dilated([1], [0], [1]), *shapes)
    refused("window dilation 0", dilated([1], [1], [0]), *shapes)
    refused("entries", dilated([1, 1], [1], [1]), *shapes)
    refused("integers|type|features", dilated([1], [1], [1]), f32(1, 3, 5), s32(4, 2, 2))
    refused("unknown Padding", lambda x, k: xla.conv(x, k, [1], "FULL"), *shapes)


def test_dimension_numbers_name_each_dimension_once():
    numbers = ConvolutionDimensionNumbers(0, 0, (2,), 1, 0, (2,), 0, 1, (2,))
    op = Convolution(window=Window((WindowDimension(2),)), dim_labels=numbers)
    with pytest.raises(xla.ShapeError, match="name each of"):
        op.result_shape([f32(1, 2, 5), f32(4, 2, 2)], None)


_LABELS = "dim_labels=bf0_oi0->bf0"


def in_text(attributes, result, *arguments):
    """The result of a convolution that is given as HLO text."""
    shapes = [xla.make_shape(a.dtype, a.shape).to_string(with_layout=False) for a in arguments]
    parameters = "".join(f"  p{i} = {s} parameter({i})\n" for i, s in enumerate(shapes))
    names = ", ".join(f"p{i}" for i in range(len(shapes)))
    text = f"HloModule m\nENTRY e {{\n{parameters}  ROOT r = {result} convolution({names}), {attributes}\n}}"
    return compiled(xla.HloModule.from_text(text))(*arguments)


def test_gradients_are_forward_convolutions():
    x, k = floats(np.arange(10).reshape(1, 2, 5)), floats(np.arange(12).reshape(2, 2, 3))
    plain = f"window={{size=3 pad=2_1}}, {_LABELS}"
    expected = by_loops(x, k, [WindowDimension(3, padding_low=2, padding_high=1)])
    for kind in ("fprop", "wgrad"):
        same(in_text(f"{plain}, convolution_kind={kind}", "f32[1,2,6]", x, k), floats(expected))
    turned = by_loops(x, k[:, :, ::-1], [WindowDimension(3, padding_low=2, padding_high=1)])
    same(in_text(f"{plain}, convolution_kind=dgrad", "f32[1,2,6]", x, k), floats(turned))


def test_dgrad_is_the_gradient_of_the_input():
    k, grad = floats(np.arange(18).reshape(3, 2, 3)), floats(np.arange(9).reshape(1, 3, 3) - 4)
    forward = WindowDimension(3, stride=2, padding_low=1, padding_high=1)
    # Each element of the gradient says how the sum of grad * result changes with one element of the input.
    expected = np.zeros((1, 2, 5))
    for index in np.ndindex(*expected.shape):
        x = np.zeros(expected.shape)
        x[index] = 1
        expected[index] = (by_loops(x, k, [forward]) * grad).sum()
    attributes = "window={size=3 pad=1_1 lhs_dilate=2}, dim_labels=bf0_io0->bf0, convolution_kind=dgrad"
    same(in_text(attributes, "f32[1,2,5]", grad, k), floats(expected))


@pytest.mark.parametrize("labels", ["oi0", "i0o", "0oi"])
def test_sparse_kernel(labels):
    order = ["oi0".index(letter) for letter in labels]
    x = floats(np.arange(30).reshape(1, 6, 5))
    values = floats(np.arange(1, 13).reshape(2, 2, 3)).transpose(order)
    places = np.random.default_rng(0).integers(0, 3, values.shape).astype(np.int8)
    dense = np.zeros((2, 6, 3), np.float32)
    for index in np.ndindex(*values.shape):
        o, i, spot = (index[labels.index(letter)] for letter in "oi0")
        dense[o, 3 * i + int(places[index]), spot] = values[index]
    sparsity = f"sparsity_config={{rhs={{sparsity=1x3 dimension={labels.index('i')} stride=1 idx=2}}}}"
    attributes = f"window={{size=3}}, dim_labels=bf0_{labels}->bf0, {sparsity}"
    same(in_text(attributes, "f32[1,2,3]", x, values, places), floats(by_loops(x, dense, [WindowDimension(3)])))


@pytest.mark.parametrize(
    ("sparsity", "error", "message"),
    [
        ("rhs={sparsity=1x2 dimension=1 stride=2 idx=2}", xla.UnsupportedError, "stride 2"),
        ("rhs={sparsity=1x2 dimension=0 stride=1 idx=2}", xla.UnsupportedError, "along dimension 0"),
    ],
)
def test_sparse_convolution_refuses(sparsity, error, message):
    attributes = f"window={{size=1}}, {_LABELS}, sparsity_config={{{sparsity}}}"
    with pytest.raises(error, match=message):
        in_text(attributes, "f32[1,1,1]", floats([[[1], [2]]]), floats([[[3]]]), ints([[[2]]]))
