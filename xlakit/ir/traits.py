"""Traits of operations: properties that passes and backends may rely on, declared by the operation's class.

A trait is a base class without members, as in MLIR: a page writes ``class Add(Arithmetic, Commutative, Associative)``,
a pass asks ``isinstance(instruction.op, Commutative)``, and a new operation that declares a trait is handled by every
pass that asks for it. What depends on the attributes of one instruction is a property of ``Op``: ``has_side_effect``,
``is_pointwise``.
"""

from __future__ import annotations

from typing import Final


class Elementwise:
    """The result's element at an index is a function of the operands' elements at that index."""

    __slots__ = ()


class Commutative:
    """f(x, y) and f(y, x) are the same value."""

    __slots__ = ()


class Associative:
    """f(f(x, y), z) and f(x, f(y, z)) are the same value; of floats, except for roundings where f rounds."""

    __slots__ = ()


class Idempotent:
    """f(x, x) is x."""

    __slots__ = ()


class Transcendental:
    """A function of numbers that takes a root, a table or a polynomial; cost analysis counts them apart."""

    __slots__ = ()


class Expensive:
    """An element takes so long to compute that storing and reading it is faster than computing it twice."""

    __slots__ = ()


class DataMovement:
    """Each element of the result is an element of the operand, at an index that depends on its own index only."""

    __slots__ = ()


class Forwarding:
    """The result is the operands or parts of them: the operation needs neither code nor memory of its own."""

    __slots__ = ()


class ForeignMemory:
    """Reads or writes memory that the program does not own, in the layouts of operands and result."""

    __slots__ = ()


class Distinct:
    """Two instructions with equal operands must not be merged: the operation orders, marks or begins something."""

    __slots__ = ()


class Start:
    """The first half of an asynchronous operation; another operation, its done, ends it."""

    __slots__ = ()


class Done:
    """The end of an asynchronous operation that another operation, its start, has begun."""

    __slots__ = ()


# In the order in which documents name them.
TRAITS: Final[tuple[type, ...]] = (
    Elementwise,
    Commutative,
    Associative,
    Idempotent,
    Transcendental,
    Expensive,
    DataMovement,
    Forwarding,
    ForeignMemory,
    Distinct,
    Start,
    Done,
)


def traits_of(op: type) -> tuple[type, ...]:
    """The traits that an operation's class declares."""
    return tuple(trait for trait in TRAITS if issubclass(op, trait))
