"""The elementary functions: exponentials, logarithms, roots, trigonometric and hyperbolic functions.

Functions of 32 bits and fewer are computed in double precision and rounded once; those of f64 and of complex numbers
are within two units in the last place. Source: seed document "Operation semantics", Element-wise unary functions.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import ClassVar, Protocol

import numpy as np
from scipy import special

from xlakit.data.primitive import PrimitiveType
from xlakit.data.shape import Shape
from xlakit.errors import ShapeError
from xlakit.ir.attributes import ResultAccuracy
from xlakit.ir.operation import Array, Kind, attribute, operation
from xlakit.ops import complex_functions as of_complex
from xlakit.ops.elementwise import FLOATING, FLOATING_OR_COMPLEX, Types, Unary
from xlakit.ops.handle import XlaOp, building, emit
from xlakit.ops.numerics import float_or_complex

Function = Callable[[Array], Array]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Elementary(Unary):
    """A function of real or complex numbers, with the accuracy that is asked of it.

    The interpreter gives its best whatever is asked.
    """

    real: ClassVar[Function]
    complex: ClassVar[Function | None]

    result_accuracy: ResultAccuracy | None = attribute(Kind.RESULT_ACCURACY, default=None)

    def result_shape(self, operands: "list[Shape] | tuple[Shape, ...]", declared: Shape | None) -> Shape:
        return Unary.result_shape(self, operands, declared)

    def value(self, x: Array, kind: PrimitiveType) -> Array:
        return float_or_complex(x, kind.dtype, type(self).real, type(self).complex)


class ElementaryFunction(Protocol):
    """What a person calls: an array of floating point or complex numbers to one of the same shape."""

    __name__: str

    def __call__(self, operand: XlaOp, result_accuracy: ResultAccuracy | None = None) -> XlaOp:
        """Add the operation to the operand's builder."""
        ...
