"""Expressions of few operations and many constants, on all numbers of a type: what rules of algebra rewrite."""

from __future__ import annotations

import numpy as np

from fuzz.programs.draft import Draft, Named, Program, join
from fuzz.programs.operations.reductions import identity
from fuzz.programs.values import EDGES, INTEGERS, NARROW_FLOATS, Array, bits_of, dtype_of, is_float, make_values
from fuzz.support.tolerances import EXACT

# F32 and wider floats are fused into sums of products, which round once.
_KINDS = (*INTEGERS, *NARROW_FLOATS, "bf16", "f16", "pred", "s8", "u8", "s32", "f8e4m3fn", "s4")
_OF_INTEGERS = (
    "add", "subtract", "multiply", "divide", "remainder", "maximum", "minimum", "and", "or", "xor", "shift-left",
    "shift-right-logical", "shift-right-arithmetic",
)  # fmt: skip
_OF_FLOATS = ("add", "subtract", "multiply", "divide", "maximum", "minimum")
_ONE_INTEGER = ("negate", "abs", "sign", "not", "popcnt", "count-leading-zeros")
_ONE_FLOAT = ("negate", "abs", "sign", "floor", "ceil", "round-nearest-even")
_SIZE = 256
_MOST_DEPTH = 3


def _numbers(draft: Draft, kind: str) -> Array:
    """All numbers of a type of at most eight bits, as often as there is room; else special ones, and others."""
    dtype, bits = dtype_of(kind), bits_of(kind)
    if kind == "pred":
        return np.arange(_SIZE) % 2 == 0
    if bits == 8:
        return draft.rng.permutation(np.arange(_SIZE, dtype=np.uint8)).view(dtype)
    if kind in INTEGERS and bits < 8:
        low = -(1 << bits - 1) if kind[0] == "s" else 0
        return draft.rng.permutation(low + np.arange(_SIZE) % (1 << bits)).astype(dtype)
    return make_values(draft.rng, kind, [_SIZE], EDGES)


def _constant(draft: Draft, kind: str) -> str:
    """A number that a rule might ask for."""
    if kind == "pred":
        return draft.pick(["true", "false"])
    if kind == "f8e8m0fnu":
        return draft.pick(["1", "2", "0.5", "4"])
    if is_float(kind):
        most = float(identity("minimum", kind)) if kind in ("bf16", "f16", "f8e5m2") else 4.0
        signed = ["0", "1", "2", "0.5", "-1", "-0.5", "4", "3", str(most)]
        return draft.pick([*signed, *(["-0"] if "fnuz" not in kind else [])])
    least, most = int(identity("maximum", kind)), int(identity("minimum", kind))
    few = [n for n in (0, 1, -1, 2, 3, 4, 7, 8, -2, -4, -7, 16, 31, 64) if least <= n <= most]
    return str(draft.pick([*few, least, most, bits_of(kind) - 1 if bits_of(kind) - 1 <= most else 1]))


def _term(draft: Draft, given: list[Named], depth: int) -> str:
    """An expression of the type of the given values; one that was made before, now and then."""
    kind, shape = given[0].kind, given[0].shape
    if depth == 0 or draft.chance(0.15):
        if draft.chance(0.4):
            number = draft.emit(f"{kind}[]", f"constant({_constant(draft, kind)})")
            return draft.emit(shape, f"broadcast({number}), dimensions={{}}")
        return draft.pick(given).name
    way = draft.integer(0, 9)
    if way < 5:
        names = _OF_INTEGERS if kind in INTEGERS else ("and", "or", "xor") if kind == "pred" else _OF_FLOATS
        made = f"{draft.pick(names)}({_term(draft, given, depth - 1)}, {_term(draft, given, depth - 1)})"
    elif way < 7:
        made = f"{_one(draft, kind)}({_term(draft, given, depth - 1)})"
    elif way < 9:
        mask = _mask(draft, given, depth - 1)
        made = f"select({mask}, {_term(draft, given, depth - 1)}, {_term(draft, given, depth - 1)})"
    elif kind == "pred":
        made = f"not({_mask(draft, given, depth - 1)})"
    else:
        made = f"clamp({', '.join(_term(draft, given, depth - 1) for _ in range(3))})"
    name = draft.emit(shape, made)
    if draft.chance(0.3):
        given.append(Named(name, kind, given[0].dims))
    return name


def _one(draft: Draft, kind: str) -> str:
    if kind in INTEGERS:
        return draft.pick(_ONE_INTEGER if kind[0] == "s" else ("not", "popcnt", "count-leading-zeros"))
    return "not" if kind == "pred" else draft.pick(_ONE_FLOAT)


def _mask(draft: Draft, given: list[Named], depth: int) -> str:
    """A comparison of expressions."""
    direction = draft.pick(["EQ", "NE", "LT", "LE", "GT", "GE"])
    both = ", ".join(_term(draft, given, depth) for _ in range(2))
    return draft.emit(f"pred[{_SIZE}]", f"compare({both}), direction={direction}")


def expressions(seed: int, number: int) -> Program:
    """Module ``number`` of a seed: some expressions of two arguments of one type, or what they are converted to."""
    draft = Draft(np.random.default_rng([seed, number, 13]))
    kind = draft.pick(_KINDS)
    given = [Named(draft.parameter(kind, [_SIZE], values=_numbers(draft, kind)), kind, (_SIZE,)) for _ in range(2)]
    results: list[str] = []
    shapes: list[str] = []
    for _ in range(draft.integer(4, 10)):
        way = draft.integer(0, 3)
        made, shape = _term(draft, given, _MOST_DEPTH), given[0].shape
        if way == 0:
            made, shape = _mask(draft, given, _MOST_DEPTH - 1), f"pred[{_SIZE}]"
        elif way == 1:
            # What a wider type has of it.
            shape = f"{'f64' if is_float(kind) else 's64'}[{_SIZE}]"
            made = draft.emit(shape, f"convert({made})")
        results.append(made)
        shapes.append(shape)
    draft.emit(f"({', '.join(shapes)})", f"tuple({join(results)})")
    return draft.finish("expressions", EXACT, kind)
