"""Operations that are split over devices give what whole ones give, however their operands are split."""

import pytest
from split_programs import BOTH, COLUMNS, ROWS, WHOLE, check

F32 = "f32[8,8]"
REVERSED = f"reversed {{ a = {F32} parameter(0) ROOT r = {F32} reverse(a), dimensions={{0}} }}"
TURNED = f"turned {{ a = {F32} parameter(0) ROOT r = {F32} transpose(a), dimensions={{1,0}} }}"


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
}


@pytest.mark.parametrize("split", [ROWS, COLUMNS, BOTH])
@pytest.mark.parametrize("name", BODIES)
def test_split_operations_give_what_whole_ones_give(name, split):
    check(BODIES[name](split), None, REVERSED, TURNED)


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
