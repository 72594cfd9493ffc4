"""Client: the devices of this process, and what they share."""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, cast

import numpy as np

from xlakit.arguments import converting, name_type
from xlakit.data.immutable import Immutable
from xlakit.deprecation import renamed_attribute
from xlakit.errors import ArgumentError, UnsupportedError
from xlakit.execution.context import ExecutionContext
from xlakit.runtime.cluster import Cluster
from xlakit.runtime.device import Device
from xlakit.runtime.device_count import check_count, default_devices
from xlakit.runtime.schedule import Schedule, stop_workers
from xlakit.runtime.transfer import HostBufferSemantics

if TYPE_CHECKING:
    from xlakit.api import BuildsModule
    from xlakit.ir.instruction import HloModule
    from xlakit.runtime.buffer import Buffer
    from xlakit.runtime.executable import Compiled, LoadedExecutable


class Client(Immutable):
    """Devices in this process, for buffers to live on and programs to run on.

    devices: how many; by default what the environment variable ``XLAKIT_DEVICES`` says, or 1. Devices share the
        processors; several are for programs of several replicas or partitions, and for running programs side by side.
    timeout: how many seconds a program waits for a feed, or for another program, that may still come; by default what
        ``XLAKIT_TIMEOUT`` says, or 30.

    distributed: the processes that have the devices together, from :func:`xlakit.distributed.initialize`. Programs run
        on the devices of all; arguments are given, and results come, for those of this process. All processes must call
        the same programs in the same order.

    A client is a context manager: at the end of ``with`` it waits for the work of its devices, and ends its threads.
    It can be used from all threads, and after any error. In a forked child process it has the same buffers, and idle
    devices.

    Raises ArgumentError or ResourceError for a number of devices that cannot be.
    """

    @converting
    def __init__(
        self, devices: int | None = None, *, timeout: float | None = None, distributed: Cluster | None = None
    ) -> None:
        if distributed is not None:
            devices = _count_of(distributed, devices)
        count = default_devices() if devices is None else devices
        check_count(count, "devices")
        self._cluster = distributed
        self._timeout = timeout
        # Identifies the client in pickles; see :meth:`__reduce__`.
        self._token: bytes | None = None
        make = ExecutionContext if distributed is None else distributed.new_execution_context
        self._schedule = Schedule(count, lambda: make(timeout=timeout))
        self._devices = [Device(self, queue) for queue in self._schedule.queues]
        here = self._devices if distributed is None else [self._devices[i] for i in distributed.local_devices]
        self._local_devices = here
        # Threads end with their client, even if it is not closed, since they refer to their queues only.
        weakref.finalize(self, stop_workers, self._schedule.queues).atexit = False
        _clients.add(self)

    # -- properties ------------------------------------------------------------------------------

    def devices(self) -> list[Device]:
        """The devices, by number: those of all processes."""
        return list(self._devices)

    def local_devices(self) -> list[Device]:
        """The devices of this process: all of them, unless the client is distributed."""
        return list(self._local_devices)

    def device_count(self) -> int:
        """How many devices there are."""
        return len(self._devices)

    def local_device_count(self) -> int:
        """How many devices of this process there are: all, unless the client is distributed."""
        return len(self._local_devices)

    def process_index(self) -> int:
        """The number of this process: 0, unless the client is distributed."""
        return 0 if self._cluster is None else self._cluster.process_index

    def process_count(self) -> int:
        """How many processes have its devices: 1, unless the client is distributed."""
        return 1 if self._cluster is None else self._cluster.process_count

    def process_of(self, device: int) -> int:
        """The number of the process that has a device."""
        return 0 if self._cluster is None else self._cluster.process_of(device)

    @property
    def platform(self) -> str:
        """``"cpu"``."""
        return "cpu"

    @property
    def execution_context(self) -> ExecutionContext:
        """The infeeds, outfeeds and channels of its devices, by their numbers."""
        return self._schedule.execution_context

    world = renamed_attribute("world", "execution_context")

    @property
    def schedule(self) -> Schedule:
        """The queues of its devices; for the runtime."""
        return self._schedule

    @converting
    def get_default_device_assignment(self, num_replicas: int, num_partitions: int = 1) -> list[list[Device]]:
        """The device for each partition of each replica, by default: the first ones, in order.

        Raises ArgumentError where there are too few devices.
        """
        needed = num_replicas * num_partitions
        if num_replicas < 1 or num_partitions < 1:
            raise ArgumentError(f"{num_replicas} replicas of {num_partitions} partitions", hint="give at least 1")
        if needed > len(self._devices):
            raise ArgumentError(
                f"{num_replicas} replicas of {num_partitions} partitions need {needed} devices, "
                f"the client has {len(self._devices)}",
                hint=f"make it with xlakit.Client(devices={needed}), or set XLAKIT_DEVICES={needed}",
            )
        if needed == 1:
            return [[self._local_devices[0]]]
        return [self._devices[r * num_partitions : (r + 1) * num_partitions] for r in range(num_replicas)]

    # -- buffers ---------------------------------------------------------------------------------

    def buffer_from_host(
        self,
        value: object,
        device: Device | None = None,
        *,
        host_buffer_semantics: HostBufferSemantics | str = HostBufferSemantics.IMMUTABLE_ONLY_DURING_CALL,
    ) -> Any:
        """A value of the host as a Buffer on a device, the first one by default; see :meth:`Device.put`."""
        return self._device_or_first(device).put(value, host_buffer_semantics=host_buffer_semantics)

    def buffer_from_dlpack(self, tensor: object, device: Device | None = None, *, copy: bool | None = None) -> Buffer:
        """A Buffer of a tensor of another library on a device, the first one by default; see Device.from_dlpack."""
        return self._device_or_first(device).from_dlpack(tensor, copy=copy)

    def _device_or_first(self, device: Device | None) -> Device:
        if device is None:
            return self._local_devices[0]
        if not isinstance(device, Device) or device.client is not self:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ArgumentError(
                f"device is {device!r}, which is not of this client", hint="take one of client.devices()"
            )
        return device

    # -- programs --------------------------------------------------------------------------------

    def compile(
        self,
        program: HloModule | BuildsModule,
        *,
        num_replicas: int | None = None,
        num_partitions: int | None = None,
        device_assignment: object = None,
        backend: str | None = None,
        seed: int = 0,
        custom_calls: Mapping[str, object] | None = None,
        cache: bool = True,
    ) -> LoadedExecutable:
        """A program that runs on devices of this client.

        num_replicas, num_partitions: how many devices run it together; by default what the module says.
        device_assignment: for each replica the devices (or their numbers) of its partitions; a plain list where there
            is one partition, or one device for a program of one. By default the first devices, in order.
        program, backend, seed, custom_calls, cache: as for :func:`xlakit.compile`. Feeds and channels are those of
            :attr:`execution_context`.

        Raises ArgumentError for devices that are not there, and what :func:`xlakit.compile` raises.
        """
        from xlakit.api import compile as compile_program
        from xlakit.runtime.executable import LoadedExecutable

        self._schedule.check_open()
        compiled = compile_program(
            program,
            backend=backend,
            num_replicas=num_replicas,
            num_partitions=num_partitions,
            seed=seed,
            custom_calls=custom_calls,
            execution_context=self.execution_context,
            cache=cache,
        )
        if device_assignment is None:
            assignment = self.get_default_device_assignment(compiled.num_replicas, compiled.num_partitions)
        else:
            assignment = self._assignment(device_assignment, compiled.num_replicas, compiled.num_partitions)
        return LoadedExecutable(self, cast("Compiled", compiled), [device for row in assignment for device in row])

    def _assignment(self, device_assignment: object, replicas: int, partitions: int) -> list[list[Device]]:
        grid = np.asarray(device_assignment, dtype=object)
        if grid.size != replicas * partitions or (grid.ndim == 2 and grid.shape != (replicas, partitions)):
            raise ArgumentError(
                f"device_assignment has {grid.size} devices in the form {grid.shape}, "
                f"the program has {replicas} replicas of {partitions} partitions",
                hint="give a list for each replica with a device for each partition",
            )
        devices = [self._device(entry) for entry in grid.ravel()]
        if len(set(devices)) < len(devices):
            raise ArgumentError(
                f"device_assignment names a device twice: {[d.id for d in devices]}",
                hint="each replica and partition needs a device of its own",
            )
        moved = [d.id for d in devices] != list(range(len(devices)))
        if moved and len({d.process_index for d in self._devices}) > 1 and len(devices) > 1:
            raise UnsupportedError(
                "a program on several processes runs on the devices in their order, "
                f"device_assignment is {[d.id for d in devices]}",
                hint="leave device_assignment out, and reorder replicas in the program's groups",
            )
        return [devices[r * partitions : (r + 1) * partitions] for r in range(replicas)]

    def _device(self, entry: object) -> Device:
        if isinstance(entry, (int, np.integer)) and 0 <= int(entry) < len(self._devices):
            return self._devices[int(entry)]
        if isinstance(entry, Device) and entry.client is self:
            return entry
        raise ArgumentError(
            f"device_assignment names {entry!r}, the client has devices 0 .. {len(self._devices) - 1}",
            hint="give devices of client.devices(), or their numbers",
        )

    # -- other processes -------------------------------------------------------------------------

    def __reduce__(self) -> tuple[Any, ...]:
        """A pickle loads as this client in its own process, and in another process as a client that represents it.

        All pickles of one client load as the same representative, which has as many devices.
        """
        if self._cluster is not None:
            raise UnsupportedError(
                "a client of several processes cannot be pickled",
                hint="let each process make its own with xlakit.distributed.initialize",
            )
        if self._token is None:
            self._token = os.urandom(16)
            _pickled[self._token] = self
        return _standing_for, (self._token, len(self._devices), self._timeout)

    # -- the end ---------------------------------------------------------------------------------

    def synchronize_all_activity(self) -> None:
        """Wait for all submitted work of the devices; see :meth:`Device.synchronize_all_activity`."""
        self._schedule.wait_for_all()

    def close(self, *, wait: bool = True) -> None:
        """Refuse new programs and values, and end the threads. Buffers that are ready can still be read.

        wait: whether submitted work may end first; otherwise it is stopped, and its results fail. Ctrl-C during the
            wait stops it, too.
        """
        self._schedule.close(wait=wait)

    @property
    def is_closed(self) -> bool:
        """Whether it takes no more programs and values."""
        return self._schedule.is_closed

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close(wait=error is None)

    def __repr__(self) -> str:
        state = " (closed)" if self.is_closed else ""
        if self._cluster is not None:
            state = f", {len(self._local_devices)} of them in process {self.process_index()}{state}"
        return f"<Client of {len(self._devices)} device{'s' * (len(self._devices) != 1)}{state}>"


name_type(Client, "a client", "clients", "make one with xlakit.Client()")

_clients = weakref.WeakSet[Client]()


# The clients of this process that were pickled, and the clients that represent those of other processes, by token.
_pickled = weakref.WeakValueDictionary[bytes, Client]()
_standing: dict[bytes, Client] = {}
_standing_lock = threading.Lock()


def _standing_for(token: bytes, devices: int, timeout: float | None) -> Client:
    with _standing_lock:
        found = _pickled.get(token) or _standing.get(token)
        if found is None:
            found = _standing[token] = Client(devices, timeout=timeout)
        return found


def _count_of(cluster: Cluster, devices: int | None) -> int:
    if devices not in (None, cluster.device_count):
        raise ArgumentError(
            f"the processes have {cluster.device_count} devices, devices is {devices}",
            hint=f"leave devices out, and give xlakit.distributed.initialize(devices={devices})",
        )
    return cluster.device_count


def _after_fork() -> None:
    for client in list(_clients):
        client.schedule.after_fork()


def _at_exit() -> None:
    # Native code must not continue while Python shuts down.
    for client in list(_clients):
        if client.process_count() > 1:
            # Other processes may wait for the submitted work of this process, so it is completed first.
            client.close()
        else:
            client.schedule.exit()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
atexit.register(_at_exit)
