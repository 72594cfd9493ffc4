"""The pictures of the walk-through: Chromium shows the pages of its three programs, and what they tell is in view.

With XLAKIT_PICTURES=1 the pictures of the documents are made anew.
"""

import contextlib
import io
import os
import re
import shutil
import struct
from pathlib import Path

import pytest

import xlakit as xla
from benchmarks.viewer import chromium
from xlakit.passes.pipeline import PASSES
from xlakit.tools import cli

_ROOT = Path(xla.__file__).parents[1]
_DOCS = _ROOT / "docs"
_WALK = (_DOCS / "walkthrough.md").read_text()
_PICTURES = _DOCS / "pictures"
_SIZE = (1200, 420)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    shutil.copytree(_ROOT / "examples" / "walkthrough", tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XLAKIT_CACHE", "off")
    table = PASSES["simplify"].rules.rules
    before = list(table)
    yield tmp_path
    table[:] = before


@pytest.fixture(scope="module")
def browser():
    pytest.importorskip("selenium.webdriver", reason="no Selenium to drive a browser with")
    if shutil.which("chromium") is None or shutil.which("chromedriver") is None:
        pytest.skip("no Chromium with its driver")
    made = chromium()
    made.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": _SIZE[0], "height": _SIZE[1], "deviceScaleFactor": 1, "mobile": False},
    )
    yield made
    made.quit()


def output_of(*words):
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert cli.main(list(words)) == 0
    return out.getvalue()


def shown(browser, page, address):
    browser.get(f"{page.as_uri()}{address}")
    drawn(browser)


def drawn(browser):
    """Wait for what was changed to be in view."""
    browser.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")
    assert not browser.get_log("browser")


def picture(browser, path):
    png = browser.get_screenshot_as_png()
    assert size_of(png) == _SIZE
    path.write_bytes(png)
    if "XLAKIT_PICTURES" in os.environ:
        (_PICTURES / path.name).write_bytes(png)


def size_of(png):
    assert png.startswith(b"\x89PNG")
    return struct.unpack(">II", png[16:24])


def texts(browser, selector):
    return [own.text for own in browser.find_elements("css selector", selector)]


def test_the_walk_has_its_pictures():
    names = re.findall(r"^!\[[^\]]+\]\(pictures/([\w.-]+\.png)\)$", _WALK, re.MULTILINE)
    assert names == ["walk-rule.png", "walk-nan.png", "walk-loop.png"]
    for name in names:
        assert size_of((_PICTURES / name).read_bytes()) == _SIZE


def test_the_step_with_the_wrong_rule(browser, folder):
    output_of("view", "scores.hlo", "--load", "broken.py")
    report = output_of("bisect", "scores.hlo", "--compare", "cpu,interpreter", "--load", "broken.py", "--jobs", "1")
    number = re.search(r"in pass (\d+), simplify", report)[1]
    shown(browser, folder / "scores.html", f"#step={number}&view=changes&at=main.2/div.7")
    picture(browser, folder / "walk-rule.png")
    (about,) = texts(browser, "#steps .about")
    assert "square-is-self" in about
    assert any(text.startswith("mul.1 = ") for text in texts(browser, ".side.removed"))


def test_what_is_around_the_origin_of_the_nan(browser, folder):
    output_of("view", "train_step.hlo", "--no-passes")
    shown(browser, folder / "train_step.html", "#view=graph&at=main.1/log.1")
    picture(browser, folder / "walk-nan.png")
    nodes = [node.get_attribute("aria-label") for node in browser.find_elements("css selector", ".node")]
    assert {"log log.1, f32[8,4]", "tanh tanh.1, f32[8,4]"} <= {re.sub(r"\{.*", "", text) for text in nodes}
    assert "model.py:17:13" in browser.find_element("id", "details").text


def test_the_loop_by_time(browser, folder):
    Path("report.json").write_text(output_of("run", "unroll.hlo", "--profile", "--json"))
    output_of("view", "unroll.hlo", "--profile", "report.json")
    # The address of a step that there is not is the last one, of which the times are.
    shown(browser, folder / "unroll.html", "#step=999&color=time&q=op:dot")
    browser.find_element("id", "next").click()
    drawn(browser)
    picture(browser, folder / "walk-loop.png")
    (row,) = texts(browser, ".row.selected")
    assert re.search(r"^[\d.]+ \ws\b.* = .*dot\(", row, re.DOTALL)
    assert "model.py:30" in browser.find_element("id", "details").text
