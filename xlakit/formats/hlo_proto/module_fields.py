"""The fields of HloModuleProto beside its computations, each with its reader and its writer side by side."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from xlakit.data.shape import ProgramShape
from xlakit.errors import FormatError, XlakitError
from xlakit.formats.hlo_proto import schema
from xlakit.formats.hlo_proto.shapes import read_program_shape, write_program_shape
from xlakit.formats.hlo_proto.shardings import read_sharding, write_sharding
from xlakit.ir.attributes import AliasEntry, BufferDonor, StackFrames
from xlakit.ir.instruction import HloModule

_LOCATION = ("file_name_id", "function_name_id", "line", "end_line", "column", "end_column")
_MUST_ALIAS, _MAY_ALIAS = 2, 1

# Fields without a counterpart in HloModule. They are stored as they are and written back.
_KEPT = (
    "cross_program_prefetches",
    "is_dynamic",
    "use_auto_spmd_partitioning",
    "profile_info",
    "device_assignment",
    "device_type",
    "debug_attributes",
)


def read_module_fields(proto: Any, config: Any, read_module: Callable[[Any], HloModule]) -> dict[str, Any]:
    """The arguments of HloModule that do not come from computations. Raises FormatError, ShapeError.

    ``read_module`` reads the modules inside this one.
    """
    config_fields = _read_config(proto, config if config is not None else proto.config)
    where = ""
    try:
        where = "host_program_shape"
        layout = _read_entry_layout(proto)
        where = "spmd_output_sharding"
        output = read_sharding(proto.spmd_output_sharding) if proto.HasField("spmd_output_sharding") else None
        where = "spmd_parameters_shardings"
        parameters = tuple(read_sharding(sharding) for sharding in proto.spmd_parameters_shardings)
        where = "original_value_recovery_table"
        if proto.HasField(where):
            # Imported on demand: hlo_text is slow to load, and few protos have a recovery table or header attributes.
            from xlakit.formats.hlo_proto.recovery import RECOVERY_TABLE, read_recovery_table

            table = read_recovery_table(proto.original_value_recovery_table, read_module)
            config_fields["header"] = (*config_fields["header"], (RECOVERY_TABLE, table))
    except XlakitError as error:
        error.rule = f"{where}: {error.rule}"
        raise error.at(operation=f"module '{proto.name}'") from None
    return {
        "entry_computation_layout": layout,
        "input_output_alias": tuple(_read_alias(entry) for entry in proto.input_output_alias.entries),
        "buffer_donor": tuple(
            BufferDonor(entry.parameter_number, tuple(entry.parameter_shape_index))
            for entry in proto.buffer_donor.entries
        ),
        "frontend_attributes": tuple(sorted(proto.frontend_attributes.map.items())),
        "stack_frames": _read_stack_frames(proto.stack_frame_index),
        "spmd_output_sharding": output,
        "spmd_parameters_shardings": parameters,
        "proto_fields": _read_kept(proto),
        **config_fields,
    }


def write_module_fields(module: HloModule, proto: Any, write_module: Callable[[HloModule], Any]) -> None:
    """Fill the fields of a HloModuleProto beside its computations; ``write_module`` writes the modules inside it."""
    if module.proto_fields:
        proto.MergeFromString(module.proto_fields)
    shape = module.program_shape
    # XLA names the parameters of the host by their numbers.
    names = tuple(f"p{n}" for n in range(len(shape.parameters)))
    write_program_shape(ProgramShape(shape.parameters, shape.result, names), proto.host_program_shape)
    for entry in module.input_output_alias:
        proto.input_output_alias.entries.add(
            output_shape_index=entry.output_index,
            parameter_number=entry.parameter_number,
            parameter_shape_index=entry.parameter_index,
            kind=_MUST_ALIAS if entry.must else _MAY_ALIAS,
        )
    for donor in module.buffer_donor:
        proto.buffer_donor.entries.add(
            parameter_number=donor.parameter_number, parameter_shape_index=donor.parameter_index
        )
    proto.frontend_attributes.map.update(dict(module.frontend_attributes))
    _write_stack_frames(module.stack_frames, proto.stack_frame_index)
    if module.spmd_output_sharding is not None:
        write_sharding(module.spmd_output_sharding, proto.spmd_output_sharding)
    for sharding in module.spmd_parameters_shardings:
        write_sharding(sharding, proto.spmd_parameters_shardings.add())
    if module.replica_count != 1:
        proto.config.replica_count = module.replica_count
    if module.num_partitions != 1:
        proto.config.num_partitions = module.num_partitions
    for name, text in module.header:
        from xlakit.formats.hlo_proto.recovery import RECOVERY_TABLE, write_recovery_table

        if name == RECOVERY_TABLE:
            write_recovery_table(text, proto.original_value_recovery_table, write_module)
        else:
            proto.header.add(name=name, text=text)


def _read_entry_layout(proto: Any) -> ProgramShape | None:
    if not proto.HasField("host_program_shape"):
        return None
    shape = read_program_shape(proto.host_program_shape)
    # The names are those of the entry's parameters; HLO text has none here.
    return ProgramShape(shape.parameters, shape.result)


def _read_alias(entry: Any) -> AliasEntry:
    return AliasEntry(
        tuple(entry.output_shape_index),
        entry.parameter_number,
        tuple(entry.parameter_shape_index),
        must=entry.kind != _MAY_ALIAS,
    )


def _read_stack_frames(proto: Any) -> StackFrames:
    return StackFrames(
        tuple(proto.file_names),
        tuple(proto.function_names),
        tuple(tuple(getattr(location, name) for name in _LOCATION) for location in proto.file_locations),  # pyright: ignore
        tuple((frame.file_location_id, frame.parent_frame_id) for frame in proto.stack_frames),
    )


def _write_stack_frames(frames: StackFrames, proto: Any) -> None:
    proto.file_names.extend(frames.file_names)
    proto.function_names.extend(frames.function_names)
    for location in frames.file_locations:
        proto.file_locations.add(**dict(zip(_LOCATION, location, strict=True)))
    for location_id, parent_id in frames.stack_frames:
        proto.stack_frames.add(file_location_id=location_id, parent_frame_id=parent_id)


def _read_kept(proto: Any) -> bytes:
    kept = schema.new("HloModuleProto")
    for descriptor, value in proto.ListFields():
        if descriptor.name not in _KEPT:
            continue
        if hasattr(value, "extend"):
            getattr(kept, descriptor.name).extend(value)
        elif descriptor.message_type is not None:
            getattr(kept, descriptor.name).CopyFrom(value)
        else:
            setattr(kept, descriptor.name, value)
    return kept.SerializeToString()


def _read_config(proto: Any, config: Any) -> dict[str, Any]:
    """The fields of HloModule that the first line of HLO text has and XLA's HloModuleProto lacks."""
    header = [(pair.name, pair.text) for pair in proto.header]
    for name, text in header:
        from xlakit.formats.hlo_text.header import check_other_attribute

        check_other_attribute(name, text)
    if not header and config.alias_passthrough_params:
        header.append(("alias_passthrough_params", "true"))
    for name in ("allow_spmd_sharding_propagation_to_parameters", "allow_spmd_sharding_propagation_to_output"):
        values = list(getattr(config, name))
        # {false} is what HLO text leaves out.
        if values and values != [False] and not proto.header:
            header.append((name, "{" + ",".join("true" if v else "false" for v in values) + "}"))
    if config.replica_count < 0 or config.num_partitions < 0:
        raise FormatError("config: replica_count and num_partitions must be at least 1")
    return {
        "replica_count": config.replica_count or 1,
        "num_partitions": config.num_partitions or 1,
        "header": tuple(header),
    }
