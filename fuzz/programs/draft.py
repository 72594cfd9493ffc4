"""Draft: an HLO text under construction, and the random choices that it is made by; Program: the finished text."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from fuzz.programs.chance import Chance
from fuzz.programs.values import EDGES, Array, make_values, with_nans_of_all_bits
from fuzz.support.tolerances import EXACT, Measure, Tolerance


@dataclass(frozen=True, slots=True)
class Program:
    """A module with the arguments of each replica, and how exact its result must be."""

    opcode: str
    text: str
    arguments: tuple[tuple[Array, ...], ...]
    tolerance: Tolerance
    # Element types and choices that tell programs of one opcode apart.
    case: str = ""


@dataclass(frozen=True, slots=True)
class Named:
    """A value of a module in the making."""

    name: str
    kind: str
    dims: tuple[int, ...]

    @property
    def shape(self) -> str:
        """Its shape as text."""
        return f"{self.kind}[{join(self.dims)}]"

    @property
    def is_float(self) -> bool:
        """Whether it is of a floating point type."""
        return "f" in self.kind


# Makes a program of a case.
Author = Callable[["Draft", str], Program]


@dataclass(frozen=True, slots=True)
class Family:
    """The programs of one opcode: its cases in turn, ``weight`` telling how many it gets of all."""

    opcode: str
    cases: tuple[str, ...]
    author: Author
    weight: float


FAMILIES: dict[str, Family] = {}


def family(opcode: str, cases: Sequence[str] = ("",), weight: float = 1.0) -> Callable[[Author], Author]:
    """Enter a function as the author of an opcode's programs."""

    def enter(author: Author) -> Author:
        FAMILIES[opcode] = Family(opcode, tuple(cases), author, weight)
        return author

    return enter


class Draft(Chance):
    """HLO text in the making. Every choice is drawn from ``rng``, so a seed tells the program."""

    def __init__(self, rng: np.random.Generator) -> None:
        super().__init__(rng)
        self._computations: list[str] = []
        self._lines: list[str] = []
        self._parameters: list[list[Array]] = []
        self._replicas = 1
        self._known_reducers: dict[tuple[str, str], str] = {}

    # -- chance ------------------------------------------------------------------------------------

    def integers(self, low: int, high: int, count: int) -> list[int]:
        """So many numbers from ``low`` to ``high``."""
        return [self.integer(low, high) for _ in range(count)]

    def subset(self, count: int, size: int | None = None) -> list[int]:
        """Some of the numbers below ``count``, ascending."""
        chosen = self.permutation(count)[: self.integer(0, count) if size is None else size]
        return sorted(chosen)

    def dims(self, low: int = 0, high: int = 4, *, most: int = 160, empty: float = 0.05) -> list[int]:
        """Sizes of an array of rank ``low`` to ``high`` with at most ``most`` elements; now and then an empty one."""
        rank = self.integer(low, high)
        sizes = [self.integer(1, 7) for _ in range(rank)]
        if rank and self.chance(0.2):
            sizes[self.integer(0, rank - 1)] = self.pick([16, 31, 33, 64])
        while math.prod(sizes) > most:
            largest = sizes.index(max(sizes))
            sizes[largest] = max(1, sizes[largest] // 2)
        if rank and self.chance(empty):
            sizes[self.integer(0, rank - 1)] = 0
        return sizes

    # -- text --------------------------------------------------------------------------------------

    def shape(self, kind: str, dims: Sequence[int]) -> str:
        """The text of a shape; now and then with a layout that is not the default."""
        text = f"{kind}[{join(dims)}]"
        if len(dims) > 1 and self.chance(0.12):
            text += f"{{{join(self.permutation(len(dims)))}}}"
        return text

    def parameter(
        self, kind: str, dims: Sequence[int], style: str = EDGES, values: Array | None = None, *, plain: bool = False
    ) -> str:
        """A parameter of the entry with a value for each replica; gives its name. ``plain`` leaves the layout out."""
        name = f"p{len(self._parameters)}"
        shape = f"{kind}[{join(dims)}]" if plain else self.shape(kind, dims)
        self._lines.append(f"  {name} = {shape} parameter({len(self._parameters)})")
        made = [values if values is not None else self._values(kind, dims, style) for _ in range(self._replicas)]
        self._parameters.append(made)
        return name

    def _values(self, kind: str, dims: Sequence[int], style: str) -> Array:
        return make_values(self.rng, kind, dims, style)

    def replicas(self, count: int) -> None:
        """Run on so many replicas; to be said before the first parameter."""
        self._replicas = count

    def emit(self, shape: str, call: str) -> str:
        """An instruction; gives its name."""
        name = f"i{len(self._lines)}"
        self._lines.append(f"  {name} = {shape} {call}")
        return name

    def computation(self, lines: Sequence[str]) -> str:
        """A computation, the last line being the root; gives its name."""
        name = f"c{len(self._computations)}"
        body = [f"  {line}" for line in lines]
        body[-1] = f"  ROOT {lines[-1]}"
        self._computations.append("\n".join([f"{name} {{", *body, "}"]))
        return name

    def inside(self) -> Draft:
        """A computation in the making, by the same choices, that may call what is called here; see ``lines``."""
        inner = Draft(self.rng)
        inner._computations, inner._known_reducers = self._computations, self._known_reducers
        return inner

    @property
    def lines(self) -> list[str]:
        """The instructions so far, the last of which is the root, for :meth:`computation`."""
        return [line.strip() for line in self._lines]

    def reducer(self, opcode: str, kind: str) -> str:
        """The computation that applies a binary operation to two scalars."""
        known = self._known_reducers.get((opcode, kind))
        if known is None:
            known = self.computation(
                [f"x = {kind}[] parameter(0)", f"y = {kind}[] parameter(1)", f"r = {kind}[] {opcode}(x, y)"]
            )
            self._known_reducers[opcode, kind] = known
        return known

    def finish(self, opcode: str, tolerance: Tolerance = EXACT, case: str = "") -> Program:
        """The program whose result is the last instruction."""
        if tolerance.measure is Measure.BITS:
            self._parameters = [[with_nans_of_all_bits(self.rng, v) for v in values] for values in self._parameters]
        count = f", replica_count={self._replicas}" if self._replicas > 1 else ""
        body = [*self._lines[:-1], "  ROOT " + self._lines[-1].lstrip()]
        text = "\n\n".join(
            [f"HloModule {opcode.replace('-', '_')}{count}", *self._computations, "\n".join(["ENTRY e {", *body, "}"])]
        )
        arguments = tuple(tuple(values[replica] for values in self._parameters) for replica in range(self._replicas))
        return Program(opcode, text + "\n", arguments, tolerance, case)


def join(numbers: Sequence[object]) -> str:
    """Numbers or names with commas between them."""
    return ",".join(map(str, numbers))
