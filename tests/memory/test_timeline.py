"""The arena over the schedule, against the slices of the plan it is made from."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import xlakit as xla
from xlakit.cpu.compiler import compile_module
from xlakit.memory.assignment import Space
from xlakit.memory.timeline import MemoryTimeline
from xlakit.tools.cli import main

EXAMPLES = Path(__file__).parents[2] / "examples" / "hlo"

# a waits while the products are made; b is written and read at once.
_WAITS = """
HloModule waits

ENTRY main {
  x = f32[64,64] parameter(0)
  y = f32[64,64] parameter(1)
  a = f32[64,64] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0},
    metadata={source_file="m.py" source_line=3}
  b = f32[64,64] dot(y, a), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  c = f32[64,64] dot(b, b), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  d = f32[64,64] dot(c, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  e = f32[64,64] dot(d, c), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  s = f32[64,64] dot(a, e), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT t = (f32[64,64], f32[64,64]) tuple(s, e)
}
"""


def _timeline(text: str) -> tuple[MemoryTimeline, xla.HloModule]:
    module = xla.HloModule.from_text(text)
    return compile_module(module).memory_timeline(), module


@pytest.mark.parametrize("name", ["mlp_train_step", "scan", "while", "transformer_grad_4_layers", "conditional"])
def test_what_is_in_use_is_what_the_slices_say(name: str):
    executable = compile_module(xla.HloModule.from_text((EXAMPLES / f"{name}.hlo").read_text()))
    plan, found = executable.memory_plan(), executable.memory_timeline()
    arena = [own for own in plan.slices if own.space is Space.ARENA]

    def used(point: int) -> int:
        return sum(own.size for own in arena if own.first <= point <= own.last)

    assert len(found.moments) == len(plan.numbers)
    for moment in found.moments:
        assert moment.bytes == used(moment.point)
        assert moment.bytes >= used(2 * moment.number)
        assert moment.bytes >= used(2 * moment.number + 1)
    if not arena:
        assert found.peak is None
        return
    assert found.peak is not None
    # No point of the whole schedule has more.
    assert found.peak.bytes == max(used(point) for own in arena for point in (own.first, own.last))
    assert sum(one.slice.size for one in found.held) == found.peak.bytes <= found.arena_bytes == plan.arena_bytes
    for one in found.held:
        left = [own for own in arena if own is not one.slice]
        points = [own.first for own in left]
        without = max((sum(o.size for o in left if o.first <= p <= o.last) for p in points), default=0)
        assert one.without in (None, without)


def test_a_value_that_waits_at_the_peak_is_named_with_its_line():
    found, _ = _timeline(_WAITS)
    assert found.peak is not None
    idle = [one for one in found.held if one.idle]
    (waiting,) = [one for one in idle if one.value.name == "a"]
    assert waiting.location is not None
    assert (waiting.location.file, waiting.location.line) == ("m.py", 3)
    assert waiting.defined < found.peak.number < waiting.used
    assert waiting.without is not None
    assert waiting.without <= found.peak.bytes
    text = str(found)
    assert re.search(r"%a \(16,384\) is there from step \d+ on, and is read next at \d+: compute it later", text)
    assert "<- peak" in text
    assert json.loads(json.dumps(found.as_dict()))["peak"]["bytes"] == found.peak.bytes


def test_long_programs_have_rows_of_several_steps():
    steps = "\n".join(
        f"  v{i + 1} = f32[16,16] dot(v{i}, v{max(0, i - 1)}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}"
        for i in range(200)
    )
    found, _ = _timeline(
        f"HloModule m\nENTRY main {{\n  v0 = f32[16,16] parameter(0)\n{steps}\n  ROOT r = f32[16,16] negate(v200)\n}}"
    )
    assert len(found.moments) >= 200
    rows = str(found).split("\n\n")[0].splitlines()
    assert len(rows) <= 42
    assert any("<- peak" in row for row in rows)
    assert "steps in a row" in rows[0]


def test_programs_without_temporaries_have_no_peak():
    found, _ = _timeline("HloModule m\nENTRY main {\n  x = f32[4] parameter(0)\n  ROOT y = f32[4] negate(x)\n}")
    assert found.peak is None
    assert found.held == ()
    assert str(found) == ""


def test_the_command_prints_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "waits.hlo"
    path.write_text(_WAITS)
    assert main(["inspect", str(path), "--as", "memory"]) == 0
    out = capsys.readouterr().out
    assert "temporaries over the schedule" in out
    assert "what would lower it:" in out
    assert "m.py:3" in out
