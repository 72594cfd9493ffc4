"""Shape and ProgramShape: the shape of a value, and the signature of a computation.

Source: XLA's document "Shapes and layout", section on terminology, notation and conventions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from xlakit.arguments import all_of, constructing, convert_fields, converting, explaining, name_type
from xlakit.data.layout import Layout
from xlakit.data.primitive import PrimitiveType
from xlakit.dataclass import dataclass
from xlakit.errors import ArgumentError, ShapeError

# The size of a dimension of which not even a bound is known; it prints as "?".
UNBOUNDED = -(2**63)
_INT64_MAX = 2**63 - 1

# Letters that help a reader name dimensions, by rank.
_LETTERS = {2: ("y", "x"), 3: ("z", "y", "x"), 4: ("p", "z", "y", "x")}

ShapeIndex = tuple[int, ...]


@constructing
@dataclass(frozen=True, slots=True)
class Shape:
    """An array of ``dimensions``, a tuple of ``tuple_shapes``, a token, or an opaque value.

    For a bounded dynamic dimension, written ``<=10`` in HLO text, the bound is in ``dimensions`` and
    ``dynamic_dimensions`` is true there. Both are empty for shapes that are not arrays.
    ``layout`` is None where none is given.
    """

    element_type: PrimitiveType
    dimensions: tuple[int, ...] = ()
    layout: Layout | None = None
    dynamic_dimensions: tuple[bool, ...] = ()
    tuple_shapes: tuple[Shape, ...] = ()

    def __post_init__(self) -> None:
        self._settle()
        if not self.element_type.is_array:
            self._check_not_array()
            return
        rank = len(self.dimensions)
        if not any(self.dynamic_dimensions):
            object.__setattr__(self, "dynamic_dimensions", (False,) * rank)
        elif len(self.dynamic_dimensions) != rank:
            raise ShapeError(
                f"{len(self.dynamic_dimensions)} dynamic marks for rank {rank}",
                hint="give one mark for each dimension, or none",
            )
        if self.tuple_shapes:
            raise ShapeError(
                f"an array of {self.element_type.hlo_name} has no tuple shapes",
                hint="make a tuple with make_tuple_shape",
            )
        if self.layout is not None:
            self._check_layout(self.layout)
        self._check_sizes()

    def _settle(self) -> None:
        if type(self.element_type) is not PrimitiveType:
            convert_fields(self, element_type=PrimitiveType)
        if not all_of(int, self.dimensions):
            convert_fields(self, dimensions=tuple[int, ...])
        if not all_of(bool, self.dynamic_dimensions):
            convert_fields(self, dynamic_dimensions=tuple[bool, ...])
        if not all_of(Shape, self.tuple_shapes):
            convert_fields(self, tuple_shapes=tuple[Shape, ...])
        if self.layout is not None and type(self.layout) is not Layout:
            convert_fields(self, layout=Layout)

    def _check_not_array(self) -> None:
        name = self.element_type.hlo_name
        if self.dimensions or self.dynamic_dimensions:
            raise ShapeError(f"a shape of type {name} has no dimensions", hint="make an array with make_shape")
        if self.layout is not None:
            raise ShapeError(f"a shape of type {name} has no layout", hint="give layouts to the arrays inside")
        if self.tuple_shapes and self.element_type not in (PrimitiveType.TUPLE, PrimitiveType.BUFFER):
            raise ShapeError(f"a shape of type {name} has no elements", hint="make a tuple with make_tuple_shape")
        if self.is_buffer and len(self.tuple_shapes) != 1:
            raise ShapeError("a buffer shape holds exactly one array shape", hint="give tuple_shapes=(array_shape,)")

    def _check_layout(self, layout: Layout) -> None:
        if len(layout.minor_to_major) != len(self.dimensions):
            raise ShapeError(
                f"layout {layout} orders {len(layout.minor_to_major)} dimensions, the shape has {len(self.dimensions)}",
                hint=f"name each dimension from 0 to {len(self.dimensions) - 1} once, the fastest varying first",
            )
        for width, size in zip(layout.padded_dimensions, self.dimensions, strict=False):
            if width < size:
                raise ShapeError(
                    f"padded width {width} is less than the dimension's size {size}",
                    hint=f"give a width of at least {size}",
                )
        if math.prod(layout.padded_dimensions) * self.element_type.byte_width > _INT64_MAX:
            raise ShapeError(
                f"padded to {list(layout.padded_dimensions)}, the array has more bytes than int64 counts",
                hint="give smaller widths",
            )

    def _check_sizes(self) -> None:
        total = 1
        for size, dynamic in zip(self.dimensions, self.dynamic_dimensions, strict=True):
            if size == UNBOUNDED and dynamic:
                continue
            if size < 0:
                raise ShapeError(
                    f"dimension size {size} is negative",
                    hint="give a size of 0 or more; a dynamic dimension has a bound and a mark",
                )
            total *= max(size, 1)
        # Zero-sized dimensions do not excuse the others: index arithmetic multiplies them all.
        if total * self.element_type.byte_width > _INT64_MAX:
            raise ShapeError(
                f"{self.element_type.hlo_name}[{','.join(map(str, self.dimensions))}] has more bytes than int64 counts",
                hint="split the array",
            )

    # -- what it is ------------------------------------------------------------------------------

    @property
    def is_array(self) -> bool:
        """Whether this is an array (a scalar is one of rank 0)."""
        return self.element_type.is_array

    @property
    def is_tuple(self) -> bool:
        """Whether this is a tuple."""
        return self.element_type is PrimitiveType.TUPLE

    @property
    def is_token(self) -> bool:
        """Whether this is a token."""
        return self.element_type is PrimitiveType.TOKEN

    @property
    def is_buffer(self) -> bool:
        """Whether this is a buffer (``b(f32[2])``), whose one tuple shape is what it holds."""
        return self.element_type is PrimitiveType.BUFFER

    @property
    def is_scalar(self) -> bool:
        """Whether this is an array of rank 0."""
        return self.is_array and not self.dimensions

    @property
    def is_dynamic(self) -> bool:
        """Whether a dimension, here or in a tuple's elements, is dynamic."""
        return True in self.dynamic_dimensions or (
            bool(self.tuple_shapes) and any(s.is_dynamic for s in self.tuple_shapes)
        )

    @property
    def tuple_shapes_or_self(self) -> tuple[Shape, ...]:
        """The shapes of a tuple's elements; for any other shape, a tuple of this shape alone."""
        return self.tuple_shapes if self.is_tuple else (self,)

    @property
    def rank(self) -> int:
        """The number of dimensions."""
        if not self.is_array:
            raise ShapeError(f"{self} has no rank; only arrays have one", hint="ask for the shapes in tuple_shapes")
        return len(self.dimensions)

    @property
    def true_rank(self) -> int:
        """The number of dimensions whose size is greater than 1."""
        return sum(1 for size in self.dimensions if size > 1 or size == UNBOUNDED)

    @property
    def dimension_letters(self) -> tuple[str, ...]:
        """The customary letters (y, x; z, y, x; p, z, y, x), or the numbers for other ranks."""
        return _LETTERS.get(self.rank) or tuple(map(str, range(self.rank)))

    @converting
    def dimension_number(self, dimension: int) -> int:
        """A dimension number in ``0 .. rank-1``; negative numbers count from the end, as in Python."""
        if not -self.rank <= dimension < self.rank:
            raise ShapeError(
                f"dimension {dimension} is out of range for {self}",
                hint=f"give a number from {-self.rank} to {self.rank - 1}" if self.rank else "a scalar has none",
            )
        return dimension % self.rank

    @explaining
    def dimension(self, number: int) -> int:
        """The size (or bound) of a dimension; negative numbers count from the end."""
        return self.dimensions[self.dimension_number(number)]

    @property
    def num_elements(self) -> int:
        """How many elements an array has; for dynamic dimensions the bound counts."""
        if not self.is_array:
            raise ShapeError(
                f"{self} is not an array and has no element count", hint="ask for the shapes in tuple_shapes"
            )
        if UNBOUNDED in self.dimensions:
            raise ShapeError(
                f"{self} has an unbounded dimension and no element count", hint="give the dimension a bound"
            )
        return math.prod(self.dimensions)

    @property
    def byte_size(self) -> int:
        """Bytes of the value with unpacked elements, tuples summed; tokens and opaque values take none."""
        if self.is_array:
            return self.num_elements * self.element_type.byte_width
        return sum(shape.byte_size for shape in self.tuple_shapes)

    @property
    def layout_or_default(self) -> Layout:
        """The layout, or major to minor where none is given."""
        return self.layout if self.layout is not None else Layout.default(self.rank)

    # -- parts -----------------------------------------------------------------------------------

    @converting
    def at(self, index: Sequence[int]) -> Shape:
        """The shape inside nested tuples at a ShapeIndex; ``()`` is the whole."""
        shape = self
        for position in index:
            if not shape.is_tuple or not 0 <= position < len(shape.tuple_shapes):
                raise ShapeError(
                    f"{self} has nothing at index {{{','.join(map(str, index))}}}",
                    hint=f"{shape} has elements 0 to {len(shape.tuple_shapes) - 1}"
                    if shape.tuple_shapes
                    else f"{shape} has no elements",
                )
            shape = shape.tuple_shapes[position]
        return shape

    def leaves(self) -> Iterator[tuple[ShapeIndex, Shape]]:
        """Every shape that is not a tuple, with its index, in order."""
        stack: list[tuple[ShapeIndex, Shape]] = [((), self)]
        while stack:
            index, shape = stack.pop()
            if not shape.is_tuple:
                yield index, shape
                continue
            stack.extend(((*index, i), shape.tuple_shapes[i]) for i in range(len(shape.tuple_shapes) - 1, -1, -1))

    # -- other shapes made from it ---------------------------------------------------------------

    def with_leaves(self, change: Callable[[Shape], Shape]) -> Shape:
        """The shape with each array and token in it changed, in order."""
        if not self.is_tuple:
            return change(self)
        return replace(self, tuple_shapes=tuple(shape.with_leaves(change) for shape in self.tuple_shapes))

    @explaining
    def with_layout(self, layout: Layout | None) -> Shape:
        """The same array with another layout."""
        return replace(self, layout=layout)

    def with_default_layout(self) -> Shape:
        """The same shape, every array in it laid out major to minor."""
        if self.is_array:
            layout = Layout.default(self.rank)
            return self if self.layout == layout else replace(self, layout=layout)
        return replace(self, tuple_shapes=tuple(s.with_default_layout() for s in self.tuple_shapes))

    def with_implied_layouts(self) -> Shape:
        """The same shape, every array in it that has no layout laid out major to minor."""
        return self.with_leaves(lambda leaf: leaf if leaf.layout or not leaf.is_array else leaf.with_default_layout())

    def without_layout(self) -> Shape:
        """The same shape without layouts, those of tuple elements included."""
        if self.layout is not None:
            return self._without(self.tuple_shapes)
        plain = tuple([shape.without_layout() for shape in self.tuple_shapes])
        # Tuples compare their elements by identity first.
        return self if plain == self.tuple_shapes else self._without(plain)

    def _without(self, tuple_shapes: tuple[Shape, ...]) -> Shape:
        """This shape with other tuple shapes and no layout; unchecked, as passes call it for each instruction."""
        made = object.__new__(Shape)
        set_field = object.__setattr__
        set_field(made, "element_type", self.element_type)
        set_field(made, "dimensions", self.dimensions)
        set_field(made, "layout", None)
        set_field(made, "dynamic_dimensions", self.dynamic_dimensions)
        set_field(made, "tuple_shapes", tuple_shapes)
        return made

    @explaining
    def with_element_type(self, element_type: PrimitiveType) -> Shape:
        """The same dimensions and layout, another element type."""
        return self if element_type is self.element_type else replace(self, element_type=element_type)

    @explaining
    def with_dimensions(self, dimensions: Sequence[int], dynamic: Sequence[bool] = ()) -> Shape:
        """The same element type, other dimensions, no layout."""
        sizes = tuple(dimensions) if isinstance(dimensions, list) else dimensions
        return Shape(self.element_type, sizes, None, dynamic)  # pyright: ignore[reportArgumentType]

    # -- comparison ------------------------------------------------------------------------------

    @explaining
    def compatible(self, other: Shape) -> bool:
        """Equality without layouts (dynamic marks count)."""
        return self.without_layout() == other.without_layout()

    @explaining
    def same_dimensions(self, other: Shape) -> bool:
        """Whether both are arrays of the same sizes, whatever their element types and dynamic marks."""
        return self.is_array and other.is_array and self.dimensions == other.dimensions

    @explaining
    def to_string(self, *, with_layout: bool = True) -> str:
        """HLO text: ``f32[2,<=3]{1,0}``, ``(f32[], token[])``."""
        if self.element_type is PrimitiveType.TUPLE:
            return "(" + self._join_elements(with_layout) + ")"
        if self.is_buffer:
            return f"b({self.tuple_shapes[0].to_string(with_layout=with_layout)})"
        sizes = ",".join(
            "?" if d and n == UNBOUNDED else f"<={n}" if d else str(n)
            for n, d in zip(self.dimensions, self.dynamic_dimensions, strict=True)
        )
        text = f"{self.element_type.hlo_name}[{sizes}]"
        if with_layout and self.layout is not None and (self.dimensions or not self.layout.is_default):
            text += str(self.layout)
        return text

    def _join_elements(self, with_layout: bool) -> str:
        # XLA numbers every fifth element of a long tuple for the reader.
        parts: list[str] = []
        for number, shape in enumerate(self.tuple_shapes):
            mark = f"/*index={number}*/" if number and number % 5 == 0 else ""
            parts.append(mark + shape.to_string(with_layout=with_layout))
        return ", ".join(parts)

    def __str__(self) -> str:
        return self.to_string()

    __repr__ = __str__

    if not TYPE_CHECKING:

        def __getitem__(self, index: object) -> None:
            # Also where a shape is unpacked: Python tries the indices then.
            parts = "tuple_shapes" if self.is_tuple else "dimensions"
            raise ArgumentError("a shape has no elements of its own", hint=f"write shape.{parts}")

    def _repr_html_(self) -> str:
        from xlakit.data.html import amount_of_bytes, heading, table

        size = amount_of_bytes(self.byte_size)
        if not self.is_tuple:
            facts = [f"{self.num_elements:,} elements", size] if self.is_array else []
            return heading("Shape", str(self), facts)
        leaves = list(self.leaves())
        rows = [(str(list(index)), str(leaf), amount_of_bytes(leaf.byte_size)) for index, leaf in leaves[:40]]
        left = f", the first {len(rows)} of them here" if len(rows) < len(leaves) else ""
        facts = [f"{len(leaves):,} leaves{left}", size]
        return heading("Tuple shape", "", facts) + table(("index", "shape", "bytes"), rows, numbers=1)


name_type(Shape, "a Shape", "Shapes", "make one with xlakit.make_shape(xlakit.F32, (2, 3))")


@converting
def make_shape(
    element_type: PrimitiveType | object,
    dimensions: Sequence[int] = (),
    *,
    dynamic_dimensions: Sequence[bool] = (),
    layout: Layout | Sequence[int] | None = None,
) -> Shape:
    """An array shape, as ShapeUtil::MakeShape makes it: dimensions in ascending order of their number.

    ``element_type`` is a PrimitiveType or anything NumPy takes as a dtype. ``layout`` is a Layout or a
    minor_to_major order; the default is major to minor. Raises ShapeError, ArgumentError.
    Source: XLA's document "Shapes and layout".
    """
    kind = element_type if isinstance(element_type, PrimitiveType) else PrimitiveType.from_dtype(element_type)
    sizes = tuple(dimensions)
    chosen = layout if isinstance(layout, Layout) else Layout(tuple(layout)) if layout is not None else None
    return Shape(kind, sizes, chosen or Layout.default(len(sizes)), tuple(dynamic_dimensions))


@converting
def make_tuple_shape(shapes: Sequence[Shape]) -> Shape:
    """The shape of a tuple of values of these shapes; they may be tuples themselves, and there may be none."""
    return Shape(PrimitiveType.TUPLE, tuple_shapes=tuple(shapes))


TOKEN_SHAPE = Shape(PrimitiveType.TOKEN)
OPAQUE_SHAPE = Shape(PrimitiveType.OPAQUE)


def floating_types(shapes: Iterable[Shape]) -> set[PrimitiveType]:
    """The floating point types of all arrays of these shapes; a complex type counts as the type of its parts."""
    kinds = {leaf.element_type.real_part for shape in shapes for _, leaf in shape.leaves()}
    return {kind for kind in kinds if kind.is_floating}


@constructing
@dataclass(frozen=True, slots=True)
class ProgramShape:
    """The parameters and the result of a computation."""

    parameters: tuple[Shape, ...]
    result: Shape
    parameter_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not all_of(Shape, self.parameters) or not all_of(str, self.parameter_names):
            convert_fields(self, parameters=tuple[Shape, ...], parameter_names=tuple[str, ...])
        if type(self.result) is not Shape:
            convert_fields(self, result=Shape)
        if self.parameter_names and len(self.parameter_names) != len(self.parameters):
            raise ShapeError(
                f"{len(self.parameter_names)} parameter_names for {len(self.parameters)} parameters",
                hint="give one name for each parameter, or none",
            )

    @explaining
    def compatible(self, other: ProgramShape) -> bool:
        """Equality without layouts and names."""
        return (
            len(self.parameters) == len(other.parameters)
            and all(a.compatible(b) for a, b in zip(self.parameters, other.parameters, strict=True))
            and self.result.compatible(other.result)
        )

    @explaining
    def to_string(self, *, with_layout: bool = True) -> str:
        """HLO text: ``(x: f32[2]) -> f32[]``."""
        names = self.parameter_names or ("",) * len(self.parameters)
        parts = [
            (f"{name}: " if name else "") + shape.to_string(with_layout=with_layout)
            for name, shape in zip(names, self.parameters, strict=True)
        ]
        return f"({', '.join(parts)}) -> {self.result.to_string(with_layout=with_layout)}"

    def __str__(self) -> str:
        return self.to_string()
