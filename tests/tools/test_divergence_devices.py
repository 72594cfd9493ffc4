"""Where two ways to run a program of several devices part: ``xlakit run --against``."""

from pathlib import Path

import numpy as np
import pytest

import xlakit as xla
from xlakit.tools.cli import main

_X = np.array([9.0, 1000.0], np.float32)
_REPLICAS = """
HloModule replicas, replica_count=2

add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}

first {
  p = f32[2] parameter(0)
  ROOT e = f32[2] exponential(p)
}

second {
  p = f32[2] parameter(0)
  ROOT l = f32[2] sine(p)
}

body {
  s = (s32[], f32[2]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[2] get-tuple-element(s), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  z = f32[2] cosine(x)
  ROOT t = (s32[], f32[2]) tuple(j, z)
}

condition {
  s = (s32[], f32[2]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(3)
  ROOT p = pred[] compare(i, n), direction=LT
}

ENTRY main {
  x = f32[2] parameter(0)
  id = u32[] replica-id()
  number = s32[] convert(id)
  shift = f32[] convert(id)
  own = f32[2] broadcast(shift), dimensions={}
  y = f32[2] add(x, own)
  sum = f32[2] all-reduce(y), replica_groups={}, to_apply=add
  taken = f32[2] conditional(number, y, sum), branch_computations={first, second}
  s = (s32[], f32[2]) tuple(number, taken)
  w = (s32[], f32[2]) while(s), condition=condition, body=body
  ROOT r = f32[2] get-tuple-element(w), index=1
}
"""


@pytest.mark.parametrize(
    ("before", "after", "name", "device", "path"),
    [
        ("add(x, own)", "multiply(x, own)", "y", 0, ()),
        # Only device 1 takes the second branch.
        ("sine(p)", "negate(p)", "l", 1, ("in %taken",)),
        ("cosine(x)", "negate(x)", "z", 0, ("iteration 0 of %w",)),
        ("direction=LT", "direction=LE", "p", 1, ("iteration 2 of %w",)),
    ],
)
def test_devices_are_compared_each_with_itself(before: str, after: str, name: str, device: int, path: tuple[str, ...]):
    found = xla.find_divergence(
        xla.HloModule.from_text(_REPLICAS.replace(before, after)), _X, against=xla.HloModule.from_text(_REPLICAS)
    )
    assert found is not None
    assert (found.instruction.name, found.device, found.path) == (name, device, path)
    assert ("on device 1" in str(found)) == (device == 1)


@pytest.mark.parametrize("against", ["interpreter", "plain"])
def test_the_compiler_agrees_on_several_devices_with(against: str):
    assert xla.find_divergence(xla.HloModule.from_text(_REPLICAS), _X, against=against) is None


# The program as it is written, and as a partitioner leaves it: shapes of parts, shardings of whole arrays.
_WHOLE = """
HloModule whole, num_partitions=2

add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}

ENTRY main {
  a = f32[4,3] parameter(0), sharding={devices=[2,1]<=[2]}
  squares = f32[4,3] multiply(a, a)
  zero = f32[] constant(0)
  ROOT sums = f32[3] reduce(squares, zero), dimensions={0}, to_apply=add
}
"""
_SPLIT = """
HloModule split, num_partitions=2

add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}

ENTRY main_spmd {
  a = f32[2,3] parameter(0), sharding={devices=[2,1]<=[2]}
  squares = f32[2,3] multiply(a, a)
  zero = f32[] constant(0)
  own = f32[3] reduce(squares, zero), dimensions={0}, to_apply=add
  ROOT sums = f32[3] all-reduce(own), channel_id=1, replica_groups={{0,1}}, use_global_device_ids=true, to_apply=add
}
"""


@pytest.mark.parametrize("against", ["interpreter", "plain"])
@pytest.mark.parametrize("text", [_WHOLE, _SPLIT], ids=["whole", "split"])
def test_partitions_are_compared_on_whole_arrays(
    text: str, against: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    path = tmp_path / "m.hlo"
    path.write_text(text)
    assert main(["run", str(path), "--against", against]) == 0
    assert capsys.readouterr().out == "no instruction differs\n"


def test_a_program_is_compared_with_what_a_partitioner_made_of_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    before, after, wrong = (tmp_path / f"{name}.hlo" for name in ("before", "after", "wrong"))
    before.write_text(_WHOLE)
    after.write_text(_SPLIT)
    wrong.write_text(_SPLIT.replace("multiply(a, a)", "add(a, a)"))
    assert main(["run", str(before), "--against", str(after)]) == 0
    assert main(["run", str(wrong), "--against", str(before)]) == 1
    assert "first difference: %squares" in capsys.readouterr().out
    wrong.write_text(_SPLIT.replace("f32[2,3]", "f32[2,4]").replace("f32[3]", "f32[4]"))
    assert main(["run", str(before), "--against", str(wrong)]) == 1
    assert "split takes (f32[4,4]), whole takes (f32[4,3])" in capsys.readouterr().err


def test_devices_take_the_arguments_of_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path, folder = tmp_path / "m.hlo", tmp_path / "dump"
    path.write_text(_WHOLE)
    assert main(["extract", str(path), "--instruction", "sums", "--depth", "3", "-o", str(folder)]) == 0
    capsys.readouterr()
    assert main(["run", str(folder), "--against", "interpreter"]) == 0
    assert main(["run", str(folder), "--trace"]) == 0
    assert "%squares" in capsys.readouterr().out
