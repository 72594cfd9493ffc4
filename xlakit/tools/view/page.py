"""The page of a document: styles, scripts and data in one HTML file that loads nothing."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable, Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Final

# In the order in which they are loaded: the first knows nothing of the page, and each uses those before it.
SCRIPTS: Final = (
    "vendor/dagre.min.js",
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


def page_of(document: Mapping[str, Any]) -> str:
    """The page as HTML text."""
    parts: dict[str, Callable[[], str]] = {
        "title": lambda: html.escape(str(document["title"])),
        "style": lambda: static("viewer.css"),
        "license": lambda: static("vendor/dagre.LICENSE"),
        "document": lambda: _json(document),
        "script": lambda: "\n".join(map(static, SCRIPTS)),
    }
    # A single pass, so that inserted parts are not scanned for placeholders.
    return re.sub(r"<!--(\w+)-->", lambda found: parts[found[1]](), static("viewer.html"))


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
