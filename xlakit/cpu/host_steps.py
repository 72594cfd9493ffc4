"""Host steps: instructions that Python does while machine code waits, reading and writing the program's memory.

A collective between processes that is an async pair goes on beside the program: its start hands copies of the operands
to a thread of the device, which does one collective after the other, in the order of the starts. All devices have their
collectives in one order then, as without the thread, and machine code needs no lock of Python's while it computes.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Mapping
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING

import numpy as np

from xlakit.cpu.runtime.call import array_address
from xlakit.data.shape import Shape
from xlakit.execution.device import Device
from xlakit.execution.values import to_device
from xlakit.ir.instruction import Instruction
from xlakit.ir.operation import TOKEN, Array, Value
from xlakit.ops.communication.collective import Collective
from xlakit.ops.communication.collective_moves import Permuting

if TYPE_CHECKING:
    from concurrent.futures import Future

_NO_PAIRS: Mapping[Instruction, Instruction] = {}


class HostRun:
    """The host steps of one device in one run, which ends with the ``with`` block.

    pairs: the dones of the starts that go on beside the program.
    """

    def __init__(self, device: Device, pairs: Mapping[Instruction, Instruction] = _NO_PAIRS) -> None:
        self.device = device
        self._pairs = pairs
        # The results of starts, some of which are still to come.
        self._started: dict[Instruction, Future[Value]] = {}
        self._beside: _Beside | None = None
        # Whether what a collective reads is sent or copied before it ends: no other device here reads it later.
        self._reads_in_place = device.run.session is not None and len(device.run.devices) == 1
        # Results that are not as their shape says: asynchronous operations may leave theirs open until they are done.
        self._open: dict[Instruction, Value] = {}

    def step(self, instruction: Instruction, address: int) -> None:
        """Do an instruction; at ``address`` are pointers to the arrays of its operands, then to those of its result.

        A start has no result there, its done no operands.
        """
        # Most programs have no host steps.
        from xlakit.interpreter.evaluate import run_instruction

        pointers = _Pointers(address)
        operands: list[Value] = []
        started = self._started.pop(instruction.operands[0], None) if instruction.operands else None
        is_start = instruction in self._pairs
        in_place = self._reads_in_place and not is_start and isinstance(instruction.op, (Collective, Permuting))
        if started is not None:
            operands.append(started.result())
        else:
            for operand in instruction.operands:
                value = pointers.value(operand.shape, copies=not in_place)
                operands.append(self._open.get(operand, value))
        if is_start:
            self._beside = self._beside or _Beside(self.device)
            work = partial(run_instruction, self.device, instruction, operands)
            self._started[instruction] = self._beside.begin(work)
            return
        if started is None and self._beside is not None and instruction.op.has_side_effect:
            # Effects are in the order of the program, and a device waits at one place at a time.
            self._beside.wait()
        results = pointers.arrays(instruction.shape) if in_place else []
        value = run_instruction(self.device, instruction, operands, results)
        if len(results) == 1 and value is results[0]:
            return
        if _fits(value, instruction.shape):
            pointers.write(value, instruction.shape)
        else:
            self._open[instruction] = value

    def __enter__(self) -> HostRun:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if self._beside is None:
            return
        if error is not None and self._beside.is_busy:
            # Nothing else ends what it waits for.
            self.device.run.fail(error)
        self._beside.end()


class _Beside:
    """The thread on which a device does collectives beside its program; there is none before the first."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._thread: threading.Thread | None = None
        self._queue: SimpleQueue[tuple[Callable[[], Value], Future[Value]] | None] = SimpleQueue()
        self._last: Future[Value] | None = None

    @property
    def is_busy(self) -> bool:
        """Whether something has begun that has not ended."""
        return self._last is not None and not self._last.done()

    def begin(self, work: Callable[[], Value]) -> Future[Value]:
        """Do this when all is done that has begun before."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="xlakit-collectives", daemon=True)
            self._thread.start()
        # Few programs have steps that are done beside others.
        from concurrent.futures import Future

        self._last = Future()
        self._queue.put((work, self._last))
        return self._last

    def wait(self) -> None:
        """Wait for all that has begun; raises the error of the last one."""
        if self._last is not None:
            self._last.result()

    def end(self) -> None:
        """Wait for the thread to end."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join()

    def _serve(self) -> None:
        with self._device.execution_context.bound():
            while (given := self._queue.get()) is not None:
                work, future = given
                try:
                    future.set_result(work())
                except BaseException as error:
                    # The program may compute for long before it asks.
                    self._device.run.fail(error)
                    future.set_exception(error)


def _fits(value: Value, shape: Shape) -> bool:
    if not shape.is_tuple:
        return not isinstance(value, tuple)
    if not isinstance(value, tuple) or len(value) != len(shape.tuple_shapes):  # pyright: ignore
        return False
    return all(map(_fits, value, shape.tuple_shapes))  # pyright: ignore


class _Pointers:
    """Reads pointers one after the other."""

    def __init__(self, address: int) -> None:
        self._next = address

    def _array(self, shape: Shape) -> Array:
        pointer = ctypes.c_void_p.from_address(self._next).value or 0
        self._next += ctypes.sizeof(ctypes.c_void_p)
        dtype = shape.element_type.dtype
        size = shape.num_elements * dtype.itemsize
        if not size:
            return np.empty(shape.dimensions, dtype)
        memory = memoryview((ctypes.c_char * size).from_address(pointer)).cast("B")
        return np.frombuffer(memory, dtype).reshape(shape.dimensions)

    def value(self, shape: Shape, *, copies: bool) -> Value:
        """What the next arrays hold; copies, where others may read it when the program has gone on."""
        if shape.is_tuple:
            return tuple(self.value(s, copies=copies) for s in shape.tuple_shapes)
        if not shape.is_array:
            return TOKEN
        return self._array(shape).copy() if copies else self._array(shape)

    def arrays(self, shape: Shape) -> list[Array]:
        """The next arrays, without going on."""
        before = self._next
        found = [self._array(leaf) for _, leaf in shape.leaves() if leaf.is_array]
        self._next = before
        return found

    def write(self, value: Value, shape: Shape) -> None:
        """Put a value into the next arrays."""
        if shape.is_tuple:
            for part, inner in zip(value, shape.tuple_shapes, strict=True):
                self.write(part, inner)
        elif shape.is_array:
            target, source = self._array(shape), to_device(value, shape, "the result")
            is_there = source.flags.c_contiguous and array_address(source) == array_address(target)
            if not is_there:
                target[...] = source
