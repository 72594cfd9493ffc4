"""The devices of a topology, which describe devices and cannot run anything."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any, NoReturn

from xlakit.compat.xla_client.binding import unconstructed
from xlakit.compat.xla_client.errors import as_status
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
