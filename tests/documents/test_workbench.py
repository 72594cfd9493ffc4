"""The commands on the pages about the workbench run as they stand, on the files that the pages give or name."""

import contextlib
import doctest
import io
import re
import shlex
from pathlib import Path

import numpy as np
import pytest

import xlakit as xla
from xlakit.passes.pipeline import PASSES
from xlakit.tools import cli

_ROOT = Path(xla.__file__).parents[1]
PAGE = (_ROOT / "docs" / "workbench.md").read_text()
FILES = dict(re.findall(r'```\w+ title="([^"]+)"\n(.*?)```', PAGE, re.DOTALL))
WALK = (_ROOT / "docs" / "walkthrough.md").read_text()
WALKED = {path.name: path.read_text() for path in (_ROOT / "examples" / "walkthrough").iterdir() if path.is_file()}
_EXAMPLE = re.compile(r"```console\n\$ ([^\n]+)\n(.*?)```", re.DOTALL)


@pytest.fixture(autouse=True)
def rules():
    """What the page's faulty compiler adds to this process is taken away again."""
    table = PASSES["simplify"].rules.rules
    before = list(table)
    yield
    table[:] = before


def output_of(command):
    program, *words = shlex.split(command)
    if program == "cat":
        return Path(words[0]).read_text()
    assert program == "xlakit"
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert cli.main(words) in (0, 1)
    return out.getvalue()


@pytest.mark.usefixtures("observed_here")
@pytest.mark.parametrize(("page", "files", "number"), [(PAGE, FILES, 10), (WALK, WALKED, 6)], ids=["verbs", "walk"])
def test_commands_give_what_the_page_says(page, files, number, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    # What --load sets in the process of a run; the environment is put back afterwards.
    monkeypatch.setenv("XLAKIT_CACHE", "off")
    for name, text in files.items():
        Path(name).write_text(text)
    examples = _EXAMPLE.findall(page)
    assert len(examples) == number
    for command, expected in examples:
        found = output_of(command)
        flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
        assert doctest.OutputChecker().check_output(expected, found, flags), f"{command}\n{found}"


def test_the_reproducer_of_the_walk_has_five_lines():
    (program,) = re.findall(r"\$ cat small.hlo\n(.*?)```", WALK, re.DOTALL)
    assert len([line for line in program.splitlines() if line.strip()]) == 5


def test_lines_that_the_walk_names_are_those_of_the_model():
    lines = WALKED["model.py"].splitlines()
    assert "jnp.log(h)" in lines[17 - 1]
    assert "h @ w" in lines[30 - 1]
    assert "jnp.tanh" in lines[31 - 1]
    assert "jax.lax.scan" in lines[33 - 1]


@pytest.mark.parametrize("verb", ["check", "diff", "bisect", "reduce", "view", "extract"])
def test_every_verb_has_a_section(verb):
    assert f"\n## {verb}\n" in PAGE
    assert f"`xlakit {verb} " in PAGE


def test_the_example_of_edits_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("step.hlo").write_text(FILES["step.hlo"])
    (example,) = re.findall(r"```python\n(.*?)```", PAGE.split("\n## edit\n")[1].split("\n## ")[0], re.DOTALL)
    found = {}
    exec(example, found)
    np.testing.assert_array_equal(found["squares"], np.ones((8, 8)))
    # d = 1 + 1 after its edit; e = max(1, 0) of ones times d.
    np.testing.assert_array_equal(found["result"], np.full((8, 4), 8 * 2.0 + 2.0))
