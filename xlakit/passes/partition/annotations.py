"""What programs say about shardings: shardings of HLO, and those of Shardy in frontend attributes, as splits."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from xlakit.errors import ShapeError
from xlakit.ir.attributes import AxisRef, IotaTileAssignment, Mesh, Sharding
from xlakit.ir.instruction import HloModule, Instruction
from xlakit.passes.partition.tilings import Split, Tiling, parts, split_of

SHARDINGS: Final = "xla.sdy.sharding"
IN_SHARDINGS: Final = "xla.sdy.in_shardings"
OUT_SHARDINGS: Final = "xla.sdy.out_shardings"
MANUAL_AXES: Final = "xla.sdy.manual_axes"

_MESH: Final = re.compile(r"#?(?:sdy\.)?mesh<\[([^\]]*)\](?:, *device_ids=\[([^\]]*)\])?>")
_NAMED_MESH: Final = re.compile(r'(?:"([^"]*)"|([\w.$-]+)) *= *(#sdy\.mesh<\[[^\]]*\](?:, *device_ids=\[[^\]]*\])?>)')
_VALUE: Final = re.compile(
    r'<(?:@(?:"(?P<quoted>[^"]*)"|(?P<name>[\w.$-]+))|(?P<mesh>mesh<\[[^\]]*\](?:, *device_ids=\[[^\]]*\])?>)), '
    r"\[(?P<dims>[^\[\]]*)\](?P<rest>[^<>]*)>"
)
_UNREDUCED: Final = re.compile(r"unreduced=(?:\w+)?\{([^}]*)\}")
_DIMENSION: Final = re.compile(r"\{([^}]*)\}")
_AXIS: Final = re.compile(r'"([^"]*)"(?::\((\d+)\)(\d+))?')
_SIZE: Final = re.compile(r'"([^"]*)"=(\d+)')


@dataclass(frozen=True)
class Stated:
    """How a value is said to be split: for each dimension axes of a mesh, and whether more may come.

    Along ``unreduced`` axes there are values that are still to be added.
    """

    mesh: Mesh
    partitions: int
    dimensions: tuple[tuple[tuple[AxisRef, ...], bool], ...]
    unreduced: tuple[AxisRef, ...] = ()

    def split(self, axes: Sequence[AxisRef]) -> Split:
        """For each partition its place along some axes."""
        return along(self.mesh, axes) if axes else (0,) * self.partitions

    def manual(self, dimension: int, manual: Sequence[AxisRef]) -> Split:
        """The split of a dimension by its manual axes, which come before any others."""
        axes = self.dimensions[dimension][0]
        whole = {a.mesh_axis_index for a in manual}
        return self.split([a for a in axes if a.mesh_axis_index in whole])

    def unreduced_among(self, manual: Sequence[AxisRef]) -> Split:
        """For each partition its place along the manual axes along which values are still to be added."""
        whole = {a.mesh_axis_index for a in manual}
        return self.split([a for a in self.unreduced if a.mesh_axis_index in whole])


def along(mesh: Mesh, axes: Sequence[AxisRef]) -> Split:
    """For each device of a mesh its place along some axes, the first counting most."""
    places = [0] * mesh.devices().size
    for group in mesh.groups(axes):
        for place, device in enumerate(group):
            places[device] = place
    return tuple(places)


class Annotations:
    """What the annotations of a module mean."""

    def __init__(self, module: HloModule, partitions: int) -> None:
        self._partitions = partitions
        text = dict(module.frontend_attributes).get("xla.sdy.meshes", "")
        self._meshes = {m[1] or m[2]: _mesh(m[3]) for m in _NAMED_MESH.finditer(text)}

    def stated(self, instruction: Instruction, key: str) -> list[Stated | None] | None:
        """What a frontend attribute says of each value; None where there is none, or for a value on one device."""
        text = dict(instruction.annotations.frontend_attributes).get(key)
        if text is None:
            return None
        return [self._stated(m) for m in _VALUE.finditer(text)]

    def manual_axes(self, instruction: Instruction, mesh: Mesh | None = None) -> Split | None:
        """For each partition the number of its team in the manual computation that begins or ends here."""
        text = dict(instruction.annotations.frontend_attributes).get(MANUAL_AXES, "")
        chosen = self._the_mesh(instruction) if mesh is None else mesh
        return None if chosen is None else along(chosen, _axes(chosen, text))

    def manual_axes_of(self, instruction: Instruction, mesh: Mesh) -> list[AxisRef]:
        """The axes that are manual in the computation that begins or ends here."""
        return _axes(mesh, dict(instruction.annotations.frontend_attributes).get(MANUAL_AXES, ""))

    def mesh_of(self, stated: Sequence[Stated | None] | None) -> Mesh | None:
        """The mesh that some shardings are of; where they name none, that of the module."""
        found = next((s.mesh for s in stated or () if s is not None and s.mesh.axes), None)
        return found or next((m for m in self._meshes.values() if m.axes), None)

    def _the_mesh(self, instruction: Instruction) -> Mesh | None:
        return self.mesh_of(self.stated(instruction, IN_SHARDINGS) or self.stated(instruction, OUT_SHARDINGS))

    def _stated(self, match: re.Match[str]) -> Stated | None:
        name = match["quoted"] or match["name"]
        mesh = _mesh(match["mesh"]) if match["mesh"] else self._meshes.get(name)
        if mesh is None:
            raise ShapeError(f"there is no mesh '{name}'", hint=f"known: {', '.join(self._meshes) or 'none'}")
        if not mesh.axes and mesh.device_ids:
            return None
        if mesh.axes and mesh.devices().size != self._partitions:
            raise ShapeError(
                f"a mesh of {mesh.devices().size} devices in a program of {self._partitions} partitions",
                hint="let each mesh have all devices",
            )
        dimensions = tuple((tuple(_axes(mesh, d)), "?" in d) for d in _DIMENSION.findall(match["dims"]))
        unreduced = _UNREDUCED.search(match["rest"])
        return Stated(mesh, self._partitions, dimensions, tuple(_axes(mesh, unreduced[1])) if unreduced else ())

    # -- shardings of HLO --------------------------------------------------------------------------

    def splits(self, sharding: Sharding | None, rank: int) -> tuple[Split | None, ...] | None:
        """For each dimension of an array the parts of all partitions; None where nothing is said."""
        if sharding is None or sharding.kind in ("UNKNOWN", "TUPLE", "MANUAL"):
            return None
        if sharding.named is not None:
            named = sharding.named
            dims = [along(named.mesh, axes) for axes, _ in named.dim_shardings]
            return tuple(split_of(d) for d in dims) if len(dims) == rank else (None,) * rank
        if sharding.kind != "OTHER":
            return (None,) * rank
        places = self._places(sharding)
        return tuple(split_of(int(n) for n in places[:, d]) for d in range(rank))

    def manual_numbers(self, sharding: Sharding) -> Split | None:
        """For each partition the number of its team, where a sharding is manual in part or in all; else None."""
        if sharding.kind == "MANUAL":
            return tuple(range(self._partitions))
        return self._subgroups(sharding, "MANUAL")

    def unreduced(self, sharding: Sharding | None) -> Split | None:
        """For each partition which of the values it has that are still to be added; None where there is one."""
        if sharding is None:
            return None
        if sharding.kind == "UNREDUCED":
            return tuple(range(self._partitions))
        if sharding.named is not None:
            return split_of(along(sharding.named.mesh, sharding.named.unreduced_axes))
        return self._subgroups(sharding, "UNREDUCED")

    def _subgroups(self, sharding: Sharding, wanted: str) -> Split | None:
        """For each partition its place along the last dimensions that are of some kind."""
        if wanted not in sharding.last_tile_dims:
            return None
        first = len(sharding.tile_dimensions) - len(sharding.last_tile_dims)
        numbers = np.zeros(self._partitions, np.int64)
        places = self._places(sharding)
        for offset, kind in enumerate(sharding.last_tile_dims):
            if kind == wanted:
                numbers = numbers * sharding.tile_dimensions[first + offset] + places[:, first + offset]
        return tuple(int(n) for n in numbers)

    def _places(self, sharding: Sharding) -> np.ndarray:
        """For each partition the place of it in the tile assignment."""
        devices = sharding.iota.devices() if sharding.iota is not None else np.asarray(sharding.devices)
        if sorted(devices.tolist()) != list(range(self._partitions)):
            raise ShapeError(
                f"a sharding over {devices.size} devices in a program of {self._partitions} partitions",
                hint="name each partition once",
            )
        places = np.zeros((self._partitions, len(sharding.tile_dimensions)), np.int64)
        places[devices] = np.stack(np.unravel_index(np.arange(devices.size), sharding.tile_dimensions), axis=-1)
        return places


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
