"""Compiles programs that JAX passes to the plugin, with their options."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from xlakit import options
from xlakit.collector import collecting_less
from xlakit.dataclass import dataclass
from xlakit.errors import ArgumentError
from xlakit.jax import program_cache
from xlakit.jax.executable_metadata import ExecutableMetadata
from xlakit.jax.program import Program
from xlakit.jax.spanning import SpanningExecutable
from xlakit.jax.wire import DESCRIBED, device_assignment, written_assignment
from xlakit.runtime.layouts import in_memory_order, requests_layouts, with_layouts_of, with_requested_layouts

if TYPE_CHECKING:
    from xlakit.ir.instruction import HloModule
    from xlakit.jax.devices import Devices
    from xlakit.jax.sources import Description
    from xlakit.runtime.executable import LoadedExecutable

_OF_DUMPS: Final = "xla_dump_"
_SMALLEST: Final = "func.func @main(%x: tensor<f32>) -> tensor<f32> { return %x : tensor<f32> }"


@contextmanager
def _options() -> Generator[None]:
    """Set the default options of JAX's programs: subnormal numbers are flushed to zero, as on XLA's CPU backend."""
    flush = options.current().flush_subnormals
    with options.compiling(flush_subnormals=True if flush is None else flush):
        yield


@collecting_less()
@_options()
def compile_program(devices: Devices, code: bytes, format: str, serialized_options: bytes) -> Program:
    """Compile a program given in one of PJRT's formats. Raises what :meth:`Client.compile` does."""
    from jaxlib import xla_client

    compile_options: Any = xla_client.CompileOptions.ParseFromString(serialized_options)
    _check_overrides(list(compile_options.env_option_overrides))
    build = compile_options.executable_build_options
    grid = build.num_replicas, build.num_partitions
    device_assignment = build.device_assignment or compile_options.device_assignment
    placement = _placement(devices, grid, b"" if device_assignment is None else device_assignment.serialize())

    def on_devices(module: HloModule) -> LoadedExecutable:
        return _compiled_for(devices, module, grid, placement.local)

    assignment = None if placement.local is None else str((grid, placement.local)).encode()
    key = None if assignment is None else program_cache.key_of(code, format, assignment)
    program = None if key is None else program_cache.load(key, devices, serialized_options, on_devices)
    if program is None:
        loaded, module, description = _compiled(devices, code, format, grid, placement)
        metadata = ExecutableMetadata.of(loaded, module, description.program + description.outline)
        again = None if placement.local is None else partial(on_devices, module)
        program = Program(devices, metadata, description, serialized_options, lambda: loaded, compile=again)
        if key is not None:
            program_cache.store(key, metadata, program)
    program.assignment = written_assignment(_in_rows(placement.ids, grid))
    return program


def _compiled(
    devices: Devices, code: bytes, format: str, grid: tuple[int, int], placement: _Placement
) -> tuple[LoadedExecutable | SpanningExecutable, HloModule, Description]:
    """The compiled program, the module in the layouts that JAX sees, and its description for JAX."""
    # Imported here, as programs from the cache do not need these slow imports.
    from xlakit.formats.stablehlo.modules import try_to_read
    from xlakit.jax.sources import (
        describe_program,
        described_module,
        described_program,
        in_named_memory,
        module_of,
        names_memory,
        read_program,
    )
    from xlakit.passes.spmd import is_split, is_to_be_split, split_over

    replicas, partitions = grid
    if format == DESCRIBED:
        program, module = described_program(code), described_module(code)
    else:
        read = try_to_read(code) if format == "mlir" else None
        if read is not None and (read.replica_count, read.num_partitions) != grid:
            # The program was exported for another number of devices: jaxlib reads it instead.
            read = None
        program = code if read is not None else read_program(code, format)
        module = with_layouts_of(read or module_of(program), ())
    if is_to_be_split(module, partitions) or (partitions > 1 and not is_split(module)):
        from xlakit.jax.lowerings.partitioning import register_with_partitioner

        register_with_partitioner()
        module = split_over(module, partitions, replicas)
        program = module.to_proto()
    if format == "mlir" and names_memory(code):
        module = in_named_memory(module, code)
        program = module.to_proto()
    if format == "mlir" and requests_layouts(code):
        module = with_requested_layouts(module, code)
        program = module.to_proto()
    loaded = (
        SpanningExecutable(_registered(devices), in_memory_order(module), replicas, partitions, placement.ids)
        if placement.local is None
        else _compiled_for(devices, module, grid, placement.local)
    )
    return loaded, module, describe_program(program, module)


@_options()
def _compiled_for(
    devices: Devices, module: HloModule, grid: tuple[int, int], assignment: Sequence[Sequence[int]] | None
) -> LoadedExecutable:
    """A module, in the layouts that JAX sees, compiled for devices of this process."""
    replicas, partitions = grid
    client: Any = _registered(devices).client
    return client.compile(
        in_memory_order(module), num_replicas=replicas, num_partitions=partitions, device_assignment=assignment
    )


def _registered(devices: Devices) -> Devices:
    """The devices, after the functions that JAX's programs call are registered."""
    from xlakit.jax.lowerings.calls import register_calls

    register_calls()
    return devices


def _check_overrides(overrides: Sequence[tuple[str, Any]]) -> None:
    """Refuse options that XLA's compiler does not have, and values that its options cannot have.

    This compiler ignores valid ones, but a misspelled option is an error for both. Only XLA knows the names and values
    of its options, so jaxlib compiles a small program with them, without those that make XLA write files.
    """
    asked = [(name, value) for name, value in overrides if not name.startswith(_OF_DUMPS)]
    if not asked:
        return
    from jaxlib import xla_client

    client: Any = xla_client.make_cpu_client()
    options: Any = xla_client.CompileOptions()
    options.env_option_overrides = asked
    try:
        client.compile_and_load(_SMALLEST, client.devices()[:1], options)
    except RuntimeError as error:
        # The text before the colon is the error code, which JAX adds again.
        raise ArgumentError(
            str(error).split(": ", 1)[-1],
            hint="options of XLA's compiler (xla_...) are checked, and otherwise ignored by this one",
        ) from None


@dataclass(frozen=True, slots=True)
class _Placement:
    """The placement of a program.

    ids: its devices, numbered among those of all processes. local: for each replica the devices of its partitions,
    numbered among those of this process; None if some of them are in other processes.
    """

    ids: list[int]
    local: list[list[int]] | None


def _placement(devices: Devices, grid: tuple[int, int], assignment: bytes) -> _Placement:
    """The placement by a DeviceAssignmentProto; by default on the first devices."""
    replicas, partitions = grid
    count = replicas * partitions
    here = devices.cluster.local_devices
    if assignment:
        columns = device_assignment(assignment)
        ids = [columns[p][r] for r in range(replicas) for p in range(partitions)]
    else:
        first = here.start if count <= len(here) else 0
        ids = list(range(first, first + count))
    if not set(ids) <= set(here):
        return _Placement(ids, None)
    return _Placement(ids, _in_rows([id - here.start for id in ids], grid))


def _in_rows(ids: Sequence[int], grid: tuple[int, int]) -> list[list[int]]:
    """The devices of the partitions of each replica."""
    replicas, partitions = grid
    return [list(ids[r * partitions : (r + 1) * partitions]) for r in range(replicas)]
