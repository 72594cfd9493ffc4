"""Collectives of what a loop does not change, once before it: the same bits, and only where devices arrive alike."""

import numpy as np
import pytest

import xlakit as xla
from xlakit.options import compiling
from xlakit.passes.pipeline import run_pipeline

LOOP = """
HloModule m, num_partitions=2
add {{ a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b) }}
body {{ s = (s32[], f32[{n}], f32[2]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[{n}] get-tuple-element(s), index=1
  w = f32[2] get-tuple-element(s), index=2
  {collective}
  y = f32[{n}] add(x, c)
  one = s32[] constant(1)
  next = s32[] add(i, one)
  ROOT t = (s32[], f32[{n}], f32[2]) tuple(next, y, w) }}
more {{ s = (s32[], f32[{n}], f32[2]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  count = s32[] constant({count})
  ROOT p = pred[] compare(i, count), direction=LT }}
ENTRY e {{ x = f32[{n}] parameter(0)
  w = f32[2] parameter(1)
  zero = s32[] constant(0)
  s = (s32[], f32[{n}], f32[2]) tuple(zero, x, w)
  loop = (s32[], f32[{n}], f32[2]) while(s), condition=more, body=body
  ROOT r = f32[{n}] get-tuple-element(loop), index=1 }}
"""
OVER = "channel_id=1, replica_groups={{0,1}}, use_global_device_ids=true"
COLLECTIVES = {
    "all-gather": (4, f"c = f32[4] all-gather(w), {OVER}, dimensions={{0}}"),
    "all-reduce": (2, f"c = f32[2] all-reduce(w), {OVER}, to_apply=add"),
    "reduce-scatter": (1, f"c = f32[1] reduce-scatter(w), {OVER}, dimensions={{0}}, to_apply=add"),
    "all-to-all": (2, "c = f32[2] all-to-all(w), channel_id=1, replica_groups={{0,1}}, dimensions={0}"),
    "collective-permute": (2, "c = f32[2] collective-permute(w), channel_id=1, source_target_pairs={{0,1},{1,0}}"),
}


def module(kind, count=3):
    n, collective = COLLECTIVES[kind]
    return xla.HloModule.from_text(LOOP.format(n=n, collective=collective, count=count))


def in_loops(made, kind):
    return sum(i.opcode == kind for c in made.computations if c is not made.entry for i in c.instructions)


@pytest.mark.parametrize("kind", COLLECTIVES)
def test_a_collective_of_what_stays_is_done_once(kind):
    before = module(kind)
    after = run_pipeline(before, ["while-invariants"])
    assert (in_loops(before, kind), in_loops(after, kind)) == (1, 0)
    rng = np.random.default_rng(3)
    given = [[rng.normal(size=p.shape.dimensions).astype(np.float32) for p in before.entry.parameters] for _ in "ab"]
    compiled, expected = (xla.compile(before, backend=b).execute_replicated(given) for b in ("cpu", "interpreter"))
    np.testing.assert_array_equal(np.asarray(compiled), np.asarray(expected))


@pytest.mark.parametrize("count", [0, 1])
def test_a_loop_that_does_not_repeat_it_keeps_it(count):
    assert in_loops(run_pipeline(module("all-reduce", count), ["while-invariants"]), "all-reduce") == 1


def test_what_is_gathered_takes_no_more_memory_than_the_knob_says():
    with compiling(knobs={"loop_invariants.gathered": 15}):
        assert in_loops(run_pipeline(module("all-gather"), ["while-invariants"]), "all-gather") == 1
        # Its result is as large as its operand.
        assert in_loops(run_pipeline(module("all-reduce"), ["while-invariants"]), "all-reduce") == 0


def test_a_channel_that_branches_share_stays_in_the_loop():
    text = LOOP.format(n=2, collective=COLLECTIVES["all-reduce"][1], count=3)
    branch = f"{{ x = f32[2] parameter(0)\n  ROOT c = f32[2] all-reduce(x), {OVER}, to_apply=add }}\n"
    chosen = "ROOT c = f32[2] conditional(p, r, r), true_computation=one, false_computation=two }"
    text = text.replace("ENTRY", f"one {branch}two {branch}ENTRY")
    head, _, last = text.rstrip().removesuffix("}").rpartition("ROOT r = ")
    made = xla.HloModule.from_text(f"{head}p = pred[] parameter(2)\n  r = {last}\n  {chosen}")
    after = run_pipeline(made, ["while-invariants"])
    assert [i.opcode for c in after.computations if c.name == "body" for i in c.instructions].count("all-reduce") == 1


def test_a_body_of_two_loops_keeps_its_collectives():
    # The first device runs two iterations twice, the second one four.
    text = LOOP.format(n=2, collective=COLLECTIVES["all-reduce"][1], count=2)
    head, _, entry = text.partition("ENTRY e {{ x = f32[2] parameter(0)".replace("{{", "{"))
    four = "four" + head[head.index("more {") + 4 :].replace("constant(2)", "constant(4)")
    once = entry.replace("w = f32[2] parameter(1)", "w = f32[2] get-tuple-element(q), index=1")
    start = "{ q = (f32[2], f32[2]) parameter(0)\n  x = f32[2] get-tuple-element(q), index=0"
    twice = (
        once.replace("ROOT r", "first").rstrip().removesuffix("}")
        + """
  again = (s32[], f32[2], f32[2]) tuple(zero, first, w)
  more_of_it = (s32[], f32[2], f32[2]) while(again), condition=more, body=body
  ROOT r = f32[2] get-tuple-element(more_of_it), index=1 }
"""
    )
    main = """ENTRY e { x = f32[2] parameter(0)
  w = f32[2] parameter(1)
  id = u32[] partition-id()
  one = u32[] constant(1)
  p = pred[] compare(id, one), direction=LT
  q = (f32[2], f32[2]) tuple(x, w)
  ROOT r = f32[2] conditional(p, q, q), true_computation=left, false_computation=right }
"""
    right = once.replace("condition=more", "condition=four")
    module = xla.HloModule.from_text(f"{head}{four}left {start}{twice}right {start}{right}{main}")
    given = [[np.full(2, d + k, np.float32) for k in range(2)] for d in range(2)]
    compiled, expected = (xla.compile(module, backend=b).execute_replicated(given) for b in ("cpu", "interpreter"))
    np.testing.assert_array_equal(np.asarray(compiled), np.asarray(expected))
