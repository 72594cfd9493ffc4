"""The elementary functions: exponentials, logarithms, roots, trigonometric and hyperbolic functions.

Functions of 32 bits and fewer are computed in double precision and rounded once; those of f64 and of complex numbers
are within two units in the last place. Source: seed document "Operation semantics", Element-wise unary functions.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import ClassVar, Protocol, cast

import numpy as np

from xlakit.data.shape import Shape
from xlakit.errors import ShapeError
from xlakit.ir.attributes import ResultAccuracy
from xlakit.ir.operation import Array, Kind, attribute, operation
from xlakit.ops.handle import XlaOp, building, emit
from xlakit.ops.shared import complex_functions as of_complex
from xlakit.ops.shared.elementwise import FLOATING, FLOATING_OR_COMPLEX, Unary
from xlakit.ops.shared.numerics import of_doubles, of_wider_complex

Function = Callable[[Array], Array]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Elementary(Unary):
    """A function of real or complex numbers. The interpreter gives its best, whatever accuracy is asked."""

    real: ClassVar[Function]
    complex: ClassVar[Function | None]

    # The call makes a dataclass field.
    result_accuracy: ResultAccuracy | None = attribute(Kind.RESULT_ACCURACY, default=None)  # noqa: RUF009

    def result_shape(self, operands: Sequence[Shape], declared: Shape | None) -> Shape:
        accuracy = self.result_accuracy
        if accuracy is not None and accuracy.tolerance is not None and min(accuracy.tolerance) < 0:
            raise ShapeError(
                f"result_accuracy has a negative tolerance {accuracy.tolerance}", hint="give tolerances of 0 or more"
            )
        return Unary.result_shape(self, operands, declared)

    def value(self, x: Array) -> Array:
        function = self.complex if self.complex is not None and x.dtype.kind == "c" else self.real
        return function(x)


class UnaryFunction(Protocol):
    """What a person calls: a function of an array's elements."""

    def __call__(self, operand: XlaOp, result_accuracy: ResultAccuracy | None = None) -> XlaOp:
        """Add the operation to the builder of ``operand``."""
        ...


def _elementary(
    opcode: str, name: str, meaning: str, real: Function, complex: Function | None, documents: Sequence[str] = ()
) -> UnaryFunction:
    """Declare an operation, and give the function that a person calls."""
    members = {
        "__doc__": f"{meaning}.",
        "takes": FLOATING if complex is None else FLOATING_OR_COMPLEX,
        "real": staticmethod(of_doubles(real)),
        "complex": None if complex is None else staticmethod(of_wider_complex(complex)),
    }
    base = cast("type[Elementary]", type(name.capitalize(), (Elementary,), members))
    made = operation(opcode, arity=1, pointwise=True, documents=documents)(base)

    def function(operand: XlaOp, result_accuracy: ResultAccuracy | None = None) -> XlaOp:
        return emit(made(result_accuracy=result_accuracy), operand)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"""{meaning}, for every element x.

    operand: an array of {made.takes.words} numbers.
    result_accuracy: the accuracy that is asked for; backends may give more.

    Gives an array of the operand's shape. Raises ShapeError.
    Source: Operation semantics, Element-wise unary functions.
    """
    return building(function)


def _cbrt(x: Array) -> Array:
    # C's cbrt of doubles may be off by more than two units in the last place.
    return np.cbrt(x.astype(np.longdouble))


def _erf(x: Array) -> Array:
    from scipy import special  # takes a while to load, and few programs need it

    return special.erf(x)


def _logistic(x: Array) -> Array:
    # exp of a positive number overflows while the result is still a small number.
    e = np.exp(-np.abs(x))
    return np.where(x < 0, e, 1) / (1 + e)


def _rsqrt(x: Array) -> Array:
    return 1 / np.sqrt(x)


exp = _elementary("exponential", "exp", "e to the power of x", np.exp, np.exp, ["Exp"])
expm1 = _elementary("exponential-minus-one", "expm1", "e^x - 1", np.expm1, of_complex.expm1)
log = _elementary("log", "log", "The natural logarithm of x", np.log, np.log, ["Log"])
log1p = _elementary("log-plus-one", "log1p", "The natural logarithm of 1 + x", np.log1p, of_complex.log1p)
logistic = _elementary("logistic", "logistic", "1 / (1 + e^-x)", _logistic, of_complex.logistic, ["Logistic"])
erf = _elementary("erf", "erf", "The error function of x", _erf, None)

sqrt = _elementary("sqrt", "sqrt", "The square root of x", np.sqrt, np.sqrt, ["Sqrt"])
rsqrt = _elementary("rsqrt", "rsqrt", "1 / sqrt(x)", _rsqrt, of_complex.rsqrt, ["Rsqrt"])
cbrt = _elementary("cbrt", "cbrt", "The real cube root of x", _cbrt, None, ["Cbrt"])

sin = _elementary("sine", "sin", "The sine of x", np.sin, np.sin)
cos = _elementary("cosine", "cos", "The cosine of x", np.cos, np.cos, ["Cos"])
tan = _elementary("tan", "tan", "The tangent of x", np.tan, np.tan)
asin = _elementary("asin", "asin", "The angle whose sine is x", np.arcsin, np.arcsin)
acos = _elementary("acos", "acos", "The angle whose cosine is x", np.arccos, np.arccos)
# The newest of these opcodes: programs that have it run, but `atan` builds atan2, which every XLA knows.
_elementary("atan", "atan", "The angle whose tangent is x", np.arctan, np.arctan)

sinh = _elementary("sinh", "sinh", "The hyperbolic sine of x", np.sinh, np.sinh)
cosh = _elementary("cosh", "cosh", "The hyperbolic cosine of x", np.cosh, np.cosh)
tanh = _elementary("tanh", "tanh", "The hyperbolic tangent of x", np.tanh, np.tanh, ["Tanh"])
asinh = _elementary("asinh", "asinh", "The number whose hyperbolic sine is x", np.arcsinh, np.arcsinh)
acosh = _elementary("acosh", "acosh", "The number whose hyperbolic cosine is x", np.arccosh, np.arccosh)
atanh = _elementary("atanh", "atanh", "The number whose hyperbolic tangent is x", np.arctanh, np.arctanh)
