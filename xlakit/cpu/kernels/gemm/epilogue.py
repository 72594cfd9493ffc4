"""The epilogue of a product: a function that is called on each complete rectangle of results, while it is in the cache.

All fusions of the same product call one product function, whose table contains the address of the epilogue. So the
product is compiled once for all epilogues.
"""

from __future__ import annotations

from xlakit.cpu.llvm import I64, PTR, VOID, Function, Value
from xlakit.dataclass import dataclass

# The index in the product's table of the epilogue's address, which is followed by the epilogue's first argument.
ENTRY = 4
# The parameters of an epilogue: a table, the address of the rectangle, the batch, the range of rows, that of columns.
PARAMETERS = (PTR, PTR, I64, I64, I64, I64, I64)


@dataclass(frozen=True, slots=True)
class Rectangle:
    """A rectangle of complete results of one batch."""

    base: Value
    batch: Value
    rows: tuple[Value, Value]
    columns: tuple[Value, Value]


@dataclass(frozen=True, slots=True)
class EpilogueCall:
    """The call of an epilogue by a product.

    local: results are written to temporary memory of the task, row after row, which is only valid during the call; else
    they are written to the result's array.
    """

    local: bool

    def call(self, fn: Function, rectangle: Rectangle) -> None:
        """Call the epilogue in the table of ``fn``."""
        table = fn.parameters[0]
        function = fn.load(PTR, fn.at(table, PTR, ENTRY))
        first = fn.load(PTR, fn.at(table, PTR, ENTRY + 1))
        fn.call_pointer(function, VOID, first, rectangle.base, rectangle.batch, *rectangle.rows, *rectangle.columns)


def rectangle_of(fn: Function) -> Rectangle:
    """The rectangle that an epilogue function gets as its parameters."""
    _, base, batch, first_row, last_row, first_column, last_column = fn.parameters
    return Rectangle(base, batch, (first_row, last_row), (first_column, last_column))
