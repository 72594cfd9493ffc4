"""Programs that span the devices of several processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from xlakit.errors import InternalError

if TYPE_CHECKING:
    from xlakit.ir.instruction import HloModule
    from xlakit.ir.operation import Array
    from xlakit.jax.devices import Devices
    from xlakit.runtime.device import Device
    from xlakit.runtime.executable import LoadedExecutable


class SpanningExecutable:
    """A program on some devices, by their numbers among those of all processes; this process runs its share.

    It has those members of :class:`~xlakit.runtime.executable.LoadedExecutable` that JAX uses. A program whose devices
    do not communicate is compiled for the devices of this process alone.
    """

    def __init__(self, devices: Devices, module: HloModule, replicas: int, partitions: int, ids: Sequence[int]) -> None:
        # Imported here, as cached programs of one process do not need the compiler.
        import xlakit
        from xlakit.execution.context import ExecutionContext

        cluster = devices.cluster
        if cluster.network is None:
            raise InternalError("a program on devices of other processes, without a network")
        self.module = module
        self.num_replicas, self.num_partitions = replicas, partitions
        self._local = [
            devices.client.devices()[id - cluster.local_devices.start] for id in ids if id in cluster.local_devices
        ]
        self._alone: LoadedExecutable | None = None
        if self._local and _needs_no_others(module):
            rows = [[device.id] for device in self._local]
            self._alone = devices.client.compile(
                module, num_replicas=len(rows), num_partitions=1, device_assignment=rows
            )
            self.compiled: Any = self._alone.compiled
            return
        context = ExecutionContext()
        context.network = cluster.network.on([cluster.process_of(id) for id in ids])
        self.compiled = xlakit.compile(
            module, num_replicas=replicas, num_partitions=partitions, execution_context=context
        )

    @property
    def native_entry(self) -> tuple[int, int] | None:
        """The native entry if the program needs no other process; collectives are messages, which Python sends."""
        return None if self._alone is None else self._alone.native_entry

    @property
    def in_place(self) -> Sequence[tuple[int, int]]:
        """Which results may be computed in the memory of arguments."""
        return () if self._alone is None else self._alone.in_place

    @property
    def num_devices(self) -> int:
        """How many devices run it, in all processes."""
        return self.num_replicas * self.num_partitions

    def local_devices(self) -> list[Device]:
        """The devices of this process that run it, in the order of the program's devices."""
        return list(self._local)

    @cached_property
    def run_at(self) -> Callable[[int, int], None] | None:
        """A function that runs it on the only device of this process, given tables of arrays' addresses; or None."""
        is_here = self._alone is None and getattr(self.compiled, "takes_addresses", False)
        return self.compiled.run_at if is_here else None

    def execute(self, arguments: Sequence[Sequence[Array | None]]) -> list[Any]:
        """Run it: arguments and result of each device of this process."""
        return self.compiled.execute_replicated(arguments)


def _needs_no_others(module: HloModule) -> bool:
    """Whether the devices do not communicate, and the program does not depend on the device's number."""
    from xlakit.ops.communication.collectives import DeviceNumber

    return not any(
        i.op.has_side_effect or isinstance(i.op, DeviceNumber)
        for computation in module.computations
        for i in computation.instructions
    )
