"""OpSharding, the message, and HloSharding, the value: how arrays are split over devices."""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from dataclasses import field, fields, replace
from typing import Any, ClassVar, cast

import numpy as np

from xlakit.compat.xla_client.binding import ComparedWrapper, TypedAttributes, bound, unconstructed
from xlakit.compat.xla_client.enums import OpSharding_ShardGroupType, OpSharding_Type
from xlakit.compat.xla_client.shapes import Shape
from xlakit.dataclass import dataclass
from xlakit.errors import ShapeError
from xlakit.ir.attributes import IotaTileAssignment, Sharding as OurSharding


@dataclass(slots=True, eq=False)
class OpSharding(TypedAttributes):
    """The protocol buffer OpSharding: a sharding in fields that can be set."""

    # Inside of the class `type` is the field.
    Type: ClassVar[Any] = OpSharding_Type
    ShardGroupType: ClassVar[Any] = OpSharding_ShardGroupType

    type: OpSharding_Type = field(init=False, default=OpSharding_Type.REPLICATED)
    tile_assignment_dimensions: Sequence[int] = field(init=False, default_factory=list)
    tile_assignment_devices: Sequence[int] = field(init=False, default_factory=list)
    iota_reshape_dims: Sequence[int] = field(init=False, default_factory=list)
    iota_transpose_perm: Sequence[int] = field(init=False, default_factory=list)
    last_tile_dims: Sequence[OpSharding_Type] = field(init=False, default_factory=list)
    tuple_shardings: Sequence[OpSharding] = field(init=False, default_factory=list)
    replicate_on_last_tile_dim: bool = field(init=False, default=False)
    is_shard_group: bool = field(init=False, default=False)
    shard_group_id: int = field(init=False, default=0)
    shard_group_type: OpSharding_ShardGroupType = field(init=False, default=OpSharding_ShardGroupType.AS)

    @bound
    def ParseFromString(self, data: bytes, /) -> None:
        """Take the fields of a serialized message."""
        from xlakit.formats.hlo_proto import schema

        self._take(schema.parse("OpSharding", data))

    def SerializeToString(self) -> bytes:
        """The serialized message."""
        return self.message().SerializeToString(deterministic=True)

    def clone(self) -> OpSharding:
        """A copy."""
        made = OpSharding()
        made._take(self.message())
        return made

    def message(self) -> Any:
        """The message of xlakit's classes."""
        from xlakit.formats.hlo_proto import schema

        made = schema.new("OpSharding")
        for name in (f.name for f in fields(self)):
            value = getattr(self, name)
            if isinstance(value, (list, tuple)):
                getattr(made, name).extend(map(_plain_of, cast("Sequence[object]", value)))
            else:
                setattr(made, name, _plain_of(value))
        return made

    def _take(self, message: Any) -> None:
        for name in (f.name for f in fields(self)):
            value = getattr(message, name)
            if name == "tuple_shardings":
                value = [OpSharding() for _ in value]
                for part, given in zip(value, message.tuple_shardings, strict=True):
                    part._take(given)
            setattr(self, name, list(value) if hasattr(value, "extend") else value)

    def as_ours(self) -> OurSharding:
        """The sharding as xlakit's value. Raises ShapeError, FormatError."""
        from xlakit.formats.hlo_proto.shardings import read_sharding

        return read_sharding(self.message())

    @staticmethod
    def of(sharding: OurSharding) -> OpSharding:
        """The message of a sharding of xlakit."""
        from xlakit.formats.hlo_proto import schema
        from xlakit.formats.hlo_proto.shardings import write_sharding

        message = schema.new("OpSharding")
        write_sharding(sharding, message)
        # XLA counts the tile of a value on one device.
        for part in (message, *message.tuple_shardings):
            if part.type == OpSharding_Type.MAXIMAL.value and not part.tile_assignment_dimensions:
                part.tile_assignment_dimensions.append(1)
        made = OpSharding()
        made._take(message)
        return made

    def __repr__(self) -> str:
        return str(self.message())

    def __getstate__(self) -> tuple[bytes]:
        return (self.SerializeToString(),)

    def __setstate__(self, state: tuple[bytes]) -> None:
        self.ParseFromString(state[0])


def _plain_of(value: object) -> object:
    """The value of a field for a message."""
    if isinstance(value, OpSharding):
        return value.message()
    return value.value if isinstance(value, enum.Enum) else value


class HloSharding(ComparedWrapper[OurSharding]):
    """A sharding: replicated, manual, unknown, on one device, in tiles, or one for each element of a tuple."""

    __slots__ = ()

    @unconstructed
    def __init__(self, wrapped: OurSharding) -> None:
        self.wrapped = wrapped

    @staticmethod
    @bound
    def from_proto(proto: OpSharding, /) -> HloSharding:
        """The sharding of a message."""
        return HloSharding(proto.as_ours())

    @staticmethod
    @bound
    def from_string(text: str, /) -> HloSharding:
        """A sharding in HLO text, such as ``{devices=[2,1]0,1}``."""
        from xlakit.formats.hlo_text import parse_sharding

        return HloSharding(parse_sharding(text))

    @staticmethod
    def tuple_sharding(shape: Shape, shardings: Sequence[HloSharding], /) -> HloSharding:
        """A sharding for each element of a tuple."""
        return HloSharding(OurSharding("TUPLE", elements=tuple(s.wrapped for s in shardings)))

    @staticmethod
    @bound
    def iota_tile(
        dims: Sequence[int],
        reshape_dims: Sequence[int] = (),
        transpose_perm: Sequence[int] = (),
        subgroup_types: Sequence[OpSharding_Type] = (),
    ) -> HloSharding:
        """Tiles in the order of the devices, or of their numbers reshaped and transposed."""
        reshaped = tuple(reshape_dims) or (math.prod(dims),)
        permutation = tuple(transpose_perm) or tuple(range(len(reshaped)))
        iota = IotaTileAssignment(tuple(dims), reshaped, permutation)
        return _tiled(OurSharding("OTHER", tuple(dims), iota=iota), subgroup_types)

    @staticmethod
    @bound
    def subgroup_with_device_ordering(
        tile_assignment: np.ndarray[Any, Any], subgroup_types: Sequence[OpSharding_Type] = ()
    ) -> HloSharding:
        """Tiles on the devices of an array, whose last dimensions are subgroups of the kinds given."""
        devices = tuple(int(d) for d in tile_assignment.ravel())
        return _tiled(OurSharding("OTHER", tile_assignment.shape, devices), subgroup_types)

    @staticmethod
    def replicate() -> HloSharding:
        """The whole value on every device."""
        return HloSharding(OurSharding("REPLICATED"))

    @staticmethod
    def manual() -> HloSharding:
        """A value that the program splits by itself."""
        return HloSharding(OurSharding("MANUAL"))

    @staticmethod
    def unknown() -> HloSharding:
        """A value of which nothing is known."""
        return HloSharding(OurSharding("UNKNOWN"))

    def is_replicated(self) -> bool:
        """Whether every device has the whole value."""
        return self._all("REPLICATED")

    def is_manual(self) -> bool:
        """Whether the program splits the value by itself."""
        return self._all("MANUAL")

    def is_unknown(self) -> bool:
        """Whether nothing is known."""
        return self._all("UNKNOWN")

    def is_tiled(self) -> bool:
        """Whether the value is split into tiles."""
        return self.wrapped.kind == "OTHER"

    def is_maximal(self) -> bool:
        """Whether the whole value is on one device, or on each; of a tuple, whether all its elements are."""
        parts = self.wrapped.elements or (self.wrapped,)
        return all(part.kind in ("REPLICATED", "MAXIMAL") for part in parts)

    def _all(self, kind: str) -> bool:
        parts = self.wrapped.elements or (self.wrapped,)
        return all(part.kind == kind for part in parts)

    def tuple_elements(self) -> list[HloSharding]:
        """The shardings of a tuple's elements."""
        return [HloSharding(part) for part in self.wrapped.elements]

    def num_devices(self) -> int:
        """How many devices the tiles name; 0 where the sharding names none."""
        return len(self.tile_assignment_devices())

    def num_dimensions(self) -> int:
        """How many dimensions the array of tiles has."""
        return len(self.tile_assignment_dimensions())

    def tile_assignment_dimensions(self) -> list[int]:
        """Into how many tiles each dimension is split, with those of subgroups at the end."""
        if self.wrapped.kind == "MAXIMAL":
            return [1]
        return list(self.wrapped.tile_dimensions) or [0]

    def tile_assignment_devices(self) -> list[int]:
        """The numbers of the devices of the tiles, in order."""
        iota = self.wrapped.iota
        return [int(d) for d in iota.devices()] if iota is not None else list(self.wrapped.devices)

    def subgroup_types(self) -> list[OpSharding_Type]:
        """The kinds of the subgroups, in order."""
        return [OpSharding_Type[name] for name in self.wrapped.last_tile_dims]

    def replicate_on_last_tile_dim(self) -> bool:
        """Whether the devices along the last dimension of the array of tiles have the same tile."""
        return self.wrapped.replicate_on_last_tile_dim

    @bound
    def tile(self, shape: Shape, /) -> Shape:
        """The shape of a tile of an array."""
        if self.wrapped.kind != "OTHER":
            return shape
        counts = self.wrapped.tile_dimensions
        rank = len(counts) - len(self.wrapped.last_tile_dims) - self.wrapped.replicate_on_last_tile_dim
        whole = shape.wrapped
        if not whole.is_array or rank > whole.rank:
            raise ShapeError(f"{self} does not split {whole}", hint=f"give an array of rank {rank}, or more")
        # Dimensions that are not named are not split.
        each = (*counts[:rank], *[1] * (whole.rank - rank))
        sizes = tuple(-(-size // count) for size, count in zip(whole.dimensions, each, strict=True))
        return Shape.of(replace(whole, dimensions=sizes))

    def to_proto(self) -> OpSharding:
        """The message."""
        return OpSharding.of(self.wrapped)

    def compared(self) -> object:
        """The sharding of xlakit with its devices written out."""
        return _plain(self.wrapped)

    def __repr__(self) -> str:
        from xlakit.formats.hlo_text import print_sharding

        return print_sharding(self.wrapped)


def _tiled(sharding: OurSharding, subgroup_types: Sequence[OpSharding_Type]) -> HloSharding:
    """Tiles with subgroups as XLA keeps them: one of each kind, replicated ones last, and none of one device."""
    kinds, counts = [kind.name for kind in subgroup_types], sharding.tile_dimensions
    if not kinds:
        return HloSharding(sharding)
    rank = len(counts) - len(kinds)
    order = sorted(range(len(kinds)), key=lambda n: (kinds[n] == "REPLICATED", kinds[n]))
    sizes: dict[str, int] = {}
    for n in order:
        sizes[kinds[n]] = sizes.get(kinds[n], 1) * counts[rank + n]
    sizes = {kind: size for kind, size in sizes.items() if size > 1}
    if math.prod(counts[:rank]) == 1 and list(sizes) in (["REPLICATED"], ["MANUAL"]):
        return HloSharding(OurSharding(next(iter(sizes))))
    if order != sorted(order):
        grid = np.asarray(_plain(sharding).devices).reshape(counts)
        moved = grid.transpose([*range(rank), *(rank + n for n in order)])
        sharding = replace(sharding, devices=tuple(int(d) for d in moved.ravel()), iota=None)
    dimensions = (*counts[:rank], *sizes.values())
    if sharding.iota is not None:
        sharding = replace(sharding, iota=replace(sharding.iota, dimensions=dimensions))
    replicated = list(sizes) == ["REPLICATED"]
    last = () if replicated else tuple(sizes)
    return HloSharding(
        replace(sharding, tile_dimensions=dimensions, replicate_on_last_tile_dim=replicated, last_tile_dims=last)
    )


def _plain(sharding: OurSharding) -> OurSharding:
    """The sharding with its devices written out, and without what does not matter to it."""
    devices = tuple(int(d) for d in sharding.iota.devices()) if sharding.iota is not None else sharding.devices
    return replace(sharding, devices=devices, iota=None, metadata=(), elements=tuple(map(_plain, sharding.elements)))


def partially_replicate_tiled_sharding_on_dims(sharding: HloSharding, dims: Sequence[int], /) -> HloSharding:
    """The sharding that no longer splits some dimensions: the devices along them have the same tile."""
    ours = sharding.wrapped
    if ours.kind != "OTHER":
        return sharding
    extra = len(ours.last_tile_dims) + ours.replicate_on_last_tile_dim
    counts = ours.tile_dimensions
    rank = len(counts) - extra
    grid = np.asarray(sharding.tile_assignment_devices()).reshape(counts)
    merged = [d for d in range(rank) if d in set(dims)]
    kept = [1 if d in merged else counts[d] for d in range(rank)]
    order = [d for d in range(rank) if d not in merged] + list(range(rank, len(counts))) + merged
    tail = list(counts[rank:])
    replicas = math.prod(counts[d] for d in merged)
    moved = grid.transpose(order).reshape(*kept, *tail, replicas)
    if ours.replicate_on_last_tile_dim:
        moved = moved.reshape(*kept, -1)
        return HloSharding.subgroup_with_device_ordering(moved, [OpSharding_Type.REPLICATED])
    return HloSharding.subgroup_with_device_ordering(moved, [*sharding.subgroup_types(), OpSharding_Type.REPLICATED])
