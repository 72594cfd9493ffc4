"""Warnings of the command ``xlakit``: a line each, once."""

from __future__ import annotations

import os
import warnings
from typing import Final

from xlakit.tools.commands.shared import print_warning

# The environment variables that there are, without XLAKIT_ before them.
VARIABLES: Final = frozenset(
    [
        "ADDRESS",
        "AS",
        "ASYNC",
        "CACHE",
        "CACHE_DIR",
        "CACHE_LIMIT",
        "CHECK_MEMORY",
        "CPU",
        "DEBUG",
        "DEVICES",
        "DISABLE_PASSES",
        "DUMP",
        "DUMP_FILTER",
        "DUMP_TO",
        "FLUSH_SUBNORMALS",
        "FUEL",
        "KEPT_BYTES",
        "KNOBS",
        "MACHINE",
        "MEMORY_LIMIT",
        "MPI_THREADS",
        "PLAIN",
        "PROFILE",
        "RECEIVE_LIMIT",
        "SANITIZE",
        "THREADS",
        "TIMEOUT",
        "TRANSPORT",
        "TUNE",
        "VECTOR_BYTES",
        "VERIFY",
    ]
)


def as_lines() -> None:
    """Print warnings of this process as lines of the command, and one for each environment variable that is unknown."""
    warnings.showwarning = _show
    for variable in os.environ:
        name = variable.removeprefix("XLAKIT_")
        if name not in {variable, *VARIABLES}:
            from difflib import get_close_matches  # loaded with the first of these

            # Others may have variables of their own with that beginning.
            if near := get_close_matches(name, VARIABLES, 1, 0.75):
                print_warning(f"nothing reads {variable}\n  hint: did you mean XLAKIT_{near[0]}?")


def _show(message: Warning | str, category: type[Warning], *place: object) -> None:
    """What Python calls for a warning: its text, without the line of xlakit that raised it."""
    print_warning(str(message))
