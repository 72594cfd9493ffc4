"""Large reductions, scans, pools and their gradients."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fuzz.programs.draft import Program, join
from fuzz.programs.large.drafts import EQUAL, LargeDraft, kind
from fuzz.programs.large.moves import moved
from fuzz.programs.operations.reductions import argmax_computation, identity
from fuzz.programs.operations.window import WindowDimension, window_text
from fuzz.programs.values import EDGES, FINITE, SPECIAL, is_complex, is_float
from fuzz.support.tolerances import EXACT

_TYPES = ("f32", "bf16", "s8", "f64", "s32", "pred", "u16", "c64", "s4", "f16", "u64", "c128", "f32", "f8e5m2")
_LARGEST_INDEX = np.iinfo(np.int32).max


def _operation(draft: LargeDraft, case: str) -> str:
    if case == "pred":
        return draft.pick(["and", "or", "xor", "maximum", "minimum"])
    if is_complex(case):
        return "add"
    bits = () if is_float(case) else ("and", "or", "xor")
    return draft.pick(["add", "add", "add", "multiply", "maximum", "minimum", *bits])


class _Source:
    """The array that is folded: a parameter of which the operation is exact, or what is made of several."""

    def __init__(self, draft: LargeDraft, case: str, opcode: str, rank: int) -> None:
        self._draft, self._case, self._opcode = draft, case, opcode
        any_value = opcode in ("maximum", "minimum") or not (is_float(case) or is_complex(case))
        self._moved = moved(draft, case, rank) if any_value and draft.chance(0.35) else None
        self.dims = self._moved.dims if self._moved else draft.dims(1, rank)

    def name(self, terms: int) -> str:
        """The array, so many of whose elements are folded into one."""
        draft, case, opcode, dims = self._draft, self._case, self._opcode, self.dims
        if self._moved:
            return self._moved.name
        values = None
        if opcode == "add":
            values = draft.whole(case, dims, terms)
        elif opcode == "multiply":
            values = draft.factors(case, dims)
        style = draft.pick([EDGES, SPECIAL]) if is_float(case) else EDGES
        name = draft.parameter(case, dims, style, values)
        return draft.before(name, case, dims) if opcode in ("maximum", "minimum") else name


def _initial(draft: LargeDraft, case: str, opcode: str) -> str:
    """The identity, or a number that counts once."""
    other = opcode != "and" and draft.chance(0.2)
    value = np.asarray(1).astype(identity(opcode, case).dtype) if other else identity(opcode, case)
    return draft.constant(case, value)


@kind("reduce", _TYPES, 5, (30_000, 4_000_000))
def reduce(draft: LargeDraft, case: str) -> Program:
    """Any dimensions of an array in any layout; what follows has the size of the result, or of the operand."""
    opcode = _operation(draft, case)
    source = _Source(draft, case, opcode, 4)
    dims = source.dims
    along = draft.subset(len(dims), draft.pick([len(dims), draft.integer(1, len(dims))]))
    kept = [d for d in range(len(dims)) if d not in along]
    sizes = [dims[d] for d in kept]
    name = source.name(math.prod(dims) // max(1, math.prod(sizes)))
    call = f"reduce({name}, {_initial(draft, case, opcode)}), dimensions={{{join(along)}}}"
    result = draft.emit(draft.shape(case, sizes), f"{call}, to_apply={draft.reducer(opcode, case)}")
    if draft.chance(0.3) and case != "pred" and not is_complex(case):
        whole = f"{case}[{join(dims)}]"
        wide = draft.emit(whole, f"broadcast({result}), dimensions={{{join(kept)}}}")
        nearer = draft.emit(whole, f"{draft.pick(['maximum', 'minimum'])}({name}, {wide})")
        draft.emit(f"({case}[{join(sizes)}], {whole})", f"tuple({result}, {nearer})")
    return draft.finish("reduce", EQUAL if is_complex(case) else EXACT, f"{case} {opcode}")


@kind("reductions", ("f32", "s32", "f64", "bf16", "u8", "f16"), 3, (30_000, 3_000_000))
def reductions(draft: LargeDraft, case: str) -> Program:
    """Several reductions of the same array, over the same dimensions or others, and what is computed of them."""
    dims = draft.dims(1, 3)
    total = math.prod(dims)
    source = draft.parameter(case, dims, values=draft.whole(case, dims, 8 * total))
    whole = f"{case}[{join(dims)}]"
    results: list[tuple[str, str]] = []
    for _ in range(draft.integer(2, 4)):
        along = draft.subset(len(dims), draft.integer(1, len(dims)))
        kept = [d for d in range(len(dims)) if d not in along]
        opcode = draft.pick(["add", "maximum", "minimum"])
        shape = f"{case}[{join([dims[d] for d in kept])}]"
        call = f"reduce({source}, {_initial(draft, case, opcode)}), dimensions={{{join(along)}}}"
        name = draft.emit(shape, f"{call}, to_apply={draft.reducer(opcode, case)}")
        results.append((shape, name))
        if opcode != "add" and draft.chance(0.6):
            # As a softmax does: what follows takes the result from every element.
            wide = draft.emit(whole, f"broadcast({name}), dimensions={{{join(kept)}}}")
            source = draft.emit(whole, f"{draft.pick(['maximum', 'minimum'])}({source}, {wide})")
    if draft.chance(0.5):
        results.append((whole, source))
    shapes, names = zip(*results, strict=True)
    draft.emit(f"({', '.join(shapes)})", f"tuple({', '.join(names)})")
    return draft.finish("reductions", EXACT, case)


def _first_computation(draft: LargeDraft, case: str, direction: str) -> str:
    """The greatest or least value, NaN before all others, and the least index that has it."""
    return draft.computation(
        [
            f"v0 = {case}[] parameter(0)",
            "i0 = s32[] parameter(1)",
            f"v1 = {case}[] parameter(2)",
            "i1 = s32[] parameter(3)",
            f"before = pred[] compare(v0, v1), direction={direction}",
            "odd = pred[] compare(v0, v0), direction=NE",
            "own = pred[] or(before, odd)",
            "eq = pred[] compare(v0, v1), direction=EQ",
            "lt = pred[] compare(i0, i1), direction=LT",
            "tie = pred[] and(eq, lt)",
            "first = pred[] or(own, tie)",
            f"v = {case}[] select(own, v0, v1)",
            "i = s32[] select(first, i0, i1)",
            f"r = ({case}[], s32[]) tuple(v, i)",
        ]
    )


@kind("argmax", ("f32", "bf16", "s32", "u8", "f64", "f16", "s64", "f32"), 2, (30_000, 3_000_000))
def argmax(draft: LargeDraft, case: str) -> Program:
    """The place of the greatest or least, of values with ties, NaN, infinities and zeros of either sign."""
    dims = draft.dims(1, 3)
    along = draft.integer(0, len(dims) - 1)
    kept = [n for d, n in enumerate(dims) if d != along]
    style = draft.pick([EDGES, SPECIAL, FINITE])
    values = draft.whole(case, dims, 1, draft.pick([4, 100])) if draft.chance(0.4) else None
    name = draft.parameter(case, dims, style, values)
    greatest = draft.chance(0.7)
    plain = greatest and (not is_float(case) or style == FINITE or values is not None)
    called = (
        argmax_computation(draft, case)
        if plain and draft.chance(0.5)
        else _first_computation(draft, case, "GT" if greatest else "LT")
    )
    first = draft.constant(case, identity("maximum" if greatest else "minimum", case))
    last = draft.constant("s32", np.asarray(draft.pick([0, _LARGEST_INDEX]), np.int32))
    places = draft.emit(f"s32[{join(dims)}]", f"iota(), iota_dimension={along}")
    shapes = f"({case}[{join(kept)}], s32[{join(kept)}])"
    draft.emit(shapes, f"reduce({name}, {places}, {first}, {last}), dimensions={{{along}}}, to_apply={called}")
    return draft.finish("argmax", EXACT, case)


@kind("scan", (*(t for t in _TYPES if t != "f8e5m2"), "variadic f32"), 4, (10_000, 500_000))
def scan(draft: LargeDraft, case: str) -> Program:
    """Cumulative sums and the like along any dimension, from either end."""
    opcode = "" if " " in case else _operation(draft, case)
    source = _Source(draft, case, opcode, 3) if opcode else None
    dims = source.dims if source else draft.dims(1, 3)
    along = draft.integer(0, len(dims) - 1)
    size, towards = dims[along], draft.chance()
    ends = [f"{size - 1}_0" if towards else f"0_{size - 1}" if d == along else "0_0" for d in range(len(dims))]
    ends = [e if d == along else "0_0" for d, e in enumerate(ends)]
    window = f"window={{size={'x'.join(str(n if d == along else 1) for d, n in enumerate(dims))} pad={'x'.join(ends)}}}"
    shape = f"[{join(dims)}]"
    if source is None:
        element = case.split()[1]
        names = [draft.parameter(element, dims, FINITE) for _ in range(2)]
        initial = [draft.constant(element, identity(o, element)) for o in ("maximum", "minimum")]
        lines = [f"x{i} = {element}[] parameter({i})" for i in range(4)]
        lines += [f"a = {element}[] maximum(x0, x2)", f"b = {element}[] minimum(x1, x3)"]
        called = draft.computation([*lines, f"r = ({element}[], {element}[]) tuple(a, b)"])
        call = f"reduce-window({', '.join([*names, *initial])}), {window}, to_apply={called}"
        draft.emit(f"({element}{shape}, {element}{shape})", call)
        return draft.finish("scan", EXACT, case)
    name = source.name(size)
    initial = draft.constant(case, identity(opcode, case))
    call = f"reduce-window({name}, {initial}), {window}, to_apply={draft.reducer(opcode, case)}"
    draft.emit(draft.shape(case, dims), call)
    return draft.finish("scan", EQUAL if is_complex(case) else EXACT, f"{case} {opcode}")


def _windows(draft: LargeDraft, dims: Sequence[int], *, plain: bool) -> list[WindowDimension]:
    """Windows that move along one to three dimensions, and not along the others."""
    found = [WindowDimension(n, 1) for n in dims]
    for d in draft.subset(len(dims), draft.integer(1, min(3, len(dims)))):
        size = draft.integer(1, min(dims[d], draft.pick([2, 3, 3, 5, 9])))
        stride = draft.pick([1, 1, 2, size])
        dilation = 1 if plain else draft.pick([1, 1, 1, 2])
        base = 1 if plain or dims[d] > 300 else draft.pick([1, 1, 1, 2])
        extent = (size - 1) * dilation + 1
        low, high = (draft.integer(0, extent - 1) if draft.chance() else 0 for _ in range(2))
        high += max(0, extent - ((dims[d] - 1) * base + 1 + low + high))
        found[d] = WindowDimension(dims[d], size, stride, low, high, base, dilation)
    return found


def _reach(windows: Sequence[WindowDimension]) -> int:
    return math.prod(w.size for w in windows)


@kind("pool", _TYPES, 3, (10_000, 400_000))
def pool(draft: LargeDraft, case: str) -> Program:
    """Windows with strides, padding and both dilations."""
    opcode = _operation(draft, case)
    source = _Source(draft, case, opcode, 4)
    windows = _windows(draft, source.dims, plain=False)
    name = source.name(_reach(windows))
    initial = draft.constant(case, identity(opcode, case))
    result = [w.output for w in windows]
    call = (
        f"reduce-window({name}, {initial}), window={{{window_text(windows)}}}, to_apply={draft.reducer(opcode, case)}"
    )
    draft.emit(draft.shape(case, result), call)
    return draft.finish("pool", EQUAL if is_complex(case) else EXACT, f"{case} {opcode}")


@kind("unpool", ("f32", "bf16", "s32", "f64", "f16", "u8"), 3, (10_000, 300_000))
def unpool(draft: LargeDraft, case: str) -> Program:
    """The gradient of a pool: sources go where the greatest or the least of their window is.

    The padding may be of the window, or of the array, whose own part is cut out of the result.
    """
    dims = draft.dims(1, 4)
    apart = len(dims) > 1 and dims[-1] > 1 and draft.chance(0.4)
    around = [(draft.integer(0, 2), draft.integer(0, 2)) if apart else (0, 0) for _ in dims[:-1]] + [(0, 0)]
    whole = [low + n + high for n, (low, high) in zip(dims, around, strict=True)]
    windows = _windows(draft, whole[:-1] if apart else whole, plain=True)
    if apart:
        windows = [replace(w, low=0, high=max(0, w.size - w.base)) for w in windows] + [WindowDimension(whole[-1], 1)]
    values = draft.whole(case, dims, 1, draft.pick([4, 100])) if draft.chance() else None
    operand = draft.parameter(case, dims, FINITE, values)
    if apart:
        value = draft.constant(case, identity(draft.pick(["maximum", "minimum", "add"]), case))
        padding = "x".join(f"{low}_{high}" for low, high in around)
        operand = draft.emit(f"{case}[{join(whole)}]", f"pad({operand}, {value}), padding={padding}")
    places = [w.output for w in windows]
    source = draft.parameter(case, places, values=draft.whole(case, places, _reach(windows)))
    initial = draft.constant(case, identity("add", case))
    lines = [f"x = {case}[] parameter(0)", f"y = {case}[] parameter(1)"]
    select = draft.computation([*lines, f"r = pred[] compare(x, y), direction={draft.pick(['GE', 'GE', 'LE'])}"])
    call = f"select-and-scatter({operand}, {source}, {initial}), window={{{window_text(windows)}}}"
    call = f"{call}, select={select}, scatter={draft.reducer('add', case)}"
    result = draft.emit(f"{case}[{join(whole)}]" if apart else draft.shape(case, dims), call)
    if apart:
        ranges = ", ".join(f"[{low}:{low + n}]" for n, (low, _) in zip(dims, around, strict=True))
        draft.emit(f"{case}[{join(dims)}]", f"slice({result}), slice={{{ranges}}}")
    return draft.finish("unpool", EXACT, case)
