"""Large gathers and scatters: rows, elements, columns and windows; places that are sorted, the same, or outside."""

from __future__ import annotations

import math

import numpy as np

from fuzz.programs.draft import Program, join
from fuzz.programs.large.drafts import EQUAL, LargeDraft, kind
from fuzz.programs.operations.indexing import Indexing, scatter_computation
from fuzz.programs.operations.movement import kind_dtype
from fuzz.programs.values import EDGES, Array, bits_of, is_complex, is_float
from fuzz.support.tolerances import EXACT

_TYPES = ("f32", "bf16", "s8", "f64", "s32", "pred", "u16", "c64", "s4", "f16", "u64", "c128")
_FEW = 40_000
_INDEX_TYPES = ("s32", "s32", "s64", "u32", "u64")


def _indexing(draft: LargeDraft, most: int) -> Indexing:
    """Dimension numbers, and sizes with about ``most`` elements in the windows."""
    operand = draft.dims(1, 3)
    rank = len(operand)
    roles = [draft.pick(["full", "full", "part", "dropped", "dropped"]) for _ in range(rank)]
    if rank > 1 and draft.chance(0.15):
        roles[draft.integer(0, rank - 1)] = "batching"
    mapped = [d for d in range(rank) if roles[d] in ("dropped", "part")]
    mapped = [mapped[i] for i in draft.permutation(len(mapped))]
    short = draft.pick([3, 17, 10_000_000])
    window = [
        n if role == "full" else draft.integer(1, min(n, short)) if role == "part" else 1
        for n, role in zip(operand, roles, strict=True)
    ]
    batching = [d for d in range(rank) if roles[d] == "batching"]
    each = math.prod(window) * math.prod(operand[d] for d in batching)
    count = max(1, min(most // each, draft.pick([1_000_000, 50_000, 300])))
    first = draft.pick([count, max(1, round(count**0.5))])
    batch = [*(operand[d] for d in batching), *([first] if first == count else [first, count // first])]
    order = draft.permutation(len(batch))
    batch = [batch[i] for i in order]
    vector_dim = draft.pick([len(batch), draft.integer(0, len(batch))])
    indices = [*batch[:vector_dim], len(mapped), *batch[vector_dim:]]
    places = [order.index(i) for i in range(len(batching))]
    indices_batching = [p if p < vector_dim else p + 1 for p in places]
    kept = [window[d] for d in range(rank) if roles[d] in ("full", "part")]
    total = len(batch) + len(kept)
    offset = draft.pick([list(range(len(batch), total)), draft.subset(total, len(kept))])
    windows, batches = iter(kept), iter(batch)
    result = [next(windows) if d in offset else next(batches) for d in range(total)]
    dropped = [d for d in range(rank) if roles[d] == "dropped"]
    return Indexing(operand, indices, window, result, offset, dropped, mapped, batching, indices_batching, vector_dim)


def _places(draft: LargeDraft, numbers: Indexing, index: str) -> Array:
    """Index vectors: uniform, sorted, a few again and again, or each once; some outside."""
    vectors = np.moveaxis(np.empty(numbers.indices, np.int64), numbers.index_vector_dim, -1)
    count = math.prod(vectors.shape[:-1])
    room = [numbers.operand[d] - numbers.window[d] + 1 for d in numbers.index_map]
    form = draft.pick(["uniform", "uniform", "sorted", "few", "once"])
    everything = math.prod(room)
    linear = draft.rng.integers(0, everything, count)
    if form == "few":
        linear = linear[draft.rng.integers(0, min(count, draft.integer(1, 40)), count)]
    elif form == "once" and count <= everything <= 4_000_000:
        linear = draft.rng.permutation(everything)[:count]
    elif form == "sorted":
        linear = np.sort(linear)
    parts = np.stack(np.unravel_index(linear, room), axis=-1) if room else np.zeros((count, 0), np.int64)
    if draft.chance(0.4) and count:
        outside = draft.rng.random(count) < draft.pick([0.001, 0.2])
        far = draft.rng.choice(np.array([-1, -2, 1_000_000, 5, -(1 << 31), (1 << 31) - 1]), (count, len(room)))
        parts = np.where(outside[:, None], parts + far, parts)
    if index[0] == "u":
        parts = np.abs(parts)
    vectors[...] = parts.reshape(vectors.shape)
    bits = bits_of(index)
    least, most = (0, (1 << min(bits, 63)) - 1) if index[0] == "u" else (-(1 << bits - 1), (1 << bits - 1) - 1)
    array = np.clip(np.moveaxis(vectors, -1, numbers.index_vector_dim), least, most)
    return np.ascontiguousarray(array).astype(kind_dtype(index))


@kind("gather", _TYPES, 3)
def gather(draft: LargeDraft, case: str) -> Program:
    """Of an array as it is, or as it is computed on the way; the result is used as it comes."""
    numbers = _indexing(draft, draft.most)
    operand = draft.before(draft.parameter(case, numbers.operand), case, numbers.operand)
    index = draft.pick(_INDEX_TYPES)
    indices = draft.parameter(index, numbers.indices, values=_places(draft, numbers, index))
    name = draft.emit(f"{case}[{join(numbers.result)}]", numbers.gather(operand, indices))
    draft.emit(draft.shape(case, numbers.result), f"copy({draft.before(name, case, numbers.result)})")
    return draft.exact("gather", case)


@kind("scatter", (*_TYPES, "variadic f32", "variadic s16", "f32", "s32"), 6, (30_000, 1_500_000))
def scatter(draft: LargeDraft, case: str) -> Program:
    """Every combiner; the operand given, or made by the program."""
    count, element = (2, case.split()[1]) if " " in case else (1, case)
    choices = ["add", "add", "maximum", "minimum", "multiply", "replace", "subtract"]
    if element == "pred":
        choices = ["or", "and", "xor", "replace"]
    elif is_complex(element):
        choices = ["add", "replace"]
    opcode = draft.pick(choices)
    # The interpreter applies what it knows no function of NumPy for to one update of each element at a time.
    numbers = _indexing(draft, _FEW if opcode == "subtract" or count > 1 else draft.most)
    rounded = is_float(element) or is_complex(element)
    places = math.prod(numbers.result) // max(1, math.prod(numbers.window))

    def array(dims: list[int]) -> str:
        values = None
        if opcode in ("add", "subtract") and rounded:
            values = draft.whole(element, dims, places)
        elif opcode == "multiply":
            values = draft.factors(element, dims)
        name = draft.parameter(element, dims, EDGES, values)
        return draft.before(name, element, dims) if values is None else name

    operands: list[str] = []
    for _ in range(count):
        if draft.chance(0.3):
            # A sum with a fraction is rounded in the order of its terms, which is not specified.
            sums = opcode in ("add", "subtract") and rounded
            values = draft.whole(element, [], places) if sums else draft.factors(element, [])
            constant = draft.parameter(element, [], values=values)
            operands.append(
                draft.emit(f"{element}[{join(numbers.operand)}]", f"broadcast({constant}), dimensions={{}}")
            )
        else:
            operands.append(array(numbers.operand))
    index = draft.pick(_INDEX_TYPES)
    indices = draft.parameter(index, numbers.indices, values=_places(draft, numbers, index))
    updates = [array(numbers.result) for _ in range(count)]
    called = scatter_computation(draft, opcode, element, count)
    shape = f"{element}[{join(numbers.operand)}]"
    call = numbers.scatter([*operands, indices, *updates], called)
    draft.emit(shape if count == 1 else f"({', '.join([shape] * count)})", call)
    return draft.finish("scatter", EQUAL if is_complex(element) else EXACT, f"{case} {opcode}")
