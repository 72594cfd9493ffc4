"""Launch: one run of a program on several devices in machine code, and what Python does for it where they wait long."""

from __future__ import annotations

import ctypes
import threading
import weakref
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from xlakit.cpu.program import Program
from xlakit.cpu.runtime import Context, Status, runtime
from xlakit.cpu.runtime.call import array_address, execute_member, raise_status, run_devices
from xlakit.cpu.runtime.rendezvous import ARRIVAL, LEAVE, NOTICE, RUN, SITE, SLOT, WAIT, run_bytes, slot_bytes
from xlakit.errors import UnsupportedError
from xlakit.execution.context import ExecutionContext
from xlakit.execution.deadlocks import Wait
from xlakit.execution.device import Device
from xlakit.execution.run import Participant
from xlakit.execution.run_group import has_group
from xlakit.interpreter.executable import InterpreterExecutable
from xlakit.ir.instruction import Instruction
from xlakit.ir.operation import Array

_WORD = 8
_LINE = 64
# The execution context of a run that Python knows, and its devices.
_Registered = tuple[ExecutionContext, Sequence[Participant]]


class RunRecord:
    """The memory that the devices of a run share. Later runs reuse it, unless one has failed."""

    def __init__(self, devices: int, slots: Sequence[int]) -> None:
        begin = run_bytes(devices)
        end = begin + sum(map(slot_bytes, slots))
        self._memory = np.zeros(end + _LINE, np.uint8)
        self.address = -(-self._memory.ctypes.data // _LINE) * _LINE
        slot = begin
        for count in slots:
            words(self.address + slot, SLOT.size)[SLOT.index("count")] = count
            slot += slot_bytes(count)
        runtime().call("xlakit_run_start", self.address, devices, begin, end)

    def prepare(self, origins: int, arguments: int, results: int, statuses: int) -> None:
        """Say where the devices find what they run, arrays with a word for each: contexts, tables, statuses."""
        run = words(self.address, RUN.size)
        run[RUN.index("asked")] = 0
        first = RUN.index("origins")
        run[first : first + 4] = [origins, arguments, results, statuses]

    def stop(self) -> None:
        """Have the devices stop where they wait or loop."""
        runtime().call("xlakit_run_stop", self.address)

    def ask(self) -> None:
        """Have devices tell when they end."""
        runtime().call("xlakit_run_ask", self.address)


def words(address: int, size: int) -> Any:
    """The words at an address."""
    return (ctypes.c_int64 * (size // _WORD)).from_address(address)


class Launch:
    """One run on several devices.

    begin: makes the devices of the run for the interpreter, and its execution context, when they are first needed.
    has_ended: whether a device has; only where nothing else counts the devices as running.
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

    @staticmethod
    def of(device: Device, record: RunRecord, instructions: Sequence[Instruction]) -> Launch:
        """The launch of a device's run, which Python has begun."""
        made = Launch(record, instructions, lambda: [device])
        made._registered = device.execution_context, device.run.devices
        device.run.when_failed(record.stop)
        return made

    @property
    def failure(self) -> BaseException | None:
        """What has failed, as far as Python knows."""
        return self._registered[1][0].run.failure if self._registered else None

    def registered(self) -> _Registered:
        """Register the run with its execution context, if that is not done; gives this context and the devices."""
        found = self._registered
        if found is None:
            devices = self._begin()
            context = devices[0].execution_context
            with context.condition:
                found = self._registered
                if found is None:
                    found = self._registered = context, devices
                    devices[0].run.when_failed(self.record.stop)
                    self.record.ask()
                    context.enter([d for d in devices if self._has_ended is None or not self._has_ended(d.index)])
        return found

    def wait(self, number: int, address: int) -> None:
        """Wait at a collective until all members are there; ``address`` is that of a notice. Raises its error."""
        notice = words(address, NOTICE.size)
        context, devices = self.registered()
        device = devices[notice[NOTICE.index("ordinal")]]
        rendezvous = _Rendezvous(notice, device)

        def sleep(seconds: float) -> None:
            runtime().call("xlakit_rendezvous_sleep", address, int(seconds * 1e9))

        wait = Wait(
            device,
            self._instructions[number],
            rendezvous.absent_names,
            rendezvous.is_complete,
            rendezvous.absent,
            sleep=sleep,
        )
        try:
            with context.bound(), context.condition:
                context.wait(wait)
        except BaseException as error:
            device.run.fail(error)
            raise

    def close(self) -> None:
        """Note that all devices have ended."""
        if self._registered:
            context, devices = self._registered
            context.leave(devices)

    def leave(self, address: int) -> None:
        """Note that a device has ended."""
        context, devices = self.registered()
        context.leave([devices[words(address, NOTICE.size)[NOTICE.index("ordinal")]]])


class _Rendezvous:
    """What a device waits for, read from the memory of the run."""

    def __init__(self, notice: Any, device: Participant) -> None:
        site_address = notice[NOTICE.index("site")]
        site = words(site_address, SITE.size)
        self._generation = notice[NOTICE.index("generation")]
        self._device = device
        count = site[SITE.index("count")]
        self._members = list(words(site_address + site[SITE.index("members")], count * _WORD))
        self._slot = words(notice[NOTICE.index("slot")], slot_bytes(count))

    def is_complete(self) -> bool:
        """Whether all members have arrived, so that waiting in Python ends."""
        return self._slot[SLOT.index("arrived")] >= (self._generation + 1) * len(self._members)

    def absent(self) -> list[int]:
        """The numbers of the members that have not arrived."""
        first, step = (SLOT.size + ARRIVAL.offset("times")) // _WORD, ARRIVAL.size // _WORD
        return [m for i, m in enumerate(self._members) if self._slot[first + i * step] <= self._generation]

    def absent_names(self) -> str:
        """The members that have not arrived, by name."""
        return "; ".join(map(self._device.program.name_of, self.absent()))


class Replicas:
    """The devices of one executable in machine code: on threads of the runtime, or on those that Python has for them.

    contexts: makes the origin of a device's contexts.
    """

    def __init__(self, program: Program, reference: InterpreterExecutable, contexts: Callable[[int], Context]) -> None:
        self._program = program
        self._reference = reference
        self._make_context = contexts
        self._contexts: list[Context] = []
        self._origins: Any = None
        self._lock = threading.Lock()
        self._free_records: list[RunRecord] = []
        self._launches: weakref.WeakValueDictionary[int, Launch] = weakref.WeakValueDictionary()

    @property
    def can_run_alone(self) -> bool:
        """Whether all devices are in this process, and need no Python unless an error occurs."""
        is_here = self._reference.num_devices > 1 and not self._reference.execution_context.spans_processes
        return is_here and not self._program.host_instructions

    def answer(self, notice: int, address: int) -> None:
        """Handle a host call of a device: a wait at a rendezvous, or its end."""
        launch = self._launches[words(address, NOTICE.size)[NOTICE.index("run")]]
        if notice >= LEAVE:
            launch.leave(address)
        else:
            launch.wait(notice - WAIT, address)

    def context(self, number: int) -> Context:
        """The origin of a device's contexts."""
        if self._origins is None:
            with self._lock:
                if self._origins is None:
                    contexts = [self._make_context(n) for n in range(self._reference.num_devices)]
                    self._contexts = contexts
                    self._origins = (ctypes.c_void_p * len(contexts))(*[context.address for context in contexts])
        return self._contexts[number]

    def run(self, arguments: Sequence[Sequence[Array]], results: Sequence[Sequence[Array]]) -> None:
        """Run the program on all devices, from arrays into arrays for each. Raises the first error of any device."""
        self.context(0)
        count = self._reference.num_devices
        record = self._new_record()
        # For each device its status and its two tables; then the tables.
        addresses = [array_address(array) for arrays in (*arguments, *results) for array in arrays]
        block = (ctypes.c_int64 * (3 * count + len(addresses)))()
        base = ctypes.addressof(block)
        begins = accumulate((len(arrays) for arrays in (*arguments, *results)), initial=3 * count)
        tables = [base + _WORD * begin for begin in begins][:-1]
        block[:] = [-1] * count + tables + addresses
        launch = Launch(record, self._program.collectives, self._reference.begin, lambda n: block[n] >= 0)
        self._launches[record.address] = launch
        first = base + _WORD * count
        record.prepare(ctypes.addressof(self._origins), first, first + _WORD * count, base)
        try:
            if has_group():
                # Programs that run together end together, wherever they are.
                launch.registered()
            status = run_devices(record.address)
        finally:
            launch.close()
        if launch.failure is not None:
            raise launch.failure
        statuses = [status, *block[:count]]
        # Devices are interrupted because another one has failed, which says more.
        failed = [s for s in statuses if s not in (Status.DONE, Status.INTERRUPTED)]
        if failed or any(statuses):
            raise_status(failed[0] if failed else Status.INTERRUPTED)
        self._free_records.append(record)

    def run_member(self, device: Device, arguments: Sequence[Array], results: Sequence[Array]) -> int:
        """Run the program on one device of a run, on the calling thread; gives the status."""
        launch = self._launch_of(device)
        return execute_member(self.context(device.index), arguments, results, launch.record.address)

    def _launch_of(self, device: Device) -> Launch:
        run = device.run
        with device.execution_context.condition:
            if run.session is not None and self._program.slots:
                raise UnsupportedError(
                    "this program was compiled for devices in one process",
                    hint="compile it in the execution context that spans the processes",
                )
            if run.native is None:
                run.native = Launch.of(device, self._new_record(), self._program.collectives)
                self._launches[run.native.record.address] = run.native
            return run.native

    def _new_record(self) -> RunRecord:
        try:
            return self._free_records.pop()
        except IndexError:
            return RunRecord(self._reference.num_devices, self._program.slots)
