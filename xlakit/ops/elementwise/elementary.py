"""The elementary functions: exponentials, logarithms, roots, trigonometric and hyperbolic functions.

Functions of 32 bits and fewer are computed in double precision and rounded once; those of f64 and of complex numbers
are within two units in the last place. Source: XLA's document "Operation semantics", Element-wise unary functions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import ClassVar, Protocol

import numpy as np

from xlakit.data.shape import Shape
from xlakit.dataclass import dataclass
from xlakit.errors import ShapeError
from xlakit.ir.attributes import ResultAccuracy
from xlakit.ir.operation import Array, Kind, attribute, operation
from xlakit.ir.traits import Expensive, Transcendental
from xlakit.ops.handle import XlaOp, building, emit
from xlakit.ops.shared import complex_functions as of_complex
from xlakit.ops.shared.elementwise import FLOATING, FLOATING_OR_COMPLEX, Unary
from xlakit.ops.shared.numerics import of_doubles, of_wider_complex

Function = Callable[[Array], Array]


@dataclass(frozen=True, slots=True, kw_only=True)
class Elementary(Unary, Transcendental, Expensive):
    """A function of real or complex numbers. The interpreter ignores the requested accuracy and is most accurate."""

    takes = FLOATING_OR_COMPLEX
    real: ClassVar[Function]
    complex: ClassVar[Function | None] = None

    # attribute() declares a dataclass field.
    result_accuracy: ResultAccuracy | None = attribute(Kind.RESULT_ACCURACY, default=None)

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
    """The type of the builder's functions for elementary functions."""

    def __call__(self, operand: XlaOp, result_accuracy: ResultAccuracy | None = None) -> XlaOp:
        """Add the operation to the builder of ``operand``."""
        ...


def _function(made: type[Elementary], name: str) -> UnaryFunction:
    def function(operand: XlaOp, result_accuracy: ResultAccuracy | None = None) -> XlaOp:
        return emit(made(result_accuracy=result_accuracy), operand)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"""{(made.__doc__ or "").rstrip(".")}, for every element x.

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
    # SciPy's is faster for large arrays, but takes a tenth of a second to load, for a constant of most initializers.
    return np.asarray(_ERF(x), np.float64)


_ERF = np.frompyfunc(math.erf, 1, 1)


def _logistic(x: Array) -> Array:
    # exp is only taken of numbers up to 0, as exp(-x) overflows for negative x whose result is still representable.
    e = np.exp(-np.abs(x))
    return np.where(x < 0, e, 1) / (1 + e)


@operation("exponential", arity=1, pointwise=True, documents=("Exp",))
class Exponential(Elementary):
    """e to the power of x."""

    real = staticmethod(of_doubles(np.exp))
    complex = staticmethod(of_wider_complex(of_complex.exp))


@operation("exponential-minus-one", arity=1, pointwise=True)
class ExponentialMinusOne(Elementary):
    """e^x - 1."""

    real = staticmethod(of_doubles(np.expm1))
    complex = staticmethod(of_wider_complex(of_complex.expm1))


@operation("log", arity=1, pointwise=True, documents=("Log",))
class Log(Elementary):
    """The natural logarithm of x."""

    real = staticmethod(of_doubles(np.log))
    complex = staticmethod(of_wider_complex(of_complex.log))


@operation("log-plus-one", arity=1, pointwise=True)
class LogPlusOne(Elementary):
    """The natural logarithm of 1 + x."""

    real = staticmethod(of_doubles(np.log1p))
    complex = staticmethod(of_wider_complex(of_complex.log1p))


@operation("logistic", arity=1, pointwise=True, documents=("Logistic",))
class Logistic(Elementary):
    """1 / (1 + e^-x)."""

    real = staticmethod(of_doubles(_logistic))
    complex = staticmethod(of_wider_complex(of_complex.logistic))


@operation("erf", arity=1, pointwise=True)
class Erf(Elementary):
    """The error function of x."""

    takes = FLOATING
    real = staticmethod(of_doubles(_erf))


@operation("sqrt", arity=1, pointwise=True, documents=("Sqrt",))
class Sqrt(Elementary):
    """The square root of x."""

    real = staticmethod(of_doubles(np.sqrt))
    complex = staticmethod(of_wider_complex(of_complex.sqrt))


@operation("rsqrt", arity=1, pointwise=True, documents=("Rsqrt",))
class Rsqrt(Elementary):
    """1 / sqrt(x)."""

    real = staticmethod(of_doubles(lambda x: 1 / np.sqrt(x)))
    complex = staticmethod(of_wider_complex(of_complex.rsqrt))


@operation("cbrt", arity=1, pointwise=True, documents=("Cbrt",))
class Cbrt(Elementary):
    """The real cube root of x."""

    takes = FLOATING
    real = staticmethod(of_doubles(_cbrt))


@operation("sine", arity=1, pointwise=True)
class Sine(Elementary):
    """The sine of x."""

    real = staticmethod(of_doubles(np.sin))
    complex = staticmethod(of_wider_complex(of_complex.sin))


@operation("cosine", arity=1, pointwise=True, documents=("Cos",))
class Cosine(Elementary):
    """The cosine of x."""

    real = staticmethod(of_doubles(np.cos))
    complex = staticmethod(of_wider_complex(of_complex.cos))


@operation("tan", arity=1, pointwise=True)
class Tan(Elementary):
    """The tangent of x."""

    real = staticmethod(of_doubles(np.tan))
    complex = staticmethod(of_wider_complex(of_complex.tan))


@operation("asin", arity=1, pointwise=True)
class Asin(Elementary):
    """The angle whose sine is x."""

    real = staticmethod(of_doubles(np.arcsin))
    complex = staticmethod(of_wider_complex(np.arcsin))


@operation("acos", arity=1, pointwise=True)
class Acos(Elementary):
    """The angle whose cosine is x."""

    real = staticmethod(of_doubles(np.arccos))
    complex = staticmethod(of_wider_complex(np.arccos))


# This opcode is newer than the others: it is read and run, but the builder's `atan` makes atan2, which any XLA knows.
@operation("atan", arity=1, pointwise=True)
class Atan(Elementary):
    """The angle whose tangent is x."""

    real = staticmethod(of_doubles(np.arctan))
    complex = staticmethod(of_wider_complex(np.arctan))


@operation("sinh", arity=1, pointwise=True)
class Sinh(Elementary):
    """The hyperbolic sine of x."""

    real = staticmethod(of_doubles(np.sinh))
    complex = staticmethod(of_wider_complex(of_complex.sinh))


@operation("cosh", arity=1, pointwise=True)
class Cosh(Elementary):
    """The hyperbolic cosine of x."""

    real = staticmethod(of_doubles(np.cosh))
    complex = staticmethod(of_wider_complex(of_complex.cosh))


@operation("tanh", arity=1, pointwise=True, documents=("Tanh",))
class Tanh(Elementary):
    """The hyperbolic tangent of x."""

    real = staticmethod(of_doubles(np.tanh))
    complex = staticmethod(of_wider_complex(of_complex.tanh))


@operation("asinh", arity=1, pointwise=True)
class Asinh(Elementary):
    """The number whose hyperbolic sine is x."""

    real = staticmethod(of_doubles(np.arcsinh))
    complex = staticmethod(of_wider_complex(np.arcsinh))


@operation("acosh", arity=1, pointwise=True)
class Acosh(Elementary):
    """The number whose hyperbolic cosine is x."""

    real = staticmethod(of_doubles(np.arccosh))
    complex = staticmethod(of_wider_complex(np.arccosh))


@operation("atanh", arity=1, pointwise=True)
class Atanh(Elementary):
    """The number whose hyperbolic tangent is x."""

    real = staticmethod(of_doubles(np.arctanh))
    complex = staticmethod(of_wider_complex(np.arctanh))


# -- what a person calls -------------------------------------------------------------------------

exp = _function(Exponential, "exp")
expm1 = _function(ExponentialMinusOne, "expm1")
log = _function(Log, "log")
log1p = _function(LogPlusOne, "log1p")
logistic = _function(Logistic, "logistic")
erf = _function(Erf, "erf")
sqrt = _function(Sqrt, "sqrt")
rsqrt = _function(Rsqrt, "rsqrt")
cbrt = _function(Cbrt, "cbrt")
sin = _function(Sine, "sin")
cos = _function(Cosine, "cos")
tan = _function(Tan, "tan")
asin = _function(Asin, "asin")
acos = _function(Acos, "acos")
sinh = _function(Sinh, "sinh")
cosh = _function(Cosh, "cosh")
tanh = _function(Tanh, "tanh")
asinh = _function(Asinh, "asinh")
acosh = _function(Acosh, "acosh")
atanh = _function(Atanh, "atanh")
