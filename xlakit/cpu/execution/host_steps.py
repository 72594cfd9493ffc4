"""Host steps: instructions that Python executes while machine code waits, on the program's own memory.

Between processes, a collective that is an async pair runs concurrently with the program: its start passes copies of
the operands to a thread of the device, which runs the collectives one after the other in the order of their starts.
Every device therefore runs its collectives in the same order, as it would without the thread, and machine code needs
no lock of Python's while it computes.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import numpy as np

from xlakit.cpu.runtime.call import array_address
from xlakit.data.shape import Shape
from xlakit.errors import XlakitError
from xlakit.execution.device import Device
from xlakit.execution.values import to_device
from xlakit.ir.instruction import Instruction
from xlakit.ir.operation import TOKEN, Array, Value
from xlakit.ops.communication.collective import Collective
from xlakit.ops.communication.collective_moves import Permuting

if TYPE_CHECKING:
    from concurrent.futures import Future

_TwoPointers = ctypes.c_int64 * 2
_NO_PAIRS: Mapping[Instruction, Instruction] = {}


class HostRun:
    """The host steps of one device in one run, which ends with the ``with`` block.

    pairs: from each start that runs concurrently with the program to its done.
    """

    def __init__(self, device: Device, pairs: Mapping[Instruction, Instruction] = _NO_PAIRS) -> None:
        self.device = device
        self._pairs = pairs
        # The results of starts, some of them still pending.
        self._started: dict[Instruction, Future[Value]] = {}
        self._collectives: _CollectivesThread | None = None
        # Whether collectives may read operands in place: they send or copy them before they end, and this process has
        # no other device that could read them later.
        self._reads_in_place = device.run.session is not None and len(device.run.devices) == 1
        # Values that do not have the structure of their shape: asynchronous operations may give these until their done.
        self._open: dict[Instruction, Value] = {}

    def step(self, instruction: Instruction, address: int) -> None:
        """Execute an instruction; ``address`` is that of the pointers to its operands' arrays, then to its result's.

        A start has no pointers of a result, and its done none of operands.
        """
        if self._reads_in_place and self._run_prepared(instruction, address):
            return
        # Most programs have no host steps.
        from xlakit.interpreter.evaluate import run_instruction

        pointers = _Pointers(address)
        operands: list[Value] = []
        started = self._started.pop(instruction.operands[0], None) if instruction.operands else None
        is_start = instruction in self._pairs
        in_place = self._reads_in_place and not is_start and isinstance(instruction.op, (Collective, Permuting))
        in_place = in_place and not _shares_memory(instruction, address)
        if started is not None:
            operands.append(started.result())
        else:
            for operand in instruction.operands:
                value = pointers.value(operand.shape, copies=not in_place)
                operands.append(self._open.get(operand, value))
        if is_start:
            self._collectives = self._collectives or _CollectivesThread(self.device)
            work = partial(run_instruction, self.device, instruction, operands)
            self._started[instruction] = self._collectives.begin(work)
            return
        if started is None and self._collectives is not None and instruction.op.has_side_effect:
            # Side effects keep the order of the program, and a device waits in one place at a time.
            self._collectives.wait()
        results = pointers.arrays(instruction.shape) if in_place else []
        value = run_instruction(self.device, instruction, operands, results)
        if len(results) == 1 and value is results[0]:
            return
        if _fits(value, instruction.shape):
            pointers.write(value, instruction.shape)
        else:
            self._open[instruction] = value

    def _run_prepared(self, instruction: Instruction, address: int) -> bool:
        """Run a collective by its prepared form, if it has one; see :meth:`step`."""
        device, session = self.device, self.device.run.session
        collective = None if session is None else session.prepared(instruction, device.program, device.index)
        if collective is None or instruction in self._pairs:
            return False
        if self._collectives is not None:
            self._collectives.wait()
        operand, result = _TwoPointers.from_address(address)
        device.run.check()
        try:
            collective.run(session, device.rendezvous.count(collective.site, collective.members), operand, result)
        except (XlakitError, MemoryError) as error:
            from xlakit.interpreter.evaluate import located_error

            raise located_error(error, device, instruction) from error.__cause__
        return True

    def __enter__(self) -> HostRun:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if self._collectives is None:
            return
        if error is not None and self._collectives.is_busy:
            # The thread's collective may wait for another device for ever unless the run fails.
            self.device.run.fail(error)
        self._collectives.end()


class _CollectivesThread:
    """The thread on which a device runs collectives concurrently with its program; it starts with the first of them."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._thread: threading.Thread | None = None
        self._queue: SimpleQueue[tuple[Callable[[], Value], Future[Value]] | None] = SimpleQueue()
        self._last: Future[Value] | None = None

    @property
    def is_busy(self) -> bool:
        """Whether a collective is pending."""
        return self._last is not None and not self._last.done()

    def begin(self, work: Callable[[], Value]) -> Future[Value]:
        """Queue ``work`` behind all earlier work; gives the future of its value."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="xlakit-collectives", daemon=True)
            self._thread.start()
        # Imported here: few programs have such steps.
        from concurrent.futures import Future

        self._last = Future()
        self._queue.put((work, self._last))
        return self._last

    def wait(self) -> None:
        """Wait for all queued work; raises the error of the last work."""
        if self._last is not None:
            self._last.result()

    def end(self) -> None:
        """Wait for all queued work, and for the thread to end."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join()

    def _serve(self) -> None:
        with self._device.execution_context.bound():
            while (entry := self._queue.get()) is not None:
                work, future = entry
                try:
                    future.set_result(work())
                except BaseException as error:
                    # The program may compute for a long time before it reaches the done.
                    self._device.run.fail(error)
                    future.set_exception(error)


def _shares_memory(instruction: Instruction, address: int) -> bool:
    """Whether a result is in the memory of an operand, a donated argument; ``address`` is that of their pointers."""
    operands = _count([o.shape for o in instruction.operands])
    pointers = (ctypes.c_int64 * (operands + _count([instruction.shape]))).from_address(address)
    return not {*pointers[:operands]}.isdisjoint(pointers[operands:])


def _count(shapes: Iterable[Shape]) -> int:
    return sum(leaf.is_array for shape in shapes for _, leaf in shape.leaves())


def _fits(value: Value, shape: Shape) -> bool:
    if not shape.is_tuple:
        return not isinstance(value, tuple)
    if not isinstance(value, tuple) or len(value) != len(shape.tuple_shapes):  # pyright: ignore
        return False
    return all(map(_fits, value, shape.tuple_shapes))  # pyright: ignore


class _Pointers:
    """Reads and writes arrays through consecutive pointers."""

    def __init__(self, address: int) -> None:
        self._next = address

    def _array(self, shape: Shape) -> Array:
        pointer = ctypes.c_void_p.from_address(self._next).value or 0
        self._next += ctypes.sizeof(ctypes.c_void_p)
        dtype = shape.element_type.dtype
        size = shape.num_elements * dtype.itemsize
        if not size:
            return np.empty(shape.dimensions, dtype)
        memory: Any = (ctypes.c_char * size).from_address(pointer)
        return np.ndarray(shape.dimensions, dtype, memory)

    def value(self, shape: Shape, *, copies: bool) -> Value:
        """The value in the next arrays; ``copies`` is for readers that run after the program continues."""
        if shape.is_tuple:
            return tuple(self.value(s, copies=copies) for s in shape.tuple_shapes)
        if not shape.is_array:
            return TOKEN
        return self._array(shape).copy() if copies else self._array(shape)

    def arrays(self, shape: Shape) -> list[Array]:
        """The next arrays, without advancing."""
        before = self._next
        arrays = [self._array(leaf) for _, leaf in shape.leaves() if leaf.is_array]
        self._next = before
        return arrays

    def write(self, value: Value, shape: Shape) -> None:
        """Write a value into the next arrays."""
        if shape.is_tuple:
            for part, inner in zip(value, shape.tuple_shapes, strict=True):
                self.write(part, inner)
        elif shape.is_array:
            target = self._array(shape)
            is_alike = isinstance(value, np.ndarray) and (value.dtype, value.shape) == (target.dtype, target.shape)
            source: Array = value if is_alike else to_device(value, shape, "the result")
            is_there = source.flags.c_contiguous and array_address(source) == array_address(target)
            if not is_there:
                target[...] = source
