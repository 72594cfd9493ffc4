"""Operations that take a value twice, mostly at other places: ``x.at[i].add(x)``, ``x + x.T``, ``x - roll(x)``.

A result may be written over such a value only if every one of the operands that it is allows that. The value is mostly
made for the operation alone, so that its memory is free afterwards.
"""

from __future__ import annotations

import math

from fuzz.programs.composed.body import MOST_ELEMENTS, Body
from fuzz.programs.draft import Named, join


def with_itself_moved(body: Body) -> None:
    """A value and the same backwards, transposed or rolled: symmetric matrices, differences of neighbors."""
    value = body.pick(lambda v: v.dims and v.kind != "pred" and math.prod(v.dims) > 0)
    if value is None:
        return
    own = _fresh(body, value)
    rows = own.dims[0]
    square = len(own.dims) > 1 and own.dims[-1] == own.dims[-2]
    form = body.draft.pick(["transpose", "transpose", "reverse"] if square else ["reverse", "roll"])
    if form == "transpose":
        order = [*range(len(own.dims) - 2), len(own.dims) - 1, len(own.dims) - 2]
        moved = body.emit(own.shape, f"transpose({own.name}), dimensions={{{join(order)}}}")
    elif form == "reverse":
        moved = body.emit(own.shape, f"reverse({own.name}), dimensions={{{body.draft.integer(0, len(own.dims) - 1)}}}")
    else:
        cut = body.draft.integer(0, rows)
        tail = "".join(f", [0:{size}]" for size in own.dims[1:])
        parts = [
            body.emit(
                f"{own.kind}[{join([last - first, *own.dims[1:]])}]",
                f"slice({own.name}), slice={{[{first}:{last}]{tail}}}",
            )
            for first, last in ((cut, rows), (0, cut))
        ]
        moved = body.emit(own.shape, f"concatenate({', '.join(parts)}), dimensions={{0}}")
    opcode = body.draft.pick(["add", "subtract", "maximum"])
    body.results.append(body.add(own.kind, own.dims, f"{opcode}({own.name}, {moved})"))


def scatters(body: Body) -> None:
    """Rows combined with those that a formula says, several with one: of another array, or of the array itself."""
    value = body.pick(lambda v: v.dims and v.kind != "pred" and 0 < math.prod(v.dims) <= MOST_ELEMENTS // 4)
    if value is None:
        return
    own = _fresh(body, value)
    updates = own if body.draft.chance(0.6) else body.matching(own)
    rows = own.dims[0]
    number, factor, first = body.emit(f"s32[{rows}]", "iota(), iota_dimension=0"), *_spread(body, rows)
    scaled = body.emit(f"s32[{rows}]", f"multiply({number}, {factor})")
    indices = body.emit(f"s32[{rows}]", f"add({scaled}, {first})")
    if body.draft.chance(0.7):
        # The others are outside, and left out.
        modulus = body.scalar("s32", rows)
        everywhere = body.emit(f"s32[{rows}]", f"broadcast({modulus.name}), dimensions={{}}")
        indices = body.emit(f"s32[{rows}]", f"remainder({indices}, {everywhere})")
    opcode = body.draft.pick(["add", "maximum", "minimum"])
    windows = f"update_window_dims={{{join(range(1, len(own.dims)))}}}"
    made = body.add(
        own.kind,
        own.dims,
        f"scatter({own.name}, {indices}, {updates.name}), {windows}, inserted_window_dims={{0}}, "
        f"scatter_dims_to_operand_dims={{0}}, index_vector_dim=1, to_apply={body.draft.reducer(opcode, own.kind)}",
    )
    if own.is_float and opcode == "add":
        made = body.add(own.kind, own.dims, f"tanh({made.name})")
    body.results.append(made)


def changes_a_part(body: Body) -> None:
    """Part of an array is changed by what stands there, by another array, and sometimes by what stands beside it."""
    value = body.pick(lambda v: bool(v.dims) and v.kind != "pred" and math.prod(v.dims) > 0)
    if value is None:
        return
    own, draft = _fresh(body, value), body.draft
    sizes = [draft.integer(max(1, size - 2), size) for size in own.dims]
    lows = [draft.integer(0, size - part) for size, part in zip(own.dims, sizes, strict=True)]
    kind, shape = own.kind, f"{own.kind}[{join(sizes)}]"
    starts = ", ".join(body.scalar("s32", low + draft.pick([0, 0, 0, 3])).name for low in lows)

    def part(source: Named, firsts: list[int]) -> str:
        ranges = ", ".join(f"[{first}:{first + size}]" for first, size in zip(firsts, sizes, strict=True))
        return body.emit(shape, f"slice({source.name}), slice={{{ranges}}}")

    is_known = draft.chance()
    there = (
        part(own, lows)
        if is_known
        else body.emit(shape, f"dynamic-slice({own.name}, {starts}), dynamic_slice_sizes={{{join(sizes)}}}")
    )
    other = part(own if draft.chance(0.3) else body.matching(own), [0] * len(sizes))
    opcode = draft.pick(["add", "subtract", "maximum"])
    made = body.emit(shape, f"{opcode}({there}, {other})")
    places = ", ".join(body.scalar("s32", low).name for low in lows) if is_known else starts
    body.results.append(body.add(kind, own.dims, f"dynamic-update-slice({own.name}, {made}, {places})"))


def _spread(body: Body, rows: int) -> list[str]:
    """A factor and a first number, in all places."""
    numbers = (body.draft.pick([-1, 0, 1, 1, 2, 3]), body.draft.integer(0, rows))
    return [
        body.emit(f"s32[{rows}]", f"broadcast({body.scalar('s32', number).name}), dimensions={{}}")
        for number in numbers
    ]


def _fresh(body: Body, value: Named) -> Named:
    """A value that nothing else takes, or the value itself."""
    if body.draft.chance(0.3):
        return value
    return Named(
        body.emit(value.shape, f"negate({value.name})" if value.kind[0] != "u" else f"not({value.name})"),
        value.kind,
        value.dims,
    )
