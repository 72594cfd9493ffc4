"""Splitting a program over devices: from the whole program, and what it says of shardings, to that of one partition.

To read it: ``tilings`` and ``scopes`` say which part of an array each device has, ``factors`` what operations allow,
``values`` and ``pieces`` make them on parts, ``walk`` goes through a program; everything else is of a special kind.
"""

from __future__ import annotations

from collections.abc import Sequence

from xlakit.data.shape import ProgramShape, Shape
from xlakit.ir.attributes import AliasEntry, Sharding
from xlakit.ir.instruction import Computation, HloModule, Instruction
from xlakit.ir.operation import Op
from xlakit.ops.collective_moves import CollectivePermute
from xlakit.ops.collectives import PartitionId
from xlakit.ops.custom_call import CustomCall
from xlakit.ops.shared.collective import Collective
from xlakit.passes.canonicalize.control_dependencies import ControlDependencies
from xlakit.passes.canonicalize.normalize_layouts import NormalizeLayouts
from xlakit.passes.core.framework import Pass, PassContext, programs, with_callees, with_computations
from xlakit.passes.spmd import edges
from xlakit.passes.spmd.annotations import Annotations, as_sharding, of_leaves
from xlakit.passes.spmd.emit import Channels
from xlakit.passes.spmd.manual import BOUNDARIES
from xlakit.passes.spmd.pairs import with_whole_operations
from xlakit.passes.spmd.propagate import propagated
from xlakit.passes.spmd.scopes import Scope
from xlakit.passes.spmd.tilings import Tiling
from xlakit.passes.spmd.values import mapped
from xlakit.passes.spmd.walk import Program, Walk

__all__ = ["Partition", "is_split", "is_to_be_split", "split_over"]


def is_split(module: HloModule) -> bool:
    """Whether a program is that of one partition: :func:`split_over` says so, and XLA schedules only such ones.

    XLA's partitioner puts ``_spmd`` behind the names of computations, and leaves the shardings of parameters in place.
    """
    return (
        module.is_scheduled
        or module.spmd_output_sharding is not None
        or bool(module.spmd_parameters_shardings)
        or module.entry.name.endswith("_spmd")
    )


def is_to_be_split(module: HloModule, partitions: int) -> bool:
    """Whether a program is that of all partitions, and says how its arrays are split over them."""
    if is_split(module):
        return False
    instructions = [i for c in module.computations for i in c.instructions]
    if any(map(_is_boundary, instructions)):
        return True
    # Outside of manual computations partitions meet only in programs that are split already.
    return (
        partitions > 1
        and any(_is_tiled(i.annotations.sharding) for i in instructions)
        and not any(map(_tells_partitions_apart, instructions))
    )


def _is_boundary(instruction: Instruction) -> bool:
    """Whether a manual computation begins or ends here; the older form says a sharding."""
    if not isinstance(instruction.op, CustomCall) or instruction.op.custom_call_target not in BOUNDARIES:
        return False
    said = instruction.annotations
    return said.sharding is not None or bool(said.frontend_attributes)


def _tells_partitions_apart(instruction: Instruction) -> bool:
    """Whether what an instruction gives depends on the partition that runs it."""
    return isinstance(instruction.op, PartitionId) or (
        isinstance(instruction.op, (Collective, CollectivePermute)) and instruction.op.channel_id is not None
    )


def _is_tiled(sharding: Sharding | None) -> bool:
    return sharding is not None and (sharding.kind == "OTHER" or any(map(_is_tiled, sharding.elements)))


class Partition(Pass):
    """Make of a program that says how arrays are split over partitions that of one partition, with collectives.

    What an operation's rule allows stays split; anything else is computed whole on every partition. The module's
    ``spmd_parameters_shardings`` and ``spmd_output_sharding`` say afterwards how arguments and results are split.
    Raises ShapeError for shardings that are of other devices or sizes, UnsupportedError for feeds of split programs.
    """

    name = "partition"

    def run(self, module: HloModule, context: PassContext) -> HloModule:
        """The program of one partition; the same module where nothing says that it is one of all."""
        if not is_to_be_split(module, module.num_partitions) or not context.spend("partition"):
            return module
        return split_over(module, module.num_partitions, context=context)


def split_over(
    module: HloModule, partitions: int, replicas: int | None = None, *, context: PassContext | None = None
) -> HloModule:
    """The program of one of so many partitions; of each replica, of which there are as many as the module says."""
    module.verify()
    context = PassContext() if context is None else context
    module = _without_hints_on_elements(NormalizeLayouts().run(module, context))
    context.computation_names = {c.name for c in module.computations}
    module = with_whole_operations(ControlDependencies().run(module, context), context)
    channels = Channels(_last_channel(module), module.replica_count if replicas is None else replicas, partitions)
    said = Annotations(module, partitions)
    walk = Walk(Program(module, said, channels, context), Scope.of_all(partitions), propagated(module, said))
    entry = module.entry
    arguments = [edges.argument(walk, p) for p in entry.parameters]
    value = walk.through(entry, [v for v, _ in arguments])
    result, tilings = edges.result(walk, value)
    root = walk.pieces.bundle(result, iter(tilings), walk.scope)
    made = walk.pieces.make.done(entry.name, root)
    given = [t for _, t in arguments]
    return _finished(module, walk.program.annotations, made, given, tilings, partitions)


def _finished(
    module: HloModule,
    said: Annotations,
    entry: Computation,
    arguments: Sequence[Sequence[Tiling]],
    result: Sequence[Tiling],
    count: int,
) -> HloModule:
    given = [_sharding(p, t, said) for p, t in zip(module.entry.parameters, arguments, strict=True)]
    return module.replace(
        entry=entry,
        computations=(),
        num_partitions=count,
        entry_computation_layout=_layout(module, entry),
        input_output_alias=tuple(a for a in module.input_output_alias if _has_room(a, entry)),
        spmd_parameters_shardings=tuple(given),
        spmd_output_sharding=_sharding(module.entry.root, result, said),
        frontend_attributes=tuple(a for a in module.frontend_attributes if not a[0].startswith("xla.sdy.")),
    )


def _sharding(old: Instruction, tilings: Sequence[Tiling], said: Annotations) -> Sharding:
    """How a parameter or the result is split; as it was said where its values are still to be added."""
    found = [
        s if s is not None and said.unreduced(s) is not None else as_sharding(t)
        for s, t in zip(of_leaves(old), tilings, strict=True)
    ]
    # An empty tuple has the sharding of one value.
    return Sharding("TUPLE", elements=tuple(found or [as_sharding(())])) if old.shape.is_tuple else found[0]


def _layout(module: HloModule, entry: Computation) -> ProgramShape | None:
    """The layouts that arguments and results are to have, on shapes of parts."""
    old, new = module.entry_computation_layout, entry.program_shape
    if old is None:
        return None
    parameters = tuple(_with_layouts(n, o) for n, o in zip(new.parameters, old.parameters, strict=True))
    return ProgramShape(parameters, _with_layouts(new.result, old.result), new.parameter_names)


def _with_layouts(shape: Shape, old: Shape) -> Shape:
    remaining = iter([leaf for _, leaf in old.leaves()])

    def laid_out(leaf: Shape) -> Shape:
        layout = next(remaining).layout
        return leaf.with_layout(layout) if leaf.is_array else leaf

    return mapped(shape, laid_out)


def _has_room(alias: AliasEntry, entry: Computation) -> bool:
    """Whether an argument and the result that may take its memory still have one shape."""
    parameter = entry.parameters[alias.parameter_number].shape.at(alias.parameter_index)
    return parameter.compatible(entry.root.shape.at(alias.output_index))


def _last_channel(module: HloModule) -> int:
    channels = [getattr(i.op, "channel_id", None) or 0 for c in module.computations for i in c.instructions]
    return max(channels, default=0)


def _without_hints_on_elements(module: HloModule) -> HloModule:
    """What is computed for each element has nothing to split; what is said of it would hide what it is."""
    split = programs(module)
    made: dict[Computation, Computation] = {}
    for old in module.computations:
        new = with_callees(old, made)
        made[old] = new if old in split else _without_hints(new)
    return with_computations(module, [made[c] for c in module.computations])


def _without_hints(computation: Computation) -> Computation:
    def is_hint(op: Op) -> bool:
        return isinstance(op, CustomCall) and op.custom_call_target == "Sharding"

    if not any(is_hint(i.op) for i in computation.instructions):
        return computation

    def change(old: Instruction, operands: tuple[Instruction, ...]) -> Instruction:
        if is_hint(old.op) and len(operands) == 1:
            return operands[0]
        return old if operands == old.operands else old.replace(operands=operands)

    return computation.rebuild(change)
