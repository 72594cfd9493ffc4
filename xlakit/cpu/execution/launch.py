"""Launch: one run of a program on several devices in machine code, and the help that Python gives it in long waits."""

from __future__ import annotations

import ctypes
import os
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from xlakit.cpu.runtime import Context, Status, runtime
from xlakit.cpu.runtime.call import execute_member, execute_replicas, raise_status
from xlakit.cpu.runtime.devices.fibers import FIBER, FiberState
from xlakit.cpu.runtime.devices.rendezvous import (
    ARRIVAL,
    FINISH,
    LEAVE,
    NOTICE,
    PARKING_SLOT_BYTES,
    RUN,
    SITE,
    SLOT,
    STUCK,
    TABLES,
    WAIT,
    run_bytes,
    slot_bytes,
)
from xlakit.cpu.runtime.devices.replicas import REPLICAS
from xlakit.errors import UnsupportedError

if TYPE_CHECKING:
    from xlakit.cpu.program import Program
    from xlakit.execution.context import ExecutionContext
    from xlakit.execution.deadlocks import Wait
    from xlakit.execution.device import Device
    from xlakit.execution.run import Participant
    from xlakit.ir.instruction import Instruction
    from xlakit.ir.operation import Array

    # The execution context in which a run is registered, and the run's devices.
    _Registered = tuple[ExecutionContext, Sequence[Participant]]

_WORD = 8
_LINE = 64


class RunRecord:
    """The memory that the devices of a run share. ``memory``, if Python allocated it, lives as long as this object."""

    def __init__(self, address: int, memory: Array | None = None) -> None:
        self.address = address
        self._memory = memory

    @staticmethod
    def made(devices: int, slots: Sequence[int]) -> RunRecord:
        """New memory, for devices that Python runs. Later runs reuse it, unless a run with it has failed."""
        begin = run_bytes(devices)
        end = begin + sum(map(slot_bytes, slots))
        memory = np.zeros(end + _LINE, np.uint8)
        record = RunRecord(-(-memory.ctypes.data // _LINE) * _LINE, memory)
        slot = begin
        for count in slots:
            words(record.address + slot, SLOT.size)[SLOT.index("count")] = count
            slot += slot_bytes(count)
        runtime().call("xlakit_run_start", record.address, devices, begin, end)
        return record

    def own(self) -> None:
        """Take ownership of memory that native code left to Python: it is released with this object."""
        weakref.finalize(self, runtime().call, "xlakit_release", self.address).atexit = False

    def field(self, name: str) -> int:
        """A word of the run, by its name in RUN."""
        return words(self.address, RUN.size)[RUN.index(name)]

    def status(self, device: int) -> int:
        """The status with which a device of a run in native code ended; negative if it still runs."""
        return words(self.field("statuses"), _WORD * (device + 1))[device]

    def fibers(self, worker: int) -> list[Any]:
        """The words of the fibers of a worker's devices."""
        devices, workers = self.field("devices"), self.field("workers")
        first, last = (-(-number * devices // workers) for number in (worker, worker + 1))
        offset = RUN.size + devices * (PARKING_SLOT_BYTES + _WORD * TABLES.index("fibers"))
        table = words(self.address + offset, _WORD * devices)
        return [words(table[device], FIBER.size) for device in range(first, last)]

    def stop(self) -> None:
        """Make the devices stop at their next wait or loop iteration."""
        runtime().call("xlakit_run_stop", self.address)

    def watch(self) -> None:
        """Make devices notify Python when they end."""
        runtime().call("xlakit_run_watch", self.address)


def words(address: int, size: int) -> Any:
    """The 64-bit words in ``size`` bytes at an address."""
    return (ctypes.c_int64 * (size // _WORD)).from_address(address)


class Launch:
    """One run on several devices.

    begin: creates the interpreter's devices of the run, and its execution context, when they are first needed.
    has_ended: whether a device has ended; None if the execution context counts the devices itself.
    """

    def __init__(
        self,
        record: RunRecord,
        instructions: Sequence[Instruction],
        begin: Callable[[], list[Device]],
        has_ended: Callable[[int], bool] | None = None,
    ) -> None:
        self.record = record
        self._instructions = instructions
        self._begin = begin
        self._has_ended = has_ended
        self._registered: _Registered | None = None
        # Whether the run has ended, so that another run may use the record.
        self.is_over = False

    @staticmethod
    def of(device: Device, record: RunRecord, instructions: Sequence[Instruction]) -> Launch:
        """The launch for the run of a device that Python has begun."""
        launch = Launch(record, instructions, lambda: [device])
        launch._registered = device.execution_context, device.run.devices
        device.run.when_failed(launch._stop)
        return launch

    def _stop(self) -> None:
        if not self.is_over:
            self.record.stop()

    @property
    def failure(self) -> BaseException | None:
        """The error of the run, as far as Python knows."""
        return self._registered[1][0].run.failure if self._registered else None

    def registered(self) -> _Registered:
        """Register the run with its execution context, unless that is done; gives the context and the devices."""
        registered = self._registered
        if registered is None:
            devices = self._begin()
            context = devices[0].execution_context
            with context.lock:
                registered = self._registered
                if registered is None:
                    registered = self._registered = context, devices
                    devices[0].run.when_failed(self.record.stop)
                    self.record.watch()
                    context.enter([d for d in devices if self._has_ended is None or not self._has_ended(d.index)])
        return registered

    def wait(self, number: int, address: int) -> None:
        """Wait at a collective until all members have arrived; ``address`` is a NOTICE's. Raises the run's error."""
        notice = words(address, NOTICE.size)
        site, slot, generation = (notice[NOTICE.index(name)] for name in ("site", "slot", "generation"))

        def sleep(seconds: float) -> None:
            runtime().call("xlakit_rendezvous_sleep", address, int(seconds * 1e9))

        _, devices = self.registered()
        device = devices[notice[NOTICE.index("ordinal")]]
        self._wait([self._wait_of(device, number, _Rendezvous(site, slot, generation, device), sleep)])

    def wait_with_share(self, worker: int) -> None:
        """Wait until some device of a worker's share can continue; none can at first. Raises the run's error."""

        def sleep(seconds: float) -> None:
            runtime().call("xlakit_share_sleep", self.record.address, worker, int(seconds * 1e9))

        _, devices = self.registered()
        waits: list[Wait] = []
        for fiber in self.record.fibers(worker):
            state, ordinal, number, site, slot, generation = (
                fiber[FIBER.index(name)] for name in ("state", "ordinal", "number", "site", "slot", "generation")
            )
            if state == FiberState.AWAITS_RESULT:
                # All members have arrived; a device of another worker computes, and will wake this worker.
                return
            if state == FiberState.AWAITS_MEMBERS:
                device = devices[ordinal]
                waits.append(self._wait_of(device, number, _Rendezvous(site, slot, generation, device), sleep))
        self._wait(waits)

    def _wait_of(
        self, device: Participant, number: int, rendezvous: _Rendezvous, sleep: Callable[[float], None]
    ) -> Wait:
        # Imported here: few runs wait in Python, and loading a program from the cache must stay fast.
        from xlakit.execution.deadlocks import Wait

        instruction = self._instructions[number]
        return Wait(
            device, instruction, rendezvous.absent_names, rendezvous.is_complete, rendezvous.absent, sleep=sleep
        )

    def _wait(self, waits: Sequence[Wait]) -> None:
        context, devices = self.registered()
        try:
            with context.bound(), context.lock:
                context.wait(*waits)
        except BaseException as error:
            devices[0].run.fail(error)
            raise

    def close(self) -> None:
        """Tell the execution context that all devices have ended."""
        if self._registered:
            context, devices = self._registered
            context.leave(devices)

    def leave(self, number: int) -> None:
        """Tell the execution context that a device has ended."""
        context, devices = self.registered()
        context.leave([devices[number]])


class _Rendezvous:
    """A rendezvous that a device waits for, read from the memory of the run."""

    def __init__(self, site_address: int, slot_address: int, generation: int, device: Participant) -> None:
        site = words(site_address, SITE.size)
        self._generation = generation
        self._device = device
        count = site[SITE.index("count")]
        self._members = list(words(site_address + site[SITE.index("members")], count * _WORD))
        self._slot = words(slot_address, slot_bytes(count))

    def is_complete(self) -> bool:
        """Whether all members have arrived, which ends the wait in Python."""
        return self._slot[SLOT.index("arrived")] >= (self._generation + 1) * len(self._members)

    def absent(self) -> list[int]:
        """The numbers of the members that have not arrived."""
        first, step = (SLOT.size + ARRIVAL.offset("times")) // _WORD, ARRIVAL.size // _WORD
        return [m for i, m in enumerate(self._members) if self._slot[first + i * step] <= self._generation]

    def absent_names(self) -> str:
        """The members that have not arrived, by name."""
        return "; ".join(map(self._device.program.name_of, self.absent()))


class Replicas:
    """The devices of one executable in machine code, on threads of the runtime or on threads of Python.

    begin: creates the interpreter's devices of a run, when Python first needs them. contexts: creates the origin of a
    device's contexts.
    """

    def __init__(
        self, program: Program, num_devices: int, begin: Callable[[], list[Device]], contexts: Callable[[int], Context]
    ) -> None:
        self._program = program
        self._num_devices = num_devices
        self._begin = begin
        self._make_context = contexts
        self._record: Any = None
        self._contexts: list[Context] = []
        self._lock = threading.Lock()
        self._free_records: list[RunRecord] = []
        self._launches: weakref.WeakValueDictionary[int, Launch] = weakref.WeakValueDictionary()
        # The launches of runs that native code began, from the first host call to the end of the run.
        self._native: dict[int, Launch] = {}

    def answer(self, number: int, address: int) -> None:
        """Handle a host call: a wait at a rendezvous, a wait of a worker's share, or the end of a device or a run."""
        notice = words(address, NOTICE.size)
        run, ordinal = notice[NOTICE.index("run")], notice[NOTICE.index("ordinal")]
        if number == FINISH:
            self._finish(run, ordinal, is_raised=notice[NOTICE.index("raised")] != 0)
            return
        launch = self._launch_at(run)
        if number == LEAVE:
            launch.leave(ordinal)
        elif number == STUCK:
            launch.wait_with_share(ordinal)
        else:
            launch.wait(number - WAIT, address)

    def _launch_at(self, run: int) -> Launch:
        launch = self._launches.get(run)
        if launch is None:
            with self._lock:
                launch = self._launches.get(run)
                if launch is None:
                    record = RunRecord(run)
                    launch = Launch(record, self._program.collectives, self._begin, lambda n: record.status(n) >= 0)
                    self._launches[run] = self._native[run] = launch
        return launch

    def _finish(self, run: int, status: int, *, is_raised: bool) -> None:
        """End a run of native code that failed or is registered. Raises its error, unless one is raised already."""
        record = RunRecord(run)
        statuses = [status, *(record.status(n) for n in range(record.field("devices")))]
        with self._lock:
            launch = self._native.pop(run, None)
        if record.field("watched"):
            # A canceled run may still use the memory, so Python releases it when the last reference goes.
            (record if launch is None else launch.record).own()
        if launch is not None:
            launch.close()
            if launch.failure is not None and not is_raised:
                raise launch.failure
        # An interrupted device was stopped by the failure of another one, whose status is the cause.
        failed = [s for s in statuses if s not in (Status.DONE, Status.INTERRUPTED)]
        if any(statuses) and not is_raised:
            raise_status(failed[0] if failed else Status.INTERRUPTED)

    def context(self, number: int) -> Context:
        """The origin of a device's contexts."""
        if not self._contexts:
            with self._lock:
                if not self._contexts:
                    self._contexts = [self._make_context(n) for n in range(self._num_devices)]
        return self._contexts[number]

    def address(self, num_arguments: int, num_results: int) -> int:
        """The address of the program's REPLICAS record, for ``xlakit_execute_replicas``.

        num_arguments, num_results: the number of arrays of each device.
        """
        self.context(0)
        with self._lock:
            if self._record is None:
                self._record = self._made_record(num_arguments, num_results)
        return ctypes.addressof(self._record)

    def _made_record(self, num_arguments: int, num_results: int) -> Any:
        devices, slots = self._num_devices, self._program.slots
        origins = (ctypes.c_int64 * devices)(*[context.address for context in self._contexts])
        counts = (ctypes.c_int64 * max(1, len(slots)))(*slots)
        record = (ctypes.c_int64 * (REPLICAS.size // _WORD))()
        begin = run_bytes(devices)
        for name, value in (
            ("devices", devices),
            ("origins", ctypes.addressof(origins)),
            ("num_arguments", num_arguments),
            ("num_results", num_results),
            ("slots", begin),
            ("end", begin + sum(map(slot_bytes, slots))),
            ("counts", ctypes.addressof(counts)),
            ("num_slots", len(slots)),
        ):
            record[REPLICAS.index(name)] = value
        _with_records.add(self)
        # The finalizer keeps the tables alive.
        end = weakref.finalize(self, _end, record, origins, counts)
        end.atexit = False
        return record

    def forget_runs(self) -> None:
        """Drop all runs that wait for reuse, without releasing their memory."""
        for name in ("held", "free"):
            self._record[REPLICAS.index(name)] = 0

    def run(self, arguments: Sequence[Sequence[Array]], results: Sequence[Sequence[Array]]) -> None:
        """Run the program on all devices, given the arrays of each. Raises the first error of any device."""
        tables = [[array for arrays in of_devices for array in arrays] for of_devices in (arguments, results)]
        status = execute_replicas(self.address(len(arguments[0]), len(results[0])), *tables)
        if status:
            raise_status(status)

    def run_member(self, device: Device, arguments: Any, results: Any) -> int:
        """Run the program on one device of a run, on the calling thread; gives the status.

        arguments, results: tables of addresses, or the addresses of such tables.
        """
        launch = self._launch_of(device)
        status = execute_member(self.context(device.index), arguments, results, launch.record.address)
        if status == Status.DONE and len(device.run.devices) == 1:
            self._reuse(device, launch)
        return status

    def _reuse(self, device: Device, launch: Launch) -> None:
        """Make the record of a successful run available to later runs; the lock excludes a concurrent failure."""
        with device.execution_context.lock:
            if device.run.failure is None and not launch.record.field("watched"):
                launch.is_over = True
                self._launches.pop(launch.record.address, None)
                self._free_records.append(launch.record)

    def _launch_of(self, device: Device) -> Launch:
        run = device.run
        with device.execution_context.lock:
            if run.session is not None and self._program.slots:
                raise UnsupportedError(
                    "this program was compiled for devices in one process",
                    hint="compile it in the execution context that spans the processes",
                )
            if run.native is None:
                run.native = Launch.of(device, self._new_record(), self._program.collectives)
                if self._program.slots:
                    # Devices that meet in machine code ask for help by the address of the record.
                    self._launches[run.native.record.address] = run.native
            return run.native

    def _new_record(self) -> RunRecord:
        try:
            return self._free_records.pop()
        except IndexError:
            return RunRecord.made(self._num_devices, self._program.slots)


def _end(record: Any, *_tables: Any) -> None:
    runtime().call("xlakit_replicas_end", ctypes.addressof(record))


# All instances with a record that native code may use.
_with_records: weakref.WeakSet[Replicas] = weakref.WeakSet()


def _after_fork() -> None:
    """In the child: empty the lists of free runs, which a thread of the parent may have been changing at the fork."""
    for replicas in _with_records:
        replicas.forget_runs()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
