"""Collectives that go on beside the program, where the processes are threads of this one."""

import threading
from functools import partial

import numpy as np
import pytest
from launching import together

import xlakit as xla
from xlakit.distributed.messages import Kind
from xlakit.execution.context import ExecutionContext
from xlakit.options import compiling
from xlakit.passes.scheduling import overlap_collectives

pytest.importorskip("zmq")

_EAGER = {overlap_collectives._LEAST.name: 1.0}
ADD = """
add { x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT r = f32[] add(x, y) }
"""


def _program(lines):
    return xla.HloModule.from_text(
        f"HloModule m, replica_count=2\n{ADD}ENTRY e {{\nx = f32[64] parameter(0)\n{lines}\n}}\n"
    )


def _compiled(network, module, **functions):
    """A program that makes pairs of all collectives beside which there is anything."""
    context = ExecutionContext()
    context.network = network.on((0, 1))
    with compiling(knobs=_EAGER, check_memory=True):
        return xla.compile(module, num_replicas=2, execution_context=context, custom_calls=functions)


def _inputs():
    return [np.arange(64, dtype=np.float32) + rank for rank in range(2)]


_BESIDE = """
  s = f32[64] all-reduce(x), to_apply=add
  c = f32[64] custom-call(x), custom_call_target="work", custom_call_has_side_effect=false
  t = f32[64] add(s, c)
  g = f32[128] all-gather(t), dimensions={0}
  d = f32[64] multiply(c, x)
  ROOT r = (f32[128], f32[64]) tuple(g, d)"""


def test_what_is_sent_may_arrive_when_other_work_is_done(networks, monkeypatch):
    # Values come when both processes have worked: a process that waited for the sum before its work would not end.
    worked = threading.Barrier(2)
    may_come = threading.Event()

    def work(x):
        worked.wait(20)
        may_come.set()
        return 3 * x

    for network in networks:
        receive = network._connections._handle

        def late(header, body, receive=receive):
            if header.kind is Kind.VALUE:
                may_come.wait(20)
            receive(header, body)

        monkeypatch.setattr(network._connections, "_handle", late)
    programs = [_compiled(network, _program(_BESIDE), work=work) for network in networks]
    inputs = _inputs()
    found = together(*[lambda r=r: programs[r].execute_replicated([[inputs[r]]])[0] for r in range(2)])
    whole = np.concatenate([sum(inputs) + 3 * x for x in inputs])
    for own, x in zip(found, inputs, strict=True):
        assert np.array_equal(own[0], whole)
        assert np.array_equal(own[1], 3 * x * x)
    text = programs[0].as_text()
    assert text.count("async-start(") == text.count("async-done(") == 1


def test_an_error_beside_a_collective_ends_both(networks):
    def fail(x):
        raise ValueError("no work")

    programs = [_compiled(n, _program(_BESIDE), work=f) for n, f in zip(networks, (fail, lambda x: x), strict=True)]
    inputs = _inputs()
    first, second = together(*[lambda r=r: programs[r].execute_replicated([[inputs[r]]]) for r in range(2)])
    assert "no work" in str(first)
    assert isinstance(second, xla.RankError)
    assert "no work" in str(second)
    assert not [t for t in threading.enumerate() if t.name == "xlakit-collectives"]


def test_a_process_that_does_not_come_is_named(networks, monkeypatch):
    monkeypatch.setenv("XLAKIT_TIMEOUT", "0.4")
    program = _compiled(networks[0], _program(_BESIDE), work=lambda x: x)
    with pytest.raises(xla.RankError, match=r"process 1 .* has not begun the program"):
        program.execute_replicated([[_inputs()[0]]])


_GIVEN = """
  s = f32[64] all-reduce-start(x), to_apply=add
  y = f32[64] negate(x)
  m = f32[64] all-reduce(y), to_apply=add
  p = (f32[64], f32[64]) collective-permute-start(y), source_target_pairs={{0,1},{1,0}}
  q = f32[64] collective-permute-done(p)
  t = f32[64] all-reduce-done(s)
  ROOT r = (f32[64], f32[64], f32[64]) tuple(t, m, q)"""


def test_pairs_of_the_program_keep_its_order(networks):
    programs = [_compiled(network, _program(_GIVEN)) for network in networks]
    inputs = _inputs()
    found = together(*[lambda r=r: programs[r].execute_replicated([[inputs[r]]])[0] for r in range(2)])
    for own, other in zip(found, reversed(inputs), strict=True):
        for got, want in zip(own, (sum(inputs), -sum(inputs), -other), strict=True):
            assert np.array_equal(got, want)
    assert "(done)" in programs[0].memory_plan().as_text()


def test_pairs_in_loops_with_devices_of_one_process(networks):
    # Four devices in two processes; the sums of an iteration go on beside the next product.
    text = f"""
HloModule m, replica_count=4
{ADD}
body {{ p = (s32[], f32[16,16], f32[16,16]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = f32[16,16] get-tuple-element(p), index=1
  a = f32[16,16] get-tuple-element(p), index=2
  one = s32[] constant(1)
  j = s32[] add(i, one)
  s = f32[16,16] all-reduce(x), replica_groups={{{{0,2}},{{3,1}}}}, to_apply=add
  d = f32[16,16] dot(x, x), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  e = f32[16,16] tanh(d)
  b = f32[16,16] add(a, s)
  ROOT t = (s32[], f32[16,16], f32[16,16]) tuple(j, e, b) }}
condition {{ p = (s32[], f32[16,16], f32[16,16]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(5)
  ROOT q = pred[] compare(i, n), direction=LT }}
ENTRY e {{ x = f32[16,16] parameter(0)
  zero = s32[] constant(0)
  t = (s32[], f32[16,16], f32[16,16]) tuple(zero, x, x)
  l = (s32[], f32[16,16], f32[16,16]) while(t), condition=condition, body=body
  ROOT v = f32[16,16] get-tuple-element(l), index=2 }}
"""
    module = xla.HloModule.from_text(text)
    rng = np.random.default_rng(0)
    inputs = [[rng.normal(size=(16, 16)).astype(np.float32)] for _ in range(4)]
    expected = xla.compile(module, num_replicas=4).execute_replicated(inputs)

    def part(rank):
        context = ExecutionContext()
        context.network = networks[rank].on((0, 0, 1, 1))
        with compiling(knobs=_EAGER, check_memory=True):
            program = xla.compile(module, num_replicas=4, execution_context=context)
        assert "async-start" in program.as_text()
        return program.execute_replicated(inputs[2 * rank : 2 * rank + 2])

    found = together(partial(part, 0), partial(part, 1))
    for own, whole in zip([*found[0], *found[1]], expected, strict=True):
        assert np.array_equal(own, whole)


def test_a_program_of_the_compile_cache_meets_a_fresh_one(networks, tmp_path, monkeypatch):
    # The proto in the cache cannot have the name of the computation's sum twice.
    monkeypatch.setenv("XLAKIT_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("XLAKIT_CACHE", "1")
    programs = [_compiled(n, _program("ROOT r = f32[64] all-reduce(x), to_apply=add")) for n in networks]
    inputs = _inputs()
    found = together(*[lambda r=r: programs[r].execute_replicated([[inputs[r]]])[0] for r in range(2)])
    assert all(np.array_equal(own, sum(inputs)) for own in found)


# Each device sends its first rows to the first device, and others to the second one.
_RAGGED = """
  rows = f32[4,3] parameter(0)
  out = f32[4,3] parameter(1)
  starts = s32[2] parameter(2)
  sizes = s32[2] parameter(3)
  targets = s32[2] parameter(4)
  taken = s32[2] parameter(5)
  r = f32[4,3] ragged-all-to-all(rows, out, starts, sizes, targets, taken), replica_groups={{0,1}}
  c = f32[4,3] custom-call(rows), custom_call_target="work", custom_call_has_side_effect=false
  ROOT t = (f32[4,3], f32[4,3], f32[4,3]) tuple(r, c, out)"""


def _ragged(networks, sizes):
    text = f"HloModule m, replica_count=2\nENTRY e {{\n{_RAGGED}\n}}\n"
    programs = [_compiled(network, xla.HloModule.from_text(text), work=lambda x: x + 1) for network in networks]
    assert programs[0].as_text().count("async-start(") == 1
    rows = [np.arange(12, dtype=np.float32).reshape(4, 3) + 100 * rank for rank in range(2)]
    outs = [np.full((4, 3), -1 - rank, np.float32) for rank in range(2)]
    one, targets = [np.int32([0, 1]), *map(np.int32, sizes)], [np.int32([0, 0]), np.int32([1, 1])]
    given = [[rows[r], outs[r], one[0], one[1], targets[r], one[2]] for r in range(2)]
    return rows, outs, together(*[lambda r=r: programs[r].execute_replicated([given[r]])[0] for r in range(2)])


def test_a_ragged_exchange_goes_on_beside_other_work(networks):
    rows, outs, found = _ragged(networks, ([1, 1], [1, 1]))
    for rank, (moved, beside, out) in enumerate(found):
        wanted = outs[rank].copy()
        for sender in range(2):
            wanted[sender] = rows[sender][rank]
        assert np.array_equal(moved, wanted)
        assert np.array_equal(beside, rows[rank] + 1)
        assert np.array_equal(out, outs[rank])


def test_a_ragged_exchange_beside_other_work_fails_where_too_much_comes(networks):
    *_, found = _ragged(networks, ([1, 9], [1, 1]))
    assert isinstance(found[1], xla.ExecutionError) and "rows 1..10 of 4" in str(found[1])
    # The sender gets what it was to get, unless it hears of the failure before.
    if not isinstance(found[0], xla.XlakitError):
        assert np.array_equal(found[0][0][:2], np.float32([[0, 1, 2], [100, 101, 102]]))
