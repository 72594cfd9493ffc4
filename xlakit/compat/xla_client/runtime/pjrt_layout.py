"""PjRtLayout: the layout of an argument or a result."""

from __future__ import annotations

from typing import Any

from xlakit.compat.xla_client.binding import Wrapper, no_constructor
from xlakit.compat.xla_client.shapes import Layout
from xlakit.data.layout import Layout as OurLayout


class PjRtLayout(Wrapper[OurLayout]):
    """A layout, to be compared and printed."""

    __slots__ = ()

    __init__ = no_constructor

    def _xla_layout(self) -> Layout:
        return Layout.of(self.wrapped)

    def __str__(self) -> str:
        return str(self.wrapped)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PjRtLayout) and self.wrapped == other.wrapped

    def __hash__(self) -> int:
        return hash(self.wrapped)

    def __reduce__(self) -> tuple[Any, ...]:
        return PjRtLayout.of, (self.wrapped,)
