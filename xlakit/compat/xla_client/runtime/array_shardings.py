"""The shardings of arrays as JAX's bindings have them: records of devices, a mesh or a sharding, and a memory kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from xlakit.compat.xla_client.binding import incompatible
from xlakit.compat.xla_client.runtime.device import Device, DeviceList, check_and_canonicalize_memory_kind
from xlakit.compat.xla_client.sharding import HloSharding, OpSharding


class Sharding:
    """The base of shardings, which programs may give attributes of their own."""

    __slots__ = ("__dict__", "_internal_device_list", "_memory_kind")

    def __init__(self) -> None:
        self._internal_device_list: DeviceList | None = None
        self._memory_kind: str | None = None

    @property
    def memory_kind(self) -> str | None:
        """The kind of memory of the arrays."""
        return self._memory_kind


class SingleDeviceSharding(Sharding):
    """The whole array on one device."""

    __slots__ = ("_device",)

    def __init__(self, device: Device, memory_kind: str | None = None) -> None:
        super().__init__()
        self._device = device
        self._internal_device_list = DeviceList((device,))
        self._memory_kind = check_and_canonicalize_memory_kind(memory_kind, self._internal_device_list)

    @property
    def device_set(self) -> set[Device]:
        """The device, in a set."""
        return {self._device}


class GSPMDSharding(Sharding):
    """An array split over devices as an HloSharding says."""

    __slots__ = ("_devices", "_hlo_sharding")

    def __init__(
        self,
        devices: Sequence[Device],
        op_sharding: OpSharding | HloSharding,
        memory_kind: str | None = None,
        _device_list: DeviceList | None = None,
    ) -> None:
        if not isinstance(op_sharding, (OpSharding, HloSharding)):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise incompatible("GSPMDSharding", f"op_sharding is a sharding, no {type(op_sharding).__name__}")
        super().__init__()
        self._devices = tuple(devices)
        given = op_sharding
        self._hlo_sharding = HloSharding.from_proto(given) if isinstance(given, OpSharding) else given
        self._internal_device_list = _device_list or DeviceList(self._devices)
        self._memory_kind = check_and_canonicalize_memory_kind(memory_kind, self._internal_device_list)


class NamedSharding(Sharding):
    """An array split over the axes of a mesh; both are objects of JAX, which are kept as they are."""

    __slots__ = ("_logical_device_ids", "_manual_axes", "mesh", "spec")

    def __init__(
        self,
        mesh: Any,
        spec: Any,
        memory_kind: str | None = None,
        _manual_axes: frozenset[Any] = frozenset(),
        _logical_device_ids: tuple[int, ...] | None = None,
    ) -> None:
        super().__init__()
        self.mesh = mesh
        self.spec = spec
        self._memory_kind = memory_kind
        self._manual_axes = _manual_axes
        self._logical_device_ids = _logical_device_ids


class PmapSharding(Sharding):
    """An array with a part for each device of an array of them."""

    __slots__ = ("devices", "sharding_spec")

    def __init__(self, devices: Any, sharding_spec: Any) -> None:
        if not hasattr(devices, "__array__"):
            raise incompatible("PmapSharding", f"devices are an array of NumPy, no {type(devices).__name__}")
        super().__init__()
        self.devices = devices
        self.sharding_spec = sharding_spec
        self._internal_device_list = DeviceList(tuple(getattr(devices, "flat", devices)))
