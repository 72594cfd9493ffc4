"""Which instructions use an instruction, how often, and which have to run."""

import xlakit as xla
from xlakit.ir.def_use import evaluated_instructions, use_counts, users_of

TEXT = """
ENTRY e {
  p = f32[2] parameter(0)
  unused = f32[2] negate(p)
  square = f32[2] multiply(p, p)
  after = f32[2] abs(p), control-predecessors={square}
  ROOT r = f32[2] add(after, p)
}
"""


def entry():
    return xla.HloModule.from_text(f"HloModule m\n{TEXT}").entry


def named(found):
    return {used.name: [user.name for user in users] for used, users in found.items()}


def test_users_are_listed_once_each_in_their_order():
    assert named(users_of(entry().instructions)) == {"p": ["unused", "square", "after", "r"], "after": ["r"]}


def test_control_predecessors_count_as_used_where_that_is_asked():
    assert named(users_of(entry().instructions, control=True))["square"] == ["after"]


def test_uses_are_counted_as_often_as_they_stand_there():
    computation = entry()
    counts = {i.name: n for i, n in use_counts(computation.instructions, computation.root).items()}
    assert counts == {"p": 5, "after": 1, "r": 1}
    ordered = use_counts(computation.instructions, control=True)
    assert {i.name: n for i, n in ordered.items()} == {"p": 5, "after": 1, "square": 1}


def test_only_what_the_result_or_an_effect_needs_is_evaluated():
    assert [i.name for i in evaluated_instructions(entry())] == ["p", "after", "r"]
    text = TEXT.replace("ROOT r", "t = token[] after-all()\n  o = token[] outfeed(unused, t)\n  ROOT r")
    acting = xla.HloModule.from_text(f"HloModule m\n{text}").entry
    assert [i.name for i in evaluated_instructions(acting)] == ["p", "unused", "after", "t", "o", "r"]
