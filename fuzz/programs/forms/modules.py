"""Modules of every form of loop in every type: what is read, computed and stored in vectors, in sizes that fill none.

All numbers that are rounded are small and whole, so that results are exact in any order: compiled code and the
interpreter must agree in every bit, but for which NaN it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from fuzz.programs.draft import Draft, Named, Program, join
from fuzz.programs.forms.elements import LARGEST, chain, converted, masked
from fuzz.programs.forms.loops import looped
from fuzz.programs.forms.moves import MOVES, ONLY_MOVES
from fuzz.programs.operations.reductions import identity
from fuzz.programs.values import (
    ALL_TYPES,
    EDGES,
    FLOATS,
    INTEGERS,
    NARROW_FLOATS,
    Array,
    bits_of,
    dtype_of,
    is_complex,
    is_float,
    make_values,
)
from fuzz.support.tolerances import EXACT

# Powers of two are those of other nets.
SIZES = (1, 2, 3, 5, 7, 8, 9, 13, 16, 17, 31, 33, 47, 63, 65, 127, 129)
_LONG = (257, 1000, 1001)
_MOST_ELEMENTS = 9000
# Of types that few programs have there are few; what makes whole numbers of powers of two has no zero.
KINDS = (
    *(k for k in ALL_TYPES if k != "f8e8m0fnu"), "pred", "pred", "pred", "s8", "u8", "s16", "s32", "s32", "s64", "bf16",
    "f16", "f32", "f32", "f64", "c64",
)  # fmt: skip


def dims_of(draft: Draft) -> tuple[int, ...]:
    """Sizes of an array: one to four dimensions, mostly of no whole number of vectors."""
    rank = draft.pick([1, 2, 2, 2, 3, 3, 4])
    dims = [draft.pick(SIZES) for _ in range(rank)]
    if draft.chance(0.25):
        dims[draft.integer(0, rank - 1)] = draft.pick(_LONG)
    while math.prod(dims) > _MOST_ELEMENTS:
        place = dims.index(max(dims)) if draft.chance(0.3) else draft.integer(0, rank - 1)
        dims[place] = max(1, dims[place] // 2)
    return tuple(dims)


def argument(draft: Draft, kind: str, dims: Sequence[int]) -> Named:
    """A parameter of numbers that are small where they are rounded; now and then zeros with signs, infinities, NaNs."""
    if kind in INTEGERS:
        values = make_values(draft.rng, kind, dims, EDGES)
    elif kind == "pred":
        values = draft.rng.random(tuple(dims)) < draft.pick([0.02, 0.5, 0.98])
    else:
        values = draft.rng.integers(-LARGEST, LARGEST + 1, tuple(dims)).astype(np.float64)
        if is_complex(kind):
            values = values + 1j * draft.rng.integers(-LARGEST, LARGEST + 1, tuple(dims))
        elif draft.chance(0.25):
            odd = np.array([-0.0, -0.0, np.inf, -np.inf, np.nan])
            values = np.where(
                draft.rng.random(values.shape) < 0.15, odd[draft.rng.integers(0, 5, values.shape)], values
            )
        with np.errstate(all="ignore"):
            values = values.astype(dtype_of(kind))
    return Named(draft.parameter(kind, dims, values=np.asarray(values)), kind, tuple(dims))


# -- folds ---------------------------------------------------------------------------------------


def _fold_of(draft: Draft, kind: str) -> str:
    if kind == "pred":
        return draft.pick(["and", "or", "xor", "or", "and", "maximum", "minimum"])
    if is_complex(kind):
        return "add"
    bits = ("and", "or", "xor", "multiply") if kind in INTEGERS else ()
    return draft.pick(["add", "add", "maximum", "minimum", *bits])


def _summable(draft: Draft, value: Named, terms: int) -> Named:
    """The value in a type that holds the sum of so many of its numbers."""
    digits = {"f16": 11, "bf16": 8, "f32": 24, "f64": 53, "c64": 24, "c128": 53}
    if value.kind in INTEGERS or value.kind == "pred":
        return value
    if value.kind in digits and terms * LARGEST <= 1 << digits[value.kind]:
        return value
    return converted(draft, value, draft.pick(["f32", "f64"]))


def _initial(draft: Draft, opcode: str, kind: str) -> str:
    if draft.chance(0.2) and kind != "pred" and not is_complex(kind):
        return draft.emit(f"{kind}[]", "constant(1)")
    text = _text(identity(opcode, kind), kind)
    return draft.emit(f"{kind}[]", f"constant({text})")


def _text(number: Array, kind: str) -> str:
    if kind == "pred":
        return "true" if number else "false"
    if kind in INTEGERS:
        return str(int(number))
    # The sum of nothing is the only one of complex numbers.
    return "(0, 0)" if is_complex(kind) else str(float(number))


def fold(draft: Draft, value: Named) -> Named:
    """A reduction over some dimensions."""
    over = draft.subset(len(value.dims)) or [draft.integer(0, len(value.dims) - 1)]
    kept = tuple(size for d, size in enumerate(value.dims) if d not in over)
    if draft.chance(0.3):
        value = Named(draft.emit(f"pred{value.shape[len(value.kind) :]}", masked(draft, value)), "pred", value.dims)
    value = _summable(draft, value, math.prod(value.dims) // max(1, math.prod(kept)) + 1)
    opcode = _fold_of(draft, value.kind)
    initial = _initial(draft, opcode, value.kind)
    call = f"reduce({value.name}, {initial}), dimensions={{{join(over)}}}"
    made = draft.emit(f"{value.kind}[{join(kept)}]", f"{call}, to_apply={draft.reducer(opcode, value.kind)}")
    return Named(made, value.kind, kept)


def arg_fold(draft: Draft, value: Named) -> Named:
    """The place of the greatest number along a dimension, or that number."""
    if value.kind not in (*FLOATS, "s32", "s8", "u8", "u32", "s64", "u16"):
        value = converted(draft, value, draft.pick(["f32", "s32", "s8", "bf16", "f64"]))
    axis = draft.integer(0, len(value.dims) - 1)
    kept = tuple(size for d, size in enumerate(value.dims) if d != axis)
    places = draft.emit(f"s32[{join(value.dims)}]", f"iota(), iota_dimension={axis}")
    is_greatest = draft.chance()
    ends = identity("maximum" if is_greatest else "minimum", value.kind)
    least = draft.emit(f"{value.kind}[]", f"constant({_text(ends, value.kind)})")
    zero = draft.emit("s32[]", "constant(0)")
    shapes = f"({value.kind}[{join(kept)}], s32[{join(kept)}])"
    called = _arg_computation(draft, value.kind, is_greatest=is_greatest)
    operands = f"{value.name}, {places}, {least}, {zero}"
    both = draft.emit(shapes, f"reduce({operands}), dimensions={{{axis}}}, to_apply={called}")
    part = draft.integer(0, 1)
    kind = "s32" if part else value.kind
    found = draft.emit(f"{kind}[{join(kept)}]", f"get-tuple-element({both}), index={part}")
    if not part and is_float(kind):
        # Which of zeros with different signs it is depends on the order.
        found = draft.emit(f"{kind}[{join(kept)}]", f"abs({found})")
    return Named(found, kind, kept)


def _arg_computation(draft: Draft, kind: str, *, is_greatest: bool) -> str:
    """The first of the greatest or least numbers, or of NaNs, as JAX has it."""
    return draft.computation(
        [
            f"x = {kind}[] parameter(0)",
            "i = s32[] parameter(1)",
            f"y = {kind}[] parameter(2)",
            "j = s32[] parameter(3)",
            f"more = pred[] compare(x, y), direction={'GT' if is_greatest else 'LT'}",
            "nan = pred[] compare(x, x), direction=NE",
            "first = pred[] or(more, nan)",
            "equal = pred[] compare(x, y), direction=EQ",
            "before = pred[] compare(i, j), direction=LT",
            "tie = pred[] and(equal, before)",
            "place = pred[] or(first, tie)",
            f"v = {kind}[] select(first, x, y)",
            "k = s32[] select(place, i, j)",
            f"r = ({kind}[], s32[]) tuple(v, k)",
        ]
    )


def running(draft: Draft, value: Named) -> Named:
    """Folds of windows: running ones, or those of a pool."""
    axis = draft.integer(0, len(value.dims) - 1)
    size = value.dims[axis]
    windows, out = [], list(value.dims)
    is_running = draft.chance(0.6)
    width = size if is_running else draft.integer(1, min(size, 4))
    stride = 1 if is_running else draft.integer(1, 3)
    low = size - 1 if is_running and draft.chance(0.6) else draft.integer(0, width - 1)
    high = size - 1 - low if is_running else draft.integer(0, width - 1)
    out[axis] = (size + low + high - width) // stride + 1
    for d in range(len(value.dims)):
        windows.append((width, stride, f"{low}_{high}") if d == axis else (1, 1, "0_0"))
    value = _summable(draft, value, width + 1)
    opcode = _fold_of(draft, value.kind)
    initial = draft.emit(f"{value.kind}[]", f"constant({_text(identity(opcode, value.kind), value.kind)})")
    texts = ["x".join(str(w[i]) for w in windows) for i in range(3)]
    window = f"{{size={texts[0]} stride={texts[1]} pad={texts[2]}}}"
    call = f"reduce-window({value.name}, {initial}), window={window}, to_apply={draft.reducer(opcode, value.kind)}"
    return Named(draft.emit(f"{value.kind}[{join(out)}]", call), value.kind, tuple(out))


def spread_back(draft: Draft, value: Named) -> Named:
    """A fold of a dimension, and what is computed of it and each number that was folded, as a softmax does."""
    axis = draft.integer(0, len(value.dims) - 1)
    kept = [d for d in range(len(value.dims)) if d != axis]
    sizes = [value.dims[d] for d in kept]
    value = _summable(draft, value, value.dims[axis] + 1)
    opcode = _fold_of(draft, value.kind)
    initial = _initial(draft, opcode, value.kind)
    call = f"reduce({value.name}, {initial}), dimensions={{{axis}}}, to_apply={draft.reducer(opcode, value.kind)}"
    folded = draft.emit(f"{value.kind}[{join(sizes)}]", call)
    wide = draft.emit(value.shape, f"broadcast({folded}), dimensions={{{join(kept)}}}")
    if is_complex(value.kind) or draft.chance(0.3):
        made = draft.emit(f"pred[{join(value.dims)}]", f"compare({value.name}, {wide}), direction=EQ")
        return Named(made, "pred", value.dims)
    opcode = "xor" if value.kind == "pred" else draft.pick(["maximum", "minimum"])
    return Named(draft.emit(value.shape, f"{opcode}({value.name}, {wide})"), value.kind, value.dims)


_BITS = {kind: bits_of(kind) for kind in (*FLOATS, *NARROW_FLOATS) if bits_of(kind) >= 8}
FOLDS: tuple[Callable[[Draft, Named], Named], ...] = (fold, fold, fold, arg_fold, running, spread_back)


def moved_bits(draft: Draft, given: Sequence[Named]) -> Named | None:
    """The bits of floats that are only moved, those of NaNs among them."""
    floats = [v for v in given if v.kind in _BITS and v.dims]
    if not floats:
        return None
    value = draft.pick(floats)
    for _ in range(draft.integer(1, 2)):
        if value.dims and math.prod(value.dims):
            value = draft.pick(ONLY_MOVES)(draft, value)
    kind = f"u{_BITS[value.kind]}"
    return Named(draft.emit(f"{kind}[{join(value.dims)}]", f"bitcast-convert({value.name})"), kind, value.dims)


def forms_module(seed: int, number: int) -> Program:
    """Module ``number`` of a seed: a few results of the same arguments, each a form of loop between two chains."""
    draft = Draft(np.random.default_rng([seed, number, 11]))
    dims = dims_of(draft)
    given = [argument(draft, draft.pick(KINDS), dims) for _ in range(draft.integer(1, 3))]
    # Along some dimensions only.
    for _ in range(draft.integer(0, 2)):
        kept = draft.subset(len(dims))
        small = argument(draft, draft.pick(KINDS), [dims[d] for d in kept])
        wide = f"{small.kind}[{join(dims)}]"
        given.append(Named(draft.emit(wide, f"broadcast({small.name}), dimensions={{{join(kept)}}}"), small.kind, dims))
    results: list[Named] = []
    for _ in range(draft.integer(1, 4)):
        value = chain(draft, draft.pick([*given, *(r for r in results if r.dims == dims)]), given, KINDS)
        for _ in range(draft.pick([1, 1, 1, 2])):
            if math.prod(value.dims) and value.dims:
                if draft.chance(0.12):
                    value = looped(draft, value, KINDS)
                else:
                    value = draft.pick(FOLDS if draft.chance(0.5) else MOVES)(draft, value)
            if draft.chance(0.7) and value.dims:
                value = chain(draft, value, [v for v in (*given, *results) if v.dims == value.dims], KINDS)
        results.append(value)
    bits = moved_bits(draft, given) if draft.chance(0.3) else None
    results += [bits] if bits is not None else []
    shapes = ", ".join(v.shape for v in results)
    draft.emit(f"({shapes})", f"tuple({', '.join(v.name for v in results)})")
    return draft.finish("forms", EXACT)
