"""Names that HLO text can hold."""

from __future__ import annotations

import dataclasses

from xlakit.formats.unique_names import is_plain, sanitized
from xlakit.ir.instruction import Computation, HloModule, Instruction
from xlakit.ir.names import unused_name


def _plain(name: str, taken: set[str]) -> str:
    """The name sanitized for HLO text and made unique among ``taken``, to which it is added."""
    unique = unused_name(sanitized(name or "unnamed"), taken)
    taken.add(unique)
    return unique


def with_plain_names(module: HloModule) -> HloModule:
    """The module with the names replaced that HLO text cannot hold; the same object if there are none."""
    named = [module.name, *(c.name for c in module.computations)]
    named += [i.name for i in module.instructions]
    if all(map(is_plain, named)):
        return module
    taken = {c.name for c in module.computations if is_plain(c.name)}
    renamed: dict[Computation, Computation] = {}
    for computation in module.computations:
        name = computation.name if is_plain(computation.name) else _plain(computation.name, taken)
        renamed[computation] = dataclasses.replace(_renamed(computation, renamed), name=name)
    return module.replace(
        name=_plain(module.name, set()), entry=renamed[module.entry], computations=tuple(renamed.values())
    )


def _renamed(computation: Computation, renamed: dict[Computation, Computation]) -> Computation:
    taken = {i.name for i in computation.instructions if is_plain(i.name)}

    def change(old: Instruction, operands: tuple[Instruction, ...]) -> Instruction:
        name = old.name if is_plain(old.name) else _plain(old.name, taken)
        op = old.op.map_computations(renamed.__getitem__) if old.op.called_computations else old.op
        return old.replace(op=op, operands=operands, name=name)

    return computation.rebuild(change)
