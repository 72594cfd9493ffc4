"""Effects in compiled programs: never reordered, left out or done twice, wherever they stand."""

import pytest
from effects import Effects, trace

import xlakit as xla
from xlakit.passes.pipeline import run_pipeline


@pytest.mark.parametrize("seed", range(12))
def test_effects_happen_as_the_program_says(seed):
    program = Effects(seed).program()
    for argument in (0, 3):
        expected = trace(program, "interpreter", argument)
        assert trace(program, "cpu", argument) == expected


def test_fusion_keeps_the_order_of_effects():
    # One kernel that reads p once would come after the infeed, and the outfeed, which needs a part of it, as well.
    module = xla.HloModule.from_text("""
    HloModule m
    ENTRY e {
      p = f32[8] parameter(0)
      n = f32[8] negate(p)
      first = token[] after-all()
      given = token[] outfeed(n, first), outfeed_shape=f32[8]
      second = token[] after-all()
      taken = (f32[8], token[]) infeed(second)
      y = f32[8] get-tuple-element(taken), index=0
      ROOT r = f32[8] subtract(p, y) }
    """)
    opcodes = [i.opcode for i in run_pipeline(module).entry.instructions]
    assert opcodes.index("outfeed") < opcodes.index("infeed")
