"""Names that HLO text can hold."""

from __future__ import annotations

import dataclasses
import re

from xlakit.data.primitive import PrimitiveType
from xlakit.ir.instruction import Computation, HloModule, Instruction

_PLAIN = re.compile(r"(?!__)[A-Za-z_][\w.\-]*", re.ASCII)
# Words that XLA's parser takes for types.
_TYPES = frozenset(t.hlo_name for t in PrimitiveType) - {"tuple", "buffer"}


def _is_plain(name: str) -> bool:
    return _PLAIN.fullmatch(name) is not None and name not in _TYPES


def _plain(name: str, taken: set[str]) -> str:
    """A name made plain, and unlike those that are taken."""
    from xlakit.formats.unique_names import sanitized  # the proto needs it too, and most programs do not

    stem = name if _is_plain(name) else sanitized(name or "unnamed")
    found, number = stem, 0
    while found in taken:
        number += 1
        found = f"{stem}.{number}"
    taken.add(found)
    return found


def with_plain_names(module: HloModule) -> HloModule:
    """The module itself, or one with other names where some cannot stand in text."""
    named = [module.name, *(c.name for c in module.computations)]
    named += [i.name for c in module.computations for i in c.instructions]
    if all(map(_is_plain, named)):
        return module
    taken = {c.name for c in module.computations if _is_plain(c.name)}
    made: dict[Computation, Computation] = {}
    for computation in module.computations:
        name = computation.name if _is_plain(computation.name) else _plain(computation.name, taken)
        made[computation] = dataclasses.replace(_renamed(computation, made), name=name)
    return module.replace(name=_plain(module.name, set()), entry=made[module.entry], computations=tuple(made.values()))


def _renamed(computation: Computation, made: dict[Computation, Computation]) -> Computation:
    taken = {i.name for i in computation.instructions if _is_plain(i.name)}

    def change(old: Instruction, operands: tuple[Instruction, ...]) -> Instruction:
        name = old.name if _is_plain(old.name) else _plain(old.name, taken)
        op = old.op.map_computations(made.__getitem__) if old.op.called_computations else old.op
        return old.replace(op=op, operands=operands, name=name)

    return computation.rebuild(change)
