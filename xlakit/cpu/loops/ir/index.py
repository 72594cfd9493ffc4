"""Index arithmetic while code is written: sums of loop variables with constant factors.

Every index of every array in a loop nest is an Affine. Reshapes split an index into a quotient and a remainder; if a
loop variable straddles the split, the nest is made again with that variable split in two (:class:`SplitVariable`), so
that a reshape costs nothing at run time. A term that is no sum of variables (an index read from memory, a quotient
that cannot be split) is an Opaque, computed at run time from its :class:`Node`; the kinds of nodes are in
:mod:`xlakit.cpu.loops.ir.nodes`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from xlakit.data.primitive import PrimitiveType


class Variable:
    """A loop variable that counts from 0 below ``extent``."""

    __slots__ = ("extent", "number")

    def __init__(self, extent: int, number: int) -> None:
        self.extent = extent
        self.number = number

    def __repr__(self) -> str:
        return f"i{self.number}"


class Opaque:
    """A number from 0 below ``extent`` that a node computes."""

    __slots__ = ("extent", "node", "number")

    def __init__(self, node: Node, extent: int) -> None:
        self.node = node
        self.extent = extent
        self.number = 1 << 20

    def __repr__(self) -> str:
        return f"<{self.node}>"


Atom = Variable | Opaque


class SplitVariable(Exception):
    """Requests that the nest is made again with ``variable`` split; ``factor`` is the extent of the inner part."""

    def __init__(self, variable: Variable, factor: int) -> None:
        super().__init__(f"{variable} by {factor}")
        self.variable = variable
        self.factor = factor


class Affine:
    """``constant`` plus the sum of atoms times their factors."""

    __slots__ = ("_hash", "constant", "terms")

    def __init__(self, terms: tuple[tuple[Atom, int], ...] = (), constant: int = 0) -> None:
        self.terms = terms
        self.constant = constant
        self._hash = hash((terms, constant))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Affine) and self.constant == other.constant and self.terms == other.terms

    def __add__(self, other: Affine | int) -> Affine:
        if isinstance(other, int):
            return Affine(self.terms, self.constant + other) if other else self
        if not other.terms:
            return self + other.constant
        if not self.terms:
            return other + self.constant
        return _total([*self.terms, *other.terms], self.constant + other.constant)

    def __mul__(self, factor: int) -> Affine:
        if factor == 1:
            return self
        if factor == 0:
            return ZERO
        return Affine(tuple((atom, c * factor) for atom, c in self.terms), self.constant * factor)

    @property
    def bounds(self) -> tuple[int, int]:
        """The least and the greatest value."""
        low = high = self.constant
        for atom, factor in self.terms:
            reach = factor * (atom.extent - 1)
            low, high = (low, high + reach) if factor > 0 else (low + reach, high)
        return low, high

    def factor_of(self, variable: Variable) -> int:
        """The factor of a variable; 0 if it does not occur."""
        return next((c for atom, c in self.terms if atom is variable), 0)

    def split(self, size: int) -> tuple[Affine, Affine] | None:
        """Quotient and remainder of the division by ``size``, for values that are not negative.

        Raises SplitVariable if splitting a loop variable makes the division possible; gives None if nothing does.
        """
        if size == 1:
            return self, ZERO
        whole = tuple((atom, c // size) for atom, c in self.terms if c % size == 0)
        rest = tuple((atom, c) for atom, c in self.terms if c % size)
        remainder = Affine(rest, self.constant % size)
        low, high = remainder.bounds
        if low >= 0 and high < size:
            return Affine(whole, self.constant // size), remainder
        for atom, c in rest:
            if isinstance(atom, Variable) and c > 0 and size % c == 0:
                inner = size // c
                if 1 < inner < atom.extent and atom.extent % inner == 0:
                    raise SplitVariable(atom, inner)
        return None

    def __repr__(self) -> str:
        parts = [f"{c}*{atom}" if c != 1 else str(atom) for atom, c in self.terms]
        return " + ".join([*parts, str(self.constant)] if self.constant or not parts else parts)


ZERO = Affine()


def of(atom: Atom, factor: int = 1) -> Affine:
    """An atom as an Affine."""
    return Affine(((atom, factor),)) if factor else ZERO


def number(value: int) -> Affine:
    """A constant as an Affine."""
    return Affine((), value)


def linear(index: Iterable[Affine], dimensions: tuple[int, ...]) -> Affine:
    """The position of an element in row-major order."""
    total, stride = ZERO, 1
    for position, size in zip(reversed(tuple(index)), reversed(dimensions), strict=True):
        total = total + position * stride
        stride *= size
    return total


def _total(terms: Iterable[tuple[Atom, int]], constant: int) -> Affine:
    factors: dict[Atom, int] = {}
    for atom, c in terms:
        factors[atom] = factors.get(atom, 0) + c
    ordered = sorted(((a, c) for a, c in factors.items() if c), key=lambda term: term[0].number)
    return Affine(tuple(ordered), constant)


class Node:
    """A scalar of an element type, computed from other nodes."""

    __slots__ = ("kind", "operands", "variables")

    def __init__(self, kind: PrimitiveType, operands: Sequence[Node] = (), indices: Sequence[Affine] = ()) -> None:
        self.kind = kind
        found: set[Variable] = set()
        given = list(operands)
        for index in indices:
            for atom, _ in index.terms:
                if isinstance(atom, Opaque):
                    given.append(atom.node)
                else:
                    found.add(atom)
        self.operands = tuple(given)
        for node in given:
            found |= node.variables
        self.variables: frozenset[Variable] = frozenset(found)
