"""Every example program: read, verified, run and compared with jaxlib, and the small scripts run as they stand."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import xlakit as xla
from xlakit.tools.compare import compare, format_table
from xlakit.tools.inputs import make_inputs
from xlakit.tools.jaxlib_backend import JaxlibBackend

EXAMPLES = Path(__file__).parents[1] / "examples"
PROGRAMS = sorted(EXAMPLES.glob("*.hlo"))
SCRIPTS = ("first_program.py", "while_loop.py", "replicas.py")


@pytest.fixture(scope="module")
def jaxlib():
    return JaxlibBackend()


def load(path):
    return xla.HloModule.from_text(path.read_text(), name=path.name)


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda p: p.stem)
def test_the_interpreter_agrees_with_jaxlib(path, jaxlib):
    module = load(path)
    arguments = make_inputs(module.entry.program_shape, 0)
    leaves = compare(xla.compile(module)(*arguments), jaxlib.run(module, arguments))
    assert leaves
    assert all(leaf.agrees for leaf in leaves), "\n" + format_table(leaves)


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda p: p.stem)
def test_text_and_proto_round_trips(path):
    module = load(path)
    text = module.to_text()
    assert xla.HloModule.from_text(text).to_text() == text
    assert xla.HloModule.from_proto(module.to_proto()).to_text() == text


@pytest.mark.parametrize("script", SCRIPTS)
def test_scripts_run_as_they_stand(script):
    environment = {**os.environ, "PYTHONPATH": str(EXAMPLES.parent)}
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / script)], capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_results_are_fresh_and_writable():
    module = load(EXAMPLES / "mlp_train_step.hlo")
    arguments = make_inputs(module.entry.program_shape, 0)
    copies = [np.copy(a) for a in arguments]
    first = xla.compile(module)(*arguments)
    for leaf in first:
        leaf[...] = 0
    for argument, copy in zip(arguments, copies, strict=True):
        np.testing.assert_array_equal(argument, copy)
