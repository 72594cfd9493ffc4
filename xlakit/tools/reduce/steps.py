"""The steps of a reduction, each of which makes the best module of a search smaller in one way."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from xlakit.ir.instruction import HloModule, Instruction
from xlakit.ir.operation import Op
from xlakit.ops.control import Call, Conditional, Fusion, While
from xlakit.ops.data import Constant, GetTupleElement, Parameter, Tuple
from xlakit.tools.reduce.edits import Draft, edited, edited_at, path_of, without_annotations
from xlakit.tools.reduce.search import Candidate, Search, repeated

# One way of making the best module of a search smaller.
Step = Callable[[Search], None]
# So many results are tried one by one; more are halved.
_FEW_RESULTS = 8


def drop_annotations(search: Search) -> None:
    """Drop metadata, shardings, layouts, aliases and attributes of frontends and backends."""
    if not search.try_one(lambda: without_annotations(search.best)):
        search.try_one(lambda: without_annotations(search.best, layouts=True))
    search.try_one(lambda: edited(search.best))


# -- the entry -------------------------------------------------------------------------------------


def _inner(module: HloModule) -> list[Instruction]:
    """The instructions of the entry that compute something."""
    return [i for i in module.entry.instructions if not isinstance(i.op, (Parameter, Constant))]


def stand_alone(search: Search) -> None:
    """Make all operands in the entry parameters, and all values results.

    Mostly a single instruction is faulty for any operands; it is then found among many results by halving.
    """
    best = search.best
    alone = [i.name for i in _inner(best) if _is_data(i) and not isinstance(i.op, (Tuple, GetTupleElement))]
    if len(alone) > 1:
        search.try_one(lambda: _all_alone(best, alone))


def _all_alone(module: HloModule, names: Sequence[str]) -> HloModule:
    taken: dict[Instruction, Instruction] = {}

    def change(draft: Draft, i: Instruction, op: Op, operands: tuple[Instruction, ...]) -> Instruction | None:
        if not draft.is_entry or isinstance(op, (Parameter, Constant)):
            return None
        for o in i.operands:
            if o not in taken:
                is_given = isinstance(o.op, (Parameter, Constant)) or not _is_data(o)
                taken[o] = draft.new[o] if is_given else draft.parameter(o.shape, draft.unused_name(o.name))
        return draft.keep(i, op, tuple(taken[o] for o in i.operands))

    return edited(module, change, results=names)


def cut_end(search: Search) -> None:
    """Give the values of the first instructions of the entry, and drop all later ones."""
    count = len(_inner(search.best))
    search.bisect(count, lambda module, cut: _prefix(module, count - cut))
    # The last instruction of the shortest prefix is the one that is needed.
    inner = _inner(search.best)
    best = search.best
    search.first([partial(edited, best, results=[i.name]) for i in reversed(inner[-3:])])


def _prefix(module: HloModule, count: int) -> HloModule:
    """The first instructions of the entry, which gives those values of them that none of them reads."""
    instructions = _inner(module)[:count]
    read = {o for i in instructions for o in i.operands}
    ends = [i.name for i in instructions if i not in read and _is_data(i)]
    if not ends:
        raise ValueError("a module gives something")
    return edited(module, results=ends)


def _is_data(i: Instruction) -> bool:
    return all(shape.is_array for _, shape in i.shape.leaves())


def cut_start(search: Search) -> None:
    """Take the values of the first instructions of the entry as parameters."""
    names = [i.name for i in _inner(search.best)]
    search.bisect(len(names), lambda module, cut: replaced_by_parameters(module, names[:cut]))


def cut_around_root(search: Search) -> None:
    """Replace all values by parameters but those within a few steps of the root, where the fault mostly is."""
    best = search.best
    levels = list(_levels(best.entry.root))
    depths = [1 << n for n in range(len(levels).bit_length()) if 1 << n < len(levels)]
    search.first([partial(_around_root, best, {i for level in levels[:depth] for i in level}) for depth in depths])


def _levels(root: Instruction) -> Iterator[list[Instruction]]:
    """The root, its operands, their operands and so on, each instruction as near to the root as it is."""
    seen, level = {root}, [root]
    while level:
        yield level
        level = [o for i in level for o in dict.fromkeys(i.operands) if o not in seen]
        level = list(dict.fromkeys(level))
        seen.update(level)


def _around_root(module: HloModule, kept: set[Instruction]) -> HloModule:
    return replaced_by_parameters(module, [i.name for i in _inner(module) if i not in kept])


def drop_results(search: Search) -> None:
    """Drop elements of the tuple that the entry gives."""
    root = search.best.entry.root
    if isinstance(root.op, Tuple) and len(root.operands) <= _FEW_RESULTS:
        search.first([partial(edited, search.best, results=[o.name]) for o in dict.fromkeys(root.operands)])
    if not isinstance(search.best.entry.root.op, Tuple):
        return

    def results(module: HloModule) -> list[str]:
        root = module.entry.root
        return [o.name for o in dict.fromkeys(root.operands)] if isinstance(root.op, Tuple) else []

    def without(module: HloModule, names: Sequence[str]) -> HloModule:
        left = [name for name in results(module) if name not in set(names)]
        if not left:
            raise ValueError("a module gives something")
        return edited(module, results=left)

    search.minimize(results, without)


def move_root(search: Search) -> None:
    """Give an earlier value of the entry."""
    best = search.best
    values = [i for i in best.entry.instructions if i is not best.entry.root and _is_data(i)]
    search.first([partial(edited, best, results=[i.name]) for i in values if not isinstance(i.op, Parameter)])


@repeated
def move_inner_root(best: HloModule) -> Iterator[Candidate]:
    """Make an earlier value the root of a called or fused computation; users of the call must accept its shape."""
    for computation in best.computations:
        for caller in computation.calling_instructions:
            if isinstance(caller.op, (Call, Fusion)):
                (callee,) = caller.op.called_computations
                for i in callee.instructions:
                    if i is not callee.root and not isinstance(i.op, (Parameter, Constant)):
                        yield partial(edited, best, inner_roots={callee.name: i.name})


def replaced_by_parameters(module: HloModule, names: Sequence[str]) -> HloModule:
    """The module with parameters in place of instructions of the entry."""
    chosen = set(names)

    def change(draft: Draft, i: Instruction, op: Op, operands: tuple[Instruction, ...]) -> Instruction | None:
        if draft.is_entry and i.name in chosen and not isinstance(op, Parameter):
            return draft.parameter(i.shape, i.name)
        return None

    return edited(module, change)


def take_parameters(search: Search) -> None:
    """Replace values of the entry by parameters."""

    def values(module: HloModule) -> list[str]:
        root = module.entry.root
        return [i.name for i in module.entry.instructions if not isinstance(i.op, Parameter) and i is not root]

    search.minimize(values, replaced_by_parameters)


@repeated
def merge_parameters(best: HloModule) -> Iterator[Candidate]:
    """Use one parameter of the entry for another of its shape."""
    parameters = best.entry.parameters
    for n, later in enumerate(parameters):
        for earlier in parameters[:n]:
            if earlier.shape == later.shape:
                yield partial(_merged, best, later.name, earlier.name)
                break


def _merged(module: HloModule, later: str, earlier: str) -> HloModule:
    found: dict[str, Instruction] = {}

    def change(draft: Draft, i: Instruction, op: Op, operands: tuple[Instruction, ...]) -> Instruction | None:
        if not draft.is_entry or i.name not in (later, earlier):
            return None
        if not found:
            # The first one in the list replaces both, at the other's position if needed.
            found["first"] = draft.keep(i, op, operands)
        return found["first"]

    return edited(module, change)


# -- calls -----------------------------------------------------------------------------------------


def inline_calls(search: Search) -> None:
    """Put the computations of calls, fusions, loops (one iteration) and branches in their place."""
    search.minimize(_callers, _inlined)
    for branch in range(_most_branches(search.best)):
        search.minimize(_callers, partial(_inlined, branch=branch))


def _callers(module: HloModule) -> list[str]:
    return [path_of(c, i) for c in module.computations for i in c.calling_instructions if _is_inlined(i)]


def _is_inlined(i: Instruction) -> bool:
    return isinstance(i.op, (Call, Fusion, While, Conditional))


def _most_branches(module: HloModule) -> int:
    counts = [
        len(i.op.branch_computations)
        for c in module.computations
        for i in c.calling_instructions
        if isinstance(i.op, Conditional)
    ]
    return max(counts, default=0)


def _inlined(module: HloModule, paths: Sequence[str], branch: int = 0) -> HloModule:
    def inline(draft: Draft, i: Instruction, op: Op, operands: tuple[Instruction, ...]) -> Instruction | None:
        if isinstance(op, While):
            return draft.inline(op.body, operands)
        if isinstance(op, Conditional):
            chosen = min(branch, len(op.branch_computations) - 1)
            return draft.inline(op.branch_computations[chosen], [operands[1 + chosen]])
        if isinstance(op, (Call, Fusion)):
            return draft.inline(op.called_computations[0], operands)
        return None

    return edited_at(module, paths, inline)


# -- single instructions ---------------------------------------------------------------------------


def pass_operands(search: Search) -> None:
    """Replace instructions by one of their operands, of the same shape; in all computations."""
    for number in range(3):
        search.minimize(partial(_passing, number=number), partial(_replaced_by_operand, number=number))


def _passing(module: HloModule, number: int) -> list[str]:
    return [
        path_of(c, i)
        for c in module.computations
        for i in c.instructions
        if len(i.operands) > number and i.operands[number].shape.compatible(i.shape)
    ]


def _replaced_by_operand(module: HloModule, paths: Sequence[str], number: int) -> HloModule:
    return edited_at(module, paths, lambda draft, i, op, operands: operands[number])


@repeated
def drop_operands(best: HloModule) -> Iterator[Candidate]:
    """Drop operands of operations that take any number of them."""
    for computation in best.computations:
        for i in computation.instructions:
            if i.op.arity is None and not i.op.can_call and len(i.operands) > 1 and not isinstance(i.op, Tuple):
                for number in range(len(i.operands)):
                    yield partial(_without_operand, best, path_of(computation, i), number)


def _without_operand(module: HloModule, path: str, number: int) -> HloModule:
    return edited_at(
        module,
        [path],
        lambda draft, i, op, operands: draft.add(op, operands[:number] + operands[number + 1 :], name=i.name),
    )
