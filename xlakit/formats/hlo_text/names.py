"""Names that HLO text can hold."""

from __future__ import annotations

from xlakit.formats.unique_names import is_plain, sanitized
from xlakit.ir.instruction import HloModule, Instruction
from xlakit.ir.names import unused_name
from xlakit.ir.rebuilding import rebuilt


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
    names: dict[Instruction, str] = {}
    for computation in module.computations:
        taken = {i.name for i in computation.instructions if is_plain(i.name)}
        names |= {i: i.name if is_plain(i.name) else _plain(i.name, taken) for i in computation.instructions}
    taken = {c.name for c in module.computations if is_plain(c.name)}
    renamed = rebuilt(
        module,
        lambda old, new: new.replace(name=names[old]),
        name=lambda c: c.name if is_plain(c.name) else _plain(c.name, taken),
    )
    return renamed.replace(name=_plain(module.name, set()))
