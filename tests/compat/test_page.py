"""The example of the page "From xla_client"."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "from_xla_client.md"


def test_the_example_runs(capsys):
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (example,) = [block for block in blocks if "print(" in block]
    exec(example, {})
    expected = re.search(r"# (\[.*\])", example)[1]
    assert capsys.readouterr().out.strip() == expected
