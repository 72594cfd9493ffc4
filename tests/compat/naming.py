"""Writes the names of jaxlib 0.6.0's xla_client: ``python naming.py``, run by a Python that has it.

For each module and class that can be reached, by its path: what ``dir`` gives, without what any class has.
"""

from __future__ import annotations

import json
import types
from pathlib import Path
from typing import Any

RECORDED = Path(__file__).parent / "names_060.json"
_OF_ANY = {*dir(object), *dir(types.ModuleType("any")), "__module__", "__annotations__", "__dict__", "__weakref__"}


def names_of(xla_client: Any) -> dict[str, list[str]]:
    """The names of each module and class, by its path; a second path to one is left out."""
    found: dict[str, list[str]] = {}
    seen: set[int] = set()
    waiting: list[tuple[str, Any]] = [("xla_client", xla_client)]
    while waiting:
        path, owner = waiting.pop(0)
        if id(owner) in seen:
            continue
        seen.add(id(owner))
        found[path] = [name for name in dir(owner) if name not in _OF_ANY]
        for name in found[path]:
            part = getattr(owner, name, None)
            home = part.__name__ if isinstance(part, types.ModuleType) else getattr(part, "__module__", None) or ""
            if isinstance(part, (type, types.ModuleType)) and home.startswith("jaxlib"):
                waiting.append((f"{path}.{name}", part))
    return found


def main() -> None:
    """Write the file."""
    from jaxlib import version, xla_client

    assert version.__version__ == "0.6.0"
    lines = [f"{json.dumps(path)}: {json.dumps(names)}" for path, names in names_of(xla_client).items()]
    RECORDED.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
