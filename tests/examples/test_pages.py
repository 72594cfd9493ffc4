"""The programs on the pages in ``docs``: they run, and print what the page says."""

import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_about_programs_that_talk(capsys):
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / "talking.md").read_text(encoding="utf-8"), re.DOTALL)
    code = "\n".join(blocks)
    exec(compile(code, "talking.md", "exec"), {})
    promised = re.findall(r"print\(.*\) +# (.*)", code)
    assert len(promised) == 2
    assert capsys.readouterr().out.splitlines() == promised
