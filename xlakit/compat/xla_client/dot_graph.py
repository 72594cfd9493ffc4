"""The graph of a computation in Graphviz's language."""

from __future__ import annotations

from html import escape

from xlakit.data.shape import Shape
from xlakit.ir.instruction import Computation, Instruction
from xlakit.ir.traits import Elementwise
from xlakit.ops.data import Constant, Parameter

_FILLS = {
    "parameter": "#ffe0b2",
    "constant": "#e0e0e0",
    "elementwise": "#fff9c4",
    "calling": "#d1c4e9",
    "other": "white",
}
_MOST_LABEL = 60


def dot_graph(computation: Computation) -> str:
    """A ``digraph`` with a node for each instruction and an edge for each operand; called computations are clusters."""
    lines = [
        "digraph G {",
        "rankdir = TB;",
        "compound = true;",
        f"label = <<b>Computation {escape(computation.name)}</b>>;",
        "labelloc = t;",
        'node [shape=rect, style=filled, fontname="Helvetica", fontsize=10];',
    ]
    numbers: dict[Instruction, int] = {}
    _add(computation, numbers, lines, [0])
    lines += ["root [label=ROOT, shape=circle];", f"n{numbers[computation.root]} -> root;", "}"]
    return "\n".join(lines) + "\n"


def _add(computation: Computation, numbers: dict[Instruction, int], lines: list[str], clusters: list[int]) -> None:
    """Add the nodes and edges of a computation, and as clusters those of what its instructions call."""
    # Iterative, since computations may call each other in chains of any length.
    pending: list[tuple[Computation, bool]] = [(computation, False)]
    seen: set[Computation] = {computation}
    while pending:
        current, is_called = pending.pop()
        if is_called:
            clusters[0] += 1
            lines.append(f"subgraph cluster_{clusters[0]} {{ label = <<b>{escape(current.name)}</b>>;")
        for instruction in current.instructions:
            numbers[instruction] = len(numbers)
            lines.append(f"n{numbers[instruction]} [label=<{_label(instruction)}>, fillcolor={_fill(instruction)}];")
            for callee in instruction.op.called_computations:
                if callee not in seen:
                    seen.add(callee)
                    pending.append((callee, True))
        lines += _edges(current, numbers)
        if is_called:
            lines.append("}")


def _edges(computation: Computation, numbers: dict[Instruction, int]) -> list[str]:
    return [
        f'n{numbers[operand]} -> n{numbers[user]} [headlabel="{position}", labeldistance=2];'
        for user in computation.instructions
        for position, operand in enumerate(user.operands)
    ]


def _label(instruction: Instruction) -> str:
    lines = [f"<b>{escape(instruction.name)}</b>", escape(instruction.opcode)]
    if isinstance(instruction.op, Constant) and instruction.shape.is_scalar:
        lines.append(escape(str(instruction.op.literal.to_numpy())))
    if isinstance(instruction.op, Parameter):
        lines[1] = f"Parameter {instruction.op.number}"
    lines += [f"calls <b>{escape(callee.name)}</b>" for callee in instruction.op.called_computations]
    return "<br/>".join([*lines, escape(_shape(instruction.shape))])


def _shape(shape: Shape) -> str:
    text = str(shape)
    return text if len(text) <= _MOST_LABEL else f"{text[:_MOST_LABEL]}..."


def _fill(instruction: Instruction) -> str:
    op = instruction.op
    kind = "elementwise" if isinstance(op, Elementwise) else "calling" if op.called_computations else "other"
    if isinstance(op, (Parameter, Constant)):
        kind = instruction.opcode
    return f'"{_FILLS[kind]}"'
