"""Layout, Shape, ProgramShape and ShapeIndex with the methods that xla_client gives them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from xlakit.compat.xla_client.binding import ComparedWrapper, Wrapper, bound, cast_integers
from xlakit.compat.xla_client.enums import PrimitiveType
from xlakit.compat.xla_client.errors import status_errors, with_status
from xlakit.data.layout import Layout as OurLayout, Tile
from xlakit.data.primitive import PrimitiveType as OurPrimitiveType
from xlakit.data.shape import (
    TOKEN_SHAPE,
    ProgramShape as OurProgramShape,
    Shape as OurShape,
    make_shape,
    make_tuple_shape,
)
from xlakit.errors import ShapeError, UnsupportedError


class Layout(ComparedWrapper[OurLayout]):
    """The order of an array's dimensions in memory, from minor to major; tiles and a size of elements in bits."""

    __slots__ = ()

    @bound
    def __init__(
        self, minor_to_major: Sequence[int], tiling: Sequence[Sequence[int]] = (), element_size_in_bits: int = 0, /
    ) -> None:
        tiles = tuple(Tile(tuple(int(n) for n in tile)) for tile in tiling)
        order = tuple(int(d) for d in minor_to_major)
        self.wrapped = OurLayout(order, tiles=tiles, element_size_in_bits=int(element_size_in_bits))

    def minor_to_major(self) -> tuple[int, ...]:
        """The dimensions from the fastest varying to the slowest."""
        return self.wrapped.minor_to_major

    def tiling(self) -> list[tuple[int, ...]]:
        """The tiles."""
        return [tile.dimensions for tile in self.wrapped.tiles]

    def element_size_in_bits(self) -> int:
        """The bits of an element; 0 where the type says it."""
        return self.wrapped.element_size_in_bits

    def to_string(self) -> str:
        """HLO text, such as ``{1,0}``."""
        return str(self.wrapped)

    __str__ = to_string


class Shape(ComparedWrapper[OurShape]):
    """An array's element type, dimensions and layout; a tuple of shapes; or a token. Made by parsing HLO text."""

    __slots__ = ()

    @bound
    def __init__(self, text: str, /) -> None:
        from xlakit.formats.hlo_text import parse_shape

        self.wrapped = parse_shape(text).with_implied_layouts()

    @staticmethod
    @with_status
    def array_shape(
        type: PrimitiveType | np.dtype[Any],
        dims: Sequence[int],
        layout: Sequence[int] | None = None,
        dynamic_dimensions: Sequence[bool] | None = None,
    ) -> Shape:
        """An array's shape; ``layout`` is its minor_to_major, major to minor if left out."""
        order = None if layout is None else cast_integers(layout)
        made = make_shape(
            _kind(type), cast_integers(dims), layout=order, dynamic_dimensions=tuple(dynamic_dimensions or ())
        )
        return Shape.of(made)

    @staticmethod
    def scalar_shape(type: PrimitiveType | np.dtype[Any]) -> Shape:
        """The shape of a scalar."""
        return Shape.array_shape(type, ())

    @staticmethod
    @bound
    def tuple_shape(shapes: Sequence[Shape], /) -> Shape:
        """A tuple of shapes."""
        return Shape.of(make_tuple_shape([shape.wrapped for shape in shapes]))

    @staticmethod
    def token_shape() -> Shape:
        """The shape of a token."""
        return Shape.of(TOKEN_SHAPE)

    @staticmethod
    def from_pyval(pyval: Any) -> Shape:
        """The shape of a (nested) tuple of arrays."""
        if isinstance(pyval, tuple):
            return Shape.tuple_shape([Shape.from_pyval(part) for part in pyval])  # pyright: ignore
        array = np.asarray(pyval)
        return Shape.array_shape(array.dtype, array.shape)

    def dimensions(self) -> tuple[int, ...]:
        """The sizes of an array's dimensions; of a dynamic one its bound."""
        return self._array("dimensions").dimensions

    def layout(self) -> Layout:
        """The layout of an array."""
        return Layout.of(self._array("layout").layout_or_default)

    def xla_element_type(self) -> PrimitiveType:
        """The element type; TUPLE or TOKEN for those."""
        return PrimitiveType(self.wrapped.element_type.value)

    @with_status
    def element_type(self) -> np.dtype[Any]:
        """The NumPy dtype of an array's elements."""
        return _dtype(self.wrapped)

    def numpy_dtype(self) -> np.dtype[Any]:
        """The NumPy dtype of an array's elements; dtype('O') for a tuple."""
        return np.dtype(object) if self.wrapped.is_tuple else self.element_type()

    def is_tuple(self) -> bool:
        """Whether this is a tuple."""
        return self.wrapped.is_tuple

    def is_array(self) -> bool:
        """Whether this is an array."""
        return self.wrapped.is_array

    def is_token(self) -> bool:
        """Whether this is a token."""
        return self.wrapped.is_token

    def is_static(self) -> bool:
        """Whether no dimension is dynamic."""
        return not self.wrapped.is_dynamic

    def is_dynamic(self) -> bool:
        """Whether a dimension is dynamic."""
        return self.wrapped.is_dynamic

    @with_status
    def is_dynamic_dimension(self, dimension: int) -> bool:
        """Whether a dimension is dynamic."""
        return self.wrapped.dynamic_dimensions[self._number(dimension)]

    @bound
    def set_dynamic_dimension(self, dimension: int, is_dynamic: bool) -> None:
        """Change whether a dimension is dynamic; its size becomes the bound."""
        marks = list(self.wrapped.dynamic_dimensions)
        marks[self._number(dimension)] = is_dynamic
        self.wrapped = replace(self.wrapped, dynamic_dimensions=tuple(marks))

    def rank(self) -> int:
        """The number of dimensions of an array."""
        return len(self._array("rank").dimensions)

    def to_serialized_proto(self) -> bytes:
        """A serialized ShapeProto."""
        from xlakit.formats.hlo_proto import schema
        from xlakit.formats.hlo_proto.shapes import write_shape

        message = schema.new("ShapeProto")
        write_shape(self.wrapped, message)
        return message.SerializeToString()

    def tuple_shapes(self) -> list[Shape]:
        """The shapes of a tuple's elements."""
        with status_errors():
            if not self.wrapped.is_tuple:
                raise ShapeError(f"{self.wrapped} has no tuple shapes", hint="ask is_tuple() first")
        return [Shape.of(shape) for shape in self.wrapped.tuple_shapes]

    def leaf_count(self) -> int:
        """How many arrays and tokens there are."""
        return sum(1 for _ in self.wrapped.leaves())

    def with_major_to_minor_layout_if_absent(self) -> Shape:
        """The same shape with the default layout, where an array has none."""
        if self.wrapped.is_tuple:
            # A tuple has no layout: as in jaxlib, all of its arrays get the default.
            return Shape.of(self.wrapped.with_leaves(lambda x: x.with_default_layout() if x.is_array else x))
        return Shape.of(self.wrapped.with_implied_layouts())

    def __repr__(self) -> str:
        return str(self.wrapped)

    def _array(self, what: str) -> OurShape:
        with status_errors():
            if not self.wrapped.is_array:
                raise ShapeError(f"{self.wrapped} has no {what}; only arrays do", hint="ask is_array() first")
        return self.wrapped

    def _number(self, dimension: int) -> int:
        if not 0 <= dimension < self.rank():
            raise ShapeError(
                f"dimension {dimension} is out of range for {self.wrapped}", hint=f"give 0 to {self.rank() - 1}"
            )
        return dimension


def _kind(kind: object) -> OurPrimitiveType:
    if (
        isinstance(kind, int)
        and not isinstance(kind, (bool, PrimitiveType))
        and kind in {member.value for member in PrimitiveType}
    ):
        kind = PrimitiveType(kind)
    if isinstance(kind, PrimitiveType):
        if kind is PrimitiveType.PRIMITIVE_TYPE_INVALID:
            raise ShapeError("PRIMITIVE_TYPE_INVALID is no element type", hint="give a type such as PrimitiveType.F32")
        return kind.wrapped
    if isinstance(kind, np.dtype):
        return kind_of(kind)
    raise TypeError(
        "incompatible function arguments: the element type is a PrimitiveType or a NumPy dtype, "
        f"not {type(kind).__name__}"
    )


# Types that jaxlib 0.6.0 does not know.
_LATER_TYPES = ("S1", "U1", "F6E2M3FN", "F6E3M2FN")


def kind_of(dtype: np.dtype[Any]) -> OurPrimitiveType:
    """The element type of a NumPy dtype. Raises ShapeError, as jaxlib's status says, where there is none."""
    kind, hint = None, "use a type that jaxlib 0.6.0 has"
    try:
        kind = OurPrimitiveType.from_dtype(dtype)
    except UnsupportedError as error:
        hint = error.hint
    if kind is None or kind.name in _LATER_TYPES:
        raise ShapeError(f"Unknown NumPy dtype {dtype!r}", hint=hint)
    return kind


def _dtype(shape: OurShape) -> np.dtype[Any]:
    if not shape.is_array:
        raise UnsupportedError(
            f"{shape.element_type.name} has no NumPy dtype", hint="ask for the shapes in tuple_shapes()"
        )
    return shape.element_type.dtype


class ProgramShape(Wrapper[OurProgramShape]):
    """The shapes of the parameters and of the result of a computation."""

    __slots__ = ()

    @bound
    def __init__(self, parameters: Sequence[Shape], result: Shape, /) -> None:
        self.wrapped = OurProgramShape(tuple(shape.wrapped for shape in parameters), result.wrapped)

    def parameter_shapes(self) -> list[Shape]:
        """The shapes of the parameters."""
        return [Shape.of(shape.with_implied_layouts()) for shape in self.wrapped.parameters]

    def result_shape(self) -> Shape:
        """The shape of the result."""
        return Shape.of(self.wrapped.result.with_implied_layouts())

    def __repr__(self) -> str:
        names = self.wrapped.parameter_names or ("(unknown)",) * len(self.wrapped.parameters)
        parts = [
            f"{name}: {shape.to_string(with_layout=False)}"
            for name, shape in zip(names, self.wrapped.parameters, strict=True)
        ]
        return f"({', '.join(parts)}) -> {self.wrapped.result.to_string(with_layout=False)}"


class ShapeIndex(ComparedWrapper[tuple[int, ...]]):
    """The path to a shape inside of nested tuples."""

    __slots__ = ()

    @bound
    def __init__(self, indices: Sequence[int], /) -> None:
        self.wrapped = tuple(int(i) for i in indices)

    def __repr__(self) -> str:
        return "{" + ",".join(map(str, self.wrapped)) + "}"
