"""Collectives that become one: the same bits, in loops too, and never across what must stay between them."""

import numpy as np
import pytest

import xlakit as xla
from xlakit.options import compiling
from xlakit.passes.core.framework import PassContext
from xlakit.passes.pipeline import run_pipeline

ADD = """
add { x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT r = f32[] add(x, y) }
"""
LOOP = f"""
HloModule m, replica_count=4
{ADD}
body {{ p = (s32[], f32[3], f32[2,4]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  v = f32[3] get-tuple-element(p), index=1
  w = f32[2,4] get-tuple-element(p), index=2
  one = s32[] constant(1)
  j = s32[] add(i, one)
  a = f32[3] all-reduce(v), replica_groups={{{{0,2}},{{3,1}}}}, to_apply=add
  b = f32[2,4] all-reduce(w), replica_groups={{{{0,2}},{{3,1}}}}, to_apply=add
  c = f32[2,4] tanh(b)
  ROOT t = (s32[], f32[3], f32[2,4]) tuple(j, a, c) }}
condition {{ p = (s32[], f32[3], f32[2,4]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(5)
  ROOT q = pred[] compare(i, n), direction=LT }}
ENTRY e {{
  x = f32[3] parameter(0)
  y = f32[2,4] parameter(1)
  zero = s32[] constant(0)
  t = (s32[], f32[3], f32[2,4]) tuple(zero, x, y)
  l = (s32[], f32[3], f32[2,4]) while(t), condition=condition, body=body
  v = f32[3] get-tuple-element(l), index=1
  w = f32[2,4] get-tuple-element(l), index=2
  ROOT r = (f32[3], f32[2,4]) tuple(v, w) }}
"""


def combined(text):
    return run_pipeline(xla.HloModule.from_text(text), ["combine-collectives"], context=PassContext(check=True))


def collectives(module, opcode="all-reduce"):
    return [i for c in module.computations for i in c.instructions if i.opcode == opcode]


def straight(lines):
    return f"HloModule m, replica_count=2\n{ADD}ENTRY e {{\n{lines}\n}}\n"


def test_collectives_in_a_loop_give_the_same_bits():
    module = xla.HloModule.from_text(LOOP)
    (one,) = collectives(combined(LOOP))
    assert len(one.operands) == 2
    rng = np.random.default_rng(3)
    given = [
        [rng.standard_normal(3).astype(np.float32), rng.standard_normal((2, 4)).astype(np.float32)] for _ in "1234"
    ]
    expected = xla.compile(module, backend="interpreter").execute_replicated(given)
    executable = xla.compile(module, backend="cpu", cache=False)
    assert len(collectives(executable.optimized_module())) == 1
    for own, right in zip(executable.execute_replicated(given), expected, strict=True):
        for a, b in zip(own, right, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-6)
    plain = xla.compile(combined(LOOP), backend="interpreter").execute_replicated(given)
    for own, right in zip(plain, expected, strict=True):
        for a, b in zip(own, right, strict=True):
            np.testing.assert_array_equal(a, b)


def test_arrays_of_several_types_are_gathered_at_once():
    text = straight(
        """
        x = f32[3] parameter(0)
        y = s8[2,1] parameter(1)
        z = bf16[1,5] parameter(2)
        a = f32[6] all-gather(x), replica_groups={}, dimensions={0}
        b = s8[4,1] all-gather(y), replica_groups={}, dimensions={0}
        c = bf16[2,5] all-gather(z), replica_groups={}, dimensions={0}
        ROOT r = (f32[6], s8[4,1], bf16[2,5]) tuple(a, b, c)
        """
    )
    assert [len(i.operands) for i in collectives(combined(text), "all-gather")] == [3]
    module = xla.HloModule.from_text(text)
    given = [
        [v.astype(t) for v, t in zip(row, (np.float32, np.int8, "bfloat16"), strict=True)]
        for row in ([np.full(s, n) for s in ((3,), (2, 1), (1, 5))] for n in (3, -4))
    ]
    expected = xla.compile(module, backend="interpreter").execute_replicated(given)
    for own, right in zip(
        xla.compile(module, backend="cpu", cache=False).execute_replicated(given), expected, strict=True
    ):
        for a, b in zip(own, right, strict=True):
            np.testing.assert_array_equal(a, b)


def test_what_has_an_effect_stays_between_them():
    module = combined(
        straight(
            """
            x = f32[3] parameter(0)
            a = f32[3] all-reduce(x), replica_groups={}, to_apply=add
            k = token[] after-all()
            f = (f32[3], token[]) infeed(k)
            v = f32[3] get-tuple-element(f), index=0
            b = f32[3] all-reduce(v), replica_groups={}, to_apply=add
            c = f32[3] all-reduce(x), replica_groups={}, to_apply=add
            ROOT r = (f32[3], f32[3], f32[3]) tuple(a, b, c)
            """
        )
    )
    assert [len(i.operands) for i in collectives(module)] == [1, 2]


@pytest.mark.parametrize(("bytes", "counts"), [(0, [1, 1, 1]), (12, [1, 1, 1]), (24, [2, 1]), (1 << 20, [3])])
def test_only_so_much_becomes_one(bytes, counts):
    lines = [
        f"x{n} = f32[3] parameter({n})\n a{n} = f32[3] all-reduce(x{n}), replica_groups={{}}, to_apply=add"
        for n in range(3)
    ]
    text = straight("\n".join([*lines, "ROOT r = (f32[3], f32[3], f32[3]) tuple(a0, a1, a2)"]))
    with compiling(knobs={"combine_collectives.most_bytes": bytes}):
        assert [len(i.operands) for i in collectives(combined(text))] == counts


def test_control_dependencies_keep_them_apart():
    text = straight(
        """
        x = f32[3] parameter(0)
        a = f32[3] all-reduce(x), replica_groups={}, to_apply=add
        n = f32[3] negate(x), control-predecessors={a}
        b = f32[3] all-reduce(n), replica_groups={}, to_apply=add
        ROOT r = (f32[3], f32[3]) tuple(a, b)
        """
    )
    assert [len(i.operands) for i in collectives(combined(text))] == [1, 1]


ON_ONE_CHANNEL = """
      a = f32[3] all-reduce(x), channel_id=1, replica_groups={}, to_apply=add
      b = f32[2] all-reduce(y), channel_id=1, replica_groups={}, to_apply=add
"""


def test_those_on_one_channel_become_one():
    text = straight(
        f"""
        x = f32[3] parameter(0)
        y = f32[2] parameter(1)
        {ON_ONE_CHANNEL}
        ROOT r = (f32[3], f32[2]) tuple(a, b)
        """
    )
    assert [len(i.operands) for i in collectives(combined(text))] == [2]


def test_those_on_the_channel_of_a_branch_stay():
    # A device that takes the other branch meets there with those that go on.
    text = f"""
    HloModule m, replica_count=2
    {ADD}
    left {{ x = f32[3] parameter(0)
      ROOT a = f32[3] all-reduce(x), channel_id=1, replica_groups={{}}, to_apply=add }}
    right {{ x = f32[3] parameter(0)
      ROOT n = f32[3] negate(x) }}
    ENTRY e {{
      x = f32[3] parameter(0)
      y = f32[2] parameter(1)
      p = pred[] parameter(2)
      c = f32[3] conditional(p, x, x), true_computation=left, false_computation=right
      {ON_ONE_CHANNEL}
      ROOT r = (f32[3], f32[2], f32[3]) tuple(a, b, c) }}
    """
    assert [len(i.operands) for i in collectives(combined(text))] == [1, 1, 1]


def test_those_that_devices_meet_apart_keep_their_order():
    # Those of f32[3] are in a branch, too. Where those of f32[2] became one, the second of them came before the first.
    text = f"""
    HloModule m, replica_count=2
    {ADD}
    left {{ x = f32[3] parameter(0)
      ROOT a = f32[3] all-reduce(x), replica_groups={{}}, to_apply=add }}
    right {{ x = f32[3] parameter(0)
      ROOT n = f32[3] negate(x) }}
    ENTRY e {{
      x = f32[3] parameter(0)
      y = f32[2] parameter(1)
      p = pred[] parameter(2)
      b = f32[2] all-reduce(y), replica_groups={{}}, to_apply=add
      first = f32[3] all-reduce(x), replica_groups={{}}, to_apply=add
      z = f32[3] negate(x)
      second = f32[3] all-reduce(z), replica_groups={{}}, to_apply=add
      part = f32[2] slice(second), slice={{[0:2]}}
      c = f32[2] all-reduce(part), replica_groups={{}}, to_apply=add
      d = f32[3] conditional(p, x, x), true_computation=left, false_computation=right
      ROOT r = (f32[3], f32[2], f32[2], f32[3]) tuple(first, b, c, d) }}
    """
    names = [i.name for i in collectives(combined(text))]
    assert names == ["a", "b", "first", "second", "c"]


def test_arrays_that_are_sent_along_the_same_pairs_are_sent_at_once():
    pairs = "source_target_pairs={{0,2},{2,1},{1,3}}"
    text = f"""
    HloModule m, replica_count=4
    ENTRY e {{
      x = f32[3] parameter(0)
      y = s8[2,1] parameter(1)
      a = f32[3] collective-permute(x), {pairs}
      b = s8[2,1] collective-permute(y), {pairs}
      other = f32[3] collective-permute(x), source_target_pairs={{{{0,1}}}}
      z = f32[3] negate(a)
      c = f32[3] collective-permute(z), {pairs}
      i = s32[] constant(1)
      at = (s32[]) tuple(i)
      d = f32[3] collective-permute(x, other, at, at), {pairs}, slice_sizes={{{{2}}}}
      ROOT r = (f32[3], s8[2,1], f32[3], f32[3], f32[3]) tuple(a, b, other, c, d) }}
    """
    made = collectives(combined(text), "collective-permute")
    assert sorted(len(i.operands) for i in made) == [1, 1, 2, 4]
    module = xla.HloModule.from_text(text)
    given = [[np.float32([n, n + 0.5, -n]), np.int8([[n], [-n]])] for n in range(1, 5)]
    expected = xla.compile(module, backend="interpreter").execute_replicated(given)
    executable = xla.compile(module, backend="cpu", cache=False)
    assert len(collectives(executable.optimized_module(), "collective-permute")) == 4
    for run in (executable, xla.compile(combined(text), backend="interpreter")):
        for own, right in zip(run.execute_replicated(given), expected, strict=True):
            for a, b in zip(own, right, strict=True):
                np.testing.assert_array_equal(a, b)


COUNTED_DOWN = """
%(name)s_body { p = (s32[], f32[3], f32[3]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  v = f32[3] get-tuple-element(p), index=1
  w = f32[3] get-tuple-element(p), index=2
  k = s32[] constant(1)
  j = s32[] subtract(i, k)
  a = f32[3] all-reduce(v), channel_id=1, replica_groups={{0,1}}, use_global_device_ids=true, to_apply=add
  b = f32[3] %(other)s
  ROOT t = (s32[], f32[3], f32[3]) tuple(j, a, b) }
%(name)s_condition { p = (s32[], f32[3], f32[3]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(0)
  ROOT q = pred[] compare(i, n), direction=GT }"""
SECOND = "all-reduce(w), channel_id=1, replica_groups={{0,1}}, use_global_device_ids=true, to_apply=add"
TWO_LOOPS = f"""
HloModule m, num_partitions=2
{ADD}
{COUNTED_DOWN % {"name": "one", "other": "negate(w)"}}
{COUNTED_DOWN % {"name": "two", "other": SECOND}}
ENTRY e {{ n = s32[] parameter(0)
  m = s32[] parameter(1)
  x = f32[3] parameter(2)
  t = (s32[], f32[3], f32[3]) tuple(n, x, x)
  l = (s32[], f32[3], f32[3]) while(t), condition=one_condition, body=one_body
  y = f32[3] get-tuple-element(l), index=1
  u = (s32[], f32[3], f32[3]) tuple(m, y, x)
  w = (s32[], f32[3], f32[3]) while(u), condition=two_condition, body=two_body
  ROOT r = f32[3] get-tuple-element(w), index=1 }}
"""


def test_those_on_the_channel_of_loops_that_devices_run_differently_often_stay():
    # Four sums of the first loop and two of the second, and two and four: six on each device.
    x = np.arange(3, dtype=np.float32)
    arguments = [[np.int32(4), np.int32(1), x], [np.int32(2), np.int32(2), x + 1]]
    module = xla.HloModule.from_text(TWO_LOOPS)
    expected = xla.compile(module, backend="interpreter", num_partitions=2).execute_replicated(arguments)
    found = xla.compile(module, backend="cpu", num_partitions=2).execute_replicated(arguments)
    assert np.array_equal(found, expected)
    assert len(collectives(combined(TWO_LOOPS))) == 3


def test_those_of_one_loop_are_combined_however_often_it_runs():
    text = TWO_LOOPS.replace("body=one_body", "body=two_body").replace(
        "condition=one_condition", "condition=two_condition"
    )
    unused = text.index("one_body {"), text.index("two_body {")
    (one,) = collectives(combined(text[: unused[0]] + text[unused[1] :]))
    assert len(one.operands) == 2


@pytest.mark.parametrize("bytes", [8, 1 << 20])
def test_collectives_on_the_same_array_become_one(bytes):
    text = straight("""
  x = f32[4] parameter(0)
  y = f32[4] negate(x)
  a = f32[4] all-reduce(x), to_apply=add
  p = f32[4] collective-permute(x), source_target_pairs={{0,1}}
  b = f32[4] all-reduce(y), to_apply=add
  c = f32[4] all-reduce(x), to_apply=add
  q = f32[4] collective-permute(x), source_target_pairs={{0,1}}
  ROOT t = (f32[4], f32[4], f32[4], f32[4], f32[4]) tuple(a, b, c, p, q)""")
    with compiling(knobs={"combine_collectives.most_bytes": bytes}):
        made = combined(text)
    # Those that are larger than the limit go alone, once.
    assert [len(i.operands) for i in collectives(made)] == ([1, 1] if bytes == 8 else [2])
    (permute,) = collectives(made, "collective-permute")
    assert len(permute.operands) == 1
    rows = [[np.float32([1, 2, 3, 4]) * (n + 1)] for n in range(2)]
    found = xla.compile(made, num_replicas=2, backend="interpreter").execute_replicated(rows)
    kept = xla.compile(xla.HloModule.from_text(text), num_replicas=2, backend="interpreter").execute_replicated(rows)
    for own, wanted in zip(found, kept, strict=True):
        for a, b in zip(own, wanted, strict=True):
            np.testing.assert_array_equal(a, b)


def test_collectives_on_the_same_array_stay_on_their_sides_of_an_effect():
    made = combined(
        straight("""
  x = f32[4] parameter(0)
  a = f32[4] all-reduce(x), to_apply=add
  k = token[] after-all()
  o = token[] outfeed(a, k)
  c = f32[4] all-reduce(x), to_apply=add, control-predecessors={o}
  d = f32[4] all-reduce(x), to_apply=add
  ROOT t = (f32[4], f32[4], f32[4]) tuple(a, c, d)""")
    )
    assert len(collectives(made)) == 3


def test_what_is_computed_from_equal_collectives_is_computed_once():
    text = straight(
        """x = f32[4,8] parameter(0)
        y = f32[8,8] parameter(1)
        a = f32[8,8] all-gather(x), channel_id=1, replica_groups={{0,1}}, dimensions={0}, use_global_device_ids=true
        b = f32[8,8] all-gather(x), channel_id=2, replica_groups={{0,1}}, dimensions={0}, use_global_device_ids=true
        c = f32[8,8] dot(a, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
        d = f32[8,8] dot(b, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
        s = f32[8,8] all-reduce(c), replica_groups={{0,1}}, to_apply=add
        t = f32[8,8] all-reduce(d), replica_groups={{0,1}}, to_apply=add
        n = f32[8,8] negate(t)
        ROOT r = (f32[8,8], f32[8,8]) tuple(s, n)"""
    )
    module = combined(text)
    counts = [len(collectives(module, opcode)) for opcode in ("all-gather", "dot", "all-reduce")]
    assert counts == [1, 1, 1]
    (sum_,) = collectives(module)
    assert len(sum_.operands) == 1
    arguments = [[np.full((4, 8), 1.0 + d, np.float32), np.eye(8, dtype=np.float32)] for d in range(2)]
    for made in (xla.HloModule.from_text(text), module):
        for results in xla.compile(made, backend="interpreter", num_replicas=2).execute_replicated(arguments):
            np.testing.assert_array_equal(results[0], np.repeat([2.0, 4.0], 4)[:, None] * np.ones(8))
            np.testing.assert_array_equal(results[1], -np.asarray(results[0]))


def test_equal_collectives_stay_on_their_sides_of_an_effect():
    module = combined(
        straight(
            """x = f32[8] parameter(0)
        a = f32[8] all-reduce(x), replica_groups={{0,1}}, to_apply=add
        k = token[] after-all()
        o = token[] outfeed(a, k)
        b = f32[8] all-reduce(x), replica_groups={{0,1}}, to_apply=add
        ROOT r = f32[8] add(a, b)"""
        )
    )
    assert len(collectives(module)) == 2
