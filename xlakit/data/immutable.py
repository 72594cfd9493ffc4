"""Values that are their own copies."""

from __future__ import annotations

from typing import Self


class Immutable:
    """A value that does not change, or an object that there is once: copies of it are the object itself."""

    __slots__ = ()

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self
