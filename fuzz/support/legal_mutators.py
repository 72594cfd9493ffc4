"""Ways to change HLO text that keep most programs legal: what is computed changes, and the shapes do not.

Each takes a text with an instruction on each line, as :meth:`HloModule.to_text` prints it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from fuzz.support.mutators import mutate_text

# An instruction without a tuple among its operands' shapes: name, shape, opcode, operands, attributes.
_INSTRUCTION = re.compile(r"^(\s+(?:ROOT )?)(%?[\w.-]+) = (.+?) ([a-z][a-z0-9-]*)\(([^()]*)\)(.*)$")
_LAYOUT = re.compile(r"\{((?:\d+,)+\d+)\}(?=[ ,)]|$)")
# Opcodes that may stand for each other wherever one does, if the types allow it.
_ALIKE = (
    ("add", "subtract", "multiply", "divide", "maximum", "minimum", "remainder", "power", "and", "or", "xor", "atan2"),
    ("shift-left", "shift-right-logical", "shift-right-arithmetic", "subtract", "maximum"),
    ("negate", "abs", "sign", "not", "popcnt", "count-leading-zeros", "floor", "ceil", "tanh", "cosine", "copy"),
    ("sqrt", "rsqrt", "cbrt", "exponential", "log", "log-plus-one", "exponential-minus-one", "logistic", "negate"),
    ("round-nearest-afz", "round-nearest-even", "floor", "ceil", "sign"),
)
_DIRECTIONS = ("EQ", "NE", "LT", "LE", "GT", "GE")
_SCALARS = ("0", "1", "-1", "2", "3", "7", "127", "nan", "inf", "-inf", "0.5", "-0", "true", "false")


@dataclass(frozen=True, slots=True)
class _Line:
    """One instruction in the text of a module: the number of its line, its computation, and its parts."""

    number: int
    computation: int
    indent: str
    name: str
    shape: str
    opcode: str
    operands: tuple[str, ...]
    rest: str

    def text(self, *, opcode: str = "", operands: Sequence[str] = (), rest: str | None = None) -> str:
        """Its line with some parts changed."""
        given = ", ".join(operands or self.operands)
        tail = self.rest if rest is None else rest
        return f"{self.indent}{self.name} = {self.shape} {opcode or self.opcode}({given}){tail}"


def mutate_legally(text: str, rng: np.random.Generator) -> str:
    """A changed text: one to a few of the ways below, and now and then one that damages it."""
    for _ in range(int(rng.choice([1, 1, 2, 3, 6]))):
        way = _WAYS[int(rng.integers(len(_WAYS)))]
        text = way(text, rng)
    return text


def _instructions(text: str) -> list[_Line]:
    found: list[_Line] = []
    computation = 0
    for number, line in enumerate(text.split("\n")):
        computation += line.rstrip().endswith("{") and not line.startswith(" ")
        match = _INSTRUCTION.match(line)
        if match:
            indent, name, shape, opcode, operands, rest = match.groups()
            named = tuple(part.strip() for part in operands.split(",") if part.strip())
            found.append(_Line(number, computation, indent, name, shape, opcode, named, rest))
    return found


def _with_line(text: str, number: int, line: str) -> str:
    lines = text.split("\n")
    lines[number] = line
    return "\n".join(lines)


def _rewire(text: str, rng: np.random.Generator) -> str:
    """An operand is another value of its shape, with the same value twice more often than by chance."""
    lines = _instructions(text)
    by_name = {(line.computation, line.name): line for line in lines}
    places = [
        (line, position)
        for line in lines
        for position, operand in enumerate(line.operands)
        if (line.computation, operand) in by_name
    ]
    rng.shuffle(places)  # pyright: ignore[reportArgumentType]
    for line, position in places[:8]:
        old = by_name[line.computation, line.operands[position]]
        others = [
            other.name
            for other in lines
            if other.computation == line.computation and other.number < line.number and other is not old
            if _bare(other.shape) == _bare(old.shape)
        ]
        if others:
            twice = [name for name in others if name in line.operands]
            new = str(rng.choice(twice if twice and rng.random() < 0.5 else others))
            changed = [*line.operands[:position], new, *line.operands[position + 1 :]]
            return _with_line(text, line.number, line.text(operands=changed))
    return text


def _bare(shape: str) -> str:
    """A shape as text without its layouts."""
    return re.sub(r"\{[^{}]*\}", "", shape)


def _opcode(text: str, rng: np.random.Generator) -> str:
    """Another operation with the same operands."""
    places = [(line, group) for line in _instructions(text) for group in _ALIKE if line.opcode in group]
    if not places:
        return text
    line, group = places[int(rng.integers(len(places)))]
    return _with_line(text, line.number, line.text(opcode=str(rng.choice(group))))


def _direction(text: str, rng: np.random.Generator) -> str:
    """A comparison in another direction."""
    found = list(re.finditer(r"direction=([A-Z]{2})", text))
    if not found:
        return text
    match = found[int(rng.integers(len(found)))]
    return text[: match.start(1)] + str(rng.choice(_DIRECTIONS)) + text[match.end(1) :]


def _constant(text: str, rng: np.random.Generator) -> str:
    """Another number in a constant."""
    lines = [line for line in _instructions(text) if line.opcode == "constant" and len(line.operands) == 1]
    scalars = [line for line in lines if "{" not in line.operands[0]]
    if not scalars:
        return text
    line = scalars[int(rng.integers(len(scalars)))]
    return _with_line(text, line.number, line.text(operands=[str(rng.choice(_SCALARS))]))


def _layout(text: str, rng: np.random.Generator) -> str:
    """An array with its dimensions in another order in memory: in one place, or in all places that have that order."""
    found = list(_LAYOUT.finditer(text))
    if not found:
        return text
    match = found[int(rng.integers(len(found)))]
    order = match.group(1).split(",")
    rng.shuffle(order)  # pyright: ignore[reportArgumentType]
    made = f"{{{','.join(order)}}}"
    if rng.random() < 0.3:
        return text.replace(match.group(), made)
    return text[: match.start()] + made + text[match.end() :]


def _number(text: str, rng: np.random.Generator) -> str:
    """A number among the attributes of an instruction is one more or less."""
    lines = [line for line in _instructions(text) if re.search(r"\d", line.rest.partition("metadata=")[0])]
    if not lines:
        return text
    line = lines[int(rng.integers(len(lines)))]
    head, word, tail = line.rest.partition("metadata=")
    found = list(re.finditer(r"(?<![A-Za-z_\d.])-?\d+", head))
    if not found:
        return text
    match = found[int(rng.integers(len(found)))]
    number = int(match.group()) + int(rng.choice([-2, -1, 1, 2]))
    rest = f"{head[: match.start()]}{number}{head[match.end() :]}{word}{tail}"
    return _with_line(text, line.number, line.text(rest=rest))


def _element_type(text: str, rng: np.random.Generator) -> str:
    """One element type for another, wherever it stands."""
    kinds = sorted(set(re.findall(r"\b([a-z][a-z0-9]*)(?=\[)", text)))
    if not kinds:
        return text
    old, new = str(rng.choice(kinds)), str(rng.choice(_KINDS))
    return re.sub(rf"\b{old}(?=\[)", new, text)


_KINDS = (
    "f32",
    "f64",
    "bf16",
    "f16",
    "s32",
    "s8",
    "u8",
    "s64",
    "u64",
    "s4",
    "u4",
    "s16",
    "c64",
    "f8e4m3fn",
    "pred",
    "u2",
)
_WAYS: tuple[Callable[[str, np.random.Generator], str], ...] = (
    *(_rewire, _rewire, _rewire, _opcode, _opcode, _direction, _constant, _layout, _layout),
    *(_number, _number, _element_type, mutate_text),
)
