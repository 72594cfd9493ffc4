"""A difference of modules as text: unified, with the instructions that are the same around what differs."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from xlakit.formats import hlo_text
from xlakit.ir.instruction import Instruction
from xlakit.tools.diff.modules import ComputationDiff, InstructionDiff, ModuleDiff, Status

_COLORS = {"-": "31", "+": "32", "~": "33", "@": "36"}


def as_text(diff: ModuleDiff, *, context: int = 3, colored: bool = False, ignore: Collection[str] = ()) -> str:
    """The difference of two modules: ``-`` of the first, ``+`` of the second, ``~`` moved, with a summary at the end.

    context: how many instructions that are the same are shown around each difference.
    ignore: layouts are not printed where they are ignored. Metadata is printed where it differs.
    """
    options = hlo_text.PrintOptions(short=True, layouts="layouts" not in ignore, large_constants=False)
    lines = [f"@@ module: {name} differs" for name in diff.header]
    for computation in diff.computations:
        if not computation.is_same:
            lines.extend(_computation(computation, context, options))
    lines.append(summary(diff))
    return "\n".join(_colored(line) if colored else line for line in lines) + "\n"


def summary(diff: ModuleDiff) -> str:
    """How many instructions are what, in a line."""
    statuses: tuple[Status, ...] = ("same", "changed", "moved", "only in A", "only in B")
    return "instructions: " + ", ".join(f"{diff.count(status)} {status}" for status in statuses)


def _computation(diff: ComputationDiff, context: int, options: hlo_text.PrintOptions) -> Iterator[str]:
    what = f" ({', '.join(diff.what)})" if diff.what else ""
    yield f"@@ {diff.name}{what}"
    shown = {
        near
        for index, i in enumerate(diff.instructions)
        if i.status != "same"
        for near in range(index - context, index + context + 1)
    }
    skipped = False
    for index, i in enumerate(diff.instructions):
        if index in shown:
            if skipped:
                yield "  ..."
            yield from _instruction(i, options)
        skipped = index not in shown


def _instruction(diff: InstructionDiff, options: hlo_text.PrintOptions) -> Iterator[str]:
    options = replace(options, short="metadata" not in diff.what)
    if diff.first is not None and diff.status in ("changed", "only in A"):
        yield f"- {_line(diff.first, options)}"
    if diff.second is not None:
        mark = {"same": " ", "moved": "~"}.get(diff.status, "+")
        what = f"   // {', '.join(diff.what)}" if diff.what else ""
        yield f"{mark} {_line(diff.second, options)}{what}"


def _line(i: Instruction, options: hlo_text.PrintOptions) -> str:
    return hlo_text.print_instruction(i, options).strip()


def _colored(line: str) -> str:
    color = _COLORS.get(line[:1])
    return f"\x1b[{color}m{line}\x1b[0m" if color else line
