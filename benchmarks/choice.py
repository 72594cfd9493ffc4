"""Which of a benchmark's programs a command line asks for."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence


def with_parts(parser: argparse.ArgumentParser, parts: Sequence[str], names: Iterable[str]) -> list[str]:
    """The names that have one of the parts, all where there are no parts; a part that none has is an error of usage."""
    every = list(names)
    unknown = [part for part in parts if not any(part in name for name in every)]
    if unknown:
        parser.error(f"no name has '{unknown[0]}' in it; there are: {', '.join(every)}")
    return [name for name in every if not parts or any(part in name for part in parts)]
