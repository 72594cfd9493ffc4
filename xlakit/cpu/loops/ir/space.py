"""The loop variables of a kernel, and how they are split and merged."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from xlakit.cpu.declined import DeclinedError
from xlakit.cpu.loops.ir.index import ZERO, Affine, SplitVariable, Variable, of
from xlakit.dataclass import dataclass

_T = TypeVar("_T")
# The position of a variable: the number of its axis, and its number within the axis.
Position = tuple[int, int]
# The most splits of variables in a nest; if it needs more, its operations get kernels of their own.
_MAX_SPLITS = 24


@dataclass(frozen=True, slots=True)
class Axis:
    """One dimension: its index, and the variables, major to minor, of which the index is made."""

    index: Affine
    variables: tuple[Variable, ...]


class Space:
    """Makes the variables of a kernel, with axes split as ``splits`` says; an axis' number is that of its request.

    pieces: the ranges of variables that run over a part of their range only, by position. known: the variables that are
    used instead of new ones, by position.
    """

    def __init__(
        self,
        splits: dict[int, list[int]],
        pieces: Mapping[Position, range] | None = None,
        known: Mapping[Position, Variable] | None = None,
    ) -> None:
        self._splits = splits
        self._pieces = pieces or {}
        self._known = known or {}
        self._axes = 0
        self.variables: list[Variable] = []
        self._axis_of: dict[Variable, Position] = {}

    def axis(self, extent: int) -> Axis:
        """The variables of a dimension; none for a dimension of size 1."""
        serial = self._axes
        self._axes += 1
        extents = self._splits.get(serial, [extent])
        index, stride = ZERO, math.prod(extents)
        made: list[Variable] = []
        for number, whole in enumerate(extents):
            stride = stride // whole if whole else 0
            piece = self._pieces.get((serial, number), range(whole))
            index = index + piece.start * stride
            size = len(piece)
            if size == 1:
                continue
            variable = self._known.get((serial, number)) or Variable(size, len(self.variables))
            self.variables.append(variable)
            self._axis_of[variable] = (serial, number)
            made.append(variable)
            index = index + of(variable, stride)
        return Axis(index, tuple(made))

    def position_of(self, variable: Variable) -> Position:
        """The position of a variable: the number of its axis, and its number within the axis."""
        return self._axis_of[variable]

    def split(self, request: SplitVariable) -> None:
        """Record that a variable is to be split in two."""
        serial, number = self._axis_of[request.variable]
        extents = self._splits.setdefault(serial, [request.variable.extent])
        extents[number : number + 1] = [request.variable.extent // request.factor, request.factor]


def with_splits(make: Callable[[Space], _T], splits: dict[int, list[int]] | None = None) -> _T:
    """The result of ``make``, called again when a variable has to be split; ``splits`` records the splits."""
    splits = {} if splits is None else splits
    for _ in range(_MAX_SPLITS):
        space = Space(splits)
        try:
            return make(space)
        except SplitVariable as request:
            space.split(request)
    raise DeclinedError(f"no loop is made for reshapes that split its variables more than {_MAX_SPLITS} times")


class Group:
    """Adjacent variables that one loop can run over: all indices step through them as through one variable."""

    __slots__ = ("extent", "variables")

    def __init__(self, variables: Sequence[Variable]) -> None:
        self.variables = tuple(variables)
        self.extent = math.prod(v.extent for v in variables)


def merged(variables: Sequence[Variable], indices: Iterable[Affine]) -> list[Group]:
    """The loops, outer to inner, of a nest: variables that are contiguous in all indices become one loop."""
    groups: list[list[Variable]] = []
    every = list(dict.fromkeys(indices))
    for variable in variables:
        if groups and all(
            index.factor_of(groups[-1][-1]) == index.factor_of(variable) * variable.extent for index in every
        ):
            groups[-1].append(variable)
        else:
            groups.append([variable])
    return [Group(g) for g in groups]
