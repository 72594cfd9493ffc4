"""Options as messages of XLA's ``compile_options.proto``, whose names and numbers are facts.

Of DebugOptions the fields that xla_client has are written, all of them, since a field that is absent reads as zero;
others are skipped when read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from xlakit.compat.xla_client.enums import AutotuneCacheMode
from xlakit.compat.xla_client.shapes import Shape
from xlakit.formats.hlo_proto import schema
from xlakit.formats.hlo_proto.shapes import read_shape, write_shape

_OPTIONS = ("parameter_is_tupled_arguments", "compile_portable_executable", "profile_version")
_BUILD = (
    "num_replicas",
    "num_partitions",
    "use_spmd_partitioning",
    "use_auto_spmd_partitioning",
    "fdo_profile",
    "use_shardy_partitioner",
    "exec_time_optimization_effort",
    "memory_fitting_effort",
    "optimization_level",
    "memory_fitting_level",
)
_BUILD_LISTS = (
    "allow_spmd_sharding_propagation_to_output",
    "allow_spmd_sharding_propagation_to_parameters",
    "auto_spmd_partitioning_mesh_ids",
    "auto_spmd_partitioning_mesh_shape",
)
# The field of an override by the type of its value.
_OVERRIDES: dict[type, str] = {str: "string_field", bool: "bool_field", int: "int_field", float: "double_field"}


def write_options(options: Any) -> bytes:
    """A serialized CompileOptionsProto of CompileOptions."""
    message = schema.new("CompileOptionsProto")
    _copy(options, message, _OPTIONS)
    for shape in options.argument_layouts or ():
        write_shape(shape.wrapped, message.argument_layouts.add())
    for name, value in options.env_option_overrides:
        setattr(message.env_option_overrides[name], _OVERRIDES[type(value)], value)
    build, written = options.executable_build_options, message.executable_build_options
    _copy(build, written, _BUILD)
    written.device_ordinal = -1
    for name in _BUILD_LISTS:
        getattr(written, name).extend(getattr(build, name))
    if build.result_layout is not None:
        write_shape(build.result_layout.wrapped, written.result_layout)
    if build.device_assignment is not None:
        written.device_assignment.ParseFromString(build.device_assignment.serialize())
    for name in build.debug_options.__slots__:
        value = getattr(build.debug_options, name)
        setattr(written.debug_options, name, value.value if isinstance(value, AutotuneCacheMode) else value)
    return message.SerializeToString(deterministic=True)


def read_options(data: bytes, options: Any, assignment_of: Callable[[Any], Any]) -> None:
    """Fill CompileOptions of a serialized CompileOptionsProto. Raises FormatError for anything else.

    assignment_of: makes a DeviceAssignment of an array, [replica, computation].
    """
    message = schema.parse("CompileOptionsProto", data)
    _copy(message, options, _OPTIONS)
    if message.argument_layouts:
        options.argument_layouts = [Shape.of(read_shape(shape)) for shape in message.argument_layouts]
    options.env_option_overrides = [
        (name, getattr(value, value.WhichOneof("value") or "string_field"))
        for name, value in sorted(message.env_option_overrides.items())
    ]
    read, build = message.executable_build_options, options.executable_build_options
    _copy(read, build, _BUILD)
    for name in _BUILD_LISTS:
        setattr(build, name, list(getattr(read, name)))
    if read.HasField("result_layout"):
        build.result_layout = Shape.of(read_shape(read.result_layout))
    if read.HasField("device_assignment"):
        columns = [list(column.replica_device_ids) for column in read.device_assignment.computation_devices]
        build.device_assignment = assignment_of(np.array(columns, np.int64).T)
    for name in build.debug_options.__slots__:
        value, old = getattr(read.debug_options, name), getattr(build.debug_options, name)
        setattr(build.debug_options, name, AutotuneCacheMode(value) if isinstance(old, AutotuneCacheMode) else value)


def _copy(source: Any, target: Any, names: Iterable[str]) -> None:
    for name in names:
        setattr(target, name, getattr(source, name))
