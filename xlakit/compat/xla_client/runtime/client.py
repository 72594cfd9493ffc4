"""Client: the devices of this process, and programs compiled for them."""

from __future__ import annotations

import copyreg
import gzip
import os
import re
import weakref
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from xlakit.builder import XlaComputation as OurComputation
from xlakit.builder.edit import edit
from xlakit.compat.xla_client.binding import bound, unconstructed
from xlakit.compat.xla_client.computation import XlaComputation
from xlakit.compat.xla_client.enums import HostBufferSemantics
from xlakit.compat.xla_client.errors import with_status
from xlakit.compat.xla_client.hlo_module import HloModule
from xlakit.compat.xla_client.mlir import program_of
from xlakit.compat.xla_client.runtime.array import ArrayImpl
from xlakit.compat.xla_client.runtime.array_values import can_be_shared, exported
from xlakit.compat.xla_client.runtime.device import Device, DeviceList
from xlakit.compat.xla_client.runtime.executable import LoadedExecutable
from xlakit.compat.xla_client.runtime.host_callbacks import HostCallback, checked
from xlakit.compat.xla_client.runtime.ifrt_programs import Program, XlaCompileOptions
from xlakit.compat.xla_client.runtime.options import CompileOptions
from xlakit.compat.xla_client.runtime.pjrt_layout import PjRtLayout
from xlakit.compat.xla_client.runtime.requested_layouts import laid_out_program
from xlakit.compat.xla_client.shapes import Shape, kind_of
from xlakit.data.layout import Layout as OurLayout
from xlakit.errors import ArgumentError, ExecutionError, UnsupportedError
from xlakit.ir.attributes import Sharding
from xlakit.ir.instruction import HloModule as OurModule
from xlakit.passes.spmd import is_to_be_split, split_over
from xlakit.runtime.client import Client as OurClient
from xlakit.runtime.layouts import in_memory_order, with_layouts_of

_MAGIC = b"xlakit executable\n"
_DEVICE_COUNT = re.compile(r"--xla_force_host_platform_device_count=(\d+)")

# The clients that exist, in the order in which they were made.
_clients: list[weakref.ref[Client]] = []


class Client:
    """Devices for arrays to be on and programs to run on."""

    __slots__ = ("__weakref__", "_arrays", "_devices", "_executables", "wrapped")

    @unconstructed
    def __init__(self, wrapped: OurClient) -> None:
        _give_buffers()
        self.wrapped = wrapped
        self._devices = [Device(self, device) for device in wrapped.devices()]
        # By identity: arrays cannot be hashed.
        self._arrays: dict[int, weakref.ref[ArrayImpl]] = {}
        self._executables = weakref.WeakSet[LoadedExecutable]()
        _clients.append(weakref.ref(self))

    @property
    def platform(self) -> str:
        """``"cpu"``."""
        return "cpu"

    _raw_platform = platform

    @property
    def platform_version(self) -> str:
        """``"cpu"``, as jaxlib says; :attr:`runtime_type` tells xlakit from it."""
        return "cpu"

    @property
    def runtime_type(self) -> str:
        """``"xlakit"``."""
        return "xlakit"

    def devices(self) -> list[Device]:
        """All devices."""
        return list(self._devices)

    _get_all_devices = devices

    def local_devices(self) -> list[Device]:
        """The devices of this process."""
        return [self._devices[device.id] for device in self.wrapped.local_devices()]

    def device_count(self) -> int:
        """How many devices there are."""
        return self.wrapped.device_count()

    def local_device_count(self) -> int:
        """How many devices of this process there are."""
        return self.wrapped.local_device_count()

    def process_index(self) -> int:
        """The number of this process."""
        return self.wrapped.process_index()

    # Older names.
    host_id = process_index
    task_id = process_index

    @bound
    def device_from_local_hardware_id(self, number: int, /) -> Device:
        """The device of this process with a hardware number."""
        for device in self.local_devices():
            if device.local_hardware_id == number:
                return device
        raise ArgumentError(f"No matching device found for local_device_id {number}", hint="ask local_devices()")

    @with_status
    def get_default_device_assignment(self, num_replicas: int, num_partitions: int | None = None) -> list[Any]:
        """The devices for replicas, or for the partitions of each replica: the first ones, in order."""
        rows = self.wrapped.get_default_device_assignment(num_replicas, num_partitions or 1)
        found = [[self._devices[device.id] for device in row] for row in rows]
        return [row[0] for row in found] if num_partitions is None else found

    # -- arrays ----------------------------------------------------------------------------------

    @bound
    def buffer_from_pyval(
        self,
        argument: Any,
        device: Device | None = None,
        force_copy: bool = False,
        host_buffer_semantics: HostBufferSemantics = HostBufferSemantics.ZERO_COPY,
    ) -> ArrayImpl:
        """A number or an array on a device, the first one by default.

        force_copy: whether the memory of an array is never used in place.
        host_buffer_semantics: what is promised of that memory otherwise.
        """
        where = self._devices[0] if device is None else device
        if argument is None:
            raise TypeError("incompatible function arguments: None is no array and no number")
        if isinstance(argument, ArrayImpl):
            return argument.copy_to_device(where)
        if not isinstance(argument, (np.ndarray, np.generic, bool, int, float, complex)):
            raise ArgumentError(f"a {type(argument).__name__} is no array and no number", hint="give an array of NumPy")
        if isinstance(argument, int) and not -(2**63) <= argument < 2**63:
            raise ArgumentError(
                f"{argument} does not fit S64, the type of whole numbers of Python",
                hint="give an array of NumPy of another type",
            )
        array = np.asarray(argument)
        kind_of(array.dtype)
        if force_copy and not array.flags.writeable:
            # What cannot be written to is read where it is.
            array = array.copy()
        semantics = host_buffer_semantics
        if force_copy or (semantics is HostBufferSemantics.ZERO_COPY and not can_be_shared(array)):
            # The copy is the device's own, which a program may write its results to.
            semantics = HostBufferSemantics.IMMUTABLE_ONLY_DURING_CALL
        made = where.wrapped.put(array, host_buffer_semantics=semantics.name.lower())
        return ArrayImpl.of(where, made)

    def track(self, array: ArrayImpl) -> None:
        """Count an array among the live ones as long as it is there."""
        key, arrays = id(array), self._arrays
        arrays[key] = weakref.ref(array, lambda _: arrays.pop(key, None))

    def live_arrays(self) -> list[ArrayImpl]:
        """The arrays that are not deleted, the newest first."""
        found = [reference() for reference in reversed(list(self._arrays.values()))]
        return [array for array in found if array is not None and not array.is_deleted()]

    live_buffers = live_arrays

    @with_status
    def defragment(self) -> None:
        """Raises XlaRuntimeError: memory is that of the process, whose allocator cannot move arrays."""
        raise UnsupportedError("memory of the host is not defragmented", hint="delete arrays that are not needed")

    def heap_profile(self) -> bytes:
        """The memory of live arrays and executables, by the lines that made them, as a pprof profile."""
        from xlakit.compat.xla_client.runtime.heap_profile import heap_profile_of

        return heap_profile_of(self.live_arrays(), self.live_executables())

    def get_default_layout(self, dtype: Any, shard_shape: Sequence[int], device: Device) -> PjRtLayout:
        """The layout of an array of a dtype and a shape: major to minor."""
        return PjRtLayout.of(OurLayout.default(len(shard_shape)))

    # -- programs --------------------------------------------------------------------------------

    @with_status
    def compile(
        self,
        computation: str | bytes | XlaComputation | HloModule | OurModule,
        compile_options: CompileOptions | None = None,
        host_callbacks: Sequence[Any] = (),
    ) -> LoadedExecutable:
        """A program for devices of this client.

        computation: an MLIR module, as text or bytecode; here also a computation, a module, or HLO text.
        """
        return self._compile(computation, compile_options, host_callbacks, ())

    @with_status
    def compile_and_load(
        self,
        computation: str | bytes | XlaComputation | HloModule | OurModule,
        executable_devices: Sequence[Device] | DeviceList,
        compile_options: CompileOptions | None = None,
        host_callbacks: Sequence[Any] = (),
    ) -> LoadedExecutable:
        """:meth:`compile` for these devices, in their order; releases after 0.6.0 call it so."""
        return self._compile(computation, compile_options, host_callbacks, tuple(executable_devices))

    def _compile(
        self,
        computation: str | bytes | XlaComputation | HloModule | OurModule,
        compile_options: CompileOptions | None,
        host_callbacks: Sequence[Any],
        devices: Sequence[Device],
    ) -> LoadedExecutable:
        callbacks = checked(host_callbacks)
        options = CompileOptions() if compile_options is None else compile_options
        if not isinstance(options, CompileOptions):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(
                "compile(): incompatible function arguments: compile_options are CompileOptions, "
                f"not {type(options).__name__}"
            )
        given = laid_out_program(computation, _module_of(computation), options)
        return self._compiled(given, options, callbacks, devices)

    def _compiled(
        self,
        given: OurModule,
        options: CompileOptions,
        callbacks: Sequence[HostCallback] = (),
        devices: Sequence[Device] = (),
    ) -> LoadedExecutable:
        """Compile a program whose entry layout has the layouts of its arguments and results.

        devices: those that run it, where the options assign none; by default the first ones.
        """
        if min(options.num_replicas, options.num_partitions) < 0:
            raise ArgumentError(
                f"{options.num_replicas} replicas of {options.num_partitions} partitions", hint="give 1 or more"
            )
        if options.executable_build_options.use_spmd_partitioning and options.num_partitions > 1:
            given = _with_whole_results(given, options)
            module = given.replace(num_partitions=options.num_partitions)
        else:
            module = given
        if in_memory_order(module) is not module and is_to_be_split(module, options.num_partitions):
            # Parts lie as the whole arrays are asked to.
            module = split_over(module, options.num_partitions, max(options.num_replicas, 1))
            module = with_layouts_of(module, (*given.program_shape.parameters, given.program_shape.result))
        replicas = max(options.num_replicas, module.replica_count)
        partitions = max(options.num_partitions, module.num_partitions)
        assignment = None if options.device_assignment is None else options.device_assignment.devices
        if assignment is None and devices:
            if len(devices) < replicas * partitions:
                raise ArgumentError(
                    f"{replicas} replicas of {partitions} partitions run on {replicas * partitions} devices, "
                    f"executable_devices has {len(devices)}",
                    hint="give a device for each",
                )
            ids = [device.id for device in devices[: replicas * partitions]]
            assignment = np.array(ids).reshape(replicas, partitions)
        made = self.wrapped.compile(
            in_memory_order(module),
            num_replicas=replicas,
            num_partitions=partitions,
            device_assignment=assignment,
        )
        loaded = LoadedExecutable(self, made, options, given, callbacks)
        self._executables.add(loaded)
        return loaded

    @bound
    def compile_ifrt_program(self, program: Program, options: XlaCompileOptions, /) -> LoadedExecutable:
        """The program of ``ifrt_programs.make_hlo_program`` for devices of this client."""
        module = program.module
        callbacks = checked(options.host_callbacks)
        return self._compiled(laid_out_program(module, module, options.options), options.options, callbacks)

    def live_executables(self) -> list[LoadedExecutable]:
        """The executables that are still there."""
        return list(self._executables)

    @bound
    def serialize_executable(self, executable: LoadedExecutable, /) -> bytes:
        """The program and its options, for :meth:`deserialize_executable`; the machine code is in xlakit's cache."""
        options = executable.options.SerializeAsString()
        return _MAGIC + len(options).to_bytes(8, "little") + options + executable.given.to_proto()

    @bound
    def deserialize_executable(
        self,
        serialized: bytes,
        compile_options: CompileOptions | None = None,
        host_callbacks: Sequence[Any] = (),
    ) -> LoadedExecutable:
        """The executable of serialized bytes, with other options where some are given."""
        callbacks = checked(host_callbacks)
        start = len(_MAGIC)
        if not serialized.startswith(_MAGIC) or len(serialized) < start + 8:
            raise ExecutionError("not an executable that was serialized by this package", hint="compile the program")
        end = start + 8 + int.from_bytes(serialized[start : start + 8], "little")
        options = compile_options or CompileOptions.ParseFromString(serialized[start + 8 : end])
        module = OurModule.from_proto(serialized[end:])
        shape = module.program_shape
        return self._compiled(with_layouts_of(module, (*shape.parameters, shape.result)), options, callbacks)

    @bound
    def make_python_callback_from_host_send_and_recv(
        self,
        callable: Callable[..., Any],
        operand_shapes: Sequence[Shape],
        result_shapes: Sequence[Shape],
        send_channel_ids: Sequence[int],
        recv_channel_ids: Sequence[int],
        serializer: Callable[..., Any] | None = None,
    ) -> Any:
        """A host callback for :meth:`compile`: a function that is called while the program runs.

        callable: called with an array of NumPy for each of ``send_channel_ids``, on which the program sends to the
            host; gives an array for each of ``recv_channel_ids``.
        serializer: not called; executables are serialized without their callbacks.
        """
        operands, results = ([shape.wrapped for shape in shapes] for shapes in (operand_shapes, result_shapes))
        return HostCallback(callable, operands, results, tuple(send_channel_ids), tuple(recv_channel_ids))

    # Attributes of the platform.
    supports_executable_serialization = True

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"Unknown attribute {name}: a client of platform cpu has none of this name")


def restored(values: np.ndarray[Any, Any]) -> ArrayImpl:
    """The array that was pickled, on the first device of the newest client; of a new one if there is none."""
    _clients[:] = [reference for reference in _clients if reference() is not None]
    found = _clients[-1]() if _clients else None
    return (make_cpu_client() if found is None else found).buffer_from_pyval(values)


def _reduced(array: ArrayImpl) -> tuple[Any, ...]:
    return restored, (np.array(array.values()),)


copyreg.pickle(ArrayImpl, _reduced)


@cache
def _give_buffers() -> None:
    # Loaded with the first client: the modules that write machine code take longer to load than all others.
    from xlakit.compat.xla_client.runtime.buffer_protocol import give_buffers

    give_buffers(ArrayImpl, exported)


def _with_whole_results(module: OurModule, options: CompileOptions) -> OurModule:
    """A program to be split, whose results without a sharding are whole on each device: they may not follow others."""
    build, root = options.executable_build_options, module.entry.root
    if build.use_shardy_partitioner or any(build.allow_spmd_sharding_propagation_to_output):
        return module
    if root.annotations.sharding is not None:
        return module
    whole = Sharding("REPLICATED")
    count = len(list(root.shape.leaves()))
    sharding = Sharding("TUPLE", elements=(whole,) * count) if root.shape.is_tuple else whole
    return edit(module).set_sharding(root, sharding).build()


def _module_of(program: Any) -> OurModule:
    if isinstance(program, XlaComputation | HloModule):
        return program.wrapped
    if isinstance(program, OurModule):
        return program
    if isinstance(program, OurComputation):
        return program.to_module()
    if not isinstance(program, (str, bytes)):
        raise TypeError(
            "compile(): incompatible function arguments: it takes an MLIR module as str or bytes, "
            f"not {type(program).__name__}"
        )
    return program_of(program)


@bound
def make_cpu_client(
    asynchronous: bool = True,
    distributed_client: Any = None,
    node_id: int = 0,
    num_nodes: int = 1,
    collectives: Any = None,
    num_devices: int | None = None,
) -> Client:
    """A client with ``num_devices`` devices; by default as many as XLA_FLAGS or XLAKIT_DEVICES say, or 1.

    asynchronous: has no effect; programs always run asynchronously. Raises XlaRuntimeError for several nodes, of which
    :mod:`xlakit.distributed` takes care.
    """
    if distributed_client is not None or num_nodes != 1 or collectives is not None:
        raise UnsupportedError(
            "a client of several processes is not made here",
            hint="use xlakit.distributed.initialize and xlakit.Client(distributed=...)",
        )
    flagged = _DEVICE_COUNT.search(os.environ.get("XLA_FLAGS", ""))
    if num_devices is None and flagged is not None:
        num_devices = int(flagged[1])
    return Client(OurClient(num_devices))


def heap_profile(client: Client) -> bytes:
    """The memory of live arrays, as gzip-compressed pprof data; see :meth:`Client.heap_profile`."""
    return gzip.compress(client.heap_profile())


# -- conveniences of older releases --------------------------------------------------------------------


def execute_with_python_values(executable: LoadedExecutable, arguments: Sequence[Any], backend: Client) -> list[Any]:
    """Run a program on its one device with values of the host; gives a list of arrays of NumPy."""
    device = executable.local_devices()[0]
    placed = [backend.buffer_from_pyval(argument, device) for argument in arguments]
    return [np.asarray(array) for array in executable.execute(placed)]


def execute_with_python_values_replicated(
    executable: LoadedExecutable, arguments: Sequence[Sequence[Any]], backend: Client
) -> list[list[Any]]:
    """Run a program with a list of values for each device; gives a list of arrays of NumPy for each."""
    devices = executable.local_devices()
    placed = [[backend.buffer_from_pyval(a, d) for a in values] for values, d in zip(arguments, devices, strict=True)]
    shards = [list(column) for column in zip(*placed, strict=True)] if placed and placed[0] else []
    results = executable.execute_sharded(shards).disassemble_into_single_device_arrays()
    return [[np.asarray(arrays[i]) for arrays in results] for i in range(len(devices))]
