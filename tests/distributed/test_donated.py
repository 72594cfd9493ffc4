"""Collectives between processes whose results are written over their operands, donated arguments."""

import numpy as np
import pytest
from launching import together

import xlakit as xla
from xlakit.execution.context import ExecutionContext

pytest.importorskip("zmq")

from xlakit.distributed import session

_COUNT = 3
_ADD = """add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b) }
"""
_COLLECTIVES = {
    "all-reduce": "f32[N] all-reduce(x), to_apply=add",
    "all-to-all": "f32[N] all-to-all(x), replica_groups={}, dimensions={0}",
    "reversed all-to-all": "f32[N] all-to-all(x), replica_groups={{2,1,0}}, dimensions={0}",
    "permute": "f32[N] collective-permute(x), source_target_pairs={{0,1},{1,2},{2,0}}",
    "permute to one": "f32[N] collective-permute(x), source_target_pairs={{0,1}}",
    "broadcast": "f32[N] collective-broadcast(x), replica_groups={{1,0,2}}",
    "all-reduce of two": "(f32[N], f32[N]) all-reduce(x, y), to_apply=add",
    "all-reduce alone": "(f32[N], f32[N]) all-reduce(x, y), replica_groups={{0},{1},{2}}, to_apply=add",
    "permute of two": "(f32[N], f32[N]) collective-permute(x, y), source_target_pairs={{0,0},{2,1}}",
}
# Which argument's memory a result is in: its own operand's, or the other one's.
_ALIASES = {
    "own": "{ {0}: (0, {}, may-alias), {1}: (1, {}, may-alias) }",
    "crossed": "{ {0}: (1, {}, may-alias), {1}: (0, {}, may-alias) }",
}


def _text(name, aliases, size):
    collective = _COLLECTIVES[name].replace("N", str(size))
    header = "{ {}: (0, {}, may-alias) }" if collective.startswith("f32") else _ALIASES[aliases]
    reducer = _ADD if "to_apply" in collective else ""
    return f"""HloModule m, replica_count={_COUNT}, input_output_alias={header}
{reducer}ENTRY e {{ x = f32[{size}] parameter(0)
  y = f32[{size}] parameter(1)
  ROOT r = {collective} }}"""


def _aligned(values):
    memory = np.empty(values.size + 16, np.float32)
    begin = -memory.ctypes.data % 64 // 4
    array = memory[begin : begin + values.size]
    array[:] = values
    return array


def _cases():
    for name in _COLLECTIVES:
        for aliases in _ALIASES if "(" in _COLLECTIVES[name].split()[0] else ["own"]:
            yield name, aliases


@pytest.mark.parametrize("is_prepared", [True, False])
@pytest.mark.parametrize("size", [6, 30_000])
@pytest.mark.parametrize("networks", [_COUNT], indirect=True)
@pytest.mark.parametrize(("name", "aliases"), list(_cases()))
def test_results_are_in_the_memory_of_arguments(networks, name, aliases, size, is_prepared, monkeypatch):
    if not is_prepared:
        monkeypatch.setattr(session, "prepared", lambda *_: None)
    module = xla.HloModule.from_text(_text(name, aliases, size))
    rng = np.random.default_rng(0)
    given = [[rng.normal(size=size).astype(np.float32) for _ in range(2)] for _ in range(_COUNT)]
    expected = xla.compile(module, num_replicas=_COUNT, backend="interpreter").execute_replicated(given)
    expected = [one if isinstance(one, tuple) else (one,) for one in expected]

    def run(network, arguments):
        context = ExecutionContext()
        context.network = network.on(tuple(range(_COUNT)))
        program = xla.compile(module, num_replicas=_COUNT, execution_context=context)
        found = []
        program._reference.run_one(lambda device: found.extend(program.run_arrays(device, arguments, {0, 1})))
        assert any(one is argument for one in found for argument in arguments)
        return found

    arguments = [list(map(_aligned, own)) for own in given]
    found = together(*[lambda r=r: run(networks[r], arguments[r]) for r in range(_COUNT)])
    for own, whole in zip(found, expected, strict=True):
        assert isinstance(own, list), own
        for one, other in zip(own, whole, strict=True):
            np.testing.assert_array_equal(one, np.asarray(other))
