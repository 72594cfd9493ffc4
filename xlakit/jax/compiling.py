"""Compiling what JAX hands over: its options, what of them there is, and the program itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from xlakit.errors import ArgumentError
from xlakit.formats.hlo_proto import read_module
from xlakit.formats.hlo_proto.schema import parse
from xlakit.jax.program import Program
from xlakit.jax.sources import describe_program, read_program
from xlakit.passes.partition import is_split, is_to_be_split, split_over

if TYPE_CHECKING:
    from xlakit.jax.devices import Devices


def compile_program(devices: Devices, code: bytes, format: str, serialized_options: bytes) -> Program:
    """A program in the interface's format as one that runs. Raises what :meth:`Client.compile` does."""
    from jaxlib import xla_client

    options: Any = xla_client.CompileOptions.ParseFromString(serialized_options)
    _check_overrides([name for name, _ in options.env_option_overrides])
    build = options.executable_build_options
    replicas, partitions = build.num_replicas, build.num_partitions
    proto = read_program(code, format)
    module = read_module(proto)
    if is_to_be_split(module, partitions) or (partitions > 1 and not is_split(module)):
        module = split_over(module, partitions, replicas)
        proto = module.to_proto()
    description = describe_program(proto, module)
    loaded = devices.client.compile(
        module,
        num_replicas=replicas,
        num_partitions=partitions,
        device_assignment=_assignment(options, replicas, partitions),
    )
    return Program(devices, loaded, description, serialized_options)


def _check_overrides(names: Sequence[str]) -> None:
    """Refuse options that nobody has. Those of XLA's own compiler say nothing to this one."""
    for name in names:
        if not name.startswith("xla_"):
            raise ArgumentError(
                f"No such compile option: '{name}'", hint="XLA's own, which begin with xla_, are ignored"
            )


def _assignment(options: Any, replicas: int, partitions: int) -> list[list[int]] | None:
    """The numbers of the devices for the partitions of each replica; None where nobody says."""
    given = options.executable_build_options.device_assignment or options.device_assignment
    if given is None:
        return None
    message = parse("DeviceAssignmentProto", given.serialize())
    columns = [list(column.replica_device_ids) for column in message.computation_devices]
    return [[columns[p][r] for p in range(partitions)] for r in range(replicas)]
