"""Shardings of programs, as splits: HLO shardings, and Shardy's in frontend attributes."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from xlakit.errors import ShapeError, UnsupportedError
from xlakit.ir.attributes import AxisRef, IotaTileAssignment, Mesh, NamedSharding, Sharding
from xlakit.ir.instruction import Computation, HloModule, Instruction
from xlakit.ops.control import Call
from xlakit.ops.custom_call import CustomCall
from xlakit.ops.data import GetTupleElement, Tuple
from xlakit.passes.spmd.shardings.tilings import Split, Tiling, parts, split_of
from xlakit.passes.spmd.shardings.values import leaf_shapes

SHARDINGS: Final = "xla.sdy.sharding"
IN_SHARDINGS: Final = "xla.sdy.in_shardings"
OUT_SHARDINGS: Final = "xla.sdy.out_shardings"
MANUAL_AXES: Final = "xla.sdy.manual_axes"
MESHES: Final = "xla.sdy.meshes"
GROUP_NUMBER: Final = "xla.sdy.sharding_group_id"
# The custom call at which a manual computation ends.
END_OF_MANUAL: Final = "xla.sdy.LocalToGlobalShape"

# Custom calls that constrain the sharding of their operands.
OF_RESULT: Final = "xla.sdy.FuncResultSharding"
CONSTRAINT: Final = "Sharding"
CONSTRAINTS: Final = frozenset({CONSTRAINT, OF_RESULT})
# Shardings are not propagated through these, in either direction (through XLA's own two in one, which changes nothing).
BARRIERS: Final = frozenset({"xla.sdy.PropagationBarrier", "ShardBarrierFrom", "ShardBarrierTo"})
# A sharding group: all operands with one number have one sharding. It has no result.
GROUP: Final = "xla.sdy.ShardingGroup"
# Hints about their operand, which is their result.
HINTS: Final = BARRIERS | {"LayoutConstraint", "MoveToDevice", "MoveToHost", "annotate_device_placement"}

_MESH: Final = re.compile(r"#?(?:sdy\.)?mesh<\[([^\]]*)\](?:, *device_ids=\[([^\]]*)\])?>")
_NAMED_MESH: Final = re.compile(r'(?:"([^"]*)"|([\w.$-]+)) *= *(#sdy\.mesh<\[[^\]]*\](?:, *device_ids=\[[^\]]*\])?>)')
_VALUE: Final = re.compile(
    r'<(?:@(?:"(?P<quoted>[^"]*)"|(?P<name>[\w.$-]+))|(?P<mesh>mesh<\[[^\]]*\](?:, *device_ids=\[[^\]]*\])?>)), '
    r"\[(?P<dims>[^\[\]]*)\](?P<rest>[^<>]*)>"
)
_UNREDUCED: Final = re.compile(r"unreduced=(\w*)\{([^}]*)\}")
_DIMENSION: Final = re.compile(r"\{([^}]*)\}")
_AXIS: Final = re.compile(r'"([^"]*)"(?::\((\d+)\)(\d+))?')
_SIZE: Final = re.compile(r'"([^"]*)"=(\d+)')


class Annotations:
    """Interprets the sharding annotations of a module."""

    def __init__(self, module: HloModule, partitions: int) -> None:
        self._partitions = partitions
        text = dict(module.frontend_attributes).get(MESHES, "")
        self._meshes = {m[1] or m[2]: _mesh(m[3]) for m in _NAMED_MESH.finditer(text)}

    @property
    def meshes(self) -> list[Mesh]:
        """The meshes that the module names."""
        return [*self._meshes.values()]

    # -- annotations of instructions ---------------------------------------------------------------

    def in_attribute(self, instruction: Instruction, key: str, count: int | None = None) -> list[Sharding] | None:
        """The shardings in a frontend attribute, one for each of ``count`` values; None without the attribute."""
        text = dict(instruction.annotations.frontend_attributes).get(key)
        if text is None:
            return None
        found = [self._parsed(m) for m in _VALUE.finditer(text)]
        if count is not None and len(found) != count:
            raise ShapeError(
                f"{key} has {len(found)} shardings for {count} values",
                hint='write one for each: #sdy.sharding_per_value<[<@mesh, [{"x"}, {}]>]>',
            )
        return found

    def shardings(self, instruction: Instruction) -> list[Sharding | None]:
        """The sharding of each array and token of an instruction's result; Shardy's takes precedence."""
        count = len(leaf_shapes(instruction.shape))
        return [*(self.in_attribute(instruction, SHARDINGS, count) or of_leaves(instruction))]

    def asked_sums(self, computation: Computation) -> dict[Instruction, Split]:
        """By value that a constraint takes as unreduced, for each partition the number of its partial sum."""
        found: dict[Instruction, Split] = {}
        for constraint in computation.instructions:
            if not isinstance(constraint.op, CustomCall) or constraint.op.custom_call_target not in CONSTRAINTS:
                continue
            text = dict(constraint.annotations.frontend_attributes).get(SHARDINGS)
            if len(constraint.operands) != 1 or (text is not None and _UNREDUCED.search(text) is None):
                continue
            numbers = self.unreduced(next(iter(self.shardings(constraint)), None))
            if numbers is not None:
                found[constraint.operands[0]] = numbers
        return found

    def manual_axes(self, instruction: Instruction) -> tuple[Mesh, list[AxisRef]] | None:
        """The axes that are manual in the computation that begins or ends here; None where there is no mesh."""
        attributes = dict(instruction.annotations.frontend_attributes)
        found = self.in_attribute(instruction, IN_SHARDINGS) or self.in_attribute(instruction, OUT_SHARDINGS)
        shardings = found or []
        meshes = [*(s.named.mesh for s in shardings if s.named is not None), *self._meshes.values()]
        mesh = next((m for m in meshes if m.axes), None)
        return None if mesh is None else (mesh, _axes(mesh, attributes.get(MANUAL_AXES, "")))

    def is_manual_over_all(self, boundary: Instruction) -> bool:
        """Whether the teams of the manual computation that begins or ends here are single partitions."""
        found = self.manual_axes(boundary)
        return found is not None and parts(self.along(*found)) == self._partitions

    def _parsed(self, match: re.Match[str]) -> Sharding:
        name = match["quoted"] or match["name"]
        mesh = _mesh(match["mesh"]) if match["mesh"] else self._meshes.get(name)
        if mesh is None:
            raise ShapeError(f"there is no mesh '{name}'", hint=f"known: {', '.join(self._meshes) or 'none'}")
        if not mesh.axes and mesh.device_ids:
            return Sharding("MAXIMAL", devices=mesh.device_ids)
        dimensions = tuple((tuple(_axes(mesh, d)), "?" not in d) for d in _DIMENSION.findall(match["dims"]))
        found = _UNREDUCED.search(match["rest"])
        kind, axes = (found[1] or "sum", found[2]) if found else ("sum", "")
        unreduced = tuple(_axes(mesh, axes))
        named = NamedSharding(mesh, dimensions, unreduced_axes=unreduced, reduction_op=kind.upper())
        return Sharding("OTHER", named=named)

    # -- splits ------------------------------------------------------------------------------------

    def along(self, mesh: Mesh, axes: Sequence[AxisRef]) -> Split:
        """For each partition its index along some axes of a mesh, the first counting most."""
        coordinates = [0] * self._partitions
        devices = mesh.devices()
        # Programs that JAX has exported for one device run on several with that device's mesh, which splits nothing.
        if axes and devices.size > 1:
            self._check(devices.tolist(), "mesh")
            for group in mesh.groups(axes):
                for index, device in enumerate(group):
                    coordinates[device] = index
        return tuple(coordinates)

    def is_along_axes(self, split: Split) -> bool:
        """Whether a split is one along whole axes of a mesh; where there are no meshes, any is."""
        meshes = [m for m in self._meshes.values() if math.prod(size for _, size in m.axes) == self._partitions]
        if not meshes:
            return True
        for mesh in meshes:
            numbers = np.asarray(split)[mesh.devices()].reshape([size for _, size in mesh.axes])
            varies = [d for d in range(numbers.ndim) if (numbers != numbers.take([0], d)).any()]
            if math.prod(numbers.shape[d] for d in varies) == parts(split):
                return True
        return False

    def splits(self, sharding: Sharding | None, rank: int) -> tuple[Split | None, ...] | None:
        """For each dimension of an array the split over partitions; None without a sharding."""
        if sharding is None or sharding.kind in ("UNKNOWN", "TUPLE", "MANUAL"):
            return None
        if sharding.kind != "OTHER":
            return (None,) * rank
        if sharding.named is not None:
            return tuple(split_of(self.along(sharding.named.mesh, axes)) for axes in axes_of(sharding, rank))
        coordinates = self._coordinates(sharding)
        return tuple(split_of(int(n) for n in coordinates[:, d]) for d in range(rank))

    def even_splits(self, sharding: Sharding | None, sizes: Sequence[int]) -> tuple[Split | None, ...] | None:
        """The splits of a sharding into equal parts: where it is in terms of a mesh, along as many of the axes of each
        dimension, from the first, as divide it; None without a sharding.
        """
        splits = self.splits(sharding, len(sizes))
        named = None if sharding is None else sharding.named
        if splits is None or sharding is None or named is None:
            return splits
        found = list(splits)
        for dimension, axes in enumerate(axes_of(sharding, len(sizes))):
            while axes and sizes[dimension] % parts(found[dimension]):
                axes = axes[:-1]
                found[dimension] = split_of(self.along(named.mesh, axes))
        return tuple(found)

    def manual_numbers(self, sharding: Sharding) -> Split | None:
        """For each partition the number of its team, for a sharding that is manual completely or partly; else None."""
        if sharding.kind == "MANUAL":
            return tuple(range(self._partitions))
        if sharding.named is not None:
            return split_of(self.along(sharding.named.mesh, sharding.named.manual_axes))
        return self._subgroups(sharding, "MANUAL")

    def unreduced(self, sharding: Sharding | None) -> Split | None:
        """For each partition the number of its partial sum; None if the value is not unreduced."""
        if sharding is None:
            return None
        if sharding.kind == "UNREDUCED":
            return tuple(range(self._partitions))
        named = sharding.named
        if named is None:
            return self._subgroups(sharding, "UNREDUCED")
        if named.unreduced_axes and named.reduction_op != "SUM":
            raise UnsupportedError(
                f"an unreduced sharding whose reduction is {named.reduction_op.lower()}",
                hint="leave only sums unreduced; reduce the value with an all-reduce before",
            )
        return split_of(self.along(named.mesh, named.unreduced_axes))

    def _subgroups(self, sharding: Sharding, wanted: str) -> Split | None:
        """For each partition its index along the last dimensions of some kind."""
        if wanted not in sharding.last_tile_dims:
            return None
        first = len(sharding.tile_dimensions) - len(sharding.last_tile_dims)
        numbers = np.zeros(self._partitions, np.int64)
        coordinates = self._coordinates(sharding)
        for offset, kind in enumerate(sharding.last_tile_dims):
            if kind == wanted:
                numbers = numbers * sharding.tile_dimensions[first + offset] + coordinates[:, first + offset]
        return tuple(int(n) for n in numbers)

    def _coordinates(self, sharding: Sharding) -> np.ndarray:
        """For each partition its coordinates in the tile assignment."""
        devices = sharding.iota.devices() if sharding.iota is not None else np.asarray(sharding.devices)
        self._check(devices.tolist(), "sharding")
        coordinates = np.zeros((self._partitions, len(sharding.tile_dimensions)), np.int64)
        coordinates[devices] = np.stack(np.unravel_index(np.arange(devices.size), sharding.tile_dimensions), axis=-1)
        return coordinates

    def _check(self, devices: Sequence[int], what: str) -> None:
        if len(devices) != self._partitions:
            raise ShapeError(
                f"a {what} over {len(devices)} devices in a program of {self._partitions} partitions",
                hint=f"let each {what} have all partitions",
            )
        if sorted(devices) != list(range(self._partitions)):
            raise ShapeError(
                f"a {what} of devices {', '.join(map(str, devices))} in a program of {self._partitions} partitions",
                hint=f"name each of 0 to {self._partitions - 1} once",
            )


def annotated_partitions(module: HloModule) -> int:
    """The number of partitions of the meshes and shardings of a module, which some formats lack; 1 without any."""
    meshes = dict(module.frontend_attributes).get(MESHES, "")
    found = [1, *(_mesh(m[3]).devices().size for m in _NAMED_MESH.finditer(meshes))]
    shardings = {i.annotations.sharding for c in module.computations for i in c.instructions}
    found += [_device_count(sharding) for sharding in shardings if sharding is not None]
    return max(found)


def _device_count(sharding: Sharding) -> int:
    if sharding.kind == "TUPLE":
        return max(map(_device_count, sharding.elements), default=1)
    if sharding.named is not None:
        return sharding.named.mesh.devices().size
    return int(np.prod(sharding.tile_dimensions)) if sharding.kind == "OTHER" else 1


def of_leaves(instruction: Instruction) -> list[Sharding | None]:
    """The sharding of each array and token in the result of an instruction."""
    sharding, count = instruction.annotations.sharding, len(leaf_shapes(instruction.shape))
    if sharding is None or not count:
        return [None] * count
    if sharding.kind != "TUPLE":
        return [sharding] * count
    # An outfeed has the shardings of what it sends before that of its result, a token.
    return list(sharding.elements[-1:] if instruction.shape.is_token else sharding.elements)


def result_shardings(module: HloModule) -> list[Sharding | None]:
    """The sharding of each array and token of a module's result; None also for one that propagation may refine.

    If one result of a tuple has a sharding, Shardy's programs annotate all of them; the one that has it is a custom
    call of its own. A single result that is a constraint of Shardy's has an HLO sharding, too, in which its open
    dimensions are closed, and whose parts may be unequal, which those of a result without a sharding are not.
    """
    root, shardings = module.entry.root, of_leaves(module.entry.root)
    if not any(name == MESHES for name, _ in module.frontend_attributes):
        return shardings
    if isinstance(root.op, Tuple) and len(shardings) == len(root.operands):
        return [s if _is_result_sharding(o) else None for s, o in zip(shardings, root.operands, strict=True)]
    return [None] * len(shardings) if _is_constraint(root) else shardings


def _is_result_sharding(instruction: Instruction) -> bool:
    """Whether an instruction is the sharding of a result of the program."""
    return isinstance(instruction.op, CustomCall) and instruction.op.custom_call_target == OF_RESULT


def _is_constraint(instruction: Instruction) -> bool:
    """Whether an instruction is a constraint of Shardy's inside of the program, whose value has been added up."""
    if not isinstance(instruction.op, CustomCall) or instruction.op.custom_call_target != CONSTRAINT:
        return False
    text = dict(instruction.annotations.frontend_attributes).get(SHARDINGS, "")
    return bool(text) and _UNREDUCED.search(text) is None


def axes_of(sharding: Sharding, rank: int) -> list[tuple[AxisRef, ...]]:
    """The axes that each dimension of an array is split along, where a sharding is one in terms of a mesh."""
    dims = () if sharding.named is None else sharding.named.dim_shardings
    if not dims:
        return [()] * rank
    if len(dims) != rank:
        raise ShapeError(
            f"a sharding of {len(dims)} dimensions for an array of {rank}",
            hint="write {} for one that is whole",
        )
    return [axes for axes, _ in dims]


def with_axes(sharding: Sharding, axes: Sequence[AxisRef]) -> Sharding:
    """A named sharding restricted to some axes of its mesh; replicated for a sharding without a mesh."""
    kept, named = {a.mesh_axis_index for a in axes}, sharding.named

    def left(axes: Sequence[AxisRef]) -> tuple[AxisRef, ...]:
        return tuple(a for a in axes if a.mesh_axis_index in kept)

    if named is None:
        return Sharding("REPLICATED")
    dims = tuple((left(axes), closed) for axes, closed in named.dim_shardings)
    return Sharding("OTHER", named=replace(named, dim_shardings=dims, unreduced_axes=left(named.unreduced_axes)))


def is_open(sharding: Sharding, dimension: int) -> bool:
    """Whether a sharding leaves a dimension open for further splits."""
    dims = () if sharding.named is None else sharding.named.dim_shardings
    return bool(dims) and not dims[dimension][1]


def as_sharding(tiling: Tiling) -> Sharding:
    """A tiling over all partitions as a sharding of HLO."""
    splits = [s for s in tiling if s is not None]
    if not splits:
        return Sharding("REPLICATED")
    count = len(splits[0])
    sizes = [parts(s) for s in tiling]
    order = sorted(range(count), key=lambda p: [0 if s is None else s[p] for s in tiling])
    copies = count // int(np.prod(sizes))
    dimensions = tuple(sizes) if copies == 1 else (*sizes, copies)
    if order == list(range(count)):
        iota = IotaTileAssignment(dimensions, (count,), (0,))
        return Sharding("OTHER", dimensions, iota=iota, replicate_on_last_tile_dim=copies > 1)
    return Sharding("OTHER", dimensions, tuple(order), replicate_on_last_tile_dim=copies > 1)


def _mesh(text: str) -> Mesh:
    found = _MESH.search(text)
    if found is None:
        raise ShapeError(f"'{text}' is not a mesh", hint='write #sdy.mesh<["x"=2, "y"=4]>')
    axes = tuple((name, int(size)) for name, size in _SIZE.findall(found[1]))
    ids = tuple(int(i) for i in found[2].split(",")) if found[2] else ()
    return Mesh(axes, ids)


def _axes(mesh: Mesh, text: str) -> list[AxisRef]:
    numbers = {name: number for number, (name, _) in enumerate(mesh.axes)}
    found: list[AxisRef] = []
    for name, before, size in _AXIS.findall(text):
        if name not in numbers:
            raise ShapeError(f"the mesh has no axis '{name}'", hint=f"it has {', '.join(numbers)}")
        found.append(AxisRef(numbers[name], (int(before), int(size)) if size else None))
    return found


def ends_of_calls(computation: Computation) -> dict[Instruction, Instruction]:
    """For each call of a manual computation its end."""
    found: dict[Instruction, Instruction] = {}
    for end in computation.instructions:
        if not isinstance(end.op, CustomCall) or end.op.custom_call_target != END_OF_MANUAL:
            continue
        for operand in end.operands:
            source = operand.operands[0] if isinstance(operand.op, GetTupleElement) else operand
            if isinstance(source.op, Call):
                found[source] = end
    return found
