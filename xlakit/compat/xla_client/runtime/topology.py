"""DeviceTopology with its devices, and plugins of other platforms, of which there are none here."""

from __future__ import annotations

import json
import os
import weakref
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from xlakit.compat.xla_client.binding import bound, incompatible, unconstructed
from xlakit.compat.xla_client.errors import XlaRuntimeError, as_status
from xlakit.compat.xla_client.runtime.client import Client
from xlakit.compat.xla_client.runtime.device import Device, Memory
from xlakit.errors import UnsupportedError

_HINT = "compile and run it with the client of make_cpu_client"


def _refuse(name: str, code: str = "INVALID_ARGUMENT") -> NoReturn:
    """name: the function that was called, as C++ calls it."""
    error = UnsupportedError("the devices of a topology are described only", hint=_HINT)
    raise as_status(error, f"{name} needs a device that runs programs", code)


class CompileOnlyDevice(Device):
    """A device that is described, without a memory, an infeed and an outfeed."""

    __slots__ = ()

    @property
    def local_hardware_id(self) -> int | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """None: it is no device of this process."""
        return None

    def addressable_memories(self) -> list[Memory]:
        """None of them."""
        return []

    def default_memory(self) -> Memory:
        """Raises XlaRuntimeError."""
        _refuse("DefaultMemory", "UNIMPLEMENTED")

    def memory(self, kind: str) -> Memory:
        """Raises XlaRuntimeError."""
        _refuse(f"MemoryByKind({kind!r})")

    def live_buffers(self) -> list[Any]:
        """None of them."""
        return []

    def memory_stats(self) -> dict[str, int] | None:
        """Raises XlaRuntimeError."""
        _refuse("MemoryStats")

    def get_stream_for_external_ready_events(self) -> int:
        """Raises XlaRuntimeError."""
        _refuse("GetStreamForExternalReadyEvents")

    def transfer_to_infeed(self, literal: Any, /) -> None:
        """Raises XlaRuntimeError."""
        _refuse("TransferToInfeed")

    def transfer_from_outfeed(self, shape: Any, /) -> Any:
        """Raises XlaRuntimeError."""
        _refuse("TransferFromOutfeed")


class CompileOnlyPyClient(Client):
    """The client of a topology's devices: it knows them, and compiles nothing for processors."""

    __slots__ = ()

    @unconstructed
    def __init__(self, devices: Sequence[Device]) -> None:
        self.wrapped = devices[0].client.wrapped
        self._devices: list[Device] = [CompileOnlyDevice(self, device.wrapped) for device in devices]
        self._arrays = {}
        self._executables = weakref.WeakSet()

    @property
    def runtime_type(self) -> str:
        """``"compile_only_runtime"``."""
        return "compile_only_runtime"

    def local_devices(self) -> list[Device]:
        """None of them."""
        return []

    def device_count(self) -> int:
        """How many devices there are."""
        return len(self._devices)

    def local_device_count(self) -> int:
        """0."""
        return 0

    def compile(self, *computation: Any, **options: Any) -> NoReturn:
        """Raises XlaRuntimeError, as that of jaxlib does for processors."""
        _refuse("Compile", "NOT_FOUND")


class DeviceTopology:
    """The devices of a client, without the client."""

    @unconstructed
    def __init__(self, devices: Sequence[Device]) -> None:
        self._devices = list(devices)

    @property
    def platform(self) -> str:
        """``"cpu"``."""
        return "cpu"

    @property
    def platform_version(self) -> str:
        """``"cpu"``, as that of clients."""
        return "cpu"

    def serialize(self) -> bytes:
        """The numbers of the devices, as JSON."""
        return json.dumps({"platform": "cpu", "devices": [device.id for device in self._devices]}).encode()

    def _make_compile_only_devices(self) -> list[Device]:
        """Devices like these, which describe and do not run anything, with a client of their own."""
        return CompileOnlyPyClient(self._devices).devices()

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"a topology of platform cpu has no attribute '{name}'")


def get_topology_for_devices(devices: Sequence[Device], /) -> DeviceTopology:
    """The topology of some devices. Raises ValueError where there are none."""
    if not devices:
        raise ValueError("get_topology_for_devices requires >= 1 devices.")
    return DeviceTopology(devices)


def _check_capsule(name: str, value: object) -> None:
    if type(value).__name__ != "PyCapsule":
        raise incompatible(name, f"c_api is a PyCapsule, not a {type(value).__name__}")


def _no_plugins(what: str, code: str = "NOT_FOUND") -> XlaRuntimeError:
    error = UnsupportedError(
        f"{what}: xlakit loads no plugins of other platforms", hint="use make_cpu_client, or JAX for those"
    )
    return as_status(error, code=code)


@bound
def make_tfrt_tpu_c_api_device_topology(topology_name: str = "", **kwargs: Any) -> DeviceTopology:
    """Raises XlaRuntimeError: there are no TPUs."""
    raise _no_plugins(f"TPU topology '{topology_name}'")


@bound
def make_c_api_device_topology(c_api: Any, topology_name: str = "", **kwargs: Any) -> DeviceTopology:
    """Raises XlaRuntimeError: xlakit loads no plugins."""
    _check_capsule("make_c_api_device_topology", c_api)
    raise _no_plugins(f"topology '{topology_name}'")


def pjrt_plugin_loaded(plugin_name: str) -> bool:
    """Whether a plugin is loaded: never."""
    return False


def pjrt_plugin_initialized(plugin_name: str) -> bool:
    """Raises XlaRuntimeError: no plugin is loaded."""
    raise _no_plugins(f"plugin '{plugin_name}'")


@bound
def load_pjrt_plugin_dynamically(plugin_name: str, library_path: str) -> Any:
    """Raises XlaRuntimeError: xlakit loads no plugins."""
    raise _no_plugins(f"plugin {library_path}", "INTERNAL")


@bound
def load_pjrt_plugin_with_c_api(plugin_name: str, c_api: Any) -> None:
    """Raises XlaRuntimeError: xlakit loads no plugins."""
    _check_capsule("load_pjrt_plugin_with_c_api", c_api)
    raise _no_plugins(f"plugin '{plugin_name}'")


@bound
def initialize_pjrt_plugin(plugin_name: str) -> None:
    """Raises XlaRuntimeError: xlakit loads no plugins."""
    raise _no_plugins(f"plugin '{plugin_name}'")


@bound
def make_c_api_client(
    plugin_name: str, options: Mapping[str, Any] | None = None, distributed_client: Any = None
) -> Any:
    """Raises XlaRuntimeError: xlakit loads no plugins."""
    raise _no_plugins(f"plugin '{plugin_name}'")


@bound
def make_tpu_client(library_path: str | None = None, options: Mapping[str, Any] | None = None) -> Any:
    """Raises XlaRuntimeError: there are no TPUs."""
    raise _no_plugins(f"plugin {library_path or 'libtpu.so'}", "INTERNAL")


def generate_pjrt_gpu_plugin_options() -> dict[str, Any]:
    """The options that the environment gives for clients of GPUs. Raises ValueError for an unknown allocator."""
    environment = os.environ
    allocator = environment.get("XLA_PYTHON_CLIENT_ALLOCATOR", "default").lower()
    known = ("default", "platform", "bfc", "cuda_async")
    if allocator not in known:
        raise ValueError(f"XLA_PYTHON_CLIENT_ALLOCATOR is {allocator!r}; known: {', '.join(known)}")
    old, new = environment.get("XLA_PYTHON_CLIENT_MEM_FRACTION", ""), environment.get("XLA_CLIENT_MEM_FRACTION", "")
    if old and new:
        raise ValueError("XLA_PYTHON_CLIENT_MEM_FRACTION and XLA_CLIENT_MEM_FRACTION are both set; unset the former")
    options: dict[str, Any] = {"platform_name": "cuda", "allocator": allocator}
    if old or new:
        options["memory_fraction"] = float(old or new)
    if preallocate := environment.get("XLA_PYTHON_CLIENT_PREALLOCATE", ""):
        options["preallocate"] = preallocate not in ("false", "False", "0")
    if megabytes := environment.get("XLA_PYTHON_CLIENT_COLLECTIVE_MEM_SIZE_MB", ""):
        options["collective_memory_size"] = int(megabytes) << 20
    return options
