"""What notebooks show of values: short HTML that needs no other file, and runs no pass."""

from html.parser import HTMLParser

import numpy as np
import pytest
from tools.view.programs import step

import xlakit as xla
from benchmarks.viewer import chain
from xlakit.ir.instruction import HloModule
from xlakit.passes import pipeline
from xlakit.tools.view import stages

VOID = {"br", "hr"}


class _Fragment(HTMLParser):
    """A fragment whose elements are closed, of which texts and attributes are kept."""

    def __init__(self, text):
        super().__init__()
        self.text, self.attributes, self.tags, self.inside = "", [], set(), []
        self.feed(text)
        assert not self.inside

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.inside.append(tag)

    def handle_endtag(self, tag):
        assert self.inside.pop() == tag

    def handle_data(self, data):
        self.text += data


@pytest.fixture
def no_passes(monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("a pass was run")

    for place in (pipeline, stages):
        monkeypatch.setattr(place, "run_pipeline", refuse)


def shown(value):
    html = value._repr_html_()
    found = _Fragment(html)
    assert len(html) < 30_000
    assert not {name for name, _ in found.attributes} & {"src", "href", "onclick"}
    assert not found.tags & {"script", "style", "link", "iframe"}
    # Colors are those of the page around it, which may be dark.
    assert "#fff" not in html
    assert "color: black" not in html
    return found.text


def test_modules_and_computations(no_passes):
    module = step()
    text = shown(module)
    assert "step · 2 computations · 9 instructions" in text.replace("HloModule ", "")
    assert "ROOT t = f32[8,8]{1,0} tanh(d)" in text
    assert "x: f32[8,8]" in text
    square = next(c for c in module.computations if c.name == "square")
    assert "ROOT b = f32[8,8]{1,0} multiply(a, a)" in shown(square)


def test_a_large_module_is_shown_in_part(no_passes):
    text = shown(chain(5000))
    assert "5,000 instructions" in text
    assert "... 4,960 more" in text
    assert "v39 = " in text
    assert "v40 = " not in text


def test_names_are_no_markup(no_passes):
    module = HloModule("a<script>b", step().entry)
    assert "a<script>b" in shown(module)
    assert "<script>" not in module._repr_html_()


def test_what_a_builder_builds(no_passes):
    builder = xla.XlaBuilder("double")
    x = xla.parameter(builder, 0, xla.make_shape(xla.F32, (3,)), "x")
    computation = builder.build(xla.add(x, x))
    assert "double" in shown(computation)
    assert "x: f32[3]" in shown(computation)


def test_shapes():
    assert shown(xla.make_shape(xla.F32, (4, 256))) == "Shape f32[4,256]{1,0} · 1,024 elements · 4.0 KiB"
    pair = xla.make_tuple_shape([xla.make_shape(xla.F32, (2,)), xla.make_tuple_shape([xla.make_shape(xla.S8, ())])])
    text = shown(pair)
    assert "2 leaves · 9 B" in text
    assert "[1, 0]s8[]" in text
    many = xla.make_tuple_shape([xla.make_shape(xla.F32, (2,))] * 1000)
    assert "the first 40 of them here" in shown(many)
    assert shown(xla.Shape(xla.TOKEN)) == "Shape token[]"


def test_memory_plans_and_profiles():
    executable = xla.compile(chain(40))
    plan = executable.memory_plan()
    text = shown(plan)
    assert "Memory plan chain" in text
    assert f"{len(plan.slices):,} slices" in text
    profile = xla.profile(step(), np.ones((8, 8), np.float32))
    text = shown(profile)
    assert "Profile step" in text
    assert "tanh" in text or "dot" in text


def test_views_of_modules_and_computations():
    module = step()
    assert '"steps":[{"name":"input"' in module.view(passes=False).html
    assert len(module.view().html) > len(module.view(passes=False).html)
    square = next(c for c in module.computations if c.name == "square")
    page = square.view()
    assert page.title == "square"
    assert page._repr_html_().startswith("<iframe")
