"""The epilogue of a product: a function that takes each rectangle of results as soon as it is complete, in the cache.

A product with something to follow is a function of its own, that all fusions of this product call: what follows stands
in its table as the address of a function. So the product is compiled once, whatever follows it.
"""

from __future__ import annotations

from dataclasses import dataclass

from xlakit.cpu.llvm import I64, PTR, VOID, Function, Value

# Where the table of such a product has the address of the function, and after it what that is given first.
ENTRY = 4
# What the function is given: a table, where the rectangle stands, the batch, the first row and the one after the last,
# the first column and the one after the last.
PARAMETERS = (PTR, PTR, I64, I64, I64, I64, I64)


@dataclass(frozen=True, slots=True)
class Rectangle:
    """Results that are complete: those of some rows and columns of one batch."""

    base: Value
    batch: Value
    rows: tuple[Value, Value]
    columns: tuple[Value, Value]


@dataclass(frozen=True, slots=True)
class EpilogueCall:
    """Asks a product to call its epilogue.

    local: results are not written to the result's array but to memory of the task, row after row, which ends with
    the call; else the function finds them in the array.
    """

    local: bool

    def call(self, fn: Function, rectangle: Rectangle) -> None:
        """Call what the table of ``fn`` says."""
        table = fn.parameters[0]
        function = fn.load(PTR, fn.at(table, PTR, ENTRY))
        first = fn.load(PTR, fn.at(table, PTR, ENTRY + 1))
        fn.call_pointer(function, VOID, first, rectangle.base, rectangle.batch, *rectangle.rows, *rectangle.columns)


def rectangle_of(fn: Function) -> Rectangle:
    """What a function of these parameters is given."""
    _, base, batch, first_row, last_row, first_column, last_column = fn.parameters
    return Rectangle(base, batch, (first_row, last_row), (first_column, last_column))
