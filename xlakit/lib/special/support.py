"""The helpers of the special functions: computation in F64, series, and loops over whole arrays.

All special functions compute in F64 and round once to the type of their operands. In F32 the errors of logarithms,
powers and sums would be visible in the result, and compensating terms would cost more than the conversions.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence

import numpy as np

from xlakit.data.primitive import PrimitiveType
from xlakit.errors import ShapeError
from xlakit.ops.control import while_
from xlakit.ops.data import constant, tuple_
from xlakit.ops.elementwise.binary import and_, or_
from xlakit.ops.elementwise.compare import lt, ne
from xlakit.ops.elementwise.convert import convert_element_type
from xlakit.ops.elementwise.elementary import log1p
from xlakit.ops.elementwise.select import select
from xlakit.ops.elementwise.unary import abs
from xlakit.ops.handle import XlaOp
from xlakit.ops.movement import broadcast_in_dim
from xlakit.ops.reduction import reduce

HALF_LOG_TWO_PI = 0.5 * math.log(2 * math.pi)


def in_f64(function: Callable[..., XlaOp], *operands: XlaOp) -> XlaOp:
    """A function of arrays of F64 for arrays of any floating point type and one shape. Raises ShapeError."""
    first = operands[0].shape
    for operand in operands:
        if not first.is_array or not first.element_type.is_floating or not operand.shape.compatible(first):
            raise ShapeError(
                f"takes floating point arrays of one shape, got {', '.join(str(o.shape) for o in operands)}",
                hint="convert them with convert_element_type, and broadcast them",
            )
    kind = first.element_type
    if kind is PrimitiveType.F64:
        return function(*operands)
    return convert_element_type(function(*(convert_element_type(o, PrimitiveType.F64) for o in operands)), kind)


def full(like: XlaOp, value: float | bool) -> XlaOp:
    """An array of one value: F64, or PRED, of the shape of another array."""
    one = constant(like.builder, np.asarray(value))
    return broadcast_in_dim(one, like.shape.dimensions, ())


def is_nan(x: XlaOp) -> XlaOp:
    """PRED: which elements are NaN."""
    return ne(x, x)


def first_of(cases: Sequence[tuple[XlaOp, XlaOp | float]], otherwise: XlaOp) -> XlaOp:
    """The value of the first case whose condition holds, element by element."""

    def chosen(rest: XlaOp, case: tuple[XlaOp, XlaOp | float]) -> XlaOp:
        condition, value = case
        return select(condition, value if isinstance(value, XlaOp) else full(otherwise, value), rest)

    return functools.reduce(chosen, reversed(cases), otherwise)


def chebyshev(t: XlaOp, coefficients: Sequence[float]) -> XlaOp:
    """The sum of Chebyshev polynomials of t in [-1, 1], by Clenshaw's recurrence."""
    after = last = full(t, 0.0)
    twice = t * 2.0
    for c in reversed(coefficients[1:]):
        last, after = twice * last - after + c, last
    return t * last - after + coefficients[0]


def polynomial(x: XlaOp, coefficients: Sequence[float]) -> XlaOp:
    """A polynomial by Horner's rule; the constant coefficient comes first."""
    result = full(x, coefficients[-1])
    for c in reversed(coefficients[:-1]):
        result = result * x + c
    return result


def log1p_minus(u: XlaOp) -> XlaOp:
    """log(1 + u) - u for u > -1, exact also for small u, where it is -u^2 / 2.

    With r = u / (2 + u), log(1 + u) is 2 atanh(r), and 2r - u is -ur.
    """
    r = u / (u + 2.0)
    square = r * r
    series = polynomial(square, [2 / (2 * k + 3) for k in range(18)])
    return select(lt(abs(u), 0.5), r * (square * series - u), log1p(u) - u)


def iterate(
    step: Callable[[Sequence[XlaOp]], tuple[Sequence[XlaOp], XlaOp]],
    state: Sequence[XlaOp],
    active: XlaOp,
    limit: int,
) -> list[XlaOp]:
    """Iterate ``step`` on the active elements, until none is active or ``limit`` steps were made.

    step: gives the next values and a PRED array: which elements need further steps. The first value of the state is the
    number of the step, 1 in the first, an F64 scalar; the function gives the values after it only.
    """
    builder = active.builder
    one = constant(builder, np.float64(1))

    def condition(values: XlaOp) -> XlaOp:
        some = reduce(values[1], False, or_, list(range(active.shape.rank)))
        return and_(some, lt(values[0], float(limit)))

    def body(values: XlaOp) -> XlaOp:
        number, going, *old = values
        new, more = step([number, *old])
        kept = [select(going, n, o) for n, o in zip(new, old, strict=True)]
        return tuple_(values.builder, [number + 1.0, and_(going, more), *kept])

    result = while_(condition, body, (one, active, *state))
    return [result[i + 2] for i in range(len(state))]
