"""Hints for errors that many operations raise."""

from __future__ import annotations

from xlakit.data.primitive import PrimitiveType


def below(count: int, what: str = "dimension") -> str:
    """For a number that must be in ``0 .. count - 1``."""
    if count < 1:
        return f"there is no {what} to name"
    article = "an" if what[0] in "aeiou" else "a"
    return f"give {article} {what} from 0 to {count - 1}" if count > 1 else f"the only {what} is 0"


def multiple(size: int, count: int) -> str:
    """For a size that must divide into ``count`` equal parts."""
    if count < 1:
        return "give at least 1 part"
    smaller = size // count * count
    return f"pad it to {smaller + count}" + (f" or slice it to {smaller}" if smaller else "")


def converted(kind: PrimitiveType) -> str:
    """For an operand of another element type than ``kind``."""
    return f"convert it with convert_element_type to {kind.hlo_name}"
