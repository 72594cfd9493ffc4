import pytest

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
