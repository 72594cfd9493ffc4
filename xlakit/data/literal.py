"""Literal: a host value with a shape.

Source: XLA's document "Shapes and layout", sections on layout and padding (the linear buffers), and LiteralProto.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from xlakit.arguments import constructing, converting, explaining
from xlakit.data.immutable import Immutable
from xlakit.data.index_util import padded_sizes
from xlakit.data.layout import Layout
from xlakit.data.primitive import PrimitiveType
from xlakit.data.shape import TOKEN_SHAPE, UNBOUNDED, Shape, make_shape, make_tuple_shape
from xlakit.errors import LiteralError, ResourceError

# The same as numpy.typing.NDArray[Any]; importing numpy.typing would take a millisecond.
Array = np.ndarray[Any, np.dtype[Any]]


# The largest number of elements that a repr shows in full.
_SHOWN = 10


@constructing
class Literal(Immutable):
    """An array, a tuple of literals, or a token, with its shape. It does not change.

    ``array`` holds the logical value (dimension 0 first), whatever the layout; the layout decides only
    what :meth:`to_linear` gives. An array with dynamic dimensions holds the elements that are there.
    """

    __slots__ = ("_array", "elements", "shape")

    def __init__(self, shape: Shape, array: Array | None = None, elements: Sequence[Literal] = ()) -> None:
        if not isinstance(shape, Shape):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise LiteralError(
                f"a literal has a Shape, got {shape!r}", hint="make one with make_shape, or use Literal.from_value"
            )
        self.shape = shape
        listed = elements if isinstance(elements, (list, tuple)) else (elements,)
        self.elements: tuple[Literal, ...] = tuple(cast("Sequence[Literal]", listed))
        self._array = array
        if shape.is_array:
            self._array = self._checked(array)
        elif array is not None:
            raise LiteralError(
                f"a literal of shape {shape} holds no array", hint="give elements for a tuple, nothing for a token"
            )
        if not all(isinstance(e, Literal) for e in self.elements):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise LiteralError("the elements of a literal are literals", hint="make one with Literal.from_value")
        if [e.shape for e in self.elements] != list(shape.tuple_shapes):
            raise LiteralError(
                f"the elements do not have the shapes of {shape}", hint="make the tuple with Literal.make_tuple"
            )

    def _checked(self, array: Array | None) -> Array:
        if not isinstance(array, (np.ndarray, np.generic)):
            raise LiteralError(f"a literal of shape {self.shape} needs an array", hint="or use Literal.from_value")
        if array.dtype != self.shape.element_type.dtype:
            raise LiteralError(
                f"an array of {array.dtype} does not fit {self.shape}",
                hint="convert it with astype(shape.element_type.dtype), or use Literal.from_value",
            )
        fits = array.ndim == self.shape.rank and all(
            size == bound or (dynamic and (size <= bound or bound < 0))
            for size, bound, dynamic in zip(
                array.shape, self.shape.dimensions, self.shape.dynamic_dimensions, strict=True
            )
        )
        if not fits:
            raise LiteralError(
                f"an array of dimensions {list(array.shape)} does not fit {self.shape}",
                hint=f"reshape it to {list(self.shape.dimensions)}",
            )
        # A view shares the caller's memory only when the caller can no longer write through it.
        if array.flags.writeable:
            array = array.copy()
            array.flags.writeable = False
        return array

    def __reduce__(self) -> tuple[Any, ...]:
        return Literal, (self.shape, self._array, self.elements)

    @property
    def array(self) -> Array:
        """The logical value as a read-only NumPy array; raises LiteralError for tuples and tokens."""
        if self._array is None:
            raise LiteralError(
                f"a literal of shape {self.shape} is not an array", hint="take its elements; a token has no value"
            )
        return self._array

    # -- from and to NumPy and Python ------------------------------------------------------------

    @staticmethod
    @converting
    def from_numpy(value: object, *, layout: Layout | None = None) -> Literal:
        """A literal of a NumPy array or scalar, with its dtype. Raises LiteralError, UnsupportedError."""
        array = _as_array(value)
        kind = PrimitiveType.from_dtype(array.dtype)
        return Literal(make_shape(kind, array.shape, layout=layout), np.asarray(array, dtype=kind.dtype))

    @staticmethod
    @converting
    def from_value(value: object, element_type: PrimitiveType | None = None) -> Literal:
        """A literal of a Python value, a NumPy array, or a (nested) tuple of those.

        Python bool, int, float and complex become PRED, S32 (S64 where it does not fit), F32 and C64, as in XLA;
        ``element_type`` decides instead where it is given. Raises LiteralError where a value does not fit.
        """
        if isinstance(value, Literal):
            return value
        if isinstance(value, tuple):
            return Literal.make_tuple([Literal.from_value(v, element_type) for v in value])  # pyright: ignore
        array = _as_array(value)
        if element_type is None:
            if not isinstance(value, (np.ndarray, np.generic)):
                element_type = _python_type(array)
            else:
                return Literal.from_numpy(array)
        if not element_type.is_array:
            raise LiteralError(f"a number has no type {element_type.hlo_name}", hint="give an element type such as F32")
        return Literal(make_shape(element_type, array.shape), convert_exactly(array, element_type))

    @staticmethod
    @converting
    def make_tuple(elements: Sequence[Literal]) -> Literal:
        """A tuple of literals."""
        return Literal(make_tuple_shape([e.shape for e in elements]), None, elements)

    @staticmethod
    def token() -> Literal:
        """The token; all tokens are equal."""
        return Literal(TOKEN_SHAPE)

    def to_numpy(self) -> Any:
        """An array (read-only), a tuple of them, or None for a token."""
        if self.shape.is_tuple:
            return tuple(element.to_numpy() for element in self.elements)
        return self._array

    # -- from and to linear memory ---------------------------------------------------------------

    @staticmethod
    @converting
    def from_linear(shape: Shape, buffer: object) -> Literal:
        """The literal whose linear buffer, in the shape's layout with its padding, is ``buffer``.

        ``buffer`` is a one-dimensional array-like of the shape's element type. Raises LiteralError.
        """
        if not shape.is_array or UNBOUNDED in shape.dimensions:
            raise LiteralError(f"{shape} has no linear buffer", hint="give an array of known sizes")
        linear = convert_exactly(_as_array(buffer), shape.element_type).reshape(-1)
        layout = shape.layout_or_default
        order = layout.minor_to_major[::-1]
        widths = padded_sizes(shape)
        physical = tuple(widths[d] for d in order)
        if linear.size != math.prod(physical):
            raise LiteralError(
                f"{shape} takes {math.prod(physical)} elements, the buffer has {linear.size}",
                hint=f"give {math.prod(physical)} elements, padding included",
            )
        wide = linear.reshape(physical).transpose(np.argsort(order)) if order else linear.reshape(())
        return Literal(shape, wide[tuple(slice(0, size) for size in shape.dimensions)].copy())

    def to_linear(self) -> Array:
        """The linear buffer in the shape's layout, its padding filled with ``padding_value`` (0 by default)."""
        layout = self.shape.layout_or_default
        order = layout.minor_to_major[::-1]
        array = self.array
        if layout.padded_dimensions:
            fill = 0 if layout.padding_value is None else layout.padding_value
            try:
                wide = np.full(layout.padded_dimensions, fill, dtype=array.dtype)
            except MemoryError:
                raise ResourceError(
                    f"there is no memory for {self.shape} padded to {layout.padded_dimensions}",
                    hint="give smaller padded widths",
                ) from None
            except (OverflowError, ValueError):
                raise LiteralError(
                    f"padding_value {fill} is no {self.shape.element_type.hlo_name}",
                    hint="give a value that the element type holds",
                ) from None
            wide[tuple(slice(0, size) for size in array.shape)] = array
            array = wide
        return np.ascontiguousarray(array.transpose(order)).reshape(-1)

    def without_layout(self) -> Literal:
        """The same literal without layouts in its shape and in those of its elements."""
        shape = self.shape.without_layout()
        if shape is self.shape:
            return self
        return Literal(shape, self._array if shape.is_array else None, [e.without_layout() for e in self.elements])

    @explaining
    def with_layout(self, layout: Layout) -> Literal:
        """The same value with another layout."""
        return Literal(self.shape.with_layout(layout), self.array)

    # -- comparison ------------------------------------------------------------------------------

    def __eq__(self, other: object) -> bool:
        """Same shape (layouts apart) and the same bits, so that NaN equals itself and 0.0 differs from -0.0."""
        if not isinstance(other, Literal):
            return NotImplemented
        if not self.shape.compatible(other.shape):
            return False
        if self.shape.is_tuple:
            return self.elements == other.elements
        return self._array is None or (
            self.array.shape == other.array.shape and self.array.tobytes() == other.array.tobytes()
        )

    def __hash__(self) -> int:
        if self._array is None:
            return hash((self.shape.without_layout(), self.elements))
        return hash((self.shape.without_layout(), self._array.tobytes()))

    def __repr__(self) -> str:
        if self.shape.is_token:
            return f"Literal({self.shape})"
        return f"Literal({self.shape} {self._values()})"

    def _values(self) -> str:
        """The values in Python's notation, abbreviated for arrays of more than ``_SHOWN`` elements."""
        if self.shape.is_tuple:
            return f"({', '.join(e._values() for e in self.elements)})"
        if self._array is None:
            return str(self.shape)
        return " ".join(np.array2string(self._array, separator=", ", threshold=_SHOWN, edgeitems=3).split())


def _as_array(value: object) -> Array:
    """``value`` as a NumPy array; raises LiteralError where its elements are not numbers or it is ragged."""
    try:
        array = np.asarray(value)
    except (ValueError, TypeError):
        raise LiteralError(
            "the rows of a nested list have different lengths", hint="pad the rows to one length"
        ) from None
    if array.dtype.kind in "OSUMm":
        shown = (
            f"an array of {array.dtype}" if isinstance(value, np.ndarray) else f"a value of type {type(value).__name__}"
        )
        raise LiteralError(
            f"no primitive type holds {shown}" + (f" ({value})" if isinstance(value, int) else ""),
            hint="give numbers that 64 bits hold, or a NumPy array of them",
        )
    return array


def _python_type(array: Array) -> PrimitiveType:
    kinds = {"b": PrimitiveType.PRED, "f": PrimitiveType.F32, "c": PrimitiveType.C64}
    if array.dtype.kind in "iu":
        fits = array.size == 0 or (int(array.min()) >= -(2**31) and int(array.max()) < 2**31)
        return PrimitiveType.S32 if fits else PrimitiveType.from_dtype(array.dtype)
    found = kinds.get(array.dtype.kind)
    if found is None:
        raise LiteralError(
            f"no primitive type holds a Python value of {array.dtype}", hint="give numbers or a NumPy array"
        )
    return found


def convert_exactly(array: Array, element_type: PrimitiveType) -> Array:
    """``array`` converted to ``element_type``; only rounding is allowed.

    Raises LiteralError where integers are out of range, or a fraction or an imaginary part would be lost.
    """
    if element_type.is_integral or element_type is PrimitiveType.PRED:
        if array.dtype.kind not in "biu" and PrimitiveType.from_dtype(array.dtype).is_integral is False:
            raise LiteralError(
                f"a value of {array.dtype} does not fit {element_type.hlo_name}", hint="convert it first"
            )
        bits = element_type.bit_width
        low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if element_type.is_signed else (0, (1 << bits) - 1)
        if element_type is PrimitiveType.PRED:
            low, high = 0, 1
        wide = array.astype(object)
        if array.size and (int(wide.min()) < low or int(wide.max()) > high):
            raise LiteralError(
                f"a value lies outside {element_type.hlo_name}'s range {low}..{high}",
                hint="give a wider element type, or clip the values",
            )
    elif array.dtype.kind == "c" and not element_type.is_complex:
        raise LiteralError(
            f"a complex value does not fit {element_type.hlo_name}", hint="give C64 or C128, or take the real part"
        )
    with np.errstate(all="ignore"):
        return array.astype(element_type.dtype)
