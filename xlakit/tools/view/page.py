"""The page of a document: styles, scripts and data in one HTML file that loads nothing."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from itertools import pairwise
from typing import Any, Final

# In the order in which they are loaded: the first knows nothing of the page, and each uses those before it.
SCRIPTS: Final = (
    "vendor/dagre.min.js",
    "packing.js",
    "matching.js",
    "model.js",
    "rows.js",
    "texts.js",
    "panels.js",
    "drawings.js",
    "roofline.js",
    "mesh.js",
    "viewer.js",
)
# Fields of lines of which few combinations are in a program.
COMBINED: Final = (
    ("shape", "opcode", "rest", "flops", "transcendentals", "bytes", "operand_counts"),
    ("source", "op_name"),
)


def page_of(document: Mapping[str, Any]) -> str:
    """The page as HTML text."""
    parts: dict[str, Callable[[], str]] = {
        "title": lambda: html.escape(str(document["title"])),
        "style": lambda: static("viewer.css"),
        "license": lambda: static("vendor/dagre.LICENSE"),
        "document": lambda: _json(packed(document)),
        "script": lambda: "\n".join(map(static, SCRIPTS)),
    }
    # A single pass, so that inserted parts are not scanned for placeholders.
    return re.sub(r"<!--(\w+)-->", lambda found: parts[found[1]](), static("viewer.html"))


def packed(document: Mapping[str, Any]) -> dict[str, Any]:
    """A document with its table of lines in half the text, which ``packing.js`` reads: fields that many lines have in
    common are numbers of distinct combinations, names are counted from the line before, operands from their line.
    """
    lines = dict(document["lines"])
    names: Sequence[int] = lines.pop("name")
    counts: Sequence[int] = lines["operand_counts"]
    owners = (name for name, count in zip(names, counts, strict=True) for _ in range(count))
    lines["operands"] = [owner - operand for owner, operand in zip(owners, lines["operands"], strict=True)]
    lines["names"] = [name - before for before, name in pairwise((0, *names))]
    for combination in COMBINED:
        rows = list(zip(*(lines.pop(field) for field in combination), strict=True))
        numbers = {row: number for number, row in enumerate(dict.fromkeys(rows))}
        table = (
            dict(zip(combination, zip(*numbers, strict=True), strict=True)) if rows else dict.fromkeys(combination, ())
        )
        lines.setdefault("tables", []).append([[numbers[row] for row in rows], table])
    return {**document, "lines": lines}


def _json(document: object) -> str:
    """JSON that may stand in a script element: no text of the program can end the element."""
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).replace("<", "\\u003c")


@cache
def static(name: str) -> str:
    """The text of a file that the page is made of."""
    return files("xlakit.tools.view").joinpath("static", name).read_text(encoding="utf-8")


def with_reload(page: str, version: str) -> str:
    """A page that loads itself again when its server has another version; it may connect to that server only."""
    script = static("reload.js").replace('"VERSION"', _json(version))
    page = page.replace("default-src 'none'; script-src", "default-src 'none'; connect-src 'self'; script-src", 1)
    head, end, rest = page.rpartition("</body>")
    return f"{head}<script>\n{script}</script>\n{end}{rest}"
