"""The sanitizer: it is silent about right programs, and names the step of each kind of fault."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import xlakit
from fuzz.programs.composed.modules import module as generated
from xlakit.cpu.debugging.sanitizer import SanitizedExecutable
from xlakit.cpu.debugging.verified import difference
from xlakit.cpu.entry import lowering, plan_proof
from xlakit.cpu.kernels.library import KernelLibrary
from xlakit.cpu.kernels.shared import blas
from xlakit.cpu.loops.emit.kernel import Kernel
from xlakit.errors import InternalError
from xlakit.memory.coalescing import Coalescing, ValueSet
from xlakit.memory.copy_insertion import CopyInsertion
from xlakit.memory.steps import CopyStep, Step
from xlakit.memory.values import HloValue
from xlakit.options import compiling, current
from xlakit.tools.inputs import flatten

COMPARE = "{ a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT r = pred[] compare(a, b), direction=LT }"
SORT = f"dimensions={{0}}, to_apply={COMPARE}"
UPDATES = f"""
HloModule updates

ENTRY e {{
  p = f32[64] parameter(0)
  i = s32[] parameter(1)
  x = f32[64] sort(p), {SORT}, metadata={{source_file="model.py" source_line=7}}
  one = f32[1] constant({{1}})
  y = f32[64] dynamic-update-slice(x, one, i), metadata={{source_file="model.py" source_line=8}}
  z = f32[64] sort(y), {SORT}, metadata={{source_file="model.py" source_line=9}}
  w = f32[64] add(z, x)
  ROOT v = f32[64] sort(w), {SORT}, metadata={{source_file="model.py" source_line=11}}
}}
"""
SWAP = """
HloModule swap

body {
  p = (s32[], f32[64], f32[64]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  a = f32[64] get-tuple-element(p), index=1
  b = f32[64] get-tuple-element(p), index=2
  one = s32[] constant(1)
  n = s32[] add(i, one)
  ROOT r = (s32[], f32[64], f32[64]) tuple(n, b, a)
}

condition {
  p = (s32[], f32[64], f32[64]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] parameter_bound()
  ROOT r = pred[] compare(i, n), direction=LT
}

ENTRY e {
  x = f32[64] parameter(0)
  y = f32[64] parameter(1)
  zero = s32[] constant(0)
  t = (s32[], f32[64], f32[64]) tuple(zero, x, y)
  w = (s32[], f32[64], f32[64]) while(t), condition=condition, body=body
  a = f32[64] get-tuple-element(w), index=1
  ROOT r = f32[64] negate(a)
}
""".replace("parameter_bound()", "constant(33)")
VALUES = np.random.default_rng(0).standard_normal(64).astype(np.float32)


@pytest.fixture(autouse=True)
def _plans_are_not_proved(monkeypatch: pytest.MonkeyPatch):
    """What the checker would say of wrong plans before they run, a run must show, too."""
    monkeypatch.setattr(plan_proof, "prove_memory_plan", lambda *_: None)


def sanitized(text: str, **given: Any) -> SanitizedExecutable:
    with compiling(sanitize=True):
        made = xlakit.compile(xlakit.HloModule.from_text(text), backend="cpu", cache=False, **given)
    assert isinstance(made, SanitizedExecutable)
    return made


@pytest.mark.parametrize("number", range(8))
def test_generated_modules_have_no_faults_and_the_same_results(number: int):
    program = generated(21, number)
    module = xlakit.HloModule.from_text(program.text)
    # Its kernels are the same, but that they stay functions.
    with compiling(plain="inline"):
        expected = flatten(xlakit.compile(module, backend="cpu", cache=False)(*program.arguments[0]))
    actual = flatten(sanitized(program.text)(*program.arguments[0]))
    # The sign of a NaN depends on the order of operands in machine code, which checks of bounds change.
    assert not {name: text for name, array in actual.items() if (text := difference(array, expected[name]))}


def test_loops_random_numbers_and_host_steps():
    made = sanitized(SWAP)(VALUES, VALUES + 1)
    np.testing.assert_array_equal(made, -(VALUES + 1))
    text = """
HloModule m
ENTRY e {
  low = f32[] constant(0)
  high = f32[] constant(1)
  r = f32[4] rng(low, high), distribution=rng_uniform
  q = f32[4] custom-call(r), custom_call_target="twice"
  ROOT s = f32[4] negate(q)
}
"""
    result = sanitized(text, custom_calls={"twice": lambda x: 2 * x})()  # pyright: ignore
    assert np.all(result <= 0) and np.all(result >= -2)


def test_an_update_in_place_that_is_too_early(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Coalescing, "interfere", lambda *_: False)
    with pytest.raises(InternalError) as caught:
        sanitized(UPDATES)(VALUES, 7)
    text = str(caught.value)
    assert "reads 'x', whose memory holds something else by now" in text
    assert "has written there last" in text


def test_a_value_that_dies_too_early(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ValueSet, "last", property(lambda own: own.first))  # pyright: ignore
    with pytest.raises(InternalError, match=r"reads '[a-z]', in whose memory '[a-z]([.]scratch)?' lies"):
        sanitized(UPDATES)(VALUES, 7)


def test_a_result_in_the_memory_of_an_operand_that_is_still_read(monkeypatch: pytest.MonkeyPatch):
    text = f"""
HloModule m
ENTRY e {{
  p = f32[64] parameter(0)
  x = f32[64] sort(p), {SORT}
  y = f32[64] reverse(x), dimensions={{0}}
  w = f32[64] add(x, y)
  ROOT z = f32[64] sort(w), {SORT}
}}
"""
    sanitized(text)(VALUES)
    monkeypatch.setattr(lowering, "in_place_pairs", lambda *_: frozenset({(0, 0)}))  # pyright: ignore
    with pytest.raises(InternalError, match="it overwrites what it still reads"):
        sanitized(text)(VALUES)


def test_a_function_that_writes_one_element_too_far():
    @ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p))
    def wild(out: int, inputs: Any) -> None:
        ctypes.memmove(out, inputs[0], 256)
        ctypes.memset(out + 256, 1, 4)

    text = f"""
HloModule m
ENTRY e {{
  p = f32[64] parameter(0)
  x = f32[64] sort(p), {SORT}
  y = f32[64] custom-call(x), custom_call_target="wild", metadata={{source_file="model.py" source_line=5}}
  ROOT z = f32[64] sort(y), {SORT}
}}
"""
    with pytest.raises(InternalError) as caught:
        sanitized(text, custom_calls={"wild": wild})(VALUES)
    assert "writes outside of its results, 0 bytes behind one" in str(caught.value)
    assert "custom-call 'y'" in str(caught.value)
    assert "model.py:5" in str(caught.value)


def test_elements_that_are_not_written(monkeypatch: pytest.MonkeyPatch):
    kernel = KernelLibrary.kernel

    def fewer(self: KernelLibrary, instruction: Any) -> Kernel | None:
        made = kernel(self, instruction)
        if made is None or instruction.opcode == "sort":
            return made
        return replace(made, phases=tuple(replace(p, tasks=p.tasks - 1) for p in made.phases))

    monkeypatch.setattr(KernelLibrary, "kernel", fewer)
    with (
        compiling(knobs={"kernel.task_nanoseconds": 50.0}),
        pytest.raises(InternalError, match="gives other elements of result 0 each time"),
    ):
        sanitized("HloModule m\nENTRY e { p = f32[4096] parameter(0)  ROOT r = f32[4096] tanh(p) }")(
            np.ones(4096, np.float32)
        )


def test_state_that_is_overwritten_before_it_is_carried_on(monkeypatch: pytest.MonkeyPatch):
    def careless(_: CopyInsertion, pairs: Iterable[tuple[HloValue, HloValue]], number: int) -> tuple[Step, ...]:
        return tuple(CopyStep(source, target) for source, target in pairs)

    monkeypatch.setattr(CopyInsertion, "_parallel_copy", careless)
    with pytest.raises(InternalError, match=r"while 'w': .* should go on with .* holds something else"):
        sanitized(SWAP)(VALUES, VALUES + 1)


def test_the_environment_switches_it_on(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XLAKIT_SANITIZE", "1")
    assert current().sanitize
    monkeypatch.setenv("XLAKIT_SANITIZE", "yes")
    with pytest.raises(xlakit.ArgumentError, match="XLAKIT_SANITIZE is 'yes'"):
        current()


def test_libraries_use_one_thread_in_steps_as_in_entries():
    # Sums of large systems are added in another order by several threads.
    symbols = [blas.resolve(f"{blas.PREFIX}{name}_threads") for name in ("get", "set")]
    get_threads = ctypes.CFUNCTYPE(ctypes.c_int)(symbols[0])
    set_threads = ctypes.CFUNCTYPE(None, ctypes.c_int)(symbols[1])
    before = get_threads()
    text = """
ENTRY e {
  a = c128[19,19] parameter(0)
  b = c128[19,387] parameter(1)
  ROOT x = c128[19,387] triangular-solve(a, b), left_side=true, lower=true, transpose_a=TRANSPOSE
}"""
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(sizes) + 1j * rng.standard_normal(sizes) for sizes in ((19, 19), (19, 387)))
    with compiling(sanitize=True):
        executable = xlakit.compile(xlakit.HloModule.from_text(text), backend="cpu")
    seen: list[int] = []
    name, function = next(iter(executable._functions.items()))
    executable._functions[name] = lambda *call: (seen.append(get_threads()), function(*call))
    set_threads(2)
    try:
        executable(a + 4 * np.eye(19), b)
        assert get_threads() == 2
    finally:
        set_threads(before)
    assert seen
    assert set(seen) == {1}
