"""What type checkers make of the package: names that it has not are errors, those that it has have their types."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

import xlakit as xla

_ROOT = Path(xla.__file__).parents[1]

_PROGRAM = """
from typing import assert_type

import xlakit as xla
from xlakit import *

def good() -> None:
    builder = xla.XlaBuilder("typed")
    x = xla.parameter(builder, 0, xla.make_shape(xla.F32, (2, 3)))
    assert_type(add(x, 1), xla.XlaOp)
    assert_type(xla.compile(builder.build()), xla.Executable)

xla.reduse
xla.make_shape(xla.F32, "a")
"""


def _check(command: list[str], folder: Path) -> list[int]:
    """The lines at which a type checker finds errors in the program."""
    (folder / "program.py").write_text(_PROGRAM.lstrip("\n"))
    environment = {**os.environ, "PYTHONPATH": str(_ROOT), "MYPYPATH": str(_ROOT)}
    done = subprocess.run(
        [sys.executable, "-m", *command, "program.py"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if "error:" in line]
    assert all("program.py" in line for line in lines), done.stdout + done.stderr
    return sorted({int(line.partition("program.py:")[2].split(":")[0]) for line in lines})


@pytest.mark.parametrize(
    ("checker", "options"),
    [("pyright", ["--pythonpath", sys.executable]), ("mypy", ["--cache-dir", ".cache", "--no-color-output"])],
)
def test_type_checkers_flag_names_that_are_not_there(checker, options, tmp_path):
    if importlib.util.find_spec(checker) is None:
        pytest.skip(f"{checker} is not installed")
    program = _PROGRAM.lstrip("\n").splitlines()
    wrong = [number for number, line in enumerate(program, 1) if "reduse" in line or '"a"' in line]
    assert _check([checker, *options], tmp_path) == wrong


def test_a_star_import_gives_the_names():
    names: dict[str, object] = {}
    exec("from xlakit import *", names)
    assert names["reduce"] is xla.reduce
    assert names["F32"] is xla.F32
    assert {"XlaBuilder", "compile", "HloModule", "Executable"} <= set(names)
    assert "import_module" not in names


def test_importing_the_package_loads_none_of_it():
    code = "import sys, xlakit; assert not [m for m in sys.modules if m.startswith(('xlakit.', 'numpy'))]"
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "PYTHONPATH": str(_ROOT)})


def test_a_name_loads_what_it_needs_alone():
    code = (
        "import sys, xlakit; xlakit.compile, xlakit.F32; assert 'xlakit.tools' not in sys.modules, sorted(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "PYTHONPATH": str(_ROOT)})


def test_a_module_of_the_package_comes_without_all_that_the_package_offers():
    code = "import sys; from xlakit import options; assert 'xlakit.face' not in sys.modules, sorted(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "PYTHONPATH": str(_ROOT)})
