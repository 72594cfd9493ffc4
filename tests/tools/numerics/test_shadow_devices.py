"""Shadow values of programs on several devices."""

import numpy as np
import pytest

import xlakit as xla
from xlakit.tools.numerics.shadow import shadow_replicated

_PAIR = "replica_groups={{0,1}}, use_global_device_ids=true"
_TEXT = f"""
HloModule m, num_partitions=2
add {{ a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b) }}
ENTRY e {{
  p = f32[3] parameter(0)
  e = f32[3] exponential(p)
  s = f32[3] all-reduce(e), channel_id=1, {_PAIR}, to_apply=add
  g = (f32[3], f32[6]) all-gather-start(s), channel_id=2, {_PAIR}, dimensions={{0}}
  d = f32[6] all-gather-done(g)
  ROOT q = f32[6] collective-permute(d), channel_id=3, source_target_pairs={{{{0,1}},{{1,0}}}}
}}"""


def test_devices_exchange_shadows():
    module = xla.HloModule.from_text(_TEXT)
    arguments = [[np.array(x, np.float32)] for x in ([0.1, 0.2, 0.3], [0.4, 0.5, 0.6])]
    report = shadow_replicated(module, arguments)
    exact = sum(np.exp(x.astype(np.float64)) for (x,) in arguments)
    error = np.abs(np.asarray(report.results[0], np.float64) - np.tile(exact, 2)).max()
    assert error > 0
    assert [size.absolute for _, size in report.outputs] == pytest.approx([error, error])
    (total,) = [row for row in report.rows if row.name == "%s"]
    assert total.born is not None
    assert 0 < total.born <= 0.5
