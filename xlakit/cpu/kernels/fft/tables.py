"""Tables of roots of unity and of values derived from them, as constants of a module."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from xlakit.cpu.llvm import F32, Function, Type, Value
from xlakit.cpu.scalars.complex_arithmetic import plain_product

Exponents = npt.NDArray[np.int64]
Complex = npt.NDArray[np.complexfloating[Any]]

_HALF_PI = np.longdouble("1.57079632679489661923132169163975144")


def roots(exponents: Exponents, n: int) -> Complex:
    """exp(-2 pi i e / n) for all exponents e, from angles of at most an eighth of a turn."""
    four = 4 * (np.asarray(exponents, np.int64) % n)
    quarter, rest = np.divmod(four, n)
    over = 2 * rest > n
    quarter, rest = quarter + over, np.where(over, rest - n, rest)
    angle = _HALF_PI * (rest.astype(np.longdouble) / n)
    root = np.cos(angle) - 1j * np.sin(angle)
    turns = np.array([1, -1j, -1, 1j], np.clongdouble)
    return root * turns[quarter % 4]


def chirp(n: int) -> Complex:
    """exp(-pi i j^2 / n) for j below n."""
    # In Python's integers, because squares may be large.
    return roots(np.array([j * j % (2 * n) for j in range(n)], np.int64), 2 * n)


def chirp_spectrum(n: int, length: int) -> Complex:
    """The spectrum of the conjugate chirp around 0, divided by the length: a factor of Bluestein's convolution."""
    import scipy.fft

    back = chirp(n).conj()
    padded = np.zeros(length, np.clongdouble)
    padded[:n] = back
    padded[length - n + 1 :] = back[:0:-1]
    return np.asarray(scipy.fft.fft(padded), np.clongdouble) / length


def load_point(fn: Function, type: Type, table: Value, index: Value | int) -> tuple[Value, Value]:
    """Entry ``index`` of a table of pairs, or of a memory of lanes: its real and its imaginary part."""
    pair = fn.at(table, type, index * 2)
    return fn.load(type, pair), fn.load(type, fn.at(pair, type, 1))


class Tables:
    """Puts tables into the module of a function, each table once."""

    def __init__(self, fn: Function, part: Type) -> None:
        self._fn = fn
        self._part = part
        self._dtype = np.dtype(np.float32 if part is F32 else np.float64)

    def pairs(self, name: str, numbers: Complex) -> Value:
        """A table of complex numbers, with real and imaginary parts alternating."""
        return self._table(name, np.stack([numbers.real, numbers.imag], -1))

    def planes(self, name: str, numbers: Complex, lanes: int) -> Value:
        """A table of complex numbers in groups: the real parts of all lanes, then the imaginary parts."""
        groups = numbers.reshape(-1, lanes)
        return self._table(name, np.stack([groups.real, groups.imag], 1))

    def _table(self, name: str, numbers: npt.NDArray[Any]) -> Value:
        data = np.ascontiguousarray(numbers, self._dtype).tobytes()
        return self._fn.address(self._fn.module.shared_data(f"fft.{name}.{self._part.name}", data))


def symbol(part: Type, parts: Sequence[object]) -> str:
    """The name of a function for a type of parts."""
    return ".".join(["fft", *map(str, parts), part.name])


class LongRoots:
    """The roots exp(-2 pi i step e / n) for e below ``count``; many of them are products of two table entries."""

    # The most entries of a single table; an exponent beyond that is split at bit BITS.
    _LARGEST = 8192
    BITS = 12

    def __init__(self, tables: Tables, fn: Function, part: Type, n: int, step: int, count: int) -> None:
        self._fn = fn
        self._part = part
        self.is_short = count <= self._LARGEST
        low = np.arange(count if self.is_short else 1 << self.BITS)
        self._low = tables.pairs(f"roots.{n}.{step}.{len(low)}", roots(step * low, n))
        if not self.is_short:
            high = np.arange(((count - 1) >> self.BITS) + 1) << self.BITS
            self._high = tables.pairs(f"roots.{n}.{step}.{len(high)}.high", roots(step * high, n))

    def at(self, number: Value) -> tuple[Value, Value]:
        """The root of exponent ``number``."""
        if self.is_short:
            return self.low(number)
        low = self.low(number & ((1 << self.BITS) - 1))
        return plain_product(low, self.high(number >> self.BITS))

    def low(self, number: Value) -> tuple[Value, Value]:
        """The root of an exponent below ``2^BITS``, or of any exponent if there is a single table."""
        return load_point(self._fn, self._part, self._low, number)

    def high(self, number: Value) -> tuple[Value, Value]:
        """The root of exponent ``number * 2^BITS``."""
        return load_point(self._fn, self._part, self._high, number)
