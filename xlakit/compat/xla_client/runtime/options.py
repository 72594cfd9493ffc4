"""DeviceAssignment, ExecutableBuildOptions and CompileOptions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from xlakit.compat.xla_client.errors import with_status
from xlakit.compat.xla_client.runtime.debug_options import DebugOptions
from xlakit.compat.xla_client.shapes import Shape


class DeviceAssignment:
    """The number of the device for each computation of each replica."""

    __slots__ = ("devices",)

    def __init__(self) -> None:
        raise TypeError("DeviceAssignment has no constructor; use DeviceAssignment.create(array)")

    @staticmethod
    def create(array: np.ndarray[Any, Any], /) -> DeviceAssignment:
        """An assignment from an array of integers, [replica, computation]. Raises TypeError for anything else."""
        if not isinstance(array, np.ndarray) or array.ndim != 2 or array.dtype.kind not in "iu":  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(
                "incompatible function arguments: a device assignment is a two-dimensional array of integers, "
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


_BOOL, _INT, _FLOAT = (bool,), (int, np.integer), (float, int, np.floating)
_SEQUENCE = (list, tuple)
_BUILD_KINDS: dict[str, tuple[type, ...]] = {
    "allow_spmd_sharding_propagation_to_output": _SEQUENCE,
    "allow_spmd_sharding_propagation_to_parameters": _SEQUENCE,
    "auto_spmd_partitioning_mesh_ids": _SEQUENCE,
    "auto_spmd_partitioning_mesh_shape": _SEQUENCE,
    "debug_options": (DebugOptions,),
    "device_assignment": (DeviceAssignment, type(None)),
    "exec_time_optimization_effort": _FLOAT,
    "fdo_profile": (bytes,),
    "memory_fitting_effort": _FLOAT,
    "memory_fitting_level": _INT,
    "num_partitions": _INT,
    "num_replicas": _INT,
    "optimization_level": _INT,
    "result_layout": (Shape, type(None)),
    "use_auto_spmd_partitioning": _BOOL,
    "use_shardy_partitioner": _BOOL,
    "use_spmd_partitioning": _BOOL,
}
_OPTION_KINDS: dict[str, tuple[type, ...]] = {
    "argument_layouts": (list, tuple, type(None)),
    "compile_portable_executable": _BOOL,
    "parameter_is_tupled_arguments": _BOOL,
    "profile_version": _INT,
}


class ExecutableBuildOptions:
    """How a program is compiled: replicas and partitions, layouts, and XLA's flags."""

    __slots__ = (
        "allow_spmd_sharding_propagation_to_output",
        "allow_spmd_sharding_propagation_to_parameters",
        "auto_spmd_partitioning_mesh_ids",
        "auto_spmd_partitioning_mesh_shape",
        "compilation_environments",
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

    def __init__(self) -> None:
        self.result_layout: Shape | None = None
        self.num_replicas = 1
        self.num_partitions = 1
        self.device_assignment: DeviceAssignment | None = None
        self.debug_options = DebugOptions()
        self.use_spmd_partitioning = False
        self.use_auto_spmd_partitioning = False
        self.use_shardy_partitioner = False
        self.auto_spmd_partitioning_mesh_shape: Sequence[int] = []
        self.auto_spmd_partitioning_mesh_ids: Sequence[int] = []
        self.allow_spmd_sharding_propagation_to_parameters: Sequence[bool] = [False]
        self.allow_spmd_sharding_propagation_to_output: Sequence[bool] = [False]
        self.exec_time_optimization_effort = 0.0
        self.memory_fitting_effort = 0.0
        self.optimization_level = 0
        self.memory_fitting_level = 0
        self.fdo_profile = b""
        self.compilation_environments = b""

    def __setattr__(self, name: str, value: Any) -> None:
        _check(name, value, _BUILD_KINDS.get(name))
        object.__setattr__(self, name, value)

    def compilation_environments_from_serialized_proto(self, serialized_proto: bytes, /) -> None:
        """Keep compilation environments; xlakit has none of its own."""
        self.compilation_environments = serialized_proto

    def __repr__(self) -> str:
        layout = "nullopt" if self.result_layout is None else self.result_layout
        return f"ExecutableBuildOptions{{device_ordinal=-1, result_layout={layout}, num_replicas={self.num_replicas}}}"


class CompileOptions:
    """Options of :meth:`Client.compile`."""

    __slots__ = (
        "argument_layouts",
        "compile_portable_executable",
        "env_option_overrides",
        "executable_build_options",
        "parameter_is_tupled_arguments",
        "profile_version",
    )

    def __init__(self) -> None:
        self.argument_layouts: Sequence[Shape] | None = None
        self.parameter_is_tupled_arguments = False
        self.executable_build_options = ExecutableBuildOptions()
        self.compile_portable_executable = False
        self.profile_version = 0
        self.env_option_overrides: Sequence[tuple[str, str | bool | int | float]] = []

    def __setattr__(self, name: str, value: Any) -> None:
        _check(name, value, _OPTION_KINDS.get(name))
        object.__setattr__(self, name, value)

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
        self.executable_build_options.num_replicas = _count("num_replicas", value)

    @property
    def num_partitions(self) -> int:
        """How many partitions run the program."""
        return self.executable_build_options.num_partitions

    @num_partitions.setter
    def num_partitions(self, value: int) -> None:
        self.executable_build_options.num_partitions = _count("num_partitions", value)

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
            setattr(self, name, getattr(made, name))


def _check(name: str, value: object, kinds: tuple[type, ...] | None) -> None:
    """Raises TypeError for a value of another type than a field takes; True and False are no numbers."""
    if kinds is None or (isinstance(value, kinds) and (not isinstance(value, bool) or bool in kinds)):
        return
    raise TypeError(
        f"incompatible function arguments: {name} is {' or '.join(kind.__name__ for kind in kinds)}, got {value!r}"
    )


def _count(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"incompatible function arguments: {name} is an int, got {value!r}")
    return int(value)
