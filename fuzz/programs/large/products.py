"""Products and convolutions whose rows and columns are those of several dimensions, in any order.

Where rows follow on one another only within a run, as those of windows do, and runs are no whole vectors, what packs,
loads or stores vectors must end with the run.
"""

from __future__ import annotations

import math

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
    names, numbers, free = list[str](), list[str](), list[list[int]]()
    for own, label in ((rows, "lhs"), (columns, "rhs")):
        sizes = [*batch, *terms, *own]
        order = draft.permutation(len(sizes)) if draft.chance(0.7) else list(range(len(sizes)))
        place = [order.index(i) for i in range(len(sizes))]
        dims = [sizes[i] for i in order]
        names.append(draft.parameter(source, dims, values=draft.whole(source, dims, 4 * math.prod(terms))))
        outer = len(batch) + len(terms)
        numbers.append(f"{label}_contracting_dims={{{join(place[len(batch) : outer])}}}")
        if batch:
            numbers.append(f"{label}_batch_dims={{{join(place[: len(batch)])}}}")
        free.append([sizes[i] for i in order if i >= outer])
    dims = [*batch, *free[0], *free[1]]
    draft.emit(draft.shape(target, dims), f"dot({', '.join(names)}), {', '.join(numbers)}")
    return draft.exact("dot", case)


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
