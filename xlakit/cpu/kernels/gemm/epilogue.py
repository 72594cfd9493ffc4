"""The epilogue of a product: a function that takes each rectangle of results as soon as it is complete, in the cache.

A product with an epilogue is a function that all fusions of this product call; the address of the epilogue is in its
table. So the product is compiled once for all epilogues.
"""

from __future__ import annotations

from xlakit.cpu.llvm import I64, PTR, VOID, Function, Value
from xlakit.dataclass import dataclass

# Where the table of such a product has the address of the function, and after it what that is given first.
ENTRY = 4
# Its parameters: a table, the address of the rectangle, the batch, the range of rows, the range of columns.
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

    local: results are written to temporary memory of the task, row after row, which is only valid during the call;
    else to the result's array.
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
