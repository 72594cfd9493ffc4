"""Arithmetic on arrays, as ``jax.Array`` has it: NumPy computes on the host, results are on the array's device.

Types are promoted as JAX does: a number of Python has the type of the array, unless it is of a later kind (integers,
floating point numbers, complex ones), and then 32 bits; an integer array has the type of a floating point one. With
``jax_enable_x64`` (:mod:`jax_jit`) they have 64 bits, and arrays of NumPy keep theirs.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, Self

import ml_dtypes
import numpy as np

from xlakit.compat.xla_client.jit_state import canonical, default_type, get_enable_x64, narrow

_NUMBERS = (bool, int, float, complex, np.ndarray, np.generic)


def _kind(dtype: np.dtype[Any]) -> int:
    """The kind of a type: 0 for booleans, then integers, floating point numbers and complex ones."""
    if dtype.kind == "b":
        return 0
    if dtype.kind in "iu" or dtype in (np.dtype(ml_dtypes.int4), np.dtype(ml_dtypes.uint4)):
        return 1
    return 3 if dtype.kind == "c" else 2


def _promoted(left: np.dtype[Any], right: np.dtype[Any]) -> np.dtype[Any]:
    """The type of an operation on arrays of two types. Raises TypeError where there is none."""
    low, high = sorted((left, right), key=_kind)
    if _kind(low) == _kind(high):
        if {left.name, right.name} == {"float16", "bfloat16"}:
            return np.dtype(np.float32)
        joined = np.promote_types(left, right)
        if _kind(joined) > _kind(left):
            # Signed and unsigned 64-bit integers are promoted to floats.
            return default_type(2)
        # Signed and unsigned 32-bit integers are promoted to 64 bits, if these are enabled.
        return joined if joined in (left, right) or get_enable_x64() else narrow(joined)
    if _kind(high) == 3 and _kind(low) == 2:
        return np.promote_types(high, np.dtype(np.complex128 if low.itemsize == 8 else np.complex64))
    return high


def _with_number(dtype: np.dtype[Any], number: complex) -> np.dtype[Any]:
    """The type of an operation on an array and a number of Python."""
    kind = 0 if isinstance(number, bool) else 1 if isinstance(number, int) else 2 if isinstance(number, float) else 3
    if kind <= _kind(dtype):
        return dtype
    return _promoted(dtype, np.dtype(np.complex64)) if kind == 3 and _kind(dtype) == 2 else default_type(kind)


def _binary(function: Callable[[Any, Any], Any], *, swapped: bool = False, divides: bool = False) -> Any:
    def apply(self: ArrayArithmetic, other: object) -> Any:
        if not isinstance(other, (ArrayArithmetic, *_NUMBERS)):
            return NotImplemented
        own = self.values()
        if isinstance(other, _NUMBERS) and not isinstance(other, (np.ndarray, np.generic)):
            dtype, given = _with_number(own.dtype, other), other
        else:
            given = other.values() if isinstance(other, ArrayArithmetic) else canonical(np.asarray(other))
            dtype = _promoted(own.dtype, given.dtype)
        if divides and _kind(dtype) < 2:
            dtype = default_type(2)
        left, right = own.astype(dtype), np.asarray(given, dtype)
        with np.errstate(all="ignore"):
            found = function(right, left) if swapped else function(left, right)
        # Products of short floating point numbers come in F32.
        return self.made_of(found if found.dtype == np.bool_ else found.astype(dtype, copy=False))

    return apply


def _both(function: Callable[[Any, Any], Any], *, divides: bool = False) -> tuple[Any, Any]:
    return _binary(function, divides=divides), _binary(function, swapped=True, divides=divides)


def _unary(function: Callable[[Any], Any]) -> Any:
    def apply(self: ArrayArithmetic) -> Any:
        return self.made_of(function(self.values()))

    return apply


def _method(name: str) -> Any:
    def apply(self: ArrayArithmetic, *args: Any, **kwargs: Any) -> Any:
        values = self.values()
        found = np.asarray(getattr(values, name)(*args, **kwargs))
        wide = found.dtype.itemsize > values.dtype.itemsize and found.dtype != values.dtype
        return self.made_of(canonical(found) if wide else found)

    apply.__name__ = apply.__qualname__ = name
    apply.__doc__ = f"``numpy.ndarray.{name}`` of the values."
    return apply


class ArrayArithmetic:
    """The operators and the methods; ``made_of`` makes an array of the result."""

    __slots__ = ()
    # NumPy's operators defer to those of this class.
    __array_priority__ = 100

    def values(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        """The values as an array of NumPy."""
        raise NotImplementedError

    def made_of(self, values: Any) -> Self:
        """An array of these values, where this one is."""
        raise NotImplementedError

    __add__, __radd__ = _both(operator.add)
    __sub__, __rsub__ = _both(operator.sub)
    __mul__, __rmul__ = _both(operator.mul)
    __truediv__, __rtruediv__ = _both(operator.truediv, divides=True)
    __floordiv__, __rfloordiv__ = _both(operator.floordiv)
    __mod__, __rmod__ = _both(operator.mod)
    __pow__, __rpow__ = _both(operator.pow)
    __matmul__, __rmatmul__ = _both(operator.matmul)
    __and__, __rand__ = _both(operator.and_)
    __or__, __ror__ = _both(operator.or_)
    __xor__, __rxor__ = _both(operator.xor)
    __lshift__, __rlshift__ = _both(operator.lshift)
    __rshift__, __rrshift__ = _both(operator.rshift)
    __lt__, __le__ = _binary(operator.lt), _binary(operator.le)
    __gt__, __ge__ = _binary(operator.gt), _binary(operator.ge)
    __eq__, __ne__ = _binary(operator.eq), _binary(operator.ne)
    __hash__ = None  # pyright: ignore[reportAssignmentType]
    __neg__, __pos__ = _unary(operator.neg), _unary(operator.pos)
    __abs__, __invert__ = _unary(operator.abs), _unary(operator.invert)

    def __divmod__(self, other: object) -> tuple[Self, Self]:
        return self // other, self % other

    def __round__(self, digits: int = 0) -> Self:
        return self.made_of(self.values().round(digits))

    def __getitem__(self, index: Any) -> Self:
        return self.made_of(self.values()[index])

    @property
    def T(self) -> Self:
        """The array with its dimensions in the opposite order."""
        return self.made_of(self.values().T)

    @property
    def real(self) -> Self:
        """The real parts."""
        return self.made_of(self.values().real)

    @property
    def imag(self) -> Self:
        """The imaginary parts."""
        return self.made_of(self.values().imag)

    def astype(self, dtype: Any) -> Self:
        """The values converted to another type."""
        with np.errstate(all="ignore"):
            return self.made_of(self.values().astype(dtype))

    all, any, argmax, argmin, argsort = (_method(name) for name in ("all", "any", "argmax", "argmin", "argsort"))
    clip, conj, cumprod, cumsum = (_method(name) for name in ("clip", "conj", "cumprod", "cumsum"))
    diagonal, dot, flatten = (_method(name) for name in ("diagonal", "dot", "flatten"))
    prod, ravel, repeat = (_method(name) for name in ("prod", "ravel", "repeat"))
    reshape, round, squeeze = (_method(name) for name in ("reshape", "round", "squeeze"))
    sum, swapaxes, take = (_method(name) for name in ("sum", "swapaxes", "take"))
    trace, transpose = (_method(name) for name in ("trace", "transpose"))
    max, min = (_method(name) for name in ("max", "min"))

    def mean(self, axis: Any = None) -> Self:
        """The mean along axes, of integers in the default floating point type."""
        values = self.values()
        dtype = default_type(2) if _kind(values.dtype) < 2 else values.dtype
        return self.made_of(np.asarray(values.mean(axis, dtype)))
