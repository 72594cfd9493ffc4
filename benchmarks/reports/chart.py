"""The chart of a report: a bar for each row, to the left of 1 where xlakit is quicker."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness import Row


def draw(rows: Sequence[Row], path: Path) -> None:
    """Bars of xlakit / XLA by row, on a logarithmic scale, with a mark for xlakit / best peer."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    timed = [row for row in rows if row.ratio_to_xla is not None]
    figure = Figure(figsize=(10, 1.5 + 0.22 * len(timed)), layout="constrained")
    FigureCanvasAgg(figure)
    axes: Any = figure.subplots()
    groups = list(dict.fromkeys(row.group for row in timed))
    places = range(len(timed))
    axes.barh(
        places,
        # A bar begins at 1, which is what its length says on this scale.
        [row.ratio_to_xla - 1 for row in timed if row.ratio_to_xla is not None],
        left=1,
        color=[f"C{groups.index(row.group)}" for row in timed],
    )
    axes.plot([row.ratio_to_best for row in timed], places, "k|", markersize=8, label="xlakit / best peer")
    axes.set_xscale("log")
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_yticks(places, [row.name for row in timed], fontsize=8)
    for label, row in zip(axes.get_yticklabels(), timed, strict=True):
        label.set_color(f"C{groups.index(row.group)}")
    axes.set_ylim(len(timed) - 0.4, -0.6)
    axes.grid(axis="x", which="both", linewidth=0.3)
    axes.set_xlabel("xlakit's time / XLA's time (left of 1: xlakit is quicker)")
    axes.xaxis.set_major_formatter("{x:g}")
    figure.legend(loc="outside upper right", fontsize=8)
    figure.savefig(path, dpi=130)
