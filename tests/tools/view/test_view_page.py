"""The page: one file that loads nothing, whose data cannot become markup."""

import json
import re
from html.parser import HTMLParser

import pytest
from tools.view.programs import STEP, step

from xlakit.ir.instruction import HloModule
from xlakit.tools import cli
from xlakit.tools.view.page import SCRIPTS, packed, page_of, static
from xlakit.tools.view.stages import document_of, view_module

FIELDS = {"input", "select", "textarea"}


class _Page(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.elements, self.ids, self.labeled, self.texts, self.inside = [], {}, set(), {}, []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.elements.append((tag, attributes))
        if "id" in attributes:
            assert attributes["id"] not in self.ids, "two elements have one id"
            self.ids[attributes["id"]] = tag
        if tag in FIELDS and "label" in self.inside:
            self.labeled.add(attributes["id"])
        if tag not in ("meta", "input", "br"):
            self.inside.append(tag)

    def handle_endtag(self, tag):
        assert self.inside.pop() == tag

    def handle_data(self, data):
        if self.inside and self.inside[-1] == "button":
            self.texts[len(self.elements) - 1] = data.strip()


@pytest.fixture(scope="module")
def page():
    return page_of(document_of(step()).as_dict())


def data_of(page):
    return json.loads(re.search(r'<script type="application/json" id="document">(.*?)</script>', page, re.S)[1])


def test_it_loads_nothing(page):
    elements = _Page(page).elements
    assert not [a for _, a in elements if {"src", "href", "srcset", "action"} & a.keys()]
    (policy,) = [a["content"] for t, a in elements if t == "meta" and a.get("http-equiv") == "Content-Security-Policy"]
    assert policy.startswith("default-src 'none'")
    assert "@import" not in page
    assert "sourceMappingURL" not in page


def test_controls_have_labels(page):
    found = _Page(page)
    for place, (tag, attributes) in enumerate(found.elements):
        if tag == "button":
            assert attributes.get("aria-label") or found.texts.get(place), attributes
        if tag in FIELDS:
            assert attributes["id"] in found.labeled
    for _, attributes in found.elements:
        controlled = attributes.get("aria-controls") or attributes.get("aria-labelledby")
        assert controlled is None or controlled in found.ids


def test_the_document_is_in_it(page):
    assert data_of(page) == json.loads(json.dumps(packed(document_of(step(), passes=True).as_dict()))) | {
        "steps": data_of(page)["steps"]
    }


def test_texts_of_programs_are_no_markup():
    evil = "</script><script>alert(1)</script><!-- <b>"
    module = HloModule.from_text(STEP.replace("f/square", evil))
    page = view_module(module, passes=False, title="</title><b>").html
    assert evil not in page
    assert "<b>" not in page
    assert evil in data_of(page)["strings"]
    assert _Page(page).elements.count(("script", {})) == 1


def test_licenses_of_what_it_contains_are_in_it(page):
    assert "Copyright (c) 2012-2014 Chris Pettitt" in page
    assert "Permission is hereby granted" in page


def test_no_script_can_end_its_element():
    for name in SCRIPTS:
        assert "</script" not in static(name)
        assert "<!--" not in static(name)
    assert "*/" not in static("vendor/dagre.LICENSE")


def test_our_files_are_short():
    for name in (*SCRIPTS[1:], "viewer.css", "viewer.html"):
        assert static(name).count("\n") <= 510


def test_the_command_writes_it(tmp_path, capsys):
    path = tmp_path / "step.hlo"
    path.write_text(STEP)
    assert cli.main(["view", str(path)]) == 0
    page = (tmp_path / "step.html").read_text()
    assert data_of(page)["title"] == "step.hlo"
    assert "step.html" in capsys.readouterr().out
    output = tmp_path / "other.html"
    assert cli.main(["view", str(path), "-o", str(output), "--no-passes"]) == 0
    assert len(data_of(output.read_text())["steps"]) == 1
    assert cli.main(["view", str(path), "--disable", "nonsense"]) == 2
    assert "no pass and no rule 'nonsense'" in capsys.readouterr().err


def test_a_pass_that_there_is_not_is_no_page(tmp_path, capsys):
    (tmp_path / "m.hlo").write_text("ENTRY e { ROOT x = f32[] parameter(0) }")
    assert cli.main(["view", str(tmp_path / "m.hlo"), "--until", "nothing"]) == 2
    assert "no pass 'nothing' runs" in capsys.readouterr().err
    assert not (tmp_path / "m.html").exists()


def test_a_notebook_shows_a_frame():
    view = view_module(step(), passes=False)
    (frame,) = [a for t, a in _Page(view._repr_html_()).elements if t == "iframe"]
    assert frame["srcdoc"] == view.html
    assert frame["sandbox"] == "allow-scripts"
