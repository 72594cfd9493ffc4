"""Sums that loops carry as partial sums, and linear operations on these."""

import numpy as np
import pytest
from split_programs import ADD, ROWS, WHOLE, check, collectives, run_split, with_mesh

import xlakit as xla
from fuzz.programs.shardings import cut
from xlakit.passes.spmd import split_over

TEST = "test { s = (s32[], f32[8,8], f32[8,8]) parameter(0) i = s32[] get-tuple-element(s), index=0 "
COUNTED = TEST + "n = s32[] constant(3) ROOT c = pred[] compare(i, n), direction=LT }"
# Goes on while the first number that is carried is small.
TESTED = (
    TEST + "a = f32[8,8] get-tuple-element(s), index=1 f = f32[1,1] slice(a), slice={[0:1],[0:1]} g = f32[] reshape(f) "
    "n = s32[] constant(3) l = f32[] constant(99) c = pred[] compare(i, n), direction=LT "
    "d = pred[] compare(g, l), direction=LT ROOT r = pred[] and(c, d) }"
)
STATE = (
    "s = (s32[], f32[8,8], f32[8,8]) parameter(0) i = s32[] get-tuple-element(s), index=0 "
    "a = f32[8,8] get-tuple-element(s), index=1 x = f32[8,8] get-tuple-element(s), index=2 "
    "one = s32[] constant(1) j = s32[] add(i, one) zero = s32[] constant(0) "
)
DOT = "dot(x, x), lhs_contracting_dims={0}, rhs_contracting_dims={0}"


def body(*steps):
    return f"body {{ {STATE}{' '.join(steps)} ROOT t = (s32[], f32[8,8], f32[8,8]) tuple(j, r, x) }}"


def entry(begin="parameter(1)", rest="ROOT r = f32[8,8] get-tuple-element(w), index=1", split=ROWS):
    # What is carried is split in rows, and what the loop begins with is whole.
    return (
        f"x = f32[8,8] parameter(0), sharding={split} a = f32[8,8] {begin}, sharding={WHOLE} i = s32[] constant(0) "
        "s = (s32[], f32[8,8], f32[8,8]) tuple(i, a, x) "
        f"w = (s32[], f32[8,8], f32[8,8]) while(s), condition=test, body=body {rest}"
    )


def repeated(module):
    """The collectives of all computations but the first."""
    return {i.opcode for c in module.computations if c is not module.entry for i in c.instructions} & {
        "all-reduce",
        "reduce-scatter",
        "all-gather",
    }


ACCUMULATING = {
    "added": (f"d = f32[8,8] {DOT}", "r = f32[8,8] add(a, d)"),
    "added to": (f"d = f32[8,8] {DOT}", "r = f32[8,8] add(d, a)"),
    "subtracted": (f"d = f32[8,8] {DOT}", "r = f32[8,8] subtract(a, d)"),
    "subtracted from": (f"d = f32[8,8] {DOT}", "r = f32[8,8] subtract(d, a)"),
    "several": (
        f"d = f32[8,8] {DOT}",
        "p = f32[8,8] add(a, d)",
        "n = f32[8,8] negate(d)",
        "r = f32[8,8] subtract(p, n)",
    ),
    "transposed": (
        f"d = f32[8,8] {DOT}",
        "e = f32[8,8] transpose(d), dimensions={1,0}",
        "f = f32[64] reshape(e)",
        "g = f32[8,8] reshape(f)",
        "r = f32[8,8] add(a, g)",
    ),
    "converted": (
        "y = bf16[8,8] convert(x)",
        "d = bf16[8,8] dot(y, y), lhs_contracting_dims={0}, rhs_contracting_dims={0}",
        "e = f32[8,8] convert(d)",
        "r = f32[8,8] add(a, e)",
    ),
    "reduced": (
        f"d = f32[8,8] {DOT}",
        "e = f32[1,8,8] reshape(d)",
        "nil = f32[] constant(0)",
        "f = f32[8,8] reduce(e, nil), dimensions={0}, to_apply=add",
        "r = f32[8,8] add(f, a)",
    ),
    "stacked": (
        "o = f32[8] constant({1,1,1,1,1,1,1,1})",
        "d = f32[8] dot(x, o), lhs_contracting_dims={0}, rhs_contracting_dims={0}",
        "e = f32[1,8] reshape(d)",
        "r = f32[8,8] dynamic-update-slice(a, e, i, zero)",
    ),
}


@pytest.mark.parametrize("begin", ["parameter(1)", "broadcast(z), dimensions={}"])
@pytest.mark.parametrize("steps", ACCUMULATING.values(), ids=ACCUMULATING)
def test_what_a_loop_adds_is_summed_once_after_it(steps, begin):
    """The value that the loop begins with is added once, not once for each device."""
    constant = "" if begin == "parameter(1)" else "z = f32[] constant(0) "
    split = check(constant + entry(begin), {"all-reduce": 1}, COUNTED, body(*steps))
    assert not repeated(split)


ADDED = ACCUMULATING["added"]


@pytest.mark.parametrize(
    ("test", "steps"),
    [
        pytest.param(COUNTED, (*ADDED[:1], "q = f32[8,8] add(a, d)", "r = f32[8,8] multiply(q, q)"), id="not linear"),
        pytest.param(COUNTED, (*ADDED[:1], "q = f32[8,8] multiply(a, d)", "r = f32[8,8] add(q, d)"), id="used besides"),
        pytest.param(COUNTED, (*ADDED[:1], "q = f32[8,8] maximum(a, x)", "r = f32[8,8] add(q, d)"), id="not itself"),
        pytest.param(
            COUNTED,
            (
                *ADDED[:1],
                "three = f32[] constant(3)",
                "e = f32[1,8,8] reshape(d)",
                "f = f32[8,8] reduce(e, three), dimensions={0}, to_apply=add",
                "r = f32[8,8] add(f, a)",
            ),
            id="a sum that begins with a number",
        ),
        pytest.param(TESTED, ADDED, id="tested by the condition"),
    ],
)
def test_what_a_loop_needs_whole_is_summed_in_it(test, steps):
    assert repeated(check(entry(), None, test, body(*steps)))


def test_a_narrower_float_is_not_made_of_partial_sums():
    steps = (f"d = f32[8,8] {DOT}", "e = bf16[8,8] convert(d)", "f = f32[8,8] convert(e)", "r = f32[8,8] add(a, f)")
    assert "all-reduce" in repeated(check(entry(), None, COUNTED, body(*steps)))


def test_a_sum_of_a_loop_that_is_wanted_in_parts_is_carried_in_parts():
    """To carry whole partial sums would send less, and take the memory that the split was to save."""
    rest = f"ROOT r = f32[8,8] get-tuple-element(w), index=1, sharding={ROWS}"
    begin = "z = f32[] constant(0) " + entry("broadcast(z), dimensions={}", rest)
    split = check(begin, {"reduce-scatter": 1}, COUNTED, body(*ADDED))
    assert repeated(split)


def test_a_sum_of_which_a_function_is_wanted_in_parts_is_scattered():
    text = f"x = f32[8,8] parameter(0), sharding={ROWS} d = f32[8,8] {DOT} h = f32[8,8] multiply(d, d) "
    split = check(text + f"ROOT r = f32[8,8] add(h, x), sharding={ROWS}", {"reduce-scatter": 1})
    assert all(i.shape.dimensions == (2, 8) for i in split.entry.instructions if i.opcode == "multiply")


def test_partial_sums_that_are_added_up_are_summed_once():
    text = (
        f"x = f32[8,8] parameter(0), sharding={ROWS} y = f32[8,8] parameter(1), sharding={ROWS} d = f32[8,8] {DOT} "
        "e = f32[8,8] dot(y, x), lhs_contracting_dims={0}, rhs_contracting_dims={0} p = f32[8,8] add(d, e) "
    )
    check(text + "q = f32[8,8] subtract(p, e) ROOT r = f32[8,8] tanh(q)", {"all-reduce": 1})


@pytest.mark.parametrize("operation", ["transpose(v), dimensions={1,0}", "slice(v), slice={[0:8],[0:8]}", "copy(v)"])
def test_the_result_of_an_operation_on_unreduced_values_is_unreduced_where_the_program_says_so(operation):
    said = '#sdy.sharding_per_value<[<@m, [{}, {}], unreduced={"a"}>]>'.replace('"', '\\"')

    def unreduced(name, operand):
        call = f'custom-call({operand}), custom_call_target="Sharding"'
        return f'{name} = f32[8,8] {call}, frontend_attributes={{xla.sdy.sharding="{said}"}} '

    text = f"x = f32[8,8] parameter(0) {unreduced('v', 'x')} b = f32[8,8] {operation} {unreduced('u', 'b')}"
    x = np.arange(64, dtype=np.float32).reshape(8, 8)
    result, split = run_split(with_mesh(f"ENTRY main {{ {text} ROOT r = f32[8,8] tanh(u) }}"), x)
    np.testing.assert_array_equal(result, np.tanh(x.T if operation.startswith("transpose") else x))
    assert collectives(split) == {"all-reduce": 1}


def test_a_value_is_spread_over_devices_so_that_its_sum_has_its_bits():
    """Zeros of either sign, infinities and NaN are as they were after one device has had them and all are added."""
    said = '#sdy.sharding_per_value<[<@m, [{}, {}], unreduced={"a", "b"}>]>'.replace('"', '\\"')
    call = f'custom-call(x), custom_call_target="Sharding", frontend_attributes={{xla.sdy.sharding="{said}"}}'
    text = f"ENTRY main {{ x = f32[2,2] parameter(0) u = f32[2,2] {call} ROOT r = f32[2,2] negate(u) }}"
    x = np.float32([[-0.0, 0.0], [np.inf, np.nan]])
    result, split = run_split(with_mesh(text), x)
    np.testing.assert_array_equal(result.view(np.int32), (-x).view(np.int32))
    assert collectives(split) == {"all-reduce": 1}


@pytest.mark.parametrize("steps", ACCUMULATING.values(), ids=ACCUMULATING)
def test_loops_over_partial_sums_are_the_same_compiled(steps):
    text = "\n".join(["HloModule m, num_partitions=4", ADD, COUNTED, body(*steps), f"ENTRY main {{ {entry()} }}"])
    split = split_over(xla.HloModule.from_text(text), 4)
    rng = np.random.default_rng(1)
    given = [rng.integers(0, 4, (8, 8)).astype(np.float32) for _ in range(2)]
    shards = [cut(a, s, 4) for a, s in zip(given, split.spmd_parameters_shardings, strict=True)]
    each = [[s[p] for s in shards] for p in range(4)]
    results = [xla.compile(split, backend=b).execute_replicated(each) for b in ("interpreter", "cpu")]
    for wanted, actual in zip(*results, strict=True):
        np.testing.assert_array_equal(np.asarray(actual), np.asarray(wanted))
