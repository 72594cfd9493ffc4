"""What a program does to arrays: operations on a list of values, chosen by a random source, that keep numbers exact.

A function of this module is given the values that there are so far and gives one more. It may be traced more than once,
so that a choice must only depend on the random source.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

Value = Any
Values = Sequence[Any]

KINDS = ("float32", "float32", "float32", "int32", "int32", "bool", "int8", "uint8", "int16", "uint32", "bfloat16",
         "float16", "complex64")  # fmt: skip
_SHAPES = ((), (), (), (1,), (3,), (4,), (8,), (17,), (2, 3), (3, 4), (4, 4), (1, 5), (8, 8), (2, 3, 4), (4, 1, 2),
           (33,), (2, 2, 2, 2), (0,), (2, 0), (64,))  # fmt: skip
_LARGE_SHAPES = ((), (), (7,), (1000,), (4099,), (64, 65), (3, 1000), (130, 128), (1000, 3), (16, 17, 18),
                 (2, 4, 8, 64))  # fmt: skip
# Floats are whole numbers of at most this size: a product of two, added up over any array here, is exact in 16 bits'
# accumulators as well.
_LARGEST = 4


class Source(random.Random):
    """What chooses: a random source that also says how large the arrays of its program are.

    A seed that begins with "large" means arrays that are computed in tasks, strips and blocks; others are small, so
    that a program is compiled in a moment.
    """

    def __init__(self, seed: str) -> None:
        super().__init__(seed)
        self.is_large = seed.startswith("large")
        self.shapes = _LARGE_SHAPES if self.is_large else _SHAPES
        # The shapes of rows, the largest array that goes on, and sizes of products.
        self.rows = self.shapes[:6] if self.is_large else self.shapes[:9]
        self.most = 40_000 if self.is_large else 512
        self.sides = (1, 7, 32, 100, 257) if self.is_large else (1, 2, 3, 4, 8, 13)

    def seed_of_part(self) -> str:
        """The seed of a program within the program."""
        return ("large" if self.is_large else "") + str(self.getrandbits(48))


def is_float(x: Value) -> bool:
    """Whether an array is of floating point or complex numbers."""
    return bool(jnp.issubdtype(x.dtype, jnp.inexact))


def tame(r: Source, x: Value) -> Value:
    """Small whole numbers again."""
    if not is_float(x):
        return x
    if jnp.issubdtype(x.dtype, jnp.complexfloating):
        return lax.complex(tame(r, x.real), tame(r, x.imag))
    way = r.randrange(4)
    if way == 0:
        return jnp.clip(x, -_LARGEST, _LARGEST)
    if way == 1:
        return lax.rem(x, jnp.asarray(_LARGEST + 1, x.dtype))
    if way == 2:
        return jnp.where(jnp.abs(x) <= _LARGEST, x, jnp.asarray(r.randrange(-2, 3), x.dtype))
    return jnp.minimum(jnp.maximum(x, -_LARGEST), r.randrange(_LARGEST + 1))


def cast(r: Source, x: Value, kind: Any) -> Value:
    """The numbers of ``x`` in another type, small enough for it."""
    kind = jnp.dtype(kind)
    if x.dtype == kind:
        return x
    if jnp.issubdtype(kind, jnp.inexact):
        if not is_float(x):
            x = lax.rem(x, jnp.asarray(_LARGEST + 1, x.dtype)) if x.dtype != bool else x
        elif jnp.issubdtype(x.dtype, jnp.complexfloating) and not jnp.issubdtype(kind, jnp.complexfloating):
            x = x.real
        return x.astype(kind)
    if jnp.issubdtype(x.dtype, jnp.complexfloating):
        x = x.imag
    if kind.kind == "b":
        return x != 0
    if is_float(x) and jnp.issubdtype(kind, jnp.unsignedinteger):
        x = jnp.abs(x)
    return x.astype(kind)


def fit(r: Source, x: Value, shape: Sequence[int]) -> Value:
    """The numbers of ``x`` in another shape: cut, repeated or spread."""
    shape = tuple(shape)
    if x.shape == shape:
        return x
    if x.size == 0:
        return jnp.zeros(shape, x.dtype)
    if x.ndim <= len(shape) and all(a in (1, b) for a, b in zip(x.shape[::-1], shape[::-1], strict=False)):
        return jnp.broadcast_to(x, shape)
    if r.random() < 0.3 and x.ndim == len(shape):
        return jnp.pad(x, [(0, max(0, b - a)) for a, b in zip(x.shape, shape, strict=True)], mode="edge")[
            tuple(slice(0, b) for b in shape)
        ]
    return jnp.resize(x, shape)


def alike(r: Source, x: Value, like: Value) -> Value:
    """The numbers of ``x`` in the type and shape of another value."""
    return fit(r, cast(r, x, like.dtype), like.shape)


def number(r: Source, x: Value, below: int) -> Value:
    """A scalar integer from an array, from 0 on and less than a bound."""
    if x.size == 0:
        return jnp.int32(r.randrange(below))
    one = cast(r, x.ravel()[r.randrange(x.size)], "int32")
    return lax.rem(jnp.abs(lax.rem(one, jnp.int32(below))), jnp.int32(below))


def _two(r: Source, values: Values) -> tuple[Value, Value]:
    x = r.choice(values)
    return x, alike(r, r.choice(values), x)


def _axis(r: Source, x: Value) -> int:
    return r.randrange(x.ndim)


def _matrix(r: Source, x: Value) -> Value:
    return x if x.ndim else x[None]


def _remainder(x: Value, y: Value) -> Value:
    return jnp.where(y == 0, x, lax.rem(x, jnp.where(y == 0, 1, y).astype(x.dtype)))


def unary(r: Source, values: Values) -> Value:
    """An operation on each element."""
    x = r.choice(values)
    if x.dtype == bool:
        return ~x
    if jnp.issubdtype(x.dtype, jnp.complexfloating):
        return r.choice([jnp.negative, jnp.conj, lambda v: v.real, lambda v: v * 1j])(x)
    functions: list[Callable[[Value], Value]] = [jnp.negative, jnp.abs, jnp.sign, jnp.square, lambda v: v + 1]
    if is_float(x):
        functions += [jnp.floor, jnp.round, lambda v: -v + 0, lambda v: v * 0.5 * 2, jax.nn.relu]
    else:
        functions += [jnp.invert, lambda v: v >> 1, lambda v: v << 1, lax.population_count, lax.clz]
    return tame(r, r.choice(functions)(x))


def binary(r: Source, values: Values) -> Value:
    """An operation on each two elements."""
    x, y = _two(r, values)
    if x.dtype == bool:
        return r.choice([jnp.logical_and, jnp.logical_or, jnp.logical_xor, lambda a, b: a > b])(x, y)
    functions: list[Callable[[Value, Value], Value]] = [jnp.add, jnp.subtract, jnp.multiply]
    if not jnp.issubdtype(x.dtype, jnp.complexfloating):
        functions += [jnp.maximum, jnp.minimum, _remainder]
        if not is_float(x):
            functions += [jnp.bitwise_and, jnp.bitwise_xor, jnp.floor_divide, lax.div, lax.shift_right_logical]
    return tame(r, r.choice(functions)(x, y))


def compare(r: Source, values: Values) -> Value:
    """A comparison, or its use as a choice."""
    x, y = _two(r, values)
    if jnp.issubdtype(x.dtype, jnp.complexfloating):
        return x == y
    test = r.choice([jnp.less, jnp.greater_equal, jnp.equal, jnp.not_equal])(x, y)
    return test if r.random() < 0.3 else jnp.where(test, *r.choice([(x, y), (y, x)]))


def select_scalar(r: Source, values: Values) -> Value:
    """A choice between whole arrays by one element of another one."""
    x, y = _two(r, values)
    return jnp.where(number(r, r.choice(values), 2) == 0, x, y)


def reduce(r: Source, values: Values) -> Value:
    """A fold of one or all dimensions."""
    x = r.choice(values)
    if x.dtype.itemsize == 2 and is_float(x):
        # Their sums are not exact.
        x = x.astype("float32")
    axis = None if not x.ndim or r.random() < 0.3 else _axis(r, x)
    keepdims = r.random() < 0.5
    if x.dtype == bool:
        return r.choice([jnp.any, jnp.all])(x, axis=axis, keepdims=keepdims)
    functions: list[Callable[..., Value]] = [jnp.sum, jnp.sum]
    if not jnp.issubdtype(x.dtype, jnp.complexfloating) and x.size:
        functions += [jnp.max, jnp.min, jnp.argmax, jnp.argmin]
    return tame(r, r.choice(functions)(x, axis=axis, keepdims=keepdims))


def accumulate(r: Source, values: Values) -> Value:
    """A running fold, or a sort."""
    x = _matrix(r, r.choice(values))
    if x.dtype == bool or jnp.issubdtype(x.dtype, jnp.complexfloating):
        x = cast(r, x, "int32")
    if x.dtype.itemsize == 2 and is_float(x):
        x = x.astype("float32")
    axis, reverse = _axis(r, x), r.random() < 0.3
    way = r.randrange(6)
    if way == 0:
        return tame(r, lax.cumsum(x, axis, reverse))
    if way == 1:
        return r.choice([lax.cummax, lax.cummin])(x, axis, reverse)
    if way == 2:
        return jnp.sort(x, axis=axis, descending=reverse)
    if way == 3:
        return jnp.argsort(x, axis=axis, stable=True)
    if way == 4 and x.shape[-1]:
        return lax.top_k(x, r.randint(1, x.shape[-1]))[r.randrange(2)]
    beside = cast(r, fit(r, r.choice(values), x.shape), "int32")
    return r.choice(lax.sort((x, beside), dimension=axis, num_keys=1, is_stable=True))


def move(r: Source, values: Values) -> Value:
    """The same elements in other places."""
    x = _matrix(r, r.choice(values))
    axis = _axis(r, x)
    way = r.randrange(9)
    if way == 0:
        return jnp.transpose(x, r.sample(range(x.ndim), x.ndim))
    if way == 1:
        return x.ravel()
    if way == 2:
        return jnp.flip(x, axis)
    if way == 3:
        return jnp.roll(x, r.randrange(-3, 4), axis)
    if way == 4 and x.shape[axis] > 1:
        begin = r.randrange(x.shape[axis])
        return lax.slice_in_dim(x, begin, r.randint(begin, x.shape[axis]), r.randint(1, 2), axis)
    if way == 5 and x.size <= r.most // 4:
        return jnp.concatenate([x, *[alike(r, r.choice(values), x) for _ in range(r.randint(1, 2))]], axis)
    if way == 6 and x.size <= r.most // 4:
        value = jnp.zeros((), x.dtype) if x.dtype == bool else jnp.asarray(r.randrange(3), x.dtype)
        ends = [(r.randrange(-1, 2) if n > 2 else 1, r.randrange(3), r.randrange(2)) for n in x.shape]
        return lax.pad(x, value, ends)
    if way == 7 and x.size <= r.most // 8:
        return jnp.repeat(x, 2, axis) if r.random() < 0.5 else jnp.tile(x, 2)
    return jnp.expand_dims(x, axis)


def index(r: Source, values: Values) -> Value:
    """Elements taken from computed places."""
    x, places = _matrix(r, r.choice(values)), r.choice(values)
    axis = _axis(r, x)
    if not x.size:
        return x
    way = r.randrange(4)
    size = x.shape[axis]
    if way == 0:
        numbers = lax.rem(cast(r, places, "int32"), jnp.int32(size + 1))
        return jnp.take(x, numbers.ravel()[:9], axis, mode=r.choice(["clip", "wrap"]))
    if way == 1:
        sizes = [r.randint(1, n) for n in x.shape]
        return lax.dynamic_slice(x, [number(r, places, n + 1) for n in x.shape], sizes)
    if way == 2:
        return lax.dynamic_index_in_dim(x, number(r, places, size + 2), axis, keepdims=r.random() < 0.5)
    numbers = lax.rem(jnp.abs(cast(r, fit(r, places, x.shape), "int32") % size), jnp.int32(size))
    return jnp.take_along_axis(x, numbers, axis)


def update(r: Source, values: Values) -> Value:
    """Elements put at computed places."""
    x, places = _matrix(r, r.choice(values)), r.choice(values)
    if not x.size:
        return x
    axis = _axis(r, x)
    size = x.shape[axis]
    way = r.randrange(5)
    if way == 0:
        sizes = [r.randint(1, n) for n in x.shape]
        piece = fit(r, alike(r, r.choice(values), x), sizes)
        return lax.dynamic_update_slice(x, piece, [number(r, places, n + 1) for n in x.shape])
    if way == 1:
        return _set_row(r, values, x, number(r, places, size))
    if way == 2 and size > 1:
        # Each element from its neighbor: what is read is what is overwritten.
        return x.at[1:].set(x[:-1]) if r.random() < 0.5 else x.at[:-1].set(x[1:])
    numbers = lax.rem(jnp.abs(cast(r, places, "int32").ravel()[:7] % x.shape[0]), jnp.int32(x.shape[0]))
    updates = fit(r, alike(r, r.choice(values), x), (numbers.shape[0], *x.shape[1:]))
    if x.dtype == bool:
        return x.at[numbers].max(updates)
    ways = ["add"] if jnp.issubdtype(x.dtype, jnp.complexfloating) else ["add", "max", "min"]
    return tame(r, getattr(x.at[numbers], r.choice(ways))(tame(r, updates)))


def _set_row(r: Source, values: Values, x: Value, place: Value) -> Value:
    """A row written at a computed place, in half of the cases if a computed condition holds."""
    written = x.at[place].set(alike(r, r.choice(values), x[0]))
    if r.random() < 0.5:
        return written
    other = x if r.random() < 0.5 else x.at[place].set(alike(r, r.choice(values), x[0]))
    both = (written, other) if r.random() < 0.5 else (other, written)
    return jnp.where(number(r, r.choice(values), 2) == 0, *both)


def product(r: Source, values: Values) -> Value:
    """A product of matrices, or of one with a vector, in a type that holds its sums."""
    x = cast(r, r.choice(values), r.choice(["float32", "float32", "int32", "bfloat16", "complex64"]))
    y = cast(r, r.choice(values), x.dtype)
    m, k, n = (r.choice(r.sides) for _ in range(3))
    if r.random() < 0.2:
        return tame(r, jnp.einsum("bij,bkj->bik", fit(r, x, (2, m, k)), fit(r, y, (2, n, k))))
    if r.random() < 0.2:
        return tame(r, jnp.dot(fit(r, x, (m, k)), fit(r, y, (k,))))
    return tame(r, fit(r, x, (m, k)) @ fit(r, y, (k, n)))


def window(r: Source, values: Values) -> Value:
    """A fold of windows, or a convolution of one dimension."""
    x = cast(r, r.choice(values), "float32")
    rows = fit(r, x, (2, r.choice([4, 9])))
    if r.random() < 0.5:
        start, fold = r.choice([(-jnp.inf, lax.max), (0.0, lax.add)])
        padding = r.choice(["SAME", "VALID"])
        found = lax.reduce_window(rows, start, fold, (1, r.randint(1, 3)), (1, r.randint(1, 2)), padding)
    else:
        kernel = fit(r, cast(r, r.choice(values), "float32"), (r.randint(1, 3),))
        found = jnp.convolve(rows[0], kernel, mode=r.choice(["full", "same"]))
    return tame(r, found)


def make(r: Source, values: Values) -> Value:
    """Numbers from nowhere: a range, a constant, a type's conversion of another value."""
    way = r.randrange(4)
    if way == 0:
        return lax.iota(jnp.int32, r.choice([1, 4, 9]))
    if way == 1:
        return jnp.full(r.choice(r.shapes), r.randrange(3), r.choice(KINDS[:5]))
    if way == 2:
        return cast(r, r.choice(values), r.choice(KINDS))
    return fit(r, r.choice(values), r.choice(r.shapes))


def constant_bits(r: Source, values: Values) -> Value:
    """The bits of one of two constants: a subnormal number, and another one, each in a few places.

    Only moved, since jaxlib computes with subnormal numbers as if they were 0; and not of bfloat16, which jaxlib takes
    for 0 as well. Or whether the sum of subnormal numbers that the compiler knows, different ones or
    the same, is the sum of those that the program finds at an index, with whatever value either gives them.
    """
    kind, integer = r.choice([("float32", "int32"), ("float32", "uint32"), ("float16", "uint16")])
    info, size = jnp.finfo(kind), r.randint(2, 5)
    odd = r.choice([info.smallest_subnormal, info.tiny / 2, -info.tiny / 4])
    is_first = number(r, r.choice(values), 2) == 0
    if r.random() < 0.5:
        size = r.choice([size, size, 40])
        # Not of negative numbers, whose sum is -0 on jaxlib where it is known.
        known = r.choice([np.arange(1, 1 + size), np.ones(size)]).astype(jnp.dtype(kind)) * abs(np.asarray(odd, kind))
        several = np.concatenate([known, 2 * known, known])
        chosen = lax.dynamic_slice_in_dim(several, jnp.where(is_first, 0, 2 * size), size)
        return lax.bitcast_convert_type(jnp.sum(known), integer) == lax.bitcast_convert_type(jnp.sum(chosen), integer)
    other = r.choice([info.max, info.eps, 0.0, -0.0, np.inf, info.tiny])
    several = [np.full(size, x, jnp.dtype(kind)) for x in r.sample([odd, other], 2)]
    if r.random() < 0.5:
        # One number each, for every other element.
        is_first = (jnp.arange(size) % 2 == 0) ^ is_first
        several = [x[0] for x in several]
    # Behind the barrier, the compiler does not take the bits of the constants before it makes code.
    moved = lax.optimization_barrier(jnp.where(is_first, *several))
    return lax.bitcast_convert_type(moved, integer)


def bits(r: Source, values: Values) -> Value:
    """Random integers of a key that was computed."""
    key = jax.random.key(number(r, r.choice(values), 100))
    key = jax.random.fold_in(key, number(r, r.choice(values), 100)) if r.random() < 0.5 else key
    return jax.random.randint(key, r.choice(r.shapes), -_LARGEST, _LARGEST)


# The often chosen ones stand more than once.
OPERATIONS: tuple[Callable[[Source, Values], Value], ...] = (
    unary, unary, binary, binary, binary, compare, compare, select_scalar, select_scalar, reduce, reduce, accumulate,
    move, move, index, index, update, update, update, product, window, make, make, bits, constant_bits,
)  # fmt: skip
