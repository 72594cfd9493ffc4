"""Programs that rules of the partitioner turn away, which are then computed in another way: as on one device."""

import numpy as np
import pytest
from split_programs import ADD, COLUMNS, ROWS, WHOLE, check, run_split, with_mesh

import xlakit as xla
from xlakit.passes.spmd import split_over

HALF = "{devices=[2,1,2]<=[4] last_tile_dim_replicate}"
HALF_COLUMNS = "{devices=[1,2,2]<=[4] last_tile_dim_replicate}"
MAXIMUM = "max { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] maximum(a, b) }"
PAIR = """pair { a = f32[] parameter(0) b = f32[] parameter(1) c = f32[] parameter(2) d = f32[] parameter(3)
  s = f32[] add(a, c) m = f32[] maximum(b, d) ROOT r = (f32[], f32[]) tuple(s, m) }"""

PROGRAMS = {
    "one axis of two dimensions": f"""x = f32[4,4] parameter(0), sharding={HALF}
        y = f32[4,4] parameter(1), sharding={HALF_COLUMNS} ROOT r = f32[4,4] add(x, y)""",
    "a transposed sum": f"""x = f32[4,4] parameter(0), sharding={HALF} t = f32[4,4] transpose(x), dimensions={{1,0}}
        ROOT r = f32[4,4] add(x, t)""",
    "a window of pairs": f"""x = f32[8,4] parameter(0), sharding={ROWS} y = f32[8,4] parameter(1), sharding={ROWS}
        z = f32[] constant(0) w = (f32[8,4], f32[8,4]) reduce-window(x, y, z, z), window={{size=3x1 pad=1_1x0_0}},
        to_apply=pair a = f32[8,4] get-tuple-element(w), index=0 b = f32[8,4] get-tuple-element(w), index=1
        ROOT r = f32[8,4] subtract(a, b)""",
    "a sum of a sum whose rows move": f"""x = f32[4,8] parameter(0), sharding={COLUMNS} z = f32[] constant(0)
        s = f32[4] reduce(x, z), dimensions={{1}}, to_apply=add v = f32[4] reverse(s), dimensions={{0}}
        n = f32[4] negate(v) ROOT r = f32[4] add(n, n)""",
    "a sum of partial sums": f"""x = f32[4,8] parameter(0), sharding={COLUMNS} z = f32[] constant(0)
        s = f32[4] reduce(x, z), dimensions={{1}}, to_apply=add
        ROOT r = f32[] reduce(s, z), dimensions={{0}}, to_apply=add""",
    "a maximum of partial sums": f"""x = f32[4,8] parameter(0), sharding={COLUMNS} z = f32[] constant(0)
        s = f32[4] reduce(x, z), dimensions={{1}}, to_apply=add
        ROOT r = f32[] reduce(s, z), dimensions={{0}}, to_apply=max""",
    "sums that begin at a number": f"""x = f32[4,8] parameter(0), sharding={COLUMNS} z = f32[] constant(0)
        o = f32[] constant(3) s = f32[4] reduce(x, z), dimensions={{1}}, to_apply=add
        ROOT r = f32[] reduce(s, o), dimensions={{0}}, to_apply=add""",
    "rows of a part that are not all there": f"""x = f32[8,4] parameter(0), sharding={ROWS} n = s32[] constant(5)
        d = f32[<=8,4] set-dimension-size(x, n), dimensions={{0}} z = f32[] constant(0)
        ROOT r = f32[4] reduce(d, z), dimensions={{0}}, to_apply=add""",
    "a gradient of a kernel, split in one of two dimensions": """
        x = f32[1,8,8,1] parameter(0), sharding={devices=[1,4,1,1]<=[4]}
        y = f32[1,8,8,1] parameter(1), sharding={devices=[1,4,1,1]<=[4]}
        ROOT r = f32[1,3,3,1] convolution(x, y), window={size=8x8 pad=1_1x1_1}, dim_labels=f01b_i01o->f01b""",
    "a gradient of a kernel of an image that is whole": f"""
        x = f32[1,8,8,1] parameter(0), sharding={WHOLE}
        y = f32[1,8,8,1] parameter(1), sharding={{devices=[1,2,2,1]<=[4]}}
        ROOT r = f32[1,3,3,1] convolution(x, y), window={{size=8x8 pad=1_1x1_1}}, dim_labels=f01b_i01o->f01b""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name):
    check(PROGRAMS[name], None, MAXIMUM, PAIR)


def test_halves_of_an_axis_are_no_result():
    # Quarters do not divide six rows, and halves are not along a whole axis of the mesh.
    text = f"""HloModule m, num_partitions=4, frontend_attributes={{xla.sdy.meshes={{m = #sdy.mesh<["a"=4]>}}}}
    ENTRY e {{ x = f32[6,4] parameter(0), sharding={ROWS} ROOT r = f32[6,4] negate(x) }}"""
    x = np.arange(24, dtype=np.float32).reshape(6, 4)
    found, _ = run_split(xla.HloModule.from_text(text), x)
    np.testing.assert_array_equal(found, -x)


def test_replicas_of_partitions_meet():
    text = f"""HloModule m, replica_count=2, num_partitions=2
    {ADD}
    ENTRY e {{ x = f32[4,4] parameter(0), sharding={{devices=[2,1]<=[2]}}
      s = f32[4,4] all-reduce(x), replica_groups={{{{0,1}}}}, to_apply=add
      g = f32[4,8] all-gather(x), replica_groups={{{{0,1}}}}, dimensions={{1}}
      c = f32[4,4] slice(g), slice={{[0:4], [4:8]}}
      ROOT r = f32[4,4] add(s, c), sharding={{devices=[2,1]<=[2]}} }}"""
    module = xla.HloModule.from_text(text)
    split = split_over(module, 2)
    split.verify()
    given = [np.arange(16, dtype=np.float32).reshape(4, 4) * (1 + r) for r in range(2)]
    results = xla.compile(split, backend="interpreter", num_replicas=2).execute_replicated(
        [[x[2 * p :][:2]] for x in given for p in range(2)]
    )
    for replica in range(2):
        found = np.concatenate(results[2 * replica : 2 * replica + 2])
        np.testing.assert_array_equal(found, given[0] + 2 * given[1])


def test_a_maximal_mesh():
    said = "#sdy.sharding_per_value<[<mesh<[], device_ids=[1]>, [{}]>]>"
    text = f"""ENTRY e {{ x = f32[8] parameter(0) c = f32[8] custom-call(x), custom_call_target="Sharding",
        frontend_attributes={{xla.sdy.sharding="{said}"}} ROOT r = f32[8] negate(c) }}"""
    split = split_over(with_mesh(text), 4)
    split.verify()
    a = np.arange(8, dtype=np.float32)
    for found in xla.compile(split, backend="interpreter").execute_replicated([[a]] * 4):
        np.testing.assert_array_equal(found, -a)
