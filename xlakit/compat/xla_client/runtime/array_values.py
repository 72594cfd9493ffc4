"""The methods of jax.Array that read values: conversions to numbers, elements, texts. Each reads them on the host."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from xlakit.data.primitive import PrimitiveType

# The type characters that jaxlib's buffer protocol supports.
_KINDS = "?bhilqBHILQefdFD"
# Memory that does not begin at a multiple of these bytes is copied, as XLA's CPU client does.
_SHARED_ALIGNMENT = 64


def can_be_shared(values: np.ndarray[Any, Any]) -> bool:
    """Whether an array on a device may have the memory of values of the host: XLA copies other values.

    Programs may write to memory of theirs that was copied, so that more must not be shared.
    """
    return values.ctypes.data % _SHARED_ALIGNMENT == 0 and PrimitiveType.from_dtype(values.dtype).bit_width not in (
        2,
        4,
    )


class ArrayValues:
    """The methods for classes whose ``values`` gives the values."""

    __slots__ = ()

    def values(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        """The values as an array of NumPy."""
        raise NotImplementedError

    def __buffer__(self, flags: int = 0, /) -> memoryview:
        """The values for ``memoryview``: read-only, in place, major to minor. Raises BufferError for types without."""
        return memoryview(exported(self)).toreadonly()

    def __len__(self) -> int:
        return len(self.values())

    def __bool__(self) -> bool:
        return bool(self.values())

    def __int__(self) -> int:
        return int(self._scalar())

    def __index__(self) -> int:
        return operator.index(self._scalar())

    def __float__(self) -> float:
        return float(self._scalar())

    def __complex__(self) -> complex:
        return complex(self._scalar())

    def __format__(self, spec: str) -> str:
        return format(self.values()[()], spec)

    def __str__(self) -> str:
        return str(self.values())

    def __repr__(self) -> str:
        values = self.values()
        text = np.array2string(values, separator=", ", prefix="Array(", suffix=",")
        return f"Array({text}, dtype={values.dtype.name})"

    @property
    def itemsize(self) -> int:
        """The bytes of an element."""
        return self.values().itemsize

    def item(self, *index: Any) -> Any:
        """One element as a number of Python."""
        return self.values().item(*index)

    def tolist(self) -> Any:
        """The values as nested lists of numbers of Python."""
        return self.values().tolist()

    def tobytes(self, order: Any = "C") -> bytes:
        """The bytes of the values, major to minor."""
        return self.values().tobytes(order)

    def _scalar(self) -> Any:
        values = self.values()
        if values.ndim:
            raise TypeError(f"only scalar arrays are numbers of Python; this one has {values.ndim} dimensions")
        return values[()]


def exported(array: Any) -> Any:
    """The values as an array that exports its buffer. Raises BufferError where the type has none."""
    if array.is_deleted():
        raise BufferError("INVALID_ARGUMENT: Array is null: it was deleted or donated")
    values = array.values()
    # Types that NumPy does not know by itself have letters of its types.
    if values.dtype.char not in _KINDS or values.dtype.isbuiltin != 1:
        raise BufferError(
            f"INVALID_ARGUMENT: Buffers of type {values.dtype.name} are not supported by the Python buffer protocol; "
            "use numpy.asarray"
        )
    return values
