"""Loops that carry small arrays: their kernels stand in the loop, and LLVM keeps what it can in registers."""

from __future__ import annotations

import math
from collections.abc import Sequence

from fuzz.programs.draft import Draft, Named, join
from fuzz.programs.forms.elements import chain, masked

# Bytes, of which a few vectors and a rest are made.
_MOST_ELEMENTS = 80


def looped(draft: Draft, value: Named, kinds: Sequence[str]) -> Named:
    """One of two small arrays that a loop carries, each of which becomes what is moved and computed of both."""
    value = _first(draft, value)
    other = chain(draft, value, [value], kinds)
    state = f"(s32[], {value.shape}, {other.shape})"
    inner = draft.inside()
    inner.emit(state, "parameter(0)")
    count = inner.emit("s32[]", "get-tuple-element(i0), index=0")
    carried = [
        Named(inner.emit(v.shape, f"get-tuple-element(i0), index={n}"), v.kind, v.dims)
        for n, v in enumerate((value, other), 1)
    ]
    after = [_next(inner, own, carried, kinds, count) for own in carried]
    one = inner.emit("s32[]", "constant(1)")
    following = inner.emit("s32[]", f"add({count}, {one})")
    inner.emit(state, f"tuple({following}, {join([v.name for v in after])})")
    body = draft.computation(inner.lines)
    condition = draft.computation(
        [
            f"s = {state} parameter(0)",
            "n = s32[] get-tuple-element(s), index=0",
            f"most = s32[] constant({draft.pick([1, 2, 3, 5])})",
            "r = pred[] compare(n, most), direction=LT",
        ]
    )
    zero = draft.emit("s32[]", "constant(0)")
    start = draft.emit(state, f"tuple({zero}, {value.name}, {other.name})")
    end = draft.emit(state, f"while({start}), condition={condition}, body={body}")
    place, chosen = draft.pick([(1, value), (2, other)])
    return Named(draft.emit(chosen.shape, f"get-tuple-element({end}), index={place}"), chosen.kind, chosen.dims)


def _first(draft: Draft, value: Named) -> Named:
    """The first elements, few enough."""
    dims = list(value.dims)
    while math.prod(dims) > _MOST_ELEMENTS:
        place = dims.index(max(dims))
        dims[place] = max(1, min(dims[place] - 1, draft.integer(dims[place] // 3, dims[place])))
    ranges = ", ".join(f"[0:{n}]" for n in dims)
    return Named(
        draft.emit(f"{value.kind}[{join(dims)}]", f"slice({value.name}), slice={{{ranges}}}"), value.kind, tuple(dims)
    )


def _next(draft: Draft, own: Named, carried: Sequence[Named], kinds: Sequence[str], count: str) -> Named:
    """What follows an array: turned, moved along, computed with the other, or chosen by the loop's count."""
    way = draft.integer(0, 4)
    made = own
    if way == 0:
        turned = draft.subset(len(own.dims)) or [0]
        made = Named(draft.emit(own.shape, f"reverse({own.name}), dimensions={{{join(turned)}}}"), own.kind, own.dims)
    elif way == 1:
        made = _rotated(draft, own)
    elif way == 2:
        odd = draft.emit("s32[]", "constant(1)")
        bit = draft.emit("s32[]", f"and({count}, {odd})")
        is_odd = draft.emit("pred[]", f"compare({bit}, {odd}), direction=EQ")
        mask = draft.emit(f"pred[{join(own.dims)}]", f"broadcast({is_odd}), dimensions={{}}")
        moved = _rotated(draft, own)
        made = Named(draft.emit(own.shape, f"select({mask}, {moved.name}, {own.name})"), own.kind, own.dims)
    elif way == 3:
        alike = [v for v in carried if v.kind == own.kind]
        other = draft.pick(alike)
        mask = draft.emit(f"pred[{join(own.dims)}]", masked(draft, draft.pick(carried)))
        made = Named(draft.emit(own.shape, f"select({mask}, {own.name}, {other.name})"), own.kind, own.dims)
    # A chain ends in a type of its own.
    return chain(draft, made, carried, kinds, own.kind)


def _rotated(draft: Draft, own: Named) -> Named:
    """A piece of the end comes first."""
    axis = draft.integer(0, len(own.dims) - 1)
    size = own.dims[axis]
    cut = draft.integer(0, size)
    parts: list[str] = []
    for low, high in ((cut, size), (0, cut)):
        dims = [high - low if d == axis else n for d, n in enumerate(own.dims)]
        ranges = ", ".join(f"[{low}:{high}]" if d == axis else f"[0:{n}]" for d, n in enumerate(own.dims))
        if high > low:
            parts.append(draft.emit(f"{own.kind}[{join(dims)}]", f"slice({own.name}), slice={{{ranges}}}"))
    return Named(draft.emit(own.shape, f"concatenate({join(parts)}), dimensions={{{axis}}}"), own.kind, own.dims)
