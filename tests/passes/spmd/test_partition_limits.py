"""Where an operation is not split in a way of its own, or only just: the results are those of one device."""

import numpy as np
import pytest
from split_programs import BOTH, COLUMNS, ROWS, WHOLE, X_ROWS, boundary, check, module_of, run_split, with_mesh

import xlakit as xla
from xlakit.errors import ShapeError, UnsupportedError
from xlakit.passes.spmd import split_over

EIGHT, SIXTEEN = "{devices=[8]<=[8]}", "{devices=[16]<=[16]}"
MUL_ADD = "muladd { a = f32[] parameter(0) b = f32[] parameter(1) m = f32[] multiply(a, b) ROOT r = f32[] add(m, b) }"
GREATER = "ge { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = pred[] compare(a, b), direction=GE }"


def given(shape, split, number=0):
    return f"p{number} = {shape} parameter({number}), sharding={split} "


def reading_rows(columns, split):
    """A loop that adds up the first two rows of a table."""
    row, table = f"f32[{columns}]", f"f32[8,{columns}]"
    state = f"(s32[], {table}, {row})"
    body = f"""body {{ s = {state} parameter(0) i = s32[] get-tuple-element(s), index=0
        x = {table} get-tuple-element(s), index=1 a = {row} get-tuple-element(s), index=2 z = s32[] constant(0)
        d = f32[1,{columns}] dynamic-slice(x, i, z), dynamic_slice_sizes={{1,{columns}}} e = {row} reshape(d)
        b = {row} add(a, e) one = s32[] constant(1) j = s32[] add(i, one) ROOT r = {state} tuple(j, x, b) }}"""
    test = f"""test {{ s = {state} parameter(0) i = s32[] get-tuple-element(s), index=0
        n = s32[] constant(2) ROOT r = pred[] compare(i, n), direction=LT }}"""
    entry = (
        f"{given(table, split)} z = s32[] constant(0) o = f32[] constant(0) a = {row} broadcast(o), dimensions={{}} "
        f"t = {state} tuple(z, p0, a) w = {state} while(t), condition=test, body=body "
        f"ROOT r = {row} get-tuple-element(w), index=2"
    )
    return entry, 4, body, test


# Each with the number of partitions, and computations beside the sum.
PROGRAMS = {
    "slice over many parts": (given("f32[64]", EIGHT) + "ROOT r = f32[8] slice(p0), slice={[0:64:8]}", 8),
    "concatenation over many parts": (
        given("f32[64]", EIGHT)
        + given("f32[64]", EIGHT, 1)
        + "s = f32[8] slice(p0), slice={[0:64:8]} c = f32[72] concatenate(s, p1), dimensions={0}"
        + " ROOT r = f32[72] negate(c)",
        8,
    ),
    "pad whose parts begin at holes": (
        given("f32[8]", "{devices=[4]<=[4]}") + "z = f32[] constant(7) ROOT r = f32[25] pad(p0, z), padding=0_3_2",
        4,
    ),
    "convolution that sees nothing but holes": (
        given("f32[1,8,1]", "{devices=[1,4,1]<=[4]}")
        + given("f32[1,1,1]", WHOLE, 1)
        + "ROOT r = f32[1,8,1] convolution(p0, p1), window={size=1 stride=2 pad=1_0 lhs_dilate=2}, "
        "dim_labels=b0f_0io->b0f",
        4,
    ),
    "convolution of a batch in unequal parts": (
        given("f32[8,6,4]", "{devices=[4,1,1]<=[4]}")
        + given("f32[3,4,4]", WHOLE, 1)
        + "s = f32[7,6,4] slice(p0), slice={[0:7], [0:6], [0:4]} "
        "c = f32[7,4,4] convolution(s, p1), window={size=3}, dim_labels=b0f_0io->b0f "
        "z = f32[] constant(0) ROOT r = f32[] reduce(c, z), dimensions={0,1,2}, to_apply=add",
        4,
    ),
    "convolution of a batch in unequal parts and of features": (
        given("f32[8,6,4]", "{devices=[2,1,2]<=[4]}")
        + given("f32[3,4,4]", "{devices=[1,2,1,2]<=[4] last_tile_dim_replicate}", 1)
        + "s = f32[7,6,4] slice(p0), slice={[0:7], [0:6], [0:4]} "
        "c = f32[7,4,4] convolution(s, p1), window={size=3}, dim_labels=b0f_0io->b0f "
        "z = f32[] constant(0) ROOT r = f32[] reduce(c, z), dimensions={0,1,2}, to_apply=add",
        4,
    ),
    "gradients of pooling by an unknown reducer": (
        given("f32[16]", "{devices=[4]<=[4]}")
        + given("f32[8]", "{devices=[4]<=[4]}", 1)
        + "z = f32[] constant(0) ROOT r = f32[16] select-and-scatter(p0, p1, z), window={size=2 stride=2}, "
        "select=ge, scatter=muladd",
        4,
        GREATER,
        MUL_ADD,
    ),
    "gradients of pooling over many parts": (
        given("f32[64]", SIXTEEN)
        + given("f32[64]", SIXTEEN, 1)
        + "z = f32[] constant(0) ROOT r = f32[64] select-and-scatter(p0, p1, z), window={size=33 pad=16_16}, "
        "select=ge, scatter=add",
        16,
        GREATER,
    ),
    "a row of truth values": (
        given("pred[8,8]", ROWS) + "i = s32[] parameter(1) j = s32[] constant(0) "
        "ROOT r = pred[1,8] dynamic-slice(p0, i, j), dynamic_slice_sizes={1,8}",
        4,
    ),
    "rows of which one number is of a whole dimension": (
        given("f32[8,8,3]", "{devices=[4,1,1]<=[4]}")
        + given("s32[5,2]", WHOLE, 1)
        + "ROOT r = f32[5,3] gather(p0, p1), offset_dims={1}, collapsed_slice_dims={0,1}, start_index_map={1,0}, "
        "index_vector_dim=1, slice_sizes={1,1,3}",
        4,
    ),
    "a scatter of more than the table": (
        given("f32[8,4]", ROWS)
        + given("s32[64,1]", WHOLE, 1)
        + given("f32[64,4]", "{devices=[2,2]<=[4]}", 2)
        + "ROOT r = f32[8,4] scatter(p0, p1, p2), update_window_dims={1}, inserted_window_dims={0}, "
        "scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add",
        4,
    ),
    "sum of other dimensions than unequal ones": (
        given("f32[8,8]", ROWS) + "s = f32[7,8] slice(p0), slice={[0:7], [0:8]} z = f32[] constant(0) "
        "c = f32[7] reduce(s, z), dimensions={1}, to_apply=add ROOT r = f32[7] negate(c)",
        4,
    ),
    "unequal parts by an unknown reducer": (
        given("f32[8,8]", ROWS) + "s = f32[7,8] slice(p0), slice={[0:7], [0:8]} z = f32[] constant(0) "
        "ROOT r = f32[8] reduce(s, z), dimensions={0}, to_apply=muladd",
        4,
        MUL_ADD,
    ),
    "running sums by an unknown reducer": (
        given("f32[16]", "{devices=[4]<=[4]}") + "z = f32[] constant(0) "
        "ROOT r = f32[16] reduce-window(p0, z), window={size=16 pad=15_0}, to_apply=muladd",
        4,
        MUL_ADD,
    ),
    "a barrier of tokens": (
        given("f32[8]", "{devices=[4]<=[4]}") + "t = token[] after-all() d = (f32[8], token[]) tuple(p0, t) "
        "b = (f32[8], token[]) opt-barrier(d) g = f32[8] get-tuple-element(b), index=0 ROOT r = f32[8] negate(g)",
        4,
    ),
    "a constraint on a token": (
        given("f32[8]", "{devices=[4]<=[4]}") + 'ROOT r = f32[8] custom-call(p0), custom_call_target="MoveToHost"',
        4,
    ),
    "control dependencies": (
        given("f32[8]", "{devices=[4]<=[4]}")
        + given("f32[8]", "{devices=[2,2]<=[4] last_tile_dim_replicate}", 1)
        + "a = f32[8] negate(p0) b = f32[8] negate(p1), control-predecessors={a} "
        "ROOT r = (f32[8], f32[8]) tuple(a, b)",
        4,
    ),
    "hints in what is applied to elements": (
        given("f32[8,8]", ROWS)
        + "z = f32[] constant(0) ROOT r = f32[8] reduce(p0, z), dimensions={0}, to_apply=hinted",
        4,
        "hinted { a = f32[] parameter(0) b = f32[] parameter(1) s = f32[] add(a, b) "
        'ROOT r = f32[] custom-call(s), custom_call_target="Sharding", sharding={replicated} }',
    ),
    "asynchronous operations": (
        given("f32[8,8]", ROWS)
        + 'a = ((f32[8,8]), f32[8,8], u32[]) async-start(p0), calls=wrapped, async_execution_thread="other" '
        "n = f32[8,8] tanh(p0), control-predecessors={a} d = f32[8,8] async-done(a) "
        "ROOT r = f32[8,8] add(d, n)",
        4,
        'wrapped { p = f32[8,8] parameter(0) ROOT n = f32[8,8] negate(p) }, execution_thread="other"',
    ),
    "asynchronous collectives of a program": (
        given("f32[8,8]", ROWS) + "a = f32[8,8] all-reduce-start(p0), to_apply=add d = f32[8,8] all-reduce-done(a) "
        "g = (f32[8,8], f32[8,8]) all-gather-start(d), dimensions={0} h = f32[8,8] all-gather-done(g) "
        "ROOT r = f32[8,8] negate(h)",
        4,
    ),
    "kernel gradients over unequal images": (
        given("f32[1,18,4]", "{devices=[1,2,1,2]<=[4] last_tile_dim_replicate}")
        + given("f32[16,4,4]", "{devices=[2,1,1,2]<=[4] last_tile_dim_replicate}", 1)
        + "ROOT r = f32[1,3,4] convolution(p0, p1), window={size=16}, dim_labels=b0f_0io->b0f",
        4,
    ),
    "kernel gradients with dilation": (
        given("f32[1,19,4]", WHOLE)
        + given("f32[8,4,4]", "{devices=[4,1,1]<=[4]}", 1)
        + "ROOT r = f32[1,5,4] convolution(p0, p1), window={size=8 rhs_dilate=2}, dim_labels=b0f_0io->b0f",
        4,
    ),
    "kernel gradients of holes": (
        given("f32[1,7,4]", WHOLE)
        + given("f32[8,4,4]", "{devices=[4,1,1]<=[4]}", 1)
        + "ROOT r = f32[1,12,4] convolution(p0, p1), window={size=8 lhs_dilate=3}, dim_labels=b0f_0io->b0f",
        4,
    ),
    "kernel gradients along features, too": (
        given("f32[1,18,4]", "{devices=[1,2,2]<=[4]}")
        + given("f32[16,4,4]", "{devices=[2,2,1]<=[4]}", 1)
        + "ROOT r = f32[1,3,4] convolution(p0, p1), window={size=16}, dim_labels=b0f_0io->b0f",
        4,
    ),
    "kernel gradients of an image of many parts": (
        given("f32[1,64,2]", "{devices=[1,16,1]<=[16]}")
        + given("f32[16,2,2]", "{devices=[16,1,1]<=[16]}", 1)
        + "ROOT r = f32[1,49,2] convolution(p0, p1), window={size=16}, dim_labels=b0f_0io->b0f",
        16,
    ),
    "numbers of a random generator": (
        given("f32[8]", "{devices=[4]<=[4]}")
        + "k = u64[2] constant({1, 2}) g = (u64[2], u32[8]) rng-bit-generator(k), algorithm=rng_default "
        "u = u32[8] get-tuple-element(g), index=1 c = f32[8] convert(u) ROOT r = f32[8] add(p0, c)",
        4,
    ),
    "a window over many parts": (
        given("f32[64]", EIGHT) + "z = f32[] constant(0) "
        "ROOT r = f32[64] reduce-window(p0, z), window={size=41 pad=20_20}, to_apply=add",
        8,
    ),
    "a sum of unequal parts that are smaller than it": (
        given("f32[8,8]", "{devices=[2,1]<=[2]}")
        + "s = f32[1,8] slice(p0), slice={[3:4], [0:8]} z = f32[] constant(0) "
        "ROOT r = f32[8] reduce(s, z), dimensions={0}, to_apply=add",
        2,
    ),
    "a row nearly as large as the table": (
        given("f32[2,8]", BOTH) + "i = s32[] parameter(1) j = s32[] parameter(2) "
        "ROOT r = f32[1,7] dynamic-slice(p0, i, j), dynamic_slice_sizes={1,7}",
        4,
    ),
    "a convolution of which parts see holes alone": (
        given("f32[1,4,1]", "{devices=[1,4,1]<=[4]}")
        + given("f32[1,1,1]", WHOLE, 1)
        + "ROOT r = f32[1,4,1] convolution(p0, p1), window={size=1 stride=2 pad=1_0 lhs_dilate=2}, "
        "dim_labels=b0f_0io->b0f",
        4,
    ),
    "a tuple behind a token": (
        given("f32[8]", "{devices=[4]<=[4]}") + "k = token[] after-all() t = (f32[8], f32[8]) tuple(p0, p0) "
        "d = (f32[8], f32[8]) add-dependency(t, k) g = f32[8] get-tuple-element(d), index=1 ROOT r = f32[8] negate(g)",
        4,
    ),
    "collectives of replicas": (
        given("f32[8,8]", ROWS)
        + "a = f32[8,8] reduce-scatter(p0), dimensions={0}, to_apply=add b = f32[8,8] all-to-all(a), dimensions={1} "
        "c = f32[8,8] collective-permute(b), source_target_pairs={{0,0}} "
        "d = (f32[8,8], f32[8,8]) all-reduce(c, p0), to_apply=add e = f32[8,8] get-tuple-element(d), index=0 "
        "f = f32[8,8] collective-broadcast(e), replica_groups={{0}} ROOT r = f32[8,8] negate(f)",
        4,
    ),
    "a constraint on tuples and tokens": (
        given("f32[8]", "{devices=[4]<=[4]}") + "k = token[] after-all() t = (f32[8], token[]) tuple(p0, k) "
        'c = (f32[8], token[]) custom-call(t), custom_call_target="Sharding", sharding={{replicated}, {replicated}} '
        "g = f32[8] get-tuple-element(c), index=0 ROOT r = f32[8] negate(g)",
        4,
    ),
    "a constraint that says nothing": (
        given("f32[8]", "{devices=[4]<=[4]}") + 'c = f32[8] custom-call(p0), custom_call_target="Sharding" '
        'd = f32[8] custom-call(c), custom_call_target="Sharding", sharding={manual} ROOT r = f32[8] negate(d)',
        4,
    ),
    "a sort of rows of one element": (
        given("f32[8,1]", ROWS) + "ROOT r = f32[8,1] sort(p0), dimensions={1}, to_apply=lt",
        4,
        "lt { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = pred[] compare(a, b), direction=LT }",
    ),
    "a sparse convolution of groups": (
        given("f32[2,8,4]", "{devices=[1,2,2]<=[4]}")
        + given("f32[3,2,4]", WHOLE, 1)
        + "ROOT r = f32[2,6,4] convolution(p0, p1), window={size=3}, dim_labels=b0f_0io->b0f, feature_group_count=2",
        4,
    ),
    "sums of partial sums": (
        given("f32[8,8]", "{devices=[1,4]<=[4]}")
        + given("f32[8,8]", ROWS, 1)
        + "d = f32[8,8] dot(p0, p1), lhs_contracting_dims={1}, rhs_contracting_dims={0} "
        "e = f32[8,8] dot(p0, p1), lhs_contracting_dims={1}, rhs_contracting_dims={0} t = f32[8,8] tanh(d) "
        "s = f32[8,8] add(d, e) m = f32[8,8] maximum(s, t) z = f32[] constant(0) w = f32[] constant(1) "
        "u = f32[8] reduce(d, z), dimensions={0}, to_apply=add v = f32[8] reduce(e, w), dimensions={0}, to_apply=add "
        "ROOT r = (f32[8,8], f32[8], f32[8]) tuple(m, u, v)",
        4,
    ),
    "sums in a loop": (
        given("f32[8,8]", "{devices=[1,4]<=[4]}")
        + given("f32[8,8]", ROWS, 1)
        + "z = s32[] constant(0) t = (s32[], f32[8,8], f32[8,8]) tuple(z, p0, p1) "
        "w = (s32[], f32[8,8], f32[8,8]) while(t), condition=test, body=body "
        "ROOT r = f32[8,8] get-tuple-element(w), index=1",
        4,
        """body { s = (s32[], f32[8,8], f32[8,8]) parameter(0) i = s32[] get-tuple-element(s), index=0
        x = f32[8,8] get-tuple-element(s), index=1 y = f32[8,8] get-tuple-element(s), index=2
        d = f32[8,8] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
        b = f32[8,8,2] broadcast(d), dimensions={0,1} z = f32[] constant(0)
        c = f32[8,8] reduce(b, z), dimensions={2}, to_apply=add n = f32[8,8] transpose(c), dimensions={1,0}
        h = f32[8,8] subtract(n, d)
        one = s32[] constant(1) j = s32[] add(i, one)
        ROOT r = (s32[], f32[8,8], f32[8,8]) tuple(j, h, y) }""",
        """test { s = (s32[], f32[8,8], f32[8,8]) parameter(0) i = s32[] get-tuple-element(s), index=0
        n = s32[] constant(3) ROOT r = pred[] compare(i, n), direction=LT }""",
    ),
    "rows of a table that a loop reads and that is small": reading_rows(6, ROWS),
    "columns of a table that a loop reads by rows": reading_rows(8, COLUMNS),
    "a sort of all that there is": (
        given("f32[8]", "{devices=[4]<=[4]}") + "n = f32[8] negate(p0) s = f32[8] sort(n), dimensions={0}, to_apply=lt "
        "ROOT r = f32[8] negate(s)",
        4,
        "lt { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = pred[] compare(a, b), direction=LT }",
    ),
    "a gather of parts of columns": (
        given("f32[8,8]", COLUMNS)
        + given("s32[5,1]", WHOLE, 1)
        + "ROOT r = f32[5,7] gather(p0, p1), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, "
        "index_vector_dim=1, slice_sizes={1,7}",
        4,
    ),
    "a scatter of parts of columns": (
        given("f32[8,8]", COLUMNS)
        + given("s32[5,1]", WHOLE, 1)
        + given("f32[5,7]", WHOLE, 2)
        + "ROOT r = f32[8,8] scatter(p0, p1, p2), update_window_dims={1}, inserted_window_dims={0}, "
        "scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add",
        4,
    ),
    "partial sums that are asked for": (
        given("f32[8,8]", ROWS) + 'c = f32[8,8] custom-call(p0), custom_call_target="Sharding", sharding={unreduced} '
        "ROOT r = f32[8,8] negate(c), sharding={replicated}",
        4,
    ),
    "partial sums of which each has a part": (
        given("f32[8,8]", COLUMNS)
        + given("f32[8,8]", ROWS, 1)
        + "d = f32[8,8] dot(p0, p1), lhs_contracting_dims={1}, rhs_contracting_dims={0} "
        'c = f32[8,8] custom-call(d), custom_call_target="Sharding", sharding={unreduced} '
        'e = f32[8,8] custom-call(c), custom_call_target="Sharding", sharding={devices=[4,1]<=[4]} '
        "ROOT r = (f32[8,8], f32[8,8]) tuple(c, e), sharding={{replicated}, {devices=[1,4]<=[4]}}",
        4,
    ),
    "splits that exclude each other": (
        given("f32[8,8]", X_ROWS)
        + given("f32[8,8]", "{devices=[1,2,2]<=[4] last_tile_dim_replicate}", 1)
        + "s = f32[8,8] add(p0, p1) d = f32[8,8] dot(s, p1), lhs_contracting_dims={1}, rhs_contracting_dims={0} "
        "t = f32[8,8] transpose(d), dimensions={1,0} ROOT r = f32[8,8] add(t, s)",
        4,
    ),
    "a custom sum of other precision": (
        given("bf16[8,8]", ROWS) + "z = f32[] constant(0) c = f32[8,8] convert(p0) "
        "d = f32[8,8] dot(c, c), lhs_contracting_dims={0}, rhs_contracting_dims={0} "
        "ROOT r = f32[8] reduce(d, z), dimensions={1}, to_apply=add",
        4,
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_results_are_those_of_one_device(name):
    body, partitions, *computations = PROGRAMS[name]
    check(body, None, *computations, partitions=partitions)


@pytest.mark.parametrize(
    ("sums", "expected"),
    [
        # Batches and free dimensions have their places; the neighbor's first row is fetched.
        ("d = f32[31,3,3] dot(s, t), lhs_batch_dims={0}, rhs_batch_dims={0}, "
         "lhs_contracting_dims={2}, rhs_contracting_dims={1}", {"collective-permute": 1, "all-reduce": 1}),
        ("d = f32[31,3,3] dot(s, p1), lhs_contracting_dims={2}, rhs_contracting_dims={0}",
         {"collective-permute": 1, "all-reduce": 1}),
        # What is behind the end is not added up.
        ("d = f32[3,3,3,3] dot(s, t), lhs_contracting_dims={0}, rhs_contracting_dims={0}", None),
    ],
)  # fmt: skip
def test_products_of_unequal_parts(sums, expected):
    shape = sums.split()[2]
    body = (
        given("f32[32,3,3]", "{devices=[4,1,1]<=[4]}") + given("f32[3,3]", WHOLE, 1)
        + f"s = f32[31,3,3] slice(p0), slice={{[1:32], [0:3], [0:3]}} t = f32[31,3,3] negate(s) {sums} "
        f"n = {shape} negate(d) z = f32[] constant(0) "
        f"ROOT r = f32[3] reduce(n, z), dimensions={{{','.join(map(str, range(shape.count(','))))}}}, to_apply=add"
    )  # fmt: skip
    check(body, expected)


def test_products_of_unequal_parts_that_are_to_be_added_up():
    body = (
        given("f32[4,4,4]", "{devices=[1,4,1]<=[4]}") + given("f32[4,8,4]", "{devices=[1,2,2]<=[4]}", 1)
        + "s = f32[4,4,2] slice(p0), slice={[0:4], [0:4], [0:2]} t = f32[4,7,2] slice(p1), slice={[0:4], [0:7], [1:3]} "
        "u = f32[4,7,2] abs(t) d = f32[4,4,7] dot(s, u), lhs_batch_dims={0}, rhs_batch_dims={0}, "
        "lhs_contracting_dims={2}, rhs_contracting_dims={2} e = f32[4,4,7] negate(d) z = f32[] constant(1) "
        "ROOT r = f32[4,4,7] pad(e, z), padding=0_0x0_0x0_0"
    )  # fmt: skip
    check(body, None)


IN, OUT = "GlobalToLocalShape", "LocalToGlobalShape"
ALL = '"a", "b"'


def test_a_manual_computation_without_arguments():
    end = boundary("ROOT r", "f32[8,8]", "c", OUT, ['[{"a", "b"}, {}]'], ALL)
    body = "body { i = u32[] partition-id() f = f32[] convert(i) ROOT b = f32[2,8] broadcast(f), dimensions={} }"
    module = with_mesh(f"ENTRY main {{ c = f32[2,8] call(), to_apply=body {end} }}", body)
    result, _ = run_split(module)
    np.testing.assert_array_equal(result, np.repeat(np.arange(4, dtype=np.float32), 2)[:, None] + np.zeros((8, 8)))


def test_a_manual_computation_splits_further_what_teams_have():
    # Rows are manual along a; the members of a team have parts of columns, and inspect them.
    begin = boundary("l", "f32[4,8]", "x", IN, ['[{"a"}, {}]'], '"a"')
    end = boundary("ROOT r", "f32[8,8]", "p", OUT, ['[{"a"}, {}]'], '"a"')
    seen = 'i = f32[4,8] custom-call(l), custom_call_target="InspectSharding", custom_call_has_side_effect=true'
    for split in (BOTH, "{devices=[1,2,2]<=[2,2]T(1,0) last_tile_dim_replicate}", "{devices=[1,4]<=[4]}", ROWS):
        module = with_mesh(
            f"ENTRY main {{ x = f32[8,8] parameter(0), sharding={split} {begin} {seen} p = f32[4,8] negate(i) {end} }}"
        )
        x = np.arange(64, dtype=np.float32).reshape(8, 8)
        np.testing.assert_array_equal(run_split(module, x)[0], -x)


def test_effects_of_one_member_give_tuples_to_all():
    calls = []

    def effect(x):
        calls.append(x)
        return x + 1, np.float32(len(calls))

    module = module_of(
        "p0 = f32[8] parameter(0), sharding={devices=[4]<=[4]} c = (f32[8], f32[]) custom-call(p0), "
        'custom_call_target="effect", custom_call_has_side_effect=true g = f32[8] get-tuple-element(c), index=0 '
        "n = f32[] get-tuple-element(c), index=1 b = f32[8] broadcast(n), dimensions={} ROOT r = f32[8] multiply(g, b)"
    )
    xla.register_custom_call("effect", effect)
    x = np.arange(8, dtype=np.float32)
    np.testing.assert_array_equal(run_split(module, x)[0], x + 1)
    assert len(calls) == 1


def test_a_program_without_layouts():
    module = module_of(f"p0 = f32[8,8] parameter(0), sharding={ROWS} ROOT r = f32[8,8] negate(p0)")
    assert split_over(module.replace(entry_computation_layout=None), 4).entry_computation_layout is None


@pytest.mark.parametrize(
    ("body", "error", "message"),
    [
        (
            "p0 = f32[<=8] parameter(0), sharding={devices=[4]<=[4]} ROOT r = f32[<=8] negate(p0)",
            UnsupportedError,
            "in parts",
        ),
        (
            "p0 = f32[8] parameter(0), sharding={devices=[4]<=[4]} c = (f32[8], f32[8]) custom-call(p0), "
            'custom_call_target="Sharding", sharding={{replicated}, {replicated}} '
            "ROOT r = f32[8] get-tuple-element(c), index=0",
            ShapeError,
            "1 values become 2",
        ),
        (
            "p0 = f32[8] parameter(0), sharding={devices=[4]<=[4]} k = token[] after-all() "
            "ROOT r = token[] outfeed(p0, k), outfeed_shape=f32[8]",
            UnsupportedError,
            "feeds and channels in a program that is split",
        ),
    ],
)
def test_what_cannot_be_split(body, error, message):
    with pytest.raises(error, match=message):
        split_over(module_of(body), 4)


def test_feeds_of_manual_computations_are_those_of_their_devices():
    begin = boundary("l", "f32[2,8]", "x", IN, ['[{"a", "b"}, {}]'], ALL)
    end = boundary("ROOT r", "f32[8,8]", "l", OUT, ['[{"a", "b"}, {}]'], ALL)
    feed = "k = token[] after-all() o = token[] outfeed(l, k), outfeed_shape=f32[2,8]"
    module = with_mesh(f"ENTRY main {{ x = f32[8,8] parameter(0), sharding={ROWS} {begin} {feed} {end} }}")
    (sent,) = [i for i in split_over(module, 4).entry.instructions if i.opcode == "outfeed"]
    assert sent.operands[0].shape.dimensions == (2, 8)


def test_tokens_cross_the_borders_of_manual_computations():
    into = boundary("l", "(f32[2,8], token[])", "x, k", IN, ['[{"a", "b"}, {}]', "[]"], ALL)
    out = boundary("e", "(f32[8,8], token[])", "v, u", OUT, ['[{"a", "b"}, {}]', "[]"], ALL)
    parts = "v = f32[2,8] get-tuple-element(l), index=0 u = token[] get-tuple-element(l), index=1"
    module = with_mesh(
        f"ENTRY main {{ x = f32[8,8] parameter(0), sharding={ROWS} k = token[] after-all() {into} {parts} {out} "
        "ROOT r = f32[8,8] get-tuple-element(e), index=0 }"
    )
    x = np.arange(64, dtype=np.float32).reshape(8, 8)
    np.testing.assert_array_equal(run_split(module, x)[0], x)


def test_parts_of_teams_that_no_sharding_says_are_put_together():
    # Inside, columns are split along the axis along which rows are manual outside: not of the whole array.
    into = boundary("l", "f32[4,8]", "x", IN, ['[{"a"}, {}]'], '"a"')
    out = boundary("ROOT r", "f32[8,8]", "s", OUT, ['[{"a"}, {}]'], '"a"')
    said = "sharding={devices=[1,2,2]<=[4] last_tile_dims={manual}}"
    hint = f's = f32[4,8] custom-call(n), custom_call_target="Sharding", {said}'
    module = with_mesh(
        f"ENTRY main {{ x = f32[8,8] parameter(0), sharding={ROWS} {into} n = f32[4,8] negate(l) {hint} {out} }}"
    )
    x = np.arange(64, dtype=np.float32).reshape(8, 8)
    np.testing.assert_array_equal(run_split(module, x)[0], -x)
