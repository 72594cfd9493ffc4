"""Loaded programs: their execution with Python, and the data that JAX queries about them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from xlakit.cpu.runtime import runtime_symbols
from xlakit.cpu.runtime.host import register_steps
from xlakit.data.nesting import leaves_of
from xlakit.jax.arguments import NamedValues
from xlakit.jax.devices import MEMORY_KINDS
from xlakit.jax.executable_metadata import ExecutableMetadata
from xlakit.jax.native.records import EXECUTABLE, RESULT, layout_number
from xlakit.jax.records import Words, words_of
from xlakit.jax.spanning import SpanningExecutable
from xlakit.options import compiling, current

if TYPE_CHECKING:
    from xlakit.cpu.execution.native_program import NativeProgram
    from xlakit.data.shape import Shape
    from xlakit.ir.operation import Array
    from xlakit.jax.devices import Devices
    from xlakit.jax.sources import Description
    from xlakit.runtime.device import Device
    from xlakit.runtime.executable import LoadedExecutable

# The native function that calls Python.
_BY_PYTHON: Final = "xlakit_call_host_function"


class Program:
    """A loaded program, with its record for native code."""

    def __init__(
        self,
        devices: Devices,
        metadata: ExecutableMetadata,
        description: Description,
        options: bytes,
        load: Callable[[], LoadedExecutable | SpanningExecutable],
        native: NativeProgram | None = None,
        compile: Callable[[], LoadedExecutable] | None = None,
    ) -> None:
        """``load`` gives the executable; with ``native``, which can run it, ``load`` is only called for other uses.

        ``compile`` compiles it anew, with the options in force; None for programs over several processes.
        """
        self._load, self._compile = load, compile
        # The program with the times of its steps, once a trace was recorded.
        self.timed: LoadedExecutable | None = None
        self._compiled_with = current()
        self.description = description
        self.options = options
        self.fingerprint = metadata.fingerprint
        # The DeviceAssignmentProto of the devices that it runs on.
        self.assignment = b""
        self._in_place = metadata.in_place
        self.name, self._count = metadata.name, len(metadata.devices)
        # Kept alive as long as native code may run it.
        self._native = native
        run, context = self._entry()
        self._context = context
        self.record = Words(
            EXECUTABLE,
            references=1,
            run=run,
            context=context,
            num_args=len(metadata.orders),
            donated=[int(number in metadata.donated) for number in range(len(metadata.orders))],
            layouts=list(map(layout_number, metadata.orders)),
            devices=[devices.local[number].device.address for number in metadata.devices],
            num_devices=self._count,
            name=metadata.name,
            num_replicas=metadata.num_replicas,
            num_partitions=metadata.num_partitions,
            num_outputs=len(metadata.results),
            fingerprint=self.fingerprint,
            is_pure=int(self._is_pure(run)),
        )
        self.properties: NamedValues | None = None
        self._describe_results(metadata)

    @cached_property
    def loaded(self) -> LoadedExecutable | SpanningExecutable:
        """The executable, with its module and analyses; loaded on first use."""
        return self._load()

    def _entry(self) -> tuple[int, int]:
        """The addresses of the function that runs it, and of the function's first argument."""
        if self._native is not None:
            return self._native.entry
        # If none of its devices is in this process, Python handles calls.
        entry = self.loaded.native_entry if self._count else None
        return entry or (runtime_symbols()[_BY_PYTHON], register_steps(self, Program.run))

    def _is_pure(self, run: int) -> bool:
        """Whether a call may run later, on another thread."""
        if self._native is not None:
            return self._native.is_pure
        return run != runtime_symbols()[_BY_PYTHON] and getattr(self.loaded.compiled, "is_pure", False)

    def take_times(self) -> bool:
        """From now on calls run the variant of the program that takes the times of its steps; False if there is none.

        Programs with state, which a variant would not share, have none, and those that need Python.
        """
        if self._compile is None or not self.record["is_pure"]:
            return False
        if self.timed is None:
            with compiling(self._compiled_with, profile=True):
                self.timed = self._compile()
        entry = self.timed.native_entry
        # The caller chooses the memory of results for the program itself.
        if entry is None or entry[0] != self.record["run"] or tuple(self.timed.in_place) != self._in_place:
            return False
        # One word, since a thread may read it at any time. Calls that have begun keep the other one.
        self.record["context"] = entry[1]
        return True

    def take_no_times(self) -> None:
        """Calls run the program itself again."""
        self.record["context"] = self._context

    def text(self) -> str:
        """The program as it is run, as HLO text: after the compiler's passes, if it was compiled."""
        return self.loaded.compiled.as_text()

    def cost_properties(self) -> NamedValues:
        """The cost of a call, as the interface's named values."""
        if self.properties is None:
            self.properties = NamedValues(self.loaded.compiled.cost_analysis())
        return self.properties

    def memory_stats(self) -> dict[str, int]:
        """The bytes that a call needs, under the interface's names."""
        found = self.loaded.compiled.memory_analysis()
        return {
            "generated_code": found.generated_code_size_in_bytes,
            "argument": found.argument_size_in_bytes,
            "output": found.output_size_in_bytes,
            "alias": found.alias_size_in_bytes,
            "temp": found.temp_size_in_bytes,
            "peak": found.peak_memory_in_bytes,
            # Device memory is host memory here, and is counted above.
            **dict.fromkeys(("host_generated_code", "host_argument", "host_output", "host_alias", "host_temp"), 0),
        }

    def _describe_results(self, metadata: ExecutableMetadata) -> None:
        """Fill in the data of the results for native code: a RESULT for each, and the arrays that JAX queries."""
        record, results = self.record, metadata.results
        donors = dict(metadata.in_place)
        self._dims = [words_of(result.dimensions) for result in results]
        self._orders = [words_of(result.order) if result.order else None for result in results]
        words: list[int] = []
        for number, result in enumerate(results):
            order = self._orders[number]
            fields = {
                "type": result.type,
                "num_dims": len(result.dimensions),
                "size": result.bytes,
                "dims": ctypes.addressof(self._dims[number]),
                "donor": donors.get(number, -1),
                "memory": MEMORY_KINDS.index(result.memory),
                "order": 0 if order is None else ctypes.addressof(order),
            }
            words += [fields[name] for name in RESULT.names]
        record.set(results=words)
        names = {kind: ctypes.create_string_buffer(kind.encode()) for kind in MEMORY_KINDS}
        # Kept alive, as native code reads them as long as the record.
        self._kind_names = names
        record.set(kinds=[ctypes.addressof(names[result.memory]) for result in results])
        record.set(kind_sizes=[len(result.memory) for result in results])
        types = [result.type for result in results]
        record.hold("types", (ctypes.c_int32 * max(1, len(types)))(*types))
        record["num_types"] = len(types)
        record.set(dims=[size for result in results for size in result.dimensions])
        record.set(dim_sizes=[len(result.dimensions) for result in results])

    @cached_property
    def _parameters(self) -> list[Shape]:
        return [p.shape for p in self.loaded.module.entry.parameters]

    @cached_property
    def _results(self) -> list[Shape]:
        return [leaf for _, leaf in self.loaded.module.entry.root.shape.leaves()]

    def run(self, arguments: int, results: int) -> None:
        """Run it with Python: ``arguments`` and ``results`` are tables of arrays' addresses, device after device."""
        loaded = self.loaded
        if self._count and isinstance(loaded, SpanningExecutable) and loaded.run_at is not None:
            loaded.run_at(arguments, results)
            return
        argument_arrays = _arrays(arguments, self._parameters * self._count)
        result_arrays = _arrays(results, self._results * self._count)
        if isinstance(loaded, SpanningExecutable):
            values = self._run_with_others(loaded, argument_arrays)
        elif self._count == 1:
            # On this thread, and not in a device's order: a callback may call the next program.
            values = leaves_of(self.loaded.compiled(*argument_arrays))
        else:
            values = self._run_on_all(loaded, argument_arrays)
        for target, value in zip(result_arrays, values, strict=True):
            if target is not None:
                np.copyto(target, np.asarray(value))

    def _run_with_others(self, loaded: SpanningExecutable, argument_arrays: Sequence[Array | None]) -> list[Any]:
        if not self._count:
            # JAX also compiles and calls programs without a device in this process, for the shapes of results.
            return []
        size = len(self._parameters)
        arguments = [argument_arrays[n * size : (n + 1) * size] for n in range(self._count)]
        return [leaf for value in loaded.execute(arguments) for leaf in leaves_of(value)]

    def _run_on_all(self, loaded: LoadedExecutable, argument_arrays: Sequence[Array | None]) -> list[Any]:
        remaining = iter(argument_arrays)
        devices = loaded.local_devices()
        buffers = [[_put(device, next(remaining)) for _ in self._parameters] for device in devices]
        values = loaded.execute_sharded(buffers, donate=())
        # Waits for the end, as a program may have no results other than tokens.
        for device in devices:
            device.synchronize_all_activity()
        return [leaf for value in values for leaf in leaves_of(value)]

    def __repr__(self) -> str:
        return f"<Program {self.name!r}>"


def _put(device: Device, array: Array | None) -> Any:
    from xlakit.runtime.transfer import HostBufferSemantics

    return None if array is None else device.put(array, host_buffer_semantics=HostBufferSemantics.ZERO_COPY)


def _arrays(table: int, shapes: Sequence[Shape]) -> list[Array | None]:
    """The arrays whose addresses are in a table; None for tokens."""
    addresses = (ctypes.c_int64 * len(shapes)).from_address(table) if shapes else ()
    return [_array_at(address, shape) for address, shape in zip(addresses, shapes, strict=True)]


def _array_at(address: int, shape: Shape) -> Array | None:
    if shape.is_token:
        return None
    size, dtype = shape.byte_size, shape.element_type.dtype
    if not size:
        return np.empty(shape.dimensions, dtype)
    memory: Any = (ctypes.c_uint8 * size).from_address(address)
    return np.ndarray(shape.dimensions, dtype, memory)
