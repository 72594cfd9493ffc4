"""Host steps: instructions that Python does while machine code waits, reading and writing the program's memory."""

from __future__ import annotations

import ctypes

import numpy as np

from xlakit.data.shape import Shape
from xlakit.execution.device import Device
from xlakit.execution.values import to_device
from xlakit.interpreter.evaluate import run_instruction
from xlakit.ir.instruction import Instruction
from xlakit.ir.operation import TOKEN, Array, Value


class HostRun:
    """The host steps of one device in one run."""

    def __init__(self, device: Device) -> None:
        self.device = device
        # Results that are not as their shape says: asynchronous operations may leave theirs open until they are done.
        self._open: dict[Instruction, Value] = {}

    def step(self, instruction: Instruction, address: int) -> None:
        """Do an instruction; at ``address`` are pointers to the arrays of its operands, then to those of its result."""
        pointers = _Pointers(address)
        operands: list[Value] = []
        for operand in instruction.operands:
            value = pointers.value(operand.shape)
            operands.append(self._open.get(operand, value))
        value = run_instruction(self.device, instruction, operands)
        if _fits(value, instruction.shape):
            pointers.write(value, instruction.shape)
        else:
            self._open[instruction] = value


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

    def value(self, shape: Shape) -> Value:
        """A copy of what the next arrays hold: other devices and the host may read it when the program has gone on."""
        if shape.is_tuple:
            return tuple(self.value(s) for s in shape.tuple_shapes)
        return self._array(shape).copy() if shape.is_array else TOKEN

    def write(self, value: Value, shape: Shape) -> None:
        """Put a value into the next arrays."""
        if shape.is_tuple:
            for part, inner in zip(value, shape.tuple_shapes, strict=True):
                self.write(part, inner)
        elif shape.is_array:
            self._array(shape)[...] = to_device(value, shape, "the result")
