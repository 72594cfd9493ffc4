"""``python -m fuzz.math_library``: functions of ``xlakit.lib`` on arrays of drawn types and sizes, here and in jaxlib.

Each program is one function, or few. Machine code, the interpreter and jaxlib's CPU backend must agree: in every bit
but NaN's where whole numbers stay whole, otherwise up to roundings.

    python -m fuzz.math_library --seed 7 --seconds 60
    python -m fuzz.math_library --seed 7 --number 12        one program, with its text
"""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

import xlakit as xla
from fuzz.modules import difference
from fuzz.support import numbered
from xlakit import lib
from xlakit.tools.jaxlib_backend import JaxlibBackend

Array = np.ndarray[Any, np.dtype[Any]]
Function = Callable[..., Any]
FLOATS: tuple[Any, ...] = (np.float32, np.float64, np.float16, ml_dtypes.bfloat16)
INTEGERS: tuple[Any, ...] = (np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64)
SPECIAL = (np.nan, -np.nan, np.inf, -np.inf, -0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Case:
    """A function of handles and its arguments; is_exact: whether no number is rounded."""

    function: Function
    arguments: Sequence[Any]
    is_exact: bool = True


class Draw:
    """What a program is drawn from."""

    def __init__(self, seed: int, number: int) -> None:
        self.rng = np.random.default_rng([seed, number])

    def type(self, *more: Any) -> Any:
        """An element type in order, or one of ``more``."""
        kinds = (*FLOATS, *INTEGERS, *more)
        return kinds[self.rng.integers(len(kinds))]

    def sizes(self, least_rank: int = 0, most: int = 7) -> list[int]:
        """Dimensions, of which some have one element and few none."""
        rank = int(self.rng.integers(least_rank, 4))
        return [
            int(self.rng.choice([0, 1, *range(2, most + 1)], p=[0.03, 0.12, *[0.85 / (most - 1)] * (most - 1)]))
            for _ in range(rank)
        ]

    def array(self, dtype: Any, sizes: Sequence[int], *, special: bool = False) -> Array:
        """Small whole numbers; with ``special`` also what floats have beside numbers."""
        kind = np.dtype(dtype)
        least = 0 if kind.kind in "ub" else -4
        values = self.rng.integers(least, 2 if kind.kind == "b" else 5, sizes).astype(np.float64)
        if special and kind.kind not in "iubc":
            values = np.where(self.rng.random(sizes) < 0.3, self.rng.choice(SPECIAL, sizes), values)
        return np.asarray(values).astype(kind)

    def integer(self, low: int, high: int) -> int:
        """From ``low`` to ``high``."""
        return int(self.rng.integers(low, high + 1))

    def flag(self) -> bool:
        """True or False."""
        return bool(self.rng.integers(2))


def _positions(draw: Draw) -> Case:
    x = draw.array(draw.type(np.bool_), draw.sizes(1), special=True)
    axis = draw.integer(-x.ndim, x.ndim - 1)
    kind = xla.S32 if draw.flag() else xla.U8
    return Case(lambda a: [lib.arg_max(a, kind, axis), lib.arg_min(a, kind, axis)], [x])


def _broadcasts(draw: Draw) -> Case:
    x = draw.array(draw.type(np.bool_, np.complex64), draw.sizes())
    wanted = [draw.integer(1, 3) for _ in range(draw.integer(0, 2))] + [n * draw.integer(1, 3) for n in x.shape]
    return Case(lambda a: lib.broadcast_to(a, wanted), [x])


def _greatest(draw: Draw) -> Case:
    x = draw.array(draw.type(), [*draw.sizes()[:2], draw.integer(1, 40)], special=True)
    k, parts = draw.integer(0, x.shape[-1]), draw.integer(1, 8)
    return Case(lambda a: [*lib.top_k(a, k), *lib.top_k_with_partitions(a, k, parts, xla.U16)], [x])


def _sorted(draw: Draw) -> Case:
    sizes = draw.sizes(1, 20)
    keys = [draw.array(draw.type(), sizes, special=True) for _ in range(draw.integer(1, 3))]
    types = [xla.PrimitiveType.from_dtype(k.dtype) for k in keys]
    chosen: list[Any] = []
    for kind in types:
        orders = [xla.lt_total_order, xla.gt_total_order] if kind.is_floating else [xla.lt, xla.gt]
        chosen.append(orders[draw.integer(0, 1)] if draw.flag() else None)
    if not any(chosen):
        return Case(lambda *a: xla.sort(list(a), lib.create_scalar_gt_computation(types), is_stable=True), keys)
    made = lib.create_scalar_comparison_computation("keys", types, chosen)
    return Case(lambda *a: xla.sort(list(a), made, is_stable=True), keys)


def _indexed(draw: Draw) -> Case:
    x = draw.array(draw.type(np.bool_, np.complex64), draw.sizes(1), special=True)
    dim = draw.integer(0, x.ndim - 1)
    sizes = list(x.shape)
    sizes[dim] = draw.integer(0, 9)
    kind = INTEGERS[draw.integer(0, len(INTEGERS) - 1)]
    low = -2 if np.dtype(kind).kind == "i" else 0
    index = draw.rng.integers(low, x.shape[dim] + 2, sizes).astype(kind)
    batch = draw.integer(0, dim)
    rows = draw.rng.integers(low, 9, [*x.shape[:batch], 4]).astype(kind)

    def function(a: Any, i: Any, r: Any) -> Any:
        found = [lib.torch_gather(a, i, dim, sparse) for sparse in (True, False)]
        return [*found, lib.torch_index_select(a, r, dim, batch)]

    return Case(function, [x, index, rows])


def _scattered(draw: Draw) -> Case:
    x = draw.array(draw.type(), draw.sizes(1))
    dim = draw.integer(0, x.ndim - 1)
    sizes = list(x.shape)
    sizes[dim] = draw.integer(0, 9)
    index = draw.rng.integers(-2, x.shape[dim] + 2, sizes).astype(np.int32)
    combine = (xla.add, xla.max, xla.min)[draw.integer(0, 2)]
    return Case(lambda a, i, s: lib.torch_scatter_dense(a, i, s, dim, combine), [x, index, draw.array(x.dtype, sizes)])


def _sliced(draw: Draw) -> Case:
    x = draw.array(draw.type(np.complex64), draw.sizes(1))
    count = draw.integer(1, x.ndim)
    minor = x.shape[x.ndim - count :]
    parts = [draw.integer(0, n) for n in minor]
    starts = [draw.integer(0, n - p) for n, p in zip(minor, parts, strict=True)]
    update = draw.array(x.dtype, [*x.shape[: x.ndim - count], *parts])
    given = [np.int32(draw.integer(-2, 9)) for _ in minor]
    ends = [s + p for s, p in zip(starts, parts, strict=True)]

    def function(a: Any, u: Any, *i: Any) -> Any:
        return [
            lib.slice_in_minor_dims(a, starts, ends),
            lib.update_slice_in_minor_dims(a, u, starts),
            lib.dynamic_slice_in_minor_dims(a, list(i), parts),
            lib.dynamic_update_slice_in_minor_dims(a, u, list(i)),
        ]

    return Case(function, [x, update, *given])


def _pooled(draw: Draw) -> Case:
    spatial = draw.integer(1, 2)
    order = [int(d) for d in draw.rng.permutation(spatial + 2)]
    form = lib.TensorFormat(order[0], order[1], order[2:])
    sizes = [draw.integer(1, 7) for _ in order]
    kernel, stride = [1] * len(order), [1] * len(order)
    for d in form.spatial_dimensions:
        kernel[d], stride[d] = draw.integer(1, sizes[d]), draw.integer(1, 3)
    padding = [(draw.integer(0, 2), draw.integer(0, 2)) for _ in range(spatial)]
    counted, name = draw.flag(), "SAME" if draw.flag() else "VALID"
    kind = (np.float32, np.float64, np.int32)[draw.integer(0, 2)]
    x = draw.array(kind, sizes)

    def function(a: Any) -> Any:
        average = lib.avg_pool(a, kernel, stride, padding, form, counted)
        gradient = lib.avg_pool_grad(average, sizes, kernel, stride, padding, form, counted)
        return [lib.max_pool(a, kernel, stride, name, form), average, gradient]

    return Case(function, [x], is_exact=False)


def _tridiagonal(draw: Draw) -> Case:
    batch, size, sides = draw.sizes()[:2], draw.integer(0, 9), draw.integer(0, 3)
    kind = (np.float32, np.float64, np.complex64, np.complex128)[draw.integer(0, 3)]
    diagonals = [draw.array(kind, [*batch, 1, size]) for _ in range(3)]
    diagonals[1] = diagonals[1] + kind(12)
    turned = [*range(len(batch)), len(batch) + 1, len(batch)]

    def function(low: Any, main: Any, high: Any, rhs: Any) -> Any:
        product = lib.tridiagonal_mat_mul(high, main, low, xla.transpose(rhs, turned))
        return [lib.tridiagonal_solver(low, main, high, rhs), product]

    return Case(function, [*diagonals, draw.array(kind, [*batch, sides, size])], is_exact=False)


def _random(draw: Draw) -> Case:
    is_philox = draw.flag()
    generator = lib.philox_bit_generator if is_philox else lib.three_fry_bit_generator
    key = draw.rng.integers(0, 2**64, dtype=np.uint64)
    state = draw.rng.integers(2**64 - 3, 2**64, 2 if is_philox else (), dtype=np.uint64)
    sizes = draw.sizes()
    kind = FLOATS[draw.integer(0, 3)]
    whole = INTEGERS[draw.integer(0, 7)]
    least = draw.integer(0, 9)
    bounds = [np.asarray(v).astype(t) for t in (kind, whole) for v in (least, least + draw.integer(1, 90))]

    def function(k: Any, s: Any, *b: Any) -> Any:
        floats, integers = (xla.make_shape(t, sizes) for t in (kind, whole))
        uniform = lib.uniform_floating_point_distribution(k, s, generator, b[0], b[1], floats)
        drawn = lib.uniform_int_distribution(k, uniform.state, generator, b[2], b[3], integers)
        return [*uniform, *drawn, *lib.normal_floating_point_distribution(k, s, generator, floats)]

    return Case(function, [key, state, *bounds], is_exact=False)


def _packed(draw: Draw) -> Case:
    words = draw.rng.integers(0, 2**32, draw.sizes(1)).astype(np.uint32)
    bounds, kind = lib.QuantizedRange(draw.integer(-9, 0), draw.integer(1, 9)), (xla.U8, xla.U16)[draw.integer(0, 1)]
    is_turned = draw.flag()
    return Case(lambda w: lib.dequantize(w, bounds, transpose_output=is_turned, type=kind), [words], is_exact=False)


def _matrices(draw: Draw) -> Case:
    x = draw.array(draw.type(np.complex64, np.bool_), [*draw.sizes()[:2], draw.integer(1, 6), draw.integer(1, 6)])
    rows, columns = x.shape[-2:]
    k = draw.integer(1 - rows, columns - 1)
    diagonal = draw.array(x.dtype, np.diagonal(x, k, -2, -1).shape)

    def function(a: Any, d: Any) -> Any:
        parts = [lib.matrix_diagonal(a, k), lib.set_matrix_diagonal(a, d, k), lib.triangle_mask(a, k)]
        parts += [lib.lower_triangle(a, k), lib.diagonal_mask(a, k), lib.transpose_in_minor_dims(a)]
        return parts if rows != columns else [*parts, lib.symmetrize(a, k > 0)]

    return Case(function, [x, diagonal])


def _sums(draw: Draw) -> Case:
    sizes = {label: draw.integer(0, 4) for label in "abcd"}
    terms = ["".join(draw.rng.choice(list("abcd"), draw.integer(0, 4))) for _ in range(2)]
    named = sorted(set(terms[0] + terms[1]))
    result = "".join(str(c) for c in draw.rng.permutation([c for c in named if draw.flag()]))
    kind = (np.float32, np.float64, np.int32, np.complex64)[draw.integer(0, 3)]
    arrays = [draw.array(kind, [sizes[c] for c in term]) for term in terms]
    return Case(lambda a, b: lib.einsum(a, b, f"{terms[0]},{terms[1]}->{result}"), arrays)


FAMILIES: tuple[Callable[[Draw], Case], ...] = (
    _positions, _broadcasts, _greatest, _sorted, _indexed, _scattered, _sliced, _pooled, _tridiagonal, _random, _packed,
    _matrices, _sums,
)  # fmt: skip


def judge(seed: int, number: int, *, show: bool = False) -> str:
    """Describe the fault of a program; "" if there is none."""
    case = FAMILIES[number % len(FAMILIES)](Draw(seed, number))
    builder = xla.XlaBuilder("library")
    arrays = [np.asarray(a) for a in case.arguments]
    shapes = [xla.make_shape(a.dtype, a.shape) for a in arrays]
    result = case.function(*(xla.parameter(builder, i, shape) for i, shape in enumerate(shapes)))
    program = builder.build(xla.tuple_(builder, list(result)) if isinstance(result, (list, tuple)) else result)
    if show:
        print(program.to_text())
    meant = _flat(xla.compile(program, backend="interpreter")(*arrays))
    for name, found in (
        ("machine code", _flat(xla.compile(program, backend="cpu")(*arrays))),
        ("jaxlib", _flat(JaxlibBackend().run(program.to_text(), arrays))),
    ):
        for place, (one, other) in enumerate(zip(found, meant, strict=True)):
            fault = difference(one, other) if not case.is_exact else _unequal(one, other, signs=name != "jaxlib")
            if fault:
                return f"result {place} of {name}: {fault}"
    return ""


def _flat(value: Any) -> list[Array]:
    return [np.asarray(v) for v in value] if isinstance(value, (tuple, list)) else [np.asarray(value)]


def _unequal(actual: Array, expected: Array, *, signs: bool) -> str:
    """As ``difference``, without any room for roundings; with ``signs``, 0 differs from -0.

    XLA begins sums with 0 wherever it likes.
    """
    fault = difference(actual, expected)
    if fault or actual.dtype.kind in "biuc":
        return fault or ("" if np.array_equal(actual, expected, equal_nan=True) else "parts differ")
    one, other = (a.astype(np.float64) for a in (actual, expected))
    same = (one == other) & ((np.signbit(one) == np.signbit(other)) | (not signs))
    same |= np.isnan(one) & np.isnan(other)
    return "" if same.all() else f"{one[~same][:3]} instead of {other[~same][:3]}"


def _fault_of(options: Namespace, number: int) -> str:
    return judge(options.seed, number, show=options.number is not None)


main = numbered.net("fuzz.math_library", __doc__, 600, _fault_of)

if __name__ == "__main__":
    sys.exit(main())
