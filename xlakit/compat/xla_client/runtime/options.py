"""DeviceAssignment, ExecutableBuildOptions and CompileOptions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, fields
from typing import Any

import numpy as np

from xlakit.compat.xla_client.binding import TypedAttributes, bound, incompatible
from xlakit.compat.xla_client.errors import with_status
from xlakit.compat.xla_client.runtime.debug_options import DebugOptions, default_debug_options
from xlakit.compat.xla_client.shapes import Shape
from xlakit.dataclass import dataclass


class DeviceAssignment:
    """The number of the device for each computation of each replica."""

    __slots__ = ("devices",)

    def __init__(self) -> None:
        raise TypeError("DeviceAssignment has no constructor; use DeviceAssignment.create(array)")

    @staticmethod
    def create(array: np.ndarray[Any, Any], /) -> DeviceAssignment:
        """An assignment from an array of numbers, [replica, computation]. Raises TypeError for anything else."""
        if not isinstance(array, np.ndarray) or array.ndim != 2 or array.dtype.kind not in "iuf":  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(
                "incompatible function arguments: a device assignment is a two-dimensional array of numbers, "
                f"not {array!r}"
            )
        made = DeviceAssignment.__new__(DeviceAssignment)
        made.devices = array.astype(np.int64)
        return made

    def replica_count(self) -> int:
        """How many replicas there are."""
        return int(self.devices.shape[0])

    def computation_count(self) -> int:
        """How many computations a replica has."""
        return int(self.devices.shape[1])

    def serialize(self) -> bytes:
        """A serialized DeviceAssignmentProto."""
        from xlakit.formats.hlo_proto import schema

        message = schema.new("DeviceAssignmentProto")
        message.replica_count, message.computation_count = self.devices.shape
        for column in self.devices.T:
            message.computation_devices.add().replica_device_ids.extend(int(d) for d in column)
        return message.SerializeToString(deterministic=True)

    def __repr__(self) -> str:
        lines = [f"Computations: {self.computation_count()} Replicas: {self.replica_count()}"]
        for number, column in enumerate(self.devices.T):
            lines.append(f"Computation {number}: " + "".join(f"{d} " for d in column))
        return "\n".join(lines) + "\n"


class _Options(TypedAttributes):
    """Attributes that are set, as in jaxlib, but not unset; those that hold other options are changed in place."""

    __slots__ = ()

    def __setattr__(self, name: str, value: object) -> None:
        if hasattr(self, name):
            if value is None:
                raise incompatible(name, f"{name} cannot be None")
            if name in ("debug_options", "executable_build_options"):
                raise AttributeError(f"property of '{type(self).__name__}' object has no setter")
        super().__setattr__(name, value)


@dataclass(slots=True, eq=False)
class ExecutableBuildOptions(_Options):
    """How a program is compiled: replicas and partitions, layouts, and XLA's flags."""

    result_layout: Shape | None = field(init=False, default=None)
    num_replicas: int = field(init=False, default=1)
    num_partitions: int = field(init=False, default=1)
    device_assignment: DeviceAssignment | None = field(init=False, default=None)
    debug_options: DebugOptions = field(init=False, default_factory=default_debug_options)
    use_spmd_partitioning: bool = field(init=False, default=False)
    use_auto_spmd_partitioning: bool = field(init=False, default=False)
    use_shardy_partitioner: bool = field(init=False, default=False)
    auto_spmd_partitioning_mesh_shape: Sequence[int] = field(init=False, default_factory=list)
    auto_spmd_partitioning_mesh_ids: Sequence[int] = field(init=False, default_factory=list)
    allow_spmd_sharding_propagation_to_parameters: Sequence[bool] = field(init=False, default_factory=lambda: [False])
    allow_spmd_sharding_propagation_to_output: Sequence[bool] = field(init=False, default_factory=lambda: [False])
    exec_time_optimization_effort: float = field(init=False, default=0.0)
    memory_fitting_effort: float = field(init=False, default=0.0)
    optimization_level: int = field(init=False, default=0)
    memory_fitting_level: int = field(init=False, default=0)
    fdo_profile: bytes = field(init=False, default=b"")
    _compilation_environments: bytes = field(init=False, default=b"")

    @bound
    def compilation_environments_from_serialized_proto(self, serialized_proto: bytes, /) -> None:
        """Keep compilation environments; xlakit has none of its own."""
        self._compilation_environments = serialized_proto

    def __repr__(self) -> str:
        layout = "nullopt" if self.result_layout is None else self.result_layout
        return f"ExecutableBuildOptions{{device_ordinal=-1, result_layout={layout}, num_replicas={self.num_replicas}}}"


def _of_build(name: str, doc: str) -> Any:
    """A property of CompileOptions that is an attribute of its build options."""

    def get(options: CompileOptions) -> Any:
        return getattr(options.executable_build_options, name)

    def set(options: CompileOptions, value: Any) -> None:
        setattr(options.executable_build_options, name, value)

    return property(get, set, doc=doc)


@dataclass(slots=True, eq=False)
class CompileOptions(_Options):
    """Options of :meth:`Client.compile`."""

    argument_layouts: Sequence[Shape] | None = field(init=False, default=None)
    parameter_is_tupled_arguments: bool = field(init=False, default=False)
    executable_build_options: ExecutableBuildOptions = field(init=False, default_factory=ExecutableBuildOptions)
    compile_portable_executable: bool = field(init=False, default=False)
    profile_version: int = field(init=False, default=0)
    env_option_overrides: Sequence[tuple[str, str | bool | int | float]] = field(init=False, default_factory=list)

    @property
    def tuple_arguments(self) -> bool:
        """Another name of ``parameter_is_tupled_arguments``."""
        return self.parameter_is_tupled_arguments

    @tuple_arguments.setter
    def tuple_arguments(self, value: bool) -> None:
        self.parameter_is_tupled_arguments = value

    num_replicas = _of_build("num_replicas", "How many replicas run the program.")
    num_partitions = _of_build("num_partitions", "How many partitions run the program.")
    device_assignment = _of_build("device_assignment", "The devices that run the program; None for the first ones.")

    def SerializeAsString(self) -> bytes:
        """A serialized CompileOptionsProto, for :meth:`ParseFromString` and for jaxlib's."""
        from xlakit.compat.xla_client.runtime.options_proto import write_options

        return write_options(self)

    @staticmethod
    @with_status
    def ParseFromString(data: bytes, /) -> CompileOptions:
        """The options of a serialized CompileOptionsProto."""
        from xlakit.compat.xla_client.runtime.options_proto import read_options

        made = CompileOptions()
        read_options(data, made, DeviceAssignment.create)
        return made

    def __getstate__(self) -> tuple[bytes]:
        return (self.SerializeAsString(),)

    def __setstate__(self, state: tuple[bytes]) -> None:
        made = CompileOptions.ParseFromString(state[0])
        for name in (f.name for f in fields(self)):
            object.__setattr__(self, name, getattr(made, name))
