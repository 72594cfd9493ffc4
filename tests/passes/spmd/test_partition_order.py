"""What depends on the order along a split dimension: running sums, and the elements that reducers choose."""

import numpy as np
import pytest
from split_programs import COLUMNS, ROWS, check, collectives, module_of, run_split, sends


@pytest.mark.parametrize("size", [16, 15, 10, 9])  # the last: three parts, and one of nothing
@pytest.mark.parametrize("back", [False, True])
@pytest.mark.parametrize(("opcode", "init"), [("add", "5"), ("maximum", "-1"), ("multiply", "3")])
def test_running_sums_send_one_number_of_each_part(size, back, opcode, init):
    reducer = f"w {{ a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] {opcode}(a, b) }}"
    window = f"size={size}x1 pad={0 if back else size - 1}_{size - 1 if back else 0}x0_0"
    rest = f", sharding={ROWS}" if size < 16 else ""
    split = check(
        f"x = f32[{size},2] parameter(0), sharding={ROWS} z = f32[] constant({init}) "
        f"ROOT r = f32[{size},2] reduce-window(x, z), window={{{window}}}, to_apply=w{rest}",
        {"all-gather": 1},
        reducer,
    )
    assert sends(split) == 3 * 2
    assert split.entry.root.shape.dimensions == (-(-size // 4), 2)


def test_a_window_that_misses_the_first_element_is_no_running_sum():
    window = "window={size=15x1 pad=14_0x0_0}, to_apply=add"
    body = f"x = f32[16,2] parameter(0), sharding={ROWS} z = f32[] constant(0) "
    split = check(f"{body} ROOT r = f32[16,2] reduce-window(x, z), {window}", None)
    assert sends(split) > 3 * 2


FIRST = """first {
  a = f32[] parameter(0) i = s32[] parameter(1) b = f32[] parameter(2) j = s32[] parameter(3)
  g = pred[] compare(a, b), direction=GT n = pred[] compare(a, a), direction=NE o = pred[] or(g, n)
  e = pred[] compare(a, b), direction=EQ l = pred[] compare(i, j), direction=LT t = pred[] and(e, l)
  w = pred[] or(o, t) x = f32[] select(o, a, b) y = s32[] select(w, i, j) ROOT r = (f32[], s32[]) tuple(x, y) }"""
LAST = """last {
  a = f32[] parameter(0) i = s32[] parameter(1) b = f32[] parameter(2) j = s32[] parameter(3)
  g = pred[] compare(a, b), direction=GT
  x = f32[] select(g, a, b) y = s32[] select(g, i, j) ROOT r = (f32[], s32[]) tuple(x, y) }"""


@pytest.mark.parametrize("size", [32, 31, 9])
@pytest.mark.parametrize(("name", "text"), [("first", FIRST), ("last", LAST)])
@pytest.mark.parametrize("start", ["-inf", "4"])  # as some elements are 4, one that may come once only
def test_what_is_chosen_of_each_part_is_chosen_from(size, name, text, start):
    split = check(
        f"x = f32[2,{size}] parameter(0), sharding={COLUMNS} i = s32[2,{size}] iota(), iota_dimension=1 "
        f"c = f32[] constant({start}) z = s32[] constant(-3) "
        f"ROOT r = (f32[2], s32[2]) reduce(x, i, c, z), dimensions={{1}}, to_apply={name}",
        {"all-gather": 2},
        text,
    )
    assert sends(split) == 2 * 3 * 2


@pytest.mark.parametrize("size", [32, 31])
@pytest.mark.parametrize("positions", ["iota(), iota_dimension=1", "broadcast(j), dimensions={1}"])
@pytest.mark.parametrize("worst", ["x", "c"])
def test_positions_of_parts_begin_at_zero(size, positions, worst):
    """Of a row of -inf, where the initial pair stands first, too."""
    row = f"f32[2,{size}]"
    split = check(
        f"x = {row} parameter(0), sharding={COLUMNS} j = s32[{size}] iota(), iota_dimension=0 "
        f"i = s32[2,{size}] {positions} c = f32[] constant(-inf) z = s32[] constant(0) b = {row} broadcast(c) "
        f"y = {row} add(x, {'b' if worst == 'c' else 'x'}) "
        "ROOT r = (f32[2], s32[2]) reduce(y, i, c, z), dimensions={1}, to_apply=first",
        None,
        FIRST,
    )
    reduces = [i for i in split.entry.instructions if i.opcode == "reduce"]
    assert reduces[0].operands[1].opcode == "iota"


def test_a_reducer_that_is_not_known_meets_the_initial_value_once():
    reducer = "plus { a = f32[] parameter(0) b = f32[] parameter(1) m = f32[] negate(b) ROOT r = f32[] subtract(a, m) }"
    body = f"x = f32[2,15] parameter(0), sharding={COLUMNS} c = f32[] constant(5) "
    split = check(f"{body} ROOT r = f32[2] reduce(x, c), dimensions={{1}}, to_apply=plus", {"all-gather": 1}, reducer)
    assert sends(split) == 3 * 2


def test_results_as_large_as_parts_are_not_gathered_instead():
    body = f"x = f32[2,4] parameter(0), sharding={COLUMNS} i = s32[2,4] iota(), iota_dimension=1 "
    init = "c = f32[] constant(-inf) z = s32[] constant(0) "
    reduced = "reduce(x, i, c, z), dimensions={1}, to_apply=first"
    assert sends(check(f"{body}{init} ROOT r = (f32[2], s32[2]) {reduced}", {"all-gather": 1}, FIRST)) == 3 * 2


@pytest.mark.parametrize(("size", "k"), [(32, 3), (31, 3), (27, 9), (9, 1)])
@pytest.mark.parametrize("largest", ["true", "false"])
def test_the_first_of_each_part_are_candidates(size, k, largest):
    split = check(
        f"x = f32[2,{size}] parameter(0), sharding={COLUMNS} "
        f"ROOT r = (f32[2,{k}], s32[2,{k}]) topk(x), k={k}, largest={largest}",
        {"all-gather": 2} if size > 4 * k else {"all-gather": 1},
    )
    if size > 4 * k:
        assert sends(split) == 2 * 3 * 2 * k


def test_rows_of_a_top_k_are_split_like_others():
    text = f"x = f32[8,5] parameter(0), sharding={ROWS} ROOT r = (f32[8,2], s32[8,2]) topk(x), k=2, largest=true"
    assert check(text, {}).entry.root.shape.tuple_shapes[0].dimensions == (2, 2)


LESS = "less { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = pred[] compare(a, b), direction=LT }"
PAIRS = """pairs { a = f32[] parameter(0) b = f32[] parameter(1) i = s32[] parameter(2) j = s32[] parameter(3)
  ROOT r = pred[] compare(a, b), direction=GT }"""


@pytest.mark.parametrize(
    ("operation", "sent"),
    [
        (f"f32[8,12] sort(x), dimensions={{1}}, to_apply=less, sharding={ROWS}", 8 * 12 / 4 * 3 / 4),
        (
            f"(f32[8,12], s32[8,12]) sort(x, i), dimensions={{1}}, to_apply=pairs, sharding={{{ROWS}, {ROWS}}}",
            8 * 12 / 4 * 3 / 4,
        ),
        # Candidates would be more than there are elements.
        ("(f32[8,9], s32[8,9]) topk(x), k=9, largest=true", 8 * 12 / 4 * 3 / 4),
    ],
)
def test_a_split_moves_to_a_dimension_that_is_left_alone(operation, sent):
    body = f"x = f32[8,12] parameter(0), sharding={COLUMNS} i = s32[8,12] iota(), iota_dimension=1 "
    split = check(f"{body} ROOT r = {operation}", {"all-to-all": 1}, LESS, PAIRS)
    assert sends(split) == sent


def test_a_transform_of_a_split_dimension():
    body = f"x = c64[8,16] parameter(0), sharding={COLUMNS} ROOT r = c64[8,16] fft(x), fft_type=FFT, fft_length={{16}}"
    body += f", sharding={ROWS}"
    module = module_of(body)
    x = np.arange(128).reshape(8, 16).astype(np.complex64)
    result, split = run_split(module, x)
    np.testing.assert_allclose(result, np.fft.fft(x), rtol=1e-5, atol=1e-3)
    assert collectives(split) == {"all-to-all": 1}


def test_a_split_that_no_other_dimension_can_take_is_gathered():
    body = f"x = f32[6,16] parameter(0), sharding={COLUMNS}"
    split = check(f"{body} ROOT r = f32[6,16] sort(x), dimensions={{1}}, to_apply=less", {"all-gather": 1}, LESS)
    assert sends(split) == 6 * 16 / 4 * 3
