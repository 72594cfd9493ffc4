"""Quick fixes: what mends a fault or a warning, as edits of the text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from xlakit.tools.lsp.checking import Fault
from xlakit.tools.lsp.document import Document, Symbol
from xlakit.tools.lsp.lines import Span


@dataclass(frozen=True, slots=True)
class Fix:
    """A way to mend a fault: what it does, in words, and the text that replaces each span."""

    fault: Fault
    title: str
    edits: list[tuple[Span, str]]


def fixes(document: Document, within: Span) -> Iterator[Fix]:
    """The fixes of the faults in a span. The text may have changed since it was checked: then there are none."""
    for fault in document.checked.faults:
        is_there = document.text[fault.span.start : fault.span.end] == fault.word
        if not is_there or fault.span.start > within.end or within.start > fault.span.end:
            continue
        if not fault.lint:
            for word in fault.instead:
                sign = "%" if fault.word.startswith("%") else ""
                yield Fix(fault, f"Change {fault.word} to {word}", [(fault.span, sign + word)])
        elif fault.instead:
            yield from _for_uses(document, fault, fault.instead[0])


def _for_uses(document: Document, fault: Fault, name: str) -> Iterator[Fix]:
    """Another instruction in all places that use the one that a lint warns of; the root of a program has none."""
    symbol = document.symbol_at(fault.span.start)
    if symbol is None or symbol.definition is None:
        return
    other = symbol.scope.find(name)
    spans = list(document.uses(symbol))
    if other is None or not spans or document.symbol_at(other.span.start) != Symbol(symbol.scope, other):
        return
    edits = [(Span(s.start + (document.text[s.start] == "%"), s.end), name) for s in spans]
    yield Fix(fault, f"Use {name} instead of {symbol.name}", edits)
