"""Modules of many operations: element-wise chains, movement, reductions, products, loops and conditionals, mixed.

Floats go through continuous functions alone, and what decides (comparisons, indices, predicates) is made of integers,
so that a small difference in rounding stays small.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from fuzz.programs.composed.body import MOST_ELEMENTS, Body, appending
from fuzz.programs.composed.movement_steps import (
    WHOLE,
    broadcasts,
    concatenations,
    divided_indices,
    iotas,
    masks,
    pads,
    pieces,
    reshapes,
    reversals,
    slices,
    transposes,
)
from fuzz.programs.composed.narrow_steps import NARROW, narrow_chains
from fuzz.programs.composed.own_steps import changes_a_part, scatters, with_itself_moved
from fuzz.programs.composed.special_steps import special_functions
from fuzz.programs.draft import Draft, Named, Program, join
from fuzz.programs.values import SMALL
from fuzz.support.tolerances import EXACT

_FLOATS = ("f32", "f32", "f32", "f64", "bf16", "f16")
_INTEGERS = ("s32", "s32", "u32", "s8", "s64", "u8", "s16", "u64", "s4", "u4")
_OF_FLOATS = ("tanh", "negate", "abs", "sine", "cosine", "logistic")
_OF_TWO_FLOATS = ("add", "subtract", "multiply", "maximum", "minimum")
_OF_INTEGERS = ("negate", "not", "abs", "popcnt", "count-leading-zeros", "sign")
_OF_TWO_INTEGERS = (
    "add", "subtract", "multiply", "maximum", "minimum", "and", "or", "xor", "divide", "remainder",
    "shift-left", "shift-right-logical", "shift-right-arithmetic",
)  # fmt: skip


def _unary(body: Body) -> None:
    value = body.pick(lambda v: v.kind != "pred")
    if value is not None:
        opcode = body.draft.pick(_OF_FLOATS if value.is_float else _OF_INTEGERS)
        if value.kind[0] == "u" and opcode in ("abs", "sign", "negate"):
            opcode = "not"
        body.add(value.kind, value.dims, f"{opcode}({value.name})")


def _binary(body: Body) -> None:
    value = body.pick(lambda v: v.kind != "pred")
    if value is None:
        return
    other = body.matching(value)
    opcode = body.draft.pick(_OF_TWO_FLOATS if value.is_float else _OF_TWO_INTEGERS)
    made = body.add(value.kind, value.dims, f"{opcode}({value.name}, {other.name})")
    if value.is_float and opcode in ("add", "subtract", "multiply") and body.draft.chance(0.3):
        body.add(value.kind, value.dims, f"tanh({made.name})")


def _select(body: Body) -> None:
    value = body.pick(lambda v: v.kind[0] in "su" and len(v.kind) > 1)
    if value is None:
        return
    other = body.matching(value)
    direction = body.draft.pick(["LT", "GE", "EQ", "NE"])
    mask = body.add("pred", value.dims, f"compare({value.name}, {other.name}), direction={direction}")
    chosen = body.pick(lambda v: v.dims == value.dims and v.kind != "pred") or value
    against = body.matching(chosen)
    body.add(chosen.kind, chosen.dims, f"select({mask.name}, {chosen.name}, {against.name})")


def _convert(body: Body) -> None:
    value = body.pick()
    if value is None:
        return
    kinds = _FLOATS if value.is_float else (*_INTEGERS, "f32", "f64")
    kind = body.draft.pick(kinds)
    made = body.add(kind, value.dims, f"convert({value.name})")
    if made.is_float and not value.is_float:
        body.add(kind, value.dims, f"sine({made.name})")


def _reduce(body: Body) -> None:
    value = body.pick(lambda v: len(v.dims) > 0 and v.kind != "pred")
    if value is None:
        return
    over = body.draft.subset(len(value.dims)) or [len(value.dims) - 1]
    opcode = body.draft.pick(["add", "add", "maximum", "minimum"])
    initial = body.scalar(value.kind, body.draft.pick([0, 0, 1]))
    dims = [size for d, size in enumerate(value.dims) if d not in over]
    reducer = body.draft.reducer(opcode, value.kind)
    call = f"reduce({value.name}, {initial.name}), dimensions={{{join(over)}}}, to_apply={reducer}"
    made = body.add(value.kind, dims, call)
    if value.is_float and opcode == "add":
        made = body.add(value.kind, dims, f"tanh({made.name})")
    elif value.kind in NARROW:  # bits above the range, which results in memory do not have
        body.add("s32", dims, f"convert({made.name})")
    if body.draft.chance(0.4):
        kept = [d for d in range(len(value.dims)) if d not in over]
        spread = body.add(value.kind, value.dims, f"broadcast({made.name}), dimensions={{{join(kept)}}}")
        body.add(value.kind, value.dims, f"subtract({value.name}, {spread.name})")


def _dot(body: Body) -> None:
    value = body.pick(lambda v: len(v.dims) > 0 and v.kind != "pred" and math.prod(v.dims) > 0)
    if value is None:
        return
    other = body.pick(lambda v: v.kind == value.kind and v.dims == value.dims) or value
    axis = body.draft.integer(0, len(value.dims) - 1)
    kept = [size for d, size in enumerate(value.dims) if d != axis]
    dims = [*kept, *kept]
    if math.prod(dims) > MOST_ELEMENTS or len(dims) > 4:
        return
    contract = f"lhs_contracting_dims={{{axis}}}, rhs_contracting_dims={{{axis}}}"
    made = body.add(value.kind, dims, f"dot({value.name}, {other.name}), {contract}")
    if value.is_float:
        body.add(value.kind, dims, f"tanh({made.name})")


def _dynamic(body: Body) -> None:
    value = body.pick(lambda v: len(v.dims) > 0)
    if value is None:
        return
    index = body.pick(lambda v: v.kind == "s32" and not v.dims) or body.scalar("s32", 1)
    sizes = [body.draft.integer(1, max(1, size)) for size in value.dims]
    if 0 in value.dims:
        return
    starts = ", ".join([index.name] * len(sizes))
    part = body.add(value.kind, sizes, f"dynamic-slice({value.name}, {starts}), dynamic_slice_sizes={{{join(sizes)}}}")
    if body.draft.chance():
        body.add(value.kind, value.dims, f"dynamic-update-slice({value.name}, {part.name}, {starts})")


def _gather(body: Body) -> None:
    value = body.pick(lambda v: len(v.dims) == 2 and 0 not in v.dims)
    indices = body.pick(lambda v: v.kind == "s32" and len(v.dims) == 1)
    if value is None or indices is None:
        return
    # Of slices without elements in a dimension that the result leaves out it has zeros.
    columns, taken = value.dims[1], body.draft.pick([0, 1, 1])
    dims = [indices.dims[0], columns]
    if math.prod(dims) <= MOST_ELEMENTS:
        body.add(
            value.kind,
            dims,
            f"gather({value.name}, {indices.name}), offset_dims={{1}}, collapsed_slice_dims={{0}}, "
            f"start_index_map={{0}}, index_vector_dim=1, slice_sizes={{{taken},{columns}}}",
        )


def _only_for_it(body: Body, value: Named) -> Named:
    """A value that no other instruction takes by chance."""
    shape = f"{value.kind}[{join(value.dims)}]"
    return Named(body.emit(shape, f"negate({value.name})"), value.kind, value.dims)


def _while(body: Body) -> None:
    draft = body.draft
    if body.prefix.count("w") > 1:
        return
    carried = [v for v in (body.pick(lambda v: v.kind != "pred") for _ in range(draft.integer(1, 3))) if v]
    # Some begin with what has no other reader; and one value may begin several elements.
    carried = [_only_for_it(body, v) if draft.chance() else v for v in carried]
    carried += [draft.pick(carried) for _ in range(draft.integer(0, 2)) if carried]
    shapes = ["s32[]", *(f"{v.kind}[{join(v.dims)}]" for v in carried)]
    state = f"({', '.join(shapes)})"
    lines = [f"p = {state} parameter(0)"]
    lines += [f"g{i} = {s} get-tuple-element(p), index={i}" for i, s in enumerate(shapes)]
    inner = Body(draft, appending(lines), [Named("g0", "s32", ())], body.prefix + "w", body.steps)
    inner.values += [Named(f"g{i + 1}", v.kind, v.dims) for i, v in enumerate(carried)]
    for _ in range(draft.integer(1, 5)):
        inner.step()
    results = []
    for i, v in enumerate(carried):
        same = [w for w in inner.values if w.kind == v.kind and w.dims == v.dims]
        chosen = draft.pick(same[-2:]) if draft.chance(0.7) else Named(f"g{i + 1}", v.kind, v.dims)
        if chosen.name != f"g{i + 1}" and draft.chance():
            # What the loop was given is read late, too.
            others = [w for w in inner.values if w.name.startswith("g") and w.kind == v.kind and w.dims == v.dims]
            chosen = inner.add(v.kind, v.dims, f"minimum({chosen.name}, {draft.pick(others).name})")
        results.append(chosen.name)
    one = inner.scalar("s32", 1)
    count = inner.add("s32", (), f"add(g0, {one.name})")
    lines.append(f"r = {state} tuple({', '.join([count.name, *results])})")
    loop = draft.computation(lines)
    limit = draft.pick([draft.integer(0, 5), *[draft.integer(9, 40)] * 2])
    test = draft.computation(
        [
            f"p = {state} parameter(0)",
            "i = s32[] get-tuple-element(p), index=0",
            f"n = s32[] constant({limit})",
            "r = pred[] compare(i, n), direction=LT",
        ]
    )
    zero = body.scalar("s32", 0)
    start = body.emit(state, f"tuple({', '.join([zero.name, *(v.name for v in carried)])})")
    end = body.emit(state, f"while({start}), condition={test}, body={loop}")
    for i, v in enumerate(carried):
        if not i or draft.chance(0.7):
            body.add(v.kind, v.dims, f"get-tuple-element({end}), index={i + 1}")


def _conditional(body: Body) -> None:
    draft = body.draft
    value = body.pick(lambda v: v.kind != "pred")
    index = body.pick(lambda v: v.kind == "s32" and not v.dims)
    if value is None or index is None or len(body.prefix) > 2:
        return
    shape = f"{value.kind}[{join(value.dims)}]"
    branches = []
    for _ in range(draft.integer(1, 3)):
        lines = [f"p = {shape} parameter(0)"]
        inner = Body(draft, appending(lines), [Named("p", value.kind, value.dims)], body.prefix + "c", body.steps)
        for _ in range(draft.integer(0, 3)):
            inner.step()
        same = [v for v in inner.values if v.kind == value.kind and v.dims == value.dims]
        lines.append(f"r = {shape} copy({same[-1].name})")
        branches.append(draft.computation(lines))
    given = ", ".join([value.name] * len(branches))
    body.add(
        value.kind,
        value.dims,
        f"conditional({index.name}, {given}), branch_computations={{{join(branches)}}}",
    )


def _complex(body: Body) -> None:
    """Complex numbers on the way, or the parts of a real one."""
    value = body.pick(lambda v: v.is_float)
    if value is None:
        return
    part = body.draft.pick(["real", "imag"])
    if value.kind not in ("f32", "f64") or body.draft.chance(0.3):
        zero = body.add(value.kind, value.dims, f"imag({value.name})")
        body.add(value.kind, value.dims, f"add({zero.name}, {body.matching(value).name})")
        return
    shape = f"{'c64' if value.kind == 'f32' else 'c128'}[{join(value.dims)}]"
    one, other = (body.emit(shape, f"complex({value.name}, {body.matching(value).name})") for _ in range(2))
    made = body.emit(shape, f"{body.draft.pick(['multiply', 'add', 'subtract'])}({one}, {other})")
    found = body.add(value.kind, value.dims, f"{part}({made})")
    body.add(value.kind, value.dims, f"tanh({found.name})")


_STEPS: tuple[Callable[[Body], None], ...] = (
    _unary, _unary, _binary, _binary, _binary, _binary, _select, _convert, broadcasts, broadcasts, reshapes,
    transposes, slices, pads, concatenations, reversals, iotas, masks, _reduce, _reduce, _reduce, _dot, _dynamic,
    _gather, _while, _while, _while, _conditional, special_functions, narrow_chains, scatters, with_itself_moved,
    with_itself_moved, changes_a_part,
)  # fmt: skip


# What there is in wide modules besides.
_MORE = (_complex, _complex, pieces, pieces, pieces, divided_indices, divided_indices)
# What moves elements, several of which stand in one index.
_MOVES = (
    _unary, _binary, _binary, _select, broadcasts, reshapes, transposes, slices, pads, concatenations, reversals,
    pieces, *[divided_indices] * 6,
)  # fmt: skip


def _dims(draft: Draft, *, wide: bool) -> list[int]:
    dims = draft.dims(0, 3, most=600, empty=0.03)
    if wide and dims and draft.chance(0.6):
        # Whole vectors, as many as there are in arrays of any size.
        dims[-1] = draft.pick(WHOLE)
        while math.prod(dims) > MOST_ELEMENTS // 4:
            largest = dims.index(max(dims[:-1]))
            dims[largest] //= 2
    return dims


def module(
    seed: int,
    number: int,
    *,
    wide: bool = False,
    moves: bool = False,
    more: Sequence[Callable[[Body], None]] = (),
) -> Program:
    """Module ``number`` of a seed: its text and its arguments.

    wide: with rows of whole vectors, pieces and complex numbers, for what has ways of its own for large arrays.
    moves: of what moves elements, in few steps, for indices that are divided and chosen.
    more: further steps.

    Three of sixteen modules have integers of fewer than eight bits alone, but for what they are converted to.
    """
    draft = Draft(np.random.default_rng([seed, number]))
    steps = _MOVES if moves else (*_STEPS, *_MORE) if wide else _STEPS
    is_narrow = number % 16 in (5, 13, 15)
    steps = (*steps, *[narrow_chains] * 12) if is_narrow else steps
    kinds = NARROW if is_narrow else (*_FLOATS, "s32", "u32", "s8", "s4", "u4")
    body = Body(draft, draft.emit, [], "", (*steps, *more))
    for _ in range(draft.integer(1, 4)):
        kind = draft.pick(kinds)
        dims = _dims(draft, wide=wide)
        name = draft.parameter(kind, dims, SMALL)
        body.values.append(Named(name, kind, tuple(dims)))
    size = draft.integer(1, 9)
    indices = draft.rng.integers(-2, 9, size).astype(np.int32)
    body.values.append(Named(draft.parameter("s32", [size], values=indices), "s32", (size,)))
    choice = np.asarray(draft.integer(-1, 3), np.int32)
    body.values.append(Named(draft.parameter("s32", [], values=choice), "s32", ()))
    for _ in range(draft.integer(2, 9) if moves else draft.integer(4, 40)):
        body.step()
    picked = [body.values[-1], *(body.pick() or body.values[-1] for _ in range(3))]
    results = list(dict.fromkeys([*picked, *body.results[:8]]))
    shapes = ", ".join(f"{v.kind}[{join(v.dims)}]" for v in results)
    draft.emit(f"({shapes})", f"tuple({', '.join(v.name for v in results)})")
    return draft.finish("module", EXACT)
