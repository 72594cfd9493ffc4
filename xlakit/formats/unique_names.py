"""Names that are unique in a whole module, as HLO protos need them."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable
from typing import Protocol, TypeVar

from xlakit.data.primitive import PrimitiveType

_PLAIN = re.compile(r"(?!__)[A-Za-z_][A-Za-z0-9_.-]*")
_NUMBERED = re.compile(r"(.+)\.(-?\d+)", re.DOTALL)
# Names that HLO text reads as types: those of the primitive types, except these two.
_TYPE_NAMES = frozenset(t.hlo_name for t in PrimitiveType) - {"tuple", "buffer"}
# Words of HLO text, which are names only behind a %.
WORDS = frozenset(
    {"HloModule", "ENTRY", "ROOT", "true", "false", "nan", "inf", "maximal", "replicated", "manual", "unreduced"}
    | {"unknown", "last_tile_dim_replicate", "shard_as", "shard_like"}
)


class _Named(Hashable, Protocol):
    @property
    def name(self) -> str: ...


_T = TypeVar("_T", bound=_Named)


def is_plain(name: str) -> bool:
    """Whether HLO text can hold a name."""
    return _PLAIN.fullmatch(name) is not None and name not in _TYPE_NAMES


def sanitized(name: str) -> str:
    """A name as HLO text can hold it, made as XLA makes it."""
    if is_plain(name):
        return name
    first = name[0] if re.match(r"[A-Za-z_]", name) else "_"
    plain = first + re.sub(r"[^A-Za-z0-9_.-]", "_", name[1:])
    if plain in _TYPE_NAMES:
        plain += "_"
    return "a" + plain[1:] if plain.startswith("__") and not plain.startswith("__xla_") else plain


def unique_names(nodes: Iterable[_T]) -> dict[_T, str]:
    """A name for each node: its own if all names differ, else names with numbers, as XLA's parser gives them.

    In HLO text, instructions of two computations may have one name; in a proto they may not.
    """
    listed = list(nodes)
    names = {node: node.name for node in listed}
    if len(set(names.values())) == len(listed) and all(names.values()):
        return names
    taken: dict[str, set[int]] = {}
    free: dict[str, int] = {}
    for node in listed:
        root, number = sanitized(node.name or "name"), 0
        numbered = _NUMBERED.fullmatch(root)
        if numbered is not None:
            root, number = numbered[1], int(numbered[2])
        used = taken.setdefault(root, set())
        if number in used:
            number = free.get(root, 0)
            while number in used:
                number += 1
            free[root] = number + 1
        used.add(number)
        names[node] = root if number == 0 and numbered is None else f"{root}.{number}"
    return names
