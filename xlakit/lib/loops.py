"""Loops over several values, and loops that count.

Source: ``xla/hlo/builder/lib/loops.h``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xlakit.data.primitive import PrimitiveType
from xlakit.errors import ShapeError
from xlakit.lib.constants import constant_r0_with_type, one, zero
from xlakit.ops.control import while_
from xlakit.ops.data import get_tuple_element, tuple_
from xlakit.ops.elementwise.binary import add
from xlakit.ops.elementwise.compare import lt
from xlakit.ops.handle import Builder, XlaOp, building
from xlakit.ops.shared.numerics import limits


@building
def while_loop_helper(
    condition_function: Callable[[Sequence[XlaOp]], XlaOp],
    body_function: Callable[[Sequence[XlaOp]], Sequence[XlaOp]],
    initial_values: Sequence[XlaOp],
) -> list[XlaOp]:
    """The values after a loop over several values.

    condition_function: given the values, PRED[]: whether another iteration follows.
    body_function: the values of the next iteration, as many and of the same shapes.
    initial_values: the first values, at least one.

    Raises ShapeError. Source: WhileLoopHelper.
    """
    if not initial_values:
        raise ShapeError("a loop needs at least one value", hint="give the values that its condition depends on")
    count = len(initial_values)

    def parts(state: XlaOp) -> list[XlaOp]:
        return [get_tuple_element(state, i) for i in range(count)]

    def body(state: XlaOp) -> XlaOp:
        return tuple_(state.builder, list(body_function(parts(state))))

    start = tuple_(initial_values[0].builder, list(initial_values))
    return parts(while_(lambda state: condition_function(parts(state)), body, start))


@building
def for_each_index(
    builder: Builder,
    num_iterations: int,
    num_iterations_type: PrimitiveType,
    body_function: Callable[[XlaOp, Sequence[XlaOp]], Sequence[XlaOp]],
    initial_values: Sequence[XlaOp],
) -> list[XlaOp]:
    """The values after ``num_iterations`` iterations.

    num_iterations_type: the integer type of the iteration's number, which must hold ``num_iterations``.
    body_function: given the number of the iteration, from 0, and the values, those of the next iteration.
    initial_values: the first values; there may be none.

    Raises ShapeError. Source: ForEachIndex.
    """
    kind = num_iterations_type
    if not kind.is_integral or not 0 <= num_iterations <= limits(kind)[1]:
        raise ShapeError(
            f"{kind.hlo_name} does not count to {num_iterations}", hint="take a wider integer type, such as xlakit.S64"
        )

    def condition(values: Sequence[XlaOp]) -> XlaOp:
        return lt(values[0], constant_r0_with_type(values[0].builder, kind, num_iterations))

    def step(values: Sequence[XlaOp]) -> list[XlaOp]:
        index = values[0]
        return [add(index, one(index.builder, kind)), *body_function(index, values[1:])]

    return while_loop_helper(condition, step, [zero(builder, kind), *initial_values])[1:]
