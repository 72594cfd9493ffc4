"""The examples of the pages "From xla_client" and "The math library"."""

import re
from pathlib import Path

import pytest

DOCUMENTS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("page", ["from_xla_client.md", "lib.md"])
def test_the_examples_run(page, capsys):
    blocks = re.findall(r"```python\n(.*?)```", (DOCUMENTS / page).read_text(encoding="utf-8"), re.DOTALL)
    example = "\n".join(block for block in blocks if "print(" in block)
    exec(example, {})
    expected = re.findall(r"^print\(.*\)  # (.*)$", example, re.M)
    assert expected and capsys.readouterr().out.splitlines() == expected
