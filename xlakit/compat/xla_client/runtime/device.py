"""Device, Memory and DeviceList."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from typing import Any, Self

import numpy as np

from xlakit.compat.xla_client.binding import bound, unconstructed
from xlakit.compat.xla_client.errors import as_status, with_status
from xlakit.compat.xla_client.shapes import Shape
from xlakit.errors import ArgumentError, DeadlockError, UnsupportedError
from xlakit.runtime.device import Device as OurDevice
from xlakit.settings import default_timeout

MEMORY_KIND = "unpinned_host"


class Memory:
    """The memory of a device: that of the host."""

    __slots__ = ("_device",)

    @unconstructed
    def __init__(self, device: Device) -> None:
        self._device = device

    @property
    def kind(self) -> str:
        """``"unpinned_host"``."""
        return MEMORY_KIND

    @property
    def platform(self) -> str:
        """``"cpu"``."""
        return self._device.platform

    @property
    def process_index(self) -> int:
        """The number of the process whose memory it is."""
        return self._device.process_index

    def addressable_by_devices(self) -> list[Device]:
        """The devices that can address it."""
        return [self._device]

    def __repr__(self) -> str:
        return f"{MEMORY_KIND.upper()}_{self._device.id}"

    def __str__(self) -> str:
        return f"UnpinnedHostMemorySpace(id={self._device.id}, process_index={self.process_index}, client=cpu)"


class Device:
    """One of the devices of a client."""

    __slots__ = ("__weakref__", "_client", "_memory", "wrapped")

    @unconstructed
    def __init__(self, client: Any, wrapped: OurDevice) -> None:
        self._client = client
        self.wrapped = wrapped
        self._memory = Memory(self)

    @property
    def client(self) -> Any:
        """The client whose device this is."""
        return self._client

    @property
    def id(self) -> int:
        """Its number, different for all devices, those of other processes included."""
        return self.wrapped.id

    @property
    def process_index(self) -> int:
        """The number of its process."""
        return self.wrapped.process_index

    # Older names.
    host_id = process_index
    task_id = process_index

    @property
    def platform(self) -> str:
        """``"cpu"``."""
        return "cpu"

    @property
    def device_kind(self) -> str:
        """``"cpu"``."""
        return "cpu"

    @property
    def local_hardware_id(self) -> int:
        """Its number in this process."""
        return self.wrapped.local_hardware_id

    def addressable_memories(self) -> list[Memory]:
        """The memories that it can address."""
        return [self._memory]

    def default_memory(self) -> Memory:
        """The memory where its buffers are."""
        return self._memory

    def memory(self, kind: str) -> Memory:
        """The memory of a kind. Raises XlaRuntimeError for one that there is not."""
        if kind != MEMORY_KIND:
            error = ArgumentError(f"device {self} has no such memory", hint=f"known: {MEMORY_KIND!r}")
            raise as_status(error, _no_memory(kind))
        return self._memory

    def live_buffers(self) -> list[Any]:
        """The arrays on this device that are not deleted."""
        warnings.warn("Device.live_buffers is deprecated; use Client.live_arrays", DeprecationWarning, stacklevel=2)
        return [array for array in self._client.live_arrays() if array.device is self]

    def memory_stats(self) -> dict[str, int] | None:
        """None: the memory is that of the host, which this process does not own."""
        return None

    @with_status
    def get_stream_for_external_ready_events(self) -> int:
        """Raises XlaRuntimeError: processors have no streams."""
        raise UnsupportedError(
            "GetStreamForExternalReadyEvents only implemented for GPU", hint="wait with block_until_ready()"
        )

    @with_status
    def transfer_to_infeed(self, literal: Any, /) -> None:
        """Append an array, or a tuple of arrays, to the infeed that programs on this device read.

        Raises XlaRuntimeError for what is neither: the program that reads it would be to blame.
        """
        _check_arrays(literal)
        self.wrapped.transfer_to_infeed(literal)

    @bound
    def transfer_from_outfeed(self, shape: Shape, /) -> Any:
        """The next value that a program on this device has put out; waits for it, as long as XLAKIT_TIMEOUT says."""
        found = self._outfed()
        _check_is_compatible(found, shape)
        return found

    def _outfed(self) -> Any:
        # Another thread may be about to run the program: there is no knowing, and jaxlib waits for ever.
        last = time.monotonic() + default_timeout()
        while True:
            try:
                return self.wrapped.transfer_from_outfeed()
            except DeadlockError:
                if time.monotonic() > last:
                    raise
                time.sleep(0.001)

    def __call__(self) -> Self:
        """The device: ``array.device()`` of older releases works where ``array.device`` is meant."""
        return self

    def __getattr__(self, name: str) -> Any:
        # Attributes of other platforms, such as coords and core_on_chip.
        raise AttributeError(f"a device of platform cpu has no attribute '{name}'")

    def __repr__(self) -> str:
        return f"CpuDevice(id={self.id})"

    def __str__(self) -> str:
        return f"TFRT_CPU_{self.id}"

    def __reduce__(self) -> str | tuple[Any, ...]:
        raise TypeError("a device cannot be pickled; find it by its id in the other process's client")


def _check_arrays(value: Any) -> None:
    """Raise ArgumentError for what is no array, no number and no tuple of them."""
    if isinstance(value, tuple):
        for part in value:  # pyright: ignore[reportUnknownVariableType]
            _check_arrays(part)
    elif np.asarray(value).dtype.kind in "OSUMm":
        raise ArgumentError(f"a {type(value).__name__} is no array and no number", hint="give arrays of NumPy")


def _check_is_compatible(value: Any, shape: Shape) -> None:
    from xlakit.data.literal import Literal

    found = Literal.from_value(value).shape
    if not found.compatible(shape.wrapped):
        raise ArgumentError(f"the outfeed has a value of {found.without_layout()}, not of {shape}")


class DeviceList:
    """Devices in an order, to be compared and hashed as a whole."""

    __slots__ = ("_devices",)

    @bound
    def __init__(self, devices: tuple[Any, ...], /) -> None:
        self._devices: tuple[Device, ...] = devices

    def __len__(self) -> int:
        return len(self._devices)

    def __getitem__(self, index: int | slice, /) -> Any:
        return self._devices[index]

    def __iter__(self) -> Iterator[Device]:
        return iter(self._devices)

    @property
    def is_fully_addressable(self) -> bool:
        """Whether all devices are of this process."""
        return all(d.process_index == d.client.process_index() for d in self._devices)

    @property
    def addressable_device_list(self) -> DeviceList:
        """The devices of this process."""
        return DeviceList(tuple(d for d in self._devices if d.process_index == d.client.process_index()))

    @property
    def default_memory_kind(self) -> str | None:
        """The kind of memory where buffers are; None without devices."""
        return MEMORY_KIND if self._devices else None

    @property
    def memory_kinds(self) -> tuple[str, ...]:
        """The kinds of memory that the devices can address."""
        return (MEMORY_KIND,) if self._devices else ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DeviceList) and other._devices == self._devices

    def __hash__(self) -> int:
        return hash(self._devices)

    def __repr__(self) -> str:
        return repr(self._devices)


def check_and_canonicalize_memory_kind(memory_kind: str | None, device_list: DeviceList) -> str | None:
    """The kind of memory, by default that of the devices. Raises ValueError for one that they do not have."""
    if memory_kind is None:
        return device_list.default_memory_kind
    if memory_kind not in device_list.memory_kinds:
        raise ValueError(_no_memory(memory_kind))
    return memory_kind


def _no_memory(kind: str) -> str:
    return f"device cpu has no memory of kind {kind}; its memory kinds: {MEMORY_KIND}"
