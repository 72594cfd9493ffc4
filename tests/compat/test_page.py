"""The examples of the pages "From xla_client" and "The math library"."""

import re
from pathlib import Path

import pytest

DOCUMENTS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("page", ["from_xla_client.md", "lib.md"])
def test_the_example_runs(page, capsys):
    blocks = re.findall(r"```python\n(.*?)```", (DOCUMENTS / page).read_text(encoding="utf-8"), re.DOTALL)
    (example,) = [block for block in blocks if "print(" in block]
    exec(example, {})
    expected = re.search(r"# (\[.*\])", example)[1]
    assert capsys.readouterr().out.strip() == expected
