"""The steps of the partitioner: prepare the program, propagate shardings, walk through it, and finish the module."""

from __future__ import annotations

from collections.abc import Sequence

from xlakit.data.shape import ProgramShape, Shape
from xlakit.ir.attributes import AliasEntry, Sharding
from xlakit.ir.instruction import Computation, HloModule
from xlakit.passes.core.framework import PassContext
from xlakit.passes.spmd import dispatch, edges
from xlakit.passes.spmd.operations import inspection
from xlakit.passes.spmd.pieces.emit import Channels
from xlakit.passes.spmd.prepare import prepared
from xlakit.passes.spmd.program import Program
from xlakit.passes.spmd.propagate import propagated
from xlakit.passes.spmd.shardings.annotations import Annotations, as_sharding, of_leaves, result_shardings
from xlakit.passes.spmd.shardings.scopes import Scope
from xlakit.passes.spmd.shardings.tilings import Tiling
from xlakit.passes.spmd.walk import Walk


def split(module: HloModule, partitions: int, replicas: int | None, context: PassContext) -> HloModule:
    """The program of one partition; see :func:`xlakit.passes.spmd.split_over`."""
    module.verify()
    context.computation_names = set()
    module = prepared(module, context)
    if replicas is not None and replicas != module.replica_count:
        # Groups of the collectives name devices of all replicas.
        module = module.replace(replica_count=replicas)
    channels = Channels(_last_channel(module), module.replica_count, partitions)
    annotations = Annotations(module, partitions)
    program = Program(module, annotations, channels, context)
    walk = Walk(program, dispatch.split, Scope.of_all(partitions), propagated(module, annotations))
    entry = module.entry
    arguments = [edges.argument(walk, p) for p in entry.parameters]
    value = walk.through(entry, [v for v, _ in arguments])
    result, tilings = edges.result(walk, value)
    root = walk.pieces.bundle(result, iter(tilings), walk.scope)
    made = walk.pieces.make.build(entry.name, root)
    inspection.tell_inspectors(walk.program)
    given = [t for _, t in arguments]
    return _finished(module, walk.program.annotations, made, given, tilings, partitions)


def _finished(
    module: HloModule,
    annotations: Annotations,
    entry: Computation,
    arguments: Sequence[Sequence[Tiling]],
    result: Sequence[Tiling],
    count: int,
) -> HloModule:
    parameters = module.entry.parameters
    given = [_sharding(p.shape, of_leaves(p), t, annotations) for p, t in zip(parameters, arguments, strict=True)]
    return module.replace(
        entry=entry,
        computations=(),
        num_partitions=count,
        entry_computation_layout=_layout(module, entry),
        input_output_alias=tuple(a for a in module.input_output_alias if _has_room(a, entry)),
        spmd_parameters_shardings=tuple(given),
        spmd_output_sharding=_sharding(module.entry.root.shape, result_shardings(module), result, annotations),
        frontend_attributes=tuple(a for a in module.frontend_attributes if not a[0].startswith("xla.sdy.")),
    )


def _sharding(
    shape: Shape, shardings: Sequence[Sharding | None], tilings: Sequence[Tiling], annotations: Annotations
) -> Sharding:
    """The sharding of a parameter or the result, from its tiling; the given one if that is unreduced or manual."""
    found = [
        s if s is not None and (s.kind == "MANUAL" or annotations.unreduced(s) is not None) else as_sharding(t)
        for s, t in zip(shardings, tilings, strict=True)
    ]
    # An empty tuple has the sharding of one value.
    return Sharding("TUPLE", elements=tuple(found or [as_sharding(())])) if shape.is_tuple else found[0]


def _layout(module: HloModule, entry: Computation) -> ProgramShape | None:
    """The entry computation layout on the shapes of parts."""
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

    return shape.with_leaves(laid_out)


def _has_room(alias: AliasEntry, entry: Computation) -> bool:
    """Whether an argument and the result that aliases it still have the same shape."""
    parameter = entry.parameters[alias.parameter_number].shape.at(alias.parameter_index)
    return parameter.compatible(entry.root.shape.at(alias.output_index))


def _last_channel(module: HloModule) -> int:
    channels = [getattr(i.op, "channel_id", None) or 0 for c in module.computations for i in c.instructions]
    return max(channels, default=0)
