"""LoadedExecutable: a program, and the devices of a client that it runs on."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np

from xlakit.arguments import converting, explaining, name_type
from xlakit.data.nesting import nested
from xlakit.data.shape import Shape
from xlakit.errors import ArgumentError, ExecutionError, Location
from xlakit.execution.context import ExecutionContext
from xlakit.execution.device import Device as RunningDevice
from xlakit.execution.recipe import Recipe, Recompiled, States
from xlakit.interpreter.executable import check_donated
from xlakit.ir.instruction import HloModule
from xlakit.ir.operation import Array
from xlakit.ops.handle import caller_location
from xlakit.runtime.arguments import Arguments
from xlakit.runtime.buffer import Buffer
from xlakit.runtime.execution import Execution, Part, Work

if TYPE_CHECKING:
    from xlakit.execution.executable import Executable
    from xlakit.runtime.client import Client
    from xlakit.runtime.device import Device

    class Compiled(Executable, Protocol):
        """An executable, as the runtime uses it."""

        def begin(
            self, execution_context: ExecutionContext | None = None, feed_indices: Sequence[int] | None = None
        ) -> list[RunningDevice]:
            """The devices of a new run."""
            ...

        def run_arrays(self, device: RunningDevice, arrays: Sequence[Array], donated: Set[int] = ...) -> list[Array]:
            """Run the program on one device."""
            ...


class LoadedExecutable:
    """A program that devices run. :meth:`Client.compile` makes it.

    A call returns at once; its results are buffers that are computed later. Devices execute calls in order. A very
    cheap program runs before the call returns, if its arguments are ready and its device is idle.
    """

    def __init__(self, client: Client, compiled: Compiled, devices: Sequence[Device]) -> None:
        module = compiled.module
        self._client = client
        self._schedule = client.schedule
        self._compiled = compiled
        self._assignment = [device.id for device in devices]
        # Those in this process.
        self._devices = [device for device in devices if device.process_index == client.process_index()]
        self._arguments = Arguments(module)
        self._result = module.entry.root.shape.with_default_layout()
        self._leaves = [leaf for _, leaf in self._result.leaves()]
        self._origins = [_origin(module, index) for index, _ in self._result.leaves()]
        self._donated_by_alias = sorted({alias.parameter_number for alias in module.input_output_alias})
        self._is_native = hasattr(compiled, "direct_call")

    def __reduce__(self) -> tuple[Any, ...]:
        """The recipe of the program, for the same devices, or those that represent them in another process."""
        compiled = cast("Recompiled", self._compiled)
        return _loaded, (self._client, compiled.recipe, compiled.random_states, tuple(self._assignment))

    # Lazy: programs of JAX are called by native code, which never reads these properties.
    @cached_property
    def _is_light(self) -> bool:
        return len(self._assignment) == 1 and _is_light(self.module)

    @cached_property
    def _direct(self) -> Callable[..., Any] | None:
        direct: Callable[..., Any] | None = getattr(self._compiled, "direct_call", None)
        return direct if self._is_light and not self._donated_by_alias else None

    # -- properties ------------------------------------------------------------------------------

    @property
    def client(self) -> Client:
        """The client whose devices run it."""
        return self._client

    @property
    def name(self) -> str:
        """The name of the program."""
        return self._compiled.module.name

    @property
    def module(self) -> HloModule:
        """The program, as it was given."""
        return self._compiled.module

    @property
    def compiled(self) -> Executable:
        """The executable of the backend, which has text, cost and memory analyses."""
        return self._compiled

    @property
    def num_replicas(self) -> int:
        """How many replicas run it."""
        return self._compiled.num_replicas

    @property
    def num_partitions(self) -> int:
        """How many partitions run it."""
        return self._compiled.num_partitions

    @property
    def num_devices(self) -> int:
        """How many devices run it: replicas times partitions."""
        return len(self._assignment)

    def local_devices(self) -> list[Device]:
        """The devices that run it in this process, in the order ``replica * num_partitions + partition``."""
        return list(self._devices)

    @property
    def device_assignment(self) -> list[list[int]]:
        """For each replica the numbers of the devices of its partitions."""
        ids = self._assignment
        return [ids[r * self.num_partitions : (r + 1) * self.num_partitions] for r in range(self.num_replicas)]

    def hlo_modules(self) -> list[HloModule]:
        """The program in a list, as jaxlib gives it."""
        return [self._compiled.module]

    @property
    def native_entry(self) -> tuple[int, int] | None:
        """The program for native code: the address of a function, and that of the context it takes first.

        ``i64 function(ptr context, ptr arguments, ptr results)`` takes two arrays of pointers, to the memory of each
        array of the arguments and of the result, and gives 0 if all went well. A program on several devices takes the
        arrays of one device after the other. It runs at once, on the calling thread and others of its own, in no
        device's order, and lives as long as the executable. None where the program takes tuples, has dynamic
        dimensions, or needs Python: on one device for more than custom calls.
        """
        return getattr(self._compiled, "native_entry", None)

    @property
    def in_place(self) -> tuple[tuple[int, int], ...]:
        """For native code: which result may lie in the memory of which argument, by their numbers among all arrays."""
        return getattr(self._compiled, "in_place", ())

    # -- running ---------------------------------------------------------------------------------

    def execute(self, arguments: Sequence[object], *, donate: Sequence[int] | None = None) -> Any:
        """Run the program on its one device, after all that the device was asked before. Returns at once.

        arguments: a Buffer on the device for each parameter, of just its type and dimensions; a (nested) tuple of them
            for a tuple, None or a token's buffer for a token. They may be still to come.
        donate: numbers of parameters whose buffers the program takes: it may compute in their memory, and they cannot
            be used any more (:class:`xlakit.DeletedBufferError`). A result that the module's ``input_output_alias``
            pairs with such a parameter lies in its memory, where it can and nothing else holds that memory: another
            name of the buffer, a NumPy array of it, a program that still reads it. By default those parameters are
            donated that ``input_output_alias`` names; ``()`` donates none.

        Gives a Buffer, or a (nested) tuple of them as the program's result is one; a token is a Buffer too, with
        nothing in it. What goes wrong while the program runs is raised where a result is used; a program that is given
        such a result fails with the same error.

        Raises ArgumentError for arguments that do not fit or are on another device, DeletedBufferError for one that is
        gone, ExecutionError where the client is closed.
        """
        if self._direct is not None and donate is None and not self._devices[0].queue.parts:
            arrays = Buffer.ready_arrays(arguments, self._devices[0])
            if arrays is not None and len(arrays) == self._arguments.count and not self._schedule.is_closed:
                return self._run_directly(self._direct, arrays, arguments)
        if self.num_devices != 1:
            raise ArgumentError(
                f"'{self.name}' runs on {self.num_devices} devices",
                hint="call execute_sharded with a list of arguments for each",
            )
        return self._run([arguments], donate)[0]

    @explaining
    def execute_sharded(
        self, arguments: Sequence[Sequence[object]], *, donate: Sequence[int] | None = None
    ) -> list[Any]:
        """Run the program on all of its devices at once. Returns at once.

        arguments: for each device, ``replica * num_partitions + partition``, what :meth:`execute` takes.
        donate: as for :meth:`execute`, on every device.

        Gives for each device what :meth:`execute` gives. All results are there when all devices are done; an error on
        one of them stops the others, and is the error of all results. Raises what :meth:`execute` does.
        """
        if len(arguments) != len(self._devices):
            raise ArgumentError(
                f"'{self.name}' runs on {len(self._devices)} devices"
                f"{' of this process' * (len(self._devices) < self.num_devices)}, got arguments for {len(arguments)}",
                hint="give a list with a sequence of arguments for each device",
            )
        return self._run(arguments, donate)

    @converting
    def execute_replicated(self, arguments: Sequence[Sequence[object]]) -> list[Any]:
        """Run the program on all of its devices with values of the host, and wait for its results.

        arguments: for each device its arguments: arrays and numbers that fit, as for a program of
            :func:`xlakit.compile`, or buffers on the device.

        Gives for each device its result: an array that cannot be written to, a (nested) tuple of them, None for tokens.
        """
        if len(arguments) != len(self._devices):
            # Raises the error about the wrong number of argument lists.
            return self.execute_sharded(arguments)
        by_device = zip(arguments, self._devices, strict=True)
        buffers = [self._arguments.put(values, device) for values, device in by_device]
        return [_values(result) for result in self.execute_sharded(buffers)]

    def _run_directly(self, call: Callable[..., Any], arrays: list[Array], arguments: Sequence[object]) -> Any:
        device = self._devices[0]
        try:
            result = call(*arrays)
        except ArgumentError:
            # The slower path raises a more specific error about the buffers.
            return self._run([arguments], None)[0]
        except (ExecutionError, MemoryError) as error:
            execution = Execution.failed(self.name, error)
            return nested(self._result, iter(self._make_results(device, execution)))
        if len(self._leaves) == 1 and not self._result.is_tuple:
            return Buffer(device, self._result, self._origins[0], result)
        return self._with_buffers(self._result, result, iter(self._origins))

    def _with_buffers(self, shape: Shape, value: Any, origins: Iterator[str]) -> Any:
        """A result of arrays as a result of buffers."""
        if shape.is_tuple:
            parts = zip(shape.tuple_shapes, value, strict=True)
            return tuple([self._with_buffers(s, v, origins) for s, v in parts])
        return Buffer(self._devices[0], shape, next(origins), value)

    def _make_results(self, device: Device, execution: Execution) -> list[Buffer]:
        """Buffers for the results of an execution that is not done."""
        described = zip(self._leaves, self._origins, strict=True)
        return [Buffer(device, leaf, origin, None, execution=execution) for leaf, origin in described]

    def _run(self, arguments: Sequence[Sequence[object]], donate: Sequence[int] | None) -> list[Any]:
        self._schedule.check_open()
        if donate is not None:
            check_donated(donate, self._arguments.count)
        numbers = self._donated_by_alias if donate is None else donate
        flat = [
            self._arguments.flatten(inputs, device) for inputs, device in zip(arguments, self._devices, strict=True)
        ]
        # The location is needed only for errors about donated buffers.
        location: Location | None = caller_location() if numbers else None
        with self._schedule.changing():
            all_inputs = self._arguments.take(flat, numbers, location)
        running = self._compiled.begin(self._client.execution_context, [device.id for device in self._devices])
        execution = Execution(self.name, running[0].run)
        limit = _thread_limit() if self._is_native else 0
        results: list[list[Buffer]] = []
        for device, inputs, target_device in zip(running, all_inputs, self._devices, strict=True):
            results.append(self._make_results(target_device, execution))
            work = self._work(device, inputs.donated, limit)
            Part(
                execution,
                target_device.queue,
                work,
                inputs.arrays,
                results[-1],
                participant=device,
                also_after=inputs.tokens,
            )
        if not (self._is_light and self._schedule.run_now(execution)):
            self._schedule.submit(execution)
        return [nested(self._result, iter(buffers)) for buffers in results]

    def _work(self, device: RunningDevice, donated: Set[int], limit: int) -> Work:
        """The work of one device of a run: the program, with as many threads as the caller may use."""

        def work(arrays: list[Array]) -> list[Array]:
            self._arguments.check_sizes(arrays)
            donated_numbers = {number for number in donated if _make_writable(arrays, number)}
            with device.taking_part(), _threads(limit):
                return self._compiled.run_arrays(device, arrays, donated_numbers)

        return work

    def __repr__(self) -> str:
        program = self.module.entry.program_shape.to_string(with_layout=False)
        return f"<LoadedExecutable '{self.name}' {program} on {', '.join(map(str, self._devices))}>"


name_type(LoadedExecutable, "a loaded executable", "loaded executables", "make one with client.compile(program)")


def _is_light(module: HloModule) -> bool:
    # Imported with the first program, not with the package.
    from xlakit.runtime.weight import is_light

    return is_light(module)


def _loaded(client: Client, recipe: Recipe, states: States, assignment: Sequence[int]) -> Any:
    devices = client.devices()
    compiled = recipe.make(states, client.execution_context)
    return LoadedExecutable(client, compiled, [devices[number] for number in assignment])


def _origin(module: HloModule, index: tuple[int, ...]) -> str:
    which = f"result {{{','.join(map(str, index))}}}" if index else "the result"
    return f"{which} of '{module.name}'"


def _values(result: Any) -> Any:
    """A result of buffers as arrays."""
    if isinstance(result, tuple):
        return tuple(_values(part) for part in cast("tuple[Any, ...]", result))
    if result.shape.is_token:
        result.block_until_ready()
        return None
    return np.asarray(result)


def _threads(limit: int) -> AbstractContextManager[None]:
    """Limits the threads of machine code during the block; a limit of 0: there is no machine code."""
    if not limit:
        return nullcontext()
    from xlakit.cpu.threads import thread_limit

    return thread_limit(limit)


def _make_writable(arrays: list[Array], number: int) -> bool:
    """Let a program write to one of the arrays, if only the list holds it: no buffer, view or other program."""
    # Two references: that of the list, and that of the call of getrefcount.
    if sys.getrefcount(arrays[number]) > 2:
        return False
    arrays[number].setflags(write=True)
    return True


def _thread_limit() -> int:
    from xlakit.cpu.threads import thread_count

    return thread_count()
