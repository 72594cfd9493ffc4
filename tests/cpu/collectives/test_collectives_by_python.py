"""Collectives that machine code leaves to Python, beside others: the results are the interpreter's."""

import textwrap

import numpy as np
import pytest

import xlakit as xla

HEAD = """HloModule m
add {
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT r = f32[] add(x, y)
}
most {
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT r = f32[] maximum(x, y)
}
wide {
  x = f64[] parameter(0)
  y = f64[] parameter(1)
  s = f64[] add(x, y)
  ROOT r = f32[] convert(s)
}
more {
  s = (s32[], s32[], f32[4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] get-tuple-element(s), index=1
  ROOT r = pred[] compare(i, n), direction=LT
}
meet {
  s = (s32[], s32[], f32[4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] get-tuple-element(s), index=1
  v = f32[4] get-tuple-element(s), index=2
  w = f32[4] negate(v)
  a = f32[4] all-reduce(v), channel_id=1, replica_groups={{0,1},{2,3}}, use_global_device_ids=true, to_apply=most
  b = f32[4] all-reduce(w), channel_id=1, replica_groups={{0,1},{2,3}}, use_global_device_ids=true, to_apply=most
  c = f32[4] subtract(a, b)
  d = f32[4] add(c, v)
  one = s32[] constant(1)
  j = s32[] add(i, one)
  ROOT r = (s32[], s32[], f32[4]) tuple(j, n, d)
}
"""

# What each of the devices does with p, and which of it Python does.
BODIES = {
    "a root that the program computes": (
        """
        id = u32[] replica-id()
        two = u32[] constant(2)
        own = u32[] subtract(two, id)
        at = s32[] convert(own)
        root = s32[1] broadcast(at), dimensions={}
        b = f32[4] collective-broadcast(p, root), has_dynamic_root=true
        c = f32[4] collective-reduce(p, root), has_dynamic_root=true, to_apply=add
        ROOT r = f32[4] subtract(b, c)
        """,
        ["collective-broadcast", "collective-reduce"],
    ),
    "slices sent in place": (
        """
        one = s32[] constant(1)
        two = s32[] constant(2)
        n = f32[4] negate(p)
        a = (s32[]) tuple(one)
        b = (s32[]) tuple(two)
        ROOT r = f32[4] collective-permute(p, n, a, b), source_target_pairs={{0,1},{1,2},{2,0}}, slice_sizes={{2}}
        """,
        ["collective-permute"],
    ),
    "slices sent in place, asynchronously": (
        """
        one = s32[] constant(1)
        n = f32[4] negate(p)
        a = (s32[]) tuple(one)
        s = (f32[4], f32[4], u32[], u32[]) collective-permute-start(p, n, a, a), source_target_pairs={{3,0}}, \
slice_sizes={{2}}
        between = f32[4] all-reduce(p), to_apply=add
        d = f32[4] collective-permute-done(s)
        ROOT r = f32[4] add(d, between)
        """,
        ["collective-permute-start"],
    ),
    "groups that differ on one channel": (
        """
        a = f32[4] all-reduce(p), channel_id=1, replica_groups={{0,1},{2,3}}, use_global_device_ids=true, to_apply=add
        ROOT r = f32[4] all-reduce(a), channel_id=1, replica_groups={{0,2},{1,3}}, use_global_device_ids=true, \
to_apply=add
        """,
        [],
    ),
    "loops of as many iterations as the group has, on one channel": (
        """
        id = u32[] replica-id()
        two = u32[] constant(2)
        group = u32[] divide(id, two)
        least = u32[] multiply(group, two)
        none = s32[] constant(0)
        n = s32[] convert(least)
        start = (s32[], s32[], f32[4]) tuple(none, n, p)
        loop = (s32[], s32[], f32[4]) while(start), condition=more, body=meet
        v = f32[4] get-tuple-element(loop), index=2
        ROOT r = f32[4] all-reduce(v), channel_id=1, replica_groups={{0,2},{1,3}}, use_global_device_ids=true, \
to_apply=most
        """,
        [],
    ),
    "sizes, computations and kinds that differ on one channel": (
        """
        a = f32[4] all-reduce(p), channel_id=1, replica_groups={{0,1,2,3}}, use_global_device_ids=true, to_apply=add
        b = f32[4] all-reduce(a), channel_id=1, replica_groups={{0,1,2,3}}, use_global_device_ids=true, to_apply=most
        c = f32[2] slice(b), slice={[0:2]}
        d = f32[2] all-reduce(c), channel_id=1, replica_groups={{0,1},{2,3}}, use_global_device_ids=true, to_apply=add
        ROOT e = f32[4] all-gather(d), channel_id=1, replica_groups={{0,1},{2,3}}, use_global_device_ids=true, \
dimensions={0}
        """,
        [],
    ),
    "constants that differ on one channel": (
        """
        x = f32[] constant(2)
        y = f32[] constant(3)
        a = f32[] all-reduce(x), channel_id=1, replica_groups={{0,1,2,3}}, use_global_device_ids=true, to_apply=add
        b = f32[] all-reduce(y), channel_id=1, replica_groups={{0,1,2,3}}, use_global_device_ids=true, to_apply=add, \
control-predecessors={a}
        c = f32[] multiply(a, b)
        d = f32[4] broadcast(c), dimensions={}
        ROOT r = f32[4] add(p, d)
        """,
        [],
    ),
    "a computation of another type": ("ROOT r = f32[4] all-reduce(p), to_apply=wide", ["all-reduce"]),
    "a device in no group": ("ROOT r = f32[4] collective-broadcast(p), replica_groups={{2,0}}", []),
    "groups of two sizes": ("ROOT r = f32[4] all-reduce(p), replica_groups={{0},{3,1,2}}, to_apply=add", []),
}


@pytest.mark.parametrize("name", BODIES)
def test_results_are_those_of_the_interpreter(name):
    body, by_python = BODIES[name]
    lines = textwrap.indent(textwrap.dedent(body).strip(), "  ")
    module = xla.HloModule.from_text(f"{HEAD}ENTRY e {{\n  p = f32[4] parameter(0)\n{lines}\n}}\n")
    compiled = xla.compile(module, backend="cpu", num_replicas=4, cache=False)
    assert [i.opcode for i in compiled.host_instructions if i.opcode != "collective-permute-done"] == by_python
    arguments = [[np.arange(4, dtype=np.float32) + 10 * device] for device in range(4)]
    expected = xla.compile(module, backend="interpreter", num_replicas=4).execute_replicated(arguments)
    for _ in range(3):
        np.testing.assert_array_equal(compiled.execute_replicated(arguments), expected)


REFUSED = {
    "list all ids": "ROOT r = f32[4] all-reduce(p), replica_groups={{0,1}}, to_apply=add",
    "does not divide by the group's 4 devices": "q = f32[3] slice(p), slice={[0:3]}\n"
    "a = f32[3] all-to-all(q), dimensions={0}\nROOT r = f32[4] pad(a, z), padding=0_1",
    "4 devices gathered": "ROOT r = f32[8] all-gather(p), dimensions={0}",
    "do not divide between the group's 4 devices": "t = s32[3] constant({0, 1, 2})\n"
    "ROOT r = f32[4] ragged-all-to-all(p, p, t, t, t, t)",
}


@pytest.mark.parametrize("backend", ["interpreter", "cpu"])
@pytest.mark.parametrize("says", REFUSED)
def test_what_cannot_be_is_told_when_it_runs(says, backend):
    lines = textwrap.indent("z = f32[] constant(0)\n" + REFUSED[says], "  ")
    module = xla.HloModule.from_text(f"{HEAD}ENTRY e {{\n  p = f32[4] parameter(0)\n{lines}\n}}\n")
    executable = xla.compile(module, backend=backend, num_replicas=4, cache=False)
    with pytest.raises(xla.ExecutionError, match=says):
        executable.execute_replicated([[np.zeros(4, np.float32)]] * 4)
