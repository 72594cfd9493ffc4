"""CpuExecutable: a compiled program that can be called, on one device or on many."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from xlakit.cpu.compile import Code, generate, make_object
from xlakit.cpu.kernels import blas
from xlakit.cpu.llvm import engine
from xlakit.cpu.runtime import CONTEXT, Context, runtime_symbols
from xlakit.cpu.runtime.call import execute, make_caller, nest, raise_status, result_arrays
from xlakit.cpu.runtime.host import register_host
from xlakit.data.shape import Shape
from xlakit.interpreter.device import Device
from xlakit.interpreter.evaluate import Context as EvaluationContext
from xlakit.interpreter.executable import InterpreterExecutable
from xlakit.interpreter.executable import compile_module as interpret
from xlakit.interpreter.values import to_device
from xlakit.interpreter.world import World
from xlakit.ir.instruction import HloModule, Instruction
from xlakit.ir.operation import TOKEN, Array, Value
from xlakit.passes.framework import PassContext
from xlakit.passes.fusion import Fuse
from xlakit.passes.pipeline import run_pipeline

_count = 0


def compile_module(
    module: HloModule,
    *,
    num_replicas: int | None = None,
    num_partitions: int | None = None,
    seed: int = 0,
    custom_calls: Mapping[str, object] | None = None,
    world: World | None = None,
) -> CpuExecutable:
    """An executable of a module in machine code; see :func:`xlakit.compile`."""
    reference = interpret(
        module,
        num_replicas=num_replicas,
        num_partitions=num_partitions,
        seed=seed,
        custom_calls=custom_calls,
        world=world,
    )
    code = generate(Fuse().run(run_pipeline(module), PassContext()))
    make_object(code)
    return CpuExecutable(reference, code)


class CpuExecutable:
    """A program in machine code. Call it with one value for each parameter."""

    def __init__(self, reference: InterpreterExecutable, code: Code) -> None:
        global _count
        _count += 1
        self.module = reference.module
        self._reference = reference
        self._code = code
        self._library = engine.Library(f"program{_count}", code.object_data, [code.entry], program_symbols(code.imports))
        self._context = Context(self._library.address(code.entry), arena_bytes=code.arena_bytes)
        self._constants = [np.ascontiguousarray(c) for c in code.lowered.constants]
        self._constant_table = (ctypes.c_void_p * max(1, len(self._constants)))(
            *[c.ctypes.data for c in self._constants]
        )
        word = (ctypes.c_int64 * (CONTEXT.size // 8)).from_address(self._context.address)
        word[CONTEXT.index("spare")] = ctypes.addressof(self._constant_table)
        self._running = threading.local()
        if code.lowered.host_instructions:
            word[CONTEXT.index("host")] = register_host(self._host_step)
        parameters = [p.shape for p in self.module.entry.parameters]
        self._result = self.module.entry.root.shape
        self._call: Callable[..., Any] = self._slow_call
        if self.num_devices == 1 and not code.lowered.host_instructions and all(s.is_array for s in parameters):
            self._call = make_caller(self._context, parameters, self._result, self._slow_call)

    @property
    def num_devices(self) -> int:
        """How many devices run the program: replicas times partitions."""
        return self._reference.num_devices

    @property
    def num_replicas(self) -> int:
        """How many replicas run the program."""
        return self._reference.num_replicas

    @property
    def num_partitions(self) -> int:
        """How many partitions run the program."""
        return self._reference.num_partitions

    @property
    def world(self) -> World:
        """The infeeds, outfeeds and channels of its devices."""
        return self._reference.world

    def __call__(self, *arguments: object) -> Any:
        """Run the program with one argument for each parameter; see InterpreterExecutable."""
        return self._call(*arguments)

    def execute_replicated(self, arguments: Sequence[Sequence[object]]) -> list[Any]:
        """Run the program on all devices at once, with arguments for each."""
        return self._reference.execute_with(self._run_device, arguments)

    def _slow_call(self, *arguments: object) -> Any:
        return self._reference.call_with(self._run_device, arguments)

    def _run_device(self, device: Device, arguments: Sequence[Value]) -> Any:
        leaves = [np.ascontiguousarray(a) for value in arguments for a in _leaves(value)]
        results = result_arrays(self._result)
        self._running.device = device
        status = execute(self._context, leaves, results)
        if status:
            raise_status(status)
        return nest(self._result, results)

    # -- steps that Python does ------------------------------------------------------------------

    def _host_step(self, number: int, address: int) -> None:
        instruction = self._code.lowered.host_instructions[number]
        device: Device = self._running.device
        pointers = _Pointers(address)
        operands = [pointers.value(o.shape, read_only=True) for o in instruction.operands]
        value = _evaluate(device, instruction, operands)
        pointers.write(value, instruction.shape)


def _evaluate(device: Device, instruction: Instruction, operands: Sequence[Value]) -> Value:
    context = EvaluationContext(device, instruction)
    return instruction.op.evaluate(context, *operands)


class _Pointers:
    """Reads the buffers of a host step one after the other."""

    def __init__(self, address: int) -> None:
        self._next = address

    def _array(self, shape: Shape) -> Array:
        pointer = ctypes.c_void_p.from_address(self._next).value or 0
        self._next += ctypes.sizeof(ctypes.c_void_p)
        dtype = shape.element_type.dtype
        size = shape.num_elements * dtype.itemsize
        if not size:
            return np.empty(shape.dimensions, dtype)
        memory = (ctypes.c_char * size).from_address(pointer)
        return np.frombuffer(memory, dtype).reshape(shape.dimensions)

    def value(self, shape: Shape, *, read_only: bool) -> Value:
        """The value that the next buffers hold."""
        if shape.is_tuple:
            return tuple(self.value(s, read_only=read_only) for s in shape.tuple_shapes)
        return self._array(shape) if shape.is_array else TOKEN

    def write(self, value: Value, shape: Shape) -> None:
        """Put a value into the next buffers."""
        if shape.is_tuple:
            for part, inner in zip(value, shape.tuple_shapes, strict=True):
                self.write(part, inner)
        elif shape.is_array:
            self._array(shape)[...] = to_device(value, shape, "the result")


def _leaves(value: Value) -> list[Array]:
    if isinstance(value, tuple):
        return [leaf for part in value for leaf in _leaves(part)]  # pyright: ignore
    return [] if value is TOKEN else [value]


def program_symbols(imports: Sequence[str]) -> dict[str, int]:
    """The addresses of what a program imports."""
    symbols = runtime_symbols()
    for name in imports:
        found = blas.resolve(name)
        if found is not None:
            symbols[name] = found
    return symbols
