"""Values of the whole program, as one partition has them."""

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

    ``shape`` is that of all of it, ``instruction`` gives this partition's part. What is whole on every member may be
    made again in parts, from what it was made from: ``source``. Where ``unreduced`` gives members numbers, values of
    different numbers are still to be added; that is done when the sum is first wanted.

    Where a dimension cannot be split evenly, ``unequal`` may have the array in parts besides: each has the size of the
    first one, and behind the end of the dimension there is anything. ``instruction`` is then not yet computed: nothing
    is, until it is used. ``range_of``: of which piece it is a range, along which dimension, and from where. ``padded``:
    the pad that it is, and what that pads.

    ``instead``: how the value is computed where it is not kept in partial sums. ``accumulates``: the number of the
    element of a loop's state that it is, and what numbers the partial sums have that the body has added to that.
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
    instead: Callable[[], Piece] | None = None
    accumulates: tuple[int, Split | None] | None = None

    @property
    def is_whole(self) -> bool:
        """Whether each member has all of it."""
        return self.unreduced is None and is_whole(self.tiling)

    @property
    def kept(self) -> Tiling:
        """The tiling in which loops and branches take it: unequal parts, where it is there in such."""
        return self.tiling if self.unequal is None else self.unequal[0]


# A tuple is there element by element, and is put together where an instruction needs it.
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


def rebuilt(shape: Shape, made: Iterator[Piece]) -> Value:
    """A value of this shape from its arrays and tokens."""
    if shape.is_tuple:
        return tuple(rebuilt(s, made) for s in shape.tuple_shapes)
    return next(made)


@contextmanager
def placing(module: HloModule, old: Instruction) -> Generator[None]:
    """Errors say which instruction they are about."""
    try:
        yield
    except XlakitError as error:
        raise error.at(operation=f"{old.opcode} '{old.name}'", location=module.location_of(old)) from None


def leaf_shapes(shape: Shape) -> list[Shape]:
    """The shapes of the arrays and tokens in a shape."""
    return [leaf for _, leaf in shape.leaves()]


def whole_tilings(shape: Shape) -> list[Tiling]:
    """For each array and token in a shape the tiling of what is whole."""
    return [whole(leaf.rank if leaf.is_array else 0) for leaf in leaf_shapes(shape)]
