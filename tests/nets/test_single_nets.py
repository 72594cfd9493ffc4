from __future__ import annotations

import importlib.util
import re

import ml_dtypes
import numpy as np
import pytest

import xlakit
from fuzz import attributes, jaxlib as jaxlib_net, mutations, specials
from fuzz.programs.draft import FAMILIES, Program
from fuzz.programs.operations.bits import Moves
from fuzz.programs.plan import Entry, plan
from fuzz.support.differences import CANNOT_RUN, DIFFERENCES, Mismatch
from fuzz.support.mutators import mutate_bytes, mutate_text
from fuzz.support.sensitivity import spread
from fuzz.support.tolerances import BITS, EXACT, SUMS, Measure, Tolerance, mismatches
from xlakit.cpu.loops.emit import levels
from xlakit.cpu.scalars import real
from xlakit.errors import InternalError
from xlakit.execution.options import ExecutionOptions
from xlakit.interpreter.executable import compile_module
from xlakit.ops.registry import OPERATIONS

needs_jaxlib = pytest.mark.skipif(importlib.util.find_spec("jaxlib") is None, reason="jaxlib is not installed")


def test_the_same_seed_makes_the_same_programs():
    first, second = (Entry("gather", 3, 5).make() for _ in range(2))
    assert first.text == second.text
    for a, b in zip(first.arguments[0], second.arguments[0], strict=True):
        assert a.tobytes() == b.tobytes()
    assert Entry("gather", 4, 5).make().text != first.text


def test_attributes_that_are_nearly_right_are_refused_or_mean_the_same_on_both_backends(capsys):
    assert attributes.main(["--seed", "1", "--count", "60"]) == 0
    said = capsys.readouterr().out
    assert all(int(re.search(rf"(\d+) {outcome}", said)[1]) > 5 for outcome in ("refused", "agreed")), said


def test_a_text_that_breaks_a_rule_and_is_accepted_is_found(monkeypatch):
    outcomes = {number: attributes.judge(1, number, attributes.Guarded()) for number in range(20)}
    refused = [number for number, outcome in outcomes.items() if outcome == "refused"]
    monkeypatch.setattr(xlakit.HloModule, "verify", lambda self: None)
    found = [attributes.judge(1, number, attributes.Guarded()) for number in refused]
    assert any(outcome.startswith("FAILED: text is accepted, though ") for outcome in found)


def test_operations_at_pairs_of_special_values():
    listed = specials.batches(3)
    # Each operation of each type once; those that show an operation at a pair of infinities.
    assert len({(b.kind, b.arity, o) for b in listed for o in b.opcodes}) == sum(len(b.opcodes) for b in listed)
    batch = next(b for b in listed if (b.kind, b.arity) == ("c64", 2) and "power" in b.opcodes)
    given = specials.arguments(batch, np.random.default_rng(1))
    assert any(np.isinf(x) and np.isinf(y) for x, y in zip(*given, strict=True))
    assert not specials.judge(batch, given)


def test_a_wrong_special_value_is_found(monkeypatch):
    batch = specials.Batch("f32", 1, ("floor", "sign"))
    monkeypatch.setattr(
        OPERATIONS["sign"], "evaluate", lambda self, context, x: np.where(np.isinf(x) | (x == 0), x, np.sign(x))
    )
    given = specials.arguments(batch, np.random.default_rng(1))
    assert "sign of f32: 1.0 instead of inf for " in specials.judge(batch, given)


@pytest.mark.parametrize("kind", ["bf16", "f16"])
def test_specials_see_bits_of_nans_that_moves_change(monkeypatch, kind):
    program = Moves(kind)
    given = [program.arguments(np.random.default_rng(number)) for number in range(3)]
    assert not any(specials.moved(program, each) for each in given)
    monkeypatch.setattr(levels, "as_moved", lambda node: node)
    assert any("changes the bits of" in specials.moved(program, each) for each in given)


def test_specials_see_what_goes_on_unrounded(monkeypatch):
    batch = specials.Batch("f8e3m4", 1, ("ceil", "convert bf16"))
    given = specials.arguments(batch, np.random.default_rng(1))
    assert not specials.judge(batch, given)
    monkeypatch.setattr(real, "_has_a_whole_largest_number", lambda _: True)
    assert specials.judge(batch, given).startswith("ceil of f8e3m4, converted: 16.0 instead of inf for ")


def test_a_plan_has_every_operation_and_enough_programs():
    entries = plan(500, seed=0)
    assert len(entries) >= 500
    assert {entry.opcode for entry in entries} == set(FAMILIES)
    assert {entry.opcode for entry in plan(10, 0, "sort")} == {"sort"}


def test_every_operation_has_programs_or_a_reason():
    # Every program has parameters; tokens are made for add-dependency; starts come with their ends.
    elsewhere = {"parameter", "after-all", "all-reduce-start", "all-gather-start", "collective-permute-start"}
    assert set(OPERATIONS) - set(FAMILIES) - set(CANNOT_RUN) == elsewhere


@pytest.mark.parametrize("opcode", sorted(FAMILIES))
def test_the_interpreter_runs_programs_of_every_operation(opcode):
    program = Entry(opcode, 7, 0).make()
    module = xlakit.HloModule.from_text(program.text)
    executable = compile_module(module, ExecutionOptions(num_replicas=len(program.arguments)))
    assert len(executable.execute_replicated(program.arguments)) == len(program.arguments)


@needs_jaxlib
def test_a_few_programs_agree_with_jaxlib():
    opcodes = ("add", "gather", "reduce-window", "convert", "dot", "sort", "all-reduce", "while")
    report = jaxlib_net.run([Entry(opcode, 11, 0) for opcode in opcodes])
    assert [f"{o.reproduce}: {o.detail}" for o in report.failures()] == []
    assert report.count("add", "agreed") == 1
    assert "all" in report.table()


def test_no_element_of_a_type_without_zero_is_an_intended_difference():
    text = """HloModule g
ENTRY e {
  x = f8e8m0fnu[5] parameter(0)
  i = s32[2] parameter(1)
  ROOT r = f8e8m0fnu[2] gather(x, i), offset_dims={}, collapsed_slice_dims={0}, start_index_map={0},
      index_vector_dim=1, slice_sizes={SIZE}
}"""
    nothing, given = np.zeros(2, np.uint8), np.full(2, 255, np.uint8)
    found = []
    for size in "01":
        program = Program("gather", text.replace("SIZE", size), (), EXACT)
        leaves = [[bits.view(ml_dtypes.float8_e8m0fnu)] for bits in (nothing, given)]
        found.append(DIFFERENCES["zero of powers"].explains(Mismatch(program, *leaves, None, None, agreed)))
    assert found == [True, False]


def agreed(left, right):
    return not any(mismatches(a, b, EXACT).any() for a, b in zip(left, right, strict=True))


@needs_jaxlib
def test_a_wrong_result_is_a_failure(monkeypatch):
    monkeypatch.setattr(OPERATIONS["negate"], "evaluate", lambda self, context, x: x)
    report = jaxlib_net.run([Entry("negate", 1, n) for n in range(3)])
    assert len(report.failures()) >= 1
    assert "HloModule negate" in report.failures()[0].text


def test_tolerances():
    one = np.array([1.0, np.nan, 0.0], dtype=np.float32)
    near = np.array([np.nextafter(np.float32(1), 2, dtype=np.float32), np.nan, 0.0], dtype=np.float32)
    assert mismatches(near, one, EXACT).tolist() == [True, False, False]
    nans = np.array([0x7FC0, 0x7FC1], np.uint16).view(ml_dtypes.bfloat16)
    assert mismatches(nans, nans[::-1], BITS).all()
    assert not mismatches(nans, nans[::-1], EXACT).any()
    assert not mismatches(near, one, Tolerance(Measure.ULPS, 1)).any()
    assert mismatches(-one, one, EXACT).tolist() == [True, False, True]
    terms = np.full(3, 100, dtype=np.float32)
    assert not mismatches(one + np.float32(1e-5), one, SUMS, terms).any()
    assert mismatches(one + np.float32(1e-3), one, SUMS, terms).tolist() == [True, False, True]
    assert mismatches(np.array([1, 2]), np.array([1, 3]), SUMS, None).tolist() == [False, True]


def test_mutants_are_refused_in_an_orderly_way_or_legal():
    tally = mutations.run(150, seed=5)
    assert tally.failures == []
    assert sum(tally.outcomes.values()) >= 150
    # Some are legal programs, which are compiled, too.
    assert 0 < tally.outcomes["use: accepted"] < tally.outcomes["text: accepted"] + 1


def test_a_mutant_is_the_same_for_the_same_seed():
    texts = [mutate_text("HloModule m\nENTRY e { ROOT p = f32[2] parameter(0) }", np.random.default_rng(1))] * 2
    assert texts[0] == texts[1]
    assert mutate_bytes(b"abcdef", np.random.default_rng(2)) == mutate_bytes(b"abcdef", np.random.default_rng(2))


def test_a_crash_is_a_failure():
    tally = mutations.Tally()

    def crash():
        raise RecursionError("deep")

    mutations.attempt(tally, "text", crash, "how to reproduce it")
    assert tally.outcomes["FAILED"] == 1
    assert "how to reproduce it" in tally.failures[0]


def test_an_internal_error_of_a_legal_program_is_a_failure(monkeypatch):
    def broken(module):
        raise InternalError("a pass broke it")

    monkeypatch.setattr(mutations, "run_pipeline", broken)
    tally = mutations.Tally()
    text = "HloModule m\nENTRY e { ROOT p = f32[2] parameter(0) }"
    assert not mutations.attempt(tally, "use", lambda: mutations.check_use(text), "how to reproduce it")
    assert "broke it" in tally.failures[0]


def test_what_hangs_on_roundings_is_told_from_what_does_not():
    text = """HloModule m
add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b) }
ENTRY e {
  x = f32[4] parameter(0)
  zero = f32[] constant(0)
  sum = f32[] reduce(x, zero), dimensions={0}, to_apply=add
  square = f32[] multiply(sum, sum)
  turned = f32[] cosine(square)
  count = s32[] constant(3)
  ROOT all = (f32[], f32[], s32[]) tuple(turned, sum, count)
}
"""
    spreads = spread(xlakit.HloModule.from_text(text), [np.float32([100, 200, 300, 71.3])])
    assert spreads["0"] > 0.01
    assert 0 < spreads["1"] < 1e-3
    assert spreads["2"] == 0
