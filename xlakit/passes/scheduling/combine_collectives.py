"""Combines independent collectives into one on several arrays, so that devices have one rendezvous instead of many."""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Sequence, Set

from xlakit import link, machine
from xlakit.data.shape import Shape, make_tuple_shape
from xlakit.ir.instruction import Computation, HloModule, Instruction
from xlakit.ops.communication.collective_moves import CollectivePermute
from xlakit.ops.communication.collectives import AllGather, AllReduce, ReduceScatter
from xlakit.ops.communication.sites import site_of
from xlakit.options import knob
from xlakit.passes.analysis.sites import COLLECTIVES, sites_met_apart
from xlakit.passes.core.computation_builder import ComputationCloner
from xlakit.passes.core.framework import Pass, PassContext, change_computations
from xlakit.passes.simplify.common_subexpressions import CommonSubexpressions


def _most_bytes() -> int:
    # The bytes that memory moves in the time in which a thread wakes up: delaying more bytes costs more than the saved
    # rendezvous. Between processes, the bytes that the link moves in its latency: the machines may differ, but all
    # processes must combine alike, so only numbers of the link count.
    between = link.current()
    if between is not None:
        return int(between.alpha / between.beta)
    own = machine.current()
    return int(own.wake_nanoseconds * own.bandwidth(4 * own.l3))


_MOST_BYTES = knob("combine_collectives.most_bytes", _most_bytes, 0, 1 << 40)
# The limit of operands bounds the size of the code, which is separate for each operand.
_MOST_OPERANDS = knob("combine_collectives.most_operands", 64, 3)

_KINDS = (AllGather, AllReduce, CollectivePermute, ReduceScatter)


class CombineCollectives(Pass):
    """Replace small collectives of one kind, in the same groups or along the same pairs, by one on all operands.

    ``all-reduce(a), all-reduce(b)`` is ``all-reduce(a, b)`` where neither needs the other's result; each element is
    combined in the same order as before. Collectives on the same operands become one, of any size, and common
    subexpressions of their results are merged. A collective is not moved across an instruction with another side
    effect (a feed, a call, a loop with a collective in it). Collectives of one site
    (:mod:`xlakit.ops.communication.sites`) are left alone if one of them is in a branch of a conditional or in a loop
    of unknown trip count, and others are elsewhere: devices may arrive at different ones.
    """

    name = "combine-collectives"

    def run(self, module: HloModule, context: PassContext) -> HloModule:
        """Change every computation."""
        if sum(isinstance(i.op, COLLECTIVES) for i in module.instructions) < 2:
            return module
        kept = sites_met_apart(module)
        return change_computations(module, lambda computation: _changed(computation, kept, context))


def _changed(computation: Computation, kept: Set[str], context: PassContext) -> Computation:
    """The computation with its collectives combined, without those of sites that are ``kept``."""
    computation = _without_equal_ones(computation, kept, context)
    seen: set[Hashable] = set()
    while True:
        # Keys are visited in program order, not in that of hashes, because combining one group changes the dependencies
        # of the others.
        keys = _keys(computation, kept)
        repeated = [key for key, count in Counter(keys.values()).items() if count > 1 and key not in seen]
        if not repeated:
            return computation
        seen.add(repeated[0])
        predecessors = {p for i in computation.instructions for p in i.control_predecessors}
        own = {i for i, key in keys.items() if key == repeated[0] and i not in predecessors}
        groups = [g for g in _groups(computation.instructions, own, kept) if context.spend("combine", len(g) - 1)]
        if groups:
            computation = _rebuilt(computation, groups, context)


def _without_equal_ones(computation: Computation, kept: Set[str], context: PassContext) -> Computation:
    """The computation with equal collectives on the same operands merged, and common subexpressions of their results.

    Merged results may be operands of further equal collectives, so this repeats up to a fixed point; an example is a
    forward pass that a program has twice, with and without a gradient.
    """
    while True:
        predecessors = {p for i in computation.instructions for p in i.control_predecessors}
        alike: dict[Hashable, list[Instruction]] = defaultdict(list)
        fences = 0
        keys = _keys(computation, kept)
        for instruction in computation.instructions:
            fences += _is_fence(instruction, kept)
            if instruction in keys and instruction not in predecessors:
                alike[fences, keys[instruction], instruction.operands].append(instruction)
        # All members of a group have the same operands, so none depends on another one.
        groups = [g for g in alike.values() if len(g) > 1 and context.spend("combine", len(g) - 1)]
        if not groups:
            return computation
        computation = CommonSubexpressions().change(_rebuilt(computation, groups, context), context)


def _keys(computation: Computation, kept: Set[str]) -> dict[Instruction, Hashable]:
    """The collectives that may be combined, in program order, with their keys."""
    return {i: key for i in computation.instructions if (key := _common_of(i, kept)) is not None}


def _common_of(instruction: Instruction, kept: Set[str]) -> Hashable:
    """The key of a collective, equal for collectives that may be combined; None if it must be left alone."""
    op = instruction.op
    if not isinstance(op, _KINDS) or instruction.control_predecessors:
        return None
    if isinstance(op, CollectivePermute) and op.slice_sizes:
        return None
    shapes = [o.shape for o in instruction.operands]
    if any(not s.is_array or s.is_dynamic for s in shapes):
        return None
    if site_of(instruction) in kept:
        return None
    # Large collectives are only combined with those on the same operands.
    large = instruction.operands if sum(s.byte_size for s in shapes) > _MOST_BYTES.value else ()
    annotations = instruction.annotations
    kind = dataclasses.replace(op, channel_id=None if op.channel_id is None else 0)
    # Collectives that only move elements take arrays of any types; reductions need the type of their computation.
    types = () if isinstance(op, (AllGather, CollectivePermute)) else tuple(s.element_type for s in shapes)
    return kind, frozenset(types), annotations.frontend_attributes, annotations.backend_config, large


def _is_fence(instruction: Instruction, kept: Set[str]) -> bool:
    """Whether collectives may not be moved across an instruction: it has a side effect of another kind, or is one of a
    site that is ``kept``, of which copies elsewhere keep their order.
    """
    op = instruction.op
    if isinstance(op, COLLECTIVES):
        return bool(kept) and site_of(instruction) in kept
    return op.can_have_effect and op.has_side_effect


def _groups(order: Sequence[Instruction], own: set[Instruction], kept: Set[str]) -> Iterator[list[Instruction]]:
    """Groups of independent collectives without another side effect between them.

    ``order`` has operands before users. Collectives with the same depth (the longest chain of others that they depend
    on) are independent.
    """
    depths: dict[Instruction, int] = {}
    levels: dict[tuple[int, int], list[Instruction]] = defaultdict(list)
    fences = 0
    for instruction in order:
        needed = (*instruction.operands, *instruction.control_predecessors)
        depth = max((depths.get(o, 0) for o in needed), default=0)
        fences += _is_fence(instruction, kept)
        if instruction in own:
            levels[fences, depth].append(instruction)
            depth += 1
        depths[instruction] = depth
    for level in levels.values():
        yield from (group for group in _small_groups(level) if len(group) > 1)


def _small_groups(level: Sequence[Instruction]) -> Iterator[list[Instruction]]:
    alike: dict[tuple[Instruction, ...], list[Instruction]] = defaultdict(list)
    for instruction in level:
        alike[instruction.operands].append(instruction)
    group: list[Instruction] = []
    bytes = operands = 0
    for given, users in alike.items():
        own = sum(o.shape.byte_size for o in given)
        if group and (bytes + own > _MOST_BYTES.value or operands + len(given) > _MOST_OPERANDS.value):
            yield group
            group, bytes, operands = [], 0, 0
        group.extend(users)
        bytes, operands = bytes + own, operands + len(given)
    yield group


def _ordered(order: Sequence[Instruction], groups: Sequence[Sequence[Instruction]]) -> list[Instruction]:
    """The instructions in a topological order in which the members of each group are adjacent."""
    members = {i: group for group in groups for i in group}
    done: set[Instruction] = set()
    result: list[Instruction] = []
    for start in order:
        waiting = [start]
        while waiting:
            own = members.get(waiting[-1], waiting[-1:])
            if own[0] in done:
                waiting.pop()
                continue
            needed = [p for i in own for p in (*i.operands, *i.control_predecessors) if p not in done]
            if needed:
                waiting.extend(reversed(needed))
                continue
            own = tuple(own)
            done.update(own)
            result.extend(own)
            waiting.pop()
    return result


def _rebuilt(computation: Computation, groups: Sequence[Sequence[Instruction]], context: PassContext) -> Computation:
    """The computation with one collective for each group."""
    whole = {i: group for group in groups for i in group}
    cloner = ComputationCloner(computation, context)
    for old in _ordered(computation.instructions, groups):
        group = whole.get(old)
        if group is None:
            cloner.clone(old)
        elif old is group[-1]:
            _combine(cloner, group)
    return cloner.build()


def _combine(cloner: ComputationCloner, group: Sequence[Instruction]) -> None:
    """Append one collective for a group, and the get-tuple-elements of its result; equal operands occur once."""
    first = group[0]
    numbers: dict[tuple[Instruction, ...], int] = {}
    shapes: list[Shape] = []
    for old in group:
        if old.operands not in numbers:
            numbers[old.operands] = len(shapes)
            shapes += _results(old)
    if len(numbers) == 1:
        cloner.clone(first)
        for old in group[1:]:
            cloner.substitute(old, cloner.clones[first])
        return
    operands = [cloner.clones[o] for given in numbers for o in given]
    whole = first.replace(operands=operands, shape=make_tuple_shape(shapes), name=cloner.names.new(first.opcode))
    cloner.append(whole)
    for old in group:
        begin = numbers[old.operands]
        parts = [cloner.at(old).element(whole, begin + n) for n in range(len(_results(old)))]
        cloner.substitute(old, cloner.at(old).tuple(*parts) if old.shape.is_tuple else parts[0])


def _results(collective: Instruction) -> Sequence[Shape]:
    shape = collective.shape
    return shape.tuple_shapes_or_self
