"""Parts that read ranges of split dimensions: in how many permutes of how many elements."""

import numpy as np
import pytest
from split_programs import COLUMNS, ROWS, check, collectives, module_of, run_split, sends

import xlakit as xla
from xlakit.passes.spmd.split_dimensions.halo import Ranges, exchange


@pytest.mark.parametrize(
    ("size", "part", "starts", "length", "permutes", "sent"),
    [
        (12, 4, (-1, 3, 7), 6, 2, 4 / 3),  # one neighbor on each side
        (12, 4, (1, 5, 9), 4, 1, 2 / 3),  # all but the last part get one element
        (12, 4, (0, 4, 8), 4, 0, 0),  # what they have
        (12, 4, (8, 4, 0), 4, 1, 8 / 3),  # backwards: the middle one stays
        (10, 4, (-6, -2, 2), 12, 2, 14 / 3),  # more than one neighbor, and a shorter last part
        (16, 4, (0, 2, 4, 6), 2, 2, 1.5),  # to fewer elements
        (64, 4, tuple(range(-12, 52, 4)), 28, 6, 4 * 6 * (16 - 2) / 16),  # three neighbors of sixteen on each side
    ],
)
def test_segments_in_permutes(size, part, starts, length, permutes, sent):
    plan = exchange(size, part, Ranges(starts, length, (length,) * len(starts)))
    assert plan is not None
    assert len(plan.blocks) == permutes
    assert plan.sent == pytest.approx(sent)
    for block in plan.blocks:
        assert len(set(dict(block.pairs))) == len(block.pairs) == len({target for _, target in block.pairs})


def test_what_takes_many_permutes_is_not_exchanged():
    assert exchange(64, 4, Ranges((0,) * 16, 1, (1,) * 16)) is None  # all from the first part
    assert exchange(64, 4, Ranges((0,) * 16, 64, (64,) * 16)) is None  # everything for all
    assert exchange(32, 4, Ranges(tuple(range(-12, 20, 4)), 28, (28,) * 8)) is None  # six of seven others


@pytest.mark.parametrize(
    ("name", "body", "sent"),
    [
        ("differences", "s = f32[15,2] slice(x), slice={[1:16], [0:2]} z = f32[] constant(3) "
         "ROOT r = f32[16,2] pad(s, z), padding=0_1x0_0", 3 * 2 / 4),
        ("two neighbors", "a = f32[15,2] slice(x), slice={[1:16], [0:2]} b = f32[15,2] slice(x), slice={[0:15], [0:2]} "
         "s = f32[15,2] subtract(a, b) z = f32[] constant(3) ROOT r = f32[16,2] pad(s, z), padding=1_0x0_0",
         (3 * 2 + 3 * 2) / 4),
        ("roll", "a = f32[1,2] slice(x), slice={[15:16], [0:2]} b = f32[15,2] slice(x), slice={[0:15], [0:2]} "
         "ROOT r = f32[16,2] concatenate(a, b), dimensions={0}", 2),
        ("a row in front", "a = f32[1,2] constant({{7, -0}}) b = f32[15,2] slice(x), slice={[0:15], [0:2]} "
         "ROOT r = f32[16,2] concatenate(a, b), dimensions={0}", 3 * 2 / 4),
        ("every second", "ROOT r = f32[8,2] slice(x), slice={[1:16:2], [0:2]}", 0),
        ("in between", "z = f32[] constant(3) ROOT r = f32[32,2] pad(x, z), padding=1_0_1x0_0", 0),
    ],
)  # fmt: skip
def test_neighbors_send_their_edges(name, body, sent):
    split = check(f"x = f32[16,2] parameter(0), sharding={ROWS} {body}", None)
    assert sends(split) == pytest.approx(sent)
    assert split.entry.root.shape.dimensions[0] < 16


def test_levels_of_a_scan_with_fewer_elements_than_parts_take_one_gather():
    """Of 4 elements on 4 devices each second one, of these again, and back: one gather, not a gather of each level."""
    split = check(
        f"x = f32[8,2] parameter(0), sharding={ROWS} z = f32[] constant(0) "
        "a = f32[4,2] slice(x), slice={[0:8:2], [0:2]} b = f32[4,2] slice(x), slice={[1:8:2], [0:2]} "
        "s = f32[4,2] add(a, b) c = f32[2,2] slice(s), slice={[0:4:2], [0:2]} "
        "d = f32[2,2] slice(s), slice={[1:4:2], [0:2]} t = f32[2,2] multiply(c, d) "
        "e = f32[4,2] pad(t, z), padding=0_1_1x0_0 f = f32[4,2] pad(c, z), padding=1_0_1x0_0 "
        "g = f32[4,2] add(e, f) h = f32[8,2] pad(g, z), padding=0_1_1x0_0 ROOT r = f32[8,2] add(h, x)",
        {"all-gather": 1},
    )
    assert sends(split) == 3 * 2


def test_a_small_part_of_one_device_comes_by_a_sum():
    split = check(
        f"x = f32[16,2] parameter(0), sharding={ROWS} ROOT r = f32[1,2] slice(x), slice={{[5:6], [0:2]}}", None
    )
    assert sends(split) == 2 * 3 / 4 * 2


def test_numbers_outside_are_what_the_pad_says():
    padded = "z = f32[] constant(-7) ROOT r = f32[12,1] pad(x, z), padding=-1_5x0_0"
    split = check(f"x = f32[8,1] parameter(0), sharding={ROWS} {padded}", None)
    x = np.arange(1, 9, dtype=np.float32).reshape(8, 1)
    parts = xla.compile(split, backend="cpu").execute_replicated([[x[2 * p : 2 * p + 2]] for p in range(4)])
    assert [float(v) for r in parts for v in np.asarray(r).ravel()] == [2, 3, 4, 5, 6, 7, 8, -7, -7, -7, -7, -7]


def windows(text, size, out, *, opcode="add", init="5", kind="f32"):
    """A program of one reduce-window along a split dimension, and its reducer."""
    reducer = f"w {{ a = {kind}[] parameter(0) b = {kind}[] parameter(1) ROOT r = {kind}[] {opcode}(a, b) }}"
    body = f"x = {kind}[{size},2] parameter(0), sharding={ROWS} z = {kind}[] constant({init}) "
    return f"{body} ROOT r = {kind}[{out},2] reduce-window(x, z), window={{{text}}}, to_apply=w", reducer


@pytest.mark.parametrize(
    ("text", "size", "out", "sent"),
    [
        ("size=2x1 stride=2x1", 16, 8, 0),  # pooling
        ("size=3x1 pad=1_1x0_0", 16, 16, 3),  # one row of each neighbor
        ("size=3x1 pad=-1_3x0_0", 16, 16, None),  # negative padding
        ("size=3x1 pad=1_1x0_0 rhs_dilate=2x1", 16, 14, None),  # holes in the window, an odd number of results
        ("size=2x1 pad=2_2x0_0 lhs_dilate=2x1", 16, 34, None),  # holes in the array: of parts of 9 the holes differ
        ("size=2x1 pad=1_1x0_0 lhs_dilate=2x1", 16, 32, None),  # of parts of 8 they do not
        ("size=15x1 pad=14_0x0_0", 16, 16, 3 * 4),  # nearly all that came before: half of what a gather sends
    ],
)
@pytest.mark.parametrize(("opcode", "init"), [("add", "5"), ("maximum", "3"), ("multiply", "-0"), ("add", "-0")])
def test_windows_see_neighbors_and_an_initial_value_once(text, size, out, sent, opcode, init):
    body, reducer = windows(text, size, out, opcode=opcode, init=init)
    split = check(body, None, reducer)
    assert sent is None or sends(split) == pytest.approx(sent)


def test_a_reducer_without_identity_stays_inside_or_is_gathered():
    text, reducer = windows("size=2x1", 16, 15, opcode="subtract")
    assert check(text, None, reducer).entry.root.shape.dimensions == (15, 2)
    text, reducer = windows("size=3x1 pad=1_1x0_0", 16, 16, opcode="subtract")
    check(text, {"all-gather": 1}, reducer)


CONVOLUTION = "x = f32[2,16,3] parameter(0), sharding={devices=[1,4,1]<=[4]} k = f32[3,3,2] parameter(1) "


@pytest.mark.parametrize(
    ("window", "out", "sent"),
    [
        ("size=3 pad=1_1", 16, 2 * 2 * 3 * 3 / 4),
        ("size=3 stride=2 pad=0_1", 8, 2 * 3 * 3 / 4),
        ("size=3 pad=1_1 rhs_reversal=1", 16, 2 * 2 * 3 * 3 / 4),
        ("size=3 pad=1_2 lhs_dilate=2", 32, 2 * 3 * 3 / 4),  # the gradient of an image under a stride
        ("size=3", 14, None),
    ],
)
def test_convolutions_of_images_in_parts(window, out, sent):
    labels = "dim_labels=b0f_0io->b0f"
    body = f"{CONVOLUTION} ROOT r = f32[2,{out},2] convolution(x, k), window={{{window}}}, {labels}"
    split = check(body, None)
    assert sent is None or sends(split) == pytest.approx(sent)


def test_features_in_parts_are_added_up_beside():
    sharding = "{devices=[1,2,2]<=[4]}"
    body = CONVOLUTION.replace("3]", "4]", 1).replace("{devices=[1,4,1]<=[4]}", sharding).replace("[3,3,2]", "[3,4,2]")
    labels = "dim_labels=b0f_0io->b0f"
    check(f"{body} ROOT r = f32[2,16,2] convolution(x, k), window={{size=3 pad=1_1}}, {labels}", None)


@pytest.mark.parametrize(
    ("window", "image", "out", "sent"),
    [
        ("size=16 pad=1_1", 16, 3, 2 * 2 * 3 * 3 / 4),  # one row of each neighbor
        ("size=8 pad=0_1 rhs_dilate=2", 16, 3, 2 * 3 * 3 / 4),  # under a stride of 2
        ("size=16 pad=1_1 lhs_dilate=2", 8, 2, 2 * 2 * 3 * 3 / 4),
    ],
)
def test_gradients_of_kernels_are_sums_of_those_of_parts(window, image, out, sent):
    size = int(window.split()[0][5:])
    split = check(
        f"x = f32[2,{image},3] parameter(0), sharding={{devices=[1,4,1]<=[4]}} "
        f"g = f32[2,{size},4] parameter(1), sharding={{devices=[1,4,1]<=[4]}} "
        f"ROOT r = f32[{out},3,4] convolution(x, g), window={{{window}}}, dim_labels=f0b_i0o->0bf",
        None,
    )
    assert sends(split) <= sent + 2 * 3 / 4 * out * 3 * 4
    assert [i.opcode for i in split.entry.instructions if i.opcode.startswith("all-")] == ["all-reduce"]


def test_a_kernel_that_is_reversed_by_its_kind():
    text = "convolution(x, g), window={size=16 pad=1_1}, dim_labels=f0b_i0o->0bf, convolution_kind=dgrad"
    # As parts of the kernel come in the other order, it is gathered.
    both = "[2,16,3] parameter({}), sharding={{devices=[1,4,1]<=[4]}}"
    check(f"x = f32{both.format(0)} g = f32{both.format(1)} ROOT r = f32[3,3,3] {text}", None)


@pytest.mark.parametrize(
    ("window", "placements", "sent"),
    [
        ("size=2x1 stride=2x1", 8, 0),
        ("size=3x1 stride=2x1", 7, None),  # windows that overlap, an odd number of them
        ("size=2x1 stride=4x1", 4, 0),  # elements under no window
        ("size=3x1 pad=1_1x0_0", 16, (4 + 2) * 2 * 3 / 4),  # padding cannot be selected: copies of elements can
        ("size=3x1 stride=2x1 pad=0_1x0_0", 8, (3 + 1) * 2 * 3 / 4),
        ("size=4x2 stride=4x1 pad=2_2x0_1", 5, None),
        ("size=2x1 stride=2x1 pad=2_0x0_0", 9, None),  # a window of padding: gathered
    ],
)
@pytest.mark.parametrize("order", ["GE", "GT", "LE"])
def test_sources_reach_the_selected_elements_of_neighbors(window, placements, sent, order):
    select = f"ge {{ a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = pred[] compare(a, b), direction={order} }}"
    split = check(
        f"x = f32[16,2] parameter(0), sharding={ROWS} s = f32[{placements},2] parameter(1), sharding={ROWS} "
        f"z = f32[] constant(3) ROOT r = f32[16,2] select-and-scatter(x, s, z), window={{{window}}}, "
        "select=ge, scatter=add",
        None,
        select,
    )
    assert sent is None or sends(split) == sent


def test_a_sum_over_unequal_parts_sends_sums():
    body = (
        f"x = f32[16,2] parameter(0), sharding={ROWS} a = f32[15,2] slice(x), slice={{[1:16], [0:2]}} "
        "b = f32[15,2] slice(x), slice={[0:15], [0:2]} s = f32[15,2] subtract(a, b) q = f32[15,2] multiply(s, s) "
        "z = f32[] constant(4) ROOT r = f32[2] reduce(q, z), dimensions={0}, to_apply=add"
    )
    assert sends(check(body, None)) == 3 * 2 / 4 + 2 * 3 / 4 * 2


def test_arguments_and_results_in_unequal_parts_stay_so():
    body = (
        f"x = f32[10,2] parameter(0), sharding={ROWS} t = f32[2,10] transpose(x), dimensions={{1,0}} "
        "z = f32[] constant(4) b = f32[2,10] broadcast(z), dimensions={} i = f32[2,10] iota(), iota_dimension=1 "
        f"s = f32[2,10] add(t, b) ROOT r = f32[2,10] multiply(s, i), sharding={COLUMNS}"
    )
    split = check(body, {})
    assert split.entry.root.shape.dimensions == (2, 3)
    body = (
        f"x = f32[10,2] parameter(0), sharding={ROWS} ROOT r = f32[10,2] reverse(x), dimensions={{0}}, sharding={ROWS}"
    )
    check(body, {"collective-permute": 2})


def test_a_sum_that_is_wanted_in_unequal_parts_is_no_reduce_scatter():
    body = (
        f"x = f32[8,3] parameter(0), sharding={ROWS} z = f32[] constant(0) "
        "ROOT r = f32[3] reduce(x, z), dimensions={0}, to_apply=add, sharding={devices=[4]<=[4]}"
    )
    check(body, {"all-reduce": 1})


@pytest.mark.parametrize(("by", "permutes", "sent"), [(1, 1, 1), (4, 1, 4), (6, 2, 4), (8, 1, 4), (15, 1, 1)])
def test_a_roll_sends_no_more_than_it_moves(by, permutes, sent):
    body = (
        f"x = f32[16] parameter(0), sharding={{devices=[4]<=[4]}} a = f32[{by}] slice(x), slice={{[{16 - by}:16]}} "
        f"b = f32[{16 - by}] slice(x), slice={{[0:{16 - by}]}} ROOT r = f32[16] concatenate(a, b), dimensions={{0}}"
    )
    split = check(body, {"collective-permute": permutes})
    assert sends(split) == sent


@pytest.mark.parametrize(("kernel", "nan"), [("inf, 1, 1", [0]), ("1, 1, inf", [15]), ("nan, 1, 1", range(16))])
def test_zeros_around_an_image_are_numbers_like_others(kernel, nan):
    taps = ", ".join(f"{{{{{tap.strip()}}}}}" for tap in kernel.split(","))
    body = (
        f"x = f32[1,16,1] parameter(0), sharding={{devices=[1,4,1]<=[4]}} k = f32[3,1,1] constant({{{taps}}}) "
        "ROOT r = f32[1,16,1] convolution(x, k), window={size=3 pad=1_1}, dim_labels=b0f_0io->b0f"
    )
    result, split = run_split(module_of(body), np.arange(1, 17, dtype=np.float32).reshape(1, 16, 1), backend="cpu")
    assert collectives(split) == {"collective-permute": 2}
    assert np.flatnonzero(np.isnan(result)).tolist() == list(nan)


def test_loops_and_branches_carry_unequal_parts():
    array = "f32[15,2]"
    state = f"(s32[], {array})"
    step = (
        f"step {{ p = {state} parameter(0) i = s32[] get-tuple-element(p), index=0 "
        "x = f32[15,2] get-tuple-element(p), index=1 z = f32[] constant(3) "
        "a = f32[16,2] pad(x, z), padding=0_1x0_0 b = f32[15,2] slice(a), slice={[1:16], [0:2]} "
        f"s = f32[15,2] subtract(b, x) one = s32[] constant(1) n = s32[] add(i, one) ROOT r = {state} tuple(n, s) }}"
    )
    test = (
        f"test {{ p = {state} parameter(0) i = s32[] get-tuple-element(p), index=0 n = s32[] constant(4) "
        "ROOT r = pred[] compare(i, n), direction=LT }"
    )
    one = f"one {{ x = {array} parameter(0) ROOT r = {array} negate(x) }}"
    two = f"two {{ x = {array} parameter(0) ROOT r = {array} add(x, x) }}"
    split = check(
        f"x = f32[16,2] parameter(0), sharding={ROWS} y = f32[15,2] slice(x), slice={{[0:15], [0:2]}} "
        f"i = s32[] constant(0) s = {state} tuple(i, y) w = {state} while(s), condition=test, body=step "
        "l = f32[15,2] get-tuple-element(w), index=1 t = s32[] get-tuple-element(w), index=0 "
        f"ROOT c = f32[15,2] conditional(t, l, l), branch_computations={{one, two}}, sharding={ROWS}",
        None,
        step,
        test,
        one,
        two,
    )
    # A row in each of four iterations, and none is gathered.
    assert sends(split) == 4 * 3 * 2 / 4


def test_parts_that_are_moved_by_a_few_elements_need_little_more_memory():
    """100 elements of each part become 101, of which some come from the neighbor; not among 300."""
    body = (
        "x = f32[400] parameter(0), sharding={devices=[4]<=[4]} a = f32[1] slice(x), slice={[0:1]} "
        "b = f32[1] slice(x), slice={[399:400]} c = f32[402] concatenate(a, x, b), dimensions={0} "
        "ROOT r = f32[402] negate(c), sharding={devices=[4]<=[4]}"
    )
    split = check(body, None)
    shapes = [i.shape for c in split.computations for i in c.instructions if i.shape.is_array]
    assert max(shape.num_elements for shape in shapes) < 120
