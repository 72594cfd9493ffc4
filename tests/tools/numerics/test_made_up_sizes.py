"""Made-up arguments that are sizes of dimensions lie within the bounds."""

from pathlib import Path

import numpy as np
import pytest

import xlakit as xla
from xlakit.tools.cli import main
from xlakit.tools.inputs import made_up

SIZED = """HloModule sized

ENTRY e {
  x = f32[2,9] parameter(0)
  n = u8[1] parameter(1)
  m = s32[] parameter(2)
  free = s32[] parameter(3)
  one = u8[] reshape(n)
  size = s32[] convert(one)
  rows = f32[<=2,9] set-dimension-size(x, size), dimensions={0}
  both = f32[<=2,<=9] set-dimension-size(rows, m), dimensions={1}
  flat = f32[9] iota(), iota_dimension=0
  other = f32[<=9] set-dimension-size(flat, size), dimensions={0}
  ROOT t = (f32[<=2,<=9], f32[<=9], s32[]) tuple(both, other, free)
}
"""


def test_sizes_lie_within_the_smallest_bound():
    module = xla.HloModule.from_text(SIZED)
    made = [made_up(module.entry, module.entry.program_shape, seed) for seed in range(40)]
    assert {int(values[1][0]) for values in made} == {0, 1, 2}
    assert max(int(values[2]) for values in made) <= 9
    assert max(int(values[3]) for values in made) > 2
    assert [v.dtype for v in made[0]] == [np.float32, np.uint8, np.int32, np.int32]


@pytest.mark.parametrize("options", [[], ["--compare", "interpreter"], ["--against", "interpreter"], ["--trace"]])
@pytest.mark.parametrize("seed", ["5", "8"])
def test_programs_with_sizes_run(options: list[str], seed: str, tmp_path: Path):
    path = tmp_path / "sized.hlo"
    path.write_text(SIZED)
    assert main(["run", str(path), "--seed", seed, *options]) == 0


@pytest.mark.usefixtures("observed_here")
def test_reduce_gives_such_sizes(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "sized.hlo"
    path.write_text(SIZED)
    assert main(["reduce", str(path), "--compare", "cpu,interpreter", "--seed", "5"]) == 1
    assert "all outputs agree" in capsys.readouterr().err
