"""Processes: what a client needs to have devices in several processes; see :mod:`xlakit.distributed`."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from xlakit.arguments import name_type
from xlakit.execution.context import ExecutionContext


@runtime_checkable
class Processes(Protocol):
    """The processes that have the devices of a client."""

    @property
    def process_index(self) -> int:
        """The number of this process."""
        ...

    @property
    def process_count(self) -> int:
        """How many processes there are."""
        ...

    @property
    def device_count(self) -> int:
        """How many devices there are in all processes."""
        ...

    @property
    def local_devices(self) -> range:
        """The numbers of the devices in this process."""
        ...

    def process_of(self, device: int) -> int:
        """The number of the process that has a device."""
        ...

    def new_execution_context(self, *, timeout: float | None = None) -> ExecutionContext:
        """An execution context whose programs run on the devices of all processes."""
        ...


name_type(Processes, "a cluster", "clusters", "make it with xlakit.distributed.initialize()")
