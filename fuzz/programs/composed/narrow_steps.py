"""Steps on integers of fewer than eight bits: what is computed in wider registers, and then depends on bits above."""

from __future__ import annotations

from fuzz.programs.composed.body import MOST_ELEMENTS, Body
from fuzz.programs.draft import Named, join

NARROW = ("s4", "u4", "s2", "u2")
# So many are written one after another into the loop of their reader; of more the sum is stored.
_FEW_TERMS = 16
_GOING_OVER = ("add", "subtract", "multiply", "shift-left")


def narrow_chains(body: Body) -> None:
    """Something that goes over the range, read by one instruction alone, which would see the bits above it.

    A value that others read, too, is stored, and has no such bits any more.
    """
    value = body.pick(lambda v: v.kind in NARROW)
    if value is None:
        return
    made = body.draft.pick([_fold, _fold, _product, _operation])(body, value)
    if made is not None:
        _read(body, made)


def _emit(body: Body, kind: str, dims: tuple[int, ...], call: str) -> Named:
    return Named(body.emit(f"{kind}[{join(dims)}]", call), kind, dims)


def _fold(body: Body, value: Named) -> Named | None:
    if not value.dims:
        return None
    few = [d for d, size in enumerate(value.dims) if 1 < size <= _FEW_TERMS]
    some = body.draft.subset(len(value.dims)) or [body.draft.integer(0, len(value.dims) - 1)]
    over = [body.draft.pick(few)] if few and body.draft.chance(0.8) else some
    opcode = body.draft.pick(["add", "add", "add", "multiply"])
    # A sum of few small numbers goes over the range where it begins at the end of it.
    first = body.scalar(value.kind, body.draft.pick([1, 1 << 4]))
    dims = tuple(size for d, size in enumerate(value.dims) if d not in over)
    reducer = body.draft.reducer(opcode, value.kind)
    call = f"reduce({value.name}, {first.name}), dimensions={{{join(over)}}}, to_apply={reducer}"
    return _emit(body, value.kind, dims, call)


def _product(body: Body, value: Named) -> Named | None:
    if not value.dims:
        return None
    axis = body.draft.integer(0, len(value.dims) - 1)
    over, rest = value.dims[axis], tuple(size for d, size in enumerate(value.dims) if d != axis)
    wide = max(1, body.draft.integer(1, 4))
    number = body.scalar(value.kind, 1)
    other = _emit(body, value.kind, (over, wide), f"broadcast({number.name}), dimensions={{}}")
    if wide * max([1, *rest]) > MOST_ELEMENTS or len(rest) > 2:
        return None
    contract = f"lhs_contracting_dims={{{axis}}}, rhs_contracting_dims={{0}}"
    return _emit(body, value.kind, (*rest, wide), f"dot({value.name}, {other.name}), {contract}")


def _operation(body: Body, value: Named) -> Named:
    opcode = body.draft.pick(_GOING_OVER)
    return _emit(body, value.kind, value.dims, f"{opcode}({value.name}, {body.matching(value).name})")


def _read(body: Body, made: Named) -> None:
    """The one reader."""
    wide = body.draft.pick(["s32", "s32", "s8", "u8", "f32", "", ""])
    if wide:
        call = f"convert({made.name})"
        body.results.append(body.add(wide, made.dims, call))
        return
    one = body.scalar(made.kind, 1)
    other = body.add(made.kind, made.dims, f"broadcast({one.name}), dimensions={{}}")
    opcode = body.draft.pick(["maximum", "minimum", "divide", "remainder", "shift-right-logical", "compare"])
    if opcode == "compare":
        mask = _emit(body, "pred", made.dims, f"compare({made.name}, {other.name}), direction=GT")
        body.results.append(body.add("s32", made.dims, f"convert({mask.name})"))
        return
    body.results.append(body.add(made.kind, made.dims, f"{opcode}({made.name}, {other.name})"))
