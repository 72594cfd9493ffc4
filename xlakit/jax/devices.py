"""The records of the client, its devices and their memories, which PJRT's functions return."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Final

import xlakit
from xlakit.jax.identity import CPU, device_count
from xlakit.jax.native.records import CLIENT, DESCRIPTION, DEVICE, MEMORY, TOPOLOGY
from xlakit.jax.processes import join
from xlakit.jax.records import Words

if TYPE_CHECKING:
    from xlakit.runtime.client import Client
    from xlakit.runtime.cluster import Cluster

# JAX's memory kinds, as on jaxlib's CPU, with their memory spaces in HLO's layouts. All kinds are the same memory here:
# a kind is only a label of an array.
MEMORY_SPACES: Final = {"device": 0, "pinned_host": 5, "unpinned_host": 6}
MEMORY_KINDS: Final = tuple(MEMORY_SPACES)


class DeviceRecords:
    """The records of a device, its description and its memories, of which the first is the default."""

    def __init__(self, number: int, platform: str, cluster: Cluster) -> None:
        is_here = number in cluster.local_devices
        count = len(MEMORY_KINDS) if is_here else 0
        name = "CpuDevice" if platform == CPU else "XlakitDevice"
        self.description = Words(
            DESCRIPTION, id=number, process_index=cluster.process_of(number), kind="cpu", text=f"{name}(id={number})",
            debug_text=f"{platform}:{number}",
        )  # fmt: skip
        self.device = Words(
            DEVICE, description=self.description.address, is_addressable=int(is_here),
            local_hardware_id=number - cluster.local_devices.start if is_here else -1, num_memories=count,
        )  # fmt: skip
        self.memories = [
            Words(
                MEMORY, id=number * len(MEMORY_KINDS) + index, kind=kind, kind_id=index + 1,
                text=f"{kind} memory of device {number}", devices=[self.device.address], num_devices=1,
                device=self.device.address,
            )
            for index, kind in enumerate(MEMORY_KINDS[:count])
        ]  # fmt: skip
        self.device.set(
            memories=[memory.address for memory in self.memories], memory=self.memories[0].address if is_here else 0
        )


class Devices:
    """The records of the client and its devices, and xlakit's :class:`Client`, which compiles."""

    def __init__(self, platform: str) -> None:
        self.cluster = cluster = join(platform, device_count(platform))
        self.devices = [DeviceRecords(number, platform, cluster) for number in range(cluster.device_count)]
        # Those in this process.
        self.local = self.devices[cluster.local_devices.start : cluster.local_devices.stop]
        # If the platform's name is ``cpu``, the version is what identifies xlakit.
        version = f"xlakit {xlakit.__version__}"
        self.topology = Words(
            TOPOLOGY, platform_name=platform, platform_version=version,
            descriptions=[device.description.address for device in self.devices], num_descriptions=len(self.devices),
        )  # fmt: skip
        self.record = Words(
            CLIENT, platform_name=platform, platform_version=version, topology=self.topology.address,
            process_index=cluster.process_index, local_devices=[device.device.address for device in self.local],
            num_local_devices=len(self.local), first_local=cluster.local_devices.start,
            devices=[device.device.address for device in self.devices], num_devices=len(self.devices),
            memories=[memory.address for device in self.local for memory in device.memories],
            num_memories=len(self.local) * len(MEMORY_KINDS),
        )  # fmt: skip

    @cached_property
    def client(self) -> Client:
        """The client of the devices in this process, created when the first program is compiled.

        Programs from the compile cache do not need it.
        """
        from xlakit.runtime.client import Client

        return Client(len(self.local))
