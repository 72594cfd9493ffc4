import os

import pytest


@pytest.fixture(autouse=True)
def _cache_stays_on(monkeypatch):
    """--load switches the compile cache off for its process, which is that of the tests."""
    if "XLAKIT_CACHE" not in os.environ:
        monkeypatch.setenv("XLAKIT_CACHE", "on")
        monkeypatch.delenv("XLAKIT_CACHE")


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
