"""Chains of products of matrices, for programs that are to be split: every result is exact in any order."""

from __future__ import annotations

import numpy as np

from fuzz.programs.draft import Draft, Named, Program, join
from fuzz.programs.values import dtype_of
from fuzz.support.tolerances import EXACT

_KINDS = ("f32", "f32", "f32", "f64", "s32", "c64", "s8")
_SIZES = (2, 3, 4, 4, 6, 6, 8, 8, 12)


def product_chain(seed: int, number: int) -> Program:
    """Chain ``number`` of a seed: its text and its arguments."""
    draft = Draft(np.random.default_rng([seed, number, 5]))
    kind = draft.pick(_KINDS)
    values = [_parameter(draft, kind, [draft.pick(_SIZES) for _ in range(draft.integer(2, 3))])]
    for _ in range(draft.integer(1, 3)):
        values.append(_product(draft, draft.pick(values)))
        if draft.integer(0, 3) == 0:
            negated = draft.emit(values[-1].shape, f"negate({values[-1].name})")
            values.append(Named(negated, values[-1].kind, values[-1].dims))
    results = list(dict.fromkeys([values[-1], draft.pick(values)]))
    shapes = ", ".join(v.shape for v in results)
    draft.emit(f"({shapes})", f"tuple({', '.join(v.name for v in results)})")
    return draft.finish("product-chain", EXACT, f"{kind}[{join(values[0].dims)}]")


def _parameter(draft: Draft, kind: str, dims: list[int]) -> Named:
    values = np.asarray(draft.rng.integers(-2, 3, dims), np.float64).astype(dtype_of(kind))
    return Named(draft.parameter(kind, dims, values=values, plain=True), kind, tuple(dims))


def _product(draft: Draft, value: Named) -> Named:
    """A product with a new array, on either side, over some dimension and perhaps along a batch."""
    rank = len(value.dims)
    order = [int(d) for d in draft.rng.permutation(rank)]
    contracted, batch = order[0], order[1:2] if rank > 2 and draft.integer(0, 1) else []
    sizes = [value.dims[contracted], draft.pick(_SIZES), *(value.dims[d] for d in batch)]
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
