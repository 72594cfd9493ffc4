"""HTML fragments for notebooks: small tables and listings that inherit the colors of the surrounding page."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, Protocol

# Text inherits its color and borders are mid-gray, so that both are visible on dark and on light pages.
_LINE: Final = "1px solid #8888"
_CODE: Final = "font-family: ui-monospace, 'DejaVu Sans Mono', monospace; font-size: 90%"
_CELL: Final = f"padding: 1px 10px 1px 0; border: 0; border-bottom: {_LINE}; white-space: nowrap; vertical-align: top"


class HtmlPage(Protocol):
    """A page for a browser, which a notebook shows in a frame.

    html: the page, which needs no other file. title: its name.
    """

    html: str
    title: str

    def save(self, path: str | Path) -> None:
        """Write the page into a file. Raises OSError."""
        ...


def code(text: str) -> str:
    """Program text as inline code."""
    return f'<code style="{_CODE}; color: inherit; background: none">{html.escape(text)}</code>'


def heading(kind: str, name: str, facts: Iterable[str] = ()) -> str:
    """A line that says what an object is: its kind, its name, and facts about it."""
    parts = [f"<b>{html.escape(kind)}</b> {code(name)}" if name else f"<b>{html.escape(kind)}</b>"]
    return f"<div>{' &middot; '.join([*parts, *map(html.escape, facts)])}</div>"


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: int = 0) -> str:
    """A table of texts; the last ``numbers`` columns are aligned to the right."""
    first = len(columns) - numbers

    def cells(tag: str, row: Sequence[str], style: str) -> str:
        sides = ("left" if place < first else "right" for place in range(len(row)))
        parts = zip(row, sides, strict=True)
        made = (
            f'<{tag} style="{_CELL}; text-align: {side}; {style}">{html.escape(text)}</{tag}>' for text, side in parts
        )
        return f"<tr>{''.join(made)}</tr>"

    head = cells("th", columns, "font-weight: 600")
    body = "".join(cells("td", row, _CODE) for row in rows)
    return (
        f'<table style="border-collapse: collapse; color: inherit"><thead>{head}</thead><tbody>{body}</tbody></table>'
    )


def listing(title: str, lines: Iterable[str], *, is_open: bool = False) -> str:
    """A collapsible listing of program lines under a title; ``is_open``: whether it is expanded at first."""
    style = f"{_CODE}; margin: 4px 0; max-height: 30em; overflow: auto; color: inherit; background: none"
    text = html.escape("\n".join(lines))
    return (
        f"<details{' open' * is_open}><summary>{html.escape(title)}</summary>"
        f'<pre style="{style}; white-space: pre">{text}</pre></details>'
    )


def amount_of_bytes(count: int) -> str:
    """A number of bytes as a person reads it, in powers of 1024."""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"
