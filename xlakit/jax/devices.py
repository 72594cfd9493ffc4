"""The client, its devices and their memories, as the interface shows them: one client for each process."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Final

import xlakit
from xlakit.jax.identity import CPU, device_count
from xlakit.jax.native.records import CLIENT, DESCRIPTION, DEVICE, MEMORY, TOPOLOGY
from xlakit.jax.records import Words

if TYPE_CHECKING:
    from xlakit.runtime.client import Client

# The kinds of memory that JAX's programs name, as on jaxlib's CPU, and the memory spaces of HLO's layouts that mean
# them. All of it is the same memory here: a kind is a label of an array.
MEMORY_SPACES: Final = {"device": 0, "pinned_host": 5, "unpinned_host": 6}
MEMORY_KINDS: Final = tuple(MEMORY_SPACES)


class Place:
    """A device with its description and its memories, of which the first is the default."""

    def __init__(self, number: int, platform: str) -> None:
        name = "CpuDevice" if platform == CPU else "XlakitDevice"
        self.description = Words(
            DESCRIPTION, id=number, process_index=0, kind="cpu", text=f"{name}(id={number})",
            debug_text=f"{platform}:{number}",
        )  # fmt: skip
        self.device = Words(
            DEVICE, description=self.description.address, is_addressable=1, local_hardware_id=number,
            num_memories=len(MEMORY_KINDS),
        )  # fmt: skip
        self.memories = [
            Words(
                MEMORY, id=number * len(MEMORY_KINDS) + index, kind=kind, kind_id=index + 1,
                text=f"{kind} memory of device {number}", devices=[self.device.address], num_devices=1,
                device=self.device.address,
            )
            for index, kind in enumerate(MEMORY_KINDS)
        ]  # fmt: skip
        self.device.set(memories=[memory.address for memory in self.memories], memory=self.memories[0].address)


class Devices:
    """What the interface's functions about the client hand out, and the client of ours that compiles."""

    def __init__(self, platform: str) -> None:
        self.places = [Place(number, platform) for number in range(device_count(platform))]
        # Where JAX calls it by another name, this is what tells that it is xlakit.
        version = f"xlakit {xlakit.__version__}"
        self.topology = Words(
            TOPOLOGY, platform_name=platform, platform_version=version,
            descriptions=[place.description.address for place in self.places], num_descriptions=len(self.places),
        )  # fmt: skip
        self.record = Words(
            CLIENT, platform_name=platform, platform_version=version, topology=self.topology.address,
            devices=[place.device.address for place in self.places], num_devices=len(self.places),
            memories=[memory.address for place in self.places for memory in place.memories],
            num_memories=len(self.places) * len(MEMORY_KINDS),
        )  # fmt: skip

    @cached_property
    def client(self) -> Client:
        """The client, made when a program is compiled: those that are kept run without it."""
        from xlakit.runtime.client import Client

        return Client(len(self.places))
