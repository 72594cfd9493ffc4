"""CpuExecutable: a compiled program that can be called, on one device or on many."""

from __future__ import annotations

import ctypes
import itertools
import os
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from xlakit.arguments import converting
from xlakit.cpu import cache as compile_cache
from xlakit.cpu.cache_key import compiler_has_changed, program_key
from xlakit.cpu.entry.buffers import ALIGNMENT
from xlakit.cpu.host_steps import HostRun
from xlakit.cpu.llvm import engine
from xlakit.cpu.program import Program
from xlakit.cpu.runtime import CONTEXT, Context, runtime_symbols
from xlakit.cpu.runtime.call import execute, make_caller, nest, raise_status, result_arrays
from xlakit.cpu.runtime.host import register_host, release_host
from xlakit.errors import FormatError, UnsupportedError
from xlakit.interpreter.device import Device
from xlakit.interpreter.executable import InterpreterExecutable, check_donated
from xlakit.interpreter.executable import compile_module as interpret
from xlakit.interpreter.world import World
from xlakit.ir.instruction import HloModule, Instruction
from xlakit.ir.operation import TOKEN, Array, Value

if TYPE_CHECKING:
    from xlakit.cpu.compile import Code
    from xlakit.cpu.insight import MemoryAnalysis

_numbers = itertools.count(1)


@converting
def compile_module(
    module: HloModule,
    *,
    num_replicas: int | None = None,
    num_partitions: int | None = None,
    seed: int = 0,
    custom_calls: Mapping[str, object] | None = None,
    world: World | None = None,
    cache: bool = True,
) -> CpuExecutable:
    """An executable of a module in machine code; see :func:`xlakit.compile`."""
    key = _key(module, num_replicas, num_partitions) if cache else None
    program = None if key is None else _kept(key, module)
    reference = interpret(
        module,
        num_replicas=num_replicas,
        num_partitions=num_partitions,
        seed=seed,
        custom_calls=custom_calls,
        world=world,
        # Only what is well formed is ever kept.
        verified=program is not None,
    )
    if program is not None:
        return CpuExecutable(reference, program)
    code = _compiled(module)
    program = code.program()
    if key is not None and not compiler_has_changed():
        _keep(key, program, module)
    return CpuExecutable(reference, program, code)


def _key(module: HloModule, num_replicas: int | None, num_partitions: int | None) -> str | None:
    # Who wants to see the passes wants them to run.
    if not compile_cache.is_enabled() or os.environ.get("XLAKIT_DEBUG"):
        return None
    replicas = module.replica_count if num_replicas is None else num_replicas
    partitions = module.num_partitions if num_partitions is None else num_partitions
    return program_key(module, replicas, partitions)


def _kept(key: str, module: HloModule) -> Program | None:
    entry = compile_cache.load(key)
    if entry is None:
        return None
    try:
        return Program.from_entry(entry, module)
    except FormatError as error:
        compile_cache.discard(key, error.rule)
        return None


def _keep(key: str, program: Program, module: HloModule) -> None:
    try:
        entry = program.to_entry(module)
    except (FormatError, UnsupportedError):
        # Protos lack what Python is to do for it: such a program is compiled each time.
        return
    compile_cache.save(key, entry)


def _compiled(module: HloModule) -> Code:
    from xlakit.cpu.compile import make_object

    code = _generated(module)
    make_object(code)
    return code


def _generated(module: HloModule) -> Code:
    # Most of the compiler is not needed for a program that is kept.
    from xlakit.cpu.compile import generate
    from xlakit.passes.pipeline import run_pipeline

    return generate(run_pipeline(module))


class CpuExecutable:
    """A program in machine code. Call it with one value for each parameter; see :class:`xlakit.Executable`."""

    def __init__(self, reference: InterpreterExecutable, program: Program, code: Code | None = None) -> None:
        self._reference = reference
        self._program = program
        self._code = code
        symbols = program_symbols(program.imports)
        self._library = engine.Library(f"program{next(_numbers)}", program.object_data, [program.entry], symbols)
        self._constants = [_readable(c) for c in program.constants]
        self._constant_table = (ctypes.c_void_p * max(1, len(self._constants)))(
            *[c.ctypes.data for c in self._constants]
        )
        self._host_key = 0
        self._running = threading.local()
        if program.host_instructions:
            self._host_key = _register(self)
        self._result = self.module.entry.root.shape
        self._context = self._new_context()
        parameters = [p.shape for p in self.module.entry.parameters]
        self._call: Callable[..., Any] = self._slow_call
        if self.num_devices == 1 and not program.host_instructions and all(s.is_array for s in parameters):
            self._call = make_caller(self._context, parameters, self._result, self._slow_call)

    def _new_context(self, ordinal: int = 0) -> Context:
        entry = self._library.address(self._program.entry)
        context = Context(entry, arena_bytes=self._program.arena_bytes, host=self._host_key, ordinal=ordinal)
        words = (ctypes.c_int64 * (CONTEXT.size // 8)).from_address(context.address)
        words[CONTEXT.index("spare")] = ctypes.addressof(self._constant_table)
        return context

    # -- what it is ------------------------------------------------------------------------------

    @property
    def module(self) -> HloModule:
        """The program, as it was given."""
        return self._reference.module

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

    @property
    def host_instructions(self) -> tuple[Instruction, ...]:
        """The instructions of the optimised program that Python does."""
        return self._program.host_instructions

    # -- what it is made of ----------------------------------------------------------------------

    @property
    def _generated_code(self) -> Code:
        """The program before it was machine code; made again where it came from the compile cache."""
        if self._code is None:
            self._code = _generated(self.module)
        return self._code

    def as_text(self) -> str:
        """The optimised program as HLO text, with its fusions."""
        return self._generated_code.module.to_text()

    def llvm_ir(self, *, optimized: bool = True) -> str:
        """The program as LLVM IR; ``optimized=False``: before LLVM's own passes."""
        from xlakit.cpu.insight import llvm_ir

        return llvm_ir(self._generated_code, optimized=optimized)

    def assembly(self) -> str:
        """The program in the assembly of this machine."""
        from xlakit.cpu.insight import assembly

        return assembly(self._generated_code)

    def cost_analysis(self) -> dict[str, float]:
        """What one call costs: ``flops``, ``transcendentals`` and ``bytes accessed``, counted as XLA counts.

        A loop counts as often as it runs where that is known, and once where it is not.
        """
        from xlakit.passes.cost import cost_of

        return cost_of(self._generated_code.module).as_dict()

    def memory_analysis(self) -> MemoryAnalysis:
        """The bytes of arguments, results and intermediate values, and what holds them at the peak."""
        from xlakit.cpu.insight import analyse_memory

        return analyse_memory(self._generated_code, len(self._program.object_data), self._program.in_place)

    # -- running ---------------------------------------------------------------------------------

    def __call__(self, *arguments: object, donate: Sequence[int] = ()) -> Any:
        """Run the program with one argument for each parameter; see :class:`xlakit.Executable`."""
        if donate:
            return self._donating_call(arguments, donate)
        return self._call(*arguments)

    @converting
    def execute_replicated(self, arguments: Sequence[Sequence[object]]) -> list[Any]:
        """Run the program on all devices at once, with arguments for each; see :class:`xlakit.Executable`."""
        return self._reference.execute_with(self._run_device, arguments)

    def _slow_call(self, *arguments: object) -> Any:
        return self._reference.call_with(self._run_device, arguments)

    def _donating_call(self, arguments: Sequence[object], donate: Sequence[int]) -> Any:
        check_donated(donate, len(self.module.entry.parameters))

        def run(device: Device, values: Sequence[Value]) -> Any:
            owners = [number for number, value in enumerate(values) for _ in _leaves(value)]
            given = {leaf for leaf, owner in enumerate(owners) if owner in donate}
            return self._run_device(device, values, [pair for pair in self._program.in_place if pair[1] in given])

        # Devices that are given one array cannot all write to it.
        return self._reference.call_with(run if self.num_devices == 1 else self._run_device, arguments)

    def _run_device(self, device: Device, arguments: Sequence[Value], in_place: Sequence[tuple[int, int]] = ()) -> Any:
        leaves = [_readable(a) for value in arguments for a in _leaves(value)]
        results = result_arrays(self._result)
        for result, argument in in_place:
            if _can_be_written(leaves, argument):
                results[result] = leaves[argument]
        context = self._context if self.num_devices == 1 else self._context_of(device)
        before = getattr(self._running, "run", None)
        self._running.run = HostRun(device)
        try:
            status = execute(context, leaves, results)
        finally:
            # A custom call may have called this very program.
            self._running.run = before
        if status:
            device.run.check()
            raise_status(status)
        return nest(self._result, results)

    def _context_of(self, device: Device) -> Context:
        """A context for one device in one run, whose loops end when another device fails."""
        context = self._new_context(device.index)

        def stop() -> None:
            context.interrupt = True

        device.run.when_failed(stop)
        device.run.check()
        return context

    def run_host_step(self, number: int, address: int) -> None:
        """Do what machine code asks of Python on this thread."""
        self._running.run.step(self._program.host_instructions[number], address)

    def __repr__(self) -> str:
        devices = f" on {self.num_devices} devices" if self.num_devices > 1 else ""
        return f"<CpuExecutable {self.module.entry.program_shape.to_string(with_layout=False)}{devices}>"


def _register(executable: CpuExecutable) -> int:
    """Have host calls answered by an executable, as long as it lives; machine code runs only while it does."""
    reference = weakref.ref(executable)

    def answer(number: int, address: int) -> None:
        alive = reference()
        if alive is not None:
            alive.run_host_step(number, address)

    key = register_host(answer)
    weakref.finalize(executable, release_host, key)
    return key


def _readable(array: Array) -> Array:
    """The array, or a copy of it, as machine code reads it."""
    return np.require(array, requirements=["C", "A"])


def _can_be_written(arrays: Sequence[Array], number: int) -> bool:
    """Whether a program may write to one of its arguments: its memory is as it should be, and nobody else's."""
    array = arrays[number]
    if not array.flags.writeable or array.ctypes.data % ALIGNMENT:
        return False
    return not any(np.may_share_memory(array, other) for n, other in enumerate(arrays) if n != number)


def _leaves(value: Value) -> list[Array]:
    if isinstance(value, tuple):
        return [leaf for part in value for leaf in _leaves(part)]  # pyright: ignore
    return [] if value is TOKEN else [value]


def program_symbols(imports: Sequence[str]) -> dict[str, int]:
    """The addresses of what a program imports."""
    symbols = runtime_symbols()
    missing = [name for name in imports if name.startswith("xlakit_") and name not in symbols]
    if missing:
        from xlakit.cpu.kernels import blas

        for name in missing:
            found = blas.resolve(name)
            if found is not None:
                symbols[name] = found
    return symbols
