"""Knobs: thresholds that a net sets, so that small arrays take the ways of large ones."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import xlakit
from fuzz import forced
from xlakit.cpu.cache.cache_key import program_key
from xlakit.cpu.execution.executable import CpuExecutable
from xlakit.cpu.kernels.sort.plan import CHUNK, LONG_ROW
from xlakit.options import KNOBS, Options, compiling

SORT = """
HloModule m

ENTRY e {
  p = f32[500] parameter(0)
  ROOT r = f32[500] sort(p), dimensions={0}, to_apply={
    a = f32[] parameter(0)
    b = f32[] parameter(1)
    ROOT c = pred[] compare(a, b), direction=LT
  }
}
"""


def test_knobs_are_set_where_code_is_made():
    assert LONG_ROW.value == LONG_ROW.default
    with compiling(knobs={LONG_ROW.name: 100}):
        assert LONG_ROW.value == 100
        with compiling(knobs={CHUNK.name: 30}):
            assert (LONG_ROW.value, CHUNK.value) == (100, 30)
    assert LONG_ROW.value == LONG_ROW.default
    with pytest.raises(xlakit.ArgumentError, match="no knob 'speed'"), compiling(knobs={"speed": 1}):
        pass


def test_a_small_sort_is_shared_out():
    module = xlakit.HloModule.from_text(SORT)
    values = np.random.default_rng(0).standard_normal(500).astype(np.float32)
    plans = set[str]()
    for knobs in ({}, {LONG_ROW.name: 100, CHUNK.name: 60}):
        # In wider vectors keys alone are sorted by one thread.
        with compiling(knobs=knobs, vector_bytes=32):
            made = xlakit.compile(module, backend="cpu", cache=False)
        assert isinstance(made, CpuExecutable)
        plans.add(made.llvm_ir(optimized=False))
        np.testing.assert_array_equal(made(values), np.sort(values))
    assert len(plans) == 2


def test_knobs_are_part_of_the_key():
    module = xlakit.HloModule.from_text(SORT)
    usual = program_key(module, 1, 1)
    with compiling(knobs={LONG_ROW.name: 100}):
        forced_key = program_key(module, 1, 1)
    assert usual is None or usual != forced_key


def test_every_knob_has_other_numbers():
    assert len(KNOBS) > 100
    assert [k.name for k in KNOBS.values() if not k.others or k.default in k.others] == []


def test_draws_know_every_knob():
    sources = Path(xlakit.__file__).parent.rglob("*.py")
    named = {name for file in sources for name in re.findall(r'\bknob\(\s*"([^"]+)"', file.read_text(encoding="utf-8"))}
    assert len(named) > 150 and named <= set(KNOBS)


def test_draws_are_repeated_and_differ():
    assert forced.draw(3, 4) == forced.draw(3, 4)
    assert len({forced.draw(3, number).text for number in range(8)}) == 8


@pytest.mark.parametrize("number", range(6))
def test_programs_with_forced_sizes(number: int):
    assert forced.judge(*forced.program_of(17, number), forced.draw(17, number)) == ""


def test_a_fault_is_told_with_the_knobs_that_it_takes():
    program, _ = forced.program_of(17, 1)

    def judged(_: object) -> str:
        return "wrong" if LONG_ROW.value == 40 else ""

    options = Options(vector_bytes=16, knobs={LONG_ROW.name: 40, CHUNK.name: 16})
    assert forced.judge(program, judged, options) == "wrong (vectors of 16 bytes, knobs {'sort_plan.long_row': 40})"
