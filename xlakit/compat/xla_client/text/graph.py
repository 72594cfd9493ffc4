"""Graphs of computations in Graphviz's language, with the nodes and edges that XLA's have."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from itertools import count
from typing import Any

from xlakit.compat.xla_client.text.printing import PLAIN_ATTRIBUTES, HloPrintOptions, printed_parts
from xlakit.data.shape import Shape
from xlakit.ir.instruction import Computation, Instruction
from xlakit.ir.traits import Elementwise
from xlakit.ops.control import Fusion
from xlakit.ops.data import Constant, GetTupleElement, Parameter
from xlakit.ops.elementwise.compare import Compare

_FILLS = {"parameter": "#ffe0b2", "elementwise": "#fff9c4", "calling": "#d1c4e9", "other": "white"}
# Shapes with longer texts are cut off; constants of more elements are shown by name.
_MOST_SHAPE = 64
_MOST_ELEMENTS = 8
# The word that stands for a computation of one such operation on its two parameters.
_WORDS = {
    "add": "add", "multiply": "multiply", "minimum": "min", "maximum": "max", "and": "and", "or": "or", "xor": "xor",
}  # fmt: skip
_COMPARED = {
    "LT": "less-than", "GT": "greater-than", "LE": "less-or-equal", "GE": "greater-or-equal", "EQ": "equal-to",
    "NE": "not-equal-to",
}  # fmt: skip
_OPTIONS = HloPrintOptions()


def dot_graph(computation: Computation) -> str:
    """A ``digraph`` with a node for each instruction and an edge for each operand; called computations are clusters.

    Constants and get-tuple-elements have no node: they are described in the nodes of their users.
    """
    return _Graph(computation).text()


class _Graph:
    def __init__(self, entry: Computation) -> None:
        self._entry = entry
        self._numbers: dict[object, int] = {}
        self._count = count(1)
        self._nodes: list[str] = []
        self._edges: list[str] = []

    def text(self) -> str:
        """The whole graph."""
        self._draw()
        root = self._number(_shown(self._entry.root))
        end = f"cluster_{self._number(self._entry)}"
        if not isinstance(self._entry.root.op, Constant):
            style = 'shape=circle, tooltip=" ", style="filled", fontcolor="black", fillcolor="#bcaaa4"'
            self._nodes.append(f"{end} [label=<ROOT>, {style}];")
            self._edges.append(f'{root} -> {end} [tooltip=" "];')
        header = ["digraph G {", "rankdir = TB;", "compound = true;"]
        header += [f"label = <<b><br/>Computation {escape(self._entry.name)}</b>>;", "labelloc = t;", 'tooltip = " ";']
        return "\n".join([*header, *self._nodes, *self._edges, "}"]) + "\n"

    def _number(self, what: object) -> int:
        return self._numbers.setdefault(what, next(self._count))

    def _draw(self) -> None:
        """Add all nodes and edges. Iterative, since computations may call each other in chains of any length."""
        pending: list[tuple[str, Any, Any]] = [("computation", self._entry, None)]
        seen: set[Computation] = set()
        while pending:
            action, what, caller = pending.pop()
            if action == "end":
                self._nodes += ["", f"}}  // cluster_{self._number(what)}", ""]
            elif action == "instruction":
                self._add(what)
            elif what not in seen:
                seen.add(what)
                if caller is not None:
                    self._begin(what, caller)
                    pending.append(("end", what, None))
                for instruction in reversed(what.instructions):
                    pending.append(("instruction", instruction, None))
                    callees = reversed(instruction.op.called_computations)
                    pending += [("computation", callee, instruction) for callee in callees if not _word_of(callee)]

    def _begin(self, computation: Computation, caller: Instruction) -> None:
        number, is_fusion = self._number(computation), isinstance(caller.op, Fusion)
        what = "Fused expression" if is_fusion else "Subcomputation"
        kinds = [attribute for attribute in printed_parts(caller, _OPTIONS)[2] if attribute.startswith("kind=")]
        inside = kinds[0] if is_fusion and kinds else computation.name
        style = 'style="rounded,filled,bold"; fillcolor="#f5f5f5";' if is_fusion else "style=rounded; color=black;"
        label = f"label = <{what} for <b>{escape(caller.name)}</b><br/>{escape(inside)}>;"
        self._nodes += [f"subgraph cluster_{number} {{", style, label, "labelloc = t;", 'tooltip = " ";']
        if not is_fusion:
            tooltip = f"{computation.name} -> {caller.name}"
            ends = f"{self._number(_shown(computation.root))} -> {self._number(caller)}"
            self._edges.append(f'{ends} [ltail="cluster_{number}", style="dashed" tooltip="{tooltip}"];')

    def _add(self, instruction: Instruction) -> None:
        """Add the node of an instruction, and the edges of its operands."""
        op = instruction.op
        is_root = instruction is self._entry.root
        if isinstance(op, Constant | GetTupleElement) and not is_root:
            return
        if isinstance(op, Fusion):
            inner = op.called_computations[0].parameters
            for operand, parameter in zip(instruction.operands, inner, strict=True):
                self._edge(operand, parameter, "")
            return
        look = f'shape=rect, tooltip="", style="filled", fontcolor="black", fillcolor="{_fill(instruction)}"'
        self._nodes.append(f"{self._number(instruction)} [label=<{'<br/>'.join(_label(instruction))}>, {look}];")
        for position, operand in enumerate(instruction.operands):
            many = len(instruction.operands) > 1
            self._edge(operand, instruction, f' headlabel="{position}", labeldistance=2' if many else "")

    def _edge(self, operand: Instruction, user: Instruction, label: str) -> None:
        source = _shown(operand)
        if not isinstance(source.op, Constant):
            tooltip = f"{source.name} -> {user.name}"
            ends = f"{self._number(source)} -> {self._number(user)}"
            self._edges.append(f'{ends} [arrowhead=empty tooltip="{tooltip}" {label}];')


def _shown(instruction: Instruction) -> Instruction:
    """The instruction whose node stands for a value: elements of tuples are in that of the tuple, fusions inside."""
    while isinstance(instruction.op, GetTupleElement | Fusion):
        is_fusion = isinstance(instruction.op, Fusion)
        instruction = instruction.op.called_computations[0].root if is_fusion else instruction.operands[0]
    return instruction


def _label(instruction: Instruction) -> Iterator[str]:
    op = instruction.op
    if isinstance(op, Parameter):
        yield f"<b>Parameter {op.number}</b>"
    else:
        yield f"<b>{escape(instruction.name)}</b>"
        if not instruction.name.startswith(instruction.opcode):
            yield escape(instruction.opcode)
    words = [word for callee in op.called_computations if (word := _word_of(callee))]
    yield from (f"Subcomputation: <b>{word}</b>" for word in words)
    attributes = [a for a in printed_parts(instruction, _OPTIONS)[2] if a.partition("=")[0] not in PLAIN_ATTRIBUTES]
    if attributes:
        yield escape(", ".join(attributes))
    yield escape(_shape(instruction.shape))
    for position, operand in enumerate(instruction.operands):
        if isinstance(operand.op, Constant | GetTupleElement):
            number = f" {position}" if len(instruction.operands) > 1 else ""
            yield f"<b>operand{number}</b> = {escape(_value(operand))}"


def _value(operand: Instruction) -> str:
    """The description of a constant or a get-tuple-element in the node of its user."""
    shape = _shape(operand.shape)
    if isinstance(operand.op, GetTupleElement):
        shape = operand.shape.to_string(with_layout=operand.shape.is_array)
        return f"tuple-element {operand.op.index} of {operand.operands[0].name} {shape}"
    if not operand.shape.num_elements:
        return f"{{}} ({operand.shape.without_layout()})"
    if operand.shape.num_elements > _MOST_ELEMENTS:
        return f"{operand.name} {shape}"
    return f"{shape} {printed_parts(operand, _OPTIONS)[1]}"


def _shape(shape: Shape) -> str:
    text = shape.to_string(with_layout=shape.is_array and shape.rank > 1)
    return text if len(text) <= _MOST_SHAPE else f"{text[: _MOST_SHAPE - 3]}..."


def _word_of(computation: Computation) -> str:
    """The word for a computation of one operation on its two parameters; empty for other computations."""
    op, operands = computation.root.op, computation.root.operands
    numbers = [o.op.number for o in operands if isinstance(o.op, Parameter)]
    if len(computation.instructions) != 3 or sorted(numbers) != [0, 1]:
        return ""
    return _COMPARED[op.direction.name] if isinstance(op, Compare) else _WORDS.get(computation.root.opcode, "")


def _fill(instruction: Instruction) -> str:
    op = instruction.op
    if isinstance(op, Parameter):
        return _FILLS["parameter"]
    return _FILLS["elementwise" if isinstance(op, Elementwise) else "calling" if op.called_computations else "other"]
