"""Divergences in programs in which rounding makes every instruction differ, and their text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import xlakit as xla
from xlakit.tools.numerics.divergence import first_divergence
from xlakit.tools.numerics.sides import Ready, Side


def _module(text: str) -> xla.HloModule:
    return xla.HloModule.from_text(text)


def _interpreted(module: xla.HloModule) -> Ready:
    executable = xla.compile(module, backend="interpreter")
    return lambda arguments: [executable(*given) for given in arguments]


def _found(text: str, actual: Callable[[xla.HloModule], Ready], arguments: Sequence[Any]) -> Any:
    module = _module(text)
    return first_divergence(Side(module, actual), Side(module, _interpreted), [arguments])


def _chaos(steps: int, tail: str) -> str:
    """A program that makes a rounding of its first instruction larger in each of its steps, and then some others."""
    lines = ["  first = f32[2] multiply(p, q)"]
    for number in range(steps):
        before = "first" if number == 0 else f"folded.{number - 1}"
        lines += [
            f"  scaled.{number} = f32[2] multiply({before}, seven)",
            f"  whole.{number} = f32[2] floor(scaled.{number})",
            f"  folded.{number} = f32[2] subtract(scaled.{number}, whole.{number})",
        ]
    body = "\n".join(lines)
    return f"""
HloModule chaos
called {{
  x = f32[2] parameter(0)
  ROOT y = f32[2] cosine(x)
}}
body {{
  s = (s32[], f32[2]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[2] get-tuple-element(s), index=1
  one = s32[] constant(1)
  next = s32[] add(i, one)
  z = f32[2] exponential(x)
  ROOT t = (s32[], f32[2]) tuple(next, z)
}}
condition {{
  s = (s32[], f32[2]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(2)
  ROOT less = pred[] compare(i, n), direction=LT
}}
ENTRY e {{
  p = f32[2] parameter(0)
  q = f32[2] constant({{1.0000001, 1.0000001}})
  s = f32[] constant(7.3)
  seven = f32[2] broadcast(s), dimensions={{}}
{body}
  last = f32[2] copy(folded.{steps - 1})
{tail}}}"""


def _rounding_first_otherwise(text: str) -> str:
    return text.replace("1.00000012", "1.00000024")


def test_instructions_that_rounding_makes_differ_are_tried_together():
    prepared: list[int] = []

    def counted(module: xla.HloModule) -> Ready:
        prepared.append(module.instruction_count())
        return _interpreted(_module(_rounding_first_otherwise(module.to_text())))

    text = _chaos(100, "  ROOT out = f32[2] call(last), to_apply=called\n")
    found = _found(text, counted, [np.array([0.3, 0.7], np.float32)])
    assert found.instruction.name == "out" and "no instruction differs" in found.note
    assert len(prepared) < 10


@pytest.mark.parametrize(
    ("old", "new", "name", "path"),
    [
        ("cosine", "sine", "y", ("in %called.it",)),
        ("exponential", "tanh", "z", ("iteration 0 of %looped",)),
        ("negate", "abs", "negated", ()),
        # The first of those that are wrong.
        ("copy", "negate", "last", ()),
        ("direction=LT", "direction=GE", "less", ("iteration 0 of %looped",)),
    ],
)
def test_a_wrong_instruction_is_found_among_those_that_rounding_makes_differ(
    old: str, new: str, name: str, path: tuple[str, ...]
):
    text = _chaos(
        60,
        """
  called.it = f32[2] call(last), to_apply=called
  zero = s32[] constant(0)
  state = (s32[], f32[2]) tuple(zero, called.it)
  looped = (s32[], f32[2]) while(state), condition=condition, body=body
  part = f32[2] get-tuple-element(looped), index=1
  negated = f32[2] negate(part)
  ROOT out = f32[2] sine(negated)
""",
    )

    def wrong(module: xla.HloModule) -> Ready:
        return _interpreted(_module(_rounding_first_otherwise(module.to_text()).replace(old, new)))

    found = _found(text, wrong, [np.array([0.3, 0.7], np.float32)])
    assert (found.instruction.name, found.path) == (name, path)


@pytest.mark.parametrize("count", [4, 600])
def test_a_long_instruction_is_shortened_in_the_report_and_whole_in_json(count: int):
    names = [f"x.{i}" for i in range(count)]
    lines = [
        *("HloModule long", "ENTRY e {", "  p = f32[1] parameter(0)", "  other = f32[1] negate(p)"),
        *(f"  {name} = f32[1] copy(p)" for name in names),
        f"  ROOT joined = f32[{count}] concatenate({', '.join(names)}), dimensions={{0}}",
        "}",
    ]

    def another_first(module: xla.HloModule) -> Ready:
        return _interpreted(_module(module.to_text().replace("concatenate(%x.0,", "concatenate(%other,")))

    found = _found("\n".join(lines), another_first, [np.ones(1, np.float32)])
    shown = str(found).splitlines()[1].strip()
    ends = f"joined = f32[{count}]{{0}} concatenate(x.0, x.1, x.2", f"x.{count - 1}), dimensions={{0}}"
    assert shown.startswith(ends[0]) and shown.endswith(ends[1])
    assert (" ... " in shown) == (count > 100)
    assert len(shown) < 320
    assert all(f"x.{i}" in found.as_dict()["text"] for i in range(count))
