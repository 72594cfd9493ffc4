"""Prepared collectives, of processes with one device each: results of one process, beside any other form."""

import itertools

import numpy as np
import pytest
from launching import together

import xlakit as xla
from xlakit.execution.context import ExecutionContext

pytest.importorskip("zmq")

from xlakit.distributed import session

_REDUCER = """add {{ a = {type}[] parameter(0)
  b = {type}[] parameter(1)
  ROOT c = {type}[] {op}(a, b) }}
"""
_PROGRAM = """HloModule m, replica_count={count}
{reducer}ENTRY e {{ x = {type}[{size},3] parameter(0)
  y = {type}[{size},3] reverse(x), dimensions={{1}}
  r = {result} {collective}
  ROOT z = {result} copy(r) }}"""
_COLLECTIVES = {
    "all-reduce": ("{type}[{size},3]", "all-reduce(y), replica_groups={{}}, to_apply=add"),
    "all-gather": ("{type}[{whole},3]", "all-gather(y), replica_groups={{}}, dimensions={{0}}"),
    "all-gather inside": ("{type}[{size},{wide}]", "all-gather(y), replica_groups={{}}, dimensions={{1}}"),
    "reversed all-gather": ("{type}[{whole},3]", "all-gather(y), replica_groups={{{reverse}}}, dimensions={{0}}"),
    "reduce-scatter": ("{type}[{part},3]", "reduce-scatter(y), replica_groups={{}}, dimensions={{0}}, to_apply=add"),
    "all-to-all": ("{type}[{size},3]", "all-to-all(y), replica_groups={{{reverse}}}, dimensions={{0}}"),
    "permute": ("{type}[{size},3]", "collective-permute(y), source_target_pairs={{{pairs}}}"),
    "permute to few": ("{type}[{size},3]", "collective-permute(y), source_target_pairs={{{{1,0}}}}"),
    "permute to itself": ("{type}[{size},3]", "collective-permute(y), source_target_pairs={{{{0,0}},{{1,1}}}}"),
}


def _text(name, count, type, op, size):
    result, collective = _COLLECTIVES[name]
    ring = [f"{{{i},{(i + 1) % count}}}" for i in range(count)]
    names = {
        "count": count, "type": type, "size": size, "whole": size * count, "wide": 3 * count, "part": size // count,
        "reverse": "{" + ",".join(map(str, reversed(range(count)))) + "}", "pairs": ",".join(ring), "op": op,
    }  # fmt: skip
    reducer = _REDUCER.format(**names) if "to_apply" in collective else ""
    return _PROGRAM.format(
        reducer=reducer, result=result.format(**names), collective=collective.format(**names), **names
    )


def _values(type, count, size):
    rng = np.random.default_rng(count + size)
    dtype = xla.HloModule.from_text(_text("permute", 2, type, "add", 2)).entry.root.shape.element_type.dtype
    return [(rng.normal(size=(size, 3)) * 20).astype(dtype) for _ in range(count)]


def _programs(networks, text):
    ranks = tuple(range(len(networks)))
    for network in networks:
        context = ExecutionContext()
        context.network = network.on(ranks)
        yield xla.compile(xla.HloModule.from_text(text), num_replicas=len(ranks), execution_context=context)


@pytest.fixture
def prepared(monkeypatch):
    """The prepared collectives, as they are made; with ``general`` these processes have none."""
    made, prepare = [], session.prepared

    def count(instruction, program, device, ranks, direct):
        if ranks[device] in count.general:
            return None
        exchange = prepare(instruction, program, device, ranks, direct)
        made.append(exchange)
        return exchange

    count.general, count.made = (), made
    monkeypatch.setattr(session, "prepared", count)
    return count


def _compare(networks, text, arguments):
    count = len(networks)
    expected = xla.compile(xla.HloModule.from_text(text), num_replicas=count).execute_replicated(
        [[a] for a in arguments]
    )
    programs = list(_programs(networks, text))
    for _ in range(2):
        found = together(
            *[lambda p=p, a=a: p.execute_replicated([[a]])[0] for p, a in zip(programs, arguments, strict=True)]
        )
        for own, whole in zip(found, expected, strict=True):
            assert isinstance(own, np.ndarray), own
            assert own.dtype == whole.dtype and own.shape == whole.shape
            assert own.tobytes() == np.asarray(whole).tobytes(), text


_KINDS = [("f32", "add"), ("s32", "multiply"), ("f64", "add"), ("bf16", "add"), ("u8", "add"), ("f32", "maximum")]


@pytest.mark.parametrize("networks", [2, 3, 4, 5], indirect=True)
@pytest.mark.parametrize("size", [60, 7680])
def test_results_are_those_of_one_process(networks, size, prepared):
    count = len(networks)
    # Two types for each collective, another two for each number of processes.
    kinds = itertools.cycle(_KINDS[count:] + _KINDS[:count])
    for name in _COLLECTIVES:
        type, op = next(kinds)
        _compare(networks, _text(name, count, type, op, size), _values(type, count, size))
    assert any(prepared.made)


@pytest.mark.parametrize("type", ["f32", "bf16", "s8", "c64"])
@pytest.mark.parametrize("general", [(0,), (1,)])
def test_one_process_may_use_the_general_form(networks, type, general, prepared):
    prepared.general = general
    for name in _COLLECTIVES:
        _compare(networks, _text(name, 2, type, "add", 60), _values(type, 2, 60))
    assert any(prepared.made)


def test_the_calls_of_a_loop_are_told_apart(networks, prepared):
    text = """HloModule m, replica_count=2
add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b) }
body { p = (s32[], f32[3]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = f32[3] get-tuple-element(p), index=1
  y = f32[3] all-reduce(x), replica_groups={}, to_apply=add
  z = f32[3] collective-permute(y), source_target_pairs={{0,1},{1,0}}
  w = f32[3] sine(z)
  one = s32[] constant(1)
  j = s32[] add(i, one)
  ROOT t = (s32[], f32[3]) tuple(j, w) }
condition { p = (s32[], f32[3]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(20)
  ROOT c = pred[] compare(i, n), direction=LT }
ENTRY e { x = f32[3] parameter(0)
  zero = s32[] constant(0)
  t = (s32[], f32[3]) tuple(zero, x)
  w = (s32[], f32[3]) while(t), condition=condition, body=body
  ROOT r = f32[3] get-tuple-element(w), index=1 }"""
    _compare(networks, text, [np.float32([0.1, 2, 3]), np.float32([4, -5, 0.6])])
    assert sum(exchange is not None for exchange in prepared.made) == 4


def test_another_collective_is_an_error_in_both(networks, prepared):
    texts = [_text("permute", 2, "f32", "add", 6), _text("all-reduce", 2, "f32", "add", 6)]
    programs = [next(_programs(networks, texts[0])), list(_programs(networks, texts[1]))[1]]
    argument = np.ones((6, 3), np.float32)
    for error in together(*[lambda p=p: p.execute_replicated([[argument]]) for p in programs]):
        assert isinstance(error, xla.RankError)
    assert all(prepared.made)


@pytest.mark.parametrize("name", ["all-reduce", "all-to-all", "permute"])
def test_messages_of_another_size_are_refused(networks, prepared, monkeypatch, name):
    receive = session.NetworkSession.receive_bytes
    exchange = session.NetworkSession.send_and_receive
    monkeypatch.setattr(session.NetworkSession, "receive_bytes", lambda *given: receive(*given)[:-8])
    monkeypatch.setattr(
        session.NetworkSession,
        "send_and_receive",
        lambda *given: {rank: body[:-8] for rank, body in exchange(*given).items()},
    )
    programs = _programs(networks, _text(name, 2, "f32", "add", 6))
    argument = np.ones((6, 3), np.float32)
    for error in together(*[lambda p=p: p.execute_replicated([[argument]]) for p in programs]):
        assert isinstance(error, xla.RankError), error
        assert "bytes where" in str(error)
    assert all(prepared.made)


def test_a_process_that_does_not_come_is_named(networks, prepared, monkeypatch):
    monkeypatch.setenv("XLAKIT_TIMEOUT", "0.5")
    program = next(_programs(networks, _text("reduce-scatter", 2, "f32", "add", 6)))
    with pytest.raises(xla.RankError, match=r"process 1 \(device 1\) .*it runs no program") as raised:
        program.execute_replicated([[np.ones((6, 3), np.float32)]])
    assert "reduce-scatter 'r'" in str(raised.value)
    assert all(prepared.made) and len(prepared.made) == 1
