"""Chains of operations along dimensions, and of products, for programs that are to be split.

Every result is exact in any order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from fuzz.programs.composed.order_steps import ORDER_INNER, ORDER_STEPS
from fuzz.programs.composed.window_steps import Chain
from fuzz.programs.draft import Draft, Named, Program, join
from fuzz.programs.values import Array, dtype_of
from fuzz.support.tolerances import EXACT

_KINDS = ("f32", "f32", "f32", "s32", "s32", "s8", "u8", "f64", "pred", "c64", "s4", *["special"] * 3)
# Of the sizes of arrays some can be split evenly, some cannot.
_SIZES = (1, 2, 3, 4, 5, 6, 7, 8, 8, 9, 12, 15, 16, 16, 17, 23, 24, 24, 25, 31, 32)
_MOST_ELEMENTS = 400
_PRODUCT_KINDS = ("f32", "f32", "f32", "f64", "s32", "c64", "s8")
_PRODUCT_SIZES = (2, 3, 4, 4, 6, 6, 8, 8, 12)


def chain(seed: int, number: int) -> Program:
    """Chain ``number`` of a seed: its text and its arguments."""
    draft = Draft(np.random.default_rng([seed, number, 4]))
    drawn = draft.pick(_KINDS)
    kind = "f32" if drawn == "special" else drawn
    body = Chain(draft, draft.emit, [], "", ORDER_STEPS)
    body.inner = ORDER_INNER
    body.special = drawn == "special"
    for _ in range(draft.integer(1, 2)):
        dims = _dims(draft)
        values = _values(draft.rng, kind, dims, special=body.special)
        body.values.append(Named(draft.parameter(kind, dims, values=values, plain=True), kind, tuple(dims)))
    for _ in range(draft.integer(1, 7)):
        body.step()
    kept = [v for v in body.values if v.dims]
    results = list(dict.fromkeys([kept[-1], *(draft.pick(kept) for _ in range(draft.integer(0, 2)))]))
    return _finished(draft, "chain", results, f"{drawn}[{join(body.values[0].dims)}]")


def _finished(draft: Draft, name: str, results: Sequence[Named], what: str) -> Program:
    shapes = ", ".join(v.shape for v in results)
    draft.emit(f"({shapes})", f"tuple({', '.join(v.name for v in results)})")
    return draft.finish(name, EXACT, what)


def _dims(draft: Draft) -> list[int]:
    dims = [draft.pick(_SIZES) for _ in range(draft.pick([1, 1, 2, 2, 3]))]
    while math.prod(dims) > _MOST_ELEMENTS:
        largest = dims.index(max(dims))
        dims[largest] = max(1, dims[largest] // 2)
    return dims


def _values(rng: np.random.Generator, kind: str, dims: Sequence[int], *, special: bool) -> Array:
    """Small whole numbers, zeros of both signs among them; ``special``: infinities and NaN, too."""
    size = tuple(dims)
    if kind == "pred":
        return rng.integers(0, 2, size).astype(np.bool_)
    low = 0 if kind[0] == "u" else -3
    values = np.asarray(rng.integers(low, 4, size), np.float64)
    if kind[0] == "f":
        values = np.where((values == 0) & (rng.random(size) < 0.5), -0.0, values)
    if special:
        values = np.where(rng.random(size) < 0.3, rng.choice([np.inf, -np.inf, np.nan], size), values)
    return values.astype(dtype_of(kind))


def product_chain(seed: int, number: int) -> Program:
    """Chain ``number`` of a seed: its text and its arguments."""
    draft = Draft(np.random.default_rng([seed, number, 5]))
    kind = draft.pick(_PRODUCT_KINDS)
    values = [_parameter(draft, kind, [draft.pick(_PRODUCT_SIZES) for _ in range(draft.integer(2, 3))])]
    if draft.integer(0, 1):
        values.append(_cut(draft, values[0]))
    for place in range(draft.integer(1, 3)):
        # The first may be of a value with itself, whose parts are the same; sums of later ones would not be exact.
        made = _gram if place == 0 and draft.integer(0, 2) == 0 else _product
        values.append(made(draft, draft.pick(values)))
        if draft.integer(0, 3) == 0:
            negated = draft.emit(values[-1].shape, f"negate({values[-1].name})")
            values.append(Named(negated, values[-1].kind, values[-1].dims))
    results = list(dict.fromkeys([values[-1], draft.pick(values)]))
    return _finished(draft, "product-chain", results, f"{kind}[{join(values[0].dims)}]")


def _parameter(draft: Draft, kind: str, dims: list[int]) -> Named:
    values = np.asarray(draft.rng.integers(-2, 3, dims), np.float64).astype(dtype_of(kind))
    return Named(draft.parameter(kind, dims, values=values, plain=True), kind, tuple(dims))


def _cut(draft: Draft, value: Named) -> Named:
    """A value without some of its last elements: in unequal parts, if it was in equal ones."""
    dims = tuple(n - draft.integer(0, min(2, n - 1)) for n in value.dims)
    ranges = ", ".join(f"[0:{n}]" for n in dims)
    return Named(
        draft.emit(f"{value.kind}[{join(dims)}]", f"slice({value.name}), slice={{{ranges}}}"), value.kind, dims
    )


def _gram(draft: Draft, value: Named) -> Named:
    """The product of a value with itself over one dimension."""
    over = draft.integer(0, len(value.dims) - 1)
    free = [n for d, n in enumerate(value.dims) if d != over]
    attributes = f"lhs_contracting_dims={{{over}}}, rhs_contracting_dims={{{over}}}"
    name = draft.emit(f"{value.kind}[{join([*free, *free])}]", f"dot({value.name}, {value.name}), {attributes}")
    return Named(name, value.kind, (*free, *free))


def _product(draft: Draft, value: Named) -> Named:
    """A product with a new array, on either side, over some dimension and perhaps along a batch."""
    rank = len(value.dims)
    order = [int(d) for d in draft.rng.permutation(rank)]
    contracted, batch = order[0], order[1:2] if rank > 2 and draft.integer(0, 1) else []
    sizes = [value.dims[contracted], draft.pick(_PRODUCT_SIZES), *(value.dims[d] for d in batch)]
    places = [int(d) for d in draft.rng.permutation(len(sizes))]
    other = _parameter(draft, value.kind, [sizes[d] for d in places])
    own = value, [contracted], batch, [d for d in range(rank) if d not in (contracted, *batch)]
    theirs = other, [places.index(0)], [places.index(2)] if batch else [], [places.index(1)]
    (a, over_a, batch_a, free_a), (b, over_b, batch_b, free_b) = (own, theirs) if draft.integer(0, 1) else (theirs, own)
    dims = (*(a.dims[d] for d in batch_a), *(a.dims[d] for d in free_a), *(b.dims[d] for d in free_b))
    attributes = f"lhs_contracting_dims={{{join(over_a)}}}, rhs_contracting_dims={{{join(over_b)}}}"
    if batch:
        attributes += f", lhs_batch_dims={{{join(batch_a)}}}, rhs_batch_dims={{{join(batch_b)}}}"
    name = draft.emit(f"{value.kind}[{join(dims)}]", f"dot({a.name}, {b.name}), {attributes}")
    return Named(name, value.kind, dims)
