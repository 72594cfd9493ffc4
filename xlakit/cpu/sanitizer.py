"""The sanitizer: a program run step by step, with its memory looked at before and after each step.

``XLAKIT_SANITIZE=1``, or ``with compiling(sanitize=True)``, compiles programs for it; a fault is an InternalError that
names the step, the HLO instruction, and the line of the person's program. It takes the memory plan as it is, where each
buffer lies and which values share one, and finds plans and kernels that are wrong:

- a step reads a value whose memory holds something else by now: another value was put there too early;
- a step reads what has never been written;
- a kernel writes outside of its results;
- a kernel leaves elements of its result as they were, or reads them before it has written them;
- after an iteration, a branch or the program, a value is not where it should be.

What a step reads is known from the program alone. Lowering makes a buffer for each value and then lets buffers share
memory; here a *value* is the buffer as it was made, and its *memory* the one that it shares. When a value is written, a
checksum of its bytes is kept; each reader must find these bytes. So nothing here asks when values die. All
memory of a run is one array with a guard around each argument, result and constant, and behind each buffer of the
arena; after each step, everything outside of what the step may write must be what it was before. Kernels run twice, on
results filled with different bytes, and with their tasks in another order: what they write depends on neither.

The plan is also proved before (:mod:`xlakit.cpu.checker`), which sees what could happen, and the sanitizer what does.
The entry itself, into which small kernels are inlined, is not run: plain code is the net for that
(:mod:`xlakit.cpu.verified`). Programs of several devices run as usual.
"""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from xlakit import options
from xlakit.cpu.entry.buffers import ALIGNMENT, Buffer
from xlakit.cpu.entry.steps import (
    ConditionalStep,
    CopyStep,
    HostStep,
    KernelStep,
    NumberStep,
    RandomStep,
    Step,
    WhileStep,
    used_in,
)
from xlakit.cpu.executable import CpuExecutable
from xlakit.cpu.host_steps import HostRun
from xlakit.cpu.linked import Linked, readable
from xlakit.cpu.runtime import runtime_symbols
from xlakit.errors import InternalError

if TYPE_CHECKING:
    from xlakit.cpu.compile import Code
    from xlakit.cpu.runtime import Context
    from xlakit.execution.device import Device
    from xlakit.ir.instruction import Instruction
    from xlakit.ir.operation import Array

_GUARD = 128
# What memory is filled with before it is written.
_POISON = (0xA5, 0x5B)
_KERNEL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)


def sanitizing() -> options.Options:
    """The options to compile with: kernels are functions that can be called one by one, and the plan is proved."""
    now = options.current()
    return replace(now, plain=now.plain | {"inline"}, check_memory=True)


class SanitizedExecutable(CpuExecutable):
    """A program whose runs are watched."""

    def __init__(self, own: CpuExecutable) -> None:
        """``own`` is the program, compiled with :func:`sanitizing`, with its code."""
        super().__init__(own._reference, own._program, own._target, own._code)
        code = self._generated_code
        self._can_watch = not code.collectives and self.num_devices == 1 and self._dynamic is None
        names = sorted({p.function for s in _every(code.lowered.steps) for p in _phases(s) if p.tasks})
        self._kernels = Linked(self._program, self._target.c_functions, names)
        self._functions = {name: _KERNEL(self._kernels.address(name)) for name in names}
        self._call = self._slow_call

    def _run_in(
        self, context: Context, device: Device, arrays: Sequence[Array], in_place: Sequence[tuple[int, int]]
    ) -> list[Array]:
        if not self._can_watch:
            return super()._run_in(context, device, arrays, in_place)
        run = _Run(self._generated_code, self._functions, context, device)
        leaves, results = self._prepared(arrays)
        run.start(leaves)
        run.steps(self._generated_code.lowered.steps)
        return self._finished(run.finish(results))


class _Run:
    """One run of a program."""

    def __init__(self, code: Code, functions: dict[str, Any], context: Context, device: Device) -> None:
        self._code = code
        self._functions = functions
        self._context = context
        self._device = device
        self._host = HostRun(device)
        # The checksums of values, and who has written where, the latest last.
        self._known: dict[Buffer, bytes] = {}
        self._writers: list[tuple[int, int, str]] = []
        self._places: dict[Buffer, int] = {}
        self._count = 0
        lowered = code.lowered
        buffers = {*used_in(lowered.steps), *(b.resolved() for b in (*lowered.arguments, *lowered.values))}
        end = _GUARD + code.arena_bytes + _GUARD
        for buffer in sorted(buffers, key=lambda b: (b.place, b.number, b.name)):
            if buffer.place == "temporary" and buffer.offset >= 0:
                self._places[buffer] = _GUARD + buffer.offset
            else:
                self._places[buffer] = end
                end += -(-buffer.bytes // ALIGNMENT) * ALIGNMENT + _GUARD
        whole = np.full(end + ALIGNMENT, _POISON[0], np.uint8)
        skipped = -whole.ctypes.data % ALIGNMENT
        self._memory = whole[skipped : skipped + end]
        self._address = self._memory.ctypes.data

    # -- values ----------------------------------------------------------------------------------

    def _range(self, buffer: Buffer) -> tuple[int, int]:
        own = buffer.resolved()
        place = self._places[own]
        return place, place + buffer.bytes

    def _bytes(self, buffer: Buffer) -> Array:
        low, high = self._range(buffer)
        return self._memory[low:high]

    def _note(self, buffer: Buffer, what: str) -> None:
        """A value has been written."""
        self._known[buffer] = _checksum(self._bytes(buffer))
        self._writers.append((*self._range(buffer), what))

    def _check(self, buffer: Buffer, expected: Buffer, what: str, instruction: Instruction | None) -> None:
        """The memory of ``buffer`` must hold the value ``expected``."""
        known = self._known.get(expected)
        if known is None:
            raise self._fault(f"{what} {_named(expected)}, which has never been written", instruction)
        if known != _checksum(self._bytes(buffer)):
            low, high = self._range(buffer)
            late = [who for a, b, who in self._writers if a < high and low < b]
            by = f": {late[-1]} has written there last" if late else ""
            raise self._fault(f"{what} {_named(expected)}, whose memory holds something else by now{by}", instruction)

    def _fault(self, text: str, instruction: Instruction | None) -> InternalError:
        found = InternalError(f"the memory of '{self._code.module.name}': step {self._count} {text}")
        if instruction is None:
            return found
        place = self._code.module.location_of(instruction)
        return found.at(operation=f"{instruction.opcode} '{instruction.name}'", location=place)

    def _table(self, buffers: Sequence[Buffer]) -> Any:
        pointers = [self._address + self._range(b)[0] for b in buffers]
        return (ctypes.c_void_p * max(1, len(pointers)))(*pointers)

    # -- beginning and end -----------------------------------------------------------------------

    def start(self, arrays: Sequence[Array]) -> None:
        """Put arguments and constants where the program reads them."""
        lowered = self._code.lowered
        for buffer, array in zip(lowered.arguments, arrays, strict=True):
            self._put(buffer, array)
        for buffer in [b for b in self._places if b.place == "constant"]:
            self._put(buffer, lowered.constants[buffer.number])

    def _put(self, buffer: Buffer, array: Array) -> None:
        self._bytes(buffer)[:] = readable(array).reshape(-1).view(np.uint8)
        self._note(buffer, "the caller")

    def finish(self, results: Sequence[Array]) -> list[Array]:
        """The results, which must be what the program has made."""
        lowered = self._code.lowered
        for buffer, value, array in zip(lowered.results, lowered.values, results, strict=True):
            self._check(buffer, value, "ends: a result should be", None)
            array.reshape(-1).view(np.uint8)[:] = self._bytes(buffer)
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
                self._bytes(step.result)[:] = np.frombuffer(np.uint32(number).tobytes(), np.uint8)
                self._note(step.result, "the number of the device")
            elif isinstance(step, WhileStep):
                self._while(step)
            elif isinstance(step, ConditionalStep):
                self._conditional(step)
            else:
                raise InternalError(f"the sanitizer has no way to run a {type(step).__name__}")

    def _kernel(self, step: KernelStep) -> None:
        instruction = step.instruction
        given, made, scratch = _parts(step)
        for buffer in given:
            self._check(buffer, buffer, "reads", instruction)
        read = {b.resolved() for b in given}
        # What is changed in place is there already, and so is the state of random numbers.
        kept = read | {made[number].resolved() for number in step.updates}
        if instruction.opcode == "rng":
            kept.update(b.resolved() for b in scratch)
        fresh = [b for b in (*made, *scratch) if b.resolved() not in kept]
        self._check_apart(fresh, given, instruction)
        # Results that lie where an operand does, but are not that operand changed, must be the same elsewhere.
        shared = [n for n, b in enumerate(made) if b.resolved() in read and n not in step.updates]
        before = self._memory.copy()
        outcomes: list[list[bytes]] = []
        # What others do may have effects: it is done once.
        for last in (False, True) if instruction.opcode != "custom-call" else (True,):
            self._memory[:] = before
            for low, high in map(self._range, fresh):
                self._memory[low:high] = _POISON[last]
            outcomes.append(self._called(step, [] if last else shared, len(given), backwards=not last))
            self._check_outside(before, [self._range(b) for b in (*made, *scratch)], instruction)
        for number, results in enumerate(zip(*outcomes, strict=True)):
            if len(set(results)) > 1:
                why = "they are not written, or read before that, or hang on the order of tasks"
                why = "it overwrites what it still reads" if number in shared else why
                raise self._fault(f"gives other elements of result {number} each time: {why}", instruction)
        for buffer in made:
            self._note(buffer, f"step {self._count} ({instruction.opcode} '{instruction.name}')")

    def _check_apart(self, fresh: Sequence[Buffer], given: Sequence[Buffer], instruction: Instruction) -> None:
        """What is written must not lie where operands do, but in the very same memory."""
        for own in fresh:
            low, high = self._range(own)
            for other in given:
                first, last = self._range(other)
                if low < last and first < high:
                    raise self._fault(
                        f"reads {_named(other)}, in whose memory {_named(own)} lies, which it writes", instruction
                    )

    def _called(self, step: KernelStep, elsewhere: Sequence[int], first: int, *, backwards: bool) -> list[bytes]:
        """Run a kernel, with results of some numbers in other memory; gives the bytes of all results."""
        table = self._table(step.table)
        _, made, _ = _parts(step)
        spare = {number: np.full(made[number].bytes + ALIGNMENT, _POISON[0], np.uint8) for number in elsewhere}
        memory = [self._bytes(b) for b in made]
        for number, data in spare.items():
            memory[number] = data[-data.ctypes.data % ALIGNMENT :]
            table[first + number] = memory[number].ctypes.data
        for phase in step.phases:
            share = max(1, -(-phase.tasks // 16)) if backwards else phase.tasks
            for begin in reversed(range(0, phase.tasks, max(1, share))):
                self._functions[phase.function](ctypes.addressof(table), begin, min(phase.tasks, begin + share))
        return [data[: b.bytes].tobytes() for data, b in zip(memory, made, strict=True)]

    def _check_outside(
        self, before: Array, written: Sequence[tuple[int, int]], instruction: Instruction | None
    ) -> None:
        """Nothing but some ranges of memory may have changed."""
        changed = self._memory != before
        for low, high in written:
            changed[low:high] = False
        if not changed.any():
            return
        place = int(np.argmax(changed))
        near = min(written, key=lambda r: min(abs(place - r[1]), abs(r[0] - place)), default=(0, 0))
        side = f"{place - near[1]} bytes behind" if place >= near[1] else f"{near[0] - place} bytes before"
        victims = [_named(b) for b in self._places if self._range(b)[0] <= place < self._range(b)[1]]
        of = f", where {' or '.join(victims)} may lie" if victims else ""
        raise self._fault(f"writes outside of its results, {side} one{of}", instruction)

    def _copy(self, step: CopyStep) -> None:
        if step.is_value:
            self._check(step.source, step.source, "copies", None)
        self._bytes(step.target)[:] = self._bytes(step.source)[: step.target.bytes].copy()
        self._writers.append((*self._range(step.target), f"step {self._count}, a copy,"))
        if step.is_value:
            self._note(step.target, f"step {self._count}, a copy,")

    def _host_step(self, step: HostStep) -> None:
        for buffer in step.operands:
            self._check(buffer, buffer, "reads", step.instruction)
        table = self._table((*step.operands, *step.results))
        before = self._memory.copy()
        self._host.step(step.instruction, ctypes.addressof(table))
        self._check_outside(before, [self._range(b) for b in step.results], step.instruction)
        for buffer in step.results:
            self._note(buffer, f"step {self._count} ({step.instruction.opcode} '{step.instruction.name}')")

    def _random(self, step: RandomStep) -> None:
        name = "xlakit_random_draw" if step.delta is None else "xlakit_random_state"
        call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(runtime_symbols()[name])
        call(self._context.address, self._address + self._range(step.state)[0], step.delta or 0)
        self._note(step.state, f"step {self._count} ('{step.instruction.name}')")

    # -- control ---------------------------------------------------------------------------------

    def _while(self, step: WhileStep) -> None:
        self._become(step.carried, step.initial, "begins with", step.instruction)
        while True:
            self.steps(step.condition)
            self._check(step.predicate, step.predicate, "asks", step.instruction)
            if not self._bytes(step.predicate)[0]:
                return
            self._device.run.check()
            self.steps(step.body)
            self._become(step.carried, step.given, "should go on with", step.instruction)

    def _conditional(self, step: ConditionalStep) -> None:
        self._check(step.index, step.index, "asks", step.instruction)
        index = self._bytes(step.index)
        if step.is_predicate:
            chosen = 0 if index[0] else 1
        else:
            chosen = int(index.view(np.int32)[0])
            chosen = chosen if 0 <= chosen < len(step.branches) else len(step.branches) - 1
        self.steps(step.branches[chosen])
        self._become(step.results, step.given[chosen], "should give", step.instruction)

    def _become(self, own: Sequence[Buffer], given: Sequence[Buffer], what: str, instruction: Instruction) -> None:
        """Values take the place of others all at once; their memory must hold those."""
        for target, source in zip(own, given, strict=True):
            self._check(target, source, what, instruction)
        known = [self._known[source] for source in given]
        self._known.update(zip(own, known, strict=True))


def _parts(step: KernelStep) -> tuple[Sequence[Buffer], Sequence[Buffer], Sequence[Buffer]]:
    """The values that a kernel reads, those that it makes, and its scratch."""
    count = sum(shape.is_array for o in step.instruction.operands for _, shape in o.shape.leaves())
    end = count + sum(shape.is_array for _, shape in step.instruction.shape.leaves())
    return step.table[:count], step.table[count:end], step.table[end:]


def _phases(step: Step) -> Sequence[Any]:
    return step.phases if isinstance(step, KernelStep) else ()


def _every(steps: Sequence[Step]) -> list[Step]:
    """All steps, those in loops and branches too."""
    found = list(steps)
    for step in found:
        if isinstance(step, WhileStep):
            found += [*step.condition, *step.body]
        elif isinstance(step, ConditionalStep):
            found += [inner for branch in step.branches for inner in branch]
    return found


def _checksum(data: Array) -> bytes:
    return hashlib.blake2b(data.tobytes(), digest_size=16).digest()


def _named(buffer: Buffer) -> str:
    if buffer.name:
        return f"'{buffer.name}'"
    return f"{buffer.place} {buffer.number}"
