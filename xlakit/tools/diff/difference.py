"""What differs between two modules, and its text: unified, with the instructions that are the same around it."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import Final, Literal

from xlakit.formats import hlo_text
from xlakit.ir.instruction import Computation, HloModule, Instruction

_COLORS = {"-": "31", "+": "32", "~": "33", "@": "36"}

Status = Literal["same", "changed", "moved", "only in A", "only in B"]
STATUSES: Final[tuple[Status, ...]] = ("same", "changed", "moved", "only in A", "only in B")


@dataclass(frozen=True, eq=False)
class InstructionDiff:
    """An instruction of the first module, of the second, or one of each that correspond.

    what: in which ways they differ, such as ``shape`` or ``operands``.
    """

    status: Status
    first: Instruction | None
    second: Instruction | None
    what: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class ComputationDiff:
    """Two computations that correspond, or one that only one module has, with their instructions in order."""

    first: Computation | None
    second: Computation | None
    instructions: tuple[InstructionDiff, ...]
    what: tuple[str, ...] = ()

    @property
    def is_same(self) -> bool:
        """Whether nothing differs."""
        return not self.what and all(i.status == "same" for i in self.instructions)

    @property
    def name(self) -> str:
        """The name, of both if it is not the same."""
        names = dict.fromkeys(c.name for c in (self.first, self.second) if c is not None)
        return " -> ".join(names)


@dataclass(frozen=True, eq=False, repr=False)
class ModuleDiff:
    """Two modules compared.

    header: the differences of the modules outside computations. computations: callees first, as in the second module.
    """

    first: HloModule
    second: HloModule
    header: tuple[str, ...]
    computations: tuple[ComputationDiff, ...]

    @property
    def is_same(self) -> bool:
        """Whether nothing differs that was not ignored."""
        return not self.header and all(c.is_same for c in self.computations)

    def count(self, status: Status) -> int:
        """How many instructions, or pairs of them, are the same, changed, moved, or only in one module."""
        return sum(i.status == status for c in self.computations for i in c.instructions)

    @property
    def _summary(self) -> str:
        return "instructions: " + ", ".join(f"{self.count(status)} {status}" for status in STATUSES)

    def to_text(self, *, context: int = 3, colored: bool = False, ignore: Collection[str] = ()) -> str:
        """The difference, unified: ``-`` of the first, ``+`` of the second, ``~`` moved, with a summary at the end.

        context: how many instructions that are the same are shown around each difference.
        ignore: layouts are not printed where they are ignored. Metadata is printed where it differs.
        """
        options = hlo_text.PrintOptions(short=True, layouts="layouts" not in ignore, large_constants=False)
        lines = [f"@@ module: {name} differs" for name in self.header]
        for computation in self.computations:
            if not computation.is_same:
                lines.extend(_computation(computation, context, options))
        lines.append(self._summary)
        return "\n".join(_colored(line) if colored else line for line in lines) + "\n"

    def __str__(self) -> str:
        """The difference as text."""
        return self.to_text()

    def __repr__(self) -> str:
        """The names of the modules, and how many instructions are the same."""
        return f"<ModuleDiff of {self.first.name} and {self.second.name}: {self._summary}>"

    def as_dict(self) -> dict[str, object]:
        """The differences as a dict that JSON can hold."""
        different = [(c, i) for c in self.computations for i in c.instructions if i.status != "same"]
        return {
            "is_same": self.is_same,
            "counts": {s: self.count(s) for s in STATUSES},
            "header": list(self.header),
            "computations": [{"name": c.name, "what": list(c.what)} for c in self.computations if c.what],
            "instructions": [
                {
                    "computation": c.name,
                    "status": i.status,
                    "first": None if i.first is None else str(i.first),
                    "second": None if i.second is None else str(i.second),
                    "what": list(i.what),
                }
                for c, i in different
            ],
        }


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
