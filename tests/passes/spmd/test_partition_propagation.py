"""What is combined with split values is split, too, in any order of a program; what is whole is not gathered."""

import numpy as np
import pytest
from split_programs import BOTH, COLUMNS, ROWS, WHOLE, check, collectives, module_of, run_split

import xlakit as xla
from xlakit.passes.spmd import split_over

# A moment of gradients that are sums over the rows of a split batch, and the parameter that it updates.
STEP = """
  p = f32[8,8] parameter(0), sharding={p}
  m = f32[8,8] parameter(1), sharding={m}
  x = f32[4,8] parameter(2), sharding={{devices=[2,1,2]<=[4] last_tile_dim_replicate}}
  g = f32[8,8] dot(x, x), lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}}
  n = f32[8,8] add(m, g)
  q = f32[8,8] subtract(p, n)
  ROOT r = (f32[8,8], f32[8,8]) tuple(q, n)
"""
BY_TWO = "{devices=[2,1,2]<=[2,2]T(1,0) last_tile_dim_replicate}"


@pytest.mark.parametrize("moment", ["{replicated}", BY_TWO, "{devices=[1,2,2]<=[2,2]T(1,0) last_tile_dim_replicate}"])
def test_a_moment_is_split_as_the_parameter_that_it_updates(moment):
    split = split_over(module_of(STEP.format(p=BY_TWO, m=moment)), 4)
    assert [s.dimensions for s in split.entry.root.shape.tuple_shapes] == [(4, 8), (4, 8)]
    assert "all-gather" not in collectives(split)
    check(STEP.format(p=BY_TWO, m=moment), collectives(split))


def test_a_moment_in_a_loop():
    body = """body {
      s = (s32[], f32[8,8], f32[8,8]) parameter(0)
      i = s32[] get-tuple-element(s), index=0
      p = f32[8,8] get-tuple-element(s), index=1
      m = f32[8,8] get-tuple-element(s), index=2
      one = s32[] constant(1)
      j = s32[] add(i, one)
      n = f32[8,8] add(m, m)
      q = f32[8,8] subtract(p, n)
      ROOT r = (s32[], f32[8,8], f32[8,8]) tuple(j, q, n)
    }"""
    condition = """condition {
      s = (s32[], f32[8,8], f32[8,8]) parameter(0)
      i = s32[] get-tuple-element(s), index=0
      three = s32[] constant(3)
      ROOT r = pred[] compare(i, three), direction=LT
    }"""
    main = f"""
      p = f32[8,8] parameter(0), sharding={ROWS}
      m = f32[8,8] parameter(1)
      zero = s32[] constant(0)
      s = (s32[], f32[8,8], f32[8,8]) tuple(zero, p, m)
      ROOT w = (s32[], f32[8,8], f32[8,8]) while(s), condition=condition, body=body
    """
    split = check(main, {}, body, condition)
    assert [s.dimensions for s in split.entry.root.shape.tuple_shapes] == [(), (2, 8), (2, 8)]


def test_a_computation_that_is_called_for_two_parameters_is_split_in_two_ways():
    keep = """keep {
      ok = pred[] parameter(0)
      a = f32[8,8] parameter(1)
      b = f32[8,8] parameter(2)
      all = pred[8,8] broadcast(ok), dimensions={}
      ROOT r = f32[8,8] select(all, a, b)
    }"""
    main = f"""
      p = f32[8,8] parameter(0), sharding={ROWS}
      q = f32[8,8] parameter(1), sharding={COLUMNS}
      m = f32[8,8] parameter(2)
      n = f32[8,8] parameter(3)
      ok = pred[] parameter(4)
      a = f32[8,8] call(ok, m, n), to_apply=keep
      b = f32[8,8] call(ok, n, m), to_apply=keep
      c = f32[8,8] subtract(p, a)
      d = f32[8,8] subtract(q, b)
      ROOT r = (f32[8,8], f32[8,8], f32[8,8], f32[8,8]) tuple(a, b, c, d)
    """
    split = check(main, {}, keep)
    assert [s.dimensions for s in split.entry.root.shape.tuple_shapes] == [(2, 8), (8, 2), (2, 8), (8, 2)]


def test_values_that_begin_with_the_same_zeros_have_nothing_else_in_common():
    main = f"""
      p = f32[8,8] parameter(0), sharding={ROWS}
      x = f32[8,8] parameter(1)
      zero = f32[] constant(0)
      zeros = f32[8,8] broadcast(zero), dimensions={{}}
      a = f32[8,8] add(p, zeros)
      b = f32[8,8] add(x, zeros)
      ROOT r = (f32[8,8], f32[8,8]) tuple(a, b)
    """
    split = check(main, {})
    assert [s.dimensions for s in split.entry.root.shape.tuple_shapes] == [(2, 8), (8, 8)]


def test_what_is_whole_is_not_gathered_for_what_wants_it_whole():
    main = f"""
      p = f32[8,8] parameter(0), sharding={BOTH}
      x = f32[8,8] parameter(1)
      y = f32[8,8] add(x, x)
      c = f32[8,8] subtract(p, y)
      s = f32[8,8] dot(y, y), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
      ROOT r = (f32[8,8], f32[8,8]) tuple(c, s)
    """
    split = check(main.replace("tuple(c, s)", f"tuple(c, s), sharding={{{BOTH}, {WHOLE}}}"), {})
    assert [s.dimensions for s in split.entry.root.shape.tuple_shapes] == [(4, 4), (8, 8)]
    # Of a result that may be split, each member computes its part.
    assert [s.dimensions for s in check(main, {}).entry.root.shape.tuple_shapes] == [(4, 4), (4, 4)]


def test_a_result_that_is_said_to_be_whole_is_whole():
    main = f"""
      p = f32[8,8] parameter(0), sharding={ROWS}
      m = f32[8,8] parameter(1)
      n = f32[8,8] add(m, m)
      q = f32[8,8] subtract(p, n)
      ROOT r = (f32[8,8], f32[8,8]) tuple(q, n), sharding={{{ROWS}, {{replicated}}}}
    """
    module = module_of(main)
    values = [np.full((8, 8), n, np.float32) for n in (5, 1)]
    (q, n), split = run_split(module, *values)
    assert [s.dimensions for s in split.entry.root.shape.tuple_shapes] == [(2, 8), (8, 8)]
    assert collectives(split) == {}
    np.testing.assert_array_equal([q, n], [values[0] - 2, values[1] * 2])


def in_group(name, operand, number=0):
    return (
        f'{name} = () custom-call({operand}), custom_call_target="xla.sdy.ShardingGroup", '
        f'custom_call_has_side_effect=true, frontend_attributes={{xla.sdy.sharding_group_id="{number} : i64"}}'
    )


@pytest.mark.parametrize("backend", ["interpreter", "cpu"])
def test_a_sharding_group_is_split_alike(backend):
    # An argument of which nothing is said, a constant, and a group of its own that nothing splits.
    main = f"""
      p = f32[8,8] parameter(0), sharding={ROWS}
      x = f32[8,8] parameter(1)
      y = f32[8,8] parameter(2)
      i = f32[8,8] iota(), iota_dimension=0
      {in_group("g0", "p")}
      {in_group("g1", "x")}
      {in_group("g2", "i")}
      {in_group("g3", "y", 1)}
      ROOT r = (f32[8,8], f32[8,8], f32[8,8], f32[8,8]) tuple(p, x, i, y)
    """
    values = [np.arange(64, dtype=np.float32).reshape(8, 8) + n for n in range(3)]
    module = module_of(main)
    results, split = run_split(module, *values, backend=backend)
    shapes = [s.dimensions for s in split.entry.root.shape.tuple_shapes]
    assert shapes == [(2, 8), (2, 8), (2, 8), (8, 8)]
    assert collectives(split) == {}
    whole = xla.compile(module.replace(num_partitions=1), backend=backend)(*values)
    rows = np.broadcast_to(np.arange(8, dtype=np.float32)[:, None], (8, 8))
    for found in (results, whole):
        np.testing.assert_array_equal(found, [values[0], values[1], rows, values[2]])


def test_an_argument_that_is_said_to_be_whole_stays_whole_in_a_group():
    main = f"""
      p = f32[8,8] parameter(0), sharding={ROWS}
      x = f32[8,8] parameter(1), sharding={{replicated}}
      {in_group("g0", "p")}
      {in_group("g1", "x")}
      ROOT r = (f32[8,8], f32[8,8]) tuple(p, x)
    """
    split = check(main, {})
    assert [s.dimensions for s in split.entry.root.shape.tuple_shapes] == [(2, 8), (8, 8)]


def test_a_step_of_moments_that_are_split_otherwise_is_moved_once():
    """Not each of the moments, though hints ask for the weights' rows from the last operation on each."""
    chains = "".join(
        f"{m}1 = f32[8,8] negate({m}) {m}2 = f32[8,8] abs({m}1) {m}3 = f32[8,8] negate({m}2) {m}4 = f32[8,8] abs({m}3) "
        for m in "mv"
    )
    check(
        f"""w = f32[8,8] parameter(0), sharding={ROWS} m = f32[8,8] parameter(1), sharding={COLUMNS}
        v = f32[8,8] parameter(2), sharding={COLUMNS} {chains}
        s = f32[8,8] multiply(m4, v4) ROOT r = f32[8,8] add(w, s), sharding={ROWS}""",
        {"all-to-all": 1},
    )


def test_an_array_that_several_take_in_another_split_is_moved_before_them():
    check(
        f"""w = f32[8,8] parameter(0), sharding={ROWS} m = f32[8,8] parameter(1), sharding={COLUMNS}
        a = f32[8,8] negate(m) b = f32[8,8] abs(m) c = f32[8,8] add(w, a) d = f32[8,8] multiply(w, b)
        ROOT r = (f32[8,8], f32[8,8]) tuple(c, d), sharding={{{ROWS}, {ROWS}}}""",
        {"all-to-all": 1},
    )
