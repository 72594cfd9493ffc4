"""InterpreterExecutable: a program that can be called, on one device or on many."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Self

from xlakit.arguments import converting
from xlakit.data.nesting import leaves_of
from xlakit.data.shape import Shape
from xlakit.errors import (
    ArgumentError,
    DeadlockError,
    LiteralError,
    ResourceError,
    ShapeError,
    UnsupportedError,
)
from xlakit.execution.analysis import Fallback, MemoryAnalysis
from xlakit.execution.calls.custom_calls import CustomCalls
from xlakit.execution.context import PAUSE_SECONDS, ExecutionContext
from xlakit.execution.device import Device, start_run
from xlakit.execution.executable import Executable
from xlakit.execution.options import DEFAULT, ExecutionOptions
from xlakit.execution.program import Program, Stopped
from xlakit.execution.random_state import RandomState
from xlakit.execution.recipe import Recompiled
from xlakit.execution.run import Run
from xlakit.execution.run_group import RunGroup, running_in
from xlakit.execution.values import at_declared_sizes, to_device, to_host
from xlakit.interpreter.mark_dynamic import mark_dynamic
from xlakit.ir.instruction import HloModule, located
from xlakit.ir.operation import TOKEN, Array, Value
from xlakit.ops.custom_call import CustomCall
from xlakit.ops.data import ElidedConstant, elided_error
from xlakit.ops.dot import check_packed
from xlakit.settings import memory_limit

if TYPE_CHECKING:
    from xlakit.interpreter.evaluate import Observer

# Runs the program on one device: takes the device and its arguments, gives the host's result.
Runner = Callable[[Device, Sequence[Value]], Any]

# Each device has a thread of its own.
_MAX_DEVICES = 4096


def compile_module(
    module: HloModule,
    execution: ExecutionOptions = DEFAULT,
    *,
    verified: bool = False,
    with_elided: bool = False,
    with_large: bool = False,
) -> InterpreterExecutable:
    """An executable of a module on the interpreter.

    verified: whether the module is known to be well formed. with_elided: whether constants may be elided; a call that
    comes to one raises LiteralError. with_large: whether values may be larger than memory, as the program is not run.

    Raises VerificationError or ShapeError for a malformed program, UnsupportedError for an unknown custom call, and
    ResourceError where a value needs more memory than the environment variable ``XLAKIT_MEMORY_LIMIT`` allows (in
    bytes; by default what the machine has).
    """
    if not verified:
        module.verify()
    grid = execution.grid(module)
    if grid.num_devices > _MAX_DEVICES:
        raise ResourceError(
            f"{grid.num_replicas} replicas of {grid.num_partitions} partitions are {grid.num_devices:,} devices, "
            f"a process has threads for {_MAX_DEVICES:,}",
            hint="give fewer replicas or partitions",
        )
    calls = CustomCalls(execution.custom_calls)
    _check_instructions(module, calls, with_elided=with_elided, with_large=with_large)
    made = InterpreterExecutable(module, Program(module, grid, calls), execution.seed, execution.execution_context)
    return made.made_by(compile_module, module, execution)


def _check_instructions(module: HloModule, calls: CustomCalls, *, with_elided: bool, with_large: bool) -> None:
    limit = memory_limit()
    for instruction in module.instructions:
        try:
            needed = _bytes_of(instruction.shape)
            if needed > limit and not with_large:
                raise too_large(needed, limit)
            if isinstance(instruction.op, CustomCall):
                calls.check(instruction)
            if isinstance(instruction.op, ElidedConstant) and not with_elided:
                raise elided_error()
            check_packed(instruction.op, [o.shape for o in instruction.operands])
        except (LiteralError, ResourceError, ShapeError, UnsupportedError) as error:
            raise located(error, module, instruction) from None


def too_large(needed: int, limit: int, what: str = "") -> ResourceError:
    """The error for a value, or ``what``, of so many bytes, which are more than the limit."""
    return ResourceError(
        f"{what}needs {needed:,} bytes, the limit is {limit:,}",
        hint="the environment variable XLAKIT_MEMORY_LIMIT sets the limit, in bytes",
    )


def _bytes_of(shape: Shape) -> int:
    if shape.is_array:
        # Sizes that are not known now count as one.
        sizes = [max(size, 1) if size < 0 else size for size in shape.dimensions]
        return shape.element_type.byte_width * math.prod(sizes)
    return sum(_bytes_of(s) for s in shape.tuple_shapes)


class InterpreterExecutable(Recompiled):
    """A program ready to run. Call it with one value for each parameter."""

    def __init__(
        self, module: HloModule, program: Program, seed: int, execution_context: ExecutionContext | None
    ) -> None:
        own_context = execution_context if execution_context is not None else ExecutionContext()
        random = [RandomState(seed, device) for device in range(program.grid.num_devices)]
        super().__init__(module, program.grid, own_context, execution_context, random)
        self._program = program
        self._parameters = module.entry.parameters
        self._entry = mark_dynamic(module)
        self._fallbacks: tuple[Fallback, ...] = ()

    def __call__(self, *arguments: object, donate: Sequence[int] = ()) -> Any:
        """Run the program with one argument for each parameter; see :class:`Executable`. It overwrites none."""
        check_donated(donate, len(self._parameters))
        return self.call_with(self._interpret, arguments)

    # -- its code and costs ----------------------------------------------------------------------

    def as_text(
        self, *, short: bool = False, metadata: bool = True, layouts: bool = True, large_constants: bool = True
    ) -> str:
        """The program as it is run: the module as HLO text; see :meth:`HloModule.to_text`."""
        return self.module.to_text(short=short, metadata=metadata, layouts=layouts, large_constants=large_constants)

    def llvm_ir(self, *, optimized: bool = True) -> str:
        """Raises UnsupportedError: there is no machine code."""
        raise _without_code("LLVM IR")

    def assembly(self) -> str:
        """Raises UnsupportedError: there is no machine code."""
        raise _without_code("assembly")

    def cost_analysis(self) -> dict[str, float]:
        """The cost of one call; see :meth:`xlakit.Executable.cost_analysis`."""
        from xlakit.passes.analysis.cost import cost_of

        return cost_of(self.module).as_dict()

    def memory_analysis(self) -> MemoryAnalysis:
        """The bytes of arguments, results and intermediate values, and what holds them at the peak."""
        from xlakit.interpreter.memory import analyze_memory

        return analyze_memory(self.module, self._program)

    @property
    def fallbacks(self) -> tuple[Fallback, ...]:
        """The whole program, with the reason, if machine code was requested; otherwise nothing."""
        return self._fallbacks

    def instead_of_machine_code(self, why: str) -> Self:
        """Record that machine code was requested, and why there is none; gives the executable itself."""
        self._fallbacks = (Fallback(self.module.name, "module", "interpreter", why),)
        return self

    # -- running ---------------------------------------------------------------------------------

    def call_with(self, runner: Runner, arguments: Sequence[object]) -> Any:
        """As :meth:`__call__`, each device's program being run by ``runner``."""
        if self.num_devices == 1:
            return self._execute(runner, [self._to_device(arguments, "")])[0]
        return self.execute_with(runner, [arguments] * len(self.local_devices()))

    def run_alone(self, work: Callable[[Device], object]) -> None:
        """Do some work as the one device of a new run."""
        self._execute(lambda device, _: work(device), [()])

    def call_observed(self, observers: Callable[[int], Observer], arguments: Sequence[Sequence[object]]) -> list[Any]:
        """As :meth:`execute_replicated`, the values of each device being seen by the observer of its number."""

        def watched(device: Device, values: Sequence[Value]) -> Any:
            device.observer = observers(device.index)
            return self._interpret(device, values)

        return self.execute_with(watched, arguments)

    def _interpret(self, device: Device, arguments: Sequence[Value]) -> Any:
        # Programs in machine code have this executable for what they ask about the program, and run none of it.
        from xlakit.interpreter.evaluate import run

        return to_host(at_declared_sizes(run(device, self._entry, arguments), self.module.entry.root.shape))

    @converting
    def execute_replicated(self, arguments: Sequence[Sequence[object]]) -> list[Any]:
        """Run the program on all devices at once, with arguments for each; see :class:`Executable`."""
        return self.execute_with(self._interpret, arguments)

    def execute_with(self, runner: Runner, arguments: Sequence[Sequence[object]]) -> list[Any]:
        """As :meth:`execute_replicated`, each device's program being run by ``runner``."""
        return self._execute(runner, self.to_devices(arguments))

    def run_one(self, runner: Callable[[Device], object]) -> None:
        """Run the one device of this process, on this thread; raises the failure of the execution."""
        (device,) = self.begin()
        execution, context = device.run, self.execution_context
        context.enter_bound(device)
        try:
            with device.taking_part():
                runner(device)
        except BaseException as error:
            execution.fail(error)
        finally:
            context.leave_bound(device)
        if execution.failure is not None:
            raise execution.failure
        execution.check_received()

    def to_devices(self, arguments: Sequence[Sequence[object]]) -> list[list[Value]]:
        """The arguments of each device as the program takes them; raises ArgumentError."""
        here = self.local_devices()
        if len(arguments) != len(here):
            where = " in this process" if len(here) < self.num_devices else ""
            raise ArgumentError(
                f"{len(here)} devices run the program{where}, got arguments for {len(arguments)}",
                hint="give a list with a sequence of arguments for each device",
            )
        return [self._to_device(given, f" of device {i}") for i, given in zip(here, arguments, strict=True)]

    def _to_device(self, arguments: Sequence[object], owner: str) -> list[Value]:
        count = len(self._parameters)
        if len(arguments) != count:
            program = self.module.entry.program_shape.to_string(with_layout=False)
            raise ArgumentError(
                f"{self.module.name} takes {count} argument{'s' * (count != 1)}, got {len(arguments)}{owner}",
                hint=f"the program is {program}",
            )
        return [
            to_device(argument, parameter.shape, f"parameter {number} '{parameter.name}'{owner}")
            for number, (parameter, argument) in enumerate(zip(self._parameters, arguments, strict=True))
        ]

    def begin(
        self, execution_context: ExecutionContext | None = None, feed_indices: Sequence[int] | None = None
    ) -> list[Device]:
        """The devices of a new run, for a caller that runs them and accounts for them in a shared execution context.

        feed_indices: for each local device the index of its feeds there; by default that of the device.
        """
        context = execution_context or self.execution_context
        run = start_run(
            self._program, context, shares_context=self.shared_context is not None or execution_context is not None
        )
        here = self.local_devices(context)
        indices = here if feed_indices is None else feed_indices
        if context.network is not None:
            run.session = context.network.session(run, context)
        pairs = zip(here, indices, strict=True)
        return [Device(run, context, index, self.random[index], feed_index=feeds) for index, feeds in pairs]

    def local_devices(self, execution_context: ExecutionContext | None = None) -> Sequence[int]:
        """The devices that run in this process: all of them, unless the execution context reaches beyond it."""
        network = (execution_context or self.execution_context).network
        return range(self.num_devices) if network is None else network.local_devices(self.num_devices)

    def run_arrays(self, device: Device, arrays: Sequence[Array], donated: Set[int] = frozenset()) -> list[Array]:
        """Run the program on one device of a run: the arrays of all arguments in, those of the result out.

        donated: numbers of arrays that may be overwritten; the interpreter overwrites none.
        """
        following = iter(arrays)
        values = [_nested(p.shape, following, f"parameter {n} '{p.name}'") for n, p in enumerate(self._parameters)]
        return [leaf for leaf in leaves_of(self._interpret(device, values)) if leaf is not None]

    def _execute(self, runner: Runner, arguments: Sequence[Sequence[Value]]) -> list[Any]:
        """Run all devices, the first one on this thread, and wait for them; raises the failure of the execution."""
        devices = self.begin()
        execution = devices[0].run
        results: list[Any] = [None] * len(devices)

        def work(number: int) -> None:
            device = devices[number]
            try:
                with self.execution_context.bound(), device.taking_part():
                    results[number] = runner(device, arguments[number])
            except BaseException as error:
                if len(devices) > 1 and not isinstance(error, Stopped):
                    error.add_note(f"raised on device {device.index} ({device})")
                execution.fail(error)
            finally:
                self.execution_context.leave([device])

        self.execution_context.enter(devices)
        threads = [
            threading.Thread(target=work, args=(number,), name=f"xlakit-device-{number}", daemon=True)
            for number in range(1, len(devices))
        ]
        try:
            with self.execution_context.bound():
                _start(threads, execution)
                work(0)
                wait_for(threads)
        except BaseException as error:
            # Ctrl-C outside of the program of the first device: stop the others, and do not wait for their current
            # computation.
            execution.fail(error)
            raise
        finally:
            self.execution_context.leave(devices)
        if execution.failure is not None:
            raise execution.failure
        execution.check_received()
        return results

    def __repr__(self) -> str:
        devices = f" on {self.num_devices} devices" if self.num_devices > 1 else ""
        return f"<InterpreterExecutable {self.module.entry.program_shape.to_string(with_layout=False)}{devices}>"


def _without_code(what: str) -> UnsupportedError:
    return UnsupportedError(
        f"there is no {what} of a program that the interpreter runs", hint="compile it with backend='cpu'"
    )


def _nested(shape: Shape, arrays: Iterator[Array], what: str) -> Value:
    """A value of this shape, whose arrays are taken from ``arrays`` in order."""
    if shape.is_tuple:
        return tuple(_nested(s, arrays, f"element {i} of {what}") for i, s in enumerate(shape.tuple_shapes))
    return TOKEN if shape.is_token else to_device(next(arrays), shape, what)


def check_donated(donate: Sequence[int], count: int) -> None:
    """Raise ArgumentError unless these are numbers of ``count`` parameters."""
    if not isinstance(donate, (Sequence, Set)):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ArgumentError(f"donate={donate!r} is not a sequence of numbers", hint="write donate=(0,)")
    for number in donate:
        if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < count:  # pyright: ignore
            raise ArgumentError(
                f"donate={donate!r}: {number!r} is not the number of one of the {count} parameters",
                hint="parameters count from 0",
            )


def _start(threads: Sequence[threading.Thread], execution: Run) -> None:
    try:
        for thread in threads:
            thread.start()
    except RuntimeError as error:
        # The devices that already run would wait forever for the one that did not start.
        execution.fail(
            ResourceError(
                f"the system has no thread for one of {len(threads) + 1} devices: {error}",
                hint="run fewer replicas or partitions, or allow more threads",
            )
        )


def wait_for(threads: Sequence[threading.Thread]) -> None:
    """Wait for the end of threads that were started, and let signals through."""
    for thread in threads:
        while thread.is_alive():
            # Waits have a timeout, as a signal that another thread receives does not interrupt one without.
            thread.join(PAUSE_SECONDS)


@converting
def run_together(*calls: tuple[Executable, Sequence[object]]) -> list[Any]:
    """Run several executables at once, each on its own thread, so that they can communicate over shared channels.

    calls: pairs of an executable and its arguments.

    Gives the list of their results. The first error, and Ctrl-C, stops all of them and is raised; a deadlock is raised
    only if there is no other error.
    """
    results: list[Any] = [None] * len(calls)
    errors: list[BaseException] = []
    group = RunGroup()

    def work(number: int) -> None:
        executable, arguments = calls[number]
        try:
            with running_in(group):
                results[number] = executable(*arguments)
        except BaseException as error:
            errors.append(error)
            group.fail(Stopped("another program failed"))

    threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(len(calls))]
    try:
        for thread in threads:
            thread.start()
        with ExitStack() as stack:
            # Deadlock detection begins when all threads have started: before, one of them may still end any wait.
            for execution_context in {executable.execution_context for executable, _ in calls}:
                stack.enter_context(execution_context.bound())
            wait_for(threads)
    except BaseException as error:
        group.fail(error)
        raise
    if errors:
        # An error in one program may make the others deadlock, which they may report before it.
        raise next((error for error in errors if not isinstance(error, (DeadlockError, Stopped))), errors[0])
    return results
