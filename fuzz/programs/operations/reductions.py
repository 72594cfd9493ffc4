"""reduce, reduce-window, select-and-scatter."""

from __future__ import annotations

import math

import numpy as np

from fuzz.programs.draft import Draft, Program, family, join
from fuzz.programs.operations.window import draw_dimension, window_text
from fuzz.programs.values import EDGES, FINITE, SMALL, Array, dtype_of, is_complex, is_float
from fuzz.support.tolerances import EXACT, SUMS, Measure, Tolerance

_TYPES = ("f32", "f64", "bf16", "f16", "s32", "s8", "u8", "u32", "s64", "pred", "c64", "c128", "s4", "f8e4m3fn", "u16")
_PRODUCTS = Tolerance(Measure.ULPS, 16)
_OPERATIONS = {
    "number": ("add", "add", "multiply", "maximum", "minimum"),
    "pred": ("and", "or", "xor", "maximum", "minimum"),
    "complex": ("add", "multiply"),
}


def _operation(draft: Draft, kind: str) -> str:
    group = "pred" if kind == "pred" else "complex" if is_complex(kind) else "number"
    extra = () if is_float(kind) or group == "complex" else ("and", "or", "xor")
    return draft.pick((*_OPERATIONS[group], *(extra if group == "number" else ())))


def _tolerance(opcode: str, kind: str) -> Tolerance:
    if not (is_float(kind) or is_complex(kind)) or opcode in ("maximum", "minimum"):
        return EXACT
    return SUMS if opcode == "add" else _PRODUCTS


def _style(opcode: str, kind: str) -> str:
    exact = not (is_float(kind) or is_complex(kind)) or opcode in ("maximum", "minimum")
    return EDGES if exact else SMALL


def identity(opcode: str, kind: str) -> Array:
    """What leaves every number of the type as it is."""
    dtype = dtype_of(kind)
    if opcode in ("maximum", "minimum") and is_float(kind):
        return np.asarray(-np.inf if opcode == "maximum" else np.inf).astype(dtype)
    if kind == "pred":
        return np.asarray(opcode in ("and", "minimum"))
    if opcode in ("maximum", "minimum", "and"):
        bits, signed = 8 * dtype.itemsize, kind[0] == "s"
        bits = int(kind[1:]) if kind[1:].isdigit() else bits
        low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
        if opcode == "and":
            return np.asarray(-1 if signed else high).astype(dtype)
        return np.asarray(low if opcode == "maximum" else high, dtype=np.int64 if signed else np.uint64).astype(dtype)
    return np.asarray(1 if opcode == "multiply" else 0).astype(dtype)


def _initial(draft: Draft, opcode: str, kind: str) -> str:
    """The identity; now and then another value, which counts once."""
    if draft.chance(0.15):
        return draft.parameter(kind, [], _style(opcode, kind))
    return draft.parameter(kind, [], values=identity(opcode, kind))


@family(
    "reduce",
    (
        *_TYPES,
        "columns pred",
        "columns s8",
        "variadic f32",
        "variadic s32",
        "argmax f32",
        "argmax bf16",
        "pairs f32 s32",
    ),
    8,
)
def reduce(draft: Draft, case: str) -> Program:
    """Any dimensions; one array, or two with a computation on pairs."""
    dims = draft.dims(0, 4, most=200)
    along = draft.subset(len(dims))
    if case.startswith("columns "):
        # Many rows, whose results are accumulated in strips of columns.
        case, dims, along = case.removeprefix("columns "), [draft.integer(20, 64), draft.integer(1, 40)], [0]
    if draft.chance(0.2):
        along = [along[i] for i in draft.permutation(len(along))]
    kept = [size for d, size in enumerate(dims) if d not in along]
    if " " in case:
        return _reduce_pairs(draft, case, dims, along, kept)
    opcode = _operation(draft, case)
    # Few or most truth values are true: half of them say little about "or" and "and" of many.
    truths = draft.rng.random(dims) < draft.pick([0.03, 0.5, 0.97]) if case == "pred" else None
    operand = draft.parameter(case, dims, _style(opcode, case), truths)
    initial = _initial(draft, opcode, case)
    called = draft.reducer(opcode, case)
    draft.emit(
        draft.shape(case, kept), f"reduce({operand}, {initial}), dimensions={{{join(along)}}}, to_apply={called}"
    )
    return draft.finish("reduce", _tolerance(opcode, case), f"{case} {opcode}")


def _reduce_pairs(draft: Draft, case: str, dims: list[int], along: list[int], kept: list[int]) -> Program:
    operands, called, kinds = _pairs(draft, case, dims)
    shapes = ", ".join(f"{kind}[{join(kept)}]" for kind in kinds)
    draft.emit(f"({shapes})", f"reduce({operands}), dimensions={{{join(along)}}}, to_apply={called}")
    return draft.finish("reduce", EXACT, case)


def _pairs(draft: Draft, case: str, dims: list[int]) -> tuple[str, str, tuple[str, str]]:
    """The operands and the reducer of two arrays at once, and their types."""
    form, first, *rest = case.split()
    is_argmax = form == "argmax"
    second = "s32" if is_argmax else rest[0] if rest else first
    called = argmax_computation(draft, first) if is_argmax else _independent_pairs(draft, first, second)
    left = draft.parameter(first, dims, FINITE)
    positions = np.arange(math.prod(dims), dtype=np.int32).reshape(dims)
    right = draft.parameter(second, dims, FINITE, positions if is_argmax else None)
    last = np.asarray(np.iinfo(np.int32).max, np.int32) if is_argmax else identity("minimum", second)
    inits = [
        draft.parameter(first, [], values=identity("maximum", first)),
        draft.parameter(second, [], values=last),
    ]
    return ", ".join([left, right, *inits]), called, (first, second)


def argmax_computation(draft: Draft, kind: str) -> str:
    """The greatest value and the least index that has it."""
    return draft.computation(
        [
            f"v0 = {kind}[] parameter(0)",
            "i0 = s32[] parameter(1)",
            f"v1 = {kind}[] parameter(2)",
            "i1 = s32[] parameter(3)",
            "gt = pred[] compare(v0, v1), direction=GT",
            "eq = pred[] compare(v0, v1), direction=EQ",
            "lt = pred[] compare(i0, i1), direction=LT",
            "tie = pred[] and(eq, lt)",
            "first = pred[] or(gt, tie)",
            f"v = {kind}[] select(first, v0, v1)",
            "i = s32[] select(first, i0, i1)",
            f"r = ({kind}[], s32[]) tuple(v, i)",
        ]
    )


def _independent_pairs(draft: Draft, first: str, second: str) -> str:
    return draft.computation(
        [
            f"a0 = {first}[] parameter(0)",
            f"b0 = {second}[] parameter(1)",
            f"a1 = {first}[] parameter(2)",
            f"b1 = {second}[] parameter(3)",
            f"a = {first}[] maximum(a0, a1)",
            f"b = {second}[] minimum(b0, b1)",
            f"r = ({first}[], {second}[]) tuple(a, b)",
        ]
    )


@family("reduce-window", (*_TYPES, "variadic f32", "argmax f32"), 8)
def reduce_window(draft: Draft, case: str) -> Program:
    """Strides, padding, both dilations; one array or two."""
    dims = [
        draw_dimension(draft, dilated=True, negative=draft.chance(0.2), reversed_too=False)
        for _ in range(draft.integer(1, 3))
    ]
    bases, outputs, window = [d.base for d in dims], [d.output for d in dims], window_text(dims)
    if " " in case:
        return _reduce_window_pairs(draft, case, bases, outputs, window)
    opcode = _operation(draft, case)
    operand = draft.parameter(case, bases, _style(opcode, case))
    initial = draft.parameter(case, [], values=identity(opcode, case))
    called = draft.reducer(opcode, case)
    draft.emit(
        draft.shape(case, outputs), f"reduce-window({operand}, {initial}), window={{{window}}}, to_apply={called}"
    )
    return draft.finish("reduce-window", _tolerance(opcode, case), f"{case} {opcode}")


def _reduce_window_pairs(draft: Draft, case: str, bases: list[int], outputs: list[int], window: str) -> Program:
    operands, called, kinds = _pairs(draft, case, bases)
    shapes = ", ".join(f"{kind}[{join(outputs)}]" for kind in kinds)
    draft.emit(f"({shapes})", f"reduce-window({operands}), window={{{window}}}, to_apply={called}")
    return draft.finish("reduce-window", EXACT, case)


@family("select-and-scatter", ("f32", "f64", "bf16", "s32", "f16", "u8"), 4)
def select_and_scatter(draft: Draft, case: str) -> Program:
    """Windows with overlap and padding; the first of the greatest or of the least wins.

    The comparison holds for equal values: of two that it tells apart in neither order, any may be selected.
    """
    dims = [
        draw_dimension(draft, dilated=False, negative=False, reversed_too=False) for _ in range(draft.integer(1, 3))
    ]
    operand = draft.parameter(case, [d.base for d in dims], SMALL if draft.chance(0.5) else FINITE)
    source = draft.parameter(case, [d.output for d in dims], SMALL)
    initial = draft.parameter(case, [], values=identity("add", case))
    select = draft.computation(
        [
            f"x = {case}[] parameter(0)",
            f"y = {case}[] parameter(1)",
            f"r = pred[] compare(x, y), direction={draft.pick(['GE', 'GE', 'LE'])}",
        ]
    )
    scatter = draft.reducer("add", case)
    draft.emit(
        draft.shape(case, [d.base for d in dims]),
        f"select-and-scatter({operand}, {source}, {initial}), window={{{window_text(dims)}}}, "
        f"select={select}, scatter={scatter}",
    )
    return draft.finish("select-and-scatter", Tolerance(Measure.NORM, 4) if is_float(case) else EXACT, case)
