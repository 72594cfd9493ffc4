"""Names that HLO text can hold."""

from __future__ import annotations

from collections.abc import Collection

from xlakit.formats.unique_names import WORDS, is_plain, sanitized
from xlakit.ir.instruction import HloModule, Instruction
from xlakit.ir.names import unused_name
from xlakit.ir.rebuilding import rebuilt


def _plain(name: str, taken: set[str], words: Collection[str]) -> str:
    """The name sanitized for HLO text, none of its words, and unique among ``taken``, to which it is added."""
    plain = sanitized(name or "unnamed")
    unique = unused_name(f"{plain}_" if plain in words else plain, taken)
    taken.add(unique)
    return unique


def with_plain_names(module: HloModule, *, percent: bool = True) -> HloModule:
    """The module with the names replaced that HLO text cannot hold; the same object if there are none.

    percent: whether names of instructions and computations are printed with a %; that of the module never is.
    """
    words = frozenset[str]() if percent else WORDS

    def fits(name: str) -> bool:
        return is_plain(name) and name not in words

    own = module.name if is_plain(module.name) and module.name not in WORDS else _plain(module.name, set(), WORDS)
    named = [*(c.name for c in module.computations), *(i.name for i in module.instructions)]
    if all(map(fits, named)):
        return module if own == module.name else module.replace(name=own)
    names: dict[Instruction, str] = {}
    for computation in module.computations:
        taken = {i.name for i in computation.instructions if fits(i.name)}
        names |= {i: i.name if fits(i.name) else _plain(i.name, taken, words) for i in computation.instructions}
    taken = {c.name for c in module.computations if fits(c.name)}
    renamed = rebuilt(
        module,
        lambda old, new: new.replace(name=names[old]),
        name=lambda c: c.name if fits(c.name) else _plain(c.name, taken, words),
    )
    return renamed.replace(name=own)
