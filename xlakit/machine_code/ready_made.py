"""Machine code that comes with the package: what every process loads, such as the runtime.

A process whose compile cache is empty, such as the first one in a new container, would take a quarter of a second to
compile it. So the package is built with it (setup.py), for the lowest level of the instruction set: an entry of the
compile cache for each kind. An entry has digests of the sources that it was made of. If one of these is another one
now, as in a checkout whose files are edited, or if there is no entry for this system, the machine code is compiled.
"""

from __future__ import annotations

import hashlib
import platform
import sys
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Final

from xlakit import compile_cache
from xlakit.compile_cache import Entry
from xlakit.errors import FormatError

_PACKAGE: Final = Path(__file__).parents[1]
_PLACE: Final = f"{_PACKAGE.name}/machine_code"


def load(kind: str) -> Entry | None:
    """The machine code of a kind; None if the package has none for this system, or if it was made of other sources."""
    path = _PACKAGE.parent / _PLACE / _file_of(kind)
    try:
        found = compile_cache.unpacked(path.read_bytes(), _key(kind))
        sources: dict[str, str] = found.fields["sources"]
        if all(_digest(source) == digest for source, digest in sources.items()):
            return Entry(found.fields["fields"], found.sections)
    except (OSError, FormatError):
        # It was never made, or is damaged like a source file can be: the code is compiled.
        return None
    return None


def save(folder: Path, kind: str, entry: Entry) -> None:
    """Make the machine code of a kind part of the package in a folder. All loaded modules count as its sources."""
    files = [Path(module.__file__ or "") for module in list(sys.modules.values()) if hasattr(module, "__file__")]
    names = sorted(file.relative_to(_PACKAGE).as_posix() for file in files if file.is_relative_to(_PACKAGE))
    fields = {"fields": entry.fields, "sources": {name: _digest(name) for name in names}}
    data = compile_cache.packed(Entry(fields, entry.sections), _key(kind))
    (folder / _PLACE / _file_of(kind)).write_bytes(data)


def _key(kind: str) -> str:
    # The suffix names the versions of Python and its ABI, and the C library: .cpython-311-x86_64-linux-gnu.so
    return f"{sys.platform} {platform.machine()} {EXTENSION_SUFFIXES[0]} {kind}"


def _file_of(kind: str) -> str:
    return f"{hashlib.sha256(_key(kind).encode()).hexdigest()[:16]}.xlakit"


@cache
def _digest(source: str) -> str:
    return hashlib.sha256((_PACKAGE / source).read_bytes()).hexdigest()
