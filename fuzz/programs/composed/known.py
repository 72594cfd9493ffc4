"""Well-known algorithms, as people write them with loops, branches and selects: each a function of a few numbers.

Results hang on roundings, so they are compared as far as those go; no comparison of rounded numbers decides how often a
loop runs but where both sides are far apart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import xlakit as xla
from fuzz.programs.chance import Chance
from fuzz.programs.composed.sketch import Op, Sketched, elements

# An algorithm: gets the chance, the kind of numbers and the parameters' own maker, and gives results.
Maker = Callable[["Notes"], Sequence[Op]]


class Notes:
    """A program in the making: its parameters with their values."""

    def __init__(self, seed: int, number: int, name: str) -> None:
        self.rng = np.random.default_rng([seed, number, 2])
        self.chance = Chance(self.rng)
        self.kind = self.chance.pick([xla.F32, xla.F32, xla.F64])
        self.builder = xla.XlaBuilder(name)
        self.arguments: list[Any] = []
        self.size = self.chance.pick([1, 2, 3, 4, 5, 7, 8, 12, 17])

    def given(self, *dims: int, low: float = -1.0, high: float = 1.0, kind: xla.PrimitiveType | None = None) -> Op:
        """A parameter with values between two numbers."""
        kind = kind or self.kind
        values = self.rng.uniform(low, high, dims)
        return self.parameter(np.asarray(np.floor(values) if kind.is_integral else values).astype(kind.dtype))

    def parameter(self, values: Any) -> Op:
        """A parameter with these values."""
        self.arguments.append(values)
        shape = xla.make_shape(values.dtype, values.shape)
        return xla.parameter(self.builder, len(self.arguments) - 1, shape, f"p{len(self.arguments) - 1}")

    def repeat(self, count: int, body: Callable[..., Sequence[Op]], *state: Op) -> list[Op]:
        """``body(i, *state)`` so often, in the program itself."""
        return repeat(xla.constant(self.builder, np.int32(count)), body, *state)


def repeat(count: Op, body: Callable[..., Sequence[Op]], *state: Op) -> list[Op]:
    """``body(i, *state)`` so often; the count is carried."""

    def step(given: Op) -> Op:
        i, count, *inside = elements(given)
        return xla.tuple_(given.builder, xla.add(i, np.int32(1)), count, *body(i, *inside))

    def more(given: Op) -> Op:
        return xla.lt(xla.get_tuple_element(given, 0), xla.get_tuple_element(given, 1))

    start = xla.constant(count.builder, np.int32(0))
    return elements(xla.while_(more, step, (start, count, *state)))[2:]


def full(like: Op, number: float) -> Op:
    """A number in all places of an array."""
    scalar = xla.constant(like.builder, np.asarray(number, like.shape.element_type.dtype))
    return xla.broadcast(scalar, like.shape.dimensions)


def spread(scalar: Op, like: Op) -> Op:
    """A scalar in all places of an array."""
    return xla.broadcast(scalar, like.shape.dimensions)


def total(x: Op) -> Op:
    """The sum of all elements."""
    return xla.reduce_all(x, xla.constant(x.builder, np.asarray(0, x.shape.element_type.dtype)), xla.add)


def inner(x: Op, y: Op) -> Op:
    """The inner product of two vectors."""
    return xla.dot_general(x, y, xla.DotDimensionNumbers([0], [0], [], []))


def times(a: Op, b: Op, left: int = 1, right: int = 0) -> Op:
    """A product of matrices, or of a matrix and a vector."""
    return xla.dot_general(a, b, xla.DotDimensionNumbers([left], [right], [], []))


def where(test: Op, yes: Sequence[Op], no: Sequence[Op]) -> list[Op]:
    """A whole tuple chosen by one predicate."""
    return [xla.select(xla.broadcast(test, a.shape.dimensions), a, b) for a, b in zip(yes, no, strict=True)]


# -- roots ------------------------------------------------------------------------------------------


def bisection(notes: Notes) -> Sequence[Op]:
    """A root of x^3 + x - c between two scalars, or of many equations at once."""
    dims = notes.chance.pick([(), (), (notes.size,), (2, notes.size)])
    c = notes.given(*dims, low=1.0, high=4.0)

    def body(_: Op, low: Op, high: Op, c: Op) -> Sequence[Op]:
        middle = xla.mul(xla.add(low, high), full(low, 0.5))
        value = xla.sub(xla.add(xla.mul(xla.mul(middle, middle), middle), middle), c)
        left = xla.gt(value, full(low, 0))
        return xla.select(left, low, middle), xla.select(left, middle, high), c

    low, high, _ = notes.repeat(notes.chance.integer(3, 12), body, full(c, 0), full(c, 2), c)
    return low, high


def crossing(notes: Notes) -> Sequence[Op]:
    """A bracket whose ends are exchanged as they are ordered: Brent's bookkeeping."""
    a, b = notes.given(), notes.given()

    def body(i: Op, a: Op, b: Op, fa: Op, fb: Op) -> Sequence[Op]:
        swap = xla.eq(xla.rem(i, np.int32(notes_modulus)), np.int32(0))
        a, b, fa, fb = where(swap, (b, a, fb, fa), (a, b, fa, fb))
        return xla.mul(xla.add(a, b), full(a, 0.5)), b, fb, fa

    notes_modulus = notes.chance.integer(2, 3)
    return notes.repeat(notes.chance.integer(2, 12), body, a, b, xla.neg(a), xla.neg(b))


def newton(notes: Notes) -> Sequence[Op]:
    """Square roots by Newton's method, until they do not change by much, lane by lane as a mapped loop does it."""
    dims = notes.chance.pick([(), (notes.size,), (3, notes.size)])
    c = notes.given(*dims, low=0.5, high=4.0)

    def body(state: Op) -> Op:
        x, c, alive, count = elements(state)
        better = xla.mul(xla.add(x, xla.div(c, x)), full(x, 0.5))
        going = xla.gt(xla.abs(xla.sub(xla.mul(x, x), c)), full(x, 0.25))
        x = xla.select(alive, better, x)
        alive = xla.and_(alive, going)
        count = xla.add(count, xla.convert_element_type(alive, xla.S32))
        return xla.tuple_(x, c, alive, count)

    def more(state: Op) -> Op:
        alive = xla.get_tuple_element(state, 2)
        any_alive = xla.reduce_all(alive, xla.constant(state.builder, np.bool_(False)), xla.or_)
        counts = xla.get_tuple_element(state, 3)
        most = xla.reduce_all(counts, xla.constant(state.builder, np.int32(0)), xla.max)
        return xla.and_(any_alive, xla.lt(most, np.int32(9)))

    zeros = xla.broadcast(xla.constant(notes.builder, np.int32(0)), dims)
    alive = xla.broadcast(xla.constant(notes.builder, np.bool_(True)), dims)
    return elements(xla.while_(more, body, (c, c, alive, zeros)))[:1]


# -- differential equations ----------------------------------------------------------------------------


def runge_kutta(notes: Notes) -> Sequence[Op]:
    """The pendulum, or a linear system, by the fourth-order method, with every step kept in a stack."""
    steps = notes.chance.integer(1, 9)
    y = notes.given(notes.size)
    matrix = notes.given(notes.size, notes.size, low=-0.3, high=0.3)
    linear = notes.chance.chance()

    def slope(y: Op, matrix: Op) -> Op:
        return times(matrix, y) if linear else xla.neg(xla.sin(y))

    def body(i: Op, y: Op, stack: Op, matrix: Op) -> Sequence[Op]:
        h = full(y, 0.1)
        k1 = slope(y, matrix)
        k2 = slope(xla.add(y, xla.mul(xla.mul(h, full(y, 0.5)), k1)), matrix)
        k3 = slope(xla.add(y, xla.mul(xla.mul(h, full(y, 0.5)), k2)), matrix)
        k4 = slope(xla.add(y, xla.mul(h, k3)), matrix)
        whole = xla.add(xla.add(k1, k4), xla.mul(full(y, 2.0), xla.add(k2, k3)))
        y = xla.add(y, xla.mul(xla.div(h, full(y, 6.0)), whole))
        zero = xla.constant(y.builder, np.int32(0))
        stack = xla.dynamic_update_slice(stack, xla.reshape(y, (1, *y.shape.dimensions)), [i, zero])
        return y, stack, matrix

    stack = xla.broadcast(full(y, 0), (steps,))
    return notes.repeat(steps, body, y, stack, matrix)[:2]


def leapfrog(notes: Notes) -> Sequence[Op]:
    """Positions and velocities in turn, with the last accepted state chosen as a whole."""
    q, p = notes.given(notes.size), notes.given(notes.size)

    def body(i: Op, q: Op, p: Op, q0: Op, p0: Op) -> Sequence[Op]:
        half = xla.sub(p, xla.mul(full(p, 0.05), q))
        moved = xla.add(q, xla.mul(full(q, 0.1), half))
        pushed = xla.sub(half, xla.mul(full(p, 0.05), moved))
        accept = xla.ne(xla.rem(i, np.int32(3)), np.int32(1))
        new = where(accept, (moved, pushed), (q0, p0))
        kept = where(accept, (q, p), (q0, p0))
        return [*new, *kept]

    return notes.repeat(notes.chance.integer(2, 11), body, q, p, q, p)


def adaptive(notes: Notes) -> Sequence[Op]:
    """Steps of a size that doubles and halves, kept or thrown away."""
    y = notes.given(notes.size, low=0.5, high=1.5)

    def body(i: Op, t: Op, h: Op, y: Op, last: Op) -> Sequence[Op]:
        slope = xla.mul(y, full(y, -0.5))
        new = xla.add(y, xla.mul(spread(h, y), slope))
        keep = xla.lt(xla.rem(i, np.int32(4)), np.int32(3))
        t2, y2, last2 = where(keep, (xla.add(t, h), new, y), (t, y, last))
        h = xla.select(keep, xla.mul(h, full(h, 1.25)), xla.mul(h, full(h, 0.5)))
        return t2, h, y2, last2

    zero = full(xla.constant(notes.builder, np.asarray(0, notes.kind.dtype)), 0.0)
    return notes.repeat(notes.chance.integer(2, 12), body, zero, full(zero, 0.1), y, y)


# -- linear algebra -----------------------------------------------------------------------------------


def conjugate_gradients(notes: Notes) -> Sequence[Op]:
    """A system with a matrix that is the identity and a little more."""
    n = notes.size
    a, b = notes.given(n, n, low=-0.1, high=0.1), notes.given(n)
    rows = xla.iota(notes.builder, xla.make_shape(xla.S32, (n, n)), 0)
    columns = xla.iota(notes.builder, xla.make_shape(xla.S32, (n, n)), 1)
    matrix = xla.add(times(a, a, 1, 1), xla.select(xla.eq(rows, columns), full(a, 1), full(a, 0)))

    def body(_: Op, x: Op, r: Op, p: Op, rs: Op, m: Op) -> Sequence[Op]:
        mp = times(m, p)
        alpha = xla.div(rs, xla.add(inner(p, mp), full(rs, 1e-3)))
        x = xla.add(x, xla.mul(spread(alpha, p), p))
        r = xla.sub(r, xla.mul(spread(alpha, mp), mp))
        new = inner(r, r)
        beta = xla.div(new, xla.add(rs, full(rs, 1e-3)))
        return x, r, xla.add(r, xla.mul(spread(beta, p), p)), new, m

    return notes.repeat(notes.chance.integer(1, 5), body, full(b, 0), b, b, inner(b, b), matrix)[:2]


def power_iteration(notes: Notes) -> Sequence[Op]:
    """A vector that a matrix is applied to, and made of length 1, again and again."""
    n = notes.size
    matrix, x = notes.given(n, n, low=0.1, high=1.0), notes.given(n, low=0.5, high=1.0)

    def body(_: Op, x: Op, length: Op, matrix: Op) -> Sequence[Op]:
        y = times(matrix, x)
        length = xla.sqrt(inner(y, y))
        return xla.div(y, spread(length, y)), length, matrix

    return notes.repeat(notes.chance.integer(1, 12), body, x, inner(x, x), matrix)[:2]


def small_products(notes: Notes) -> Sequence[Op]:
    """A chain of products of small matrices, written out: a matrix made orthogonal, or layers of one network."""
    n, orthogonal = notes.chance.pick([1, 2, 3, 3, 4]), notes.chance.chance()
    x = xla.mul(notes.given(n, n), full(notes.given(n, n), 0.3))
    for _ in range(notes.chance.integer(3, 8)):
        other = times(times(x, x, 1, 1), x) if orthogonal else times(x, x)
        x = xla.sub(xla.mul(full(x, 1.5), x), xla.mul(full(x, 0.5), other))
        x = x if orthogonal else xla.tanh(x)
    return x, total(x)


def tridiagonal(notes: Notes) -> Sequence[Op]:
    """Thomas's algorithm: scalars carried up, then down, with indices that count."""
    n = notes.size + 1
    lower, upper = notes.given(n, low=-0.4, high=0.4), notes.given(n, low=-0.4, high=0.4)
    right = notes.given(n)

    def at(x: Op, i: Op) -> Op:
        return xla.reshape(xla.dynamic_slice(x, [i], [1]), [])

    def put(x: Op, value: Op, i: Op) -> Op:
        return xla.dynamic_update_slice(x, xla.reshape(value, [1]), [i])

    def up(i: Op, c: Op, d: Op, last_c: Op, last_d: Op, a: Op, u: Op, r: Op) -> Sequence[Op]:
        under = xla.sub(full(last_c, 2), xla.mul(at(a, i), last_c))
        new_c = xla.div(at(u, i), under)
        new_d = xla.div(xla.sub(at(r, i), xla.mul(at(a, i), last_d)), under)
        return put(c, new_c, i), put(d, new_d, i), new_c, new_d, a, u, r

    def down(i: Op, x: Op, last: Op, c: Op, d: Op) -> Sequence[Op]:
        place = xla.sub(np.int32(n - 1), i)
        last = xla.sub(at(d, place), xla.mul(at(c, place), last))
        return put(x, last, place), last, c, d

    zero = xla.constant(notes.builder, np.asarray(0, notes.kind.dtype))
    empty = full(right, 0)
    c, d, *_ = notes.repeat(n, up, empty, empty, zero, zero, lower, upper, right)
    return notes.repeat(n, down, empty, zero, c, d)[:2]


# -- statistics, learning -------------------------------------------------------------------------------


def moments(notes: Notes) -> Sequence[Op]:
    """Adam on a quadratic: a state of several arrays of one shape, some of them begun by one value."""
    dims = notes.chance.pick([(), (notes.size,), (2, notes.size)])
    x, goal = notes.given(*dims), notes.given(*dims)

    def body(i: Op, x: Op, m: Op, v: Op, best: Op, goal: Op) -> Sequence[Op]:
        g = xla.sub(x, goal)
        m = xla.add(xla.mul(full(m, 0.9), m), xla.mul(full(m, 0.1), g))
        v = xla.add(xla.mul(full(v, 0.99), v), xla.mul(full(v, 0.01), xla.mul(g, g)))
        power = xla.convert_element_type(xla.add(i, np.int32(1)), x.shape.element_type)
        rate = xla.div(full(power, 0.1), xla.sqrt(power))
        step = xla.div(m, xla.add(xla.sqrt(v), full(v, 1e-2)))
        x = xla.sub(x, xla.mul(spread(rate, x), step))
        return x, m, v, xla.min(best, xla.abs(xla.sub(x, goal))), goal

    zeros = full(x, 0)
    return notes.repeat(notes.chance.integer(1, 9), body, x, zeros, zeros, full(x, 9), goal)[:4]


def smoothing(notes: Notes) -> Sequence[Op]:
    """A moving average over a ring buffer that is written at the counter modulo its length."""
    n, length = notes.size + 2, notes.chance.integer(2, 4)
    series = notes.given(n)

    def body(i: Op, ring: Op, out: Op, sum: Op, series: Op) -> Sequence[Op]:
        place = xla.rem(i, np.int32(length))
        old = xla.dynamic_slice(ring, [place], [1])
        new = xla.dynamic_slice(series, [i], [1])
        sum = xla.add(sum, xla.reshape(xla.sub(new, old), []))
        out = xla.dynamic_update_slice(out, xla.reshape(sum, [1]), [i])
        return xla.dynamic_update_slice(ring, new, [place]), out, sum, series

    zero = xla.constant(notes.builder, np.asarray(0, notes.kind.dtype))
    return notes.repeat(n, body, xla.broadcast(zero, (length,)), full(series, 0), zero, series)[:3]


def viterbi(notes: Notes) -> Sequence[Op]:
    """The best path through states: maxima, their places kept in a stack, and the way back along them."""
    n, steps = notes.chance.integer(2, 5), notes.chance.integer(1, 7)
    scores = notes.parameter(notes.rng.integers(-9, 9, (n,)).astype(notes.kind.dtype))
    moves = notes.parameter((notes.rng.permutation(n * n).reshape(n, n) * 32).astype(notes.kind.dtype))
    places = xla.iota(notes.builder, xla.make_shape(xla.S32, (n, n)), 0)

    def most(a: Op, i: Op, b: Op, j: Op) -> Op:
        first = xla.or_(xla.gt(a, b), xla.and_(xla.eq(a, b), xla.lt(i, j)))
        return xla.tuple_(xla.select(first, a, b), xla.select(first, i, j))

    def ahead(i: Op, scores: Op, stack: Op, moves: Op, places: Op) -> Sequence[Op]:
        sums = xla.add(xla.broadcast_in_dim(scores, (n, n), [0]), moves)
        least = xla.constant(scores.builder, np.asarray(-np.inf, scores.shape.element_type.dtype))
        end = xla.constant(scores.builder, np.int32(n))
        best, came = elements(xla.reduce([sums, places], [least, end], most, [0]))
        zero = xla.constant(scores.builder, np.int32(0))
        return best, xla.dynamic_update_slice(stack, xla.reshape(came, (1, n)), [i, zero]), moves, places

    def back(i: Op, path: Op, now: Op, stack: Op) -> Sequence[Op]:
        row = xla.sub(np.int32(steps - 1), i)
        now = xla.reshape(xla.dynamic_slice(stack, [row, now], [1, 1]), [])
        return xla.dynamic_update_slice(path, xla.reshape(now, [1]), [row]), now, stack

    empty = xla.broadcast(xla.constant(notes.builder, np.int32(0)), (steps, n))
    best, stack, *_ = notes.repeat(steps, ahead, scores, empty, moves, places)
    zero = xla.constant(notes.builder, np.int32(0))
    path, first, _ = notes.repeat(steps, back, xla.broadcast(zero, (steps,)), zero, stack)
    return best, path, first


def backpropagation(notes: Notes) -> Sequence[Op]:
    """Two layers backwards, each a product whose rows are normalized and scaled by what the way forwards left."""
    n = notes.chance.pick([8, 12, 17, 24])
    x, w = notes.given(n, n), notes.given(n, n)
    slope = xla.mul(x, notes.given(n, n))
    gradient = times(xla.mul(x, slope), w, 1, 0)
    zero = xla.constant(x.builder, np.asarray(0, x.shape.element_type.dtype))
    mean = xla.broadcast_in_dim(xla.reduce(gradient, zero, xla.add, [1]), (n, n), [0])
    centered = xla.sub(gradient, mean) if notes.chance.chance() else mean
    before = xla.mul(times(centered, w, 1, 1), slope)
    return [xla.reduce(of, zero, xla.add, [0]) for of in (centered, before, xla.mul(before, x))]


def stacks(notes: Notes) -> Sequence[Op]:
    """Stacks whose pieces are written at places that a counter gives: all of a stack, or all but for one thing."""
    return [result for _ in range(2) for result in _stacked(notes)]


def _stacked(notes: Notes) -> Sequence[Op]:
    chance, n = notes.chance, notes.size
    but = chance.pick(["", "rows left", "rows left", "behind the first", "overlapping", "read before", "read behind"])
    count, piece = chance.pick([2, 13, 20, 33]), chance.pick([1, 1, 2, 3])
    rows = count * piece + (chance.integer(1, 2) if but in {"rows left", "behind the first"} else 0)
    factor = chance.pick([1, -1]) * (1 if but == "overlapping" else piece)
    first = (0 if factor > 0 else (count - 1) * abs(factor)) + (but == "behind the first")
    read = chance.pick([0, rows - 1])
    x = notes.given(n)

    def body(i: Op, x: Op, place: Op, kept: Op, stack: Op) -> Sequence[Op]:
        zero, old = xla.constant(x.builder, np.int32(0)), stack
        stack = xla.dynamic_update_slice(stack, xla.broadcast(xla.sin(x), (piece,)), [place, zero])
        kept = xla.dynamic_update_slice(kept, xla.broadcast(x, (1,)), [i, zero])
        new = xla.sin(xla.add(x, full(x, 0.5)))
        if but.startswith("read"):
            row = xla.slice(old if but == "read before" else stack, [read, 0], [read + 1, n], [1, 1])
            new = xla.add(new, xla.reshape(row, (n,)))
        return new, xla.add(place, np.int32(factor)), kept, stack

    kept, stack = (xla.broadcast(full(x, number), (size,)) for number, size in ((0, count), (7, rows)))
    return notes.repeat(count, body, x, xla.constant(x.builder, np.int32(first)), kept, stack)


def descent(notes: Notes) -> Sequence[Op]:
    """Gradients of a small network, with a line search as an inner loop, and the best parameters kept."""
    n = notes.chance.integer(1, 6)
    w, x = notes.given(n, n, low=-0.5, high=0.5), notes.given(4, n)

    def body(i: Op, w: Op, best: Op, x: Op) -> Sequence[Op]:
        hidden = xla.tanh(times(x, w))
        gradient = times(x, xla.mul(hidden, xla.sub(full(hidden, 1), xla.mul(hidden, hidden))), 0, 0)

        def shrunk(_: Op, rate: Op) -> Sequence[Op]:
            return (xla.mul(rate, full(rate, 0.5)),)

        start = xla.constant(w.builder, np.asarray(1, w.shape.element_type.dtype))
        (rate,) = repeat(xla.add(i, np.int32(1)), shrunk, start)
        w = xla.sub(w, xla.mul(spread(rate, w), gradient))
        return w, *where(xla.eq(xla.rem(i, np.int32(2)), np.int32(0)), (w,), (best,)), x

    return notes.repeat(notes.chance.integer(1, 5), body, w, w, x)[:2]


ALGORITHMS: dict[str, Maker] = {
    f.__name__: f
    for f in (
        bisection, small_products, crossing, newton, runge_kutta, leapfrog, adaptive, conjugate_gradients,
        power_iteration, tridiagonal, moments, smoothing, viterbi, descent,
        stacks, backpropagation,
    )
}  # fmt: skip


def known_program(seed: int, number: int) -> Sketched:
    """The program of a seed and a number: the algorithms in turn, beginning with another one for each seed."""
    # Stacks differ most among themselves.
    turns = [*ALGORITHMS, stacks.__name__]
    name = turns[(seed + number) % len(turns)]
    notes = Notes(seed, number, name)
    results = ALGORITHMS[name](notes)
    root = xla.tuple_(notes.builder, *results)
    return Sketched(notes.builder.build(root).to_module(), tuple(notes.arguments), is_exact=False)
