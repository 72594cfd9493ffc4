"""Programs on the devices of several processes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from xlakit.errors import InternalError

if TYPE_CHECKING:
    from xlakit.ir.instruction import HloModule
    from xlakit.ir.operation import Array
    from xlakit.jax.devices import Devices
    from xlakit.runtime.device import Device


class SpanningExecutable:
    """A program on some devices, by their numbers among those of all processes; this process runs its share.

    It has what :class:`~xlakit.runtime.executable.LoadedExecutable` has, as far as JAX asks for it.
    """

    # Machine code alone cannot run it: its collectives are messages, which Python sends.
    native_entry: tuple[int, int] | None = None

    def __init__(self, devices: Devices, module: HloModule, replicas: int, partitions: int, ids: Sequence[int]) -> None:
        # Programs of one process do without the compiler where they are cached.
        import xlakit
        from xlakit.execution.context import ExecutionContext

        processes = devices.processes
        if processes.network is None:
            raise InternalError("a program on devices of other processes, without a network")
        self.module = module
        self.num_replicas, self.num_partitions = replicas, partitions
        self._local = [devices.client.devices()[id - processes.local.start] for id in ids if id in processes.local]
        context = ExecutionContext()
        context.network = processes.network.on([processes.process_of(id) for id in ids])
        self.compiled: Any = xlakit.compile(
            module, num_replicas=replicas, num_partitions=partitions, execution_context=context
        )

    @property
    def in_place(self) -> Sequence[tuple[int, int]]:
        """No results are computed in the memory of arguments."""
        return ()

    @property
    def num_devices(self) -> int:
        """How many devices run it, in all processes."""
        return self.num_replicas * self.num_partitions

    def local_devices(self) -> list[Device]:
        """The devices of this process that run it, in the order of the program's devices."""
        return list(self._local)

    def execute(self, arguments: Sequence[Sequence[Array | None]]) -> list[Any]:
        """Run it: arguments and result of each device of this process."""
        return self.compiled.execute_replicated(arguments)
