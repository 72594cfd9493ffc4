"""The cost model: what it says for machines that differ, and that choices follow it."""

from dataclasses import replace

import pytest

import xlakit as xla
from xlakit import machine
from xlakit.cpu.loops.ir.cost import bytes_of, element_cost
from xlakit.cpu.loops.ir.index import Variable, of
from xlakit.cpu.loops.ir.nodes import Load
from xlakit.ops.elementwise.binary import Add, Divide
from xlakit.passes.analysis.cost_model import CostModel, cost_model

F32 = xla.PrimitiveType.F32
KIB = 1 << 10
USUAL = replace(machine.own(), l1=32 * KIB, l2=512 * KIB, l3=16384 * KIB, measured={})


def model(**measured: float) -> CostModel:
    return CostModel.of(replace(USUAL, measured=measured))


def test_bytes_cost_what_the_cache_gives_that_they_fit_into():
    costs = [model().loaded_byte(size) for size in (0, USUAL.l1, USUAL.l3, USUAL.l3 + 1)]
    assert costs == sorted(costs)
    assert costs[-1] == 1 / USUAL.rate("read_bytes_per_nanosecond_memory") > costs[0]


def test_nothing_is_read_faster_than_loads_are_issued():
    fast = {f"read_bytes_per_nanosecond_{level}": 1e6 for level in ("l1", "l2", "l3", "memory")}
    assert model(**fast).loaded_byte(1 << 40) == model().loaded_byte() == 0.2 * USUAL.cycle


def test_a_slower_clock_makes_all_that_is_counted_in_cycles_slower():
    slow, usual = model(cycle_nanoseconds=2 * USUAL.cycle), model()
    divide = Divide()
    assert slow.operation(divide).alone == 2 * usual.operation(divide).alone
    assert slow.operation(divide).in_vector == usual.operation(divide).in_vector
    assert slow.cycles(8.0) == 2 * usual.cycles(8.0)


def test_a_higher_peak_makes_products_and_lanes_faster():
    fast, usual = model(fused_per_nanosecond_f32=2 * USUAL.rate("fused_per_nanosecond_f32")), model()
    add = Add()
    assert fast.multiplication == usual.multiplication / 2
    assert fast.plain == usual.plain / 2 == fast.operation(add).in_vector
    assert fast.operation(add).alone == usual.operation(add).alone


def test_storing_an_array_costs_more_where_it_does_not_stay():
    slow = model(read_bytes_per_nanosecond_memory=1.0)
    small, large = (xla.Shape(F32, (size // 4,)) for size in (4 * KIB, 64 << 20))
    each = [
        (m.materialization(s) - m.materialization(xla.Shape(F32, (0,)))) / s.byte_size
        for m in (model(), slow)
        for s in (small, large)
    ]
    assert each[0] < each[1] < each[3]
    assert each[0] == pytest.approx(each[2])


def test_loops_over_arrays_that_no_cache_holds_cost_more(tmp_path, monkeypatch):
    path = tmp_path / "machine.json"
    path.write_text('{"measured": {"read_bytes_per_nanosecond_memory": 1.0}, "caches": {"l3": 16777216}}')
    monkeypatch.setenv("XLAKIT_MACHINE", str(path))
    load = Load(F32, 0, of(Variable(16 << 20, 0)))
    assert bytes_of([load, load]) == 64 << 20
    assert element_cost([load], array_bytes=bytes_of([load])) > element_cost([load])


def test_the_model_is_of_the_machine_that_the_environment_names(tmp_path, monkeypatch):
    path = tmp_path / "machine.json"
    path.write_text('{"measured": {"cycle_nanoseconds": 0.125}}')
    before = cost_model().cycles(1.0)
    monkeypatch.setenv("XLAKIT_MACHINE", str(path))
    assert cost_model().cycles(1.0) == 0.125
    monkeypatch.delenv("XLAKIT_MACHINE")
    assert cost_model().cycles(1.0) == before
