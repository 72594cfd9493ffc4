"""Rules for placement: shardings, execution threads, and the devices that take part in a collective.

Source: the checks of OpenXLA's HLO verifier for these, as far as they do not depend on a backend.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from xlakit.data.shape import Shape
from xlakit.ir.attributes import Sharding
from xlakit.ir.instruction import HloModule, Instruction
from xlakit.ops.communication.collective_moves import AllToAll, Permuting, RaggedAllToAll
from xlakit.ops.communication.collectives import AllReduce
from xlakit.ops.control import Conditional, Fusion, While
from xlakit.verifier.faults import Fault, Program

_SAME_THREAD = (Fusion, While, Conditional)


def device_faults(program: Program) -> Iterator[Fault]:
    """Faults of shardings, threads and collectives."""
    yield from _shardings(program)
    yield from _threads(program)
    yield from _constrained_all_reduces(program)
    for computation, instruction in program.instructions():
        op: Any = instruction.op
        if hasattr(op, "replica_groups"):
            rule = _group_count_fault(program.module, op)
        elif isinstance(op, Permuting):
            rule = _permute_range_fault(program.module, op)
        else:
            continue
        if rule:
            yield Fault(computation, instruction, rule, "say the program's replica_count and num_partitions")
    for computation, instruction in program.instructions(AllToAll, RaggedAllToAll):
        rule = _layout_fault(instruction)
        if rule:
            yield Fault(computation, instruction, rule, "copy them to one layout first")


# -- shardings -------------------------------------------------------------------------------------


def _shardings(program: Program) -> Iterator[Fault]:
    for computation, instruction in program.instructions():
        sharding = instruction.annotations.sharding
        if sharding is not None and not instruction.shape.is_token:
            rule = _sharding_fault(sharding, instruction.shape)
            if rule:
                yield Fault(
                    computation, instruction, f"sharding {rule}", "give a sharding of the value's own shape, or none"
                )
        if isinstance(instruction.op, (While, Conditional)):
            yield from (
                Fault(computation, instruction, rule, "give both the same sharding, or none")
                for rule in _called_shardings(instruction)
            )


def _called_shardings(caller: Instruction) -> Iterator[str]:
    """A loop, its state and its bodies' results, or a choice and its branches' results, are sharded alike."""
    op: Any = caller.op
    if isinstance(caller.op, While):
        others = [op.body.root, *op.body.parameters[:1], *op.condition.parameters[:1]]
    else:
        others = [branch.root for branch in op.branch_computations]
    annotated = [i for i in (caller, *others) if i.annotations.sharding is not None]
    for other in annotated[1:]:
        if other.annotations.sharding != annotated[0].annotations.sharding:
            yield f"'{annotated[0].name}' and '{other.name}' are sharded differently"


def _sharding_fault(sharding: Sharding, shape: Shape) -> str:
    """The rule that a sharding of a value breaks, or nothing."""
    if sharding.kind == "TUPLE":
        if not shape.is_tuple:
            return f"is for a tuple, the value is {shape}"
        leaves = [leaf for _, leaf in shape.leaves()]
        if leaves and len(leaves) != len(sharding.elements):
            return f"has {len(sharding.elements)} elements, the tuple has {len(leaves)}"
        return next(filter(None, map(_leaf_fault, sharding.elements, leaves)), "")
    # A sharding that is no tuple applies to every element of a tuple.
    leaves = [leaf for _, leaf in shape.leaves()] if shape.is_tuple else [shape]
    return next(filter(None, (_leaf_fault(sharding, leaf) for leaf in leaves)), "")


def _leaf_fault(sharding: Sharding, shape: Shape) -> str:
    if sharding.named is not None or sharding.kind not in ("MAXIMAL", "OTHER"):
        return ""
    negative = next((d for d in sharding.devices if d < 0), None)
    if negative is not None:
        return f"names device {negative}"
    if sharding.kind == "MAXIMAL":
        return ""
    subgroups = len(sharding.last_tile_dims) or int(sharding.replicate_on_last_tile_dim)
    rank = len(sharding.tile_dimensions) - subgroups
    if not shape.is_array or rank != shape.rank:
        return f"tiles {rank} dimensions, the value is {shape}"
    twice = next((d for d, times in Counter(sharding.devices).items() if times > 1), None)
    return "" if twice is None else f"names device {twice} twice"


# -- threads ---------------------------------------------------------------------------------------


def _threads(program: Program) -> Iterator[Fault]:
    for computation, instruction in program.instructions(*_SAME_THREAD):
        for callee in instruction.op.called_computations:
            if callee.execution_thread != computation.execution_thread:
                yield Fault(
                    computation,
                    instruction,
                    f"runs on thread {computation.execution_thread}, {callee.name} on {callee.execution_thread}",
                    "only async-start runs a computation on another thread",
                )


# -- collectives -----------------------------------------------------------------------------------


def _constrained_all_reduces(program: Program) -> Iterator[Fault]:
    first: bool | None = None
    for computation, instruction in program.instructions(AllReduce):
        op: Any = instruction.op
        first = op.constrain_layout if first is None else first
        if op.constrain_layout is not first:
            yield Fault(
                computation,
                instruction,
                "all-reduces with and without constrain_layout cannot be mixed",
                "say constrain_layout for all of them, or for none",
            )


def _group_count_fault(module: HloModule, op: Any) -> str:
    """The fault of replica groups that do not have all replicas, partitions or devices as members, or nothing.

    A module's count of 1 is not compared: it may be the default.
    """
    count = sum(map(len, op.replica_groups.groups))
    global_ids = getattr(op, "use_global_device_ids", None)
    if op.channel_id is None or global_ids is False:
        members, named = module.replica_count, "replicas"
    elif global_ids:
        members, named = module.replica_count * module.num_partitions, "devices"
    else:
        members, named = module.num_partitions, "partitions"
    if count == 0 or members in (1, count):
        return ""
    return f"the replica groups have {count} members, the program runs on {members} {named}"


def _layout_fault(instruction: Instruction) -> str:
    """The fault of an all-to-all whose operands have different layouts, memory spaces apart, or nothing."""
    alike = instruction.operands[2:] if isinstance(instruction.op, RaggedAllToAll) else instruction.operands
    layouts = [replace(operand.shape.layout_or_default, memory_space=0) for operand in alike]
    other = next((i for i, layout in enumerate(layouts) if layout != layouts[0]), None)
    return "" if other is None else f"'{alike[0].name}' and '{alike[other].name}' are laid out differently"


def _permute_range_fault(module: HloModule, op: Any) -> str:
    limit, named = (
        (module.replica_count, "replicas") if op.channel_id is None else (module.num_partitions, "partitions")
    )
    largest = max((i for pair in op.source_target_pairs for i in pair), default=-1)
    if limit == 1 or largest < limit:
        return ""
    return f"source_target_pairs name {largest}, the program runs on {limit} {named}"
