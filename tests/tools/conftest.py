import os

import pytest

from xlakit.tools.jaxlib_child import Jaxlib


@pytest.fixture(autouse=True)
def _cache_stays_on(monkeypatch):
    """--load switches the compile cache off for its process, which is that of the tests."""
    if "XLAKIT_CACHE" not in os.environ:
        monkeypatch.setenv("XLAKIT_CACHE", "on")
        monkeypatch.delenv("XLAKIT_CACHE")


@pytest.fixture(scope="session")
def _jaxlib_processes():
    started = []
    yield started
    for child in started:
        type(child).end(child)


@pytest.fixture
def one_jaxlib(_jaxlib_processes, monkeypatch):
    """Comparisons share one process of jaxlib, whose start takes a second: for programs that it answers."""
    start = Jaxlib._start

    def shared(jaxlib):
        if not _jaxlib_processes:
            child = start(jaxlib)
            child.end = lambda: None
            _jaxlib_processes.append(child)
        return _jaxlib_processes[0]

    monkeypatch.setattr(Jaxlib, "_start", shared)


ADD = """HloModule add

ENTRY main {
  x = f32[3] parameter(0)
  y = f32[3] parameter(1)
  ROOT sum = f32[3] add(x, y)
}
"""


@pytest.fixture
def add_text():
    """A program of two parameters: their sum."""
    return ADD


@pytest.fixture
def add_file(tmp_path):
    """The file of that program."""
    path = tmp_path / "add.hlo"
    path.write_text(ADD)
    return str(path)
