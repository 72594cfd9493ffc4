"""Processes that take different branches meet in copies of a collective; they are threads of this one."""

import numpy as np
import pytest
from launching import together

import xlakit as xla
from xlakit.execution.context import ExecutionContext

pytest.importorskip("zmq")

PROGRAM = """
HloModule m, replica_count=2
add { x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT r = f32[] add(x, y) }
body { s = (s32[], f32[64]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[64] get-tuple-element(s), index=1
  t = f32[64] all-reduce(x), to_apply=add
  p = f32[64] collective-permute(t), source_target_pairs={{0,1},{1,0}}
  u = f32[64] subtract(t, x)
  y = f32[64] add(p, u)
  one = s32[] constant(1)
  j = s32[] add(i, one)
  ROOT r = (s32[], f32[64]) tuple(j, y) }
below { s = (s32[], f32[64]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(3)
  ROOT c = pred[] compare(i, n), direction=LT }
left { s = (s32[], f32[64]) parameter(0)
  ROOT l = (s32[], f32[64]) while(s), condition=below, body=body }
right { s = (s32[], f32[64]) parameter(0)
  a = (s32[], f32[64]) call(s), to_apply=body
  b = (s32[], f32[64]) call(a), to_apply=body
  ROOT c = (s32[], f32[64]) call(b), to_apply=body }
ENTRY e { x = f32[64] parameter(0)
  zero = s32[] constant(0)
  s = (s32[], f32[64]) tuple(zero, x)
  id = u32[] replica-id()
  one = u32[] constant(1)
  p = pred[] compare(id, one), direction=LT
  c = (s32[], f32[64]) conditional(p, s, s), true_computation=left, false_computation=right
  ROOT r = f32[64] get-tuple-element(c), index=1 }
"""


@pytest.mark.parametrize("backend", ["interpreter", "cpu"])
def test_processes_meet_in_copies_of_a_body(networks, backend):
    module = xla.HloModule.from_text(PROGRAM)
    programs = []
    for network in networks:
        context = ExecutionContext()
        context.network = network.on((0, 1))
        programs.append(xla.compile(module, backend=backend, num_replicas=2, execution_context=context))
    given = [np.arange(64, dtype=np.float32) + rank for rank in range(2)]
    found = together(*[lambda r=r: programs[r].execute_replicated([[given[r]]])[0] for r in range(2)])
    for _ in range(3):
        given = [2 * sum(given) - own for own in given]
    for own, whole in zip(found, given, strict=True):
        np.testing.assert_array_equal(own, whole)
