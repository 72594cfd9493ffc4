import math
import random

import numpy as np
import pytest
from cpu.kernels.product_running import close, dirty, random_array, run

import xlakit as xla
from xlakit.cpu.declined import DeclinedError
from xlakit.cpu.kernels.conv.convolution import emit_convolution, plan_convolution
from xlakit.cpu.kernels.gemm.engine import choose_engine
from xlakit.cpu.llvm import Module
from xlakit.ir.attributes import ConvolutionDimensionNumbers, Window, WindowDimension
from xlakit.ir.enums import ConvolutionKind
from xlakit.ops.convolution import Convolution
from xlakit.options import compiling

P = xla.PrimitiveType
NHWC, NCHW = "b01f_01io->b01f", "bf01_oi01->bf01"
SAME = {"padding_low": 1, "padding_high": 1}


class Declared:
    def __init__(self, shape):
        self.shape = shape


def numbers(text):
    inputs, rest = text.split("_")
    kernel, output = rest.split("->")

    def spatial(labels):
        return tuple(labels.index(str(d)) for d in range(len(labels) - 2))

    return ConvolutionDimensionNumbers(
        inputs.index("b"),
        inputs.index("f"),
        spatial(inputs),
        kernel.index("i"),
        kernel.index("o"),
        spatial(kernel),
        output.index("b"),
        output.index("f"),
        spatial(output),
    )


def convolution(labels, rhs, window=None, **attributes):
    found = numbers(labels)
    sizes = [rhs[d] for d in found.kernel_spatial_dimensions]
    each = window if isinstance(window, list) else [window or {}] * len(sizes)
    dims = tuple(WindowDimension(size=size, **d) for size, d in zip(sizes, each, strict=True))
    return Convolution(window=Window(dims), dim_labels=found, **attributes)


def check(labels, lhs, rhs, window=None, kinds=(P.F32,) * 3, kind=None, **attributes):
    op = convolution(labels, rhs, window, **attributes)
    left, right = xla.make_shape(kinds[0], lhs), xla.make_shape(kinds[1], rhs)
    result = op.result_shape([left, right], None).with_element_type(kinds[2])
    plan = plan_convolution(op, left, right, result)
    assert kind in (None, plan.kind)
    a, b, out = random_array(kinds[0], lhs), random_array(kinds[1], rhs, 1), dirty(result)
    module = Module("convolution")
    stages = [(s.function, s.tasks) for s in emit_convolution(module, plan)]
    run(module, stages, [a, b, out, np.full(plan.scratch_bytes + 1, 255, np.uint8)])
    close(out, op.evaluate(Declared(result), a, b))
    return plan


def test_places_or_features_are_rows():
    check(NHWC, (2, 9, 8, 5), (3, 3, 5, 20), SAME, kind="positions")
    check(NCHW, (2, 5, 18, 20), (6, 5, 3, 3), SAME, kind="features")
    check(NCHW, (2, 64, 7, 7), (32, 64, 3, 3), SAME, kind="positions")
    check(NHWC, (2, 9, 8, 40), (1, 1, 40, 24), kind="positions")
    check(NCHW, (2, 24, 9, 8), (10, 24, 1, 1), kind="features")
    check("bf0_oi0->bf0", (2, 5, 40), (6, 5, 3), SAME, kind="features")


def test_tiles_are_filled():
    # Rows of 20 would leave a third of the tiles empty, which counts where sums are long.
    check(NCHW, (2, 32, 6, 20), (48, 32, 3, 3), SAME, kind="positions")
    check(NCHW, (2, 2, 6, 20), (48, 2, 1, 1), [SAME, {}], kind="features")
    # Few features: placements are the columns, though they lie apart in the result.
    check(NHWC, (2, 9, 20, 1), (3, 3, 1, 1), SAME, kind="features")
    twice = {"base_dilation": 2, "padding_low": 1, "padding_high": 2}
    check(NCHW, (2, 12, 9, 20), (3, 12, 4, 4), twice, kind="features")


@pytest.mark.parametrize("kind", [P.F16])
def test_kernels_of_few_bits_are_converted_once(kind):
    narrow = (kind, kind, P.F32)
    plan = check(NCHW, (3, 8, 9, 32), (16, 8, 3, 3), SAME, narrow, kind="features")
    assert plan.converted is not None
    assert plan.converted.first == plan.padded.bytes
    plan = check(NCHW, (3, 24, 9, 8), (16, 24, 1, 1), None, (kind, kind, kind), kind="features")
    assert plan.converted is not None
    assert plan.converted.first == 0
    transposed = {"base_dilation": 2, "padding_low": 2, "padding_high": 2}
    plan = check(NCHW, (2, 8, 9, 32), (16, 8, 4, 3), [transposed, SAME], narrow, kind="features")
    assert len(plan.products) == 2
    assert all(p.arrays == (3, 3, 2) for p, _ in plan.products)
    # In the phase of the fewest positions these are the rows, whose kernel is the right operand.
    windows = [{"stride": 3, "padding_low": 2}, {"base_dilation": 3, "padding_high": 1}]
    plan = check("0f1b_o01i->bf01", (6, 2, 3, 1), (1, 3, 4, 2), windows, (kind, kind, kind))
    assert {p.arrays for p, _ in plan.products} == {(3, 3, 2), (3, 1, 2)}
    assert check(NCHW, (3, 8, 9, 32), (16, 8, 3, 3), SAME).converted is None
    assert check(NHWC, (3, 9, 8, 8), (3, 3, 8, 32), SAME, narrow, kind="positions").converted is None


def test_an_input_without_zeros_around_is_converted_in_several_tasks():
    with compiling(knobs={"convolution_pad.task_bytes": 1 << 17}):
        plan = check(NHWC, (4, 70, 90, 5), (2, 2, 5, 6), None, (P.F16, P.F16, P.F32), kind="positions")
        assert plan.padded.tasks > 1


@pytest.mark.parametrize("kinds", [(P.F32,) * 3, (P.F16, P.F16, P.F32), (P.C64,) * 3])
@pytest.mark.parametrize(
    ("image", "window"),
    [
        ((3, 19, 12), SAME),
        ((2, 25, 39), {"stride": 2, "padding_low": 2, "padding_high": 1}),
        ((3, 17, 16), {"window_dilation": 2, "window_reversal": True, "padding_low": 2, "padding_high": 2}),
        ((2, 31, 15), {"padding_low": -1, "padding_high": 2}),
        ((3, 15, 5, 7), SAME),
    ],
)
def test_threads_make_the_lines_that_they_read(image, window, kinds):
    labels = NHWC if len(image) == 3 else "b012f_012io->b012f"
    # Room for 16 lines or more, of which none is wider.
    room = 16 * math.prod(size + 4 for size in image[2:]) * 3 * P.C64.byte_width
    knobs = {"convolution.lines_bytes": room, "convolution.most_copies": 1000, "gemm.block_bytes": 4 << 10}
    with compiling(knobs=knobs):
        plan = check(labels, (*image, 3), (*[3] * (len(image) - 1), 3, 20), window, kinds, kind="positions")
    (product, _), *_ = plan.products
    assert product.lines is not None
    assert product.lines.chunk < product.sizes[0]
    assert plan.scratch_bytes == 0


@pytest.mark.parametrize("kinds", [(P.F32,) * 3, (P.F16, P.F16, P.F32), (P.C64,) * 3])
def test_lines_that_threads_have_no_room_for(kinds):
    with compiling(knobs={"convolution.lines_bytes": 0}):
        assert check(NHWC, (3, 19, 12, 3), (3, 3, 3, 20), SAME, kinds).scratch_bytes > 0


def test_features_alone():
    check(NHWC, (2, 12, 11, 35), (3, 3, 1, 35), SAME, feature_group_count=35, kind="depthwise")
    strided = {"padding_low": 3, "stride": 2}
    check(NHWC, (1, 12, 11, 16), (7, 5, 1, 16), strided, feature_group_count=16, kind="depthwise")
    check(NHWC, (1, 5, 4, 16), (3, 3, 1, 16), {"base_dilation": 2, "padding_low": 2}, feature_group_count=16)
    check(NHWC, (1, 9, 9, 9), (3, 3, 1, 9), SAME, (P.S8, P.S8, P.S32), feature_group_count=9, kind="depthwise")
    check(NCHW, (2, 6, 9, 20), (6, 1, 3, 3), SAME, feature_group_count=6, kind="features")
    check("f01b_i01o->01bf", (8, 6, 6, 3), (8, 4, 4, 8), feature_group_count=1, batch_group_count=1)
    check("b01f_01io->b01f", (8, 6, 6, 3), (2, 2, 3, 8), batch_group_count=8)


def test_groups():
    check(NHWC, (2, 7, 7, 12), (3, 3, 4, 15), SAME, feature_group_count=3)
    check(NCHW, (2, 12, 7, 17), (15, 4, 3, 3), SAME, feature_group_count=3)
    check(NHWC, (6, 7, 7, 4), (3, 3, 4, 15), SAME, batch_group_count=3)


@pytest.mark.parametrize("kind", [P.F32, P.F64, P.S32])
def test_groups_that_share_a_register(kind):
    lanes = choose_engine(kind, kind, kind).lanes
    if lanes < 4:
        pytest.skip("two groups of one feature fill a register")
    both = [{"padding_low": 1, "padding_high": 2, "stride": 2}, {"padding_high": 1, "window_dilation": 2}]
    for features, window in ((lanes // 2, SAME), (lanes // 4, None), (lanes // 2, both)):
        together = lanes // features
        for inputs, groups in ((8, 2 * together), (6, together), (3, 4 * together)):
            sizes = (3, 9, 12, inputs * groups), (3, 3, inputs, features * groups)
            # A quarter of the lanes of 16 bytes is one feature, whose nine products do not pay for a copy.
            with compiling(knobs={"convolution_grouped.least_products": 1}):
                plan = check(NHWC, *sizes, window, (kind,) * 3, "positions", feature_group_count=groups)
            ((product, blocking),) = plan.products
            assert product.interleaved == together and product.lines is not None and not plan.scratch_bytes
            assert blocking.engine.interleaved == together
    # Features of a group that do not divide a register, groups that do not fill one, images with features first.
    for labels, *sizes, groups in (
        (NHWC, (2, 9, 9, 12), (3, 3, 3, 4 * (lanes // 2 + 1)), 4),
        (NHWC, (2, 9, 9, 9), (3, 3, 3, 3 * lanes // 2), 3),
        (NCHW, (2, 12, 9, 9), (4 * (lanes // 2), 3, 3, 3), 4),
    ):
        plan = check(labels, *sizes, SAME, (kind,) * 3, feature_group_count=groups)
        assert {product.interleaved for product, _ in plan.products} == {1}


def test_groups_that_fill_registers():
    lanes = choose_engine(P.F32, P.F32, P.F32).lanes
    for inputs, features, groups, window in ((16, lanes, 4, SAME), (9, 2 * lanes, 3, SAME), (70, lanes, 2, SAME)):
        plan = check(
            NHWC, (2, 9, 8, inputs * groups), (3, 3, inputs, features * groups), window, feature_group_count=groups
        )
        ((product, _),) = plan.products
        assert product.lines is not None and product.interleaved == 1 and not plan.scratch_bytes
    # Long rows of features that no vectors divide are copied in a loop.
    check(NHWC, (1, 6, 6, 4 * 31), (3, 3, 31, 4 * (lanes // 2)), SAME, feature_group_count=4)


def test_groups_of_a_batch_of_single_elements_are_none_of_features():
    for features in (1, 2, 4, 16):
        check(NHWC, (8, 1, 1, 8), (3, 3, 8, 8 * features), SAME, batch_group_count=8)


@pytest.mark.parametrize("kind", [P.F32, P.F64, P.U8])
def test_groups_of_features_before_dimensions_of_one_element(kind):
    # The features are side by side, and yet not the last dimension.
    window = [{"padding_high": 1}, {}]
    for groups, inputs, features in ((3, 2, 1), (4, 16, 16), (8, 4, 4), (8, 8, 8)):
        sizes = (2, groups * inputs, 1, 1), (groups * features, inputs, 2, 1)
        check(NCHW, *sizes, window, (kind,) * 3, feature_group_count=groups)


def test_groups_that_share_a_register_are_read_in_several_tasks():
    plan = check(NHWC, (8, 40, 40, 64), (3, 3, 8, 64), SAME, feature_group_count=8)
    ((product, blocking),) = plan.products
    assert blocking.row_tasks > 1
    assert product.lines is None or product.lines.chunk < product.sizes[0]


def test_groups_that_share_lines_of_the_cache():
    # Apart where the input is written out with zeros around it; one after another for some rows at a time where not.
    plan = check(NHWC, (2, 20, 31, 64), (3, 3, 8, 96), SAME, feature_group_count=8)
    assert plan.padded.groups == 8
    assert plan.products[0][1].row_tasks > 1
    plan = check(NHWC, (1, 30, 30, 64), (3, 2, 4, 48), feature_group_count=16)
    assert plan.padded is None
    assert plan.products[0][1].batches_inner
    plan = check(NHWC, (2, 9, 7, 6), (3, 3, 3, 10), [SAME, {"padding_low": 2}], feature_group_count=2)
    assert plan.padded.groups == 2
    plan = check(NHWC, (2, 9, 7, 6), (3, 1, 3, 10), [SAME, {}], feature_group_count=2)
    assert plan.padded.groups == 1


@pytest.mark.parametrize("labels", [NHWC, NCHW])
def test_windows_of_all_kinds(labels):
    sizes = ((2, 9, 10, 5), (4, 3, 5, 6)) if labels == NHWC else ((2, 5, 9, 10), (6, 5, 4, 3))
    for window in (
        {"stride": 2, **SAME},
        {"window_dilation": 2, "padding_low": 3, "padding_high": 2},
        {"base_dilation": 2, "padding_low": 2, "padding_high": 2},
        {"base_dilation": 3, "stride": 2, "padding_low": 4, "padding_high": 1},
        {"padding_low": -1, "padding_high": -2},
        {"window_reversal": True, "padding_low": 9, "padding_high": 9},
        {"base_dilation": 6, "window_dilation": 4, "stride": 4, "padding_low": 5, "padding_high": 5},
    ):
        check(labels, *sizes, window)


@pytest.mark.parametrize(
    ("length", "window"),
    [
        (37, {"size": 3, **SAME}),
        # The last strip repeats placements of the one before, and is the only one without padding.
        (56, {"size": 7, "stride": 2, "padding_low": 1, "padding_high": -1}),
        (9, {"size": 9, "padding_low": 4, "padding_high": 4}),
        # More taps than registers hold, all of them, and without those at the ends.
        (90, {"size": 50}),
        (56, {"size": 56, "padding_low": 3, "padding_high": 3}),
        # More strips with padding than have code of their own, and more taps on it.
        (61, {"size": 40, "padding_low": 39, "padding_high": 40}),
        (70, {"size": 3, "window_dilation": 17, "padding_low": 50, "padding_high": 33}),
        (40, {"size": 5, "base_dilation": 2, "window_reversal": True, "padding_low": 6}),
        (1, {"size": 3, **SAME}),
    ],
)
def test_strips_of_features_alone(length, window):
    shapes = (2, 3, length, 21), (2, window["size"], 1, 21)
    window = {name: value for name, value in window.items() if name != "size"}
    # Where strips begin and end does not depend on the type, whose conversions are in strips with padding and without.
    for kinds in ((P.F32,) * 3, (P.S8, P.S8, P.S32))[: 2 if length in (9, 40, 90) else 1]:
        check(NHWC, *shapes, [{}, window], kinds, feature_group_count=21, kind="depthwise")


def test_gradients_of_the_kernel():
    check("f01b_i01o->01bf", (4, 12, 12, 8), (4, 12, 12, 16), SAME)
    check("fb01_io01->fb01", (4, 8, 12, 12), (4, 16, 12, 12), SAME)
    check("f01b_i01o->01bf", (4, 9, 9, 8), (4, 9, 9, 8), SAME, batch_group_count=8, kind="depthwise")
    # Blocks of rows begin within runs of them.
    check("f01b_i01o->01bf", (8, 8, 8, 48), (8, 8, 8, 64), SAME)
    check("f01b_i01o->01bf", (8, 8, 8, 56), (8, 8, 8, 64), SAME)


def test_other_ranks():
    check("bf_io->bf", (5, 7), (7, 9))
    check("b012f_012io->b012f", (1, 4, 5, 6, 3), (3, 3, 3, 3, 8), SAME)
    check("bf012_oi012->bf012", (1, 3, 4, 5, 16), (8, 3, 3, 3, 3), SAME)


@pytest.mark.parametrize("count", [0, 1])
def test_empty_and_single(count):
    check(NHWC, (count, 3, 3, 2), (2, 2, 2, 3))
    check(NHWC, (1, 3, 3, count), (2, 2, count, 3))
    check(NHWC, (1, 3, 3, 2), (2, 2, 2, count))
    check(NHWC, (1, count, 3, 2), (2, 2, 2, 3), {"padding_low": 2, "padding_high": 2})


@pytest.mark.parametrize("kind", [P.F64, P.F16, P.BF16, P.S8, P.U4, P.S32, P.S64, P.C64, P.PRED, P.F8E5M2])
def test_element_types(kind):
    check(NHWC, (1, 7, 7, 5), (3, 3, 5, 6), SAME, (kind,) * 3)
    check(NCHW, (1, 5, 7, 17), (6, 5, 3, 3), SAME, (kind,) * 3)


def test_mixed_element_types():
    check(NHWC, (1, 7, 7, 6), (3, 3, 6, 20), SAME, (P.S8, P.S8, P.S32))
    check(NHWC, (1, 7, 7, 6), (3, 3, 6, 20), SAME, (P.BF16, P.BF16, P.F32))
    check(NCHW, (1, 6, 7, 20), (5, 6, 3, 3), SAME, (P.F32, P.BF16, P.F32))


def test_the_gradient_of_the_input_turns_the_kernel():
    check(NHWC, (1, 7, 7, 6), (3, 2, 6, 5), SAME, convolution_kind=ConvolutionKind.CONVOLUTION_KIND_DGRAD)


@pytest.mark.parametrize("seed", range(12))
def test_any_labels(seed):
    choose = random.Random(seed)
    rank = choose.choice([1, 2, 2, 3])

    def labels(letters):
        found = [*letters, *map(str, range(rank))]
        choose.shuffle(found)
        return "".join(found)

    inputs, kernel, output = labels("bf"), labels("io"), labels("bf")
    groups = choose.choice([1, 1, 2, 3])
    sizes = {"b": 2, "f": 3 * groups, "i": 3, "o": 5 * groups}
    base = [choose.choice([1, 4, 7]) for _ in range(rank)]
    taps = [choose.choice([1, 2, 3]) for _ in range(rank)]
    window = [
        {
            "stride": choose.choice([1, 2]),
            "padding_low": choose.choice([0, 1, 3]),
            "padding_high": choose.choice([0, 1, -1]),
            "window_dilation": choose.choice([1, 2]),
            "base_dilation": choose.choice([1, 1, 2, 3]),
            "window_reversal": choose.random() < 0.3,
        }
        for _ in range(rank)
    ]
    lhs = [sizes[c] if c in sizes else base[int(c)] for c in inputs]
    rhs = [sizes[c] if c in sizes else taps[int(c)] for c in kernel]
    check(f"{inputs}_{kernel}->{output}", lhs, rhs, window, feature_group_count=groups)


def test_what_is_refused():
    op = convolution(NHWC, (3, 3, 2, 4))
    dynamic = xla.make_shape(P.F32, (2, 5, 5, 2), dynamic_dimensions=(True, False, False, False))
    kernel = xla.make_shape(P.F32, (3, 3, 2, 4))
    with pytest.raises(DeclinedError, match="dynamic"):
        plan_convolution(op, dynamic, kernel, op.result_shape([dynamic, kernel], None))
