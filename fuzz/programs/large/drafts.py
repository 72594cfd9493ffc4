"""The drafts of large programs: arrays at whose sizes kernels have several tasks, blocks and rests; and their kinds.

A page enters the authors of its kinds, as it does for the families of small programs. Values are such that there is
one right result: numbers in any order of their bits where nothing is rounded, and whole numbers, as few of them other
than 0 as their type asks for, where sums have to be exact.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import ml_dtypes
import numpy as np

from fuzz.programs.draft import Draft, Program, join
from fuzz.programs.operations.movement import literal
from fuzz.programs.values import FINITE, Array, dtype_of, is_complex, is_float, make_values
from fuzz.support.tolerances import EXACT, Measure, Tolerance

# Equal as numbers: a complex product of whole numbers has zeros of either sign.
EQUAL = Tolerance(Measure.NORM, 0)
_LARGEST_WHOLE = 4


class LargeDraft(Draft):
    """A draft of a program on large arrays: ``least`` to ``most`` elements, whatever an author asks for."""

    def __init__(self, rng: np.random.Generator, least: int = 10_000, most: int = 1_000_000) -> None:
        super().__init__(rng)
        self.least = least
        self.most = most

    def dims(self, low: int = 0, high: int = 4, *, most: int = 0, empty: float = 0.0) -> list[int]:
        """Sizes of so many dimensions at most; even and odd, one of them or all of them long."""
        del empty
        bound = min(self.most, most or self.most)
        rank = self.integer(max(1, low), max(1, high))
        total = math.exp(self.rng.uniform(math.log(min(self.least, bound)), math.log(bound)))
        shares = self.rng.dirichlet([self.pick([0.3, 1.0, 4.0])] * rank)
        sizes = [self._near(total**share) for share in shares]
        while math.prod(sizes) > bound:
            largest = sizes.index(max(sizes))
            sizes[largest] = max(1, int(sizes[largest] * 0.7))
        return sizes

    def _near(self, size: float) -> int:
        """A number of about the size: any, whole vectors, a power of two, or one off."""
        even = self.pick([1, 1, 8, 16, 64, 128])
        power = 1 << max(0, round(math.log2(size)))
        plain = max(1, round(size / even)) * even if size > even / 2 else max(1, round(size))
        return self.pick([plain, plain, plain, max(1, power + self.integer(-1, 1)), power])

    def shape(self, kind: str, dims: Sequence[int]) -> str:
        """The text of a shape; often with a layout that is not the default."""
        text = f"{kind}[{join(dims)}]"
        return text + f"{{{join(self.permutation(len(dims)))}}}" if len(dims) > 1 and self.chance(0.3) else text

    def _values(self, kind: str, dims: Sequence[int], style: str) -> Array:
        if math.prod(dims) < 1 << 16:
            return super()._values(kind, dims, style)
        # Drawing all of a large array takes longer than the program: a piece, again and again, of no even length.
        piece = make_values(self.rng, kind, [50_021], style)
        return np.resize(piece, tuple(dims))

    def whole(self, kind: str, dims: Sequence[int], terms: int, largest: int = _LARGEST_WHOLE) -> Array:
        """Small whole numbers, of which sums of ``terms`` are exact in the element type."""
        dtype = dtype_of(kind)
        if kind == "pred" or not (is_float(kind) or is_complex(kind)):
            return make_values(self.rng, kind, dims, FINITE)
        part = np.dtype(np.float32 if kind == "c64" else np.float64) if is_complex(kind) else dtype
        limit = 1 << (ml_dtypes.finfo(part).nmant + 1)
        share = min(1.0, limit / (2 * largest * max(1, terms)))

        def draw() -> Array:
            values = self.rng.integers(-largest, largest, tuple(dims), dtype=np.int8, endpoint=True)
            return values if share == 1 else np.where(self.rng.random(tuple(dims)) < share, values, 0)

        if not is_complex(kind):
            return draw().astype(dtype)
        both = np.empty(tuple(dims), dtype)
        both.real, both.imag = draw(), draw()
        return both

    def factors(self, kind: str, dims: Sequence[int]) -> Array:
        """Numbers of which every product is exact: 1 and -1, a few of them 2 or a half."""
        if kind == "pred" or not (is_float(kind) or is_complex(kind)):
            return make_values(self.rng, kind, dims, FINITE)
        values = np.where(self.rng.random(tuple(dims)) < 0.5, 1.0, -1.0)
        for place in self.integers(0, max(0, values.size - 1), 6) if values.size else ():
            values.reshape(-1)[place] *= self.pick([2.0, 0.5])
        return values.astype(dtype_of(kind))

    def before(self, name: str, kind: str, dims: Sequence[int]) -> str:
        """What is computed of an operand on the way in; now and then nothing is. No result is rounded."""
        if kind == "pred" or is_complex(kind) or self.chance(0.5):
            return name
        shape = f"{kind}[{join(dims)}]"
        if self.chance() and kind[0] not in "u":
            return self.emit(shape, f"{self.pick(['negate', 'abs'])}({name})")
        along = self.subset(len(dims), self.integer(0, len(dims)))
        other = self.parameter(kind, [dims[d] for d in along], FINITE, plain=True)
        wide = self.emit(shape, f"broadcast({other}), dimensions={{{join(along)}}}")
        return self.emit(shape, f"{self.pick(['maximum', 'minimum'])}({name}, {wide})")

    def constant(self, kind: str, value: Array) -> str:
        """A scalar that the program knows; now and then one that it is given."""
        if self.chance(0.2):
            return self.parameter(kind, [], values=value)
        return self.emit(f"{kind}[]", f"constant({literal(value, kind)})")

    def exact(self, opcode: str, case: str) -> Program:
        """The finished program, whose result is to have the interpreter's bits."""
        return self.finish(opcode, EQUAL if any(is_complex(kind) for kind in case.split()) else EXACT, case)


Author = Callable[[LargeDraft, str], Program]


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of large programs: its cases in turn, and how many elements its arrays have."""

    name: str
    cases: tuple[str, ...]
    author: Author
    weight: float
    elements: tuple[int, int]


KINDS: dict[str, Kind] = {}


def kind(
    name: str, cases: Sequence[str] = ("",), weight: float = 1.0, elements: tuple[int, int] = (10_000, 1_000_000)
) -> Callable[[Author], Author]:
    """Enter a function as the author of a kind of programs."""

    def enter(author: Author) -> Author:
        KINDS[name] = Kind(name, tuple(cases), author, weight, elements)
        return author

    return enter


def large_program(name: str, seed: int, number: int, elements: tuple[int, int] | None = None) -> Program:
    """Program ``number`` of a kind and a seed; with arrays of so many elements, by default what the kind says."""
    chosen = KINDS[name]
    tag = zlib.crc32(name.encode())
    order = np.random.default_rng([seed, tag]).permutation(len(chosen.cases))
    draft = LargeDraft(np.random.default_rng([seed, tag, number]), *(elements or chosen.elements))
    return chosen.author(draft, chosen.cases[int(order[number % len(order)])])
