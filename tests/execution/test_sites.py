"""Sites: devices that take different branches meet in copies of a collective, as in XLA."""

import numpy as np
import pytest

import xlakit as xla

HEAD = """
HloModule m, replica_count=%(replicas)d, num_partitions=%(partitions)d
add { x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT z = f32[] add(x, y) }
greatest { x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT z = f32[] maximum(x, y) }
"""
# Of x, which stays, and v: the sum of v, of which that of x depends.
STATE = "(s32[], f32[3], f32[3], f32[3])"
BODY = f"""
body {{ s = {STATE} parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[3] get-tuple-element(s), index=1
  v = f32[3] get-tuple-element(s), index=2
  a = f32[3] get-tuple-element(s), index=3
  first = f32[3] all-reduce(v), %(over)s, to_apply=%(first)s
  t = f32[3] add(x, first)
  second = f32[3] all-reduce(t), %(over)s, to_apply=add
  b = f32[3] add(a, second)
  one = s32[] constant(1)
  j = s32[] add(i, one)
  ROOT r = {STATE} tuple(j, x, first, b) }}
"""
TIMES = f"""
below%(n)d {{ s = {STATE} parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(%(n)d)
  ROOT c = pred[] compare(i, n), direction=LT }}
times%(n)d {{ s = {STATE} parameter(0)
  zero = s32[] constant(0)
  x = f32[3] get-tuple-element(s), index=1
  v = f32[3] get-tuple-element(s), index=2
  a = f32[3] get-tuple-element(s), index=3
  t = {STATE} tuple(zero, x, v, a)
  ROOT l = {STATE} while(t), condition=below%(n)d, body=body }}
"""
ENTRY = f"""
left {{ s0 = {STATE} parameter(0)
  %(left)s }}
right {{ s0 = {STATE} parameter(0)
  %(right)s }}
ENTRY e {{ x = f32[3] parameter(0)
  v = f32[3] parameter(1)
  zero = s32[] constant(0)
  s = {STATE} tuple(zero, x, v, x)
  id = u32[] %(id)s()
  one = u32[] constant(1)
  p = pred[] compare(id, one), direction=LT
  c = {STATE} conditional(p, s, s), true_computation=left, false_computation=right
  ROOT r = f32[3] get-tuple-element(c), index=3 }}
"""
OVER = {
    "replicas": "replica_groups={{0,1}}",
    "partitions": "channel_id=1, replica_groups={{0,1}}, use_global_device_ids=true",
}


def calls(*times):
    """The lines of a branch that runs the body so often, in one loop after the other; 0 stands for a call of it."""
    lines = [
        f"s{n + 1} = {STATE} call(s{n}), to_apply={f'times{count}' if count else 'body'}"
        for n, count in enumerate(times)
    ]
    return "\n  ".join([*lines[:-1], f"ROOT {lines[-1]}"])


def program(over, first, left, right):
    spread = {"replicas": 2, "partitions": 1} if over == "replicas" else {"replicas": 1, "partitions": 2}
    body = BODY % {"over": OVER[over], "first": first}
    number = "replica-id" if over == "replicas" else "partition-id"
    loops = "".join(TIMES % {"n": n} for n in sorted({*left, *right} - {0}))
    entry = ENTRY % {"left": calls(*left), "right": calls(*right), "id": number}
    return xla.HloModule.from_text(HEAD % spread + body + loops + entry)


def given():
    return [[np.float32([1, 2, 3]) + 10 * d, np.float32([4, -1, 2]) - d] for d in range(2)]


def expected(first, count):
    """What every device gets from so many iterations."""
    xs, vs = (list(column) for column in zip(*given(), strict=True))
    totals = [x.copy() for x in xs]
    for _ in range(count):
        met = sum(vs) if first == "add" else np.maximum(*vs)
        vs = [met, met]
        second = sum(x + met for x in xs)
        totals = [total + second for total in totals]
    return totals


BRANCHES = [((4,), (1, 3)), ((2,), (0, 0)), ((1, 1), (2,)), ((3, 1), (0, 3)), ((0, 2), (1, 0, 1))]


@pytest.mark.parametrize("backend", ["interpreter", "cpu"])
@pytest.mark.parametrize("over", OVER)
@pytest.mark.parametrize("first", ["add", "greatest"])
@pytest.mark.parametrize(("left", "right"), BRANCHES)
def test_devices_meet_in_copies_of_a_body(backend, over, first, left, right):
    count = sum(max(n, 1) for n in left)
    made = program(over, first, left, right)
    results = xla.compile(made, backend=backend).execute_replicated(given())
    for own, whole in zip(results, expected(first, count), strict=True):
        np.testing.assert_array_equal(own, whole)


@pytest.mark.parametrize("backend", ["interpreter", "cpu"])
def test_devices_that_run_a_body_differently_often_are_a_deadlock(backend):
    executable = xla.compile(program("replicas", "add", (4,), (1, 2)), backend=backend)
    with pytest.raises(xla.DeadlockError, match="replica 0 waits in all-reduce 'first'"):
        executable.execute_replicated(given())


APART = """
left { x = f32[3] parameter(0)
  ROOT of_left = f32[3] all-reduce(x), replica_groups={{0,1}}, to_apply=add }
right { x = f32[3] parameter(0)
  y = f32[3] add(x, x)
  ROOT of_right = f32[3] all-reduce(y), replica_groups={{0,1}}, to_apply=%s }
ENTRY e { x = f32[3] parameter(0)
  id = u32[] replica-id()
  one = u32[] constant(1)
  p = pred[] compare(id, one), direction=LT
  ROOT r = f32[3] conditional(p, x, x), true_computation=left, false_computation=right }
"""


@pytest.mark.parametrize("backend", ["interpreter", "cpu"])
def test_collectives_of_one_operation_without_a_channel_meet_as_in_xla(backend):
    module = xla.HloModule.from_text(HEAD % {"replicas": 2, "partitions": 1} + APART % "add")
    results = xla.compile(module, backend=backend).execute_replicated([[np.float32([d, 1, 2])] for d in range(2)])
    for result in results:
        np.testing.assert_array_equal(result, np.float32([2, 3, 6]))


@pytest.mark.parametrize("backend", ["interpreter", "cpu"])
def test_collectives_of_different_operations_are_a_deadlock_that_names_both(backend):
    module = xla.HloModule.from_text(HEAD % {"replicas": 2, "partitions": 1} + APART % "greatest")
    executable = xla.compile(module, backend=backend)
    with pytest.raises(xla.DeadlockError) as caught:
        executable.execute_replicated([[np.float32([d, 1, 2])] for d in range(2)])
    assert "replica 0 waits in all-reduce 'of_left'" in str(caught.value)
    assert "replica 1 waits in all-reduce 'of_right'" in str(caught.value)


OF_DYNAMIC_ARRAYS = """
%(name)s { s = (f32[6], s32[]) parameter(0)
  all = f32[6] get-tuple-element(s), index=0
  n = s32[] get-tuple-element(s), index=1
  x = f32[6] %(opcode)s(all)
  d = f32[<=6] set-dimension-size(x, n), dimensions={0}
  t = f32[<=6] all-reduce(d), channel_id=1, replica_groups={{0,1}}, use_global_device_ids=true, to_apply=add
  zero = f32[] constant(0)
  ROOT r = f32[] reduce(t, zero), dimensions={0}, to_apply=add }
"""
BY_PARTITION = """
ENTRY e { x = f32[6] parameter(0)
  n = s32[] parameter(1)
  s = (f32[6], s32[]) tuple(x, n)
  id = u32[] partition-id()
  one = u32[] constant(1)
  p = pred[] compare(id, one), direction=LT
  ROOT c = f32[] conditional(p, s, s), true_computation=left, false_computation=right }
"""


@pytest.mark.parametrize("backend", ["interpreter", "cpu"])
def test_what_compares_the_sizes_of_dynamic_arrays_has_a_site_in_all_copies(backend):
    branches = [OF_DYNAMIC_ARRAYS % {"name": n, "opcode": o} for n, o in (("left", "abs"), ("right", "negate"))]
    module = xla.HloModule.from_text("".join([HEAD % {"replicas": 1, "partitions": 2}, *branches, BY_PARTITION]))
    given = [[np.arange(6, dtype=np.float32) + 10 * d, np.int32(4)] for d in range(2)]
    assert xla.compile(module, backend=backend).execute_replicated(given) == [-40, -40]
