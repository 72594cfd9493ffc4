"""OpSharding, NamedShardingProto, MeshProto, and the three forms of replica groups."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from xlakit.errors import FormatError
from xlakit.formats.hlo_proto.metadata import read_metadata, write_metadata
from xlakit.ir.attributes import AxisRef, IotaTileAssignment, Mesh, NamedSharding, ReplicaGroups, Sharding

_SUBGROUPS = frozenset({"REPLICATED", "MAXIMAL", "MANUAL", "UNREDUCED"})


def read_sharding(proto: Any) -> Sharding:
    """A Sharding from an OpSharding. Raises FormatError, ShapeError."""
    if proto.HasField("named_sharding"):
        named = proto.named_sharding
        return Sharding("OTHER", named=_read_named(named), metadata=tuple(read_metadata(m) for m in named.metadata))
    kind = _enum_name(proto, "type", proto.type)
    fields: dict[str, Any] = {}
    if kind == "OTHER":
        fields = _read_tiles(proto)
        if not fields:
            kind = "REPLICATED"
    elif kind == "MAXIMAL":
        if len(proto.tile_assignment_devices) != 1:
            raise FormatError(f"a MAXIMAL sharding has one device, not {len(proto.tile_assignment_devices)}")
        fields["devices"] = tuple(proto.tile_assignment_devices)
    if proto.is_shard_group:
        group = _enum_name(proto, "shard_group_type", proto.shard_group_type)
        fields["shard_group"] = (group, proto.shard_group_id)
    elements = tuple(read_sharding(element) for element in proto.tuple_shardings) if kind == "TUPLE" else ()
    return Sharding(kind, elements=elements, metadata=tuple(read_metadata(m) for m in proto.metadata), **fields)


def _read_tiles(proto: Any) -> dict[str, Any]:
    """The fields of a tiled sharding; empty for a single tile, which is a replicated sharding in XLA."""
    dimensions, devices = tuple(proto.tile_assignment_dimensions), tuple(proto.tile_assignment_devices)
    iota = None
    if proto.iota_reshape_dims:
        if devices:
            raise FormatError("tile_assignment_devices and iota_reshape_dims exclude each other")
        iota = IotaTileAssignment(dimensions, tuple(proto.iota_reshape_dims), tuple(proto.iota_transpose_perm))
    elif any(size < 1 for size in dimensions) or math.prod(dimensions) != len(devices):
        raise FormatError(f"tile_assignment_dimensions {list(dimensions)} do not hold {len(devices)} devices")
    if not dimensions:
        raise FormatError("tile_assignment_dimensions is missing")
    if math.prod(dimensions) == 1:
        return {}
    kinds = tuple(_enum_name(proto, "type", number) for number in proto.last_tile_dims)
    if not _SUBGROUPS.issuperset(kinds):
        raise FormatError(f"last_tile_dims {list(kinds)} can only be {', '.join(sorted(_SUBGROUPS))}")
    return {
        "tile_dimensions": dimensions,
        "devices": devices,
        "iota": iota,
        "replicate_on_last_tile_dim": proto.replicate_on_last_tile_dim,
        "last_tile_dims": kinds,
    }


def write_sharding(sharding: Sharding, proto: Any) -> None:
    """Fill an OpSharding."""
    proto.SetInParent()
    if sharding.named is not None:
        _write_named(sharding.named, proto.named_sharding)
        for metadata in sharding.metadata:
            write_metadata(metadata, proto.named_sharding.metadata.add())
        return
    proto.type = _enum_number(proto, "type", sharding.kind)
    proto.tile_assignment_dimensions.extend(sharding.tile_dimensions)
    proto.tile_assignment_devices.extend(sharding.devices)
    if sharding.iota is not None:
        del proto.tile_assignment_devices[:]
        proto.iota_reshape_dims.extend(sharding.iota.reshape_dims)
        proto.iota_transpose_perm.extend(sharding.iota.transpose_perm)
    proto.replicate_on_last_tile_dim = sharding.replicate_on_last_tile_dim
    proto.last_tile_dims.extend(_enum_number(proto, "type", kind) for kind in sharding.last_tile_dims)
    for element in sharding.elements:
        write_sharding(element, proto.tuple_shardings.add())
    for metadata in sharding.metadata:
        write_metadata(metadata, proto.metadata.add())
    if sharding.shard_group is not None:
        proto.is_shard_group = True
        kind, proto.shard_group_id = sharding.shard_group
        proto.shard_group_type = _enum_number(proto, "shard_group_type", kind)


def _read_named(proto: Any) -> NamedSharding:
    mesh = _read_mesh(proto.mesh)
    return NamedSharding(
        mesh,
        tuple((_read_axes(d.axes, mesh), d.is_closed) for d in proto.dim_shardings),
        _read_axes(proto.replicated_axes, mesh),
        _read_axes(proto.unreduced_axes, mesh),
        _read_axes(proto.manual_axes, mesh),
        _enum_name(proto, "reduction_op", proto.reduction_op),
    )


def _write_named(named: NamedSharding, proto: Any) -> None:
    proto.SetInParent()
    _write_mesh(named.mesh, proto.mesh)
    for axes, closed in named.dim_shardings:
        dimension = proto.dim_shardings.add(is_closed=closed)
        _write_axes(axes, dimension.axes)
    _write_axes(named.replicated_axes, proto.replicated_axes)
    _write_axes(named.unreduced_axes, proto.unreduced_axes)
    _write_axes(named.manual_axes, proto.manual_axes)
    proto.reduction_op = _enum_number(proto, "reduction_op", named.reduction_op)


def _read_mesh(proto: Any) -> Mesh:
    axes = tuple((axis.name, axis.size) for axis in proto.axes)
    iota = None
    if proto.HasField("iota_transform"):
        transform = proto.iota_transform
        sizes = tuple(size for _, size in axes)
        iota = IotaTileAssignment(sizes, tuple(transform.reshape_dims), tuple(transform.transpose_perm))
    mesh = Mesh(axes, tuple(proto.device_ids), iota)
    total = math.prod(size for _, size in axes)
    if mesh.devices().size != total:
        raise FormatError(f"a mesh of {total} devices has {len(mesh.device_ids)} device_ids")
    return mesh


def _write_mesh(mesh: Mesh, proto: Any) -> None:
    proto.SetInParent()
    for name, size in mesh.axes:
        proto.axes.add(name=name, size=size)
    if mesh.iota is not None:
        proto.iota_transform.reshape_dims.extend(mesh.iota.reshape_dims)
        proto.iota_transform.transpose_perm.extend(mesh.iota.transpose_perm)
    else:
        proto.device_ids.extend(mesh.device_ids)


def _read_axes(protos: Iterable[Any], mesh: Mesh) -> tuple[AxisRef, ...]:
    axes = tuple(
        AxisRef(
            axis.mesh_axis_index,
            (axis.sub_axis_info.pre_size, axis.sub_axis_info.size) if axis.HasField("sub_axis_info") else None,
        )
        for axis in protos
    )
    for axis in axes:
        if not 0 <= axis.mesh_axis_index < len(mesh.axes):
            raise FormatError(f"mesh_axis_index {axis.mesh_axis_index} is not one of {len(mesh.axes)} axes")
    return axes


def _write_axes(axes: Iterable[AxisRef], protos: Any) -> None:
    for axis in axes:
        proto = protos.add(mesh_axis_index=axis.mesh_axis_index)
        if axis.sub_axis is not None:
            proto.sub_axis_info.pre_size, proto.sub_axis_info.size = axis.sub_axis


def read_replica_groups(instruction: Any) -> ReplicaGroups:
    """The replica groups of a HloInstructionProto, in whichever of its fields they are. Raises FormatError."""
    form = instruction.WhichOneof("replica_group_list")
    if form == "mesh_axes_replica_group_list":
        groups = instruction.mesh_axes_replica_group_list
        mesh = _read_mesh(groups.mesh)
        return ReplicaGroups.from_mesh(mesh, _read_axes(groups.axes, mesh))
    if form == "iota_collective_device_list":
        return _read_iota_groups(instruction.iota_collective_device_list)
    listed = instruction.replica_groups
    if form == "collective_device_list":
        # Where the iota form stood before it had a field of its own.
        if instruction.collective_device_list.HasField("iota_replica_group_list"):
            return _read_iota_groups(instruction.collective_device_list.iota_replica_group_list)
        listed = listed or instruction.collective_device_list.replica_groups
    return ReplicaGroups(tuple(tuple(group.replica_ids) for group in listed))


def _read_iota_groups(proto: Any) -> ReplicaGroups:
    sizes = (proto.num_replica_groups, proto.num_devices_per_group)
    iota = IotaTileAssignment(sizes, tuple(proto.iota_reshape_dims), tuple(proto.iota_transpose_perm))
    return ReplicaGroups.from_iota(iota)


def write_replica_groups(groups: ReplicaGroups, instruction: Any) -> None:
    """Fill the replica groups of a HloInstructionProto.

    The list goes into the field that every reader knows. The compact forms, and the newer field of the list, go
    beside it: readers that know them look there first.
    """
    for group in groups.groups:
        instruction.replica_groups.add(replica_ids=group)
    if groups.mesh is not None:
        mesh = instruction.mesh_axes_replica_group_list
        _write_mesh(groups.mesh, mesh.mesh)
        _write_axes(groups.mesh_axes, mesh.axes)
    elif groups.iota is not None:
        iota = instruction.iota_collective_device_list
        iota.num_replica_groups, iota.num_devices_per_group = groups.iota.dimensions
        iota.iota_reshape_dims.extend(groups.iota.reshape_dims)
        iota.iota_transpose_perm.extend(groups.iota.transpose_perm)
    else:
        instruction.collective_device_list.SetInParent()
        for group in groups.groups:
            instruction.collective_device_list.replica_groups.add(replica_ids=group)


def _enum_name(proto: Any, field: str, number: int) -> str:
    enum_value = proto.DESCRIPTOR.fields_by_name[field].enum_type.values_by_number.get(number)
    if enum_value is None:
        raise FormatError(f"{field} has no meaning for {number}")
    return enum_value.name


def _enum_number(proto: Any, field: str, name: str) -> int:
    enum_value = proto.DESCRIPTOR.fields_by_name[field].enum_type.values_by_name.get(name.upper())
    if enum_value is None:
        raise FormatError(f"{field} cannot be '{name}'")
    return enum_value.number
