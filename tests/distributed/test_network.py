"""Processes that send each other messages: two of them in one process, on threads."""

import threading
import time
from functools import partial

import numpy as np
import pytest
from launching import together

import xlakit as xla
from xlakit.execution.context import ExecutionContext

pytest.importorskip("zmq")

from xlakit.distributed import session
from xlakit.distributed.messages import Header, Kind
from xlakit.distributed.network import Network
from xlakit.distributed.shared.transport import SharedMemoryTransport


def _module(make, replicas=2):
    builder = xla.XlaBuilder("program")
    return builder.build(make(xla.parameter(builder, 0, xla.make_shape(xla.F32, (replicas, 3)))))


def _on(network, make, ranks=(0, 1)):
    context = ExecutionContext()
    context.network = network.on(ranks)
    count = len(ranks)
    return xla.compile(_module(make, count), num_replicas=count, execution_context=context)


def _arguments(count):
    rng = np.random.default_rng(count)
    return [rng.normal(size=(count, 3)).astype(np.float32) for _ in range(count)]


_COLLECTIVES = {
    "all-reduce": lambda x: xla.all_reduce(x, xla.add),
    "all-gather": lambda x: xla.all_gather(x, 0, 4),
    "all-to-all": lambda x: xla.all_to_all(x, 0, 0, 4),
    "permute": lambda x: xla.collective_permute(x, [(0, 2), (2, 1), (1, 3), (3, 0)]),
    "broadcast": lambda x: xla.collective_broadcast(x, [[2, 0, 1, 3]]),
    "reduce-scatter": lambda x: xla.reduce_scatter(x, xla.add, 0, 4),
    "of some": lambda x: xla.all_reduce(x, xla.add, replica_groups=[[0, 3], [1, 2]]),
}


@pytest.mark.parametrize("ranks", [(0, 0, 1, 1), (1, 0, 0, 1)])
def test_collectives_are_those_of_one_process(networks, ranks):
    arguments = _arguments(4)
    for name, make in _COLLECTIVES.items():
        expected = xla.compile(_module(make, 4), num_replicas=4).execute_replicated([[a] for a in arguments])

        def part(rank, make=make):
            here = [index for index, owner in enumerate(ranks) if owner == rank]
            program = _on(networks[rank], make, ranks)
            return dict(zip(here, program.execute_replicated([[arguments[i]] for i in here]), strict=True))

        first, second = together(lambda part=part: part(0), lambda part=part: part(1))
        found = {**first, **second}
        for index in range(4):
            assert np.array_equal(found[index], expected[index]), (name, index)


@pytest.mark.parametrize("networks", [5], indirect=True)
@pytest.mark.parametrize("small", [session._SMALL, 0])
def test_rounds_among_more_processes(networks, monkeypatch, small):
    monkeypatch.setattr(session, "_SMALL", small)
    arguments = _arguments(5)
    makes = {
        "sum": lambda x: xla.all_reduce(x, xla.add),
        "large sum": lambda x: xla.all_reduce(xla.exp(xla.broadcast_in_dim(x, (700, 5, 3), (1, 2))), xla.add),
        "sum of integers": lambda x: xla.all_reduce(
            xla.convert_element_type(xla.broadcast_in_dim(x * 99.0, (700, 5, 3), (1, 2)), xla.S32), xla.add
        ),
        "gather": lambda x: xla.all_gather(x, 0, 5),
        **{
            f"broadcast from {root}": lambda x, root=root: xla.collective_broadcast(
                x, [[(root + i) % 5 for i in range(5)]]
            )
            for root in range(5)
        },
    }
    for name, make in makes.items():
        expected = xla.compile(_module(make, 5), num_replicas=5).execute_replicated([[a] for a in arguments])

        def part(rank, make=make):
            return _on(networks[rank], make, range(5)).execute_replicated([[arguments[rank]]])[0]

        found = together(*[lambda part=part, rank=rank: part(rank) for rank in range(5)])
        assert all(map(np.array_equal, found, expected)), name
    networks[2].leave()
    errors = together(
        *[
            lambda rank=rank: _on(networks[rank], makes["gather"], range(5)).execute_replicated([[arguments[rank]]])
            for rank in (0, 1, 3, 4)
        ]
    )
    assert all("process 2 (device 2) has ended, after" in str(error) for error in errors), errors


@pytest.mark.parametrize(("networks", "exchanges"), [(2, 1), (3, 2)], indirect=["networks"])
def test_large_sums_have_the_bits_of_one_process(networks, exchanges, monkeypatch):
    count = len(networks)
    rng = np.random.default_rng(0)
    arguments = [rng.normal(size=(count, 3)).astype(np.float32) for _ in range(count)]

    def make(x):
        wide = xla.broadcast_in_dim(x, (4096, count, 3), (1, 2))
        return xla.all_reduce(xla.exp(wide), xla.add)

    expected = xla.compile(_module(make, count), num_replicas=count).execute_replicated([[a] for a in arguments])
    made = []
    exchange = session.NetworkSession.send_and_receive
    monkeypatch.setattr(session.NetworkSession, "send_and_receive", lambda *a, **k: made.append(a) or exchange(*a, **k))
    ranks = tuple(range(count))
    programs = [_on(network, make, ranks) for network in networks]
    found = together(*[lambda r=r: programs[r].execute_replicated([[arguments[r]]])[0] for r in ranks])
    assert all(np.array_equal(own, whole) for own, whole in zip(found, expected, strict=True))
    # Parts are dealt out, and then their sums; two members send no more bytes without that.
    assert len(made) == exchanges * count


@pytest.mark.parametrize("other", ["constant(3)", "constant(2.5)"])
def test_programs_that_differ_in_a_constant(networks, other):
    text = """HloModule m, replica_count=2
ENTRY e {{ x = f32[2] parameter(0)
  c = f32[] {constant}
  b = f32[2] broadcast(c), dimensions={{}}
  y = f32[2] multiply(x, b)
  ROOT g = f32[4] all-gather(y), dimensions={{0}} }}"""
    check_that_processes_differ(networks, [text.format(constant=own) for own in ("constant(2)", other)])


def test_programs_that_differ_in_an_attribute(networks):
    text = """HloModule m, replica_count=2
ENTRY e {{ x = f32[2,2] parameter(0)
  y = f32[2,2] reverse(x), dimensions={{{dimension}}}
  ROOT g = f32[4,2] all-gather(y), dimensions={{0}} }}"""
    check_that_processes_differ(networks, [text.format(dimension=dimension) for dimension in (0, 1)])


def check_that_processes_differ(networks, texts):
    programs = []
    for network, text in zip(networks, texts, strict=True):
        context = ExecutionContext()
        context.network = network.on((0, 1))
        module = xla.HloModule.from_text(text)
        programs.append(xla.compile(module, backend="interpreter", num_replicas=2, execution_context=context))
    argument = np.ones(programs[0].module.entry.parameters[0].shape.dimensions, np.float32)
    for error in together(*[lambda p=p: p.execute_replicated([[argument]]) for p in programs]):
        assert "the processes run different programs" in str(error)


def test_different_programs(networks):
    gather, reduce = _COLLECTIVES["all-reduce"], lambda x: xla.all_reduce(x + x, xla.mul)
    programs = [_on(networks[0], gather), _on(networks[1], reduce)]
    argument = np.ones((2, 3), np.float32)
    for error in together(*[lambda p=p: p.execute_replicated([[argument]]) for p in programs]):
        assert isinstance(error, xla.RankError)
        assert "process" in str(error)
    # The next programs find each other.
    programs = [_on(network, _COLLECTIVES["all-reduce"]) for network in networks]
    for result in together(*[lambda p=p: p.execute_replicated([[argument]]) for p in programs]):
        assert np.array_equal(result[0], 2 * argument)


def test_a_process_that_has_left(networks):
    networks[1]._connections.connect(0)
    networks[1].leave()
    begin = time.monotonic()
    program = _on(networks[0], _COLLECTIVES["all-reduce"])
    with pytest.raises(xla.RankError, match=r"process 1 \(device 1\) has ended, after"):
        program.execute_replicated([[np.ones((2, 3), np.float32)]])
    assert time.monotonic() - begin < 10


def test_a_process_that_does_not_come(networks, monkeypatch):
    monkeypatch.setenv("XLAKIT_TIMEOUT", "0.4")
    program = _on(networks[0], _COLLECTIVES["all-reduce"])
    with pytest.raises(xla.RankError, match=r"process 1 .* has not begun the program \(it runs no program\)"):
        program.execute_replicated([[np.ones((2, 3), np.float32)]])


def test_messages_of_another_job_are_dropped(networks):
    stranger = Network(partial(SharedMemoryTransport, "127.0.0.1"))
    stranger.join(1, [network.endpoint for network in networks], ["a", "b"], bytes(16))
    stranger._connections.answer(0, Header(Kind.LEAVE, 1, text="has ended"))
    time.sleep(0.2)
    assert not networks[0].gone([1])
    assert networks[0]._connections._heard == {}
    stranger._connections._is_closing = True
    stranger._connections._thread.join()
    stranger._connections._transport.close(deserted=True)


_RUNS = 30


def _held(network):
    """The bytes of values that a process keeps for programs that it has not begun."""
    bodies = [body for inbox in network._inbox.values() for values in inbox.values() for _, body in values]
    return sum(map(len, bodies))


@pytest.mark.parametrize("kind", ["permute", "broadcast"])
def test_a_process_that_runs_ahead_waits(monkeypatch, request, kind):
    monkeypatch.setenv("XLAKIT_RECEIVE_LIMIT", "100000")
    networks = request.getfixturevalue("networks")

    def make(x):
        wide = xla.broadcast_in_dim(x, (1000, 2, 3), (1, 2))
        # Neither asks the sender to wait for the receiver.
        return xla.collective_permute(wide, [(0, 1)]) if kind == "permute" else xla.collective_broadcast(wide, [[0, 1]])

    first, second = [_on(network, make) for network in networks]
    begun = []

    def run_ahead():
        for number in range(_RUNS):
            begun.append(number)
            first.execute_replicated([[np.full((2, 3), number, np.float32)]])
        return "done"

    def follow():
        # Until nothing more comes.
        held = -1
        while held != _held(networks[1]) or not held:
            held = _held(networks[1])
            time.sleep(0.2)
        behind = len(begun)
        zeros = np.zeros((2, 3), np.float32)
        return held, behind, [second.execute_replicated([[zeros]])[0] for _ in range(_RUNS)]

    done, (held, behind, results) = together(run_ahead, follow)
    assert done == "done"
    assert 48_000 < held <= 100_000
    assert behind == held // 24_000 + 1
    assert all((result == number).all() for number, result in enumerate(results))


def test_values_larger_than_the_limit_travel_alone(monkeypatch, request):
    monkeypatch.setenv("XLAKIT_RECEIVE_LIMIT", "1")
    networks = request.getfixturevalue("networks")

    def make(x):
        return xla.all_gather(xla.broadcast_in_dim(x, (8192, 2, 3), (1, 2)), 0, 2)

    programs = [_on(network, make) for network in networks]
    works = [lambda p=p, r=r: [p.execute_replicated([[np.full((2, 3), r, np.float32)]])[0] for _ in range(3)]
             for r, p in enumerate(programs)]  # fmt: skip
    for results in together(*works):
        for result in results:
            assert np.array_equal(result[:, 0, 0], np.repeat(np.float32([0, 1]), 8192))


def test_a_process_that_waits_for_room_hears_that_the_other_has_left(monkeypatch, request):
    monkeypatch.setenv("XLAKIT_RECEIVE_LIMIT", "1")
    networks = request.getfixturevalue("networks")
    networks[1]._connections.connect(0)
    program = _on(
        networks[0], lambda x: xla.collective_permute(xla.broadcast_in_dim(x, (9000, 2, 3), (1, 2)), [(0, 1)])
    )
    ones = np.ones((2, 3), np.float32)
    program.execute_replicated([[ones]])
    networks[1].leave()
    with pytest.raises(xla.RankError, match=r"process 1 \(device 1\) has ended, after"):
        program.execute_replicated([[ones]])


_CHANNEL = """HloModule channel, replica_count=2
ENTRY main {
  x = f32[2,3] parameter(0)
  t = token[] after-all()
  s = (f32[2,3], u32[], token[]) send(x, t), channel_id=7,
    frontend_attributes={_xla_send_recv_source_target_pairs="{{1,0}}"}
  r = (f32[2,3], u32[], token[]) recv(t), channel_id=7,
    frontend_attributes={_xla_send_recv_source_target_pairs="{{1,0}}"}, control-predecessors={s}
  d = (f32[2,3], token[]) recv-done(r), channel_id=7
  e = token[] send-done(s), channel_id=7, control-predecessors={r}
  ROOT v = f32[2,3] get-tuple-element(d), index=0
}
"""


def test_a_recv_hears_that_no_send_will_come(networks):
    networks[1]._connections.connect(0)
    programs = []
    for network in networks:
        context = ExecutionContext()
        context.network = network.on((0, 1))
        programs.append(xla.compile(xla.HloModule.from_text(_CHANNEL), execution_context=context))
    ones = [[np.ones((2, 3), np.float32)]]
    received, _ = together(*[lambda p=p: p.execute_replicated(ones)[0] for p in programs])
    assert (received == 1).all()
    networks[1].leave()
    with pytest.raises(xla.RankError, match=r"process 1 \(device 1\) has ended, after") as caught:
        programs[0].execute_replicated(ones)
    assert "recv-done" in str(caught.value)


def test_a_process_that_computes_something_else_first_is_waited_for(networks, monkeypatch):
    monkeypatch.setenv("XLAKIT_TIMEOUT", "0.2")
    begun = threading.Event()

    def think(x):
        begun.set()
        time.sleep(0.6)
        return x

    builder = xla.XlaBuilder("alone")
    x = xla.parameter(builder, 0, xla.make_shape(xla.F32, (3,)))
    xla.custom_call(builder, "think", [x], xla.make_shape(xla.F32, (3,)), has_side_effect=True)
    context = ExecutionContext()
    context.network = networks[1].on((1,))
    alone = xla.compile(builder.build(), execution_context=context, custom_calls={"think": think})
    first, second = [_on(network, _COLLECTIVES["all-reduce"]) for network in networks]
    ones = [[np.ones((2, 3), np.float32)]]

    def late():
        alone.execute_replicated([[np.ones(3, np.float32)]])
        return second.execute_replicated(ones)[0]

    results = together(lambda: begun.wait(10) and first.execute_replicated(ones)[0], late)
    assert all((result == 2).all() for result in results), results
