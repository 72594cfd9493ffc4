"""Results without a sharding are split as XLA's propagation (Shardy) splits them."""

import numpy as np
import pytest
from split_programs import BOTH, ROWS, X_ROWS, Y_COLUMNS, boundary, collectives, run_split, sends, with_mesh

import xlakit as xla
from xlakit.passes.spmd.shardings.reshapes import through_reshape

LESS = "less { c = f32[] parameter(0) d = f32[] parameter(1) ROOT r = pred[] compare(c, d), direction=LT }"


@pytest.mark.parametrize(
    ("operation", "part"),
    [
        ("f32[4,8] slice(x), slice={[2:6], [0:8]}", (2, 4)),
        ("f32[4,4] slice(x), slice={[0:8:2], [4:8]}", (2, 2)),
        ("f32[8,16] concatenate(x, x), dimensions={1}", (4, 8)),
        ("f32[12,8] pad(x, zero), padding=2_2x0_0", (6, 4)),
        ("f32[11,8] pad(x, zero), padding=2_1x0_0", (11, 4)),
        ("f32[8,8] sort(x), dimensions={1}, to_apply=less", (4, 4)),
        ("f32[8,8] reduce-window(x, zero), window={size=1x3 pad=0_0x1_1}, to_apply=add", (4, 4)),
        ("f32[8,8] dynamic-update-slice(x, y, one, one)", (4, 4)),
        ("f32[8,8,4] broadcast(x), dimensions={0,1}", (4, 4, 4)),
    ],
)
def test_dimensions_that_are_moved_along_or_needed_whole_stay_split(operation, part):
    given = (
        f"x = f32[8,8] parameter(0), sharding={BOTH} y = f32[2,2] constant({{{{1,2}},{{3,4}}}}) one = s32[] constant(1)"
    )
    check(f"{given} zero = f32[] constant(0) ROOT r = {operation}", part, (8, 8))


@pytest.mark.parametrize(
    ("of_x", "of_y", "columns", "part"),
    [
        (X_ROWS, Y_COLUMNS, 8, (4, 4)),
        # Both operands want an axis: the larger one gets it, and the other one what is left, from the first axis.
        (ROWS, Y_COLUMNS, 8, (2, 8)),
        (ROWS, Y_COLUMNS, 16, (4, 8)),
    ],
)
def test_a_product_whose_rows_and_columns_want_the_same_axes(of_x, of_y, columns, part):
    check(
        f"x = f32[8,8] parameter(0), sharding={of_x} y = f32[8,{columns}] parameter(1), sharding={of_y} "
        f"ROOT r = f32[8,{columns}] dot(x, y), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}",
        part,
        (8, 8),
        (8, columns),
    )


@pytest.mark.parametrize("first", ["q", "k"])
def test_operands_that_one_split_value_becomes_are_split_when_they_meet(first):
    """Queries of two heads and keys of one, along a split sequence: the larger operand's rows stay split."""
    q = "v = f32[8,2,4] dot(y, w), lhs_contracting_dims={1}, rhs_contracting_dims={1} n = f32[8,2,4] negate(v)"
    k = "k = f32[8,4] dot(y, u), lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    given = "y = f32[8,4] negate(x) w = f32[2,4,4] iota(), iota_dimension=2 u = f32[4,4] iota(), iota_dimension=1"
    check(
        f"x = f32[8,4] parameter(0), sharding={ROWS} {given} {q if first == 'q' else k} {k if first == 'q' else q} "
        "ROOT r = f32[8,2,8] dot(n, k), lhs_contracting_dims={2}, rhs_contracting_dims={1}",
        (2, 2, 8),
        (8, 4),
    )


def test_the_columns_of_a_table_stay_split_behind_a_gather_by_split_indices():
    """The largest value decides at the gather, before the product's other operand brings the split of its rows."""
    by_y = "sharding={devices=[2,1,2]<=[2,2]T(1,0) last_tile_dim_replicate}"
    check(
        f"t = f32[64,8] parameter(0), sharding={Y_COLUMNS} v = f32[8,2] parameter(1), {by_y} i = s32[8,2] convert(v) "
        "g = f32[8,2,8] gather(t, i), offset_dims={2}, collapsed_slice_dims={0}, start_index_map={0}, "
        "index_vector_dim=2, slice_sizes={1,8} ROOT r = f32[8,8] dot(v, g), lhs_batch_dims={0}, rhs_batch_dims={0}, "
        "lhs_contracting_dims={1}, rhs_contracting_dims={1}",
        (8, 4),
        (64, 8),
        (8, 2),
    )


def test_the_shape_of_a_product_s_result_reaches_what_is_carried_to_it():
    """A loop's state that is a product is split as that is, rows and columns."""
    state = "(s32[], f32[8,8], f32[8,8])"
    body = f"""body {{ s = {state} parameter(0) i = s32[] get-tuple-element(s), index=0
      h = f32[8,8] get-tuple-element(s), index=1 w = f32[8,8] get-tuple-element(s), index=2
      one = s32[] constant(1) j = s32[] add(i, one)
      d = f32[8,8] dot(h, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
      ROOT r = {state} tuple(j, d, w) }}"""
    condition = f"""condition {{ s = {state} parameter(0) i = s32[] get-tuple-element(s), index=0
      two = s32[] constant(2) ROOT r = pred[] compare(i, two), direction=LT }}"""
    check(
        f"x = f32[8,8] parameter(0), sharding={X_ROWS} y = f32[8,8] parameter(1), sharding={Y_COLUMNS} "
        f"zero = s32[] constant(0) s = {state} tuple(zero, x, y) "
        f"w = {state} while(s), condition=condition, body=body ROOT r = f32[8,8] get-tuple-element(w), index=1",
        (4, 4),
        (8, 8),
        (8, 8),
        more=(body, condition),
    )


def test_what_a_manual_computation_takes_is_split_so_before():
    border = ('[{"a"}, {"b"}]',), '"a", "b"'
    inner = "inner { p = f32[4,4] parameter(0) ROOT n = f32[4,4] negate(p) }"
    module = with_mesh(
        f"""ENTRY main {{
          x = f32[8,8] parameter(0), sharding={X_ROWS}
          y = f32[8,8] dot(x, x), lhs_contracting_dims={{1}}, rhs_contracting_dims={{1}}
          {boundary("p", "f32[4,4]", "y", "GlobalToLocalShape", *border)}
          c = f32[4,4] call(p), to_apply=inner
          {boundary("e", "f32[8,8]", "c", "LocalToGlobalShape", *border)}
          ROOT r = (f32[8,8], f32[8,8]) tuple(y, e) }}""",
        inner,
    )
    x = np.random.default_rng(0).integers(0, 9, (8, 8)).astype(np.float32)
    (y, e), split = run_split(module, x)
    assert [s.dimensions for s in split.entry.root.shape.tuple_shapes] == [(4, 4), (4, 4)]
    np.testing.assert_array_equal([y, e], [x @ x.T, -x @ x.T])


@pytest.mark.parametrize(("kernel", "size", "part"), [(8, "8 rhs_dilate=2 pad=1_1", 4), (3, "3 pad=1_1", 4)])
def test_a_gradient_of_a_kernel_is_no_image(kernel, size, part):
    """It is summed over the split rows of image and gradient; a convolution's result is split as its image."""
    result = 4 if kernel == 8 else 16
    by_rows = "sharding={devices=[1,4,1]<=[4]}"
    check(
        f"x = f32[1,16,2] parameter(0), {by_rows} y = f32[{kernel},2,2] parameter(1)"
        f"{', sharding={devices=[4,1,1]<=[4]}' if kernel == 8 else ''} ROOT r = f32[1,{result},2] "
        f"convolution(x, y), window={{size={size}}}, dim_labels=b0f_0io->b0f",
        (1, part, 2),
        (1, 16, 2),
        (kernel, 2, 2),
    )


def test_what_is_split_late_is_split_as_its_result_before_it_meets_itself():
    """Rows of a convolution's result attend to all of them: they are gathered once, as keys and as values."""
    split = check(
        """x = f32[1,16,2] parameter(0), sharding={devices=[1,4,1]<=[4]} k = f32[3,2,2] iota(), iota_dimension=0
        s = f32[1,16,2] convolution(x, k), window={size=3 pad=1_1}, dim_labels=b0f_0io->b0f
        w = f32[1,16,16] dot(s, s), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2},
          rhs_contracting_dims={2}
        v = f32[1,16,2] dot(w, s), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2},
          rhs_contracting_dims={1}
        ROOT r = f32[1,16,2] add(v, s)""",
        (1, 4, 2),
        (1, 16, 2),
    )
    assert collectives(split) == {"collective-permute": 2, "all-gather": 1}


def test_what_is_split_inside_of_a_manual_computation_is_so_behind_it():
    border = ('[{"a", ?}, {?}]',), '"a"'
    inner = """inner { p = f32[4,8] parameter(0) m = f32[4,8] negate(p)
      s = f32[4,8] all-reduce(m), channel_id=1, replica_groups={{0,2},{1,3}}, use_global_device_ids=true, to_apply=add
      l = f32[4,7] slice(s), slice={[0:4], [1:8]} f = f32[4,1] slice(s), slice={[0:4], [0:1]}
      ROOT r = f32[4,8] concatenate(l, f), dimensions={1} }"""
    split = check(
        f"""x = f32[8,8] parameter(0), sharding={BOTH} {boundary("p", "f32[4,8]", "x", "GlobalToLocalShape", *border)}
        c = f32[4,8] call(p), to_apply=inner
        {boundary("ROOT e", "f32[8,8]", "c", "LocalToGlobalShape", *border)}""",
        (4, 4),
        (8, 8),
        more=(inner,),
        expected=lambda x: -np.roll(np.tile(x[:4] + x[4:], (2, 1)), -1, 1),
    )
    # A column of the neighbor.
    assert collectives(split) == {"all-reduce": 1, "collective-permute": 1}


def test_a_whole_value_is_exchanged_in_the_parts_in_which_it_is_used():
    border = '"a"'
    inner = """inner { p = f32[4,8] parameter(0) s = f32[4,8] collective-permute(p), channel_id=1,
      source_target_pairs={{0,2},{2,0},{1,3},{3,1}} ROOT n = f32[4,8] negate(s) }"""
    split = check(
        f"""x = f32[8,8] parameter(0), sharding={X_ROWS}
        {boundary("p", "f32[4,8]", "x", "GlobalToLocalShape", ['[{"a", ?}, {?}]'], border)}
        c = f32[4,8] call(p), to_apply=inner
        {boundary("ROOT e", "f32[8,8]", "c", "LocalToGlobalShape", ['[{"a", ?}, {"b"}]'], border)}""",
        (4, 4),
        (8, 8),
        more=(inner,),
        expected=lambda x: -np.roll(x, 4, 0),
    )
    assert sends(split) == 16


X, Y, XY = (0, 0, 1, 1), (0, 1, 0, 1), (0, 1, 2, 3)


@pytest.mark.parametrize(
    ("tiling", "old", "new", "expected"),
    [
        ((XY, None), (8, 3), (2, 4, 3), (X, Y, None)),
        ((X, Y, None), (2, 4, 3), (1, 8, 3), (None, XY, None)),
        ((XY,), (12,), (6, 2), None),
        ((X, Y), (4, 2), (8,), None),
        ((None, Y), (4, 2), (8,), None),
        ((XY,), (7,), (1, 7), None),
    ],
)
def test_splits_go_through_a_reshape_where_each_part_is_a_part_of_the_result(tiling, old, new, expected):
    assert through_reshape(tiling, old, new) == expected


def check(text, part, *sizes, more=(), expected=None):
    """The part that each partition has of the result, which is that of the whole program, or as expected.

    Gives the program of one partition.
    """
    module = with_mesh(f"ENTRY main {{ {text} }}", LESS, *more)
    values = [np.random.default_rng(n).integers(0, 9, dims).astype(np.float32) for n, dims in enumerate(sizes)]
    result, split = run_split(module, *values)
    assert split.entry.root.shape.dimensions == part
    whole = expected or xla.compile(module.replace(num_partitions=1), backend="interpreter")
    np.testing.assert_array_equal(result, whole(*values))
    return split
