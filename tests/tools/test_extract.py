"""Parts of programs as programs of their own, with the arguments of a run: ``xlakit extract``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import xlakit as xla
from xlakit.errors import ArgumentError
from xlakit.tools.cli import main
from xlakit.tools.inputs import flatten

_PAIRS = """
HloModule pairs

add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}

later {
  p = f32[2] parameter(0)
  ROOT s = f32[2] sine(p)
}

ENTRY main {
  x = f32[2] parameter(0)
  y = f32[2] negate(x)
  reduced = f32[2] all-reduce-start(y), to_apply=add
  sum = f32[2] all-reduce-done(reduced)
  copied = (f32[2], f32[2], u32[]) copy-start(sum)
  copy = f32[2] copy-done(copied)
  begun = ((f32[2]), f32[2]) async-start(copy), calls=later
  going = ((f32[2]), f32[2]) async-update(begun)
  ROOT ended = f32[2] async-done(going)
}
"""
_LOOP = """
HloModule loop

add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}

fused {
  p = f32[4] parameter(0)
  q = f32[4] parameter(1)
  unread = f32[3] parameter(2)
  ROOT s = f32[4] sine(p)
}

body {
  s = (s32[], f32[4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[4] get-tuple-element(s), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  half = f32[4] constant({0.5, 0.5, 0.25, 2})
  y = f32[4] multiply(x, half)
  u = f32[3] constant({1, 2, 3})
  f = f32[4] fusion(y, x, u), kind=kLoop, calls=fused
  z = f32[4] add(f, x)
  ROOT t = (s32[], f32[4]) tuple(j, z)
}

condition {
  s = (s32[], f32[4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(5)
  ROOT p = pred[] compare(i, n), direction=LT
}

ENTRY main {
  x = f32[4] parameter(0)
  zero = s32[] constant(0)
  s = (s32[], f32[4]) tuple(zero, x)
  w = (s32[], f32[4]) while(s), condition=condition, body=body
  r = f32[4] get-tuple-element(w), index=1
  o = f32[] constant(0)
  ROOT total = f32[] reduce(r, o), dimensions={0}, to_apply=add
}
"""
_X = np.float32([1, 2, 3, 4])
_HALF = np.float32([0.5, 0.5, 0.25, 2])


@pytest.fixture(name="loop")
def _loop() -> xla.HloModule:
    return xla.HloModule.from_text(_LOOP)


def _state(iterations: int) -> Any:
    """The loop's state after some iterations, computed by NumPy."""
    x = _X
    for _ in range(iterations):
        x = np.sin(x * _HALF) + x
    return x


def _agrees(made: xla.Extraction) -> None:
    """The extracted program gives what the part gave in the run, on both backends."""
    expected = flatten(made.result)
    for backend in ("interpreter", "cpu"):
        found = flatten(xla.compile(made.module, backend=backend)(*made.arguments))
        assert found.keys() == expected.keys()
        for name, array in found.items():
            np.testing.assert_allclose(array, expected[name], rtol=1e-6)


def test_an_instruction_has_its_operands_as_parameters(loop: xla.HloModule):
    made = xla.extract_instruction(loop, "%z", _X, iteration=3)
    assert [i.opcode for i in made.module.entry.instructions] == ["parameter", "parameter", "add"]
    given = dict(zip((p.name for p in made.module.entry.parameters), made.arguments, strict=True))
    np.testing.assert_allclose(given["x"], _state(3), rtol=1e-6)
    np.testing.assert_allclose(given["f"], np.sin(_state(3) * _HALF), rtol=1e-6)
    np.testing.assert_allclose(made.result, _state(4), rtol=1e-6)
    _agrees(made)


@pytest.mark.parametrize(
    ("depth", "opcodes"),
    [
        (1, ["get-tuple-element", "fusion"]),
        (2, ["get-tuple-element", "multiply", "fusion"]),
        (50, ["get-tuple-element", "multiply", "fusion"]),
    ],
)
def test_depth_takes_instructions_before_it(loop: xla.HloModule, depth: int, opcodes: list[str]):
    made = xla.extract_instruction(loop, "z", _X, depth=depth, iteration=1)
    computing = [i.opcode for i in made.module.entry.instructions if i.opcode not in ("parameter", "constant")]
    assert computing == [*opcodes, "add"]
    np.testing.assert_allclose(made.result, _state(2), rtol=1e-6)
    _agrees(made)


@pytest.mark.parametrize(
    ("name", "depth", "opcodes"),
    [
        ("sum", 0, ["all-reduce-start", "all-reduce-done"]),
        ("copy", 0, ["copy-start", "copy-done"]),
        ("copy", 2, ["all-reduce-start", "all-reduce-done", "copy-start", "copy-done"]),
        ("ended", 0, ["async-start", "async-update", "async-done"]),
    ],
)
def test_the_end_of_an_operation_comes_with_its_start(name: str, depth: int, opcodes: list[str]):
    made = xla.extract_instruction(xla.HloModule.from_text(_PAIRS), name, np.float32([1, 2]), depth=depth)
    assert [i.opcode for i in made.module.entry.instructions if i.opcode != "parameter"] == opcodes
    _agrees(made)


@pytest.mark.parametrize("name", ["reduced", "copied", "begun", "going"])
def test_the_start_of_an_operation_has_no_value(name: str):
    with pytest.raises(ArgumentError, match="start of an operation"):
        xla.extract_instruction(xla.HloModule.from_text(_PAIRS), name, np.float32([1, 2]))


@pytest.mark.parametrize("name", ["body", "w", "%w"])
def test_a_loop_is_extracted_at_an_iteration(loop: xla.HloModule, name: str):
    made = xla.extract_computation(loop, name, _X, iteration=2)
    ((count, x),) = made.arguments
    assert count == 2
    np.testing.assert_allclose(x, _state(2), rtol=1e-6)
    np.testing.assert_allclose(made.result[1], _state(3), rtol=1e-6)
    _agrees(made)


def test_a_fusion_keeps_parameters_that_nothing_reads(loop: xla.HloModule):
    made = xla.extract_computation(loop, "fused", _X, iteration=4)
    assert [p.shape.dimensions for p in made.module.entry.parameters] == [(4,), (4,), (3,)]
    np.testing.assert_allclose(made.arguments[0], _state(4) * _HALF, rtol=1e-6)
    _agrees(made)


def _with_dead(module: xla.HloModule) -> xla.HloModule:
    text = module.to_text().replace("  ROOT %total", "  %unread = f32[4] negate(%x)\n  ROOT %total")
    return xla.HloModule.from_text(text)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: xla.extract_instruction(m, "nothing", _X), "no instruction %nothing"),
        (lambda m: xla.extract_instruction(_with_dead(m), "unread", _X), "%unread does not run"),
        (lambda m: xla.extract_instruction(m, "z", _X, iteration=5), "has no run 5: it runs 5 times"),
        (lambda m: xla.extract_instruction(m, "c", _X), "%add has no run 0: it runs 0 times"),
        (lambda m: xla.extract_instruction(m, "z", _X, depth=-1), "depth is -1"),
        (lambda m: xla.extract_instruction(m, "main", _X), "no instruction %main"),
        (lambda m: xla.extract_computation(m, "total", _X), "no computation and no loop %total"),
        (lambda m: xla.extract_computation(m, "body", _X, iteration=-1), "iteration is -1"),
    ],
)
def test_what_cannot_be_extracted_is_an_error(loop: xla.HloModule, call: Any, message: str):
    with pytest.raises(xla.ArgumentError, match=message):
        call(loop)


def test_programs_of_several_devices_are_refused(loop: xla.HloModule):
    with pytest.raises(xla.UnsupportedError, match="runs on 2 devices"):
        xla.extract_instruction(loop.replace(replica_count=2), "z", _X)


def test_narrow_types_and_tuples_go_through_the_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "m.hlo"
    path.write_text(
        "HloModule m\nENTRY main {\n x = (bf16[3], s32[]) parameter(0)\n a = bf16[3] get-tuple-element(x), index=0\n"
        " b = bf16[3] negate(a)\n ROOT t = (bf16[3], bf16[3]) tuple(b, a)\n}"
    )
    folder = tmp_path / "part"
    assert main(["extract", str(path), "--instruction", "b", "--depth", "1", "--seed", "3", "-o", str(folder)]) == 0
    assert "xlakit run" in capsys.readouterr().out
    for backend in ("cpu", "interpreter"):
        out = tmp_path / f"{backend}.npz"
        assert main(["run", str(folder), "--backend", backend, "--output", str(out)]) == 0
    whole = tmp_path / "whole.npz"
    assert main(["run", str(path), "--seed", "3", "--output", str(whole)]) == 0
    bits = np.load(whole)["0"].tobytes()
    assert np.any(np.frombuffer(bits, np.uint16))
    assert [np.load(tmp_path / f"{b}.npz")["result"].tobytes() for b in ("cpu", "interpreter")] == [bits, bits]


def test_the_command_takes_the_arguments_of_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "loop.hlo"
    path.write_text(_LOOP)
    np.savez(tmp_path / "x.npz", x=_X)
    first, second = tmp_path / "first", tmp_path / "second"
    command = ["extract", str(path), "--loop", "w", "--iteration", "1", "--input", str(tmp_path / "x.npz")]
    assert main([*command, "-o", str(first)]) == 0
    # A part of the part, from the folder.
    assert main(["extract", str(first), "--instruction", "z", "-o", str(second)]) == 0
    out = tmp_path / "y.npz"
    assert main(["run", str(second), "--output", str(out)]) == 0
    np.testing.assert_allclose(np.load(out)["result"], _state(2), rtol=1e-6)
    capsys.readouterr()
    assert main([*command, "-o", str(first)]) == 1
    assert "is there already" in capsys.readouterr().err
    assert main(["extract", str(path), "--loop", "w", "--depth", "1", "-o", str(tmp_path / "d")]) == 2
    assert "--depth is for --instruction" in capsys.readouterr().err
