"""The programs on the pages: they run, and print what the page says."""

import re
from pathlib import Path

import numpy as np
import pytest

import xlakit as xla

ROOT = Path(__file__).parents[2]


def blocks(page):
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)


def run(code, page):
    names = {}
    exec(compile(code, page, "exec"), names)
    return names


def test_the_page_about_programs_that_talk(capsys):
    code = "\n".join(blocks("docs/talking.md"))
    run(code, "talking.md")
    promised = re.findall(r"print\(.*\) +# (.*)", code)
    assert len(promised) == 2
    assert capsys.readouterr().out.splitlines() == promised


def test_the_page_about_devices(capsys):
    code = blocks("docs/devices.md")[0]
    run(code, "devices.md")
    assert capsys.readouterr().out.strip() in code


def test_the_page_about_several_processes(not_joined):
    names = run(blocks("docs/distributed.md")[0], "distributed.md")
    names["client"].close()
    assert [np.asarray(one).tolist() for one in names["results"]] == [[6, 4]] * 4


def test_the_first_program(capsys):
    page = "README.md"
    run(blocks(page)[0], page)
    out = capsys.readouterr().out
    assert out.startswith("HloModule softmax")
    assert out.rstrip().endswith("[0.33333334 0.33333334 0.33333334]]")


def test_the_mistake_is_the_error_that_is_shown():
    builder = xla.XlaBuilder("softmax")
    x, y = (xla.parameter(builder, i, xla.make_shape(xla.F32, s)) for i, s in enumerate([(2, 3), (3,)]))
    with pytest.raises(xla.ShapeError) as caught:
        xla.add(x, y)
    shown = re.search(r"xlakit\.errors\.ShapeError: (.*?)\n```", (ROOT / "README.md").read_text(), re.DOTALL)[1]
    assert re.sub(r"at: .*", "at: model.py:12", str(caught.value)) == shown
