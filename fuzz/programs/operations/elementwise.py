"""Element-wise operations: unary, binary, compare, select, clamp, the conversions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fuzz.programs.draft import Draft, Program, family
from fuzz.programs.values import (
    ALL_TYPES,
    COMPLEX,
    EDGES,
    FINITE,
    FLOATS,
    INTEGERS,
    NARROW_FLOATS,
    SIGNED,
    SMALL,
    SPECIAL,
    UNIT,
    bits_of,
    is_complex,
    is_float,
)
from fuzz.support.differences import CANNOT_RUN
from fuzz.support.tolerances import BITS, ELEMENTARY_ULPS, EXACT, Measure, Tolerance, elementary

_REALS = FLOATS + NARROW_FLOATS

# Operations with one exact result.
UNARY = {
    "abs": (*SIGNED, *_REALS, *COMPLEX),
    "negate": (*INTEGERS, *_REALS, *COMPLEX),
    "sign": (*SIGNED, *_REALS, *COMPLEX),
    "not": ("pred", *INTEGERS),
    "popcnt": INTEGERS,
    "count-leading-zeros": INTEGERS,
    "floor": _REALS,
    "ceil": _REALS,
    "round-nearest-afz": _REALS,
    "round-nearest-even": _REALS,
    "is-finite": _REALS,
    "real": (*FLOATS, *COMPLEX),
    "imag": (*FLOATS, *COMPLEX),
    "copy": ALL_TYPES,
}
ELEMENTARY_UNARY = {
    **dict.fromkeys(
        ("exponential", "log", "sine", "cosine", "tanh", "logistic", "sqrt", "rsqrt", "tan"), (*_REALS, *COMPLEX)
    ),
    **dict.fromkeys(("exponential-minus-one", "log-plus-one"), (*FLOATS, *COMPLEX)),
    **dict.fromkeys(("cbrt", "erf"), FLOATS),
    **dict.fromkeys(("acos", "acosh", "asin", "asinh", "atanh", "cosh", "sinh"), (*FLOATS, *COMPLEX)),
}
_NUMBERS = (*INTEGERS, *_REALS, *COMPLEX)
BINARY = {
    "add": _NUMBERS,
    "subtract": _NUMBERS,
    "multiply": _NUMBERS,
    "divide": _NUMBERS,
    "remainder": (*INTEGERS, *_REALS),
    "maximum": ("pred", *INTEGERS, *_REALS),
    "minimum": ("pred", *INTEGERS, *_REALS),
    "and": ("pred", *INTEGERS),
    "or": ("pred", *INTEGERS),
    "xor": ("pred", *INTEGERS),
    "shift-left": INTEGERS,
    "shift-right-logical": INTEGERS,
    "shift-right-arithmetic": INTEGERS,
    "complex": ("f32", "f64"),
    "power": (*INTEGERS, *FLOATS, *COMPLEX),
    "atan2": (*FLOATS, *COMPLEX),
}
_COMPLEX_ARITHMETIC = Tolerance(Measure.ULPS, 8)


def tolerance(opcode: str, kind: str) -> Tolerance:
    """How exact an operation is in a type."""
    if opcode in ELEMENTARY_ULPS:
        return elementary(opcode, kind)
    if is_complex(kind) and opcode in ("multiply", "divide", "abs", "sign"):
        return _COMPLEX_ARITHMETIC
    return EXACT


def _style(draft: Draft, opcode: str, kind: str) -> str:
    if is_complex(kind):
        # The arctangent of two complex numbers is not told by C, and XLA's evaluator has none.
        return SMALL if opcode == "atan2" else draft.pick([SMALL, SPECIAL])
    if opcode in ("asin", "acos", "atanh", "erf"):
        return draft.pick([EDGES, UNIT])
    return draft.pick([EDGES, EDGES, SMALL, FINITE])


def _unary(opcode: str) -> None:
    cases = {**UNARY, **ELEMENTARY_UNARY}[opcode]

    @family(opcode, cases, 0.2 if opcode in CANNOT_RUN else 1.3 if opcode in ELEMENTARY_UNARY else 1.0)
    def author(draft: Draft, case: str) -> Program:
        dims = draft.dims()
        result = {"is-finite": "pred", "real": part_of(case), "imag": part_of(case), "abs": part_of(case)}.get(
            opcode, case
        )
        operand = draft.parameter(case, dims, _style(draft, opcode, case))
        draft.emit(f"{draft.shape(result, dims)}", f"{opcode}({operand})")
        return draft.finish(opcode, tolerance(opcode, case), case)


def part_of(kind: str) -> str:
    """The type of a complex type's parts; that of real numbers is their own."""
    return {"c64": "f32", "c128": "f64"}.get(kind, kind)


def _binary(opcode: str) -> None:
    @family(opcode, BINARY[opcode], 1.3)
    def author(draft: Draft, case: str) -> Program:
        dims = draft.dims()
        style = _style(draft, opcode, case)
        left = draft.parameter(case, dims, style)
        shift = opcode.startswith("shift") and draft.chance(0.7)
        right = draft.parameter(case, dims, SMALL if shift else style)
        result = {"f32": "c64", "f64": "c128"}[case] if opcode == "complex" else case
        draft.emit(draft.shape(result, dims), f"{opcode}({left}, {right})")
        return draft.finish(opcode, tolerance(opcode, case), case)


for _opcode in (*UNARY, *ELEMENTARY_UNARY):
    _unary(_opcode)
for _opcode in BINARY:
    _binary(_opcode)


@family("compare", (*ALL_TYPES, *(f"{kind} totalorder" for kind in _REALS)), 1.3)
def compare(draft: Draft, case: str) -> Program:
    """All directions that the type has, in one tuple."""
    kind, _, order = case.partition(" ")
    dims = draft.dims()
    left, right = draft.parameter(kind, dims), draft.parameter(kind, dims)
    if draft.chance(0.3):
        right = left
    directions = ["EQ", "NE"] if is_complex(kind) else ["EQ", "NE", "LT", "LE", "GT", "GE"]
    shape = f"pred[{','.join(map(str, dims))}]"
    suffix = ", type=TOTALORDER" if order else ""
    names = [draft.emit(shape, f"compare({left}, {right}), direction={d}{suffix}") for d in directions]
    _tuple(draft, names, [shape] * len(names))
    return draft.finish("compare", EXACT, case)


def _tuple(draft: Draft, names: Sequence[str], shapes: Sequence[str]) -> None:
    draft.emit(f"({', '.join(shapes)})", f"tuple({', '.join(names)})")


@family("select", ALL_TYPES, 1.3)
def select(draft: Draft, case: str) -> Program:
    """A predicate of the same dimensions, or indices below numbers that only the program knows."""
    dims = draft.dims()
    if dims and draft.chance():
        return _masked(draft, case, dims)
    predicate = draft.parameter("pred", dims)
    on_true, on_false = draft.parameter(case, dims), draft.parameter(case, dims)
    draft.emit(draft.shape(case, dims), f"select({predicate}, {on_true}, {on_false})")
    return draft.finish("select", BITS, case)


def _masked(draft: Draft, case: str, dims: list[int]) -> Program:
    """Along each dimension, the last one often so short that it is written out."""
    dims[-1] = draft.pick([dims[-1], 2, 3, 4])
    indices, kept = draft.shape("s32", dims), draft.shape(case, dims)
    chosen, other = draft.parameter(case, dims), draft.parameter(case, [])
    other = draft.emit(kept, f"broadcast({other}), dimensions={{}}")
    for axis, size in enumerate(dims):
        end = draft.parameter("s32", [], values=np.asarray(draft.integer(0, size), np.int32))
        numbers = draft.emit(indices, f"iota(), iota_dimension={axis}")
        ends = draft.emit(indices, f"broadcast({end}), dimensions={{}}")
        mask = draft.emit(draft.shape("pred", dims), f"compare({numbers}, {ends}), direction=LT")
        chosen = draft.emit(kept, f"select({mask}, {chosen}, {other})")
    return draft.finish("select", BITS, case)


@family("clamp", ("pred", *INTEGERS, *_REALS), 1.3)
def clamp(draft: Draft, case: str) -> Program:
    """Bounds that are arrays, or scalars; also with the minimum above the maximum."""
    dims = draft.dims()
    low = draft.parameter(case, [] if draft.chance(0.5) else dims)
    operand = draft.parameter(case, dims)
    high = draft.parameter(case, [] if draft.chance(0.5) else dims)
    draft.emit(draft.shape(case, dims), f"clamp({low}, {operand}, {high})")
    return draft.finish("clamp", EXACT, case)


@family("convert", ALL_TYPES, 6)
def convert(draft: Draft, case: str) -> Program:
    """From one type to four others in one tuple."""
    dims = draft.dims(most=96)
    operand = draft.parameter(case, dims, draft.pick([EDGES, EDGES, FINITE, SMALL]))
    targets = [ALL_TYPES[i] for i in draft.permutation(len(ALL_TYPES))[:4]]
    shapes = [f"{target}[{','.join(map(str, dims))}]" for target in targets]
    names = [draft.emit(shape, f"convert({operand})") for shape in shapes]
    _tuple(draft, names, shapes)
    return draft.finish("convert", EXACT, f"{case} to {' '.join(targets)}")


_BY_BITS: dict[int, list[str]] = {}
for _kind in ALL_TYPES:
    if _kind not in ("pred", *COMPLEX):
        _BY_BITS.setdefault(bits_of(_kind), []).append(_kind)


@family("bitcast-convert", tuple(k for k in ALL_TYPES if k not in ("pred", *COMPLEX)), 2)
def bitcast_convert(draft: Draft, case: str) -> Program:
    """To a type of the same width, or of a narrower or wider one with the minor dimension changing."""
    dims = draft.dims(0, 3)
    bits = bits_of(case)
    width = draft.pick([bits, *(w for w in _BY_BITS if w != bits)])
    target = draft.pick(_BY_BITS[width])
    result = list(dims)
    if width < bits:
        result.append(bits // width)
    elif width > bits:
        dims = [*dims, width // bits]
    operand = draft.parameter(case, dims, plain=True)
    draft.emit(f"{target}[{','.join(map(str, result))}]", f"bitcast-convert({operand})")
    return draft.finish("bitcast-convert", BITS, f"{case} to {target}")


@family("reduce-precision", FLOATS, 1.5)
def reduce_precision(draft: Draft, case: str) -> Program:
    """Any number of exponent bits from 1 and of mantissa bits from 0."""
    dims = draft.dims()
    exponent, mantissa = draft.integer(1, 11 if draft.chance(0.3) else 6), draft.integer(0, draft.pick([4, 12, 24, 52]))
    operand = draft.parameter(case, dims)
    call = f"reduce-precision({operand}), exponent_bits={exponent}, mantissa_bits={mantissa}"
    draft.emit(draft.shape(case, dims), call)
    return draft.finish("reduce-precision", EXACT, f"{case} e{exponent}m{mantissa}")


@family("stochastic-convert", ("f32", "bf16"), 0.2)
def stochastic_convert(draft: Draft, case: str) -> Program:
    """To an integer type, with given random bits."""
    dims = draft.dims()
    operand = draft.parameter(case, dims, SMALL)
    bits = draft.parameter("u32" if case == "f32" else "u16", dims)
    draft.emit(draft.shape(draft.pick(["s8", "s32"]), dims), f"stochastic-convert({operand}, {bits})")
    return draft.finish("stochastic-convert", EXACT, case)


@family("mulhi", ("s32", "u32"), 0.2)
def mulhi(draft: Draft, case: str) -> Program:
    """The high half of a product."""
    dims = draft.dims()
    left, right = draft.parameter(case, dims), draft.parameter(case, dims)
    draft.emit(draft.shape(case, dims), f"mulhi({left}, {right})")
    return draft.finish("mulhi", EXACT, case)


@family("map", ("f32", "s32", "bf16", "f64", "pred"), 1.5)
def map_(draft: Draft, case: str) -> Program:
    """A computation of one to three operands, also one that gives another type."""
    dims = draft.dims()
    count = draft.integer(1, 3)
    style = FINITE if is_float(case) else EDGES
    operands = [draft.parameter(case, dims, style) for _ in range(count)]
    lines = [f"x{i} = {case}[] parameter({i})" for i in range(count)]
    last = "x0"
    for i in range(count):
        lines.append(f"t{i} = {case}[] {draft.pick(['maximum', 'minimum'])}({last}, x{i})")
        last = f"t{i}"
    result = case
    if draft.chance(0.4):
        result = "pred"
        lines.append(f"r = pred[] compare({last}, x0), direction={draft.pick(['EQ', 'LT', 'GE'])}")
    called = draft.computation(lines)
    dimensions = f"{{{','.join(map(str, range(len(dims))))}}}"
    call = f"map({', '.join(operands)}), dimensions={dimensions}, to_apply={called}"
    draft.emit(draft.shape(result, dims), call)
    return draft.finish("map", EXACT, case)
