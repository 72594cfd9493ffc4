"""Operations that are split over devices give what whole ones give, however their operands are split."""

import numpy as np
import pytest
from split_programs import BOTH, COLUMNS, ROWS, WHOLE, check

import xlakit as xla

F32 = "f32[8,8]"
REVERSED = f"reversed {{ a = {F32} parameter(0) ROOT r = {F32} reverse(a), dimensions={{0}} }}"
TURNED = f"turned {{ a = {F32} parameter(0) ROOT r = {F32} transpose(a), dimensions={{1,0}} }}"


BOTH_ADDED = """both {
  a = f32[] parameter(0) b = f32[] parameter(1) c = f32[] parameter(2) d = f32[] parameter(3)
  s = f32[] add(a, c) t = f32[] add(b, d) ROOT r = (f32[], f32[]) tuple(s, t)
}"""
FIRST_OF = """first_%s {
  a = f32[] parameter(0) i = %s[] parameter(1) b = f32[] parameter(2) j = %s[] parameter(3)
  gt = pred[] compare(a, b), direction=GT ne = pred[] compare(a, a), direction=NE better = pred[] or(gt, ne)
  eq = pred[] compare(a, b), direction=EQ lt = pred[] compare(i, j), direction=LT tie = pred[] and(eq, lt)
  keeps = pred[] or(better, tie) v = f32[] select(better, a, b) p = %s[] select(keeps, i, j)
  ROOT r = (f32[], %s[]) tuple(v, p)
}"""
CALLED = [BOTH_ADDED, *(FIRST_OF % ((kind,) * 5) for kind in ("s32", "s8"))]


def given(split, kind=F32, number=0):
    return f"p{number} = {kind} parameter({number}), sharding={split} "


BODIES = {
    "barrier": lambda split: (
        f"{given(split)} t = ({F32}) tuple(p0) b = ({F32}) opt-barrier(t) g = {F32} get-tuple-element(b), index=0 "
        f"ROOT r = {F32} negate(g), sharding={split}"
    ),
    "dependency": lambda split: (
        f"{given(split)} t = token[] after-all() d = {F32} add-dependency(p0, t) ROOT r = {F32} negate(d)"
    ),
    "narrower bits": lambda split: f"{given(split)} ROOT r = s16[8,8,2] bitcast-convert(p0)",
    "wider bits": lambda split: (
        f"{given(split, 's16[8,8]')} q = s16[8,4,2] reshape(p0) ROOT r = s32[8,4] bitcast-convert(q)"
    ),
    # Partial sums of truth values are none.
    "product of truth values": lambda split: (
        f"{given(split, 'pred[8,8]')} {given(ROWS, 'pred[8,8]', 1)} "
        "ROOT r = pred[8,8] dot(p0, p1), lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    ),
    "sums and parts": lambda split: (
        f"{given(COLUMNS)} {given(ROWS, number=1)} {given(split, number=2)} "
        f"d = {F32} dot(p0, p1), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}} e = {F32} add(d, p2) "
        f"ROOT r = {F32} subtract(e, d)"
    ),
    "branches": lambda split: (
        f"{given(split)} n = s32[] parameter(1) "
        f"ROOT r = {F32} conditional(n, p0, p0), branch_computations={{reversed, turned}}"
    ),
    "gather of batches": lambda split: (
        f"{given(split)} {given(split, 's32[8,8]', 1)} i = s32[8,8,1] reshape(p1) "
        f"ROOT r = {F32} gather(p0, i), offset_dims={{}}, collapsed_slice_dims={{1}}, start_index_map={{1}}, "
        "operand_batching_dims={0}, start_indices_batching_dims={0}, index_vector_dim=2, slice_sizes={1,1}"
    ),
    "scatter of batches": lambda split: (
        f"{given(split)} {given(split, 's32[8,8]', 1)} {given(split, number=2)} i = s32[8,8,1] reshape(p1) "
        f"ROOT r = {F32} scatter(p0, i, p2), update_window_dims={{}}, inserted_window_dims={{1}}, "
        "scatter_dims_to_operand_dims={1}, input_batching_dims={0}, scatter_indices_batching_dims={0}, "
        "index_vector_dim=2, to_apply=add"
    ),
    # Pairs of which the second is no position along the split, or begins at another one.
    **{
        f"greatest, {name}": lambda split, second=second, kind=kind, first=first: (
            f"{given(split)} {given(split, f'{kind}[8,8]', 1)} low = f32[] constant(-inf) "
            f"z = {kind}[] constant({first}) i = {kind}[8,8] {second} "
            f"ROOT r = (f32[8], {kind}[8]) reduce(p0, i, low, z), dimensions={{0}}, to_apply=first_{kind}"
        )
        for name, second, kind, first in (
            ("weights", "negate(p1)", "s32", 0),
            ("columns", "iota(), iota_dimension=1", "s32", 0),
            ("rows", "iota(), iota_dimension=0", "s32", 0),
            ("rows from the end", "reverse(p1), dimensions={0}", "s32", 0),
            ("rows of another type", "iota(), iota_dimension=0", "s8", 0),
            ("rows from one on", "iota(), iota_dimension=0", "s32", 1),
        )
    },
    # Rows by their numbers, of what does not come as it is through a sum, or is one.
    "rows of truth values": lambda split: (
        f"{given(split, 'pred[8,8]')} {given(WHOLE, 's32[1]', 1)} "
        "ROOT r = pred[1,8] gather(p0, p1), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, "
        "index_vector_dim=1, slice_sizes={1,8}"
    ),
    "a row of partial sums": lambda split: (
        f"{given(COLUMNS)} {given(ROWS, number=1)} {given(split, number=2)} n = s32[] parameter(3) "
        "z = s32[] constant(0) "
        f"d = {F32} dot(p0, p1), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}} e = {F32} add(d, p2) "
        "s = f32[1,8] dynamic-slice(d, n, z), dynamic_slice_sizes={1,8} "
        "t = f32[1,8] dynamic-slice(e, n, z), dynamic_slice_sizes={1,8} ROOT r = f32[1,8] subtract(t, s)"
    ),
    "a row by a vector of starts": lambda split: (
        f"{given(split)} {given(WHOLE, 's32[2]', 1)} u = f32[1,8] constant({{{{1,2,3,4,5,6,7,8}}}}) "
        f"s = f32[1,8] dynamic-slice(p0, p1), dynamic_slice_sizes={{1,8}} d = {F32} dynamic-update-slice(p0, u, p1) "
        f"q = f32[8] reshape(s) b = {F32} broadcast(q), dimensions={{1}} ROOT r = {F32} subtract(d, b)"
    ),
    "a scatter of two arrays": lambda split: (
        f"{given(split)} {given(split, number=1)} {given(WHOLE, 's32[2]', 2)} {given(WHOLE, 'f32[2,8]', 3)} "
        f"ROOT r = ({F32}, {F32}) scatter(p0, p1, p2, p3, p3), update_window_dims={{1}}, inserted_window_dims={{0}}, "
        "scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=both"
    ),
    # Arrays without elements.
    "reshapes of nothing": lambda split: (
        f"{given(split)} e = f32[0,8] slice(p0), slice={{[4:4], [0:8]}} h = f32[4,0,2] reshape(e) "
        "q = f32[0] reshape(h) z = f32[] constant(3) s = f32[] reduce(q, z), dimensions={0}, to_apply=add "
        f"b = {F32} broadcast(s), dimensions={{}} ROOT r = {F32} add(p0, b)"
    ),
}


@pytest.mark.parametrize("split", [ROWS, COLUMNS, BOTH])
@pytest.mark.parametrize("name", BODIES)
def test_split_operations_give_what_whole_ones_give(name, split):
    check(BODIES[name](split), None, REVERSED, TURNED, *CALLED)


def test_a_loop_whose_state_never_has_one_sharding():
    """Each iteration moves the parts to the next element and turns them: the state stays as it was at first."""
    state = f"(s32[], {F32}, {F32}, {F32})"
    elements = " ".join(f"{n} = {F32} get-tuple-element(s), index={i}" for i, n in enumerate("abc", 1))
    counter = f"s = {state} parameter(0) i = s32[] get-tuple-element(s), index=0"
    body = (
        f"body {{ {counter} {elements} one = s32[] constant(1) j = s32[] add(i, one) "
        f"d = {F32} transpose(c), dimensions={{1,0}} ROOT t = {state} tuple(j, b, d, a) }}"
    )
    test = f"test {{ {counter} n = s32[] constant(5) ROOT r = pred[] compare(i, n), direction=LT }}"
    check(
        f"{given(ROWS)} {given(COLUMNS, number=1)} {given(WHOLE, number=2)} zero = s32[] constant(0) "
        f"s = {state} tuple(zero, p0, p1, p2) w = {state} while(s), condition=test, body=body "
        f"a = {F32} get-tuple-element(w), index=1 b = {F32} get-tuple-element(w), index=2 "
        f"ROOT r = {F32} subtract(a, b)",
        None,
        body,
        test,
    )


def test_the_groups_of_collectives_are_those_of_the_replicas_that_the_caller_asks_for():
    text = """HloModule replicas
ENTRY main {
  x = f32[4] parameter(0), sharding={devices=[2]0,1}
  ROOT r = f32[4] reverse(x), dimensions={0}, sharding={replicated}
}"""
    executable = xla.compile(xla.HloModule.from_text(text), num_replicas=2, num_partitions=2)
    results = executable.execute_replicated([[np.float32([2 * i, 2 * i + 1])] for i in range(4)])
    assert [np.asarray(r).tolist() for r in results] == [[3, 2, 1, 0]] * 2 + [[7, 6, 5, 4]] * 2
