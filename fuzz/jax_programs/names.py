"""The names of programs, which they are made from."""

from __future__ import annotations


def name_of(prefixes: str, number: int) -> str:
    """The name of a program, by its number and the prefixes that programs have in turn, with commas between them."""
    listed = prefixes.split(",")
    return f"{listed[number % len(listed)]}.{number}"
