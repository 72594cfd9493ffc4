"""Programs written into folders by XLAKIT_DUMP_TO, and run again from them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import xlakit as xla
from xlakit.settings import dump_request
from xlakit.tools.cli import main

_STEP = """
HloModule step

ENTRY main {
  x = (f32[3], bf16[3]) parameter(0)
  y = f32[3] parameter(1)
  left = f32[3] get-tuple-element(x), index=0
  right = bf16[3] get-tuple-element(x), index=1
  wide = f32[3] convert(right)
  sum = f32[3] add(left, wide)
  ROOT product = f32[3] multiply(sum, y)
}
"""
_ARGUMENTS = ((np.float32([1, 2, 3]), np.array([1, 1, 2], ml_dtypes.bfloat16)), np.float32([2, 3, 4]))
_REPLICAS = """
HloModule sums, replica_count=2

add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b) }

ENTRY main {
  p = f32[2] parameter(0)
  ROOT s = f32[2] all-reduce(p), replica_groups={}, to_apply=add
}
"""


@pytest.fixture(name="folder")
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XLAKIT_DUMP_TO", str(tmp_path / "dumps"))
    monkeypatch.delenv("XLAKIT_DUMP", raising=False)
    return tmp_path / "dumps"


def _module(text: str) -> xla.HloModule:
    return xla.HloModule.from_text(text)


def test_a_program_runs_again_on_the_arguments_of_its_first_call(folder: Path, capsys: pytest.CaptureFixture[str]):
    executable = xla.compile(_module(_STEP))
    expected = executable(*_ARGUMENTS)
    executable(_ARGUMENTS[0], np.zeros(3, np.float32))
    np.testing.assert_array_equal(expected, [4, 9, 20])
    manifest = json.loads((folder / "module_0000" / "manifest.json").read_text())
    assert (manifest["module"], manifest["arguments"]) == ("step", ["arguments/device_0000.npz"])
    for options in (
        [],
        ["--backend", "interpreter"],
        ["--compare", "interpreter"],
        ["--trace"],
        ["--against", "plain"],
    ):
        assert main(["run", str(folder / "module_0000"), *options]) == 0
        out = capsys.readouterr().out
        if not options or options[0] == "--backend":
            assert out == "[ 4.  9. 20.]\n"


@pytest.mark.parametrize("parts", ["passes, plan,llvm,asm", "passes,memory-plan,llvm, assembly"])
def test_what_is_written_is_chosen(parts: str, folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XLAKIT_DUMP", parts)
    xla.compile(_module(_STEP))(*_ARGUMENTS)
    made = folder / "module_0000"
    files = json.loads((made / "manifest.json").read_text())["files"]
    assert {"module.hlo", "memory-plan.txt", "module.ll", "module.s", "passes/00-before.hlo"} <= set(files)
    assert all((made / name).stat().st_size for name in files)
    assert not (made / "arguments").exists()
    assert main(["run", str(made)]) == 1
    assert main(["run", str(made), "--seed", "1"]) == 0
    assert main(["inspect", str(made)]) == 0


@pytest.mark.parametrize(("short", "name"), [("asm", "assembly"), ("plan", "memory-plan")])
def test_inspect_takes_the_names_of_dumps(short: str, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "step.hlo").write_text(_STEP)
    printed: list[str] = []
    for view in (short, name):
        assert main(["inspect", str(tmp_path / "step.hlo"), "--as", view]) == 0
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1] != ""


def test_a_program_that_is_inspected_has_no_arguments(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("XLAKIT_DUMP", "plan,arguments,passes")
    # Tuning would run the program.
    monkeypatch.setenv("XLAKIT_TUNE", "1")
    monkeypatch.setattr("xlakit.cpu.tuning.tune.tune", lambda *_, **__: pytest.fail("an inspected program is tuned"))
    (tmp_path / "sums.hlo").write_text(_REPLICAS)
    assert main(["inspect", str(tmp_path / "sums.hlo"), "--as", "memory"]) == 0
    made = folder / "module_0000"
    manifest = json.loads((made / "manifest.json").read_text())
    assert (manifest["num_replicas"], manifest["arguments"]) == (2, [])
    assert {"module.hlo", "memory-plan.txt", "passes/00-before.hlo"} <= set(manifest["files"])
    assert xla.HloModule.from_text((made / "module.hlo").read_text()).name == "sums"
    capsys.readouterr()


def test_programs_are_chosen_by_their_names(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XLAKIT_DUMP_FILTER", "other*, su?s")
    xla.compile(_module(_STEP))
    xla.compile(_module(_REPLICAS))
    (made,) = folder.iterdir()
    assert json.loads((made / "manifest.json").read_text())["module"] == "sums"


@pytest.mark.parametrize("replicated", [True, False])
def test_each_device_has_its_arguments(folder: Path, capsys: pytest.CaptureFixture[str], replicated: bool):
    executable = xla.compile(_module(_REPLICAS))
    if replicated:
        executable.execute_replicated([[np.float32([1, 2])], [np.float32([10, 20])]])
    else:
        executable(np.float32([5.5, 11]))
    assert main(["run", str(folder / "module_0000")]) == 0
    assert capsys.readouterr().out.count("[11. 22.]") == 2
    assert main(["run", str(folder / "module_0000"), "--compare", "interpreter"]) == 0
    assert main(["run", str(folder / "module_0000"), "--trace"]) == 0


def test_numbers_of_folders_go_on(folder: Path):
    for _ in range(2):
        xla.compile(_module(_STEP))
    assert sorted(entry.name for entry in folder.iterdir()) == ["module_0000", "module_0001"]


def test_programs_of_the_runtime_and_sanitized_ones(folder: Path, monkeypatch: pytest.MonkeyPatch):
    text = "HloModule m\nENTRY e {\n  p = f32[3] parameter(0)\n  ROOT r = f32[3] negate(p)\n}"
    xla.Client().compile(_module(text)).execute_replicated([[np.float32([2, 3, 4])]])
    saved = np.load(folder / "module_0000" / "arguments" / "device_0000.npz")
    np.testing.assert_array_equal(saved["0"], [2, 3, 4])
    monkeypatch.setenv("XLAKIT_SANITIZE", "1")
    xla.compile(_module(_STEP))(*_ARGUMENTS)
    assert (folder / "module_0001" / "arguments" / "device_0000.npz").exists()


def test_nothing_is_written_unless_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("XLAKIT_DUMP_TO", raising=False)
    assert dump_request() is None
    executable = xla.compile(_module(_REPLICAS.replace(", replica_count=2", "")))
    assert executable.direct_call is not None  # pyright: ignore[reportAttributeAccessIssue]


def test_wrong_settings_and_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("XLAKIT_DUMP", "hlo,everything")
    with pytest.raises(xla.ArgumentError, match="XLAKIT_DUMP is 'hlo,everything'"):
        xla.compile(_module(_STEP))
    monkeypatch.delenv("XLAKIT_DUMP")
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XLAKIT_DUMP_TO", str(tmp_path / "file"))
    with pytest.raises(xla.ResourceError, match="cannot be written"):
        xla.compile(_module(_STEP))
    monkeypatch.delenv("XLAKIT_DUMP_TO")
    assert main(["run", str(tmp_path)]) == 1
    assert "is a folder without programs" in capsys.readouterr().err
    (tmp_path / "manifest.json").write_text("{}")
    (tmp_path / "module.hlo").write_text(_STEP)
    assert main(["run", str(tmp_path)]) == 1
    assert "is damaged" in capsys.readouterr().err


_JAX = """
import os
import jax, jax.numpy as jnp
# One after the other, both with the modules that take longest to load; the second has the caches of the first.
if first := os.fork():
    assert os.waitpid(first, 0)[1] == 0
step = jax.jit(lambda x, w: jnp.tanh(x @ w).sum(0))
print(step(jnp.ones((4, 8)), jnp.full((8, 3), 0.25)))
"""


def test_programs_of_jax(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    pytest.importorskip("jax")
    environment = {
        **os.environ,
        "JAX_PLATFORMS": "xlakit",
        "XLAKIT_DUMP_TO": str(tmp_path / "dumps"),
        "XLAKIT_DUMP_FILTER": "jit__lambda*",
    }
    subprocess.run([sys.executable, "-c", _JAX], env=environment, check=True, capture_output=True)
    assert sorted(entry.name for entry in (tmp_path / "dumps").iterdir()) == ["module_0000", "module_0001"]
    assert main(["run", str(tmp_path / "dumps" / "module_0001")]) == 0
    assert capsys.readouterr().out == f"{np.tanh(np.float32([2, 2, 2])) * 4}\n"
