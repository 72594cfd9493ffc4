"""Values of the whole program as one partition holds them: its part, and how the whole is distributed."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import field

from xlakit.data.shape import Shape
from xlakit.dataclass import dataclass
from xlakit.errors import InternalError, XlakitError
from xlakit.ir.instruction import HloModule, Instruction
from xlakit.passes.spmd.shardings.scopes import Scope
from xlakit.passes.spmd.shardings.tilings import Split, Tiling, is_whole, whole


@dataclass(eq=False)
class Piece:
    """An array, or a token, of which each member of a team has a part.

    ``shape`` is the shape of the whole value, ``instruction`` this partition's part. ``parts``: the parts in other
    tilings that have been made already. ``source``: the operation and operands from which a whole value can be
    recomputed in parts. If ``unreduced`` gives members numbers, the value is the sum over members with different
    numbers; the all-reduce is emitted when the sum is first needed.

    If a dimension cannot be split evenly, ``unequal`` may hold the array in unequal parts as well: each has the size of
    the first one, and elements after the end of the dimension are unspecified. Unused forms of a value are dropped as
    dead code. ``range_of``: the piece of which the value is a range, the dimension, and the start. ``padded``: the pad
    instruction that the value is, with its operands.

    ``without_partial_sums``: computes the value if it is not kept as partial sums. ``accumulates``: the number of the
    element of a loop's state that the value is, and the numbers of the partial sums that the body has added to it.
    """

    instruction: Instruction
    tiling: Tiling
    scope: Scope
    shape: Shape
    source: tuple[Instruction, tuple[Value, ...]] | None = None
    unreduced: Split | None = None
    parts: dict[Tiling, Instruction] = field(default_factory=dict)
    unequal: tuple[Tiling, Instruction] | None = None
    range_of: tuple[Piece, int, int] | None = None
    padded: tuple[Instruction, tuple[Value, ...]] | None = None
    without_partial_sums: Callable[[], Piece] | None = None
    accumulates: tuple[int, Split | None] | None = None

    @property
    def is_whole(self) -> bool:
        """Whether each member has the whole value."""
        return self.unreduced is None and is_whole(self.tiling)

    @property
    def kept(self) -> Tiling:
        """The tiling in which loops and branches take the value: that of its unequal parts if it has such."""
        return self.tiling if self.unequal is None else self.unequal[0]


# A tuple is represented by its elements; a tuple instruction is made only if an instruction needs it.
Value = Piece | tuple["Value", ...]


def leaves(value: Value) -> Iterator[Piece]:
    """The arrays and tokens of a value, in order."""
    if isinstance(value, Piece):
        yield value
    else:
        for element in value:
            yield from leaves(element)


def array_of(value: Value) -> Piece:
    """The piece of a value that is one array; raises InternalError for a tuple."""
    if not isinstance(value, Piece):
        raise InternalError(f"an array was expected in parts, not a tuple of {len(value)} elements")
    return value


def element_of(value: Value, index: int) -> Value:
    """An element of a tuple; raises InternalError for an array."""
    if isinstance(value, Piece):
        raise InternalError(f"element {index} was asked of {value.shape}, which is no tuple")
    return value[index]


@contextmanager
def errors_located(module: HloModule, old: Instruction) -> Generator[None]:
    """Adds the instruction and its location to errors that are raised inside."""
    try:
        yield
    except XlakitError as error:
        raise error.at(operation=f"{old.opcode} '{old.name}'", location=module.location_of(old)) from None


def leaf_shapes(shape: Shape) -> list[Shape]:
    """The shapes of the arrays and tokens in a shape."""
    return [leaf for _, leaf in shape.leaves()]


def whole_tilings(shape: Shape) -> list[Tiling]:
    """The whole tiling for each array and token in a shape."""
    return [whole(leaf.rank if leaf.is_array else 0) for leaf in leaf_shapes(shape)]
