"""The examples of the documents run as they stand, each page in a process of its own: they declare operations."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import xlakit as xla

_ROOT = Path(xla.__file__).parents[1]
_PAGES = sorted(p for p in (_ROOT / "docs").rglob("*.md") if ">>>" in p.read_text())

_RUN = """
import doctest, sys
flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS | doctest.REPORT_ONLY_FIRST_FAILURE
failed, tried = doctest.testfile(sys.argv[1], module_relative=False, optionflags=flags)
sys.exit(f"{failed} of {tried} examples failed" if failed or not tried else 0)
"""


def test_the_tutorial_has_five_pages():
    assert len([page for page in _PAGES if page.parent.name == "tutorial"]) == 5


@pytest.mark.parametrize("page", _PAGES, ids=lambda page: page.stem)
def test_examples_run(page):
    environment = {**os.environ, "PYTHONPATH": str(_ROOT), "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [sys.executable, "-c", _RUN, str(page)], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
