"""How long processes wait for ones that wait themselves; the processes are threads of this one."""

import threading
import time

import numpy as np
import pytest
from launching import together

import xlakit as xla
from xlakit.execution.context import ExecutionContext
from xlakit.options import compiling
from xlakit.passes.scheduling import overlap_collectives

pytest.importorskip("zmq")

# The second sum of process 2 waits for process 0, whose first one waits for process 1.
_CHAIN = """
HloModule m, replica_count=3
add { x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT r = f32[] add(x, y) }
ENTRY e { x = f32[64] parameter(0)
  c = f32[64] custom-call(x), custom_call_target="work", custom_call_has_side_effect=true
  s = f32[64] all-reduce(c), to_apply=add, replica_groups={{0,1},{2}}
  ROOT t = f32[64] all-reduce(s), to_apply=add, replica_groups={{0,2},{1}} }
"""


def _compiled(network, text, ranks, **functions):
    context = ExecutionContext(timeout=0.3)
    context.network = network.on(ranks)
    with compiling(knobs={overlap_collectives._LEAST.name: 1.0}):
        return xla.compile(
            xla.HloModule.from_text(text),
            num_replicas=len(ranks),
            execution_context=context,
            custom_calls=functions,
        )


def _run_chain(networks, works):
    programs = [_compiled(n, _CHAIN, (0, 1, 2), work=w) for n, w in zip(networks, works, strict=True)]
    x = np.ones(64, np.float32)
    return together(*[lambda p=p: p.execute_replicated([[x]])[0] for p in programs])


@pytest.mark.parametrize("networks", [3], indirect=True)
def test_one_that_waits_for_one_that_computes_is_waited_for(networks, monkeypatch):
    monkeypatch.setenv("XLAKIT_TIMEOUT", "0.3")

    def long(x):
        time.sleep(2.0)
        return x

    found = _run_chain(networks, [lambda x: x, long, lambda x: x])
    for own, count in zip(found, (3, 2, 3), strict=True):
        assert not isinstance(own, Exception), own
        assert (own == count).all()


@pytest.mark.parametrize("networks", [3], indirect=True)
def test_one_that_waits_for_one_that_does_not_come_is_given_up(networks, monkeypatch):
    monkeypatch.setenv("XLAKIT_TIMEOUT", "0.3")
    programs = [_compiled(networks[rank], _CHAIN, (0, 1, 2), work=lambda x: x) for rank in (0, 2)]
    x = np.ones(64, np.float32)
    begun = time.monotonic()
    found = together(*[lambda p=p: p.execute_replicated([[x]])[0] for p in programs])
    assert time.monotonic() - begun < 5
    assert all(isinstance(error, xla.RankError) for error in found), found
    assert "process 1" in str(found[0])


_OUTFEED = """
HloModule m, replica_count=2
add { x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT r = f32[] add(x, y) }
ENTRY e { x = f32[64] parameter(0)
  s = f32[64] all-reduce(x), to_apply=add
  c = f32[64] custom-call(x), custom_call_target="work", custom_call_has_side_effect=false
  t = f32[64] add(s, c)
  k = token[] after-all()
  o = token[] outfeed(t, k)
  ROOT r = f32[64] negate(t) }
"""


def test_a_host_waits_for_an_outfeed_behind_a_collective_that_waits(networks, monkeypatch):
    # The sum goes on beside the call; its other process comes long after the host's time.
    monkeypatch.setenv("XLAKIT_TIMEOUT", "5")
    programs = [_compiled(network, _OUTFEED, (0, 1), work=lambda x: 2 * x) for network in networks]
    assert programs[0].as_text().count("async-start(") == 1
    x = np.ones(64, np.float32)
    taken = []

    def take():
        taken.append(programs[0].execution_context.outfeed(0))

    def late():
        time.sleep(1.5)
        return programs[1].execute_replicated([[x]])[0]

    host = threading.Thread(target=take, daemon=True)

    def first():
        host.start()
        return programs[0].execute_replicated([[x]])[0]

    found = together(first, late)
    host.join(10)
    assert all((own == -4).all() for own in found), found
    assert (taken[0] == 4).all()
