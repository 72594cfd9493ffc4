"""Old public names: each keeps working for one version, with a DeprecationWarning that says the new one."""

from __future__ import annotations

import warnings
from typing import Any


def warn_renamed(old: str, new: str, *, stacklevel: int = 3) -> None:
    """Warn at the caller of the function that calls this."""
    warnings.warn(f"{old} is now {new}", DeprecationWarning, stacklevel=stacklevel)


def renamed_attribute(old: str, new: str) -> Any:
    """A property that gives the attribute ``new``, for a class that called it ``old``."""

    def get(self: object) -> Any:
        warn_renamed(f"{type(self).__name__}.{old}", new)
        return getattr(self, new)

    return property(get, doc=f"The old name of :attr:`{new}`.")
