"""The comparison of what two trees make of programs, and that one tree always makes the same of a program."""

from __future__ import annotations

from pathlib import Path

import pytest

import xlakit
from fuzz import replay
from fuzz.support.recorder import record

_EXAMPLES = Path(__file__).parents[2] / "examples" / "hlo"
# A row's kernel keeps the four expensive values for its second stage.
_KEPT_VALUES = """HloModule kept
add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT sum = f32[] add(a, b)
}
ENTRY e {
  x = f32[64,256] parameter(0)
  e = f32[64,256] exponential(x)
  s = f32[64,256] sine(x)
  t = f32[64,256] tanh(x)
  l = f32[64,256] log(x)
  left = f32[64,256] multiply(e, s)
  right = f32[64,256] multiply(t, l)
  both = f32[64,256] add(left, right)
  zero = f32[] constant(0)
  sums = f32[64] reduce(both, zero), dimensions={1}, to_apply=add
  rows = f32[64,256] broadcast(sums), dimensions={0}
  a = f32[64,256] add(e, rows)
  b = f32[64,256] multiply(a, s)
  c = f32[64,256] multiply(b, t)
  ROOT r = f32[64,256] divide(c, l)
}"""


def test_the_first_stage_that_differs_is_named_and_the_functions_that_do():
    before = {"hlo": "a\nb", "llvm": "define void @f(i64) {\n x\n}\ndefine void @g() {\n y\n}", "assembly": "1"}
    after = {"hlo": "a\nb", "llvm": "define void @f(i64) {\n x\n}\ndefine void @g() {\n z\n}", "assembly": "2"}
    found = replay.compare("p", before, after)
    assert found is not None
    assert str(found) == "p: llvm: g"
    assert found.diff("llvm")[-3:] == ["- y", "+ z", " }"]
    assert replay.compare("p", before, dict(before)) is None


@pytest.mark.parametrize(
    "digests", [("0123456789abcdef", "fedcba9876543210"), ("fedcba9876543210", "0123456789abcdef")]
)
def test_digests_in_names_are_compared_by_their_order(digests: tuple[str, str]):
    before = {"llvm": "call @pad.00000000000000aa()\ncall @product.00000000000000bb()\ncall @pad.00000000000000aa()"}
    after = {"llvm": "call @pad.{0}()\ncall @product.{1}()\ncall @pad.{0}()".format(*digests)}
    assert replay.compare("p", before, after) is None
    other = {"llvm": "call @pad.{0}()\ncall @product.{1}()\ncall @pad.{1}()".format(*digests)}
    assert replay.compare("p", before, other) is not None


def test_a_program_that_no_longer_compiles_differs():
    found = replay.compare("p", {"hlo": "a"}, {"error": "unsupported"})
    assert found is not None
    assert found.stage == "error"


def code(text: str) -> str:
    return xlakit.compile(xlakit.HloModule.from_text(text), backend="cpu", cache=False).llvm_ir(optimized=False)


@pytest.mark.parametrize("name", ["scan", "sort", "transformer_block_grad"])
def test_the_same_program_becomes_the_same_code(name: str):
    assert len({code((_EXAMPLES / f"{name}.hlo").read_text()) for _ in range(3)}) == 1


def test_the_order_of_kept_values_does_not_depend_on_where_instructions_are_in_memory():
    assert len({code(_KEPT_VALUES) for _ in range(4)}) == 1


def test_all_stages_are_recorded():
    stages = record("HloModule m\nENTRY e {\n  p = f32[8] parameter(0)\n  ROOT r = f32[8] negate(p)\n}")
    assert set(stages) == {"hlo", "memory", "llvm", "assembly"}
    assert "negate" in stages["hlo"]
