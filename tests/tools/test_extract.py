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
_REPLICAS = """
HloModule replicas, replica_count=2

add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}

ENTRY main {
  x = f32[2] parameter(0)
  id = u32[] replica-id()
  number = f32[] convert(id)
  all = f32[2] broadcast(number), dimensions={}
  sum = f32[2] all-reduce(x), replica_groups={}, to_apply=add
  ROOT scaled = f32[2] multiply(sum, all)
}
"""
# Device 0 runs the body twice, device 1 five times.
_UNEVEN_LOOPS = """
HloModule uneven, replica_count=2

body {
  s = (s32[], s32[]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] get-tuple-element(s), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  ROOT t = (s32[], s32[]) tuple(j, n)
}

condition {
  s = (s32[], s32[]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] get-tuple-element(s), index=1
  ROOT p = pred[] compare(i, n), direction=LT
}

ENTRY main {
  id = u32[] replica-id()
  number = s32[] convert(id)
  three = s32[] constant(3)
  more = s32[] multiply(number, three)
  two = s32[] constant(2)
  n = s32[] add(two, more)
  first = s32[] add(number, number)
  start = s32[] subtract(first, number)
  s = (s32[], s32[]) tuple(start, n)
  w = (s32[], s32[]) while(s), condition=condition, body=body
  ROOT r = s32[] get-tuple-element(w), index=0
}
"""
_PARTITIONS = """
HloModule partitions, num_partitions=2

add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}

ENTRY main {
  a = f32[4,3] parameter(0), sharding={devices=[2,1]<=[2]}
  zero = f32[] constant(0)
  sums = f32[3] reduce(a, zero), dimensions={0}, to_apply=add
  sine = f32[3] sine(sums)
  doubled = f32[4,3] add(a, a), sharding={devices=[2,1]<=[2]}
  ROOT t = (f32[4,3], f32[3]) tuple(doubled, sine)
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
        (lambda m: xla.extract_computation(m, "total", _X), "%total of .* is no computation and no loop"),
        (lambda m: xla.extract_computation(m, "body", _X, iteration=-1), "iteration is -1"),
    ],
)
def test_what_cannot_be_extracted_is_an_error(loop: xla.HloModule, call: Any, message: str):
    with pytest.raises(xla.ArgumentError, match=message):
        call(loop)


_ENDLESS = """HloModule endless, input_output_alias={ {}: (0, {}, may-alias) }

body {
  s = (s32[], f32[4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[4] get-tuple-element(s), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  y = f32[4] cosine(x)
  ROOT t = (s32[], f32[4]) tuple(j, y)
}

condition {
  s = (s32[], f32[4]) parameter(0)
  ROOT p = pred[] constant(true)
}

ENTRY main {
  x = f32[4] parameter(0)
  zero = s32[] constant(0)
  s = (s32[], f32[4]) tuple(zero, x)
  w = (s32[], f32[4]) while(s), condition=condition, body=body
  ROOT r = f32[4] get-tuple-element(w), index=1
}
"""
_UNKNOWN = """HloModule unknown

ENTRY main {
  x = f32[4] parameter(0)
  q = f32[4] negate(x)
  w = f32[4] custom-call(q), custom_call_target="nobody_knows_this"
  ROOT r = f32[4] add(w, q)
}
"""


def test_the_run_ends_where_the_part_does():
    """A loop without an end is a program to look into, too."""
    module, x = xla.HloModule.from_text(_ENDLESS), np.float32([0, 1, 2, 3])
    loop = xla.extract_computation(module, "w", x, iteration=3)
    np.testing.assert_array_equal(loop.arguments[0][0], 3)
    np.testing.assert_allclose(loop.arguments[0][1], np.cos(np.cos(np.cos(x))), rtol=1e-6)
    inner = xla.extract_instruction(module, "y", x, iteration=2)
    np.testing.assert_allclose(inner.result, np.cos(np.cos(np.cos(x))), rtol=1e-6)
    assert not inner.module.input_output_alias
    _agrees(inner)


def test_a_fusion_stands_for_its_computation(loop: xla.HloModule):
    (fusion,) = [i for c in loop.computations for i in c.instructions if i.opcode == "fusion"]
    (callee,) = fusion.op.called_computations
    by_caller = xla.extract_computation(loop, fusion.name, _X)
    assert by_caller.module == xla.extract_computation(loop, callee.name, _X).module
    _agrees(by_caller)


def test_a_custom_call_without_a_meaning_only_matters_where_it_runs():
    module, x = xla.HloModule.from_text(_UNKNOWN), np.float32([1, 2, 3, 4])
    _agrees(xla.extract_instruction(module, "q", x))
    for name in ("w", "r"):
        with pytest.raises(xla.UnsupportedError, match="custom-call 'w': no custom call is registered as 'nobody_"):
            xla.extract_instruction(module, name, x)
    made = xla.extract_instruction(module, "r", x, custom_calls={"nobody_knows_this": lambda q: q * 2})
    np.testing.assert_array_equal(made.result, -3 * x)


def test_replicas_have_each_their_own_values():
    made = xla.extract_instruction(xla.HloModule.from_text(_REPLICAS), "scaled", np.float32([1, 2]))
    assert made.module.replica_count == 2
    assert [i.opcode for i in made.module.entry.instructions] == ["parameter", "parameter", "multiply"]
    for device, (result, given) in enumerate(zip(made.results, made.device_arguments, strict=True)):
        np.testing.assert_array_equal(result, np.float32([2, 4]) * device)
        assert sorted(float(np.max(value)) for value in given) == sorted([float(device), 4.0])
    one = xla.extract_instruction(xla.HloModule.from_text(_REPLICAS), "scaled", np.float32([1, 2]), device=1)
    assert (one.module.replica_count, len(one.results)) == (1, 1)
    _agrees(one)


def test_collectives_are_extracted_for_all_devices():
    module = xla.HloModule.from_text(_REPLICAS)
    made = xla.extract_instruction(module, "sum", np.float32([1, 2]))
    for backend in ("interpreter", "cpu"):
        for found in xla.compile(made.module, backend=backend).execute_replicated(made.device_arguments):
            np.testing.assert_array_equal(found, np.float32([2, 4]))
    with pytest.raises(xla.ArgumentError, match=r"%sum \(all-reduce\) has no meaning on one device"):
        xla.extract_instruction(module, "sum", np.float32([1, 2]), device=0)
    with pytest.raises(xla.ArgumentError, match="there is no device 2: 2 run the program"):
        xla.extract_instruction(module, "sum", np.float32([1, 2]), device=2)


def test_devices_run_a_computation_as_often_as_each_does():
    module = xla.HloModule.from_text(_UNEVEN_LOOPS)
    one = xla.extract_computation(module, "body", iteration=2, device=1)
    ((count,),) = one.device_arguments
    assert (count[0], count[1]) == (3, 5)
    with pytest.raises(xla.ArgumentError, match="no run 2 on device 0: it runs 2 times"):
        xla.extract_computation(module, "body", iteration=2)


def test_whole_arrays_are_split_and_each_device_has_its_part(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path, whole = tmp_path / "m.hlo", np.arange(12, dtype=np.float32).reshape(4, 3)
    path.write_text(_PARTITIONS)
    np.savez(tmp_path / "x.npz", a=whole)
    command = ["extract", str(path), "--input", str(tmp_path / "x.npz")]
    assert main([*command, "--instruction", "sine", "--depth", "2", "-o", str(tmp_path / "all")]) == 0
    assert main(["run", str(tmp_path / "all"), "--output", str(tmp_path / "y.npz")]) == 0
    for found in np.load(tmp_path / "y.npz").values():
        np.testing.assert_allclose(found, np.sin(whole.sum(axis=0)), rtol=1e-5)
    assert main([*command, "--instruction", "doubled", "--device", "1", "-o", str(tmp_path / "one")]) == 0
    assert main(["run", str(tmp_path / "one"), "--output", str(tmp_path / "z.npz")]) == 0
    np.testing.assert_array_equal(np.load(tmp_path / "z.npz")["result"], 2 * whole[2:])
    # A part for all devices is a program like any other, of which a part can be taken.
    assert main(["extract", str(tmp_path / "all"), "--instruction", "sine", "-o", str(tmp_path / "part")]) == 0
    capsys.readouterr()
    assert main([*command, "--instruction", "sine", "--device", "2", "-o", str(tmp_path / "no")]) == 1
    assert "there is no device 2" in capsys.readouterr().err
    assert main([*command, "--instruction", "of-the-whole", "-o", str(tmp_path / "no")]) == 1
    assert "of one of 2 devices, has no instruction %of-the-whole\n  hint: xlakit opt FILE --passes partition has" in (
        capsys.readouterr().err
    )


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


def test_what_reduces_on_several_devices_has_no_runs(tmp_path, capsys):
    """Where the passes of partitions run a custom reduction, its computation is applied to whole arrays."""
    (tmp_path / "m.hlo").write_text("""HloModule m, num_partitions=2
    f { a = f32[] parameter(0) i = s32[] parameter(1) c = f32[] parameter(2) k = s32[] parameter(3)
        p = pred[] compare(a, c), direction=GT
        b = f32[] select(p, a, c)
        j = s32[] select(p, i, k)
        ROOT r = (f32[], s32[]) tuple(b, j) }
    ENTRY e { x = f32[6,4] parameter(0), sharding={devices=[1,2]<=[2]}
        y = s32[6,4] parameter(1), sharding={devices=[1,2]<=[2]}
        z = f32[] constant(0) w = s32[] constant(0)
        ROOT q = (f32[6], s32[6]) reduce(x, y, z, w), dimensions={1}, to_apply=f }""")
    assert main(["extract", str(tmp_path / "m.hlo"), "--instruction", "p", "-o", str(tmp_path / "part")]) == 1
    assert "%f has no run 0" in capsys.readouterr().err
