"""Shardy's attributes, meshes and shardings along their axes: read from bytecode, and printed as HLO has them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, Final

from xlakit.dataclass import dataclass
from xlakit.formats.stablehlo.bytecode import Bytecode, Cursor, ForeignProgram
from xlakit.ir.attributes import AxisRef, IotaTileAssignment, Mesh, Sharding

_MANUAL_AXES, _MESH_AXIS, _MESH, _PART, _AXIS, _DIMENSION, _SHARDING, _FOR_EACH, _UNREDUCED, _FOR_EACH_UNREDUCED = (
    *range(8),
    15,
    16,
)
_PLAIN_NAME: Final = r"[a-zA-Z_][a-zA-Z0-9_$.]*"
_REPLICATED: Final = Sharding("REPLICATED")


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis of a mesh, or a sub-axis: ``part`` is (the product of the sizes before it, its own size)."""

    name: str
    part: tuple[int, int] | None

    def __str__(self) -> str:
        return f'"{self.name}"' if self.part is None else f'"{self.name}":({self.part[0]}){self.part[1]}'


@dataclass(frozen=True, slots=True)
class DimensionAxes:
    """The axes along which a dimension is split. An open dimension may be split further; priority 0 is the highest."""

    axes: tuple[Axis, ...]
    is_closed: bool
    priority: int | None

    def __str__(self) -> str:
        inside = _comma_separated([*self.axes, *(() if self.is_closed else ("?",))])
        return f"{{{inside}}}" + ("" if self.priority is None else f"p{self.priority}")


@dataclass(frozen=True, slots=True)
class MeshSharding:
    """How a value is split along the axes of a mesh, which is given by its name."""

    mesh: str
    dimensions: tuple[DimensionAxes, ...]
    replicated: tuple[Axis, ...]
    unreduced: tuple[Axis, ...]

    def __str__(self) -> str:
        name = self.mesh if re.fullmatch(_PLAIN_NAME, self.mesh) else f'"{self.mesh}"'
        kinds = {"replicated": self.replicated, "unreduced": self.unreduced}
        rest = [f"{kind}={{{_comma_separated(axes)}}}" for kind, axes in kinds.items() if axes]
        return ", ".join([f"@{name}", f"[{_comma_separated(self.dimensions)}]", *rest])


@dataclass(frozen=True, slots=True)
class ManualAxes:
    """The axes along which a computation is manual."""

    names: tuple[str, ...]

    def __str__(self) -> str:
        return f"#sdy<manual_axes{{{_comma_separated(Axis(name, None) for name in self.names)}}}>"


def read_shardy(code: Bytecode, cursor: Cursor) -> Any:
    """An attribute of Shardy: a Mesh, a MeshSharding, a tuple of them, or ManualAxes. Raises ForeignProgram."""
    number, attribute = cursor.number(), code.attribute
    if number in (_SHARDING, _UNREDUCED):
        mesh = attribute(cursor.number())
        if not isinstance(mesh, str):
            raise ForeignProgram("a mesh without a name")
        dimensions, replicated = (tuple(map(attribute, cursor.numbers())) for _ in range(2))
        unreduced = tuple(map(attribute, cursor.numbers())) if number == _UNREDUCED else ()
        return MeshSharding(mesh, dimensions, replicated, unreduced)
    if number in (_FOR_EACH, _FOR_EACH_UNREDUCED):
        return tuple(map(attribute, cursor.numbers()))
    if number == _DIMENSION:
        axes, is_closed = tuple(map(attribute, cursor.numbers())), cursor.take(1) != b"\0"
        return DimensionAxes(axes, is_closed, _optional(cursor))
    if number == _AXIS:
        name, part = code.strings[cursor.number()], _optional(cursor)
        return Axis(name, None if part is None else attribute(part))
    if number == _PART:
        return cursor.signed(), cursor.signed()
    if number == _MESH:
        axes = tuple(map(attribute, cursor.numbers()))
        return Mesh(axes, cursor.signed_numbers())
    if number == _MESH_AXIS:
        return code.strings[cursor.number()], cursor.signed()
    if number == _MANUAL_AXES:
        return ManualAxes(tuple(map(attribute, cursor.numbers())))
    raise ForeignProgram(f"an attribute of Shardy with the number {number}")


def _optional(cursor: Cursor) -> int | None:
    coded = cursor.number()
    return coded >> 1 if coded & 1 else None


def meshes_text(meshes: Mapping[str, Mesh]) -> str:
    """The meshes of a module, as HLO has them among the module's attributes."""
    return f"{{{_comma_separated(f'{_quoted(name)} = {_mesh_text(meshes[name])}' for name in sorted(meshes))}}}"


def _quoted(name: str) -> str:
    return name if re.fullmatch(_PLAIN_NAME, name) else f'"{name}"'


def _mesh_text(mesh: Mesh) -> str:
    sizes = _comma_separated(f'"{name}"={size}' for name, size in mesh.axes)
    ids = f", device_ids=[{_comma_separated(mesh.device_ids)}]" if mesh.device_ids else ""
    return f"#sdy.mesh<[{sizes}]{ids}>"


def value_text(sharding: MeshSharding) -> str:
    """The sharding of an argument, as HLO has it."""
    return f"#sdy.sharding<{sharding}>"


def values_text(shardings: Sequence[MeshSharding]) -> str:
    """The shardings of the results of an operation, as HLO has them."""
    return f"#sdy.sharding_per_value<[{_comma_separated(f'<{sharding}>' for sharding in shardings)}]>"


def hlo_sharding(sharding: MeshSharding, mesh: Mesh) -> Sharding:
    """A sharding along a mesh's axes as one of HLO, whose dimensions are closed."""
    if not mesh.axes:
        return Sharding("MAXIMAL", devices=mesh.device_ids) if mesh.device_ids else _REPLICATED
    numbers = {name: number for number, (name, _) in enumerate(mesh.axes)}

    def count(axes: Sequence[Axis]) -> int:
        return math.prod(axis.part[1] if axis.part else mesh.axes[numbers[axis.name]][1] for axis in axes)

    sizes = [count(dimension.axes) for dimension in sharding.dimensions]
    partial = count(sharding.unreduced)
    rows = mesh.devices().size
    if partial == rows > 1:
        return Sharding("UNREDUCED")
    if math.prod(sizes) == partial == 1:
        return _REPLICATED
    axes = [*chain.from_iterable(dimension.axes for dimension in sharding.dimensions), *sharding.unreduced]
    groups = mesh.groups([AxisRef(numbers[axis.name], axis.part) for axis in axes])
    devices = tuple(chain.from_iterable(zip(*groups, strict=True)))
    copies, kinds = len(groups), ()
    if partial > 1:
        sizes.append(partial)
        kinds = ("UNREDUCED", "REPLICATED")[: 1 + (copies > 1)]
    dimensions = (*sizes, copies) if copies > 1 else tuple(sizes)
    iota = IotaTileAssignment(dimensions, (rows,), (0,)) if devices == tuple(range(rows)) else None
    return Sharding(
        "OTHER",
        dimensions,
        devices=() if iota else devices,
        iota=iota,
        replicate_on_last_tile_dim=copies > 1 and not kinds,
        last_tile_dims=kinds,
    )


def _comma_separated(values: Iterable[object]) -> str:
    return ", ".join(map(str, values))
