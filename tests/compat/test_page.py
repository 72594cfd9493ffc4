"""The examples of the pages "From xla_client" and "The math library", and the names of the first one's table."""

import re
from pathlib import Path

import pytest

import xlakit
from xlakit import lib
from xlakit.compat import xla_client

DOCUMENTS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("page", ["from_xla_client.md", "lib.md"])
def test_the_examples_run(page, capsys):
    blocks = re.findall(r"```python\n(.*?)```", (DOCUMENTS / page).read_text(encoding="utf-8"), re.DOTALL)
    example = "\n".join(block for block in blocks if "print(" in block)
    exec(example, {})
    expected = re.findall(r"^print\(.*\)  # (.*)$", example, re.M)
    assert expected and capsys.readouterr().out.splitlines() == expected


def test_each_operation_has_the_name_that_the_page_tells():
    page = (DOCUMENTS / "from_xla_client.md").read_text(encoding="utf-8")
    rows = [line.split("|")[1:3] for line in page.splitlines() if line.startswith("| `")]
    told = {name for old, _ in rows for name in re.findall(r"[`.]([A-Z]\w+)", old)}
    functions = [
        name for name, value in vars(xla_client.ops).items() if callable(value) and not isinstance(value, type)
    ]
    # "Conditional" and "While" end in an underscore where Python has a word of that name; lib has what is no operation.
    names = {name: re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower() for name in functions}
    for name in told:
        names.pop(name, None)
    modules = [xlakit, lib, lib.linear_algebra, lib.special]
    assert len(names) > 100
    assert not {o: n for o, n in names.items() if not any(hasattr(m, form) for m in modules for form in (n, f"{n}_"))}
    for _, new in rows:
        for path in re.findall(r"xlakit\.([\w.]+)", new):
            found = xlakit
            for part in path.split("."):
                found = getattr(found, part)
