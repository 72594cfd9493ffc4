"""Values: the arrays in the results of instructions, each defined once in the program."""

from __future__ import annotations

from enum import Enum
from typing import Any, Union

from xlakit.data.shape import Shape
from xlakit.dataclass import dataclass
from xlakit.ir.instruction import Instruction

# The alignment of slices of the arena, and of arguments and constants, in bytes.
ALIGNMENT = 64


class ValueKind(Enum):
    """The origin of a value.

    PHI is an element of a loop's state or of a conditional's result: which value it is depends on the
    control flow. SCRATCH is memory that one kernel works in, COPY a value that copy insertion has made.
    """

    ARGUMENT = "argument"
    CONSTANT = "constant"
    INSTRUCTION = "instruction"
    PHI = "phi"
    SCRATCH = "scratch"
    COPY = "copy"


@dataclass(frozen=True, slots=True, eq=False)
class HloValue:
    """An array that a program computes. Two values are the same only if they are one object.

    A computation that is called from two instructions has separate values for each call. instruction: the one that
    defines the value, and index its position in the result; number: of the argument or constant.
    """

    kind: ValueKind
    bytes: int
    instruction: Instruction | None
    index: tuple[int, ...] = ()
    number: int = -1
    suffix: str = ""

    @property
    def name(self) -> str:
        """The name of the instruction, with the position in its result in braces."""
        name = self.instruction.name if self.instruction is not None else self.kind.value
        position = "{" + ",".join(map(str, self.index)) + "}" if self.index else ""
        return name + position + self.suffix

    @property
    def is_preassigned(self) -> bool:
        """Whether it exists before the program begins, in memory that no step may write to."""
        return self.kind in (ValueKind.ARGUMENT, ValueKind.CONSTANT)

    def __str__(self) -> str:
        return f"%{self.name}"

    def __repr__(self) -> str:
        return f"<{self.kind.value} {self.name}: {self.bytes} bytes>"


# The values of an instruction's result: one for an array, a tuple of trees, None for a token.
Tree = Union[HloValue, "tuple[Any, ...]", None]


def leaves(tree: Tree) -> list[HloValue]:
    """The values of a tree, in order."""
    if isinstance(tree, HloValue):
        return [tree]
    return [leaf for part in tree or () for leaf in leaves(part)]


def new_values(
    shape: Shape,
    instruction: Instruction,
    kind: ValueKind = ValueKind.INSTRUCTION,
    index: tuple[int, ...] = (),
    suffix: str = "",
) -> Tree:
    """New values for a result of a shape."""
    if shape.is_tuple:
        parts = enumerate(shape.tuple_shapes)
        return tuple(new_values(part, instruction, kind, (*index, number), suffix) for number, part in parts)
    return HloValue(kind, shape.byte_size, instruction, index, suffix=suffix) if shape.is_array else None
