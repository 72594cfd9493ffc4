"""Products and convolutions whose rows and columns are those of several dimensions, in any order.

Where rows follow on one another only within a run, as those of windows do, and runs are no whole vectors, what packs,
loads or stores vectors must end with the run.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from fuzz.programs.draft import Program, join
from fuzz.programs.large.drafts import LargeDraft, kind

# The type of operands, and that of the result.
_TYPES = ("f32 f32", "f64 f64", "f32 f32", "bf16 f32", "s8 s32", "c64 c64", "f16 f32", "s32 s32")
# As many multiplications; what cuts a product into blocks does so at any size when it is forced to.
_ELEMENTS = (20_000, 2_000_000)


def _sizes(draft: LargeDraft, most: float, count: int) -> list[int]:
    """So many sizes whose product is at most a number; odd ones more often than not."""
    sizes: list[int] = []
    for left in range(count, 0, -1):
        bound = max(1, int(most ** (1 / left) * (2 if left > 1 else 1)))
        size = draft.integer(1, min(bound, max(1, int(most))))
        sizes.append(size | 1 if draft.chance(0.6) and size < most else size)
        most = max(1.0, most / sizes[-1])
    return sizes


@kind("product", _TYPES, 3, _ELEMENTS)
def product(draft: LargeDraft, case: str) -> Program:
    """One or two dimensions of rows, columns and terms, and now and then a batch, each in any place of the operand."""
    source, target = case.split()
    most = math.exp(draft.rng.uniform(math.log(draft.least), math.log(draft.most)))
    batch = [draft.integer(2, 4)] if draft.chance(0.2) else []
    side = (most / math.prod(batch)) ** (1 / 3)
    rows, columns, terms = (_sizes(draft, side * draft.pick([0.5, 1.0, 2.0]), draft.integer(1, 2)) for _ in "mnk")
    _dot(draft, source, target, [batch, rows, columns, terms], 4 * math.prod(terms))
    return draft.exact("dot", case)


def _dot(draft: LargeDraft, source: str, target: str, sizes: Sequence[Sequence[int]], terms: int) -> tuple[str, str]:
    """A product of batch, rows, columns and terms of these sizes: its name, and its shape without a layout.

    Each dimension is in any place of the operand. terms: the sums of so many are exact in the type of the operands.
    """
    batch, rows, columns, along = sizes
    names, numbers, free = list[str](), list[str](), list[list[int]]()
    for own, label in ((rows, "lhs"), (columns, "rhs")):
        parts, outer = [*batch, *along, *own], len(batch) + len(along)
        in_turn, shuffled = list(range(len(parts))), draft.permutation(len(parts))
        terms_last = [*in_turn[: len(batch)], *in_turn[outer:], *in_turn[len(batch) : outer]]
        order = draft.pick([shuffled, shuffled, in_turn, terms_last])
        place = [order.index(i) for i in range(len(parts))]
        dims = [parts[i] for i in order]
        names.append(draft.parameter(source, dims, values=draft.whole(source, dims, terms)))
        numbers.append(f"{label}_contracting_dims={{{join(place[len(batch) : outer])}}}")
        if batch:
            numbers.append(f"{label}_batch_dims={{{join(place[: len(batch)])}}}")
        free.append([parts[i] for i in order if i >= outer])
    dims = [*batch, *free[0], *free[1]]
    return draft.emit(draft.shape(target, dims), f"dot({', '.join(names)}), {', '.join(numbers)}"), join(dims)


@kind("vectors", (*_TYPES, "bf16 bf16", "f16 f16"), 3, (100_000, 4_000_000))
def vectors(draft: LargeDraft, case: str) -> Program:
    """A matrix and a few vectors, long or short, often with something added to the result or its negatives left out."""
    source, target = case.split()
    few, depth = draft.integer(1, 9), round(math.exp(draft.rng.uniform(math.log(16), math.log(6000))))
    batch = [draft.integer(2, 4)] if draft.chance(0.2) else []
    most = math.exp(draft.rng.uniform(math.log(draft.least), math.log(draft.most))) / depth / math.prod(batch)
    sides = [[max(1, int(most))], [few]]
    sizes = [batch, *(sides if draft.chance() else sides[::-1]), [depth]]
    # Sums are rounded once, to the type of the result.
    name, dims = _dot(draft, source, target, sizes, 1)
    after = [] if target == "c64" else ["maximum", "minimum"]
    for _ in range(draft.pick([0, 0, 1, 2, 3])):
        opcode = draft.pick(["add", "subtract", *after])
        kept = draft.subset(dims.count(",") + 1, draft.pick([0, 1, 1, dims.count(",") + 1]))
        other_dims = [int(dims.split(",")[d]) for d in kept]
        other = draft.parameter(target, other_dims, values=draft.whole(target, other_dims, 1))
        wide = draft.emit(f"{target}[{dims}]", f"broadcast({other}), dimensions={{{join(kept)}}}")
        name = draft.emit(f"{target}[{dims}]", f"{opcode}({name}, {wide})")
    return draft.exact("dot", case)


@kind("recurrence", ("f32", "f64", "f32", "bf16", "s32"), 2, (3000, 60_000))
def recurrence(draft: LargeDraft, case: str) -> Program:
    """A loop that multiplies a state by a matrix that stays the same, from the left or the right, as it lies or not."""
    side = round(math.exp(draft.rng.uniform(math.log(draft.least), math.log(draft.most))) ** 0.5)
    side = max(1, side // 32 * 32) if draft.chance(0.7) else side
    rows, left, turned = draft.pick([draft.integer(1, 9), draft.integer(1, 40)]), draft.chance(), draft.chance()
    dims = [side, rows] if left else [rows, side]
    state, matrix = f"{case}[{join(dims)}]", f"{case}[{side},{side}]"
    carried = f"(s32[], {state}, {matrix}, {state})"
    own, of_matrix = int(not left), int(left) ^ int(turned)
    dot = (
        f"dot(w, h), lhs_contracting_dims={{{of_matrix}}}, rhs_contracting_dims={{{own}}}"
        if left
        else f"dot(h, w), lhs_contracting_dims={{{own}}}, rhs_contracting_dims={{{of_matrix}}}"
    )
    head = [
        f"s = {carried} parameter(0)",
        "i = s32[] get-tuple-element(s), index=0",
        f"h = {state} get-tuple-element(s), index=1",
    ]
    body = draft.computation(
        [
            *head,
            f"w = {matrix} get-tuple-element(s), index=2",
            f"b = {state} get-tuple-element(s), index=3",
            "one = s32[] constant(1)",
            "j = s32[] add(i, one)",
            f"d = {state} {dot}",
            f"e = {state} add(d, b)",
            # The next state is one of small whole numbers again.
            f"low = {case}[] constant(-3)",
            f"high = {case}[] constant(3)",
            f"f = {state} clamp(low, e, high)",
            f"r = {carried} tuple(j, f, w, b)",
        ]
    )
    more = draft.computation(
        [*head[:2], f"n = s32[] constant({draft.integer(3, 9)})", "r = pred[] compare(i, n), direction=LT"]
    )
    first, fixed, bias = (draft.parameter(case, d, values=draft.whole(case, d, 1)) for d in (dims, [side] * 2, dims))
    zero = draft.emit("s32[]", "constant(0)")
    start = draft.emit(carried, f"tuple({zero}, {first}, {fixed}, {bias})")
    loop = draft.emit(carried, f"while({start}), condition={more}, body={body}")
    draft.emit(draft.shape(case, dims), f"get-tuple-element({loop}), index=1")
    return draft.exact("while", case)


@kind("filter", _TYPES, 3, _ELEMENTS)
def filters(draft: LargeDraft, case: str) -> Program:
    """A convolution in two dimensions, its gradient by the filter, or that by the input, of odd sizes."""
    source, target = case.split()
    most = math.exp(draft.rng.uniform(math.log(draft.least), math.log(draft.most)))
    size, stride = draft.pick([1, 2, 3, 5]), draft.pick([1, 1, 2])
    # Rows and columns are many where there is a choice: the terms are what is left.
    inputs, outputs = (
        draft.pick([3, 8, 24, 40, draft.integer(5, 70)]),
        draft.pick([3, 8, 32, 64, draft.integer(5, 130)]),
    )
    places = max(4, int(most / (inputs * outputs * size * size)))
    high, wide = min(draft.pick([4, 5, 8, 9]), places), draft.pick([4, 7, 8])
    batch = max(1, min(places // (high * wide), 8))
    pad = size // 2
    around = f"pad={pad}_{pad}x{pad}_{pad}"
    if draft.chance(0.65):
        # Rows are those of taps and input features, terms the places and the batch.
        lhs, rhs = [batch, high, wide, inputs], [batch, high, wide, outputs]
        window, labels = f"size={high}x{wide} {around}", "f01b_i01o->01bf"
        result, terms = [2 * pad + 1, 2 * pad + 1, inputs, outputs], batch * high * wide
    else:
        across = [(extent + 2 * pad - size) // stride + 1 for extent in (high, wide)]
        window = f"size={size}x{size} stride={stride}x{stride} {around}"
        terms = size * size * inputs
        if draft.chance(0.7):
            labels, lhs, rhs = "b01f_01io->b01f", [batch, high, wide, inputs], [size, size, inputs, outputs]
            result = [batch, *across, outputs]
        else:
            labels, lhs, rhs = "bf01_oi01->bf01", [batch, inputs, high, wide], [outputs, inputs, size, size]
            result = [batch, outputs, *across]
    x, y = (
        draft.parameter(source, dims, values=draft.whole(source, dims, 4 * terms), plain=True) for dims in (lhs, rhs)
    )
    call = f"convolution({x}, {y}), window={{{window}}}, dim_labels={labels}"
    draft.emit(f"{target}[{join(result)}]", call)
    return draft.exact("convolution", case)
