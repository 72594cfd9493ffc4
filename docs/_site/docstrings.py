"""How docstrings are read for the site: paragraphs of parameters become lists, and roles plain code."""

from __future__ import annotations

import re
from typing import Any

import griffe

# A line that tells of parameters: "name: what it is", "first, second: what they are".
_PARAMETER = re.compile(r"^(\*{0,2}\w+(?:, \*{0,2}\w+)*): (?=\S)")
_ROLE = re.compile(r":(?:meth|func|class|attr|mod|data|exc):`~?([^`]+)`")
_PROSE = ("Gives", "Raises", "Source", "Note")


def as_markdown(text: str) -> str:
    """A docstring as Markdown."""
    lines: list[str] = []
    in_list = False
    for line in _ROLE.sub(r"`\1`", text).splitlines():
        found = _PARAMETER.match(line)
        if found is not None and found[1].split(",")[0] not in _PROSE:
            if not in_list and lines and lines[-1]:
                lines.append("")
            names = ", ".join(f"`{name}`" for name in found[1].split(", "))
            lines.append(f"- {names}: {line[found.end() :]}")
            in_list = True
        elif in_list and line.startswith("    "):
            lines.append("  " + line.strip())
        else:
            if in_list and line:
                lines += [] if not lines[-1] else [""]
                in_list = False
            lines.append(line)
    return "\n".join(lines)


class Docstrings(griffe.Extension):
    """Rewrite every docstring that is shown."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Called with everything that has a docstring, once it is known."""
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)
