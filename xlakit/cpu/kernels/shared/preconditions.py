"""Preconditions of emitters, checked before code is written, because code that violates them would corrupt memory."""

from __future__ import annotations

from collections.abc import Iterable

from xlakit.errors import InternalError

# A rule in words, and whether it holds.
Rule = tuple[str, bool]


def require(what: str, rules: Iterable[Rule]) -> None:
    """Raise InternalError for the first rule that does not hold; ``what`` names the code to be written."""
    for rule, holds in rules:
        if not holds:
            raise InternalError(f"no code is made for {what}: it breaks the rule that {rule}")
