"""Traces, shadow values and divergences: the numbers of a program, instruction by instruction."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import xlakit as xla
from xlakit.tools.cli import main
from xlakit.tools.numerics.divergence import first_divergence
from xlakit.tools.numerics.errors import error_size, ulps
from xlakit.tools.numerics.sides import Ready, Side
from xlakit.tools.numerics.statistics import statistics_of

_LOOP = """
HloModule loop

body {
  state = (f32[3], s32[]) parameter(0)
  x = f32[3] get-tuple-element(state), index=0
  i = s32[] get-tuple-element(state), index=1
  one = s32[] constant(1)
  next = s32[] add(i, one)
  ones = f32[3] constant({1, 1, 1})
  less = f32[3] subtract(x, ones), metadata={source_file="train.py" source_line=7}
  log = f32[3] log(less), metadata={source_file="train.py" source_line=8}
  ROOT result = (f32[3], s32[]) tuple(log, next)
}

condition {
  state = (f32[3], s32[]) parameter(0)
  i = s32[] get-tuple-element(state), index=1
  n = s32[] constant(4)
  ROOT before = pred[] compare(i, n), direction=LT
}

ENTRY main {
  p = f32[3] parameter(0)
  zero = s32[] constant(0)
  init = (f32[3], s32[]) tuple(p, zero)
  loop = (f32[3], s32[]) while(init), condition=condition, body=body
  ROOT out = f32[3] get-tuple-element(loop), index=0
}
"""
_X = np.array([9.0, 1000.0, 5.0], np.float32)


def _module(text: str) -> xla.HloModule:
    return xla.HloModule.from_text(text)


# -- statistics ----------------------------------------------------------------------------------------


def test_statistics_leave_out_what_is_not_finite():
    made = statistics_of(np.array([1.0, np.nan, -3.0, np.inf], np.float32))
    assert (made.minimum, made.maximum, made.mean, made.nans, made.infinities) == (-3.0, 1.0, -1.0, 1, 1)


def test_statistics_of_empty_narrow_and_complex_arrays():
    assert statistics_of(np.zeros((0, 3), np.float32)).count == 0
    assert statistics_of(np.array([1, 2], ml_dtypes.bfloat16)).mean == 1.5
    assert statistics_of(np.array([True, False, False, False])).mean == 0.25
    made = statistics_of(np.array([3 + 4j, complex(np.inf, np.nan), complex(0, np.nan)], np.complex64))
    assert (made.maximum, made.nans, made.infinities) == (5.0, 1, 1)


def test_statistics_of_the_largest_numbers_have_a_mean():
    large = np.full(4, np.finfo(np.float64).max)
    assert statistics_of(large).mean == pytest.approx(np.finfo(np.float64).max)


def test_statistics_of_two_arrays_together_are_those_of_all_elements():
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal(5), rng.standard_normal(11)
    b[3] = np.nan
    joined, all_of = statistics_of(a).joined(statistics_of(b)), statistics_of(np.concatenate([a, b]))
    assert joined.mean == pytest.approx(all_of.mean)
    assert (joined.minimum, joined.maximum, joined.nans) == (all_of.minimum, all_of.maximum, 1)
    nothing = statistics_of(np.array([np.nan]))
    assert nothing.joined(statistics_of(a)).mean == pytest.approx(a.mean())


# -- traces --------------------------------------------------------------------------------------------


def test_a_trace_names_the_instruction_iteration_and_line_of_the_first_nan():
    trace = xla.trace_values(_module(_LOOP), _X)
    origin = trace.first_nan
    assert origin is not None
    assert (origin.instruction.name, origin.path, str(origin.location)) == ("log", "iteration 2 of %loop", "train.py:8")
    assert origin.element == (0,)
    assert origin.operands is not None
    assert origin.operands[0] == pytest.approx(math.log(math.log(9 - 1) - 1) - 1, rel=1e-5)
    assert "first NaN: %log (log), iteration 2 of %loop at train.py:8" in str(trace)
    # As many digits as the type has.
    assert f" = {np.float32(origin.operands[0])!s}\n" in f"{trace}\n"


def test_a_trace_has_all_executions_together_and_each_alone():
    trace = xla.trace_values(_module(_LOOP), _X, iterations=True)
    rows = {row.name: row for row in trace.rows}
    assert rows["%less"].executions == 4
    assert [iteration for iteration, _ in rows["%less"].iterations] == [(0,), (1,), (2,), (3,)]
    assert rows["%less"].iterations[0][1].minimum == 4.0
    assert rows["%before"].executions == 5
    np.testing.assert_array_equal(trace.results[0], xla.compile(_module(_LOOP), backend="interpreter")(_X))
    assert json.loads(trace.as_json())["first_nan"]["location"] == "train.py:8"


def test_nans_that_are_given_or_written_have_no_origin_in_an_operation():
    text = """
HloModule m
ENTRY e {
  p = f32[2] parameter(0)
  c = f32[2] constant({nan, 1})
  ROOT s = f32[2] add(p, c)
}"""
    assert xla.trace_values(_module(text), np.ones(2, np.float32)).first_nan is None
    given = xla.trace_values(_module(text), np.array([1, np.nan], np.float32)).first_nan
    assert given is not None
    assert (given.instruction.name, given.element) == ("p", (1,))


def test_a_trace_joins_the_devices():
    text = """
HloModule m, replica_count=2
add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b) }
ENTRY e {
  p = f32[2] parameter(0)
  r = u32[] replica-id()
  s = f32[2] all-reduce(p), replica_groups={}, to_apply=add
  ROOT t = (f32[2], u32[]) tuple(s, r)
}"""
    rows = {row.name: row for row in xla.trace_values(_module(text), np.ones(2, np.float32)).rows}
    assert rows["%s"].executions == 2
    assert (rows["%r"].statistics.minimum, rows["%r"].statistics.maximum) == (0, 1)


# -- shadow values -------------------------------------------------------------------------------------


def test_an_error_is_born_by_rounding_and_amplified_by_cancellation():
    text = """
HloModule m
ENTRY e {
  p = f32[100] parameter(0)
  narrow = bf16[100] convert(p)
  wide = f32[100] convert(narrow)
  ROOT rest = f32[100] subtract(wide, p)
}"""
    rng = np.random.default_rng(0)
    report = xla.shadow_errors(_module(text), rng.standard_normal(100).astype(np.float32))
    rows = {row.instruction.name: row for row in report.rows}
    assert rows["narrow"].born == pytest.approx(0.5, abs=0.05)
    assert 2**-10 < rows["narrow"].error.relative < 2**-8
    assert rows["wide"].born == 0
    assert rows["rest"].error.relative == 1.0
    assert rows["rest"].amplification > 100
    assert report.most_amplified()[0].instruction.name == "rest"
    assert report.outputs[0][1].relative == 1.0


def test_shadows_go_through_loops_calls_and_tuples():
    text = """
HloModule m
square { x = f32[] parameter(0)
  ROOT y = f32[] multiply(x, x) }
body { state = (f32[], s32[]) parameter(0)
  x = f32[] get-tuple-element(state), index=0
  i = s32[] get-tuple-element(state), index=1
  one = s32[] constant(1)
  next = s32[] add(i, one)
  y = f32[] call(x), to_apply=square
  ROOT result = (f32[], s32[]) tuple(y, next) }
condition { state = (f32[], s32[]) parameter(0)
  i = s32[] get-tuple-element(state), index=1
  n = s32[] constant(5)
  ROOT before = pred[] compare(i, n), direction=LT }
ENTRY e { p = f32[] parameter(0)
  zero = s32[] constant(0)
  init = (f32[], s32[]) tuple(p, zero)
  loop = (f32[], s32[]) while(init), condition=condition, body=body
  ROOT out = f32[] get-tuple-element(loop), index=0 }"""
    x = np.float32(1.01)
    report = xla.shadow_errors(_module(text), x)
    exact = float(x) ** 32
    (result,) = report.results
    assert report.outputs[0][1].relative == pytest.approx(abs(float(result) - exact) / exact, rel=1e-6)
    rows = {row.instruction.name: row for row in report.rows}
    assert rows["y"].executions in (5, 10)
    assert report.rows[0].path.startswith("iteration 4 of %loop")


def test_a_sort_orders_the_shadows_as_it_orders_the_numbers():
    text = """
HloModule m
less { a = f32[] parameter(0)
  b = f32[] parameter(1)
  c = f32[] parameter(2)
  d = f32[] parameter(3)
  ROOT l = pred[] compare(a, b), direction=LT }
ENTRY e { p = f32[4] parameter(0)
  q = f32[4] parameter(1)
  half = f32[4] constant({1e8, 1e8, 1e8, 1e8})
  k = f32[4] add(p, half)
  v = f32[4] sqrt(q)
  ROOT s = (f32[4], f32[4]) sort(k, v), dimensions={0}, is_stable=true, to_apply=less }"""
    # In F32 all keys are equal, in F64 they are in the opposite order.
    report = xla.shadow_errors(_module(text), np.array([3, 2, 1, 0], np.float32), np.arange(4, dtype=np.float32))
    assert report.outputs[1][1].relative < 1e-7


def test_what_has_no_shadow_begins_again():
    text = """
HloModule m
ENTRY e {
  p = f32[4] parameter(0)
  e = f32[4] exponential(p)
  bits = s32[4] bitcast-convert(e)
  back = f32[4] bitcast-convert(bits)
  ROOT r = f32[4] negate(back)
}"""
    report = xla.shadow_errors(_module(text), np.ones(4, np.float32))
    rows = {row.instruction.name: row for row in report.rows}
    assert rows["e"].error.relative > 0
    assert rows["r"].error.relative == 0


def test_what_custom_calls_of_other_backends_compute_has_shadows():
    numbers = '{"lhs_contracting_dimensions":["1"],"rhs_contracting_dimensions":["0"]}'
    config = f'{{"alpha_real":1,"dot_dimension_numbers":{numbers}}}'
    call = f'custom-call(p, p), custom_call_target="__cublas$gemm", backend_config={config}'
    text = f"HloModule m\nENTRY e {{\n  p = f16[2,2] parameter(0)\n  ROOT r = f16[2,2] {call}\n}}"
    report = xla.shadow_errors(_module(text), np.full((2, 2), 0.1, np.float16))
    rows = {row.instruction.opcode: row for row in report.rows}
    assert 0 < rows["convert"].error.relative < 2**-10
    assert report.outputs[0][1] == rows["convert"].error
    assert rows["convert"].location is None


def test_a_program_in_f64_has_no_shadow():
    text = "HloModule m\nENTRY e {\n  p = f64[2] parameter(0)\n  ROOT r = f64[2] negate(p)\n}"
    with pytest.raises(xla.ArgumentError, match="no floating point type narrower than f64"):
        xla.shadow_errors(_module(text), np.ones(2))


def test_errors_in_units_in_the_last_place():
    x = np.array([1.0, 3.0], np.float32)
    assert ulps(x, np.array([1 + 2.0**-24, 3.0])) == 0.5
    assert ulps(np.array([np.inf], np.float32), np.array([1e39])) == 0
    assert ulps(np.array([0.0], np.float32), np.array([2.0**-150])) == 0.5
    assert error_size(np.array([np.nan], np.float32), np.array([1.0])).relative == np.inf
    assert error_size(np.array([np.nan], np.float32), np.array([np.nan])).relative == 0
    assert error_size(np.zeros(0, np.float32), np.zeros(0)).absolute == 0


# -- divergences ---------------------------------------------------------------------------------------


def _interpreted(module: xla.HloModule) -> Ready:
    executable = xla.compile(module, backend="interpreter")
    return lambda arguments: [executable(*given) for given in arguments]


def _wrong(old: str, new: str) -> Callable[[xla.HloModule], Ready]:
    """A backend that takes one operation for another."""
    return lambda module: _interpreted(_module(module.to_text().replace(f" {old}(", f" {new}(")))


def _found(text: str, actual: Callable[[xla.HloModule], Ready], arguments: Sequence[Any]) -> Any:
    module = _module(text)
    return first_divergence(Side(module, actual), Side(module, _interpreted), [arguments])


def test_a_wrong_instruction_in_a_loop_is_found_with_its_iteration_and_values():
    found = _found(_LOOP, _wrong("log", "cosine"), [_X])
    assert found.instruction.name == "log"
    assert found.path == ("iteration 0 of %loop",)
    assert found.element == (0,)
    assert float(found.expected) == pytest.approx(math.log(8))
    assert float(found.actual) == pytest.approx(math.cos(8))
    assert found.operands == (("less", "8.0"),)
    assert str(found.location) == "train.py:8"
    assert json.loads(found.as_json())["path"] == ["iteration 0 of %loop"]


def test_a_wrong_condition_is_found():
    found = _found(_LOOP.replace("log(less)", "abs(less)"), _condition_off_by_one, [_X])
    assert (found.instruction.name, found.path) == ("before", ("iteration 4 of %loop",))


def _condition_off_by_one(module: xla.HloModule) -> Ready:
    return _interpreted(_module(module.to_text().replace("direction=LT", "direction=LE")))


def test_a_wrong_instruction_in_a_branch_is_found():
    text = """
HloModule m
yes { x = f32[2] parameter(0)
  ROOT a = f32[2] negate(x) }
no { x = f32[2] parameter(0)
  ROOT b = f32[2] sine(x) }
ENTRY e {
  p = f32[2] parameter(0)
  t = pred[] parameter(1)
  q = f32[2] exponential(p)
  ROOT r = f32[2] conditional(t, q, q), true_computation=yes, false_computation=no
}"""
    arguments = [np.ones(2, np.float32), np.array(False)]
    found = _found(text, _wrong("sine", "cosine"), arguments)
    assert (found.instruction.name, found.path) == ("b", ("in %r",))
    assert _found(text, _wrong("negate", "abs"), arguments) is None


def test_what_cancellation_makes_of_roundings_is_no_difference():
    text = """
HloModule m
ENTRY e {
  p = f32[4] parameter(0)
  factor = f32[4] constant({1.0000001, 1.0000001, 1.0000001, 1.0000001})
  q = f32[4] multiply(p, factor)
  rest = f32[4] subtract(q, p)
  ROOT out = f32[4] negate(rest)
}"""

    def rounding_otherwise(module: xla.HloModule) -> Ready:
        return _interpreted(_module(module.to_text().replace("1.00000012", "1.00000024")))

    found = _found(text, rounding_otherwise, [np.arange(1, 5, dtype=np.float32)])
    # The results are far apart, and say so; but no instruction gives them for the same operands.
    assert found.instruction.name == "out"
    assert found.comparison.max_relative > 0.4
    assert "no instruction differs" in found.note


def test_the_start_of_an_operation_is_no_result_and_its_end_is_compared():
    text = """
    HloModule starts
    inner {
      p = f32[2] parameter(0)
      ROOT n = f32[2] negate(p)
    }
    ENTRY main {
      x = f32[2] parameter(0)
      copied = (f32[2], f32[2], u32[]) copy-start(x)
      y = f32[2] copy-done(copied)
      started = ((f32[2]), f32[2], u32[]) async-start(y), calls=inner
      updated = ((f32[2]), f32[2], u32[]) async-update(started)
      ROOT ended = f32[2] async-done(updated)
    }"""
    old = xla.HloModule.from_text(text)
    assert xla.find_divergence(old, np.ones(2, np.float32), against="interpreter") is None
    found = xla.find_divergence(
        xla.HloModule.from_text(text.replace("negate", "abs")), np.ones(2, np.float32), against=old
    )
    assert found is not None and found.instruction.name == "ended"
    assert found.operands == (("y", "1.0"),)


def test_programs_that_give_the_same_do_not_differ_where_their_instructions_do():
    # The call and the first instruction after it was inlined are of one line.
    before = """
    HloModule before
    inner {
      p = f32[4] parameter(0)
      d = f32[4] negate(p)
      ROOT m = f32[4] tanh(d)
    }
    ENTRY main {
      x = f32[4] parameter(0)
      ROOT c = f32[4] call(x), to_apply=inner, metadata={source_file="f.py" source_line=2}
    }"""
    after = """
    HloModule after
    wrapped {
      p = f32[4] parameter(0)
      ROOT d = f32[4] negate(p)
    }
    ENTRY main {
      x = f32[4] parameter(0)
      w = f32[4] fusion(x), kind=kLoop, calls=wrapped, metadata={source_file="f.py" source_line=2}
      ROOT m = f32[4] tanh(w), metadata={source_file="f.py" source_line=2}
    }"""
    first, second = map(xla.HloModule.from_text, (before, after))
    x = np.arange(4, dtype=np.float32)
    assert xla.find_divergence(first, x, against=second) is None
    assert xla.find_divergence(second, x, against=first) is None


def test_what_is_compared_with_has_its_constants_filled(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "elided.hlo"
    path.write_text("ENTRY e { x = f32[9] parameter(0) c = f32[9] constant({...}) ROOT r = f32[9] add(x, c) }")
    assert main(["run", str(path), "--against", str(path), "--fill-elided", "random"]) == 0
    assert capsys.readouterr().out == "no instruction differs\n"


def test_two_programs_are_compared_by_structure():
    renamed = _LOOP.replace("less", "minus").replace("log = ", "result_of_log = ").replace("(log,", "(result_of_log,")
    renamed = renamed.replace("log(minus)", "log-plus-one(minus)")
    found = xla.find_divergence(_module(renamed), _X, against=_module(_LOOP))
    assert found is not None
    assert found.instruction.name == "result_of_log"
    assert xla.find_divergence(_module(renamed), _X, against=_module(renamed)) is None


def test_two_programs_are_compared_by_names():
    other = _module(_LOOP.replace("log(less)", "sqrt(less)"))
    found = xla.find_divergence(other, _X, against=_module(_LOOP))
    assert found is not None
    assert found.instruction.name == "log"
    assert xla.find_divergence(_module(_LOOP), _X, against=_module(_LOOP.replace("%p", "%q"))) is None


@pytest.mark.parametrize("against", ["interpreter", "plain"])
def test_the_compiler_agrees_with(against: str):
    assert xla.find_divergence(_module(_LOOP), _X, against=against) is None


def test_a_program_may_have_the_names_that_results_get():
    text = "HloModule m\nENTRY e {\n  values = f32[2] parameter(0)\n  ROOT r = f32[2] negate(values)\n}"
    assert xla.find_divergence(_module(text), np.ones(2, np.float32), against="interpreter") is None


def test_refused():
    with pytest.raises(xla.ArgumentError, match="there is no against='nothing'"):
        xla.find_divergence(_module(_LOOP), _X, against="nothing")
    with pytest.raises(xla.ArgumentError, match="loop runs on 1 devices, loop on 2"):
        xla.find_divergence(_module(_LOOP.replace("loop\n", "loop, replica_count=2\n", 1)), _X, against=_module(_LOOP))
    other = _module("HloModule m\nENTRY e {\n  p = f64[2] parameter(0)\n  ROOT r = f64[2] negate(p)\n}")
    with pytest.raises(xla.ArgumentError, match="takes"):
        xla.find_divergence(_module(_LOOP), _X, against=other)


# -- the command line ----------------------------------------------------------------------------------


@pytest.fixture(name="file")
def _file(tmp_path: Path) -> str:
    (tmp_path / "loop.hlo").write_text(_LOOP)
    np.savez(tmp_path / "x.npz", p=_X)
    return str(tmp_path / "loop.hlo")


def test_run_trace(file: str, capsys: pytest.CaptureFixture[str]):
    given = ["--input", file.replace("loop.hlo", "x.npz")]
    assert main(["run", file, "--trace", *given]) == 0
    assert "first NaN: %log (log), iteration 2 of %loop at train.py:8" in capsys.readouterr().out
    assert main(["run", file, "--trace", "--each-iteration", "--json", *given]) == 0
    rows = {row["instruction"]: row for row in json.loads(capsys.readouterr().out)["rows"]}
    assert [i["iteration"] for i in rows["less"]["iterations"]] == [[0], [1], [2], [3]]


def test_run_shadow(file: str, capsys: pytest.CaptureFixture[str]):
    assert main(["run", file, "--shadow", "f64"]) == 0
    assert "errors" in capsys.readouterr().out
    assert main(["run", file, "--shadow", "f64", "--json"]) == 0
    assert {"log", "less"} <= {row["instruction"] for row in json.loads(capsys.readouterr().out)["rows"]}


def test_run_against(file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["run", file, "--against", "interpreter"]) == 0
    assert capsys.readouterr().out == "no instruction differs\n"
    (tmp_path / "other.hlo").write_text(_LOOP.replace("log(less)", "cosine(less)"))
    assert main(["run", file, "--against", str(tmp_path / "other.hlo")]) == 1
    assert "first difference: %log, iteration 0 of %loop at train.py:8" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--each-iteration"], "--each-iteration is for reports"),
        (["--trace", "--iterations", "3"], "--iterations does not go with a report"),
    ],
)
def test_options_that_do_not_fit(file: str, options: list[str], message: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as exit:
        main(["run", file, *options])
    assert exit.value.code == 2
    assert message in capsys.readouterr().err


def test_what_is_compared_with_must_be_there(file: str, capsys: pytest.CaptureFixture[str]):
    assert main(["run", file, "--against", "no.hlo"]) == 1
    assert "--against no.hlo is no file" in capsys.readouterr().err
