"""Results in the memory of donated arguments."""

import numpy as np
import pytest

import xlakit as xla


def compiled(header, body, extra="", **options):
    text = f"HloModule m{header}\n{extra}\nENTRY main {{\n{body}\n}}\n"
    return xla.compile(xla.HloModule.from_text(text), **options)


def aligned(array):
    """A copy at an address that programs may write results to."""
    memory = np.empty(array.nbytes + 64, np.uint8)
    start = -memory.ctypes.data % 64
    made = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    made[...] = array
    return made


ALIAS = ", input_output_alias={ {}: (0, {}, may-alias) }"
UPDATE = """  x = f32[1000] parameter(0)
  u = f32[10] parameter(1)
  i = s32[] parameter(2)
  ROOT r = f32[1000] dynamic-update-slice(x, u, i)"""


def test_an_update_is_made_in_the_argument():
    executable = compiled(ALIAS, UPDATE)
    x, u = aligned(np.zeros(1000, np.float32)), np.ones(10, np.float32)
    result = executable(x, u, np.int32(5), donate=(0,))
    assert result is x
    assert x.sum() == 10
    # What a program gave can be donated to the next.
    fresh = executable(x, u, np.int32(20))
    assert fresh is not x
    assert x.sum() == 10
    assert executable(fresh, u, np.int32(40), donate=[0]) is fresh
    assert fresh.sum() == 30


def test_without_donation_arguments_stay_as_they_are():
    executable = compiled(ALIAS.replace("may", "must"), UPDATE)
    x = aligned(np.zeros(1000, np.float32))
    assert executable(x, np.ones(10, np.float32), np.int32(0)).sum() == 10
    assert not x.any()


def test_without_an_alias_donation_changes_nothing():
    x = aligned(np.zeros(1000, np.float32))
    assert compiled("", UPDATE)(x, np.ones(10, np.float32), np.int32(0), donate=(0,)) is not x
    assert not x.any()


@pytest.mark.parametrize(
    ("result", "kind"),
    [("f32[64] convert(n)", np.float32), ("u32[64] convert(n)", np.uint32)],
)
def test_results_of_other_types_in_the_memory_of_an_argument(result, kind):
    executable = compiled(ALIAS, f"  x = s32[64] parameter(0)\n  n = s32[64] negate(x)\n  ROOT r = {result}")
    assert executable.in_place == ((0, 0),)
    x = aligned(np.arange(64, dtype=np.int32))
    wanted = (-x).astype(kind)
    found = executable(x, donate=(0,))
    assert np.shares_memory(found, x)
    assert found.dtype == wanted.dtype
    np.testing.assert_array_equal(found, wanted)


def test_an_elementwise_step_works_in_place():
    executable = compiled(
        ", input_output_alias={ {0}: (0, {}), {1}: (1, {}) }",
        """  w = f32[64,32] parameter(0)
  m = f32[64,32] parameter(1)
  g = f32[64,32] parameter(2)
  half = f32[] constant(0.5)
  factors = f32[64,32] broadcast(half), dimensions={}
  scaled = f32[64,32] multiply(m, factors)
  moment = f32[64,32] add(scaled, g)
  weight = f32[64,32] subtract(w, moment)
  ROOT r = (f32[64,32], f32[64,32]) tuple(weight, moment)""",
    )
    rng = np.random.default_rng(0)
    w, m, g = (aligned(rng.standard_normal((64, 32)).astype(np.float32)) for _ in range(3))
    expected = executable(w, m, g)
    weight, moment = executable(w, m, g, donate=(0, 1))
    assert weight is w
    assert moment is m
    np.testing.assert_array_equal(weight, expected[0])
    np.testing.assert_array_equal(moment, expected[1])
    assert executable.memory_analysis().alias_size_in_bytes == 2 * w.nbytes


LOOP = """
step {
  s = (s32[], f32[100]) parameter(0)
  n = s32[] get-tuple-element(s), index=0
  x = f32[100] get-tuple-element(s), index=1
  one = s32[] constant(1)
  next = s32[] add(n, one)
  two = f32[] constant(2)
  value = f32[1] broadcast(two), dimensions={}
  y = f32[100] dynamic-update-slice(x, value, n)
  ROOT t = (s32[], f32[100]) tuple(next, y)
}

test {
  s = (s32[], f32[100]) parameter(0)
  n = s32[] get-tuple-element(s), index=0
  end = s32[] constant(70)
  ROOT p = pred[] compare(n, end), direction=LT
}
"""


def test_a_loop_keeps_its_state_in_the_argument():
    executable = compiled(
        ALIAS,
        """  x = f32[100] parameter(0)
  zero = s32[] constant(0)
  t = (s32[], f32[100]) tuple(zero, x)
  w = (s32[], f32[100]) while(t), condition=test, body=step
  ROOT r = f32[100] get-tuple-element(w), index=1""",
        LOOP,
    )
    x = aligned(np.zeros(100, np.float32))
    assert executable(x, donate=(0,)) is x
    assert x.sum() == 140


@pytest.mark.parametrize(
    "body",
    [
        # The argument is read again after the result is written.
        "t = f32[8,8] transpose(x), dimensions={1,0}\n  ROOT r = f32[8,8] add(t, x)",
        "ROOT r = f32[8,8] reverse(x), dimensions={0}",
        "ROOT r = f32[8,8] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
        "s = f32[8,8] sort(x), dimensions={0}, to_apply=less\n  ROOT r = f32[8,8] subtract(x, s)",
    ],
)
def test_what_cannot_be_computed_there_is_computed_elsewhere(body):
    less = "less { a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT c = pred[] compare(a, b), direction=LT }"
    executable = compiled(ALIAS, "  x = f32[8,8] parameter(0)\n  " + body, less)
    values = np.random.default_rng(1).standard_normal((8, 8)).astype(np.float32)
    expected = executable(values)
    np.testing.assert_array_equal(executable(aligned(values), donate=(0,)), expected)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda x: np.lib.stride_tricks.as_strided(x, writeable=False),
        lambda x: aligned(np.zeros(1001, np.float32))[1:],
        lambda x: [0.0] * 1000,
    ],
)
def test_an_array_that_cannot_be_used_is_left_alone(spoil):
    x = spoil(aligned(np.zeros(1000, np.float32)))
    result = compiled(ALIAS, UPDATE)(x, np.ones(10, np.float32), np.int32(0), donate=(0,))
    assert result.sum() == 10
    assert not np.any(x)


def test_an_array_that_is_given_twice_is_not_written_to():
    body = "  x = f32[16] parameter(0)\n  y = f32[16] parameter(1)\n  ROOT r = f32[16] add(x, y)"
    x = aligned(np.ones(16, np.float32))
    assert compiled(ALIAS, body)(x, x[:], donate=(0,)).tolist() == [2] * 16
    assert x.tolist() == [1] * 16


def test_an_argument_that_is_the_result():
    executable = compiled(ALIAS, "  ROOT x = f32[16] parameter(0)")
    x = aligned(np.ones(16, np.float32))
    assert executable(x, donate=(0,)) is x
    assert executable(x) is not x
    assert x.tolist() == [1] * 16


def test_swapped_arguments_are_copied():
    header = ", input_output_alias={ {0}: (0, {}), {1}: (1, {}) }"
    body = "  x = f32[16] parameter(0)\n  y = f32[16] parameter(1)\n  ROOT r = (f32[16], f32[16]) tuple(y, x)"
    x, y = aligned(np.ones(16, np.float32)), aligned(np.zeros(16, np.float32))
    first, second = compiled(header, body)(x, y, donate=(0, 1))
    assert first.tolist() == [0] * 16
    assert second.tolist() == [1] * 16


def test_elements_of_tuples_have_aliases():
    header = ", input_output_alias={ {1}: (0, {1}) }"
    body = """  p = (f32[4], f32[4]) parameter(0)
  a = f32[4] get-tuple-element(p), index=0
  b = f32[4] get-tuple-element(p), index=1
  c = f32[4] add(b, b)
  ROOT r = (f32[4], f32[4]) tuple(a, c)"""
    a, b = (aligned(np.ones(4, np.float32)) for _ in range(2))
    first, second = compiled(header, body)((a, b), donate=(0,))
    assert second is b
    assert first is not a
    assert b.tolist() == [2] * 4


@pytest.mark.parametrize("backend", ["cpu", "interpreter"], indirect=True)
def test_numbers_are_checked(backend):
    executable = compiled(ALIAS, UPDATE, backend=backend)
    arguments = np.zeros(1000, np.float32), np.zeros(10, np.float32), 0
    for wrong in ((3,), (-1,), ("x",), (True,)):
        with pytest.raises(xla.ArgumentError, match="donate"):
            executable(*arguments, donate=wrong)
    assert executable(*arguments, donate=(0, 1, 2)).shape == (1000,)


def test_several_devices_leave_what_they_are_given():
    executable = compiled(ALIAS, UPDATE, num_replicas=2)
    x = aligned(np.zeros(1000, np.float32))
    first, second = executable(x, np.ones(10, np.float32), np.int32(0), donate=(0,))
    assert first.sum() == second.sum() == 10
    assert not x.any()


OFFERED = """  x = f32[1000] parameter(0)
  y = f32[1000] parameter(1)
  z = f32[10] parameter(2)
  d = f32[1000] add(x, x)
  s = f32[1000] subtract(y, d)
  m = f32[10] multiply(z, z)
  ROOT r = (f32[10], f32[1000], f32[1000]) tuple(m, s, d)"""


def test_an_argument_that_is_offered_goes_to_a_result_of_its_size():
    donors = ", buffer_donor={ (0, {}), (1, {}), (2, {}) }"
    x, y, z = (aligned(np.full(n, v, np.float32)) for n, v in ((1000, 3), (1000, 5), (10, 2)))
    executable = compiled(donors, OFFERED)
    (first, second), third = executable.in_place[:2], executable.in_place[2]
    assert {first[1], second[1], third[1]} == {0, 1, 2} and {first[0], second[0], third[0]} == {0, 1, 2}
    results = executable(x, y, z, donate=(0, 1, 2))
    for result, value in zip(results, (4, -1, 6), strict=True):
        np.testing.assert_array_equal(result, np.full(result.shape, value))
        assert any(result is given for given in (x, y, z))
    # With an alias for one of the results the others remain.
    both = ", input_output_alias={ {1}: (0, {}, may-alias) }" + donors
    assert len(dict(compiled(both, OFFERED).in_place)) == 3


def test_an_argument_that_is_read_later_is_not_written_to():
    body = """  x = f32[8,8] parameter(0)
  p = f32[8,8] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT r = (f32[8,8]) tuple(p)"""
    executable = compiled(", buffer_donor={ (0, {}) }", body)
    assert executable.in_place == ()
    x = aligned(np.full((8, 8), 2, np.float32))
    np.testing.assert_array_equal(executable(x, donate=(0,))[0], np.full((8, 8), 32))
