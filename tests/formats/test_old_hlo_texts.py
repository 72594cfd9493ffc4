"""HLO text as older versions of XLA wrote it: names that have changed, and what was left out or said twice."""

from __future__ import annotations

import pytest

from xlakit.errors import ParseError
from xlakit.formats.hlo_text import parse_module, print_module
from xlakit.ir.instruction import HloModule


def test_what_old_texts_leave_out_or_call_otherwise():
    text = """HloModule m
    ENTRY e (a f32[4], n: s32[]) -> f32[<=8] {
      a = f32[4] parameter(0), original_value={{"a"}}
      n = s32[] parameter(1)
      b = f32[<=4] set-dimension-size(a, n), dimensions={0}
      ROOT c = f32[<=8] concatenate(f32[4] b, f32[<=4] a), dimensions={0}
    }"""
    module = parse_module(text)
    assert 'origin={{"a"}}' in print_module(module)
    assert parse_module(print_module(module)) == module
    with pytest.raises(ParseError, match=r"'b' is said to be f32\[5\], it is f32\[<=4\]"):
        parse_module(text.replace("f32[4] b", "f32[5] b"))


def test_old_texts_say_more_than_they_need():
    text = """HloModule m
f {
  ROOT p = f32[] parameter(0)
}, execution_thread="side"
ENTRY main {
  x = f32[] parameter(0), sharding={mesh['a'=2] [], replicated={'a'}}
  t = token[] after-all()
  c = f32[2,2] {0,1} constant(f32[2,2] { { 1, 2 }, { 3, 4 } })
  o = () outfeed(x, t)
  s = ((f32[]), f32[], u32[]) async-start(x), async_execution_thread="side", calls=f
  ROOT d = f32[] async-done(s), async_execution_thread="side", calls=f
}
"""
    module = HloModule.from_text(text)
    module.verify()
    outfeed = next(i for i in module.entry.instructions if i.opcode == "outfeed")
    assert outfeed.shape.is_token


@pytest.mark.parametrize(("old", "new"), [("less-than", "direction=LT"), ("cross-replica-sum", "all-reduce")])
def test_an_opcode_that_was_replaced_is_named_with_its_successor(old, new):
    text = f"HloModule m\nENTRY e {{ x = f32[2] parameter(0) ROOT y = f32[2] {old}(x, x) }}"
    with pytest.raises(ParseError, match=f"unknown opcode '{old}'") as caught:
        parse_module(text)
    assert new in caught.value.hint
