"""Collectives, over 2 or 4 replicas with an argument each."""

from __future__ import annotations

from fuzz.programs.draft import Draft, Program, family, join
from fuzz.programs.values import EDGES, SMALL, is_float
from fuzz.support.tolerances import EXACT, SUMS


def _groups(draft: Draft, count: int) -> list[list[int]]:
    """The replicas in groups of one size, in any order."""
    size = draft.pick([n for n in range(1, count + 1) if count % n == 0 and (n > 1 or draft.chance(0.2))] or [count])
    order = draft.permutation(count)
    return [order[i : i + size] for i in range(0, count, size)]


def _groups_text(groups: list[list[int]]) -> str:
    return "{" + ",".join(f"{{{join(group)}}}" for group in groups) + "}"


@family("replica-id", ("u32",), 0.3)
def replica_id(draft: Draft, case: str) -> Program:
    """Each replica's number."""
    draft.replicas(draft.pick([2, 4]))
    draft.emit(f"{case}[]", "replica-id()")
    return draft.finish("replica-id", EXACT, case)


@family("partition-id", ("u32",), 0.2)
def partition_id(draft: Draft, case: str) -> Program:
    """The number of the only partition."""
    draft.replicas(draft.pick([1, 2]))
    draft.emit(f"{case}[]", "partition-id()")
    return draft.finish("partition-id", EXACT, case)


@family("all-reduce", ("f32", "s32", "f64", "bf16", "pred", "u8", "c64", "several f32"), 1.6)
def all_reduce(draft: Draft, case: str) -> Program:
    """Sums and others over groups of replicas; of several arrays at once."""
    count = draft.pick([2, 4])
    draft.replicas(count)
    kind = case.rsplit(maxsplit=1)[-1]
    choices = {"pred": ["and", "or"], "c64": ["add"]}.get(kind, ["add", "maximum", "minimum", "multiply"])
    opcode = draft.pick(choices)
    exact = not is_float(kind) and kind != "c64"
    style = EDGES if exact or opcode in ("maximum", "minimum") else SMALL
    sizes = [draft.dims() for _ in range(2 if " " in case else 1)]
    operands = [draft.parameter(kind, dims, style, plain=True) for dims in sizes]
    shapes = [f"{kind}[{join(dims)}]" for dims in sizes]
    shape = shapes[0] if len(shapes) == 1 else f"({', '.join(shapes)})"
    groups = "{}" if draft.chance(0.3) else _groups_text(_groups(draft, count))
    called = draft.reducer(opcode, kind)
    draft.emit(shape, f"all-reduce({', '.join(operands)}), replica_groups={groups}, to_apply={called}")
    return draft.finish("all-reduce", EXACT if style == EDGES else SUMS, f"{case} {opcode}")


@family("all-gather", ("f32", "s8", "bf16", "pred", "c64"), 1)
def all_gather(draft: Draft, case: str) -> Program:
    """Every replica's array, one after the other along a dimension."""
    count = draft.pick([2, 4])
    draft.replicas(count)
    groups = _groups(draft, count)
    dims = draft.dims(1, 3)
    along = draft.integer(0, len(dims) - 1)
    operand = draft.parameter(case, dims, plain=True)
    result = [n * len(groups[0]) if d == along else n for d, n in enumerate(dims)]
    call = f"all-gather({operand}), dimensions={{{along}}}, replica_groups={_groups_text(groups)}"
    draft.emit(f"{case}[{join(result)}]", call)
    return draft.finish("all-gather", EXACT, case)


@family("reduce-scatter", ("f32", "s32", "f64"), 1)
def reduce_scatter(draft: Draft, case: str) -> Program:
    """A sum of which each replica gets a part."""
    count = draft.pick([2, 4])
    draft.replicas(count)
    groups = _groups(draft, count)
    dims = draft.dims(1, 3, most=40, empty=0.0)
    along = draft.integer(0, len(dims) - 1)
    operand = draft.parameter(
        case, [n * len(groups[0]) if d == along else n for d, n in enumerate(dims)], SMALL, plain=True
    )
    called = draft.reducer("add", case)
    text = _groups_text(groups)
    draft.emit(
        f"{case}[{join(dims)}]",
        f"reduce-scatter({operand}), dimensions={{{along}}}, replica_groups={text}, to_apply={called}",
    )
    return draft.finish("reduce-scatter", SUMS if is_float(case) else EXACT, case)


@family("all-to-all", ("array f32", "array s32", "tuple f32", "tuple s8"), 1)
def all_to_all(draft: Draft, case: str) -> Program:
    """Parts of an array, or elements of a tuple, one to each replica."""
    form, kind = case.split()
    count = draft.pick([2, 4])
    draft.replicas(count)
    groups = _groups(draft, count)
    size, text = len(groups[0]), _groups_text(groups)
    dims = draft.dims(1, 3, most=40)
    if form == "array":
        along = draft.integer(0, len(dims) - 1)
        whole = [n * size if d == along else n for d, n in enumerate(dims)]
        operand = draft.parameter(kind, whole, plain=True)
        draft.emit(f"{kind}[{join(whole)}]", f"all-to-all({operand}), dimensions={{{along}}}, replica_groups={text}")
    else:
        operands = [draft.parameter(kind, dims, plain=True) for _ in range(size)]
        shapes = ", ".join([f"{kind}[{join(dims)}]"] * size)
        draft.emit(f"({shapes})", f"all-to-all({', '.join(operands)}), replica_groups={text}")
    return draft.finish("all-to-all", EXACT, case)


@family("collective-permute", ("f32", "s32", "pred"), 0.8)
def collective_permute(draft: Draft, case: str) -> Program:
    """From some replicas to others; a replica that receives nothing has zeros."""
    count = draft.pick([2, 4])
    draft.replicas(count)
    dims = draft.dims()
    operand = draft.parameter(case, dims, plain=True)
    call = f"collective-permute({operand}), source_target_pairs={_pairs(draft, count)}"
    draft.emit(f"{case}[{join(dims)}]", call)
    return draft.finish("collective-permute", EXACT, case)


@family("collective-broadcast", ("f32", "s32"), 0.2)
def collective_broadcast(draft: Draft, case: str) -> Program:
    """From the first of each group to all of it."""
    count = draft.pick([2, 4])
    draft.replicas(count)
    dims = draft.dims()
    operand = draft.parameter(case, dims, plain=True)
    draft.emit(
        f"{case}[{join(dims)}]",
        f"collective-broadcast({operand}), replica_groups={_groups_text(_groups(draft, count))}",
    )
    return draft.finish("collective-broadcast", EXACT, case)


@family("all-reduce-done", ("f32", "s32", "f64"), 0.4)
def all_reduce_done(draft: Draft, case: str) -> Program:
    """A sum that is started, and waited for."""
    draft.replicas(draft.pick([2, 4]))
    dims = draft.dims()
    operand, shape = draft.parameter(case, dims, SMALL, plain=True), f"{case}[{join(dims)}]"
    called = draft.reducer("add", case)
    started = draft.emit(shape, f"all-reduce-start({operand}), replica_groups={{}}, to_apply={called}")
    draft.emit(shape, f"all-reduce-done({started})")
    return draft.finish("all-reduce-done", SUMS if is_float(case) else EXACT, case)


@family("all-gather-done", ("f32", "s8", "bf16"), 0.4)
def all_gather_done(draft: Draft, case: str) -> Program:
    """A gather that is started, and waited for."""
    count = draft.pick([2, 4])
    draft.replicas(count)
    dims = draft.dims(1, 3)
    along = draft.integer(0, len(dims) - 1)
    operand = draft.parameter(case, dims, plain=True)
    shape = f"{case}[{join([n * count if d == along else n for d, n in enumerate(dims)])}]"
    started = draft.emit(
        f"({case}[{join(dims)}], {shape})", f"all-gather-start({operand}), dimensions={{{along}}}, replica_groups={{}}"
    )
    draft.emit(shape, f"all-gather-done({started})")
    return draft.finish("all-gather-done", EXACT, case)


@family("collective-permute-done", ("f32", "s32", "pred"), 0.4)
def collective_permute_done(draft: Draft, case: str) -> Program:
    """A permutation that is started, and waited for."""
    count = draft.pick([2, 4])
    draft.replicas(count)
    dims = draft.dims()
    operand, shape = draft.parameter(case, dims, plain=True), f"{case}[{join(dims)}]"
    call = f"collective-permute-start({operand}), source_target_pairs={_pairs(draft, count)}"
    started = draft.emit(f"({shape}, {shape})", call)
    draft.emit(shape, f"collective-permute-done({started})")
    return draft.finish("collective-permute-done", EXACT, case)


def _pairs(draft: Draft, count: int) -> str:
    """Some sources, each with a target of its own."""
    pairs = zip(draft.permutation(count), draft.permutation(count), strict=True)
    return _groups_text([list(pair) for pair in pairs][: draft.integer(1, count)])
