"""Chains of operations on elements, from any type to any other, that keep what is rounded small and whole."""

from __future__ import annotations

from collections.abc import Sequence

from fuzz.programs.draft import Draft, Named, join
from fuzz.programs.values import INTEGERS, bits_of, is_complex, is_float

# A whole number of this size is exact in floats of four bits, as are those below it.
LARGEST = 4
_OF_INTEGERS = (
    "add", "subtract", "multiply", "maximum", "minimum", "and", "or", "xor", "divide", "remainder", "shift-left",
    "shift-right-logical", "shift-right-arithmetic",
)  # fmt: skip


def _range(kind: str) -> tuple[int, int]:
    """The least and greatest number that stays small in a type."""
    if kind in INTEGERS:
        bits, signed = bits_of(kind), kind[0] == "s"
        low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
        return max(low, -LARGEST), min(high, LARGEST)
    return -LARGEST, LARGEST


def small(draft: Draft, value: Named) -> Named:
    """The value between the greatest number that stays small and its negative; NaNs stay."""
    low, high = (draft.emit(f"{value.kind}[]", f"constant({n})") for n in _range(value.kind))
    return Named(draft.emit(value.shape, f"clamp({low}, {value.name}, {high})"), value.kind, value.dims)


def converted(draft: Draft, value: Named, kind: str) -> Named:
    """The value in another type."""
    if value.kind == kind:
        return value
    if is_complex(value.kind):
        part = "f32" if value.kind == "c64" else "f64"
        name = draft.emit(f"{part}[{join(value.dims)}]", f"{draft.pick(['real', 'imag'])}({value.name})")
        return converted(draft, small(draft, Named(name, part, value.dims)), kind)
    if is_complex(kind):
        part = "f32" if kind == "c64" else "f64"
        one, other = converted(draft, value, part), converted(draft, value, part)
        return Named(draft.emit(f"{kind}[{join(value.dims)}]", f"complex({one.name}, {other.name})"), kind, value.dims)
    if value.kind in INTEGERS and is_float(kind):
        value = small(draft, value)
    if is_float(value.kind) and kind in INTEGERS:
        # What a NaN or an infinity becomes is the machine's affair.
        zero, one = (draft.emit(f"{value.kind}[]", f"constant({n})") for n in (0, LARGEST))
        finite = draft.emit(f"pred[{join(value.dims)}]", f"is-finite({value.name})")
        zeros = draft.emit(value.shape, f"broadcast({zero}), dimensions={{}}")
        chosen = draft.emit(value.shape, f"select({finite}, {value.name}, {zeros})")
        low = zero if kind[0] == "u" else draft.emit(f"{value.kind}[]", f"constant({-LARGEST})")
        value = Named(draft.emit(value.shape, f"clamp({low}, {chosen}, {one})"), value.kind, value.dims)
    return Named(draft.emit(f"{kind}[{join(value.dims)}]", f"convert({value.name})"), kind, value.dims)


def masked(draft: Draft, value: Named) -> str:
    """A call that compares the value with a number, or with places along a dimension."""
    if value.kind == "pred":
        return f"not({value.name})"
    if is_complex(value.kind):
        return f"compare({value.name}, {value.name}), direction={draft.pick(['EQ', 'NE'])}"
    low, high = _range(value.kind)
    number = draft.emit(f"{value.kind}[]", f"constant({draft.integer(low, high)})")
    wide = draft.emit(value.shape, f"broadcast({number}), dimensions={{}}")
    return f"compare({value.name}, {wide}), direction={draft.pick(['LT', 'GE', 'EQ', 'NE', 'GT'])}"


def _with(draft: Draft, value: Named, given: Sequence[Named]) -> Named:
    """Another value of the same type: a given one, converted, or a number."""
    alike = [v for v in given if v.dims == value.dims]
    if alike and draft.chance(0.8):
        return converted(draft, draft.pick(alike), value.kind)
    if value.kind == "pred":
        number = draft.pick(["true", "false"])
    else:
        low, high = (-2, 2) if is_complex(value.kind) else _range(value.kind)
        number = str(draft.integer(low, high))
        number = f"({number}, 1)" if is_complex(value.kind) else number
    scalar = draft.emit(f"{value.kind}[]", f"constant({number})")
    return Named(draft.emit(value.shape, f"broadcast({scalar}), dimensions={{}}"), value.kind, value.dims)


def unary(draft: Draft, value: Named) -> Named:
    """An operation on each number."""
    if value.kind == "pred":
        opcode = "not"
    elif is_complex(value.kind):
        opcode = "negate"
    elif value.kind in INTEGERS:
        opcode = draft.pick(
            ["not", "popcnt", "count-leading-zeros", *(["negate", "abs", "sign"] * (value.kind[0] == "s"))]
        )
    else:
        opcode = draft.pick(["negate", "abs", "sign", "floor", "round-nearest-even"])
    return Named(draft.emit(value.shape, f"{opcode}({value.name})"), value.kind, value.dims)


def binary(draft: Draft, value: Named, given: Sequence[Named]) -> Named:
    """An operation on each two numbers."""
    other = _with(draft, value, given)
    both = (value, other) if draft.chance() else (other, value)
    if value.kind == "pred":
        opcode = draft.pick(["and", "or", "xor"])
    elif value.kind in INTEGERS:
        opcode = draft.pick(_OF_INTEGERS)
    else:
        ordered = () if is_complex(value.kind) else ("maximum", "minimum", "maximum")
        opcode = draft.pick(["add", "subtract", "multiply", *ordered])
    made = Named(draft.emit(value.shape, f"{opcode}({both[0].name}, {both[1].name})"), value.kind, value.dims)
    if is_float(value.kind):
        return small(draft, made)
    return converted(draft, made, value.kind)


def chosen(draft: Draft, value: Named, given: Sequence[Named]) -> Named:
    """One of two values by a condition, which may be spread from some dimensions to all."""
    alike = [v for v in given if v.dims == value.dims]
    of = draft.pick([value, *alike])
    mask = draft.emit(f"pred[{join(value.dims)}]", masked(draft, of))
    if draft.chance(0.3):
        places = draft.emit(
            f"s32[{join(value.dims)}]", f"iota(), iota_dimension={draft.integer(0, len(value.dims) - 1)}"
        )
        bound = draft.emit("s32[]", f"constant({draft.pick([1, 3, 8, 31])})")
        wide = draft.emit(f"s32[{join(value.dims)}]", f"broadcast({bound}), dimensions={{}}")
        mask = draft.emit(f"pred[{join(value.dims)}]", f"compare({places}, {wide}), direction=LT")
    other = _with(draft, value, given)
    both = (value, other) if draft.chance() else (other, value)
    made = draft.emit(value.shape, f"select({mask}, {both[0].name}, {both[1].name})")
    return Named(made, value.kind, value.dims)


def rebits(draft: Draft, value: Named) -> Named:
    """The bits as those of an integer, or of one that is as wide."""
    if value.kind == "pred" or is_complex(value.kind) or is_float(value.kind):
        # Which NaN it is says nothing.
        return value
    kind = ("u" if value.kind[0] == "s" else "s") + value.kind[1:]
    return Named(draft.emit(f"{kind}[{join(value.dims)}]", f"bitcast-convert({value.name})"), kind, value.dims)


def chain(draft: Draft, value: Named, given: Sequence[Named], kinds: Sequence[str], last: str = "") -> Named:
    """A few operations on elements, in turn in other types; the result is of the type ``last``, if there is one."""
    for _ in range(draft.integer(0, 4)):
        way = draft.integer(0, 9)
        if way < 2:
            value = unary(draft, value)
        elif way < 5:
            value = binary(draft, value, given)
        elif way < 6:
            value = chosen(draft, value, given)
        elif way < 9:
            value = converted(draft, value, draft.pick(kinds))
        else:
            value = rebits(draft, value)
    if draft.chance(0.15):
        value = Named(draft.emit(f"pred[{join(value.dims)}]", masked(draft, value)), "pred", value.dims)
    return converted(draft, value, last) if last else value
