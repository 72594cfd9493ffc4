"""Steps that depend on the order along a dimension: running sums, the element that a reducer chooses, sorts."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fuzz.programs.composed.window_steps import INNER, STEPS, Chain, loops, selections
from fuzz.programs.draft import Draft, join
from fuzz.programs.operations.window import WindowDimension, window_text


def running(body: Chain) -> None:
    """For each element what those up to it give, or those from it on."""
    found = body.along()
    if found is None:
        return
    value, axis = found
    draft, size = body.draft, value.dims[axis]
    length = size + draft.pick([0, 0, 0, 1])
    margins = draft.pick([(length - 1, 0), (0, length - 1)])
    windows = [
        WindowDimension(n, length, 1, *margins) if d == axis else WindowDimension(n, 1)
        for d, n in enumerate(value.dims)
    ]
    called = draft.reducer(draft.pick(body.opcodes(value.kind)), value.kind)
    text = f"window={{{window_text(windows)}}}, to_apply={called}"
    body.tamed(
        body.add(
            value.kind, [w.output for w in windows], f"reduce-window({value.name}, {body.number(value.kind)}), {text}"
        )
    )


def chosen(body: Chain) -> None:
    """The element of each row that a reducer of several arrays chooses, and where it was; other such reducers."""
    found = body.along()
    if found is None or found[0].kind == "c64":
        return
    value, axis = found
    draft, kind = body.draft, value.kind
    axes = sorted({axis, *draft.subset(len(value.dims), 0)}) if draft.chance(0.3) else [axis]
    rest = [size for d, size in enumerate(value.dims) if d not in axes]
    places = body.emit(f"s32[{join(value.dims)}]", f"iota(), iota_dimension={axis}")
    which = draft.pick(["first", "first", "any", "pair", "one"])
    if which == "one":
        called = draft.computation(_choosing(draft, kind, 1, position=False))
        body.add(
            kind, rest, f"reduce({value.name}, {body.number(kind)}), dimensions={{{join(axes)}}}, to_apply={called}"
        )
        return
    lines = _paired(body, kind) if which == "pair" else _choosing(draft, kind, 2, position=which == "first")
    start, zero = body.number(kind), body.emit("s32[]", f"constant({draft.pick([0, 0, 3])})")
    if draft.chance(0.4) and kind[0] in "fs" and kind != "s4":
        lowest = {"f": "-inf", "s": str(-(1 << int(kind[1:]) - 1))}[kind[0]]
        start = body.add(kind, (), f"constant({lowest})").name
    shape = f"({kind}[{join(rest)}], s32[{join(rest)}])"
    call = f"reduce({value.name}, {places}, {start}, {zero}), dimensions={{{join(axes)}}}"
    both = body.emit(shape, f"{call}, to_apply={draft.computation(lines)}")
    _converted(body, kind, rest, body.emit(f"s32[{join(rest)}]", f"get-tuple-element({both}), index=1"))
    body.tamed(body.add(kind, rest, f"get-tuple-element({both}), index=0"))


def _converted(body: Chain, kind: str, dims: Sequence[int], whole: str) -> None:
    """Whole numbers as a value of the chain."""
    body.tamed(body.add(kind, dims, f"convert({whole})"))


def _choosing(draft: Draft, kind: str, count: int, *, position: bool) -> list[str]:
    """Of two elements the better one: NaN before all, of equals the left or the right one, or by the lower position."""
    order = draft.pick(["GT", "LT", "GE", "LE"])
    lines = [f"a = {kind}[] parameter(0)", f"b = {kind}[] parameter({count})"]
    lines += [f"o = pred[] compare(a, b), direction={order}", "n = pred[] compare(a, a), direction=NE"]
    lines += ["l = pred[] or(o, n)", f"x = {kind}[] select(l, a, b)"]
    if count == 1:
        return [*lines, f"r = {kind}[] select(l, x, b)"]
    lines += ["i = s32[] parameter(1)", "j = s32[] parameter(3)"]
    if position:
        lines += ["e = pred[] compare(a, b), direction=EQ", "p = pred[] compare(i, j), direction=LT"]
        lines += ["f = pred[] compare(a, b), direction=NE", "q = pred[] and(l, f)", "u = pred[] or(q, n)"]
        lines += ["t = pred[] and(e, p)", "w = pred[] or(u, t)", "y = s32[] select(w, i, j)"]
    else:
        lines += ["y = s32[] select(l, i, j)"]
    return [*lines, f"r = ({kind}[], s32[]) tuple(x, y)"]


def _paired(body: Chain, kind: str) -> list[str]:
    """A reducer of each of two arrays alone."""
    lines = [f"a = {kind}[] parameter(0)", "i = s32[] parameter(1)", f"b = {kind}[] parameter(2)"]
    lines += ["j = s32[] parameter(3)", f"x = {kind}[] {body.draft.pick(body.opcodes(kind))}(a, b)"]
    return [*lines, "y = s32[] add(i, j)", f"r = ({kind}[], s32[]) tuple(x, y)"]


def top_elements(body: Chain) -> None:
    """The first few elements of each row in order, and where they were."""
    found = body.along()
    if found is None or found[0].kind in ("c64", "s4") or body.computes_nan:
        return
    value, axis = found
    draft, rest = body.draft, [d for d in range(len(value.dims)) if d != axis]
    if axis != len(value.dims) - 1:
        order = [*rest, axis]
        value = body.add(
            value.kind, [value.dims[d] for d in order], f"transpose({value.name}), dimensions={{{join(order)}}}"
        )
    k = min(value.dims[-1], draft.pick([1, 1, 2, 3, draft.integer(1, value.dims[-1])]))
    dims = [*value.dims[:-1], k]
    shape = f"({value.kind}[{join(dims)}], s32[{join(dims)}])"
    both = body.emit(shape, f"topk({value.name}), k={k}, largest={draft.pick(['true', 'false'])}")
    body.add(value.kind, dims, f"get-tuple-element({both}), index=0")
    _converted(body, value.kind, dims, body.emit(f"s32[{join(dims)}]", f"get-tuple-element({both}), index=1"))


def sorts(body: Chain) -> None:
    """Rows in order, with other values that go along."""
    found = body.along()
    if found is None or found[0].kind == "c64" or body.computes_nan:
        return
    value, axis = found
    draft, kind = body.draft, value.kind
    total = ", type=TOTALORDER" if body.special else ""
    lines = [f"a = {kind}[] parameter(0)", f"b = {kind}[] parameter(1)"]
    test = f"r = pred[] compare(a, b), direction={draft.pick(['LT', 'GT'])}{total}"
    if draft.chance():
        called = draft.computation([*lines, test])
        body.add(kind, value.dims, f"sort({value.name}), dimensions={{{axis}}}, is_stable=true, to_apply={called}")
        return
    called = draft.computation([*lines, "i = s32[] parameter(2)", "j = s32[] parameter(3)", test])
    whole = f"s32[{join(value.dims)}]"
    places = body.emit(whole, f"iota(), iota_dimension={axis}")
    call = f"sort({value.name}, {places}), dimensions={{{axis}}}, is_stable=true, to_apply={called}"
    both = body.emit(f"({value.shape}, {whole})", call)
    body.add(kind, value.dims, f"get-tuple-element({both}), index=0")
    _converted(body, kind, value.dims, body.emit(whole, f"get-tuple-element({both}), index=1"))


ORDER_STEPS: tuple[Callable[..., None], ...] = (
    *STEPS,
    running,
    running,
    running,
    chosen,
    chosen,
    chosen,
    chosen,
    top_elements,
    top_elements,
    sorts,
    loops,
    loops,
    selections,
    selections,
)
ORDER_INNER: tuple[Callable[..., None], ...] = (*INNER, running, chosen)
