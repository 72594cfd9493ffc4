"""The programs in ``examples``: they run, agree with XLA, travel through every format, and can be exported again."""

import os
import runpy
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import xlakit as xla
from xlakit.execution.inputs import make_inputs
from xlakit.tools.compare import compare, format_table

EXAMPLES = Path(__file__).parents[2] / "examples"
HLO = EXAMPLES / "hlo"
PROGRAMS = sorted(path.stem for path in HLO.glob("*.hlo"))


def read(name):
    return xla.HloModule.from_text((HLO / f"{name}.hlo").read_text(encoding="utf-8"), name=f"{name}.hlo")


def agree(actual, expected):
    leaves = compare(actual, expected)
    assert all(leaf.agrees for leaf in leaves), format_table(leaves)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_runs_and_keeps_its_meaning_in_every_format(name):
    module = read(name)
    module.verify()
    arguments = make_inputs(module.entry.program_shape, seed=0)
    result = xla.compile(module, backend="interpreter")(*arguments)
    text = module.to_text()
    reread = xla.HloModule.from_text(text)
    assert reread.to_text() == text
    for other in (reread, xla.HloModule.from_proto(module.to_proto())):
        agree(xla.compile(other, backend="interpreter")(*arguments), result)


@cache
def jaxlib_client():
    from xlakit.tools.jaxlib_backend import JaxlibBackend

    return JaxlibBackend()


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_agrees_with_xla(name):
    pytest.importorskip("jaxlib")
    module = read(name)
    arguments = make_inputs(module.entry.program_shape, seed=1)
    agree(xla.compile(module, backend="interpreter")(*arguments), jaxlib_client().run(module, arguments))


@pytest.mark.parametrize(
    ("script", "output"),
    [
        ("first_program.py", "[[ 0.  0.]\n [ 0.  0.]\n [ 0.  6.]\n [ 0. 12.]]"),
        ("while_loop.py", "after 1000 iterations: [   0. 1000. 2000. 3000."),
        ("devices.py", "in the same memory: True"),
        ("replicas.py", "replica 3: mean [31.5 41.5 53.5], from its neighbor [ 4.5  7.5 10.5]"),
    ],
)
def test_a_script_prints_its_result(script, output, capsys):
    runpy.run_path(str(EXAMPLES / script), run_name="__main__")
    assert output in capsys.readouterr().out


def test_a_script_with_threads_ends():
    environment = {**os.environ, "PYTHONPATH": str(EXAMPLES.parent)}
    command = [sys.executable, EXAMPLES / "custom_calls_and_feeds.py"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    assert "round 4: [55. 45. 55. 65.]" in done.stdout


def test_the_export_can_be_repeated():
    jax = pytest.importorskip("jax")
    if jax.__version__ != "0.10.2" or sys.version_info[:2] != (3, 11):
        pytest.skip("other versions of JAX, and of Python's line tables, export other text")
    command = [sys.executable, EXAMPLES / "export.py", "--check", "sort", "while", "int_ops"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_program_is_exported_and_described():
    readme = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    assert PROGRAMS
    assert [name for name in PROGRAMS if f"`{name}.hlo`" not in readme] == []


def test_no_program_names_a_folder_of_a_machine():
    for name in PROGRAMS:
        text = (HLO / f"{name}.hlo").read_text(encoding="utf-8")
        assert '"/' not in text
        assert ":\\" not in text
