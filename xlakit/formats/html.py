"""The HTML that notebooks show for modules and computations: their sizes, shapes and first instructions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from xlakit.data.html import heading, listing
from xlakit.formats.hlo_text import PrintOptions, print_instruction
from xlakit.ir.instruction import Computation, HloModule, Instruction

# Limits of the output, which a notebook stores; ``print`` and ``view`` show the whole program.
_MOST_LINES: Final = 40
_MOST_CHARACTERS: Final = 300
_SHORT: Final = PrintOptions(short=True, metadata=False, large_constants=False)


def module_html(module: HloModule) -> str:
    """Name, sizes, and the first instructions of the entry."""
    computations = len(module.computations)
    facts = [
        f"{computations:,} computation{'s' * (computations != 1)}",
        f"{module.instruction_count():,} instruction{'s' * (module.instruction_count() != 1)}",
    ]
    if module.replica_count > 1:
        facts.append(f"{module.replica_count:,} replicas")
    if module.num_partitions > 1:
        facts.append(f"{module.num_partitions:,} partitions")
    shape = listing("Parameters and result", _shape_lines(module.entry))
    return heading("HloModule", module.name, facts) + shape + _instructions(module.entry)


def computation_html(computation: Computation) -> str:
    """Name, size, and the first instructions."""
    count = len(computation.instructions)
    facts = [f"{count:,} instruction{'s' * (count != 1)}"]
    return heading("Computation", computation.name, facts) + _instructions(computation, is_open=count <= _MOST_LINES)


def _shape_lines(computation: Computation) -> Iterator[str]:
    parameters = computation.parameters
    for parameter in parameters[:_MOST_LINES]:
        yield _cut(f"{parameter.name}: {parameter.shape.to_string(with_layout=False)}")
    if len(parameters) > _MOST_LINES:
        yield f"... {len(parameters) - _MOST_LINES:,} more"
    yield _cut(f"-> {computation.root.shape.to_string(with_layout=False)}")


def _instructions(computation: Computation, *, is_open: bool = False) -> str:
    shown = computation.instructions[:_MOST_LINES]
    left = len(computation.instructions) - len(shown)
    title = (
        f"The first {len(shown)} instructions of {computation.name}" if left else f"Instructions of {computation.name}"
    )
    lines = [_line(instruction, computation) for instruction in shown]
    return listing(title, [*lines, *([f"... {left:,} more"] if left else [])], is_open=is_open)


def _line(instruction: Instruction, computation: Computation) -> str:
    root = "ROOT " if instruction is computation.root else ""
    return _cut(root + print_instruction(instruction, _SHORT))


def _cut(line: str) -> str:
    return line if len(line) <= _MOST_CHARACTERS else f"{line[:_MOST_CHARACTERS]} ..."
