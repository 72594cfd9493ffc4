"""Where a chain of steps stands: in the entry, or in the bodies, branches and conditions of loops.

A place is given a chain, a function from its first value and the value that all of its steps use to its last value. It
gives an array. What the chain begins with is carried, or is the same in each iteration, or is made of scalars in each
iteration, so that passes that move values out of loops find chains of all kinds, some of which are to stay.
"""

from __future__ import annotations

from collections.abc import Callable

import xlakit as xla
from xlakit.data.shape import Shape
from xlakit.ops.handle import XlaOp

# The last value of a chain, from its first one, and from the one that each step may use.
Chain = Callable[[XlaOp, XlaOp], XlaOp]
# An array, from the two parameters and a chain.
Place = Callable[[XlaOp, XlaOp, Chain], XlaOp]
# More than there are in loops that are unrolled.
_ITERATIONS = 10


def _entry(x: XlaOp, given: XlaOp, chain: Chain) -> XlaOp:
    return chain(x, given)


def _carried(x: XlaOp, given: XlaOp, chain: Chain) -> XlaOp:
    """Each iteration goes on where the one before it ended."""
    return _loop([x, given], lambda i, v: [chain(v[0], v[1]), v[1]])


def _open(x: XlaOp, given: XlaOp, chain: Chain) -> XlaOp:
    """The same, and the number of iterations depends on the data."""
    begin = xla.convert_element_type(xla.gt(_first(x), _first(given)), xla.S32)
    return _loop([x, given], lambda i, v: [chain(v[0], v[1]), v[1]], begin=begin)


def _invariant(x: XlaOp, given: XlaOp, chain: Chain) -> XlaOp:
    """The chain is the same in each iteration."""
    return _loop([x, x, given], lambda i, v: [v[0] * 0.5 + chain(v[1], v[2]), v[1], v[2]])


def _partly(x: XlaOp, given: XlaOp, chain: Chain) -> XlaOp:
    """It begins with what is the same in each iteration; its steps use what is not."""
    return _loop([given, x], lambda i, v: [xla.tanh(chain(v[1], v[0])), v[1]])


def _spread(x: XlaOp, given: XlaOp, chain: Chain) -> XlaOp:
    """It is the same in each iteration, and all is made of two scalars there: its values are larger than these."""

    def body(i: XlaOp, v: list[XlaOp]) -> list[XlaOp]:
        return [v[0] * 0.5 + chain(_ramp(v[1], x.shape), _ramp(v[2], x.shape)), v[1], v[2]]

    return _loop([x, _first(x), _first(given)], body)


def _rows(x: XlaOp, given: XlaOp, chain: Chain) -> XlaOp:
    """Each iteration reads an array of a stack, and writes one of another."""
    sizes = list(x.shape.dimensions)
    stack = xla.broadcast(x, [_ITERATIONS])

    def body(i: XlaOp, v: list[XlaOp]) -> list[XlaOp]:
        origin = [xla.constant(i.builder, 0, xla.S32)] * len(sizes)
        row = xla.reshape(xla.dynamic_slice(v[1], [i, *origin], [1, *sizes]), sizes)
        made = xla.reshape(chain(row, v[2]), [1, *sizes])
        return [xla.dynamic_update_slice(v[0], made, [i, *origin]), v[1], v[2]]

    return _loop([stack, stack, given], body)


def _nested(x: XlaOp, given: XlaOp, chain: Chain) -> XlaOp:
    """A chain in an inner loop, which the outer one leaves as it is, and one in the outer loop."""

    def inside(i: XlaOp, v: list[XlaOp]) -> list[XlaOp]:
        return [xla.tanh(v[0] + chain(v[1], v[2])), v[1], v[2]]

    def body(i: XlaOp, v: list[XlaOp]) -> list[XlaOp]:
        return [chain(_loop([v[0], v[1], v[2]], inside), v[2]), v[1], v[2]]

    return _loop([x, x, given], body)


def _branches(x: XlaOp, given: XlaOp, chain: Chain) -> XlaOp:
    """A chain in a branch of each iteration."""

    def body(i: XlaOp, v: list[XlaOp]) -> list[XlaOp]:
        both = xla.tuple_(i.builder, [v[0], v[1]])

        def taken(pair: XlaOp) -> XlaOp:
            return chain(xla.get_tuple_element(pair, 0), xla.get_tuple_element(pair, 1))

        return [xla.conditional(i > 0, both, taken, both, lambda pair: xla.get_tuple_element(pair, 0) * 0.5), v[1]]

    return _loop([x, given], body)


def _conditions(x: XlaOp, given: XlaOp, chain: Chain) -> XlaOp:
    """A chain decides whether there is another iteration."""

    def condition(i: XlaOp, v: list[XlaOp]) -> XlaOp:
        return xla.and_(i < _ITERATIONS, _first(chain(v[0], v[1])) < 1e6)

    return _loop([x, given], lambda i, v: [v[0] * 0.5 + v[1], v[1]], condition)


PLACES: dict[str, Place] = {
    place.__name__.strip("_"): place
    for place in (
        _entry,
        _carried,
        _open,
        _invariant,
        _partly,
        _spread,
        _rows,
        _nested,
        _branches,
        _conditions,
    )
}
ENTRY = "entry"


def _first(x: XlaOp) -> XlaOp:
    """The first element, as a scalar."""
    rank = x.shape.rank
    return xla.reshape(xla.slice(x, [0] * rank, [1] * rank), []) if rank else x


def _ramp(value: XlaOp, shape: Shape) -> XlaOp:
    """Different elements, between a scalar and 0."""
    if not shape.rank:
        return value
    places = xla.convert_element_type(xla.iota(value.builder, xla.make_shape(xla.S32, shape.dimensions), 0), xla.F32)
    return xla.broadcast(value, shape.dimensions) / (places + 1.0)


def _loop(
    start: list[XlaOp],
    body: Callable[[XlaOp, list[XlaOp]], list[XlaOp]],
    condition: Callable[[XlaOp, list[XlaOp]], XlaOp] | None = None,
    begin: XlaOp | None = None,
) -> XlaOp:
    """The first value after the last iteration, or that of ``start`` where ``begin`` is their number."""
    count = len(start)

    def parts(state: XlaOp) -> tuple[XlaOp, list[XlaOp]]:
        i, *values = (xla.get_tuple_element(state, k) for k in range(count + 1))
        return i, values

    def step(state: XlaOp) -> tuple[XlaOp, ...]:
        i, values = parts(state)
        return (i + 1, *body(i, values))

    def again(state: XlaOp) -> XlaOp:
        i, values = parts(state)
        return condition(i, values) if condition is not None else i < _ITERATIONS

    first = xla.constant(start[0].builder, 0, xla.S32) if begin is None else begin
    return xla.get_tuple_element(xla.while_(again, step, (first, *start)), 1)
