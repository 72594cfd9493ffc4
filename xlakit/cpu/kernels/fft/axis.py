"""What is to be done along one axis of an array."""

from __future__ import annotations

from xlakit.cpu.llvm import I8, PTR, Function, Type, Value
from xlakit.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Storage:
    """An array: a number of the kernel's table, and how many bytes after its start."""

    array: int
    offset: int = 0

    def pointer(self, fn: Function, table: Value) -> Value:
        """Where it is."""
        found = fn.load(PTR, fn.at(table, PTR, self.array))
        return fn.at(found, I8, self.offset) if self.offset else found


@dataclass(frozen=True, slots=True)
class Axis:
    """``outer`` times ``inner`` transforms of ``length`` points, ``inner`` complex numbers apart.

    part: the type of the parts of complex numbers. is_inverse: without the division, which is ``scale``.
    reads_real, writes_real: real rows in, or out; ``inner`` is 1 then, and the spectrum has length // 2 + 1 points.
    """

    part: Type
    source: Storage
    target: Storage
    outer: int
    length: int
    inner: int
    is_inverse: bool
    scale: float = 1.0
    reads_real: bool = False
    writes_real: bool = False

    @property
    def is_halved(self) -> bool:
        """Whether a complex transform of half the length does it."""
        return (self.reads_real or self.writes_real) and self.length % 2 == 0

    @property
    def points(self) -> int:
        """The length of the complex transform."""
        return self.length // 2 if self.is_halved else self.length

    @property
    def spectrum(self) -> int:
        """How many points the spectrum has."""
        return self.length // 2 + 1 if self.reads_real or self.writes_real else self.length

    @property
    def source_row(self) -> int:
        """How many real numbers a row of the source has."""
        return self.length if self.reads_real else 2 * self.spectrum

    @property
    def target_row(self) -> int:
        """How many real numbers a row of the target has."""
        return self.length if self.writes_real else 2 * self.spectrum
