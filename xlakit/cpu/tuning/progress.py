"""The progress bar of tuning, drawn on standard error if that is a terminal."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import TextIO

from xlakit.cpu.tuning.tune import Progress

_WIDTH = 30
# Names are cut to this length, so that the bar stays on one line.
_NAME = 32


@contextmanager
def progress_bar(title: str, stream: TextIO | None = None) -> Generator[Progress]:
    """A callback that reports progress; the bar that it draws is erased at the end."""
    out = sys.stderr if stream is None else stream
    # Python sets a stream to None if it was closed before the interpreter started.
    if out is None or not out.isatty():  # pyright: ignore[reportUnnecessaryComparison]
        yield lambda done, total, name: None
        return

    def draw(done: int, total: int, name: str) -> None:
        filled = _WIDTH * done // max(1, total)
        bar = "#" * filled + "." * (_WIDTH - filled)
        out.write(f"\r\x1b[Ktuning {title[:_NAME]} [{bar}] {done}/{total} {name[:_NAME]}")
        out.flush()

    try:
        yield draw
    finally:
        out.write("\r\x1b[K")
        out.flush()
