"""Large sorts and what is the first of many: keys of every type, one and several, in rows of every length."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fuzz.programs.draft import Program, join
from fuzz.programs.large.drafts import LargeDraft, kind
from fuzz.programs.values import ALL_TYPES, COMPLEX, EDGES, FINITE, SMALL, SPECIAL, Array, is_float, make_values
from fuzz.support.tolerances import EXACT


def _with_ties(draft: LargeDraft, case: str, dims: Sequence[int], style: str) -> Array:
    """Values, many of which are the same ones; now and then in order already."""
    some = make_values(draft.rng, case, [draft.pick([3, 200, 50_000])], style)
    if style == FINITE and is_float(case):
        # What is too large for a narrow type is NaN in some.
        some = np.where(np.isnan(some.astype(np.float64)), np.asarray(1, some.dtype), some)
    values = some[draft.rng.integers(0, len(some), tuple(dims))]
    if draft.chance(0.15) and not is_float(case):
        values = np.sort(values, axis=draft.integer(0, len(dims) - 1))
    return values


def _sort_dims(draft: LargeDraft) -> tuple[list[int], int]:
    """Sizes, and the dimension to sort: rows of every length are as likely."""
    dims = draft.dims(1, 3)
    return dims, draft.integer(0, len(dims) - 1)


@kind("sort", tuple(k for k in ALL_TYPES if k not in COMPLEX), 6, (5_000, 600_000))
def sort(draft: LargeDraft, case: str) -> Program:
    """One to four operands; by one key, by two, or by a comparison of some other kind."""
    dims, along = _sort_dims(draft)
    others = [
        draft.pick(["f32", "s32", "bf16", "pred", "f64", "c64", "u8"]) for _ in range(draft.pick([0, 0, 1, 1, 2, 3]))
    ]
    kinds = [case, *others]
    form = draft.pick(["total", "total", "plain", "two", "magnitude"])
    if form == "two" and (len(kinds) < 2 or kinds[1] in COMPLEX):
        form = "total"
    if form == "magnitude" and (case == "pred" or case[0] == "u" or case == "f8e8m0fnu"):
        form = "total"
    # Comparisons that do not put NaN anywhere are no order where there is one.
    style = draft.pick([EDGES, SPECIAL, SMALL]) if form == "total" else draft.pick([FINITE, SMALL])
    names = [draft.parameter(case, dims, values=_with_ties(draft, case, dims, style))]
    for other in kinds[1:]:
        if other == "s32" and draft.chance():
            names.append(draft.emit(f"s32[{join(dims)}]", f"iota(), iota_dimension={along}"))
        else:
            names.append(draft.parameter(other, dims, values=_with_ties(draft, other, dims, FINITE)))
    lines: list[str] = []
    for i, one in enumerate(kinds):
        lines += [f"x{i} = {one}[] parameter({2 * i})", f"y{i} = {one}[] parameter({2 * i + 1})"]
    called = draft.computation([*lines, *_comparison(draft, form, kinds)])
    shapes = [f"{one}[{join(dims)}]" for one in kinds]
    # Of equal elements, which comes first is told where that is asked for, or cannot be seen.
    free = form == "total" and len(kinds) == 1 and draft.chance()
    call = f"sort({', '.join(names)}), dimensions={{{along}}}, is_stable={str(not free).lower()}, to_apply={called}"
    result = draft.emit(shapes[0] if len(kinds) == 1 else f"({', '.join(shapes)})", call)
    if draft.chance(0.35):
        _emit_few(draft, result, kinds, dims, along)
    return draft.finish("sort", EXACT, f"{' '.join(kinds)} {form}")


def _emit_few(draft: LargeDraft, result: str, kinds: Sequence[str], dims: Sequence[int], along: int) -> None:
    """A few elements at the beginning or the end of each row, of all that was sorted or of some."""
    count = draft.integer(1, min(dims[along], draft.pick([5, 100])))
    start = draft.pick([0, 0, dims[along] - count, draft.integer(0, dims[along] - count)])
    sizes = [count if d == along else n for d, n in enumerate(dims)]
    ranges = ", ".join(f"[{start}:{start + n}]" if d == along else f"[0:{n}]" for d, n in enumerate(sizes))
    read = [place for place in range(len(kinds)) if draft.chance(0.7)] or [len(kinds) - 1]
    names: list[str] = []
    for place in read:
        whole = result
        if len(kinds) > 1:
            whole = draft.emit(f"{kinds[place]}[{join(dims)}]", f"get-tuple-element({result}), index={place}")
        names.append(draft.emit(f"{kinds[place]}[{join(sizes)}]", f"slice({whole}), slice={{{ranges}}}"))
    if len(names) > 1:
        draft.emit(f"({', '.join(f'{kinds[place]}[{join(sizes)}]' for place in read)})", f"tuple({', '.join(names)})")


def _comparison(draft: LargeDraft, form: str, kinds: Sequence[str]) -> list[str]:
    """The last lines of a comparator."""
    directions = [draft.pick(["LT", "GT"]) for _ in range(2)]
    total = ", type=TOTALORDER" if form == "total" and is_float(kinds[0]) else ""
    if form == "magnitude":
        one = kinds[0]
        lines = [f"mx = {one}[] abs(x0)", f"my = {one}[] abs(y0)"]
        return [*lines, f"r = pred[] compare(mx, my), direction={directions[0]}"]
    if form != "two":
        return [f"r = pred[] compare(x0, y0), direction={directions[0]}{total}"]
    return [
        f"before = pred[] compare(x0, y0), direction={directions[0]}",
        "same = pred[] compare(x0, y0), direction=EQ",
        f"next = pred[] compare(x1, y1), direction={directions[1]}",
        "both = pred[] and(same, next)",
        "r = pred[] or(before, both)",
    ]


@kind("top-k", ("f32", "bf16", "s32", "u8", "f64", "s64", "f16", "u32"), 3, (5_000, 1_000_000))
def top_k(draft: LargeDraft, case: str) -> Program:
    """A few or many of rows of every length; NaN, infinities and ties among them."""
    dims = draft.dims(1, 3)
    k = draft.integer(1, min(dims[-1], draft.pick([4, 33, 1000, dims[-1]])))
    style = draft.pick([EDGES, SPECIAL, FINITE])
    operand = draft.parameter(case, dims, values=_with_ties(draft, case, dims, style))
    result = join([*dims[:-1], k])
    largest = str(draft.chance(0.7)).lower()
    draft.emit(f"({case}[{result}], s32[{result}])", f"topk({operand}), k={k}, largest={largest}")
    return draft.finish("topk", EXACT, f"{case} k={k} largest={largest}")
