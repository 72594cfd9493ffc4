"""Literal: an array or a tuple of arrays that programs of xla_client fill in, with its text as XLA has it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from xlakit.compat.xla_client.binding import bound
from xlakit.compat.xla_client.errors import status_errors
from xlakit.compat.xla_client.shapes import Shape
from xlakit.data.shape import Shape as OurShape
from xlakit.errors import UnsupportedError


class Literal:
    """An array of a shape, zeros at first; NumPy's view of it can be written to."""

    __slots__ = ("_array", "_shape")

    @bound
    def __init__(self, shape: Shape, /) -> None:
        self._shape = shape
        self._array = _zeros(shape.wrapped) if shape.is_array() else None

    def shape(self) -> Shape:
        """The shape."""
        return self._shape

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        with status_errors():
            if self._array is None:
                raise UnsupportedError("a tuple is no array", hint="make a literal for each element")
        array = self._array
        if dtype is not None and np.dtype(dtype) != array.dtype:
            if copy is False:
                raise ValueError(f"a {array.dtype} literal as {np.dtype(dtype)} is a copy")
            return array.astype(dtype)
        return array.copy() if copy else array

    def __repr__(self) -> str:
        return _text(self._shape.wrapped, self._array)


def _zeros(shape: OurShape) -> np.ndarray[Any, Any]:
    """Zeros that lie in memory as the layout says."""
    order = shape.layout_or_default.minor_to_major[::-1]
    made = np.zeros([shape.dimensions[d] for d in order], shape.element_type.dtype)
    return made.transpose(np.argsort(order)) if order else made


def _text(shape: OurShape, array: np.ndarray[Any, Any] | None) -> str:
    if shape.is_tuple:
        return "(\n" + ",\n".join(_text(part, None) for part in shape.tuple_shapes) + "\n)"
    if not shape.is_array:
        return "token"
    from xlakit.formats.hlo_text.literals import element_texts

    values = _zeros(shape) if array is None else array
    texts = np.array(element_texts(values, shape.element_type), object).reshape(values.shape)
    return f"{shape.to_string(with_layout=False)} {_nested(texts.tolist(), (), values.ndim)}"


def _nested(texts: Any, index: Sequence[int], rank: int) -> str:
    """Elements in braces, a row on each line; in arrays of more than three dimensions blocks have index comments."""
    level = len(index)
    if rank == 0:
        return texts
    if level == rank - 1:
        pad = " " if rank > 1 and len(texts) > 1 else ""
        return ("  " if rank > 1 else "") + "{" + pad + ", ".join(texts) + pad + "}"
    place = f" /*i{level - 1}={index[-1]}*/" if level and rank > 3 else ""
    rows = ",\n".join(_nested(part, (*index, number), rank) for number, part in enumerate(texts))
    return f"{{{place}\n{rows}\n}}"
