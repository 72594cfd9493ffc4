"""CpuExecutable: a compiled program that can be called, on one device or on several."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence, Set
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from xlakit.arguments import converting
from xlakit.cpu.execution.donation import Pair, arrays_of, donated_pairs, pairs_among, reuse_memory
from xlakit.cpu.execution.dynamic_arrays import DynamicArrays
from xlakit.cpu.execution.generated import GeneratedProgram
from xlakit.cpu.execution.host_steps import HostRun
from xlakit.cpu.execution.launch import Replicas
from xlakit.cpu.execution.linked import Linked, readable
from xlakit.cpu.execution.native_program import Conversion
from xlakit.cpu.program import Program, Target
from xlakit.cpu.runtime import Context, runtime_symbols
from xlakit.cpu.runtime.call import execute, make_caller, nest, pointers, raise_status, result_arrays
from xlakit.cpu.runtime.context import Status
from xlakit.cpu.runtime.devices.rendezvous import WAIT
from xlakit.cpu.runtime.host import failed_call, register_steps
from xlakit.data.shape import Shape
from xlakit.errors import ExecutionError, XlakitError
from xlakit.execution.context import ExecutionContext
from xlakit.execution.device import Device
from xlakit.execution.program import Stopped
from xlakit.execution.recipe import Recompiled
from xlakit.execution.run_group import has_group
from xlakit.execution.values import to_device
from xlakit.interpreter.executable import InterpreterExecutable, check_donated
from xlakit.ir.instruction import Instruction
from xlakit.ir.operation import Array, Value
from xlakit.ops.custom_call import CustomCall

if TYPE_CHECKING:
    from xlakit.cpu.codegen import Code
    from xlakit.cpu.profiling.recorder import Recorder
    from xlakit.cpu.tuning.record import Tuning, TuningReport


class CpuExecutable(GeneratedProgram, Recompiled):
    """A program in machine code. Call it with one value for each parameter; see :class:`xlakit.Executable`."""

    def __init__(
        self,
        reference: InterpreterExecutable,
        program: Program,
        target: Target,
        generate: Callable[[], Code],
        *,
        key: str | None = None,
        tuning: Tuning | None = None,
    ) -> None:
        super().__init__(target, generate, program=program)
        Recompiled.__init__(
            self,
            reference.module,
            reference.grid,
            reference.execution_context,
            reference.shared_context,
            reference.random,
        )
        self._reference = reference
        self._tuning = tuning
        self._key = key
        self._linked = Linked(program, target.c_functions)
        self._host_key = 0
        self._running = threading.local()
        if program.host_instructions or program.collectives or self.num_devices > 1:
            self._host_key = register_steps(self, CpuExecutable.run_host_step)
        self._result = self.module.entry.root.shape
        self._dynamic = DynamicArrays.of(self.module)
        # No attribute refers back to the executable, so it is freed with its last reference, without the cycle
        # collector.
        new_context = partial(_new_context, self._linked, self._host_key, reference)
        self._new_context = new_context
        self._context = new_context()
        parameters = [p.shape for p in self.module.entry.parameters]
        self._replicas = Replicas(program, self.num_devices, reference.begin, new_context)
        self._watch: Callable[[int, Sequence[Array]], None] | None = None
        self._native_call: Callable[..., Any] | None = None
        # Whether native code may call the program on its devices without Python.
        self._runs_natively = True
        if self.num_devices == 1 and _is_native(program, target) and all(s.is_array for s in parameters):
            fallback = Conversion(self.converting_call, self._linked)
            call = make_caller(self._context, parameters, self._result, fallback)
            self._native_call = call if call is not fallback else None

    # -- properties ------------------------------------------------------------------------------

    @property
    def tuning_report(self) -> TuningReport | None:
        """The gain of tuning for the program; None if it was not tuned."""
        return None if self._tuning is None else self._tuning.report

    @property
    def cache_key(self) -> str | None:
        """The key of the program's entry in the compile cache; None if it is not stored there."""
        return self._key

    @property
    def recorder(self) -> Recorder | None:
        """The recorded times of the program's steps; None unless it was compiled with the option ``profile``."""
        return self._linked.recorder

    # -- running ---------------------------------------------------------------------------------

    def __call__(self, *arguments: object, donate: Sequence[int] = ()) -> Any:
        """Run the program with one argument for each parameter; see :class:`xlakit.Executable`."""
        if donate:
            return self._donating_call(arguments, donate)
        return self._slow_call(*arguments) if self._native_call is None else self._native_call(*arguments)

    @property
    def _needs_no_python(self) -> bool:
        """Whether the program runs on several devices, all in this process, and has no step that Python executes."""
        is_here = self.num_devices > 1 and not self.execution_context.spans_processes
        return is_here and not self._program.host_instructions

    @property
    def _can_run_alone(self) -> bool:
        # Programs of a group fail together, in whichever process they run, so their runs are begun in Python.
        return self._needs_no_python and not has_group()

    @converting
    def execute_replicated(self, arguments: Sequence[Sequence[object]]) -> list[Any]:
        """Run the program on all devices at once, with arguments for each; see :class:`xlakit.Executable`."""
        if self._can_run_alone:
            return self._run_alone(arguments)
        return self._reference.execute_with(self._run_device, arguments)

    def _run_alone(self, arguments: Sequence[Sequence[object]]) -> list[Any]:
        """Run the program on all devices by one native call; ``arguments`` has those of each device."""
        devices = self._reference.to_devices(arguments)
        operands = [[leaf for value in values for leaf in arrays_of(value)] for values in devices]
        for number, leaves in enumerate(operands):
            self._watched(number, leaves)
        prepared = [self._prepared(leaves) for leaves in operands]
        self._replicas.run([operands for operands, _ in prepared], [outputs for _, outputs in prepared])
        return [nest(self._result, self._finished(outputs)) for _, outputs in prepared]

    @property
    def direct_call(self) -> Callable[..., Any] | None:
        """The call as a function of arrays, implemented in native code; None unless the program has one device.

        Its only steps in Python are custom calls, each of which is a run of its own. The function holds no reference to
        the executable, which must be kept as long as the function is called.
        """
        return self._native_call

    @property
    def native_entry(self) -> tuple[int, int] | None:
        """The entry for callers in native code: the addresses of a function and of its context; None if there is none.

        The function is ``i64 (ptr context, ptr arguments, ptr results)``. ``arguments`` and ``results`` are arrays of
        pointers to the data of each argument and result, device after device; it returns 0, or another Status. It may
        be called on any thread, and needs no GIL.
        """
        results = [leaf for _, leaf in self._result.leaves()]
        if not all(leaf.is_array for leaf in results):
            return None
        if self.num_devices > 1:
            parameters = [p.shape for p in self.module.entry.parameters]
            is_native = self._runs_natively and self._needs_no_python and self._dynamic is None
            if not is_native or not all(s.is_array for s in parameters):
                return None
            address = self._replicas.address(len(parameters), len(results))
            return runtime_symbols()["xlakit_execute_replicas"], address
        if self.direct_call is None:
            return None
        return runtime_symbols()["xlakit_execute"], self._context.address

    @property
    def is_pure(self) -> bool:
        """Whether a call of :attr:`native_entry` only reads its arguments and writes its results, and needs no Python.

        Such a call may be deferred to another thread and run concurrently with calls of other programs. Devices that
        wait too long for each other do ask Python, but on a thread that does not belong to the caller.
        """
        return self._linked.is_pure

    @property
    def in_place(self) -> tuple[tuple[int, int], ...]:
        """The pairs (result, argument), by number, that may share memory: the entry accepts one address for both."""
        return self._program.in_place

    def converting_call(self, *arguments: object) -> Any:
        """The call with arguments that the native call does not accept: numbers and lists are converted to arrays."""
        parameters = self.module.entry.parameters
        if len(arguments) == len(parameters) and not all(isinstance(value, np.ndarray) for value in arguments):
            try:
                arrays = [to_device(v, p.shape, "") for v, p in zip(arguments, parameters, strict=True)]
            except XlakitError:
                # The conversion of all arguments at once raises an error that names the argument.
                return self._slow_call(*arguments)
            return self(*arrays)
        same = [_of_own_dtype(v, p.shape) for v, p in zip(arguments, parameters, strict=False)]
        if len(arguments) == len(parameters) and any(a is not b for a, b in zip(same, arguments, strict=True)):
            return self(*same)
        return self._slow_call(*arguments)

    @property
    def takes_addresses(self) -> bool:
        """Whether :meth:`run_at` may be called: this process has one of several devices, and all arrays are static."""
        return self._runs_natively and self._is_one_of_static_arrays

    @cached_property
    def _is_one_of_static_arrays(self) -> bool:
        shapes = [*(p.shape for p in self.module.entry.parameters), *(leaf for _, leaf in self._result.leaves())]
        is_one = self.num_devices > 1 and len(self._reference.local_devices()) == 1
        return is_one and self._dynamic is None and all(shape.is_array for shape in shapes)

    def run_at(self, arguments: int, results: int) -> None:
        """Run the one device of this process; both addresses are those of tables of array addresses.

        Arrays are aligned and major to minor, as machine code requires, and no result is also an argument.
        """
        self._reference.run_one(
            lambda device: self._run_code(device, lambda: self._replicas.run_member(device, arguments, results))
        )

    def _run_code(self, device: Device, run: Callable[[], int]) -> None:
        """Run the machine code on one device by ``run``, which gives the status."""
        device.run.check()
        before = getattr(self._running, "run", None)
        with HostRun(device, self._pairs) as self._running.run:
            try:
                status = run()
            finally:
                # A custom call may have called this program again, which replaced the run of this thread.
                self._running.run = before
            self._check_status(device, status)

    def _check_status(self, device: Device, status: int) -> None:
        if not status:
            return
        if status != Status.RAISED:
            device.run.check()
        if status == Status.INTERRUPTED and self.num_devices > 1:
            # Another device failed in machine code; its thread reports the error.
            raise Stopped("another device failed")
        raise_status(status)

    def _slow_call(self, *arguments: object) -> Any:
        if self._can_run_alone:
            return self._run_alone([arguments] * self.num_devices)
        return self._reference.call_with(self._run_device, arguments)

    def _donating_call(self, arguments: Sequence[object], donate: Sequence[int]) -> Any:
        check_donated(donate, len(self.module.entry.parameters))

        def run(device: Device, values: Sequence[Value]) -> Any:
            return self._run_device(device, values, donated_pairs(self._program.in_place, values, donate))

        # Several devices may be given the same array, which they cannot all write to.
        return self._reference.call_with(run if self.num_devices == 1 else self._run_device, arguments)

    def _run_device(self, device: Device, arguments: Sequence[Value], in_place: Sequence[Pair] = ()) -> Any:
        leaves = [leaf for value in arguments for leaf in arrays_of(value)]
        self._watched(device.index, leaves)
        return nest(self._result, self._run_in(self._context, device, leaves, in_place))

    def watch_arguments(self, watch: Callable[[int, Sequence[Array]], None]) -> None:
        """Set a function that is called before each run on a device, with the device's number and the arguments.

        From then on every call goes through Python, even if native code could make it.
        """
        self._watch = watch
        self._native_call, self._runs_natively = None, False

    def _watched(self, device: int, arrays: Sequence[Array]) -> None:
        if self._watch is not None:
            self._watch(device, arrays)

    def begin(
        self, execution_context: ExecutionContext | None = None, positions: Sequence[int] | None = None
    ) -> list[Device]:
        """Begin a new run; gives its devices, for a caller that runs and counts them in a shared execution context.

        positions: the numbers of their infeeds and outfeeds in that context.
        """
        return self._reference.begin(execution_context, positions)

    def run_arrays(self, device: Device, arrays: Sequence[Array], donated: Set[int] = frozenset()) -> list[Array]:
        """Run the program on one device of a run, with the arrays of all arguments; gives the arrays of the result.

        donated: numbers of argument arrays that may be overwritten; a result may then be the same array.
        """
        self._watched(device.index, arrays)
        in_place = pairs_among(self._program.in_place, donated)
        context = self._context_of(device) if self.num_devices == 1 else self._context
        return self._run_in(context, device, arrays, in_place)

    def _run_in(
        self, context: Context, device: Device, arrays: Sequence[Array], in_place: Sequence[Pair]
    ) -> list[Array]:
        """Run the program on one device; ``context`` is for programs that have one device."""
        device.run.check()
        leaves, results = self._prepared(arrays)
        reuse_memory(results, leaves, in_place)

        def run() -> int:
            if self.num_devices > 1:
                return self._replicas.run_member(device, pointers(leaves), pointers(results))
            return execute(context, leaves, results)

        self._run_code(device, run)
        return self._finished(results)

    @cached_property
    def _pairs(self) -> Mapping[Instruction, Instruction]:
        """The async pairs that Python executes concurrently with the program."""
        module = self._program.host_module
        if self._target.native_collectives or module is None:
            return {}
        # Imported here: most programs run in one process.
        from xlakit.cpu.entry.collectives import all_pairs_between_processes

        return all_pairs_between_processes(module)

    def _prepared(self, arrays: Sequence[Array]) -> tuple[list[Array], list[Array]]:
        """The arrays that the program reads and the arrays that it writes."""
        leaves = [readable(array) for array in arrays]
        results = result_arrays(self._result)
        if self._dynamic is not None:
            leaves = self._dynamic.padded(leaves)
            results += self._dynamic.size_arrays()
        return leaves, results

    def _finished(self, results: list[Array]) -> list[Array]:
        """The caller's results, from the arrays that the program has written."""
        return results if self._dynamic is None else self._dynamic.cut(results)

    def _context_of(self, device: Device) -> Context:
        """A context for one device of a run; a failure of the run sets its interrupt flag, which loops poll."""
        context = self._new_context(device.index)

        def stop() -> None:
            context.interrupt = True

        device.run.when_failed(stop)
        return context

    def run_host_step(self, number: int, address: int) -> None:
        """Execute the host call ``number`` of machine code, on this thread."""
        if number >= WAIT:
            self._replicas.answer(number, address)
            return
        if number < 0:
            raise self._ffi_failure(self._program.host_instructions[failed_call(number)], address)
        instruction = self._program.host_instructions[number]
        run: HostRun | None = getattr(self._running, "run", None)
        if run is not None:
            run.step(instruction, address)
        else:
            # Native code called the program, so there is no run in Python yet. Programs that rarely make a host call
            # get here.
            self._reference.run_alone(lambda device: HostRun(device).step(instruction, address))

    def _ffi_failure(self, instruction: Instruction, error: int) -> ExecutionError:
        """The error of ``instruction``, from the error object that its handler of XLA's typed FFI returned."""
        from xlakit.execution.calls.ffi.target import failure

        module = self._program.host_module
        return failure(instruction.op_as(CustomCall).custom_call_target, error).at(
            operation=f"{instruction.opcode} '{instruction.name}'",
            shapes=[o.shape for o in instruction.operands],
            location=module.location_of(instruction) if module is not None else None,
        )

    def __repr__(self) -> str:
        devices = f" on {self.num_devices} devices" if self.num_devices > 1 else ""
        return f"<CpuExecutable {self.module.entry.program_shape.to_string(with_layout=False)}{devices}>"


def _is_native(program: Program, target: Target) -> bool:
    """Whether a run may begin in machine code, without a run object in Python.

    Custom calls create one on demand: they depend on no other step and on no other device.
    """
    return not program.host_instructions or (
        target.native_collectives and all(isinstance(i.op, CustomCall) for i in program.host_instructions)
    )


def _new_context(linked: Linked, host: int, reference: InterpreterExecutable, ordinal: int = 0) -> Context:
    return linked.new_context(ordinal=ordinal, host=host, random=reference.random[ordinal])


def _of_own_dtype(value: object, shape: Shape) -> object:
    """An argument; one with a copy of its dtype, as pickled arrays have it, with NumPy's own object for that."""
    if type(value) is not np.ndarray or not shape.is_array:
        return value
    dtype = shape.element_type.dtype
    return value if value.dtype is dtype or value.dtype != dtype else value.view(dtype)
