"""All faults of a text at once, each at its line with a caret; what follows from one that is told is not told again."""

import random

import pytest

from xlakit.errors import ParseError, XlakitError
from xlakit.formats.hlo_text.faults import check_text
from xlakit.ir.instruction import HloModule

BAD = """HloModule bad

plus {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] ad(a, b)
}

ENTRY main {
  x = f32[3] parameter(0)
  y = f32[4] parameter(1)
  z = f32[3] add(x, w)
  u = f32[3] tanh(z), color=red
  v = f32[2] tanh(x)
  c = f32[3] constant({1, 2,
    3, 4})
  q = f32[] reduce(x, c), dimensions={0}, to_apply=plus
  r = f32[3] map(x), dimensions={0}, to_apply=none
  k = f33[3] tanh(x)
  l = f32[3] add(k, x)
  ROOT sum = f32[3] add(x, y), metadata={source_file="train.py" source_line=4}
}
"""
GOLDEN = """bad.hlo:6:18: unknown opcode 'ad'
    ROOT s = f32[] ad(a, b)
                   ^
  hint: did you mean pad or and or add?
bad.hlo:12:21: unknown operand 'w'
    z = f32[3] add(x, w)
                      ^
  hint: operands must be defined before they are used
bad.hlo:13:23: unknown attribute of tanh: 'color'
    u = f32[3] tanh(z), color=red
                        ^
bad.hlo:14:3: tanh 'v' in computation main: declared as f32[2], the rule gives f32[3]
    v = f32[2] tanh(x)
    ^
  operands: f32[3]{0}
  hint: declare f32[3], or change operands or attributes
bad.hlo:16:8: expected 3 elements in dimension 0, got more
      3, 4})
         ^
  hint: make the declared shape and the elements agree
bad.hlo:18:47: unknown computation 'none'
    r = f32[3] map(x), dimensions={0}, to_apply=none
                                                ^
bad.hlo:19:7: unknown element type 'f33'
    k = f33[3] tanh(x)
        ^
bad.hlo:21:8: add 'sum' in computation main: dimension 0 has size 3 in one operand and 4 in another
    ROOT sum = f32[3] add(x, y), metadata={source_file="train.py" source_line=4}
         ^
  operands: f32[3]{0}, f32[4]{0}
  at: train.py:4
  hint: HLO broadcasts nothing by itself; add a broadcast"""


def told(text):
    """The faults as they are printed, without the hints that list all that is known."""
    lines = "\n".join(map(str, check_text(text, "bad.hlo").faults)).splitlines()
    return "\n".join(line for line in lines if not line.startswith("  hint: known:"))


def test_every_fault_is_told_at_its_place():
    assert told(BAD) == GOLDEN


GOOD = """HloModule good
plus { a = f32[] parameter(0) b = f32[] parameter(1) ROOT s = f32[] add(a, b) }
step {
  p = (s32[], f32[3]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = f32[3] get-tuple-element(p), index=1
  ROOT r = (s32[], f32[3]) tuple(i, x)
}
less { p = (s32[], f32[3]) parameter(0) ROOT r = pred[] constant(false) }
ENTRY main (y: f32[3]) -> f32[] {
  y = f32[3] parameter(0)
  zero = s32[] constant(0)
  t = (s32[], f32[3]) tuple(zero, y)
  w = (s32[], f32[3]) while(t), condition=less, body=step
  v = f32[3] get-tuple-element(w), index=1
  none = f32[] constant(0)
  ROOT s = f32[] reduce(v, none), dimensions={0}, to_apply=plus
}
"""


def test_what_has_no_fault_is_a_module():
    checked = check_text(GOOD)
    assert checked.faults == []
    assert checked.module is not None
    assert checked.module.to_text() == HloModule.from_text(GOOD).to_text()


@pytest.mark.parametrize(
    ("old", "new", "places"),
    [
        ("HloModule good", "HloModule good, is_scheduled=maybe", ["1:30"]),
        # Faults of the module are where it begins, below what is written about it.
        ("HloModule good", "// A loop.\n\n HloModule good, entry_computation_layout={()->f32[]}", ["3:2"]),
        ("step {", "step (", ["4:5"]),
        ("body=step", "body=main", ["14:54"]),
        ("-> f32[] {", "-> f32[2] {", ["10:27"]),
        ("y = f32[3] parameter(0)", "y = f32[3] parameter(1)", ["10:7"]),
        ("ROOT s = f32[] reduce", "ROOT s = f32[] reduc", ["17:18"]),
        ("  ROOT r = (s32[], f32[3]) tuple(i, x)\n}", "  ROOT r = (s32[], f32[3]) tuple(i, x)", ["8:1"]),
        ("ENTRY main", "ENTRY plus", ["10:7"]),
        ("less {", "step {", ["9:1", "14:43"]),
        ("v = f32[3] get-tuple-element(w), index=1", "v = get-tuple-element(w), index=7", ["15:3"]),
        (GOOD, "HloModule m", ["1:12"]),
        (GOOD, "HloModule\nENTRY e { ROOT p = f32[] parameter(0) }", ["2:1"]),
        (GOOD, "a = f32[] parameter(0)\nb = f32[] add(a, c)", ["2:18"]),
    ],
)
def test_faults_of_all_kinds(old, new, places):
    assert old in GOOD
    faults = check_text(GOOD.replace(old, new)).faults
    assert [str(f.location).removeprefix("<text>:") for f in faults] == places, "\n".join(map(str, faults))


@pytest.mark.parametrize("seed", range(3))
def test_there_are_faults_where_a_module_cannot_be_read_or_verified_and_nowhere_else(seed):
    rng = random.Random(seed)
    for _ in range(60):
        text = rng.choice([GOOD, BAD])
        for _ in range(rng.randint(1, 3)):
            lines = text.split("\n")
            start = rng.randrange(len(text))
            stop = start + rng.choice([1, 3, 40])
            change = rng.randrange(4)
            if change == 0:
                text = text[:start] + text[stop:]
            elif change == 1:
                text = text[:start] + rng.choice(["{", "}", "(", ",", '"', "f32[", "ROOT ", "0"]) + text[start:]
            else:
                lines.insert(rng.randrange(len(lines)), lines.pop(rng.randrange(len(lines))) if change == 2 else "}")
                text = "\n".join(lines)
        try:
            HloModule.from_text(text).verify()
        except XlakitError:
            assert check_text(text).faults, text
        else:
            assert not check_text(text).faults, text


def test_a_text_that_is_cut_off_says_so():
    text = "HloModule m\n\nENTRY e {\n  x = f32[2] parameter(0)\n  ROOT y = f32[2] add(x, "
    with pytest.raises(ParseError, match="got the end of the text") as raised:
        HloModule.from_text(text)
    assert "dump or copy it again" in raised.value.hint
    # One of a line was written by hand.
    with pytest.raises(ParseError) as raised:
        HloModule.from_text("ENTRY e { ROOT y = f32[2] iota(")
    assert not raised.value.hint


@pytest.mark.parametrize("word", ["$0[2] parameter(0)", "<<TYPE>>[2] parameter(0)", "f32[2] $op(p)"])
def test_a_template_is_told_from_a_program(word):
    (fault,) = check_text(f"HloModule m\n\nENTRY e {{\n  ROOT p = {word}\n}}\n").faults
    assert "the text is a template" in str(fault)
