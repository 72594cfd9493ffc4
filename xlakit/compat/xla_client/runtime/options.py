"""DeviceAssignment, ExecutableBuildOptions and CompileOptions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from xlakit.compat.xla_client.binding import TypedAttributes, bound, incompatible
from xlakit.compat.xla_client.errors import with_status
from xlakit.compat.xla_client.runtime.debug_options import DebugOptions, default_debug_options
from xlakit.compat.xla_client.shapes import Shape


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


class ExecutableBuildOptions(_Options):
    """How a program is compiled: replicas and partitions, layouts, and XLA's flags."""

    __slots__ = (
        "_compilation_environments",
        "allow_spmd_sharding_propagation_to_output",
        "allow_spmd_sharding_propagation_to_parameters",
        "auto_spmd_partitioning_mesh_ids",
        "auto_spmd_partitioning_mesh_shape",
        "debug_options",
        "device_assignment",
        "exec_time_optimization_effort",
        "fdo_profile",
        "memory_fitting_effort",
        "memory_fitting_level",
        "num_partitions",
        "num_replicas",
        "optimization_level",
        "result_layout",
        "use_auto_spmd_partitioning",
        "use_shardy_partitioner",
        "use_spmd_partitioning",
    )

    result_layout: Shape | None
    num_replicas: int
    num_partitions: int
    device_assignment: DeviceAssignment | None
    debug_options: DebugOptions
    use_spmd_partitioning: bool
    use_auto_spmd_partitioning: bool
    use_shardy_partitioner: bool
    auto_spmd_partitioning_mesh_shape: Sequence[int]
    auto_spmd_partitioning_mesh_ids: Sequence[int]
    allow_spmd_sharding_propagation_to_parameters: Sequence[bool]
    allow_spmd_sharding_propagation_to_output: Sequence[bool]
    exec_time_optimization_effort: float
    memory_fitting_effort: float
    optimization_level: int
    memory_fitting_level: int
    fdo_profile: bytes
    _compilation_environments: bytes

    def __init__(self) -> None:
        self.result_layout = self.device_assignment = None
        self.num_replicas = self.num_partitions = 1
        self.debug_options = default_debug_options()
        self.use_spmd_partitioning = self.use_auto_spmd_partitioning = self.use_shardy_partitioner = False
        self.auto_spmd_partitioning_mesh_shape, self.auto_spmd_partitioning_mesh_ids = [], []
        self.allow_spmd_sharding_propagation_to_parameters = [False]
        self.allow_spmd_sharding_propagation_to_output = [False]
        self.exec_time_optimization_effort = self.memory_fitting_effort = 0.0
        self.optimization_level = self.memory_fitting_level = 0
        self.fdo_profile = self._compilation_environments = b""

    @bound
    def compilation_environments_from_serialized_proto(self, serialized_proto: bytes, /) -> None:
        """Keep compilation environments; xlakit has none of its own."""
        self._compilation_environments = serialized_proto

    def __repr__(self) -> str:
        layout = "nullopt" if self.result_layout is None else self.result_layout
        return f"ExecutableBuildOptions{{device_ordinal=-1, result_layout={layout}, num_replicas={self.num_replicas}}}"


class CompileOptions(_Options):
    """Options of :meth:`Client.compile`."""

    __slots__ = (
        "argument_layouts",
        "compile_portable_executable",
        "env_option_overrides",
        "executable_build_options",
        "parameter_is_tupled_arguments",
        "profile_version",
    )

    argument_layouts: Sequence[Shape] | None
    parameter_is_tupled_arguments: bool
    executable_build_options: ExecutableBuildOptions
    compile_portable_executable: bool
    profile_version: int
    env_option_overrides: Sequence[tuple[str, str | bool | int | float]]

    def __init__(self) -> None:
        self.argument_layouts = None
        self.parameter_is_tupled_arguments = False
        self.executable_build_options = ExecutableBuildOptions()
        self.compile_portable_executable = False
        self.profile_version = 0
        self.env_option_overrides = []

    @property
    def tuple_arguments(self) -> bool:
        """Another name of ``parameter_is_tupled_arguments``."""
        return self.parameter_is_tupled_arguments

    @tuple_arguments.setter
    def tuple_arguments(self, value: bool) -> None:
        self.parameter_is_tupled_arguments = value

    @property
    def num_replicas(self) -> int:
        """How many replicas run the program."""
        return self.executable_build_options.num_replicas

    @num_replicas.setter
    def num_replicas(self, value: int) -> None:
        self.executable_build_options.num_replicas = value

    @property
    def num_partitions(self) -> int:
        """How many partitions run the program."""
        return self.executable_build_options.num_partitions

    @num_partitions.setter
    def num_partitions(self, value: int) -> None:
        self.executable_build_options.num_partitions = value

    @property
    def device_assignment(self) -> DeviceAssignment | None:
        """The devices that run the program; None for the first ones."""
        return self.executable_build_options.device_assignment

    @device_assignment.setter
    def device_assignment(self, value: DeviceAssignment | None) -> None:
        self.executable_build_options.device_assignment = value

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
        for name in self.__slots__:
            object.__setattr__(self, name, getattr(made, name))
