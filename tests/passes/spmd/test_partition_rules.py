"""Which collectives the program of one partition has, what it works on, and that the whole comes out."""

import numpy as np
import pytest
from split_programs import (
    BOTH,
    COLUMNS,
    ROWS,
    WHOLE,
    X_ROWS,
    Y_COLUMNS,
    boundary,
    check,
    collectives,
    module_of,
    run_split,
    sends,
    with_mesh,
)

import xlakit as xla
from xlakit.errors import UnsupportedError
from xlakit.ir.attributes import AliasEntry
from xlakit.passes.pipeline import run_pipeline
from xlakit.passes.spmd import is_to_be_split, split_over


def two(left, right, kind="f32[8,8]"):
    return f"x = {kind} parameter(0), sharding={left} y = {kind} parameter(1), sharding={right} "


DOT = "ROOT r = f32[8,8] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}"


@pytest.mark.parametrize(
    ("left", "right", "expected", "dims"),
    [
        (ROWS, WHOLE, {}, (2, 8)),
        (WHOLE, COLUMNS, {}, (8, 2)),
        (COLUMNS, ROWS, {"all-reduce": 1}, (8, 8)),
        (X_ROWS, Y_COLUMNS, {}, (4, 4)),
        (BOTH, "{devices=[2,1,2]<=[2,2]T(1,0) last_tile_dim_replicate}", {"all-reduce": 1}, (4, 8)),
        (ROWS, ROWS, {"all-gather": 1}, (2, 8)),
    ],
)
def test_products(left, right, expected, dims):
    check(two(left, right) + DOT, expected, sizes=("dot", dims))


@pytest.mark.parametrize(
    ("body", "expected", "sizes"),
    [
        ("ROOT r = f32[8,8] add(x, x)", {}, ("add", (2, 8))),
        ("ROOT r = f32[8,8] transpose(x), dimensions={1,0}", {}, ("transpose", (8, 2))),
        ("ROOT r = f32[4,2,8] reshape(x)", {}, ("reshape", (1, 2, 8))),
        ("ROOT r = f32[64] reshape(x)", {}, ("reshape", (16,))),
        ("ROOT r = f32[2,4,8] reshape(x)", {}, ("reshape", (1, 2, 8))),
        ("y = f32[2,4,8] reshape(x) ROOT r = f32[64] reshape(y)", {}, ("reshape", (1, 2, 8))),
        ("ROOT r = f32[3,8,8] broadcast(x), dimensions={1,2}", {}, ("broadcast", (3, 2, 8))),
        ("z = f32[] constant(0) ROOT r = f32[8] reduce(x, z), dimensions={1}, to_apply=add", {}, ("reduce", (2,))),
        (
            "z = f32[] constant(0) ROOT r = f32[8] reduce(x, z), dimensions={0}, to_apply=add",
            {"all-reduce": 1},
            ("reduce", (8,)),
        ),
        (
            "z = f32[] constant(3) ROOT r = f32[] reduce(x, z), dimensions={0,1}, to_apply=add",
            {"all-reduce": 1},
            ("reduce", ()),
        ),
        ("ROOT r = f32[8,16] concatenate(x, x), dimensions={1}", {}, ("concatenate", (2, 16))),
        ("ROOT r = f32[16,8] concatenate(x, x), dimensions={0}", {"collective-permute": 3}, ("select", (4, 8))),
        ("ROOT r = f32[8,3] slice(x), slice={[0:8],[2:5]}", {}, ("slice", (2, 3))),
        ("z = f32[] constant(1) ROOT r = f32[8,10] pad(x, z), padding=0_0x1_1", {}, ("pad", (2, 10))),
        ("ROOT r = f32[8,8] reverse(x), dimensions={1}", {}, ("reverse", (2, 8))),
        ("ROOT r = f32[8,8] reverse(x), dimensions={0}", {"collective-permute": 1}, ("reverse", (2, 8))),
        (
            "i = s32[] constant(1) ROOT r = f32[8,2] dynamic-slice(x, i, i), dynamic_slice_sizes={8,2}",
            {},
            ("dynamic-slice", (2, 2)),
        ),
        ("i = f32[8,8] iota(), iota_dimension=0 ROOT r = f32[8,8] multiply(x, i)", {}, ("iota", (2, 8))),
    ],
)
def test_what_stays_split(body, expected, sizes):
    check(f"x = f32[8,8] parameter(0), sharding={ROWS} " + body, expected, sizes=sizes)


def test_rows_of_a_table_are_found_by_split_indices():
    body = (
        f"t = f32[16,4] parameter(0), sharding={WHOLE} i = s32[8] parameter(1), sharding={{devices=[4]<=[4]}} "
        "ROOT r = f32[8,4] gather(t, i), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, "
        "index_vector_dim=1, slice_sizes={1,4}"
    )
    check(body, {}, sizes=("gather", (2, 4)))


def test_rows_are_added_to_a_table_in_parts():
    body = (
        f"t = f32[16,4] parameter(0), sharding={WHOLE} i = s32[8] parameter(1), sharding={{devices=[4]<=[4]}} "
        f"u = f32[8,4] parameter(2), sharding={ROWS} ROOT r = f32[16,4] scatter(t, i, u), update_window_dims={{1}}, "
        "inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add"
    )
    check(body, {"all-reduce": 1}, sizes=("scatter", (16, 4)))


def test_images_are_convolved_apart_and_gradients_of_kernels_added():
    image = "x = f32[8,6,4] parameter(0), sharding={devices=[4,1,1]<=[4]} "
    forward = "k = f32[3,4,5] parameter(1), sharding={replicated} ROOT r = f32[8,4,5] convolution(x, k), "
    check(image + forward + "window={size=3}, dim_labels=b0f_0io->b0f", {}, sizes=("convolution", (2, 4, 5)))
    backward = "g = f32[8,4,5] parameter(1), sharding={devices=[4,1,1]<=[4]} ROOT r = f32[3,4,5] convolution(x, g), "
    labels = "window={size=4}, dim_labels=f0b_i0o->0bf"
    check(image + backward + labels, {"all-reduce": 1}, sizes=("convolution", (3, 4, 5)))


def test_features_of_whole_numbers_are_added_too():
    features = "{devices=[1,1,4]<=[4]}"
    given = f"x = s32[2,6,8] parameter(0), sharding={features} k = s32[3,8,5] parameter(1), sharding={WHOLE} "
    call = "ROOT r = s32[2,4,5] convolution(x, k), window={size=3}, dim_labels=b0f_0io->b0f"
    check(given + call, {"all-reduce": 1}, sizes=("convolution", (2, 4, 5)))


@pytest.mark.parametrize(
    ("groups", "out", "of_image", "of_kernel", "expected", "part"),
    [
        # Four groups of features, or eight, in four parts; two groups do not fit into them.
        ("feature_group_count=4", 8, (4, 6, 8), (3, 2, 8), {}, (4, 4, 2)),
        ("feature_group_count=8", 16, (4, 6, 8), (3, 1, 16), {}, (4, 4, 4)),
        ("feature_group_count=2", 8, (4, 6, 8), (3, 4, 8), {"all-gather": 1}, None),
        # Groups of a batch, as in gradients of kernels.
        ("batch_group_count=4", 8, (8, 6, 2), (3, 2, 8), {}, (2, 4, 2)),
        ("batch_group_count=8", 8, (8, 6, 2), (3, 2, 8), {}, (1, 4, 2)),
    ],
)
def test_groups_of_convolutions_are_split(groups, out, of_image, of_kernel, expected, part):
    batch = of_image[0] // (int(groups[-1]) if groups.startswith("batch") else 1)
    dims = "1,1,4" if groups.startswith("feature") else "4,1,1"
    check(
        f"x = s32[{','.join(map(str, of_image))}] parameter(0), sharding={{devices=[{dims}]<=[4]}} "
        f"k = s32[{','.join(map(str, of_kernel))}] parameter(1), sharding={{replicated}} "
        f"ROOT r = s32[{batch},4,{out}] convolution(x, k), window={{size=3}}, dim_labels=b0f_0io->b0f, {groups}",
        expected,
        sizes=None if part is None else ("convolution", part),
    )


def test_features_that_are_summed_over_in_groups_of_a_batch():
    check(
        f"x = s32[8,6,4] parameter(0), sharding={{devices=[2,1,2]<=[4]}} k = s32[3,4,8] parameter(1), sharding={WHOLE} "
        "ROOT r = s32[2,4,8] convolution(x, k), window={size=3}, dim_labels=b0f_0io->b0f, batch_group_count=4",
        {"all-reduce": 1},
        sizes=("convolution", (2, 4, 4)),
    )


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (ROWS, ROWS, {}),
        (WHOLE, ROWS, {}),
        (ROWS, WHOLE, {"all-gather": 1}),
        (ROWS, COLUMNS, {"all-to-all": 1}),
        (ROWS, "{devices=[4,1]3,1,0,2}", {"collective-permute": 1}),
        (X_ROWS, ROWS, {}),
        (ROWS, X_ROWS, {"all-gather": 1}),
        (X_ROWS, BOTH, {}),
        (BOTH, X_ROWS, {"all-gather": 1}),
        (BOTH, "{devices=[2,2]<=[2,2]T(1,0)}", {"collective-permute": 1}),
        (ROWS, "{maximal device=2}", {"all-gather": 1}),
    ],
)
def test_from_one_sharding_to_another(old, new, expected):
    check(f"x = f32[8,8] parameter(0), sharding={old} ROOT r = f32[8,8] copy(x), sharding={new}", expected)


@pytest.mark.parametrize("columns", [f", sharding={WHOLE}", ""])
def test_an_array_is_gathered_before_it_is_broadcast_and_not_behind(columns):
    body = (
        f"x = f32[8,3] parameter(0), sharding={ROWS} a = f32[8,16,3] broadcast(x), dimensions={{0,2}} "
        f"y = f32[16,3] parameter(1), sharding={ROWS} b = f32[8,16,3] broadcast(y), dimensions={{1,2}}{columns} "
        "ROOT r = f32[8,16,3] subtract(a, b)"
    )
    check(body, {"all-gather": 1}, sizes=("all-gather", (16, 3)))


def test_whole_values_are_made_in_the_parts_that_are_wanted():
    body = (
        "c = f32[] constant(2) b = f32[64,8] broadcast(c), dimensions={} i = f32[64,8] iota(), iota_dimension=0 "
        "m = f32[64,8] multiply(b, i) ROOT r = f32[64,8] exponential(m), sharding={devices=[4,1]<=[4]}"
    )
    split = check(body, {})
    assert max(i.shape.num_elements for i in split.entry.instructions) == 64 * 8 // 4


LOOP = (
    "cond { p = (s32[], f32[8,8]) parameter(0) i = s32[] get-tuple-element(p), index=0 n = s32[] constant(3) "
    "ROOT r = pred[] compare(i, n), direction=LT }",
    "body { p = (s32[], f32[8,8]) parameter(0) i = s32[] get-tuple-element(p), index=0 x = f32[8,8] "
    "get-tuple-element(p), index=1 o = s32[] constant(1) j = s32[] add(i, o) y = f32[8,8] add(x, x) "
    "ROOT r = (s32[], f32[8,8]) tuple(j, y) }",
)


def test_a_loop_carries_parts():
    body = (
        f"x = f32[8,8] parameter(0), sharding={ROWS} z = s32[] constant(0) t = (s32[], f32[8,8]) tuple(z, x) "
        "w = (s32[], f32[8,8]) while(t), condition=cond, body=body ROOT r = f32[8,8] get-tuple-element(w), index=1"
    )
    split = check(body, {}, *LOOP, sizes=("add", (2, 8)))
    assert not [
        i for c in split.computations for i in c.instructions if i.shape.is_array and i.shape.dimensions == (8, 8)
    ]


def test_branches_agree():
    body = (
        f"p = s32[] parameter(0), sharding={WHOLE} x = f32[8,8] parameter(1), sharding={ROWS} "
        f"y = f32[8,8] parameter(2), sharding={WHOLE} "
        "ROOT r = f32[8,8] conditional(p, x, y), branch_computations={twice, same}"
    )
    branches = (
        "twice { x = f32[8,8] parameter(0) ROOT r = f32[8,8] add(x, x) }",
        "same { x = f32[8,8] parameter(0) ROOT r = f32[8,8] copy(x) }",
    )
    split = check(body, {}, *branches, sizes=("conditional", (2, 8)))
    assert split.spmd_output_sharding.tile_dimensions == (4, 1)


def test_parts_that_are_not_equal_are_padded_at_the_edges():
    body = f"x = f32[6,5] parameter(0), sharding={ROWS} ROOT r = f32[6,5] add(x, x), sharding={COLUMNS}"
    split = check(body, {"all-gather": 1})
    assert split.entry.parameters[0].shape.dimensions == (2, 5)
    assert split.entry.root.shape.dimensions == (6, 2)


# -- manual computations -------------------------------------------------------------------------------


def test_a_computation_is_manual_over_one_axis_and_split_over_the_other():
    begin = boundary("l", "f32[4,8]", "x", "GlobalToLocalShape", ['[{"a", ?}, {?}]'], '"a"')
    end = boundary("ROOT r", "f32[4,8]", "c", "LocalToGlobalShape", ["[{?}, {?}]"], '"a"')
    body = (
        "inner { p = f32[4,8] parameter(0) t = f32[4,8] add(p, p) ROOT s = f32[4,8] all-reduce(t), channel_id=1, "
        "replica_groups={{0,2},{1,3}}, use_global_device_ids=true, to_apply=add }"
    )
    given = f"x = f32[8,8] parameter(0), sharding={BOTH}"
    entry = f"ENTRY main {{ {given} {begin} c = f32[4,8] call(l), to_apply=inner {end} }}"
    module = with_mesh(entry, body)
    x = np.arange(64, dtype=np.float32).reshape(8, 8)
    result, split = run_split(module, x)
    np.testing.assert_array_equal(result, 2 * (x[:4] + x[4:]))
    # The other axis splits what the computation works on.
    assert collectives(split) == {"all-reduce": 1}
    assert split.entry.root.shape.dimensions == (4, 4)


def test_arguments_of_a_manual_computation_are_split_first():
    begin = boundary("l", "f32[2,8]", "x", "GlobalToLocalShape", ['[{"b", "a"}, {}]'], '"a", "b"')
    end = boundary("ROOT r", "f32[8,8]", "c", "LocalToGlobalShape", ['[{"b", "a"}, {}]'], '"a", "b"')
    body = (
        "inner { p = f32[2,8] parameter(0) i = u32[] partition-id() f = f32[] convert(i) b = f32[2,8] broadcast(f), "
        "dimensions={} ROOT s = f32[2,8] add(p, b) }"
    )
    given = f"x = f32[8,8] parameter(0), sharding={WHOLE}"
    entry = f"ENTRY main {{ {given} {begin} c = f32[2,8] call(l), to_apply=inner {end} }}"
    result, _ = run_split(with_mesh(entry, body), np.zeros((8, 8), np.float32))
    np.testing.assert_array_equal(result[:, 0], [0, 0, 2, 2, 1, 1, 3, 3])


def test_sums_that_are_still_to_be_made_are_made():
    begin = boundary("l", "f32[2,8]", "x", "GlobalToLocalShape", ['[{"a", "b"}, {}]'], '"a", "b"')
    end = boundary("ROOT r", "f32[2,8]", "l", "LocalToGlobalShape", ['[{}, {}], unreduced={"a", "b"}'], '"a", "b"')
    entry = f"ENTRY main {{ x = f32[8,8] parameter(0), sharding={ROWS} {begin} {end} }}"
    x = np.arange(64, dtype=np.float32).reshape(8, 8)
    result, split = run_split(with_mesh(entry), x)
    np.testing.assert_array_equal(result, x.reshape(4, 2, 8).sum(0))
    assert collectives(split) == {"all-reduce": 1}


def test_a_sum_that_is_wanted_in_parts_is_scattered():
    check(two(COLUMNS, ROWS) + DOT + f", sharding={ROWS}", {"reduce-scatter": 1}, sizes=("dot", (8, 8)))


@pytest.mark.parametrize("manual", ["{manual}", "{devices=[1,1,2,2]<=[4] last_tile_dims={manual, replicated}}"])
def test_the_older_form_of_manual_computations(manual):
    parts = 4 if manual == "{manual}" else 2
    rows = 8 // parts
    sharding = ROWS if parts == 4 else X_ROWS
    body = (
        f"x = f32[8,8] parameter(0), sharding={WHOLE} "
        f's = f32[8,8] custom-call(x), custom_call_target="Sharding", sharding={sharding} '
        f'l = f32[{rows},8] custom-call(s), custom_call_target="SPMDFullToShardShape", sharding={manual} '
        f"z = f32[] constant(0) t = f32[8] reduce(l, z), dimensions={{0}}, to_apply=add "
        f"b = f32[{rows},8] broadcast(t), dimensions={{1}} "
        f'ROOT r = f32[8,8] custom-call(b), custom_call_target="SPMDShardToFullShape", sharding={sharding}'
    )
    x = np.arange(64, dtype=np.float32).reshape(8, 8)
    result, _ = run_split(module_of(body), x)
    np.testing.assert_array_equal(result, np.repeat(x.reshape(parts, rows, 8).sum(1), rows, axis=0))


# -- effects -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["interpreter", "cpu"])
def test_a_call_with_an_effect_is_made_once(backend):
    calls = []
    xla.register_custom_call("partition-rules-effect", lambda x: (calls.append(x.sum()), x + 1)[1])
    body = (
        f"x = f32[8,8] parameter(0), sharding={ROWS} ROOT r = f32[8,8] custom-call(x), "
        'custom_call_target="partition-rules-effect", custom_call_has_side_effect=true'
    )
    x = np.arange(64, dtype=np.float32).reshape(8, 8)
    result, _ = run_split(module_of(body), x, backend=backend)
    np.testing.assert_array_equal(result, x + 1)
    assert calls == [x.sum()]


# Operands and results in memory of columns, and one more operand without the dimensions of the batch.
BATCH = """
  x = f32[8,2,3]{{2,1,0}} parameter(0), sharding={{devices=[4,1,1]<=[4]}}
  s = f32[] parameter(1)
  y = (f32[8,2,3]{{1,2,0}}, f32[8]) custom-call(x, s), custom_call_target="{target}",
    operand_layout_constraints={{f32[8,2,3]{{1,2,0}}, f32[]}}, frontend_attributes={{num_batch_dims="{count}"}}
  a = f32[8,2,3] get-tuple-element(y), index=0
  b = f32[8] get-tuple-element(y), index=1
  ROOT r = (f32[8,2,3], f32[8]) tuple(a, b)
"""


@pytest.mark.parametrize("backend", ["interpreter", "cpu"])
def test_a_call_on_each_element_of_a_batch_is_made_on_parts(backend):
    target, sizes = "partition-rules-batch", set()
    xla.register_custom_call(target, lambda x, s: (sizes.add(x.shape), (np.cumsum(x, -1) + s, x.sum((1, 2))))[1])
    x, s = np.arange(48, dtype=np.float32).reshape(8, 2, 3), np.float32(3)
    # The second result has no batch of two dimensions.
    for count, expected, size in (("1", {}, 2), ("2", {"all-gather": 1}, 8), ("no", {"all-gather": 1}, 8)):
        sizes.clear()
        (a, b), split = run_split(module_of(BATCH.format(target=target, count=count)), x, s, backend=backend)
        np.testing.assert_array_equal(a, np.cumsum(x, -1) + 3)
        np.testing.assert_array_equal(b, x.sum((1, 2)))
        assert collectives(split) == expected
        assert sizes == {(size, 2, 3)}


def test_a_call_whose_batches_differ_is_made_on_all():
    target = "partition-rules-batch-of-others"
    xla.register_custom_call(target, lambda x: x[:4])
    body = (
        f"x = f32[8,8] parameter(0), sharding={ROWS} ROOT r = f32[4,8] custom-call(x), "
        f'custom_call_target="{target}", frontend_attributes={{num_batch_dims="1"}}'
    )
    x = np.arange(64, dtype=np.float32).reshape(8, 8)
    result, split = run_split(module_of(body), x)
    np.testing.assert_array_equal(result, x[:4])
    assert collectives(split) == {"all-gather": 1}


def test_a_callback_on_parts_is_made_by_each_with_what_it_has(monkeypatch):
    from xlakit.execution.calls import custom_calls

    target, calls = "xlakit_partitioned_python_callback", []
    monkeypatch.setitem(custom_calls._registered, target, None)
    xla.register_custom_call(target, lambda x, y: (calls.append((x.tolist(), y.shape)), ())[1])
    body = (
        f"x = f32[8] parameter(0), sharding={{devices=[4]<=[4]}} y = f32[8,8] parameter(1), sharding={COLUMNS} "
        f'c = () custom-call(x, y), custom_call_target="{target}", custom_call_has_side_effect=true '
        "ROOT r = f32[8] negate(x)"
    )
    x = np.arange(8, dtype=np.float32)
    result, split = run_split(module_of(body), x, np.ones((8, 8), np.float32), backend="cpu")
    np.testing.assert_array_equal(result, -x)
    assert collectives(split) == {}
    assert sorted(calls) == [([2 * n, 2 * n + 1], (8, 2)) for n in range(4)]


def test_all_partitions_have_the_same_random_numbers():
    body = "a = f32[] constant(0) b = f32[] constant(1) ROOT r = f32[8,8] rng(a, b), distribution=rng_uniform"
    result, split = run_split(module_of(body + f", sharding={ROWS}"))
    assert collectives(split) == {"collective-broadcast": 1}
    copies, _ = run_split(module_of(body + f", sharding={WHOLE}"))
    np.testing.assert_array_equal(result, copies)


def test_feeds_are_refused():
    body = "x = f32[8] parameter(0), sharding={devices=[4]<=[4]} t = token[] after-all() ROOT o = token[] outfeed(x, t)"
    with pytest.raises(UnsupportedError, match="feeds and channels"):
        split_over(module_of(body), 4)


# -- what is given ---------------------------------------------------------------------------------------


def test_the_pass_and_the_compiler_split_what_says_so_and_once():
    module = module_of(f"x = f32[8,8] parameter(0), sharding={ROWS} ROOT r = f32[8,8] add(x, x)")
    split = run_pipeline(module, ["partition"])
    assert split.entry.parameters[0].shape.dimensions == (2, 8)
    assert run_pipeline(split, ["partition"]) is split
    assert xla.HloModule.from_text(split.to_text()).entry.root.shape.dimensions == (2, 8)
    assert not is_to_be_split(module, 1)
    assert not is_to_be_split(module_of("x = f32[8,8] parameter(0) ROOT r = f32[8,8] add(x, x)"), 4)
    with xla.Client(devices=4) as client:
        program = client.compile(module)
        given = [[device.put(np.full((2, 8), device.id, np.float32))] for device in client.devices()]
        results = program.execute_sharded(given)
        assert [np.asarray(r)[0, 0] for r in results] == [0, 2, 4, 6]


def test_arguments_keep_their_memory_where_the_result_has_the_same_parts():
    body = (
        f"x = f32[8,8] parameter(0), sharding={ROWS} y = f32[8,8] parameter(1), sharding={ROWS} a = f32[8,8] add(x, x) "
        f"ROOT r = (f32[8,8], f32[8,8]) tuple(a, y), sharding={{{ROWS}, {WHOLE}}}"
    )
    aliases = tuple(AliasEntry((n,), n, ()) for n in range(2))
    split = split_over(module_of(body).replace(input_output_alias=aliases), 4)
    assert split.input_output_alias == aliases[:1]


@pytest.mark.parametrize("dimension", [0, 1])
@pytest.mark.parametrize(("rows", "columns"), [(8, 8), (4, 16), (16, 4)])
def test_a_split_moves_to_a_dimension_that_is_split_already_and_back(dimension, rows, columns):
    shape = f"f32[{rows},{columns}]"
    sort = f"sort(x), dimensions={{{dimension}}}, to_apply=lt"
    less = "lt { p = f32[] parameter(0) q = f32[] parameter(1) ROOT l = pred[] compare(p, q), direction=LT }"
    body = f"x = {shape} parameter(0), sharding={BOTH} s = {shape} {sort} ROOT r = {shape} negate(s), sharding={BOTH}"
    check(body, {"all-to-all": 2}, less)


@pytest.mark.parametrize("dimension", [0, 1])
def test_a_split_stays_where_no_dimension_can_be_split_more_finely(dimension):
    shape = "f32[2,8]" if dimension else "f32[8,2]"
    less = "lt { p = f32[] parameter(0) q = f32[] parameter(1) ROOT l = pred[] compare(p, q), direction=LT }"
    sort = f"sort(x), dimensions={{{dimension}}}, to_apply=lt"
    body = f"x = {shape} parameter(0), sharding={BOTH} s = {shape} {sort} ROOT r = {shape} negate(s), sharding={BOTH}"
    check(body, {"all-gather": 1}, less)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("{devices=[2,4]<=[8]}", "{devices=[4,2]<=[8]}"),
        ("{devices=[2,4]<=[8]}", "{devices=[4,2]<=[2,4]T(1,0)}"),
        ("{devices=[4,2]<=[2,4]T(1,0)}", "{devices=[2,4]<=[4,2]T(1,0)}"),
    ],
)
def test_as_many_parts_of_other_dimensions_are_exchanged(old, new):
    """Parts of rows become parts of columns by an all-to-all; a permute brings them where they should be."""
    body = f"x = f32[16,24] parameter(0), sharding={old} ROOT r = f32[16,24] negate(x), sharding={new}"
    split = check(body, None, partitions=8)
    assert set(collectives(split)) <= {"all-to-all", "collective-permute"}


def test_a_transpose_of_an_array_that_is_split_along_both_dimensions_is_not_gathered():
    sharding = "{devices=[2,4]<=[8]}"
    body = f"x = f32[16,24] parameter(0), sharding={sharding} "
    body += f"ROOT r = f32[24,16] transpose(x), dimensions={{1,0}}, sharding={sharding}"
    check(body, {"all-to-all": 1, "collective-permute": 1}, partitions=8)


@pytest.mark.parametrize(
    "new", ["{devices=[4,2]<=[2,4]T(1,0) last_tile_dim_replicate}", "{devices=[8]4,5,6,7,0,1,2,3}"]
)
def test_finer_parts_on_other_members_are_sent_as_such(new):
    """Parts are cut before they are sent: a vector along the rows of a mesh goes to the columns by a permute."""
    body = "x = f32[16] parameter(0), sharding={devices=[2,4]<=[8] last_tile_dim_replicate} "
    split = check(f"{body} ROOT r = f32[16] negate(x), sharding={new}", {"collective-permute": 1}, partitions=8)
    (permute,) = [i for i in split.entry.instructions if i.opcode == "collective-permute"]
    assert permute.shape.dimensions == split.entry.root.shape.dimensions


@pytest.mark.parametrize(
    ("shape", "old", "new"),
    [
        (
            "[16]",
            "{devices=[4,2]<=[2,4]T(1,0) last_tile_dim_replicate}",
            "{devices=[2,4]<=[8] last_tile_dim_replicate}",
        ),
        # P("z", "x", "y") becomes P("x", None, "y").
        ("[8,4,2]", "{devices=[2,2,2]<=[4,2]T(1,0)}", "{devices=[2,1,2,2]<=[8] last_tile_dim_replicate}"),
    ],
)
def test_parts_that_members_need_larger_are_sent_and_gathered(shape, old, new):
    body = f"x = f32{shape} parameter(0), sharding={old} ROOT r = f32{shape} negate(x), sharding={new}"
    split = check(body, {"all-gather": 1, "collective-permute": 1}, partitions=8)
    (gathered,) = [i for i in split.entry.instructions if i.opcode == "all-gather"]
    assert gathered.shape.dimensions == split.entry.root.shape.dimensions


def test_a_slice_of_few_elements_of_one_part_is_added_up():
    """Of 64 elements in 8 parts the first ones, which one member has: 2 * 7/8 * 6 are sent, not 7 * 8."""
    body = "x = s32[64] parameter(0), sharding={devices=[8]<=[8]} y = s32[6] slice(x), slice={[0:6]} "
    split = check(f"{body} ROOT r = s32[6] negate(y), sharding={WHOLE}", {"all-reduce": 1}, partitions=8)
    assert sends(split) == 10.5
