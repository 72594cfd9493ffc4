"""The commands on the page about the workbench run as they stand, on the files that the page gives."""

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

PAGE = (Path(xla.__file__).parents[1] / "docs" / "workbench.md").read_text()
FILES = dict(re.findall(r'```\w+ title="([^"]+)"\n(.*?)```', PAGE, re.DOTALL))
EXAMPLES = re.findall(r"```console\n\$ ([^\n]+)\n(.*?)```", PAGE, re.DOTALL)


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


def test_commands_give_what_the_page_says(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, text in FILES.items():
        Path(name).write_text(text)
    assert len(EXAMPLES) == 10
    for command, expected in EXAMPLES:
        found = output_of(command)
        flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
        assert doctest.OutputChecker().check_output(expected, found, flags), f"{command}\n{found}"


@pytest.mark.parametrize("verb", ["check", "diff", "bisect", "reduce", "view", "extract"])
def test_every_verb_has_a_section(verb):
    assert f"\n## {verb}\n" in PAGE
    assert f"`xlakit {verb} " in PAGE


def test_the_example_of_edits_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("step.hlo").write_text(FILES["step.hlo"])
    (example,) = re.findall(r"```python\n(.*?)```", PAGE.split("\n## edit\n")[1], re.DOTALL)
    found = {}
    exec(example, found)
    np.testing.assert_array_equal(found["squares"], np.ones((8, 8)))
    # d = 1 + 1 after its edit; e = max(1, 0) of ones times d.
    np.testing.assert_array_equal(found["result"], np.full((8, 4), 8 * 2.0 + 2.0))
