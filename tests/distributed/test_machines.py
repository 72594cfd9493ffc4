"""Processes on machines that differ: each compiles for its own, and all must meet at the same collectives."""

import json
import time

import numpy as np
import pytest
from launching import together

import xlakit as xla
from xlakit import link
from xlakit.execution.context import ExecutionContext

pytest.importorskip("zmq")

_TEXT = """
HloModule m, replica_count=2
add { x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT r = f32[] add(x, y) }
ENTRY e { x = f32[5000] parameter(0)
  y = f32[5000] negate(x)
  s = f32[5000] all-reduce(x), to_apply=add
  t = f32[5000] all-reduce(y), to_apply=add
  ROOT r = (f32[5000], f32[5000]) tuple(s, t) }
"""
# 20,000 bytes are more than the one would keep for a second collective in one process, and less than the other.
_MACHINES = ({"wake_nanoseconds": 1000, "memory": 5.0}, {"wake_nanoseconds": 50_000, "memory": 30.0})


def _described(folder, number):
    said = _MACHINES[number]
    path = folder / f"machine-{number}.json"
    measured = {"read_bytes_per_nanosecond_memory": said["memory"]}
    path.write_text(json.dumps({"wake_nanoseconds": said["wake_nanoseconds"], "measured": measured}))
    return str(path)


def _compiled(network=None):
    context = ExecutionContext()
    if network is not None:
        context.network = network.on((0, 1))
    return xla.compile(xla.HloModule.from_text(_TEXT), num_replicas=2, execution_context=context)


def test_programs_meet_on_machines_that_differ(networks, monkeypatch, tmp_path):
    programs, alone = [], []
    for number, network in enumerate(networks):
        monkeypatch.setenv("XLAKIT_MACHINE", _described(tmp_path, number))
        programs.append(_compiled(network))
        alone.append(_compiled().as_text().count("all-reduce("))
    assert alone == [2, 1]
    x = np.arange(5000, dtype=np.float32)
    found = together(*[lambda p=p: p.execute_replicated([[x]])[0] for p in programs])
    for own in found:
        assert not isinstance(own, Exception), own
        np.testing.assert_array_equal(own[0], 2 * x)
        np.testing.assert_array_equal(own[1], -2 * x)


def test_a_slow_link_combines_more(networks):
    for network in networks:
        network.link = link.Link(alpha=1_000.0, beta=1.0)
    assert _compiled(networks[0]).as_text().count("all-reduce(") == 2
    # Neither comes from the compile cache as the other one was.
    networks[0].link = link.Link(alpha=1_000_000.0, beta=1.0)
    assert _compiled(networks[0]).as_text().count("all-reduce(") == 1


def test_a_link_is_measured(networks, monkeypatch):
    fast = networks[0].measured(1)
    # Exact powers of two, which are the same for most measurements.
    assert all(np.frexp(number)[0] == 0.5 for number in (fast.alpha, fast.beta, fast.products))
    handle = networks[1]._connections._handle

    def late(header, body):
        time.sleep(0.1 if len(body) > 1000 else 0.05)
        handle(header, body)

    monkeypatch.setattr(networks[1]._connections, "_handle", late)
    slow = networks[0].measured(1)
    assert slow.alpha >= 2 * 50e6
    assert slow.beta >= 50e6 / (1 << 20)


def test_a_process_that_does_not_answer_is_not_measured(networks, monkeypatch):
    monkeypatch.setattr(networks[0], "_timeout", 0.3)
    networks[1].leave()
    with pytest.raises(xla.RankError, match="process 1"):
        networks[0].measured(1)
