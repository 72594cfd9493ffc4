"""Steps: what long programs are made of, functions from an array to one of its shape, for each family of operations.

A step keeps numbers near those that it was given, so that a chain of any length has a result that says something. What
it does depends on its number, so that no two steps in a row undo each other, and none is left out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import xlakit as xla
from xlakit.ops.handle import Builder, XlaOp


@dataclass(frozen=True, slots=True)
class Steps:
    """What a step may use: ``given`` is a parameter of the shape of the array, ``size`` the size of its dimensions."""

    builder: Builder
    given: XlaOp
    size: int

    @property
    def rank(self) -> int:
        """The rank of the array."""
        return self.given.shape.rank

    @property
    def sizes(self) -> list[int]:
        """The sizes of the array."""
        return list(self.given.shape.dimensions)

    def filled(self, value: XlaOp) -> XlaOp:
        """A scalar in all elements."""
        return xla.broadcast(value, self.sizes)

    def unit(self) -> XlaOp:
        """The matrix with ones on its diagonal."""
        rows, columns = (xla.iota(self.builder, xla.make_shape(xla.S32, self.sizes), d) for d in (0, 1))
        return xla.convert_element_type(xla.eq(rows, columns), xla.F32)

    def near(self, x: XlaOp) -> XlaOp:
        """Numbers between -1 and 1 again."""
        return x * self.given * 0.5 + self.given

    def place(self, x: XlaOp, number: int) -> XlaOp:
        """An index that is known only as the program runs."""
        first = xla.reshape(xla.slice(x, [0] * self.rank, [1] * self.rank), [])
        return xla.convert_element_type(first * 2.0 + float(number % self.size), xla.S32)


# A step with its number.
Step = Callable[[Steps, XlaOp, int], XlaOp]


@dataclass(frozen=True, slots=True)
class Family:
    """Steps of one kind. rank: of its arrays. least: the least size of a dimension. replicas: how many devices.

    outer: the first sizes of its arrays, where they are always the same.
    """

    name: str
    step: Step
    rank: int = 2
    least: int = 1
    replicas: int = 1
    outer: tuple[int, ...] = ()


FAMILIES: dict[str, Family] = {}


def family(*, rank: int = 2, least: int = 1, replicas: int = 1, outer: tuple[int, ...] = ()) -> Callable[[Step], Step]:
    """Enter a step under its function's name."""

    def enter(step: Step) -> Step:
        name = step.__name__.strip("_").replace("_", "-")
        FAMILIES[name] = Family(name, step, rank, least, replicas, outer)
        return step

    return enter


# -- elements --------------------------------------------------------------------------------------


@family(rank=1)
def _elements(own: Steps, x: XlaOp, number: int) -> XlaOp:
    return xla.tanh(x) * own.given - 0.1 * number


@family(rank=3, outer=(3, 100))
def _powers_of_rows(own: Steps, x: XlaOp, number: int) -> XlaOp:
    """Long code, which differs between the elements of a short row: it could be written once for each of them."""
    row = xla.slice(own.given, [0, 0, 0], [1, 1, own.size])
    exponent = xla.convert_element_type(xla.broadcast(xla.reshape(row, [own.size]), own.sizes[:2]), xla.F64)
    made = xla.pow(xla.convert_element_type(xla.abs(x) + 1.0, xla.F64), exponent)
    return own.near(xla.convert_element_type(made, xla.F32) * 0.1 + 0.01 * number)


@family(rank=0)
def _scalars(own: Steps, x: XlaOp, number: int) -> XlaOp:
    return xla.sin(x) * own.given + 0.01 * number


@family(rank=1)
def _uniform_scalars(own: Steps, x: XlaOp, number: int) -> XlaOp:
    """A hash of the first element: a loop finds the whole chain unchanged, and its divisions leave vectors to LLVM."""
    word = xla.bitcast_convert_type(xla.reshape(xla.slice(x, [0], [1]), []), xla.U32) ^ (number + 1)
    for _ in range(4):
        word = word ^ (word << 1)
    places = xla.iota(own.builder, xla.make_shape(xla.U32, own.sizes), 0)
    return xla.convert_element_type(own.filled(word >> 9) / (places + 1), xla.F32) * 2.0**-23


@family(rank=3)
def _selects(own: Steps, x: XlaOp, number: int) -> XlaOp:
    return xla.select(x > own.given, x * 0.5, xla.select(x < 0.1 * number, own.given, -x))


@family()
def _clamps(own: Steps, x: XlaOp, number: int) -> XlaOp:
    return xla.clamp(own.filled(xla.constant(own.builder, -0.9, xla.F32)), own.near(x) + 0.01 * number, own.given + 1.0)


@family(rank=1)
def _converts(own: Steps, x: XlaOp, number: int) -> XlaOp:
    kind = (xla.BF16, xla.F16, xla.F64, xla.S32)[number % 4]
    return own.near(xla.convert_element_type(xla.convert_element_type(x * 3.0, kind), xla.F32)) * 0.3


@family(rank=1)
def _bits(own: Steps, x: XlaOp, number: int) -> XlaOp:
    word = xla.bitcast_convert_type(x, xla.U32)
    bytes = xla.bitcast_convert_type(word ^ (number + 1), xla.U8)
    return own.near(xla.bitcast_convert_type(bytes, xla.F32))


@family(rank=1)
def _complex_numbers(own: Steps, x: XlaOp, number: int) -> XlaOp:
    z = xla.complex(x, own.given)
    return xla.real(z * z) * 0.5 + xla.imag(z * (0.1 * number)) * 0.1


@family()
def _iotas(own: Steps, x: XlaOp, number: int) -> XlaOp:
    rows = xla.iota(own.builder, xla.make_shape(xla.S32, own.sizes), number % 2)
    return xla.select(rows > number % own.size, own.near(x), x)


@family(rank=1)
def _maps(own: Steps, x: XlaOp, number: int) -> XlaOp:
    return xla.map([x, own.given], lambda a, b: a * b + 0.1 * number)


# -- movement --------------------------------------------------------------------------------------


@family()
def _broadcasts(own: Steps, x: XlaOp, number: int) -> XlaOp:
    along, at = number % 2, number % own.size
    row = xla.slice_in_dim(x, at, at + 1, 1, along)
    row = xla.reshape(row, [own.size])
    return own.near(x) * 0.5 + 0.2 * xla.broadcast_in_dim(row, own.sizes, [number // 2 % 2])


@family(rank=3)
def _transposes(own: Steps, x: XlaOp, number: int) -> XlaOp:
    return own.near(xla.transpose(x, ([1, 2, 0], [0, 2, 1], [2, 1, 0])[number % 3]))


@family(rank=3)
def _reshapes(own: Steps, x: XlaOp, number: int) -> XlaOp:
    n = own.size
    flat = xla.reshape(xla.transpose(x, [1, 0, 2]), ([n * n, n], [n, n * n], [n * n * n])[number % 3])
    return own.near(xla.reshape(xla.tanh(flat), own.sizes))


@family(rank=1)
def _slices(own: Steps, x: XlaOp, number: int) -> XlaOp:
    at = 1 + number % (own.size - 1) if own.size > 1 else 0
    return own.near(xla.concatenate([xla.slice(x, [at], [own.size]), xla.slice(x, [0], [at])], 0))


@family()
def _pads(own: Steps, x: XlaOp, number: int) -> XlaOp:
    low = xla.pad(x, 0.0, [(1, -1, 0), (0, 0, 0)])
    high = xla.pad(x, 0.0, [(0, 0, 0), (-1, 1, 0)])
    return own.near(low + high)


@family(rank=1)
def _interior_pads(own: Steps, x: XlaOp, number: int) -> XlaOp:
    wide = xla.pad(x, 0.5, [(0, 1, 1)])
    return own.near(xla.slice(wide, [number % 2], [number % 2 + own.size]) + xla.slice(wide, [0], [2 * own.size], [2]))


@family(rank=1)
def _concatenations(own: Steps, x: XlaOp, number: int) -> XlaOp:
    both = xla.concatenate([x, own.given, x], 0)
    at = number % (2 * own.size)
    return own.near(xla.slice(both, [at], [at + own.size]))


@family()
def _stacks(own: Steps, x: XlaOp, number: int) -> XlaOp:
    rows = [xla.reshape(xla.slice_in_dim(x, k, k + 1, 1, number % 2), [1, own.size]) for k in range(own.size)]
    return own.near(xla.concatenate([row * (0.5 + 0.1 * k) for k, row in enumerate(rows)], 0))


@family()
def _reverses(own: Steps, x: XlaOp, number: int) -> XlaOp:
    return own.near(xla.rev(x, ([0], [1], [0, 1])[number % 3]) + x)


@family(rank=1)
def _rolls(own: Steps, x: XlaOp, number: int) -> XlaOp:
    around = xla.concatenate([xla.slice(x, [1], [own.size]), xla.slice(x, [0], [1])], 0)
    return own.near(x - around)


# -- indices ---------------------------------------------------------------------------------------


@family(rank=1)
def _gathers(own: Steps, x: XlaOp, number: int) -> XlaOp:
    rows = xla.convert_element_type(own.given * 4.0 + float(number % own.size), xla.S32)
    rows = xla.reshape(rows, [own.size, 1])
    return own.near(xla.gather(x, rows, slice_sizes=[1], collapsed_slice_dims=[0], start_index_map=[0]))


@family(rank=1)
def _computed_gathers(own: Steps, x: XlaOp, number: int) -> XlaOp:
    rows = xla.reshape(xla.convert_element_type(x * 4.0, xla.S32), [own.size, 1])
    found = xla.gather(x, rows, slice_sizes=[1], collapsed_slice_dims=[0], start_index_map=[0])
    return own.near(found + 0.1 * number)


@family(rank=1, least=2)
def _comparators(own: Steps, x: XlaOp, number: int) -> XlaOp:
    """A stage of a sorting network: each element is read in its place and in another one."""
    places = xla.iota(own.builder, xla.make_shape(xla.S32, own.sizes), 0)
    others = places ^ (1 << number % 4)
    inside = xla.reshape(xla.min(others, xla.constant(own.builder, own.size - 1, xla.S32)), [own.size, 1])
    other = xla.gather(x, inside, slice_sizes=[1], collapsed_slice_dims=[0], start_index_map=[0])
    return xla.select(places < others, xla.min(x, other), xla.max(x, other)) - 0.001 * number


@family()
def _scatters(own: Steps, x: XlaOp, number: int) -> XlaOp:
    rows = xla.reshape(own.place(x, number), [1, 1])
    made = xla.scatter(
        x,
        rows,
        xla.slice_in_dim(x, 0, 1, 1, 0) * 0.5,
        xla.add,
        update_window_dims=[1],
        inserted_window_dims=[0],
        scatter_dims_to_operand_dims=[0],
        index_vector_dim=1,
    )
    return own.near(made)


@family()
def _dynamic_slices(own: Steps, x: XlaOp, number: int) -> XlaOp:
    row = xla.dynamic_slice(x, [own.place(x, number), own.place(x, number + 1)], [1, own.size])
    return own.near(x + xla.broadcast_in_dim(row, own.sizes, [0, 1]) * 0.5)


@family()
def _dynamic_updates(own: Steps, x: XlaOp, number: int) -> XlaOp:
    row = xla.slice_in_dim(x, number % own.size, number % own.size + 1, 1, 0)
    return own.near(xla.dynamic_update_slice(x, row * 0.5 + 0.1, [own.place(x, number), 0]))


@family(rank=1)
def _known_updates(own: Steps, x: XlaOp, number: int) -> XlaOp:
    row = xla.slice_in_dim(own.near(x), 0, 1, 1, 0)
    return xla.dynamic_update_slice(x, row, [number % own.size])


# -- folds -----------------------------------------------------------------------------------------


@family(rank=3)
def _reductions(own: Steps, x: XlaOp, number: int) -> XlaOp:
    along = number % 3
    total = xla.reduce(x, 0.0, xla.add, [along]) * (0.5 / own.size)
    return own.near(x - xla.broadcast_in_dim(total, own.sizes, [d for d in range(3) if d != along]))


@family()
def _norms(own: Steps, x: XlaOp, number: int) -> XlaOp:
    most = xla.broadcast_in_dim(xla.reduce(x, -9.0, xla.max, [number % 2]), own.sizes, [1 - number % 2])
    e = xla.exp(x - most)
    return e / xla.broadcast_in_dim(xla.reduce(e, 0.0, xla.add, [number % 2]), own.sizes, [1 - number % 2]) + own.given


@family(rank=1)
def _whole_reductions(own: Steps, x: XlaOp, number: int) -> XlaOp:
    return own.near(x) + own.filled(xla.reduce(x * x, 0.0, xla.add, [0])) * 0.01


@family(rank=1)
def _windows(own: Steps, x: XlaOp, number: int) -> XlaOp:
    combine = (xla.max, xla.add)[number % 2]
    return own.near(xla.reduce_window(x, (-9.0, 0.0)[number % 2], combine, [3], [1], [(1, 1)]))


@family()
def _running_sums(own: Steps, x: XlaOp, number: int) -> XlaOp:
    window, pad = [1, 1], [(0, 0), (0, 0)]
    window[number % 2], pad[number % 2] = own.size, (own.size - 1, 0)
    return own.near(xla.reduce_window(x, 0.0, xla.add, window, [1, 1], pad) * (1.0 / own.size))


@family(rank=1, least=2)
def _selections(own: Steps, x: XlaOp, number: int) -> XlaOp:
    source = xla.slice(x, [0], [own.size - 1]) * 0.5
    return own.near(xla.select_and_scatter(x, xla.ge, [2], [1], [(0, 0)], source, 0.0, xla.add))


# -- products --------------------------------------------------------------------------------------


@family()
def _squares(own: Steps, x: XlaOp, number: int) -> XlaOp:
    return xla.tanh(xla.dot(x, x) + 0.1 * number)


@family()
def _products(own: Steps, x: XlaOp, number: int) -> XlaOp:
    return xla.dot(x, own.given) if number % 2 else xla.dot(own.given, x) * 0.5


@family()
def _transforms(own: Steps, x: XlaOp, number: int) -> XlaOp:
    return xla.dot(x, xla.cos(own.given + 0.1 * number)) * 0.5


@family()
def _newton_schulz(own: Steps, x: XlaOp, number: int) -> XlaOp:
    return 1.5 * x - 0.5 * xla.dot(xla.dot(x, xla.transpose(x, [1, 0])), x)


@family()
def _polynomials(own: Steps, x: XlaOp, number: int) -> XlaOp:
    return xla.dot(x, own.given) * 0.3 + own.unit() * (1.0 / (number + 1))


@family(rank=3)
def _batched_products(own: Steps, x: XlaOp, number: int) -> XlaOp:
    numbers = xla.DotDimensionNumbers([2], [1 + number % 2], [0], [0])
    return xla.dot_general(x, (x, own.given)[number // 2 % 2], numbers) * 0.3 + own.given


@family(rank=1)
def _projections(own: Steps, x: XlaOp, number: int) -> XlaOp:
    return x - own.given * own.filled(xla.dot(x, own.given)) * 0.3


@family(rank=3)
def _convolutions(own: Steps, x: XlaOp, number: int) -> XlaOp:
    numbers = xla.ConvolutionDimensionNumbers(0, 1, (2,), 0, 1, (2,), 0, 1, (2,))
    kernel = xla.slice_in_dim(own.given, 0, 1, 1, 2) if number % 2 else own.given
    size = 1 if number % 2 else own.size
    return own.near(xla.conv_general(x, kernel, [1], [((size - 1) // 2, size // 2)], numbers) * (0.5 / own.size))


@family(rank=1, least=3)
def _crosses(own: Steps, x: XlaOp, number: int) -> XlaOp:
    def turned(v: XlaOp, by: int) -> XlaOp:
        return xla.concatenate([xla.slice(v, [by], [own.size]), xla.slice(v, [0], [by])], 0)

    return own.near(turned(x, 1) * turned(own.given, 2) - turned(x, 2) * turned(own.given, 1))


# -- algebra, orders, transforms -------------------------------------------------------------------


@family()
def _factors(own: Steps, x: XlaOp, number: int) -> XlaOp:
    positive = xla.dot(x, xla.transpose(x, [1, 0])) * 0.1
    return xla.cholesky(positive + own.unit(), lower=True)


@family()
def _solutions(own: Steps, x: XlaOp, number: int) -> XlaOp:
    a = own.given * 0.2 + own.unit() * 2.0
    return xla.triangular_solve(a, x, left_side=True, lower=bool(number % 2), unit_diagonal=False) + own.given


@family(rank=1)
def _sorts(own: Steps, x: XlaOp, number: int) -> XlaOp:
    return own.near(xla.sort(x, (xla.lt, xla.gt)[number % 2], 0) - 0.1 * number)


@family()
def _leaders(own: Steps, x: XlaOp, number: int) -> XlaOp:
    first = xla.get_tuple_element(xla.top_k(x, (own.size + 1) // 2), 0)
    return own.near(xla.dynamic_update_slice(x, first, [0, 0]))


@family(rank=1)
def _transformed(own: Steps, x: XlaOp, number: int) -> XlaOp:
    there = xla.fft(xla.complex(x, own.given), "FFT", [own.size])
    return xla.real(xla.fft(there * 0.5, "IFFT", [own.size])) * 0.5 + own.given


# -- control ---------------------------------------------------------------------------------------


@family(rank=1)
def _loops(own: Steps, x: XlaOp, number: int) -> XlaOp:
    def body(state: XlaOp) -> tuple[XlaOp, ...]:
        i, v, p = (xla.get_tuple_element(state, k) for k in range(3))
        return (i + 1, xla.sin(v) * p + 0.1 * number, p)

    start = (xla.constant(own.builder, 0, xla.S32), x, own.given)
    end = xla.while_(lambda s: xla.get_tuple_element(s, 0) < 20 + number, body, start)
    return xla.get_tuple_element(end, 1)


@family(rank=1)
def _open_loops(own: Steps, x: XlaOp, number: int) -> XlaOp:
    def body(state: XlaOp) -> tuple[XlaOp, ...]:
        i, v, p = (xla.get_tuple_element(state, k) for k in range(3))
        return (i + 1, v * p + 0.1 * number, p)

    start = (own.place(x, number), x, own.given)
    end = xla.while_(lambda s: xla.get_tuple_element(s, 0) < 5, body, start)
    return xla.get_tuple_element(end, 1)


@family(rank=1)
def _branches(own: Steps, x: XlaOp, number: int) -> XlaOp:
    other = own.near(x)
    return xla.conditional(
        own.place(x, number) > 0, x, lambda v: xla.tanh(v) + 0.1 * number, other, lambda v: v * 0.5 - 0.1
    )


@family(rank=1)
def _calls(own: Steps, x: XlaOp, number: int) -> XlaOp:
    return xla.call(own.builder, lambda v, p: xla.tanh(v) * p + 0.1 * (number % 5), [x, own.given])


@family(rank=1)
def _tuples(own: Steps, x: XlaOp, number: int) -> XlaOp:
    both = xla.tuple_(own.builder, [own.near(x), own.given])
    both = xla.optimization_barrier(both)
    return xla.get_tuple_element(both, 0) + xla.get_tuple_element(both, 1) * 0.1


@family(rank=1)
def _random_numbers(own: Steps, x: XlaOp, number: int) -> XlaOp:
    key = xla.convert_element_type(xla.broadcast(own.place(x, number), [2]), xla.U64)
    made = xla.rng_bit_generator("RNG_PHILOX", key, xla.make_shape(xla.U32, own.sizes))
    word = xla.shift_right_logical(xla.get_tuple_element(made, 1), 9)
    return own.near(x + xla.convert_element_type(word, xla.F32) * 2.0**-24)


@family(outer=(3, 100))
def _random_rows(own: Steps, x: XlaOp, number: int) -> XlaOp:
    """Random bits of counters in rolled or padded rows: long chains of integers that depend on nothing but places."""
    rows, columns = (xla.iota(own.builder, xla.make_shape(xla.U32, own.sizes), d) for d in (0, 1))
    word = rows * own.sizes[1] + columns
    key = xla.bitcast_convert_type(own.filled(xla.reshape(xla.slice(x, [0, 0], [1, 1]), [])), xla.U32)
    for turn in (13, 15, 26, 6, 17, 29, 16, 24):
        key = key + word
        word = key ^ ((word << turn) | xla.shift_right_logical(word, 32 - turn))
    made = xla.convert_element_type(xla.shift_right_logical(word, 9), xla.F32) * 2.0**-23
    if number % 2:
        return own.near(x + xla.pad(made, 0.0, [(0, 0, 0), (own.size, -own.size, 0)]))
    first, rest = (xla.slice_in_dim(made, a, b, 1, 1) for a, b in ((0, own.size), (own.size, own.sizes[1])))
    return own.near(x + xla.concatenate([rest, first], 1))


@family(rank=1, replicas=2)
def _collectives(own: Steps, x: XlaOp, number: int) -> XlaOp:
    return own.near(xla.all_reduce(x, xla.add) * 0.5 - 0.1 * number)
