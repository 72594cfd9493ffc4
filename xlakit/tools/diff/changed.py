"""What a rewrite changes, as HLO text: the computations that differ before and after it, in the names from before."""

from __future__ import annotations

from xlakit.formats import hlo_text
from xlakit.ir.instruction import Computation, HloModule, Instruction
from xlakit.ir.names import unused_name
from xlakit.ir.rebuilding import rebuilt
from xlakit.tools.diff.modules import ComputationDiff, diff_modules


def changed_texts(before: HloModule, after: HloModule) -> tuple[str, str]:
    """The computations before and after a rewrite that the other module does not have in this form, without metadata.

    A pass may give new names to all that it copies: what is the same has the name here that it had before. Layouts are
    written out where the rewrite drops some.
    """
    named = _in_names_of(before, after)
    layouts = _mentions_layouts(before) and not _mentions_layouts(after)
    return _only_in(before, named, layouts=layouts), _only_in(named, before, layouts=layouts)


def _only_in(module: HloModule, other: HloModule, *, layouts: bool) -> str:
    other_texts = {_text_of(c, layouts=layouts) for c in other.computations}
    texts = [_text_of(c, layouts=layouts) for c in module.computations]
    return "\n\n".join(text for text in texts if text not in other_texts)


def _text_of(computation: Computation, *, layouts: bool) -> str:
    options = hlo_text.PrintOptions(short=True, metadata=False, layouts=layouts)
    return hlo_text.print_computation(computation, options)


def _mentions_layouts(module: HloModule) -> bool:
    leaves = (leaf for i in module.instructions for _, leaf in i.shape.leaves() if leaf.is_array)
    return any(leaf.layout is not None and leaf != leaf.with_default_layout() for leaf in leaves)


def _in_names_of(first: HloModule, second: HloModule) -> HloModule:
    """The second module, in which what corresponds to something in the first one has its name."""
    pairs = {c.second: c for c in diff_modules(first, second, ignore=_IGNORED).computations if c.second is not None}
    taken = {c.first.name for c in pairs.values() if c.first is not None}
    names: dict[Instruction, str] = {}

    def name(computation: Computation) -> str:
        pair = pairs[computation]
        names.update(_names(pair))
        chosen = pair.first.name if pair.first is not None else unused_name(computation.name, taken)
        taken.add(chosen)
        return chosen

    return rebuilt(second, lambda old, new: new.replace(name=names[old]), name=name)


_IGNORED = ("names", "metadata", "attributes", "order")


def _names(pair: ComputationDiff) -> dict[Instruction, str]:
    """The names of the instructions of the second computation."""
    names = {
        i.second: i.first.name
        for i in pair.instructions
        if i.first is not None and i.second is not None and i.first.opcode == i.second.opcode
    }
    taken = set(names.values())
    for i in pair.instructions:
        if i.second is not None and i.second not in names:
            names[i.second] = unused_name(i.second.name, taken)
            taken.add(names[i.second])
    return names
