"""The data of the viewer's page: programs as tables of texts and numbers.

    strings       all texts, each once; the other tables have their numbers
    lines         the distinct instructions of all steps, each once, with a list for each field
    computations  name, position of the root, thread, and the lines as runs: first line, count, first line, count, ..
    steps         the program after each pass, as numbers of computations, and what the pass did

A pass changes few lines, so that the 28 steps of a program of 100,000 instructions take little more than one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from xlakit.data.shape import Shape
from xlakit.formats.hlo_text import PrintOptions, print_instruction
from xlakit.ir.instruction import Computation, HloModule, Instruction
from xlakit.passes.analysis.cost import Cost, CostCounter

FORMAT: Final = 1
# By the names of a computation and of an instruction: the rules that rewrote or made the instruction, in their order.
RulesByLine = Mapping[str, Mapping[str, Iterable[str]]]
_TEXT: Final = PrintOptions(short=True, large_constants=False)
# The columns of the table of lines, besides the operands; each is a list of numbers.
_COLUMNS: Final = ("name", "shape", "opcode", "rest", "source", "op_name", "flops", "transcendentals", "bytes")


class Document:
    """Collects the steps of a program, and gives them as a dictionary for JSON.

    title: the name that the page shows. has_costs: whether lines have costs; only well-formed programs have.
    """

    def __init__(self, title: str, *, has_costs: bool = True) -> None:
        self._title = title
        self._has_costs = has_costs
        self._strings: dict[str, int] = {}
        self._lines: dict[tuple[Any, ...], int] = {}
        self._calls: dict[int, list[int]] = {}
        self._predecessors: dict[int, list[int]] = {}
        self._line_of: dict[Instruction, int] = {}
        # Texts of shapes, keyed by id(shape); an entry holds its shape, so that the id is not reused for another one.
        self._shapes: dict[int, tuple[Shape, str]] = {}
        self._computations: dict[tuple[Any, ...], int] = {}
        self._computation_of: dict[Computation, int] = {}
        self._costs = CostCounter()
        self._steps: list[dict[str, Any]] = []
        self._laws: dict[str, str] = {}
        self._extra: dict[str, Any] = {}

    def add_step(
        self,
        module: HloModule,
        name: str,
        *,
        number: int = 0,
        summary: str = "",
        rewrites: Mapping[str, int] | None = None,
        rules: RulesByLine | None = None,
        milliseconds: float | None = None,
        note: str = "",
    ) -> None:
        """Add a program as a step.

        number: the pass's number in the pipeline, 0 for none. rewrites: how often each of its rules was applied. rules:
        the applied rules by line. note: a remark, such as why passes end here.
        """
        computations = [self._computation(computation, module) for computation in module.computations]
        step: dict[str, Any] = {"name": name, "number": number, "computations": computations}
        step["entry"] = self._computation(module.entry, module)
        optional = {
            "summary": summary,
            "rewrites": dict(rewrites or {}),
            "rules": {} if rules is None else self._numbered(rules),
            "ms": milliseconds,
            "note": note,
        }
        self._steps.append(step | {key: value for key, value in optional.items() if value})

    def add_laws(self, laws: Iterable[tuple[str, str]]) -> None:
        """Add the laws of rules, by name; only those of applied rules are kept."""
        self._laws.update(laws)

    def add(self, name: str, value: object) -> None:
        """Add a part that only some documents have: ``memory`` or ``profile``."""
        self._extra[name] = value

    def number_of(self, computation: Computation) -> int:
        """The number of a computation of a step that was added."""
        return self._computation_of[computation]

    def as_dict(self) -> dict[str, Any]:
        """The page as a dict that JSON can hold."""
        columns = list(zip(*self._lines, strict=True)) or [()] * (len(_COLUMNS) + 1)
        operands = columns.pop()
        lines: dict[str, Any] = dict(zip(_COLUMNS, columns, strict=True))
        lines["operand_counts"] = list(map(len, operands))
        lines["operands"] = [operand for each in operands for operand in each]
        lines["calls"] = self._calls
        lines["predecessors"] = self._predecessors
        applied = {rule for step in self._steps for rule in step.get("rewrites", ())}
        return {
            "format": FORMAT,
            "title": self._title,
            "strings": list(self._strings),
            "lines": lines,
            "computations": [[*head, list(runs)] for *head, runs in self._computations],
            "steps": self._steps,
            "laws": {rule: law for rule, law in self._laws.items() if rule in applied},
            **self._extra,
        }

    # -- tables ------------------------------------------------------------------------------------

    def _string(self, text: str) -> int:
        return self._strings.setdefault(text, len(self._strings))

    def _numbered(self, rules: RulesByLine) -> dict[int, dict[int, list[int]]]:
        """Rules by line as numbers of texts, of the instructions that are in some step."""
        by_computation: dict[int, dict[int, list[int]]] = {}
        for computation, lines in rules.items():
            for name, applied in lines.items():
                if computation in self._strings and name in self._strings:
                    by_line = by_computation.setdefault(self._strings[computation], {})
                    by_line[self._strings[name]] = [self._string(rule) for rule in applied]
        return by_computation

    def _computation(self, computation: Computation, module: HloModule) -> int:
        number = self._computation_of.get(computation)
        if number is None:
            lines = [self._line(instruction, module) for instruction in computation.instructions]
            root = computation.instructions.index(computation.root)
            thread = "" if computation.execution_thread == "main" else computation.execution_thread
            key = (self._string(computation.name), root, self._string(thread), tuple(runs_of(lines)))
            number = self._computations.setdefault(key, len(self._computations))
            self._computation_of[computation] = number
        return number

    def _line(self, instruction: Instruction, module: HloModule) -> int:
        number = self._line_of.get(instruction)
        if number is not None:
            return number
        location = module.location_of(instruction)
        metadata = instruction.annotations.metadata
        cost = self._costs.instruction(instruction) if self._has_costs else Cost()
        opcode, rest = self._split(instruction)
        texts = (
            instruction.name,
            self._shape(instruction.shape),
            opcode,
            rest,
            "" if location is None else str(location),
            "" if metadata is None else metadata.op_name,
        )
        numbers = (round(cost.flops), round(cost.transcendentals), round(cost.bytes_accessed))
        operands = tuple(self._string(operand.name) for operand in instruction.operands)
        number = self._lines.setdefault((*map(self._string, texts), *numbers, operands), len(self._lines))
        self._line_of[instruction] = number
        called = instruction.op.called_computations if instruction.op.can_call else ()
        if called:
            self._calls[number] = [self._string(computation.name) for computation in called]
        if instruction.control_predecessors:
            self._predecessors[number] = [self._string(p.name) for p in instruction.control_predecessors]
        return number

    def _shape(self, shape: Shape) -> str:
        entry = self._shapes.get(id(shape))
        if entry is None:
            entry = self._shapes[id(shape)] = (shape, shape.to_string(with_layout=True))
        return entry[1]

    def _split(self, instruction: Instruction) -> tuple[str, str]:
        """The opcode as it is printed, and what follows: from ``)`` on where there are operands before it that the
        viewer writes, else from ``(`` on.
        """
        text = print_instruction(instruction, _TEXT)
        text = text[len(instruction.name) + len(self._shape(instruction.shape)) + 4 :]
        opcode, _, inside = text.partition("(")
        names = [operand.name for operand in instruction.operands]
        # As printed: every fifth operand is numbered.
        marked = [f"/*index={n}*/{name}" if n and n % 5 == 0 else name for n, name in enumerate(names)]
        operands = ", ".join(marked)
        if names and inside.startswith(operands + ")"):
            return opcode, inside[len(operands) :]
        return opcode, "(" + inside


def runs_of(lines: Sequence[int]) -> list[int]:
    """Numbers as runs: the first of consecutive numbers, how many there are, and so on."""
    runs: list[int] = []
    after = -1
    for line in lines:
        if line == after:
            runs[-1] += 1
        else:
            runs += [line, 1]
        after = line + 1
    return runs
