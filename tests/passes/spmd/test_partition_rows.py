"""Rows of tables that are split along their rows: what is read and written, by which collectives."""

import numpy as np
import pytest
from split_programs import ROWS, WHOLE, X_ROWS, collectives, module_of, run_split

import xlakit as xla

BY_TWO = "{devices=[2,2]<=[4]}"
SPLIT = "{devices=[4]<=[4]}"
BY_X = "{devices=[2,2]<=[4] last_tile_dim_replicate}"
SET = "set { a = f32[] parameter(0) ROOT b = f32[] parameter(1) }"
REDUCERS = ("maximum", "minimum", "multiply")
FUNCTIONS = [
    f"{name} {{ a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] {name}(a, b) }}" for name in REDUCERS
]


def agree(body, expected, *arguments, exact=True, functions=()):
    module = module_of(body, SET, *FUNCTIONS, *functions)
    result, split = run_split(module, *arguments)
    whole = np.asarray(xla.compile(module.replace(num_partitions=1), backend="interpreter")(*arguments))
    if exact:
        assert result.tobytes() == whole.tobytes()
    else:
        np.testing.assert_allclose(result, whole, rtol=1e-6)
    assert expected is None or collectives(split) == expected
    return split


def numbers(*dims, kind=np.float32):
    return np.random.default_rng(dims).integers(-50, 50, dims).astype(kind)


def tables():
    values = numbers(16, 4)
    values[3], values[15] = -0.0, np.inf
    return values


@pytest.mark.parametrize("kind", ["s32", "u32", "s8", "u8", "s64", "u64"])
def test_numbers_of_any_type_and_outside_of_the_table(kind):
    dtype = np.dtype(f"{kind[0].replace('s', 'i')}{int(kind[1:]) // 8}")
    info = np.iinfo(dtype)
    indices = np.array([0, 3, 4, 15, 16, info.max, info.min, 7], dtype)
    body = (
        f"t = f32[16,4] parameter(0), sharding={ROWS} i = {kind}[8] parameter(1), sharding={{replicated}} "
        "ROOT r = f32[8,4] gather(t, i), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, "
        "index_vector_dim=1, slice_sizes={1,4}"
    )
    split = agree(body, {"all-reduce": 1}, tables(), indices)
    assert [i.shape.dimensions for i in split.entry.instructions if i.opcode == "all-reduce"] == [(8, 4)]


def test_a_small_table_comes_whole():
    body = (
        f"t = f32[16,4] parameter(0), sharding={ROWS} i = s32[64] parameter(1), sharding={{replicated}} "
        "ROOT r = f32[64,4] gather(t, i), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, "
        "index_vector_dim=1, slice_sizes={1,4}"
    )
    agree(body, {"all-gather": 1}, tables(), numbers(64, kind=np.int32))


def test_a_table_that_is_split_along_both_numbers():
    body = (
        f"t = f32[16,8] parameter(0), sharding={BY_TWO} i = s32[2,6] parameter(1), sharding={{replicated}} "
        "ROOT r = f32[6] gather(t, i), offset_dims={}, collapsed_slice_dims={0,1}, start_index_map={1,0}, "
        "index_vector_dim=0, slice_sizes={1,1}"
    )
    indices = np.array([[0, 7, 3, 9, -1, 4], [15, 0, 8, 7, 3, -9]], np.int32)
    agree(body, {"all-reduce": 1}, numbers(16, 8), indices)


def test_split_numbers_of_rows_give_split_rows():
    body = (
        f"t = f32[64,16] parameter(0), sharding={ROWS} i = s32[8] parameter(1), sharding={SPLIT} "
        "ROOT r = f32[8,16] gather(t, i), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, "
        "index_vector_dim=1, slice_sizes={1,16}"
    )
    agree(body, {"all-gather": 1, "reduce-scatter": 1}, numbers(64, 16), np.arange(8, dtype=np.int32) * 8)


@pytest.mark.parametrize(("function", "result"), [("add", ROWS), ("set", ROWS)])
def test_each_member_scatters_into_its_rows(function, result):
    body = (
        f"t = f32[16,4] parameter(0), sharding={ROWS} i = s32[7,1] parameter(1), sharding={{replicated}} "
        f"u = f32[7,4] parameter(2), sharding={{replicated}} ROOT r = f32[16,4] scatter(t, i, u), "
        "update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, "
        f"to_apply={function}, sharding={result}"
    )
    indices = np.array([[0], [5], [16], [-1], [15], [5], [np.iinfo(np.int32).min]], np.int32)
    split = agree(body, {}, numbers(16, 4), indices, numbers(7, 4))
    assert [i.shape.dimensions for i in split.entry.instructions if i.opcode == "scatter"] == [(4, 4)]


def test_updates_that_are_split_over_others_are_added_up():
    body = (
        "t = f32[16,4] parameter(0), sharding={devices=[2,1,2]<=[4] last_tile_dim_replicate} "
        "i = s32[8] parameter(1), sharding={devices=[2,2]<=[2,2]T(1,0) last_tile_dim_replicate} "
        "u = f32[8,4] parameter(2), sharding={devices=[2,1,2]<=[2,2]T(1,0) last_tile_dim_replicate} "
        "ROOT r = f32[16,4] scatter(t, i, u), update_window_dims={1}, inserted_window_dims={0}, "
        "scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add"
    )
    agree(body, {"all-reduce": 1}, numbers(16, 4), np.array([0, 15, 3, 3, 9, 20, -1, 8], np.int32), numbers(8, 4))


@pytest.mark.parametrize("reducer", REDUCERS)
@pytest.mark.parametrize("table", [WHOLE, "{devices=[1,2,2]<=[2,2]T(1,0) last_tile_dim_replicate}"])
def test_parts_of_updates_are_combined_as_the_scatter_combines(reducer, table):
    body = (
        f"t = f32[6,4] parameter(0), sharding={table} i = s32[8] parameter(1), sharding={BY_X} "
        f"u = f32[8,4] parameter(2), sharding={X_ROWS} ROOT r = f32[6,4] scatter(t, i, u), update_window_dims={{1}}, "
        "inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, "
        f"to_apply={reducer}"
    )
    agree(body, {"all-reduce": 1}, numbers(6, 4), np.array([0, 5, 3, 3, 9, 2, -1, 0], np.int32), numbers(8, 4))


@pytest.mark.parametrize("start", [-3, 0, 5, 15, 99])
def test_single_rows_are_read_and_written(start):
    given = f"t = f32[16,4] parameter(0), sharding={ROWS} i = s32[] parameter(1), sharding={{replicated}} "
    read = "ROOT r = f32[1,4] dynamic-slice(t, i, i), dynamic_slice_sizes={1,4}"
    at = np.int32(start)
    agree(given + read, {"all-reduce": 1}, numbers(16, 4), at)
    written = "u = f32[1,4] parameter(2), sharding={replicated} ROOT r = f32[16,4] dynamic-update-slice(t, u, i, i)"
    agree(given + written, {}, numbers(16, 4), at, numbers(1, 4))


def loop_over_rows(dims, iterations, step, *, is_called=False):
    """A program, with its functions, that reads rows l of a table, and makes n of each and of the n before, c."""
    table, row = f"f32[{dims[0]},{dims[1]}]", f"f32[1,{dims[1]}]"
    state = f"(s32[], {table}, {row})"
    sliced = f"dynamic_slice_sizes={{1,{dims[1]}}}"
    called = f"read {{ t = {table} parameter(0) i = s32[] parameter(1) z = s32[] constant(0) "
    called += f"ROOT r = {row} dynamic-slice(t, i, z), {sliced} }}"
    reading = "call(t, i), to_apply=read" if is_called else f"dynamic-slice(t, i, z), {sliced}"
    body = (
        f"step {{ p = {state} parameter(0) i = s32[] get-tuple-element(p), index=0 z = s32[] constant(0) "
        f"t = {table} get-tuple-element(p), index=1 c = {row} get-tuple-element(p), index=2 "
        f"l = {row} {reading} {step} one = s32[] constant(1) j = s32[] add(i, one) "
        f"ROOT r = {state} tuple(j, t, n) }}"
    )
    test = f"test {{ p = {state} parameter(0) i = s32[] get-tuple-element(p), index=0 n = s32[] constant({iterations}) "
    test += "ROOT r = pred[] compare(i, n), direction=LT }"
    main = (
        f"t = {table} parameter(0), sharding={ROWS} z = s32[] constant(0) c = f32[] constant(0) "
        f"b = {row} broadcast(c), dimensions={{}} s = {state} tuple(z, t, b) "
        f"w = {state} while(s), condition=test, body=step ROOT r = {row} get-tuple-element(w), index=2"
    )
    return main, [called, body, test]


@pytest.mark.parametrize(
    ("dims", "iterations", "expected"),
    [
        ((8, 4), 8, {"all-to-all": 1}),  # the rows are in parts, in columns
        ((8, 3), 8, {"all-gather": 1}),  # all of them are needed, and three columns cannot be split
        ((64, 4), 8, {"all-reduce": 1}),  # few of many rows: they are added up where they are, and that is sent
        ((64, 3), 8, {"all-reduce": 1}),
        ((512, 4), 8, {"all-reduce": 1}),
    ],
)
@pytest.mark.parametrize("is_called", [False, True])
def test_rows_that_a_loop_reads_one_by_one(dims, iterations, expected, is_called):
    row = f"f32[1,{dims[1]}]"
    main, functions = loop_over_rows(dims, iterations, f"n = {row} subtract(l, c)", is_called=is_called)
    split = agree(main, None, numbers(*dims), functions=functions)
    found = collectives(split)
    # The result is whole.
    assert {name: count for name, count in found.items() if name in expected} == expected
    assert ("all-reduce" in found) == ("all-reduce" in expected)


@pytest.mark.parametrize(("iterations", "expected"), [(8, {"all-gather": 1}), (2, {"all-reduce": 1})])
def test_a_table_is_not_split_in_columns_that_each_iteration_adds_up(iterations, expected):
    square = "w = f32[4,4] iota(), iota_dimension=0 s = f32[1,4] add(l, c)"
    product = "n = f32[1,4] dot(s, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    main, functions = loop_over_rows((8, 4), iterations, f"{square} {product}")
    split = agree(main, None, numbers(8, 4) / 64, functions=functions)
    assert collectives(split) == expected
