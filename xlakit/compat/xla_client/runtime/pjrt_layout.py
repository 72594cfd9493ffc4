"""PjRtLayout: the layout of an argument or a result."""

from __future__ import annotations

from typing import Any

from xlakit.compat.xla_client.binding import unconstructed
from xlakit.compat.xla_client.shapes import Layout
from xlakit.data.layout import Layout as OurLayout


class PjRtLayout:
    """A layout, to be compared and printed."""

    __slots__ = ("_layout",)

    @unconstructed
    def __init__(self, layout: OurLayout) -> None:
        self._layout = layout

    def _xla_layout(self) -> Layout:
        return Layout.of(self._layout)

    def __str__(self) -> str:
        return str(self._layout)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PjRtLayout) and self._layout == other._layout

    def __hash__(self) -> int:
        return hash(self._layout)

    def __reduce__(self) -> tuple[Any, ...]:
        return PjRtLayout, (self._layout,)
