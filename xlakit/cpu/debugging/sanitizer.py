"""The sanitizer: runs a program step by step, and checks its memory before and after each step.

``XLAKIT_SANITIZE=1``, or ``with compiling(sanitize=True)``, compiles programs for it. A fault is an InternalError that
names the step, the HLO instruction, and the line of the user's program. The sanitizer finds wrong plans and kernels:

- a step reads a value whose memory was overwritten by another value too early;
- a step reads memory that has never been written;
- a kernel writes outside of its results;
- a kernel does not write all elements of its result, or reads elements before it has written them;
- a result overwrites what the kernel still reads where it states that it may share memory with an operand, as the
  plan lets it or not: each such pair is run;
- a load, a store or a copy leaves the array, or the part of scratch, that its address was computed from, even for
  an element that is not selected afterwards (:mod:`xlakit.cpu.llvm.bounds_checks`): the access is skipped;
- after an iteration, a branch or the program, a value is not in its slice.

The steps name the values that they read, and the plan gives the slice of each value. When a value is written, a
checksum of its bytes is saved; each reader must find the same bytes. No live range is needed for this. All memory of
a run is one array with a guard around each argument, result, constant and variable, and behind each slice of the
arena; after each step, all memory outside of the step's results must be unchanged. Kernels run twice, on results
filled with different bytes and with their tasks in another order: their results may depend on neither.

The plan is proved first (:mod:`xlakit.memory.checker`): the proof covers every execution, the sanitizer the actual one.

A program that can be repeated runs once more through its entry, whose results must have the same bits. Programs with
several devices or dynamic dimensions run through their entry alone: it has the rendezvous of the devices, and the
checks of sizes. In the entry the bounds of every access are checked; the other checks need steps that run one by one.
The entry calls kernels as functions. Kernels that a normal program inlines have the same IR, which is checked before
LLVM inlines it; errors of LLVM's passes on the whole are left to :mod:`xlakit.cpu.debugging.verified`, which compares
with plain code.
"""

from __future__ import annotations

import ctypes
import hashlib
import threading
from collections.abc import Collection, Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from xlakit import options
from xlakit.cpu.debugging.verified import can_be_repeated, difference
from xlakit.cpu.entry.collectives import all_pairs_between_processes
from xlakit.cpu.execution.executable import CpuExecutable
from xlakit.cpu.execution.host_steps import HostRun
from xlakit.cpu.execution.linked import Linked, readable
from xlakit.cpu.kernels.shared import blas
from xlakit.cpu.runtime import runtime_symbols
from xlakit.cpu.runtime.bounds import BoundsFault, note_bounds, take_faults
from xlakit.errors import InternalError
from xlakit.memory.assignment import BufferSlice, Space
from xlakit.memory.steps import (
    ConditionalStep,
    CopyStep,
    HostStep,
    KernelStep,
    NumberStep,
    Pair,
    RandomStep,
    Step,
    WhileStep,
    walk,
)
from xlakit.memory.values import ALIGNMENT, HloValue
from xlakit.ops.custom_call import CustomCall
from xlakit.ops.random import Rng

if TYPE_CHECKING:
    from xlakit.cpu.codegen import Code
    from xlakit.cpu.runtime import Context
    from xlakit.execution.device import Device
    from xlakit.ir.instruction import Instruction
    from xlakit.ir.operation import Array

_GUARD = 128
# The bytes that memory is filled with before it is written.
_POISON = (0xA5, 0x5B)
_KERNEL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)


def sanitizing() -> options.Options:
    """The options for the sanitizer: kernels are functions that can be called one by one, and the plan is proved."""
    current = options.current()
    return replace(current, plain=current.plain | {"inline"}, check_memory=True)


class SanitizedExecutable(CpuExecutable):
    """A program whose runs are checked."""

    def __init__(self, program: CpuExecutable) -> None:
        """``program`` is compiled with :func:`sanitizing`, and has its code.

        Without the option ``sanitize`` itself its kernels are ordinary ones, and the bounds of accesses not checked.
        """
        super().__init__(program._reference, program._program, program._target, program._generate)
        code = self._generated_code
        self._can_watch = not code.collectives and self.num_devices == 1 and self._dynamic is None
        self._runs_entry = can_be_repeated(self.module) and not code.program().host_instructions
        kernels = [step for step in walk(code.plan.steps) if isinstance(step, KernelStep)]
        names = sorted({phase.function for kernel in kernels for phase in kernel.phases if phase.tasks})
        self._kernels = Linked(self._program, self._target.c_functions, names)
        self._functions = {name: _KERNEL(self._kernels.address(name)) for name in names}
        self._native_call, self._runs_natively = None, False

    def _run_in(
        self, context: Context, device: Device, arrays: Sequence[Array], in_place: Sequence[tuple[int, int]]
    ) -> list[Array]:
        if not self._can_watch:
            with self._bounds():
                return super()._run_in(context, device, arrays, in_place)
        code = self._generated_code
        pairs = {} if self._target.native_collectives else all_pairs_between_processes(code.module)
        leaves, results = self._prepared(arrays)
        with HostRun(device, pairs) as host, _one_library_thread(self._program.imports):
            run = _Run(code, self._functions, context, host)
            run.start(leaves)
            run.steps(code.plan.steps)
        outputs = self._finished(run.finish(results))
        if self._runs_entry:
            # Donated arguments are overwritten, so the entry gets copies.
            copies = [np.array(array) for array in arrays]
            with self._bounds():
                again = super()._run_in(context, device, copies, in_place)
            for number, (output, other) in enumerate(zip(outputs, again, strict=True)):
                fault = difference(other, output)
                if fault:
                    raise InternalError(f"the entry of '{self.module.name}' gives another result {number}: {fault}")
        return outputs

    def _run_alone(self, arguments: Sequence[Sequence[object]]) -> list[Any]:
        with self._bounds():
            return super()._run_alone(arguments)

    @contextmanager
    def _bounds(self) -> Generator[None]:
        """Runs the entry within the block; raises InternalError if a bounds check refused an access."""
        try:
            yield
        except Exception as error:
            faults = take_faults()
            if faults:
                raise self._out_of_bounds(faults[0]) from error
            raise
        faults = take_faults()
        if faults:
            raise self._out_of_bounds(faults[0])

    def _out_of_bounds(self, fault: BoundsFault) -> InternalError:
        code = self._generated_code
        error = InternalError(
            f"the memory of '{self.module.name}': an access of the entry leaves an array: {fault.text}"
        )
        function = fault.site.partition(": ")[0]
        for step in walk(code.plan.steps):
            if isinstance(step, KernelStep) and any(p.function == function for p in step.phases):
                instruction = step.instruction
                location = code.module.location_of(instruction)
                return error.at(operation=f"{instruction.opcode} '{instruction.name}'", location=location)
        return error


class _Run:
    """One sanitized run of a program."""

    def __init__(self, code: Code, functions: dict[str, Any], context: Context, host: HostRun) -> None:
        self._code = code
        self._functions = functions
        self._context = context
        self._device = host.device
        self._host = host
        # The checksums of values; and the ranges that were written, each with its writer, the latest last.
        self._known: dict[HloValue, bytes] = {}
        self._writers: list[tuple[int, int, str]] = []
        self._offsets: dict[BufferSlice, int] = {}
        self._count = 0
        self._plan = code.plan
        end = _GUARD + code.plan.arena_bytes + _GUARD
        for buffer_slice in code.plan.slices:
            if buffer_slice.space is Space.ARENA:
                self._offsets[buffer_slice] = _GUARD + buffer_slice.offset
            else:
                self._offsets[buffer_slice] = end
                end += -(-buffer_slice.size // ALIGNMENT) * ALIGNMENT + _GUARD
        whole = np.full(end + ALIGNMENT, _POISON[0], np.uint8)
        skipped = -whole.ctypes.data % ALIGNMENT
        self._memory = whole[skipped : skipped + end]
        self._address = self._memory.ctypes.data

    # -- values ----------------------------------------------------------------------------------

    def _range(self, buffer_slice: BufferSlice) -> tuple[int, int]:
        start = self._offsets[buffer_slice]
        return start, start + buffer_slice.size

    def _ranges(self, values: Sequence[HloValue]) -> list[tuple[int, int]]:
        return [self._range(self._plan.slice_of(value)) for value in values]

    def _bytes(self, buffer_slice: BufferSlice) -> Array:
        low, high = self._range(buffer_slice)
        return self._memory[low:high]

    def _memory_of(self, value: HloValue) -> Array:
        """The bytes of the slice of a value."""
        return self._bytes(self._plan.slice_of(value))

    def _note(self, value: HloValue, writer: str) -> None:
        """Record that a value has been written, and by what."""
        self._known[value] = _checksum(self._memory_of(value))
        self._writers.append((*self._range(self._plan.slice_of(value)), writer))

    def _check(
        self, buffer_slice: BufferSlice, expected: HloValue, action: str, instruction: Instruction | None
    ) -> None:
        """Check that a slice holds the value ``expected``."""
        known = self._known.get(expected)
        if known is None:
            raise self._fault(f"{action} {_named(expected)}, which has never been written", instruction)
        if known != _checksum(self._bytes(buffer_slice)):
            low, high = self._range(buffer_slice)
            late = [writer for a, b, writer in self._writers if a < high and low < b]
            overwriter = f": {late[-1]} has written there last" if late else ""
            raise self._fault(
                f"{action} {_named(expected)}, whose memory holds something else by now{overwriter}", instruction
            )

    def _check_there(self, value: HloValue, action: str, instruction: Instruction | None) -> None:
        """Check that a value is in its slice."""
        self._check(self._plan.slice_of(value), value, action, instruction)

    def _fault(self, text: str, instruction: Instruction | None) -> InternalError:
        error = InternalError(f"the memory of '{self._code.module.name}': step {self._count} {text}")
        if instruction is None:
            return error
        location = self._code.module.location_of(instruction)
        return error.at(operation=f"{instruction.opcode} '{instruction.name}'", location=location)

    def _table(self, values: Sequence[HloValue]) -> Any:
        pointers = [self._address + low for low, _ in self._ranges(values)]
        return (ctypes.c_void_p * max(1, len(pointers)))(*pointers)

    # -- beginning and end -----------------------------------------------------------------------

    def start(self, arrays: Sequence[Array]) -> None:
        """Write arguments and constants into their slices."""
        for value, array in zip(self._plan.arguments, arrays, strict=True):
            self._write(value, array)
        for buffer_slice in self._plan.slices:
            for value in buffer_slice.values if buffer_slice.space is Space.CONSTANT else ():
                self._write(value, self._plan.program.constants[buffer_slice.number])

    def _write(self, value: HloValue, array: Array) -> None:
        self._memory_of(value)[:] = readable(array).reshape(-1).view(np.uint8)
        self._note(value, "the caller")

    def finish(self, results: Sequence[Array]) -> list[Array]:
        """Check the results, and copy them into ``results``."""
        for buffer_slice, value, array in zip(self._plan.result_slices, self._plan.results, results, strict=True):
            self._check(buffer_slice, value, "ends: a result should be", None)
            array.reshape(-1).view(np.uint8)[:] = self._bytes(buffer_slice)
        return list(results)

    # -- steps -----------------------------------------------------------------------------------

    def steps(self, steps: Sequence[Step]) -> None:
        """Run steps, one after the other."""
        for step in steps:
            self._count += 1
            if isinstance(step, KernelStep):
                self._kernel(step)
            elif isinstance(step, CopyStep):
                self._copy(step)
            elif isinstance(step, HostStep):
                self._host_step(step)
            elif isinstance(step, RandomStep):
                self._random(step)
            elif isinstance(step, NumberStep):
                number = int(self._device.index) // step.divisor % step.modulus
                self._memory_of(step.result)[:] = np.frombuffer(np.uint32(number).tobytes(), np.uint8)
                self._note(step.result, "the number of the device")
            elif isinstance(step, WhileStep):
                self._while(step)
            elif isinstance(step, ConditionalStep):
                self._conditional(step)
            else:
                raise InternalError(f"the sanitizer has no way to run a {type(step).__name__}")

    def _kernel(self, step: KernelStep) -> None:
        """Run a kernel twice, with different bytes in the memory that it is to write, and compare its results."""
        instruction, plan = step.instruction, self._plan
        operands, results, scratch = step.operands, step.results, step.scratch
        for value in operands:
            self._check_there(value, "reads", instruction)
        read = {plan.slice_of(value) for value in operands}
        # Operands that are updated in place have their contents already, and so has the state of random numbers.
        preserved = read | {plan.slice_of(results[number]) for number in step.updates}
        if isinstance(instruction.op, Rng):
            preserved.update(map(plan.slice_of, scratch))
        fresh = [value for value in (*results, *scratch) if plan.slice_of(value) not in preserved]
        self._check_apart(fresh, operands, instruction)
        # A result in the slice of an operand that it does not update is compared with the same result in separate
        # memory.
        shared = [n for n, value in enumerate(results) if plan.slice_of(value) in read and n not in step.updates]
        before = self._memory.copy()
        outcomes: list[list[bytes]] = []
        # External functions may have side effects, so they run once.
        for last in (False, True) if not isinstance(instruction.op, CustomCall) else (True,):
            self._memory[:] = before
            for low, high in self._ranges(fresh):
                self._memory[low:high] = _POISON[last]
            outcomes.append(self._called(step, [] if last else shared, backwards=not last))
            self._check_outside(before, self._ranges((*results, *scratch)), instruction)
        for number, contents in enumerate(zip(*outcomes, strict=True)):
            if len(set(contents)) > 1:
                why = "they are not written, or read before that, or depend on the order of tasks"
                why = "it overwrites what it still reads" if number in shared else why
                raise self._fault(f"gives other elements of result {number} each time: {why}", instruction)
        self._check_in_place(step, before, outcomes[-1])
        for value in results:
            self._note(value, f"step {self._count} ({instruction.opcode} '{instruction.name}')")

    def _check_apart(self, fresh: Sequence[HloValue], operands: Sequence[HloValue], instruction: Instruction) -> None:
        """Check that no written value overlaps an operand, except one with the same slice."""
        for result, (low, high) in zip(fresh, self._ranges(fresh), strict=True):
            for operand, (first, last) in zip(operands, self._ranges(operands), strict=True):
                if low < last and first < high:
                    raise self._fault(
                        f"reads {_named(operand)}, in whose memory {_named(result)} lies, which it writes", instruction
                    )

    def _check_in_place(self, step: KernelStep, before: Array, expected: Sequence[bytes]) -> None:
        """Check all pairs of a result and an operand that may share memory, whether or not the plan makes use of it."""
        after = self._memory.copy()
        apart = [number for number in range(len(step.results)) if number not in step.updates]
        for result, operand in sorted(step.in_place):
            if any((result, n) not in step.in_place for n in _positions(step, operand)):
                continue
            for backwards in (False, True):
                self._memory[:] = before
                if self._called(step, apart, (result, operand), backwards=backwards) != expected:
                    why = f"if result {result} is in the memory of operand {operand}: it overwrites what it still reads"
                    raise self._fault(f"gives other elements {why}", step.instruction)
        self._memory[:] = after

    def _called(
        self, step: KernelStep, elsewhere: Sequence[int], pair: Pair | None = None, *, backwards: bool
    ) -> list[bytes]:
        """Run a kernel, with the results in ``elsewhere`` in separate memory; gives the bytes of all results.

        pair: the result, of these, that is in the memory of an operand, and the operand.
        """
        table, first = self._table(step.table), len(step.operands)
        results = step.results
        spare = {number: np.full(results[number].bytes + ALIGNMENT, _POISON[0], np.uint8) for number in elsewhere}
        memory = [self._memory_of(value) for value in results]
        for number, data in spare.items():
            memory[number] = data[-data.ctypes.data % ALIGNMENT :]
            table[first + number] = memory[number].ctypes.data
        if pair is not None:
            memory[pair[0]][: results[pair[0]].bytes] = self._memory_of(step.operands[pair[1]])
            for number in _positions(step, pair[1]):
                table[number] = table[first + pair[0]]
        for number, value in enumerate(step.table):
            note_bounds(ctypes.addressof(table) + number * ctypes.sizeof(ctypes.c_void_p), table[number], value.bytes)
        for phase in step.phases:
            share = max(1, -(-phase.tasks // 16)) if backwards else phase.tasks
            for begin in reversed(range(0, phase.tasks, max(1, share))):
                self._functions[phase.function](ctypes.addressof(table), begin, min(phase.tasks, begin + share))
                self._check_bounds(step, table)
        return [data[: value.bytes].tobytes() for data, value in zip(memory, results, strict=True)]

    def _check_bounds(self, step: KernelStep, table: Any) -> None:
        """Check that no access of the kernel was refused."""
        faults = take_faults(threading.get_ident())
        if not faults:
            return
        fault = faults[0]
        arrays = [_named(value) for value, begin in zip(step.table, table, strict=False) if begin == fault.low]
        owner = f", that of {' or '.join(arrays)}" if arrays else ""
        raise self._fault(f"leaves an array{owner}: {fault.text}", step.instruction)

    def _check_outside(
        self, before: Array, written: Sequence[tuple[int, int]], instruction: Instruction | None
    ) -> None:
        """Check that memory outside of the ranges ``written`` has not changed."""
        changed = self._memory != before
        for low, high in written:
            changed[low:high] = False
        if not changed.any():
            return
        offset = int(np.argmax(changed))
        near = min(written, key=lambda r: min(abs(offset - r[1]), abs(r[0] - offset)), default=(0, 0))
        side = f"{offset - near[1]} bytes behind" if offset >= near[1] else f"{near[0] - offset} bytes before"
        hit = [
            buffer_slice
            for buffer_slice in self._offsets
            if self._range(buffer_slice)[0] <= offset < self._range(buffer_slice)[1]
        ]
        victims = [_named(value) for buffer_slice in hit for value in buffer_slice.values]
        owner = f", where {' or '.join(victims)} may lie" if victims else ""
        raise self._fault(f"writes outside of its results, {side} one{owner}", instruction)

    def _copy(self, step: CopyStep) -> None:
        if step.is_value:
            self._check_there(step.source, "copies", None)
        self._memory_of(step.target)[:] = self._memory_of(step.source).copy()
        self._writers.append((*self._ranges([step.target])[0], f"step {self._count}, a copy,"))
        if step.is_value:
            self._note(step.target, f"step {self._count}, a copy,")

    def _host_step(self, step: HostStep) -> None:
        for value in step.operands:
            self._check_there(value, "reads", step.instruction)
        table = self._table((*step.operands, *step.results))
        before = self._memory.copy()
        self._host.step(step.instruction, ctypes.addressof(table))
        self._check_outside(before, self._ranges(step.results), step.instruction)
        for value in step.results:
            self._note(value, f"step {self._count} ({step.instruction.opcode} '{step.instruction.name}')")

    def _random(self, step: RandomStep) -> None:
        name = "xlakit_random_draw" if step.delta is None else "xlakit_random_state"
        call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(runtime_symbols()[name])
        call(self._context.address, self._address + self._ranges([step.state])[0][0], step.delta or 0)
        self._note(step.state, f"step {self._count} ('{step.instruction.name}')")

    # -- control ---------------------------------------------------------------------------------

    def _while(self, step: WhileStep) -> None:
        self._become(step.carried, step.initial, "begins with", step.instruction)
        while True:
            self.steps(step.condition)
            self._check_there(step.predicate, "asks", step.instruction)
            if not self._memory_of(step.predicate)[0]:
                return
            self._device.run.check()
            self.steps(step.body)
            self._become(step.carried, step.next_values, "should go on with", step.instruction)

    def _conditional(self, step: ConditionalStep) -> None:
        self._check_there(step.index, "asks", step.instruction)
        index = self._memory_of(step.index)
        if step.is_predicate:
            chosen = 0 if index[0] else 1
        else:
            chosen = int(index.view(np.int32)[0])
            chosen = chosen if 0 <= chosen < len(step.branches) else len(step.branches) - 1
        self.steps(step.branches[chosen])
        self._become(step.results, step.incoming[chosen], "should give", step.instruction)

    def _become(
        self, phis: Sequence[HloValue], sources: Sequence[HloValue], action: str, instruction: Instruction
    ) -> None:
        """Check that the memory of phis holds the values that they take, all at once."""
        for target, source in zip(phis, sources, strict=True):
            self._check(self._plan.slice_of(target), source, action, instruction)
        known = [self._known[source] for source in sources]
        self._known.update(zip(phis, known, strict=True))


@contextmanager
def _one_library_thread(imports: Collection[str]) -> Generator[None]:
    """BLAS and LAPACK use one thread within the block, as they do while the entry runs: others add in another order."""
    if not any(name.startswith(blas.PREFIX) for name in imports):
        yield
        return
    symbols = runtime_symbols()
    functions = [blas.resolve(f"{blas.PREFIX}{name}_threads") for name in ("get", "set")]
    ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(symbols["xlakit_library_enter"])(*functions)
    try:
        yield
    finally:
        ctypes.CFUNCTYPE(None)(symbols["xlakit_library_leave"])()


def _positions(step: KernelStep, operand: int) -> list[int]:
    """The numbers of all operands that are the same value."""
    return [n for n, value in enumerate(step.operands) if value is step.operands[operand]]


def _checksum(data: Array) -> bytes:
    return hashlib.blake2b(data.tobytes(), digest_size=16).digest()


def _named(value: HloValue) -> str:
    return f"'{value.name}'"
