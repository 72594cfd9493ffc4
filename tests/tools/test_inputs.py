"""Arguments that are made up: the same for the same seed, in their own type from the first."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from xlakit import HloModule, PrimitiveType, make_shape
from xlakit.data.shape import ProgramShape
from xlakit.errors import ResourceError
from xlakit.execution.inputs import make_inputs
from xlakit.tools import cli
from xlakit.tools.inputs import compiled, options_of


def made(kind: PrimitiveType, *dims: int, seed: int = 7) -> np.ndarray:
    (value,) = make_inputs(ProgramShape((make_shape(kind, dims),), make_shape(kind, dims)), seed)
    return value


def test_values_are_those_of_one_draw_and_are_rounded_once():
    count = 150_001
    np.testing.assert_array_equal(
        made(PrimitiveType.F32, count), np.random.default_rng(7).standard_normal(count).astype(np.float32)
    )
    rng = np.random.default_rng(7)
    expected = (rng.standard_normal(count) + 1j * rng.standard_normal(count)).astype(np.complex64)
    np.testing.assert_array_equal(made(PrimitiveType.C64, count), expected)
    np.testing.assert_array_equal(
        made(PrimitiveType.S32, count), np.random.default_rng(7).integers(0, 8, count).astype(np.int32)
    )
    np.testing.assert_array_equal(
        made(PrimitiveType.PRED, count), np.random.default_rng(7).integers(0, 2, count).astype(np.bool_)
    )


@pytest.mark.parametrize("kind", ["F32", "BF16", "C64", "S8", "U16", "PRED"])
def test_large_arguments_take_no_more_memory_than_they_have(kind: str):
    tracemalloc.start()
    try:
        value = made(PrimitiveType[kind], 1000, 4000)
        assert tracemalloc.get_traced_memory()[1] < 1.1 * value.nbytes + (4 << 20)
    finally:
        tracemalloc.stop()
    assert value.shape == (1000, 4000)


def test_scalars_and_empty_arrays():
    assert made(PrimitiveType.F32).shape == ()
    assert made(PrimitiveType.F64, 0, 3).shape == (0, 3)
    assert set(np.log2(made(PrimitiveType.F8E8M0FNU, 100).astype(np.float32))) <= set(range(-5, 6))


def test_arguments_beyond_the_memory_limit_are_refused_before_they_are_drawn(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XLAKIT_MEMORY_LIMIT", "1000000")
    half = make_shape(PrimitiveType.F32, [150, 1000])
    assert make_inputs(ProgramShape((half,), half), 0)[0].shape == (150, 1000)
    with pytest.raises(ResourceError, match="the arguments need 1,200,000 bytes, the limit is 1,000,000"):
        make_inputs(ProgramShape((half, half), half), 0)


FED = """HloModule fed, replica_count=2

body {
  s = (s32[], f32[2], token[]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[2] get-tuple-element(s), index=1
  t = token[] get-tuple-element(s), index=2
  in = (f32[2], token[]) infeed(t)
  v = f32[2] get-tuple-element(in), index=0
  a = f32[2] add(v, x)
  u = token[] get-tuple-element(in), index=1
  out = token[] outfeed(a, u), outfeed_shape=f32[2]
  one = s32[] constant(1)
  n = s32[] add(i, one)
  ROOT r = (s32[], f32[2], token[]) tuple(n, a, out)
}

condition {
  s = (s32[], f32[2], token[]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  three = s32[] constant(3)
  ROOT c = pred[] compare(i, three), direction=LT
}

ENTRY e {
  zero = s32[] constant(0)
  x = f32[2] constant({0, 0})
  t = token[] after-all()
  s = (s32[], f32[2], token[]) tuple(zero, x, t)
  l = (s32[], f32[2], token[]) while(s), condition=condition, body=body
  y = f32[2] get-tuple-element(l), index=1
  room = (f32[2], u32[], token[]) recv(t), channel_id=5, is_host_transfer=true
  done = (f32[2], token[]) recv-done(room), channel_id=5, is_host_transfer=true
  z = f32[2] get-tuple-element(done), index=0
  ROOT r = (f32[2], f32[2]) tuple(y, z)
}
"""


def test_what_a_host_sends_is_made_up_for_each_device():
    module = HloModule.from_text(FED)

    def run(backend: str, seed: int):
        return np.asarray(compiled(module, backend, seed).execute_replicated([[], []]))

    found = run("cpu", 7)
    # Two devices, the sum of three feeds and what came on the channel.
    assert len(np.unique(found)) == found.size == 8
    np.testing.assert_array_equal(run("interpreter", 7), found)
    assert not (run("interpreter", 8) == found).any()


def test_programs_without_a_host_are_fed_nothing():
    module = HloModule.from_text("HloModule m\nENTRY e {\n  ROOT p = f32[2] parameter(0)\n}")
    assert options_of(module, 0).execution_context is None


def test_the_command_line_runs_programs_with_feeds(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "fed.hlo"
    path.write_text(FED.replace("replica_count=2", "replica_count=1"))
    for arguments in (["--compare", "interpreter"], ["--trace"], ["--profile"], ["--against", "interpreter"]):
        assert cli.main(["run", str(path), *arguments]) == 0
    assert cli.main(["diff", "--run", str(path), str(path)]) == 0
    assert "no instruction differs" in capsys.readouterr().out
