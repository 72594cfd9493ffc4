"""The picture of a run for people who read no table: a bar for each group, xlakit's time in XLA's, as SVG.

It is written without a drawing library, an element a line, so that a new run changes few lines of the file.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from xml.sax.saxutils import escape

# Names of groups stand left of the bars; left and right of these is room for the longest bars' numbers.
_WIDTH, _LEFT, _ROOM, _TOP, _ROW = 760, 170, 46, 58, 24
_QUICKER, _SLOWER, _INK = "#2a7f62", "#b5532a", "#222222"


def picture(report: Mapping[str, Any]) -> str:
    """The picture of a report, as ``report.json`` has it; raises ValueError where nothing was timed.

    The scale is logarithmic: a bar that goes left says how many times quicker xlakit is, one that goes right how many
    times slower.
    """
    means = [(m["group"], m["rows"], m["ratio_to_xla"]) for m in report["means"] if m["ratio_to_xla"] is not None]
    if not means:
        raise ValueError("the report has no times: its run was --quick, or nothing ran on both sides")
    return "\n".join([*_lines(means, _words(report["machine"])), ""])


def _words(machine: Mapping[str, Any]) -> str:
    return f"{machine['processor']}, {machine['threads']} thread{'s' * (machine['threads'] != 1)}"


def _lines(means: Sequence[tuple[str, int, float]], machine: str) -> Iterator[str]:
    height = _TOP + _ROW * len(means) + 34
    reach = max(math.log(1.25), *(abs(math.log(ratio)) for _, _, ratio in means))
    half = (_WIDTH - _LEFT) / 2 - _ROOM
    middle, unit = _LEFT + _ROOM + half, half / reach

    def at(ratio: float) -> float:
        return middle + unit * math.log(ratio)

    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}" '
        'font-family="sans-serif" font-size="13">'
    )
    yield f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>'
    yield _text(12, 22, "xlakit's time, where XLA's is 1", size=16)
    yield _text(12, 42, f"geometric means of {means[-1][1]} programs by group; {machine}", color="#666666")
    for number, (group, count, ratio) in enumerate(means):
        y = _TOP + _ROW * number
        x, width = min(at(ratio), middle), abs(at(ratio) - middle)
        color = _QUICKER if ratio <= 1 else _SLOWER
        yield _text(_LEFT - 10, y + 16, f"{group} ({count})", anchor="end", bold=number == len(means) - 1)
        yield f'<rect x="{x:.1f}" y="{y + 3}" width="{width:.1f}" height="{_ROW - 7}" fill="{color}"/>'
        end, anchor = (at(ratio) - 6, "end") if ratio <= 1 else (at(ratio) + 6, "start")
        yield _text(end, y + 16, f"{ratio:.2f}", anchor=anchor)
    bottom = _TOP + _ROW * len(means)
    yield f'<line x1="{middle:.1f}" y1="{_TOP - 4}" x2="{middle:.1f}" y2="{bottom + 4}" stroke="{_INK}"/>'
    yield _text(middle - 12, bottom + 22, "quicker than XLA", anchor="end", color=_QUICKER)
    yield _text(middle, bottom + 22, "1", anchor="middle")
    yield _text(middle + 12, bottom + 22, "slower", color=_SLOWER)
    yield "</svg>"


def _text(
    x: float, y: float, text: str, *, anchor: str = "start", color: str = _INK, size: int = 13, bold: bool = False
) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return (
        f'<text x="{x:.1f}" y="{y}" text-anchor="{anchor}" fill="{color}" font-size="{size}"{weight}>'
        f"{escape(text)}</text>"
    )
