"""gather and scatter under any valid dimension numbers, sort, topk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fuzz.programs.draft import Draft, Program, family, join
from fuzz.programs.operations.movement import index_values
from fuzz.programs.values import ALL_TYPES, COMPLEX, EDGES, FINITE, SMALL, Array, is_complex, is_float
from fuzz.support.tolerances import BITS, EXACT, SUMS

_INDEX_TYPES = ("s32", "s32", "s64", "u32", "u8", "s8", "s16", "u64")


@dataclass(frozen=True, slots=True)
class Indexing:
    """The dimension numbers that gather and scatter share, and the sizes of the three arrays."""

    operand: list[int]
    indices: list[int]
    window: list[int]  # slice sizes, one for each operand dimension
    result: list[int]  # of gather; scatter's updates
    offset: list[int]  # dimensions of the result that are the window's
    dropped: list[int]  # operand dimensions that the result lacks
    index_map: list[int]
    batching: list[int]
    indices_batching: list[int]
    index_vector_dim: int

    def gather(self, operand: str, indices: str) -> str:
        """The call of a gather."""
        names = ("offset_dims", "collapsed_slice_dims", "start_index_map", "operand_batching_dims", "start")
        return f"gather({operand}, {indices}), {self._numbers(*names)}, slice_sizes={{{join(self.window)}}}"

    def scatter(self, arrays: Sequence[str], called: str) -> str:
        """The call of a scatter, of operands, indices and updates."""
        names = ("update_window_dims", "inserted_window_dims", "scatter_dims_to_operand_dims", "input_batching_dims")
        return f"scatter({', '.join(arrays)}), {self._numbers(*names, 'scatter')}, to_apply={called}"

    def _numbers(self, offset: str, dropped: str, index_map: str, batching: str, indices: str) -> str:
        """The dimension numbers, by the names that the operation has for them."""
        parts = {offset: self.offset, dropped: self.dropped, index_map: self.index_map}
        if self.batching:
            parts |= {batching: self.batching, f"{indices}_indices_batching_dims": self.indices_batching}
        lists = ", ".join(f"{name}={{{join(numbers)}}}" for name, numbers in parts.items())
        return f"{lists}, index_vector_dim={self.index_vector_dim}"


def _indexing(draft: Draft, *, full_windows: bool) -> Indexing:
    operand = draft.dims(1, 4, most=80, empty=0.0)
    rank = len(operand)
    roles = [draft.pick(["kept", "kept", "dropped", "batching"]) for _ in range(rank)]
    if roles.count("batching") > 2:
        roles = ["kept" if role == "batching" else role for role in roles]
    batching = [d for d in range(rank) if roles[d] == "batching"]
    dropped = [d for d in range(rank) if roles[d] == "dropped"]
    candidates = [d for d in range(rank) if roles[d] != "batching"]
    mapped = [candidates[i] for i in draft.permutation(len(candidates))[: draft.integer(0, len(candidates))]]
    if full_windows:
        mapped += [d for d in dropped if d not in mapped]
    window = [1 if roles[d] != "kept" else draft.integer(1, operand[d]) for d in range(rank)]
    if full_windows:
        window = [operand[d] if d not in mapped and roles[d] == "kept" else window[d] for d in range(rank)]
    # The batch dimensions of the indices: some match operand dimensions, the others are free.
    sizes = [operand[d] for d in batching] + draft.integers(1, 4, draft.integer(0, 2))
    order = draft.permutation(len(sizes))
    batch = [sizes[i] for i in order]
    vector_dim = draft.integer(0, len(batch))
    implicit = len(mapped) == 1 and draft.chance(0.5)
    indices = list(batch) if implicit else [*batch[:vector_dim], len(mapped), *batch[vector_dim:]]
    if implicit:
        vector_dim = len(batch)
    place = [order.index(i) for i in range(len(batching))]
    indices_batching = [p if implicit or p < vector_dim else p + 1 for p in place]
    kept = [window[d] for d in range(rank) if roles[d] == "kept"]
    offset = draft.subset(len(batch) + len(kept), len(kept))
    windows, batches = iter(kept), iter(batch)
    result = [next(windows) if d in offset else next(batches) for d in range(len(batch) + len(kept))]
    return Indexing(operand, indices, window, result, offset, dropped, mapped, batching, indices_batching, vector_dim)


def _index_parameter(draft: Draft, numbers: Indexing) -> str:
    kind = draft.pick(_INDEX_TYPES)
    largest = max([numbers.operand[d] for d in numbers.index_map], default=1)
    return draft.parameter(kind, numbers.indices, values=index_values(draft, kind, numbers.indices, largest))


@family("gather", ALL_TYPES, 6)
def gather(draft: Draft, case: str) -> Program:
    """Indices of every type, out of bounds too; batching dimensions; slices without elements."""
    numbers = _indexing(draft, full_windows=False)
    if numbers.dropped and draft.chance(0.3):
        # A slice without elements of a dimension that the result leaves out, which has zeros there.
        numbers.window[draft.pick(numbers.dropped)] = 0
    operand = draft.parameter(case, numbers.operand)
    indices = _index_parameter(draft, numbers)
    draft.emit(draft.shape(case, numbers.result), numbers.gather(operand, indices))
    return draft.finish("gather", BITS, case)


_SCATTER_TYPES = ("f32", "f64", "bf16", "f16", "s32", "s8", "u8", "u64", "pred", "c64", "s4", "f8e5m2", "variadic f32")


@family("scatter", _SCATTER_TYPES, 6)
def scatter(draft: Draft, case: str) -> Program:
    """Replacing, adding, the greatest and the least; indices out of bounds; batching dimensions."""
    count, kind = (2, case.split()[1]) if " " in case else (1, case)
    numbers = _indexing(draft, full_windows=draft.chance(0.5))
    choices = ["add", "maximum", "minimum", "multiply", "replace"]
    if kind == "pred":
        choices = ["or", "and", "replace"]
    elif is_complex(kind):
        choices = ["add", "replace"]
    opcode = draft.pick(choices)
    exact = not (is_float(kind) or is_complex(kind)) or opcode in ("maximum", "minimum", "replace")
    style = EDGES if exact else SMALL
    operands = [draft.parameter(kind, numbers.operand, style) for _ in range(count)]
    indices = _index_parameter(draft, numbers)
    updates = [draft.parameter(kind, numbers.result, style) for _ in range(count)]
    called = scatter_computation(draft, opcode, kind, count)
    shape = f"{kind}[{join(numbers.operand)}]"
    call = numbers.scatter([*operands, indices, *updates], called)
    draft.emit(shape if count == 1 else f"({', '.join([shape] * count)})", call)
    return draft.finish("scatter", EXACT if exact else SUMS, f"{case} {opcode}")


def scatter_computation(draft: Draft, opcode: str, kind: str, count: int) -> str:
    """The computation of a scatter of ``count`` arrays that combines each by itself."""
    if count == 1 and opcode != "replace":
        return draft.reducer(opcode, kind)
    lines = [f"x{i} = {kind}[] parameter({i})" for i in range(2 * count)]
    if opcode == "replace":
        names = [f"x{count + i}" for i in range(count)]
        # A root needs a line of its own.
        lines.append(f"r = {kind}[] copy({names[0]})" if count == 1 else _tuple_line(kind, names))
    else:
        lines += [f"r{i} = {kind}[] {opcode}(x{i}, x{count + i})" for i in range(count)]
        lines.append(_tuple_line(kind, [f"r{i}" for i in range(count)]))
    return draft.computation(lines)


def _tuple_line(kind: str, names: Sequence[str]) -> str:
    return f"r = ({', '.join([f'{kind}[]'] * len(names))}) tuple({', '.join(names)})"


@family("sort", tuple(k for k in ALL_TYPES if k not in COMPLEX), 4)
def sort(draft: Draft, case: str) -> Program:
    """By the first operand, up or down, stable; other operands of other types go along."""
    dims = draft.dims(1, 3)
    along = draft.integer(0, len(dims) - 1)
    kinds = [case, *(draft.pick(["f32", "s32", "bf16", "pred"]) for _ in range(draft.pick([0, 0, 1, 2])))]
    operands = [draft.parameter(kind, dims, plain=True) for kind in kinds]
    lines: list[str] = []
    for i, kind in enumerate(kinds):
        lines += [f"x{i} = {kind}[] parameter({2 * i})", f"y{i} = {kind}[] parameter({2 * i + 1})"]
    order = ", type=TOTALORDER" if is_float(case) else ""
    lines.append(f"r = pred[] compare(x0, y0), direction={draft.pick(['LT', 'GT'])}{order}")
    called = draft.computation(lines)
    shapes = [f"{kind}[{join(dims)}]" for kind in kinds]
    shape = shapes[0] if len(kinds) == 1 else f"({', '.join(shapes)})"
    draft.emit(shape, f"sort({', '.join(operands)}), dimensions={{{along}}}, is_stable=true, to_apply={called}")
    return draft.finish("sort", EXACT, " ".join(kinds))


@family("topk", ("f32", "bf16", "s32", "u8", "f64", "s64", "f16"), 1.5)
def topk(draft: Draft, case: str) -> Program:
    """The greatest or the least along the last dimension; ties are many."""
    dims = draft.dims(1, 3, empty=0.0)
    k = draft.integer(1, dims[-1])
    values = _with_ties(draft, case, dims)
    operand = draft.parameter(case, dims, values=values, plain=True)
    result = join([*dims[:-1], k])
    largest = str(draft.chance(0.7)).lower()
    draft.emit(f"({case}[{result}], s32[{result}])", f"topk({operand}), k={k}, largest={largest}")
    return draft.finish("topk", EXACT, f"{case} largest={largest}")


def _with_ties(draft: Draft, kind: str, dims: Sequence[int]) -> Array:
    from fuzz.programs.values import make_values

    values = make_values(draft.rng, kind, dims, draft.pick([FINITE, SMALL]))
    flat = values.reshape(-1)
    return np.asarray(flat[draft.rng.integers(0, max(1, flat.size // 2), flat.size)].reshape(tuple(dims)))
