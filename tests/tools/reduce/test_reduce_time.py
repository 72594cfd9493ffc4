"""The time that a whole reduction may take bounds its first run, too."""

import os
import time
from pathlib import Path

import pytest

import xlakit as xla
from xlakit.child_process import Limits
from xlakit.tools.cli import main
from xlakit.tools.oracles.oracle import ExternalTest, OutOfTime
from xlakit.tools.oracles.pool import OraclePool

ENDLESS = """HloModule endless

body {
  ROOT x = s32[] parameter(0)
}

condition {
  x = s32[] parameter(0)
  zero = s32[] constant(0)
  ROOT p = pred[] compare(x, zero), direction=GE
}

ENTRY e {
  one = s32[] constant(1)
  two = s32[] constant(2)
  sum = s32[] add(one, two)
  ROOT w = s32[] while(sum), condition=condition, body=body
}
"""


@pytest.mark.parametrize("test", [xla.Crash("interpreter"), xla.Disagreement(("interpreter", "cpu"))])
def test_a_first_run_that_takes_longer_than_all_may_is_an_error(test: xla.Crash | xla.Disagreement):
    start = time.monotonic()
    with pytest.raises(xla.ExecutionError, match="not done after 1 s, which is the time for all runs") as error:
        xla.reduce_module(xla.HloModule.from_text(ENDLESS), test, limits=Limits(seconds=50), max_seconds=1)
    assert time.monotonic() - start < 40
    assert "--max-seconds" in str(error.value)


def test_a_run_that_the_limit_of_all_ends_is_no_crash():
    # Its own limit would make it one.
    module = xla.HloModule.from_text(ENDLESS)
    with OraclePool(xla.Crash("interpreter"), limits=Limits(seconds=1.5)) as pool:
        assert pool.ask(module).holds
    with (
        OraclePool(xla.Crash("interpreter"), limits=Limits(seconds=50), deadline=time.monotonic() + 1) as pool,
        pytest.raises(OutOfTime),
    ):
        pool.ask(module)


def test_the_exit_status_of_a_first_run_without_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "endless.hlo"
    path.write_text(ENDLESS)
    assert main(["reduce", str(path), "--crash", "--backend", "interpreter", "--max-seconds", "1"]) == 1
    assert "allow more for all (--max-seconds" in capsys.readouterr().err
    assert not (tmp_path / "endless.reduced.hlo").exists()


LARGE = """HloModule large

body {
  s = (s32[], f32[4096,4096]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[4096,4096] get-tuple-element(s), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  y = f32[4096,4096] tanh(x)
  z = f32[4096,4096] subtract(y, x)
  ROOT t = (s32[], f32[4096,4096]) tuple(j, z)
}

condition {
  s = (s32[], f32[4096,4096]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(5)
  ROOT p = pred[] compare(i, n), direction=LT
}

ENTRY e {
  s = (s32[], f32[4096,4096]) parameter(0)
  ROOT w = (s32[], f32[4096,4096]) while(s), condition=condition, body=body
}
"""


def test_a_function_with_limits_may_hang_or_end_its_process():
    def fails(candidate: xla.HloModule) -> bool:
        names = {i.opcode for i in candidate.entry.instructions}
        if names == {"constant"}:
            time.sleep(60)
        if "constant" not in names:
            os._exit(7)
        return "add" in names

    module = xla.HloModule.from_text(ENDLESS)
    reduction = xla.reduce_module(module, fails, limits=Limits(seconds=1.5))
    assert sorted(i.opcode for i in reduction.module.entry.instructions) == ["add", "constant", "parameter"]
    with pytest.raises(xla.ArgumentError, match="the function died with status 7"):
        xla.reduce_module(xla.HloModule.from_text("ENTRY e { ROOT x = f32[] parameter(0) }"), fails, limits=Limits())
    with pytest.raises(xla.ExecutionError, match="the test raises ZeroDivisionError: "):
        xla.reduce_module(module, lambda _: bool(1 // 0), limits=Limits())


@pytest.mark.parametrize("needed", ["f32[4096,4096] subtract", "f32[1,1] subtract"])
def test_no_candidate_writes_out_a_large_array(needed: str):
    module = xla.HloModule.from_text(LARGE, name="large")
    written: list[int] = []

    def fails(candidate: xla.HloModule) -> bool:
        instructions = [i for c in candidate.computations for i in c.instructions]
        written.append(max((i.shape.num_elements for i in instructions if i.opcode == "constant"), default=0))
        found = {f"{i.shape.without_layout()} {i.opcode}" for i in instructions}
        return bool(found & {needed, "f32[4096,4096] subtract"}) and "while" in {i.opcode for i in instructions}

    left = xla.reduce_module(module, fails).module
    assert max(written) <= 4096
    assert "tanh" not in str(left)


def test_the_limit_of_a_candidate_follows_the_program_that_is_left():
    """The first run may have been slow, and many candidates have endless loops."""
    module = xla.HloModule.from_text("ENTRY e { ROOT x = f32[] parameter(0) }")
    with OraclePool(ExternalTest.of("true")) as pool:
        pool.limits = Limits(seconds=1000)
        assert pool.submit(module).result().holds
        assert pool.limits.seconds < 500
        shortest = pool.limits
        # What a candidate without the property takes says nothing.
        pool.oracle = ExternalTest.of("false")
        assert not pool.submit(module).result().holds
        assert pool.limits == shortest
