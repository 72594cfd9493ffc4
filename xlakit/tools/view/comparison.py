"""``view_difference``: two programs and what differs between them as a page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from xlakit.arguments import converting
from xlakit.ir.instruction import Computation, HloModule
from xlakit.tools.diff.difference import STATUSES, ComputationDiff, ModuleDiff
from xlakit.tools.diff.modules import diff_modules
from xlakit.tools.view.document import Document
from xlakit.tools.view.page import page_of
from xlakit.tools.view.stages import View, fault_of


@converting
def view_difference(
    first: HloModule,
    second: HloModule,
    *,
    ignore: Iterable[str] = (),
    names: tuple[str, str] | None = None,
    title: str | None = None,
) -> View:
    """A page of two programs, matched by their structure, and of what differs between them.

    ignore: what does not count, as :func:`xlakit.diff_modules` takes it. names: of the two programs; default: those of
    the modules. title: the page's.

    Raises ArgumentError for what cannot be ignored.
    """
    one, other = names or (first.name, second.name)
    title = title or f"{one} and {other}"
    return View(page_of(document_of_difference(first, second, ignore, (one, other), title).as_dict()), title)


def document_of_difference(
    first: HloModule, second: HloModule, ignore: Iterable[str], names: tuple[str, str], title: str
) -> Document:
    """The document of two programs: the first is step 0, the second step 1, and ``diff`` has the pairs."""
    diff = diff_modules(first, second, ignore=ignore)
    faults = fault_of(first), fault_of(second)
    document = Document(title, has_costs=not any(faults))
    for module, letter, name, fault in zip((first, second), "AB", names, faults, strict=True):
        document.add_step(module, f"{letter}: {name}", summary=_summary(diff, letter), note=fault)
    document.add(
        "diff",
        {
            "counts": {status: diff.count(status) for status in STATUSES},
            "pairs": [_pair(document, pair) for pair in diff.computations],
        },
    )
    return document


def _summary(diff: ModuleDiff, letter: str) -> str:
    if letter == "A":
        return "the first program"
    header = f"; these of the module differ: {', '.join(diff.header)}" if diff.header else ""
    return f"the second program{header}"


def _pair(document: Document, pair: ComputationDiff) -> dict[str, Any]:
    """Two computations, or one and -1, with their rows as runs, and what differs of each row that has more to say.

    A run is a status, the positions of its first instruction in both, or -1, and how many rows follow each other.
    """
    left, right = _positions(pair.first), _positions(pair.second)
    runs: list[list[int]] = []
    what: dict[int, str] = {}
    for number, row in enumerate(pair.instructions):
        # The viewer has names of its styles for these numbers.
        status = STATUSES.index(row.status)
        one = -1 if row.first is None else left[row.first]
        other = -1 if row.second is None else right[row.second]
        if row.what:
            what[number] = ", ".join(row.what)
        if runs and runs[-1] == [status, *_before(one, other, runs[-1][3]), runs[-1][3]]:
            runs[-1][3] += 1
        else:
            runs.append([status, one, other, 1])
    return {
        "a": -1 if pair.first is None else document.number_of(pair.first),
        "b": -1 if pair.second is None else document.number_of(pair.second),
        "what": ", ".join(pair.what),
        "runs": [number for run in runs for number in run],
        "rows": what,
    }


def _before(one: int, other: int, count: int) -> Sequence[int]:
    """The positions at which a run of ``count`` rows that ends before these positions would have begun."""
    return [-1 if position < 0 else position - count for position in (one, other)]


def _positions(computation: Computation | None) -> dict[Any, int]:
    return {} if computation is None else {i: n for n, i in enumerate(computation.instructions)}
