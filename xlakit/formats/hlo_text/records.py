"""Parsed text before names of computations are resolved: records of instructions, in bodies."""

from __future__ import annotations

from dataclasses import field
from functools import cache
from typing import Any

from xlakit.data.shape import Shape
from xlakit.dataclass import dataclass
from xlakit.formats.hlo_text.lexer import Lexer
from xlakit.ir.attributes import NO_ANNOTATIONS, Annotations
from xlakit.ir.enums import TriState
from xlakit.ir.instruction import Instruction
from xlakit.ir.names import unused_name
from xlakit.ir.operation import Attribute, Kind, Op


@dataclass(frozen=True, slots=True)
class Callee:
    """A computation by its name, and where the name stands."""

    name: str
    offset: int


class Record:
    """One instruction as written. ``instruction`` is what it stands for; the attribute is set by the linker."""

    instruction: Instruction

    __slots__ = (
        "annotations", "cls", "instruction", "name", "offset", "operand_shapes", "operands", "predecessors", "shape",
        "values",
    )  # fmt: skip

    def __init__(self, name: str, cls: type[Op], offset: int, shape: Shape | None) -> None:
        self.name = name
        self.cls = cls
        self.offset = offset
        self.shape = shape
        self.operands: list[Record] = []
        # (operand number, declared shape, offset in the text)
        self.operand_shapes: list[tuple[int, Shape, int]] = []
        self.values: dict[str, Any] = {}
        self.annotations: Annotations = NO_ANNOTATIONS
        self.predecessors: list[Record] = []


@dataclass(slots=True)
class Body:
    """One computation as written."""

    name: str
    offset: int
    records: list[Record] = field(default_factory=list)
    names: dict[str, Record] = field(default_factory=dict)
    root: Record | None = None
    callees: list[Callee] = field(default_factory=list)
    thread: str = "main"
    # The result shape in the signature, and its offset in the text.
    result: tuple[Shape, int] | None = None
    # Whether operands that are not defined become parameters, as in a list of instructions without a computation.
    is_open: bool = False
    parameters: int = 0  # the number of such parameters
    # Whether the text has no such computation: it is generated for an asynchronous operation in the short form.
    is_wrapper: bool = False

    def unused_name(self, stem: str) -> str:
        """A name that no instruction so far has."""
        return unused_name(stem, self.names)


# Of a text in which something is there twice.
SEVERAL_HINT = (
    "rename one; of several programs in a text each begins with HloModule, or has an ENTRY and lines '// -----' "
    "around it: parse each by itself, on the command line as FILE#2"
)


class Bodies:
    """The computations that a text has had so far, by their names."""

    def __init__(self, lexer: Lexer) -> None:
        self.lexer = lexer
        self.bodies: dict[str, Body] = {}

    def add(self, body: Body) -> None:
        """Enter a computation; raises ParseError where the name is taken."""
        if body.name in self.bodies:
            raise self.lexer.error(f"there are two computations called '{body.name}'", body.offset, hint=SEVERAL_HINT)
        self.bodies[body.name] = body

    def unused_name(self, stem: str) -> str:
        """A name that no computation so far has."""
        return unused_name(stem, self.bodies)


@dataclass(frozen=True, slots=True)
class Table:
    """The attributes of an operation by their names in text."""

    inline: Attribute | None
    by_text: dict[str, Attribute]
    required: tuple[Attribute, ...]


@cache
def table_of(cls: type[Op]) -> Table:
    """The attributes of an operation's class."""
    inline = next((spec for spec in cls.attributes if not spec.text), None)
    named = {spec.text: spec for spec in cls.attributes if spec.text}
    return Table(inline, named, tuple(spec for spec in named.values() if spec.required))


# The values that XLA's parser gives omitted attributes, where they differ from the defaults of the attributes.
_DEFAULTS_OF_TEXT: dict[str, dict[str, Any]] = {"scan": {"is_associative": TriState.TRI_STATE_FALSE}}


def fill_omitted(opcode: str, values: dict[str, Any]) -> None:
    """Add the attributes that the text of an instruction omits, where they are not the defaults."""
    for name, value in _DEFAULTS_OF_TEXT.get(opcode, {}).items():
        values.setdefault(name, value)


CALLING = frozenset({Kind.COMPUTATION, Kind.COMPUTATION_LIST})
