"""Plain code, vectors of other widths, and programs that are compared with their plain selves."""

from __future__ import annotations

import re
from contextvars import Context
from pathlib import Path

import numpy as np
import pytest

import xlakit
from fuzz.plain import fault_of, judge
from fuzz.programs.composed.modules import module as generated
from xlakit.cpu.cache.cache_key import program_key
from xlakit.cpu.execution.executable import CpuExecutable
from xlakit.errors import ArgumentError, InternalError
from xlakit.memory.coalescing import Coalescing
from xlakit.options import DEFAULT, KNOBS, PLAIN, compiling, current
from xlakit.passes.scheduling.collective_matmul import CollectiveMatmul

CHAIN = """
HloModule chain

e {
  x = f32[64] parameter(0)
  y = f32[64] tanh(x)
  z = f32[64] multiply(y, y)
  w = f32[64] add(z, x)
  ROOT s = (f32[64], f32[64]) sort(w, y), dimensions={0}, to_apply={
    a = f32[] parameter(0)
    b = f32[] parameter(1)
    c = f32[] parameter(2)
    d = f32[] parameter(3)
    ROOT r = pred[] compare(a, b), direction=LT
  }
}
"""

# The second update must not take the memory of x, which the result reads.
UPDATES = """
HloModule updates

e {
  p = f32[8] parameter(0)
  i = s32[] parameter(1)
  x = f32[8] sort(p), dimensions={0}, to_apply={
    a = f32[] parameter(0)
    b = f32[] parameter(1)
    ROOT r = pred[] compare(a, b), direction=LT
  }
  one = f32[1] constant({1})
  y = f32[8] dynamic-update-slice(x, one, i)
  z = f32[8] sort(y), dimensions={0}, to_apply={
    a = f32[] parameter(0)
    b = f32[] parameter(1)
    ROOT r = pred[] compare(a, b), direction=LT
  }
  ROOT t = (f32[8], f32[8]) tuple(z, x)
}
"""


def module_of(text: str) -> xlakit.HloModule:
    return xlakit.HloModule.from_text(text)


def compiled(text: str, **options: object) -> CpuExecutable:
    with compiling(**options):  # pyright: ignore[reportArgumentType]
        made = xlakit.compile(module_of(text), backend="cpu", cache=False)
    assert isinstance(made, CpuExecutable)
    return made


@pytest.mark.parametrize("what", [*PLAIN, "all"])
def test_generated_modules_are_the_same_plainly(what: str):
    assert [judge(generated(11, number), what) for number in range(4)] == [""] * 4


def test_what_plain_code_leaves_out():
    usual = compiled(CHAIN)
    assert "fusion(" in usual.as_text()
    assert "fusion(" not in compiled(CHAIN, plain="fusion").as_text()
    vectors = re.compile(r"<\d+ x float>")
    text = "HloModule m\ne { p = f32[64] parameter(0)  ROOT r = f32[64] sqrt(p) }"
    assert vectors.search(compiled(text).llvm_ir(optimized=False))
    assert not vectors.search(compiled(text, plain="llvm").llvm_ir(optimized=False))
    small = "HloModule m\ne { p = f32[2] parameter(0)  ROOT r = f32[2] sqrt(p) }"
    kernel = re.compile(r"call void @[\w.]*\br\(ptr")
    assert not kernel.search(compiled(small).llvm_ir())
    assert kernel.search(compiled(small, plain="inline").llvm_ir())


def test_plain_memory_is_used_once():
    compare = "a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = pred[] compare(a, b), direction="
    sorts = [
        f"r{i + 1} = f32[64] sort(r{i}), dimensions={{0}}, to_apply={{ {compare}{'GT' if i % 2 else 'LT'} }}"
        for i in range(6)
    ]
    chain = "\n".join(["HloModule m\ne { r0 = f32[64] parameter(0)", *sorts, "ROOT n = f32[64] negate(r6) }"])
    usual, plain = (compiled(chain, plain=what).memory_analysis() for what in ("", "memory"))
    assert plain.temp_size_in_bytes >= 6 * 256
    assert usual.temp_size_in_bytes < plain.temp_size_in_bytes


def test_empty_updates_without_rewrites():
    text = """ENTRY e {
      x = f32[8,3] parameter(0)
      u = f32[4,0] parameter(1)
      i = s32[] parameter(2)
      j = s32[] constant(0)
      ROOT r = f32[8,3] dynamic-update-slice(x, u, i, j)
    }"""
    x = np.arange(24, dtype=np.float32).reshape(8, 3)
    program = compiled(text, plain=frozenset({"rewrites"}))
    np.testing.assert_array_equal(program(x, np.zeros((4, 0), np.float32), np.int32(2)), x)


def test_options_are_part_of_the_key():
    module = module_of(CHAIN)
    keys: list[str | None] = []
    for asked in ({}, *({"plain": what} for what in PLAIN), {"vector_bytes": 16}):
        # The environment may ask for options, too.
        with compiling(DEFAULT, **asked):
            keys.append(program_key(module, 1, 1))
    if keys[0] is not None:  # sources that were edited while the tests run have no key
        assert len(set(keys)) == len(keys)


def test_the_environment_says_options(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XLAKIT_PLAIN", "memory, llvm")
    monkeypatch.setenv("XLAKIT_VERIFY", "plain")
    assert current().plain == {"memory", "llvm"}
    assert current().verify == set(PLAIN)
    monkeypatch.setenv("XLAKIT_PLAIN", "loops")
    with pytest.raises(xlakit.ArgumentError, match="XLAKIT_PLAIN names 'loops'"):
        current()
    monkeypatch.setenv("XLAKIT_PLAIN", "")
    monkeypatch.setenv("XLAKIT_VECTOR_BYTES", "24")
    with pytest.raises(xlakit.ArgumentError, match="XLAKIT_VECTOR_BYTES is '24'"):
        current()


@pytest.mark.parametrize("width", [16, 32, 64])
def test_vectors_of_every_width(width: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    # Where an arithmetic unit takes a part of a vector, several vectors are computed side by side.
    machine = tmp_path / "machine.json"
    machine.write_text('{"unit_bytes": 0}')
    monkeypatch.setenv("XLAKIT_MACHINE", str(machine))
    text = "HloModule m\ne { p = f32[640] parameter(0)  ROOT r = f32[640] sqrt(p) }"
    ir = compiled(text, vector_bytes=width).llvm_ir(optimized=False)
    assert {int(n) for n in re.findall(r"<(\d+) x float>", ir)} == {width // 4}
    with compiling(vector_bytes=width):
        assert [judge(generated(12, number)) for number in range(4)] == [""] * 4


def test_a_wrong_decision_about_memory_is_found(monkeypatch: pytest.MonkeyPatch):
    values = np.arange(8, 0, -1, dtype=np.float32)
    verified = compiled(UPDATES, verify="memory")
    np.testing.assert_array_equal(verified(values, 7)[1], np.sort(values))
    assert verified.direct_call is None
    monkeypatch.setattr(Coalescing, "interfere", lambda *_: False)
    monkeypatch.setenv("XLAKIT_CHECK_MEMORY", "0")
    with pytest.raises(InternalError, match=r"gives another result 1 than the plain program.*no rounding"):
        compiled(UPDATES, verify="memory")(values, 7)
    assert "no rounding may differ" in fault_of(module_of(UPDATES), [values, np.int32(7)], "memory")


def test_programs_with_effects_run_once():
    text = """
HloModule m
e {
  low = f32[] constant(0)
  high = f32[] constant(1)
  ROOT r = f32[4] rng(low, high), distribution=rng_uniform
}
"""
    assert compiled(text, verify="all")().shape == (4,)


def test_knobs_of_the_environment(monkeypatch):
    assert CollectiveMatmul.name == "collective-matmul"
    knob = KNOBS["collective_matmul.when"]

    def read():
        # Without the options of the tests, as another thread.
        return Context().run(lambda: (knob.value, current().text))

    before = read()
    monkeypatch.setenv("XLAKIT_KNOBS", "collective_matmul.when=2, combine_collectives.most_bytes=64")
    assert read()[0] == 2
    assert read()[1] != before[1]
    for wrong, message in (("collective_matmul.when", "XLAKIT_KNOBS has"), ("no.knob=1", "no knob 'no.knob'")):
        monkeypatch.setenv("XLAKIT_KNOBS", wrong)
        with pytest.raises(ArgumentError, match=message):
            read()
