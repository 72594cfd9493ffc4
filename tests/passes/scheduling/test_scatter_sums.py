"""All-reduces of which each device reads its own block: reduce-scatters with the same bits, on the devices that run."""

import numpy as np
import pytest

import xlakit as xla
from xlakit.passes.pipeline import run_pipeline

# As jaxlib writes a product of operands that are split along what is summed over, with a result that is split.
JAXLIB = """
HloModule jit_f, is_scheduled=true, num_partitions=4

add.clone { x.1 = f32[] parameter(0)
  y.1 = f32[] parameter(1)
  ROOT add.1 = f32[] add(x.1, y.1) }

fused_computation { param_0 = f32[8,16] parameter(0)
  param_1 = f32[16,12] parameter(1)
  ROOT dot.1 = f32[8,12] dot(param_0, param_1), lhs_contracting_dims={1}, rhs_contracting_dims={0} }

fused_computation.1 { param_0.2 = f32[8,12] parameter(0)
  param_1.3 = u32[] parameter(1)
  convert.1 = s32[] convert(param_1.3)
  constant.9 = s32[] constant(2)
  multiply.2 = s32[] multiply(convert.1, constant.9)
  constant.8 = s32[] constant(0)
  dynamic-slice.3 = f32[2,12] dynamic-slice(param_0.2, multiply.2, constant.8), dynamic_slice_sizes={2,12}
  ROOT tanh.4 = f32[2,12] tanh(dynamic-slice.3) }

ENTRY main.0_spmd { param = f32[8,16] parameter(0)
  param.1 = f32[16,12] parameter(1)
  partition-id.1 = u32[] partition-id()
  ynn_fusion = f32[8,12] fusion(param, param.1), kind=kCustom, calls=fused_computation, backend_config={"fusion_config":{"kind":"__ynn_fusion"},"outer_dimension_partitions":[]}
  all-reduce = f32[8,12] all-reduce(ynn_fusion), channel_id=1, replica_groups=mesh['axis_0'=4,'axis_1'=1] {'axis_0'}, use_global_device_ids=true, to_apply=add.clone
  ROOT dynamic-slice_tanh_fusion = f32[2,12] fusion(all-reduce, partition-id.1), kind=kLoop, calls=fused_computation.1 }
"""  # noqa: E501
ADD = "add { x = f32[] parameter(0)\n y = f32[] parameter(1)\n ROOT r = f32[] add(x, y) }\n"
OWN_BLOCK = """
  id = u32[] partition-id()
  two = u32[] constant(2)
  start = u32[] multiply(id, two)
  s = f32[8] all-reduce(x), channel_id=1, replica_groups={{0,1,2,3}}, use_global_device_ids=true, to_apply=add
  ROOT r = f32[2] dynamic-slice(s, start), dynamic_slice_sizes={2}
"""


def optimized(text):
    return run_pipeline(xla.HloModule.from_text(text)).to_text()


def arguments(*dims):
    rng = np.random.default_rng(7)
    return [[rng.normal(size=d).astype(np.float32) for d in dims] for _ in range(4)]


def results(text, given, backend, **devices):
    program = xla.compile(xla.HloModule.from_text(text), backend=backend, **devices)
    return [np.asarray(r) for r in program.execute_replicated(given)]


def test_what_jaxlib_has_partitioned_scatters_its_sums():
    text = optimized(JAXLIB)
    assert "reduce-scatter(" in text
    assert "all-reduce(" not in text
    assert "custom" not in text.lower()
    given = arguments((8, 16), (16, 12))
    compiled, expected = (results(JAXLIB, given, backend) for backend in ("cpu", "interpreter"))
    np.testing.assert_allclose(compiled, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("devices", [{}, {"num_replicas": 4, "num_partitions": 1}], ids=["as said", "otherwise"])
def test_blocks_are_those_of_the_devices_that_run_the_program(devices):
    # Replicas of one partition all read the first block, whatever the header says.
    text = f"HloModule m, num_partitions=4\n{ADD}ENTRY e {{ x = f32[8] parameter(0){OWN_BLOCK}}}"
    assert "reduce-scatter(" in optimized(text)
    given = arguments((8,))
    compiled, expected = (results(text, given, backend, **devices) for backend in ("cpu", "interpreter"))
    np.testing.assert_array_equal(compiled, expected)


def test_a_header_that_says_nothing_does_not_matter():
    text = f"HloModule m\n{ADD}ENTRY e {{ x = f32[8] parameter(0){OWN_BLOCK}}}"
    given, devices = arguments((8,)), {"num_replicas": 1, "num_partitions": 4}
    compiled, expected = (results(text, given, backend, **devices) for backend in ("cpu", "interpreter"))
    np.testing.assert_array_equal(compiled, expected)


def test_a_sum_that_meets_others_of_its_channel_in_branches_stays():
    branch = f"{{ x = f32[8] parameter(0){OWN_BLOCK}}}"
    other = branch.replace("start = u32[] multiply(id, two)", "start = u32[] add(id, two)")
    text = f"""
HloModule m, num_partitions=4
{ADD}
one {branch}
two {other}
ENTRY e {{ x = f32[8] parameter(0)
  p = pred[] parameter(1)
  ROOT c = f32[2] conditional(p, x, x), true_computation=one, false_computation=two }}
"""
    after = run_pipeline(xla.HloModule.from_text(text), ["scatter-sums"]).to_text()
    assert "reduce-scatter(" not in after
    alone = text.replace(other, other.replace("channel_id=1", "channel_id=2"))
    assert run_pipeline(xla.HloModule.from_text(alone), ["scatter-sums"]).to_text().count("reduce-scatter(") == 1


def test_a_sum_that_is_the_result_or_its_own_index_stays():
    own = "ENTRY e { x = f32[8] parameter(0)" + OWN_BLOCK.replace("ROOT r", "r").replace("s = f32", "ROOT s = f32")
    text = f"HloModule m, num_partitions=4\n{ADD}{own}}}"
    assert "reduce-scatter(" not in run_pipeline(xla.HloModule.from_text(text), ["scatter-sums"]).to_text()
