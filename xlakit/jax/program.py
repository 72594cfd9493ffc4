"""Loaded programs: how they run, and what JAX asks about them."""

from __future__ import annotations

import ctypes
import hashlib
import math
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from xlakit.errors import UnsupportedError
from xlakit.ir.operation import Array
from xlakit.jax.api.numbers import TYPE_NUMBERS
from xlakit.jax.devices import MEMORY_KIND
from xlakit.jax.named_values import NamedFloats
from xlakit.jax.native.records import EXECUTABLE, RESULT
from xlakit.jax.records import Words, keep_for_ever, words_of
from xlakit.runtime.transfer import HostBufferSemantics

if TYPE_CHECKING:
    from xlakit.data.shape import Shape
    from xlakit.jax.devices import Devices
    from xlakit.runtime.device import Device
    from xlakit.runtime.executable import LoadedExecutable

_RAISED = 1
_errors = threading.local()


class Program:
    """A loaded program, with the record that native code runs it by."""

    def __init__(self, devices: Devices, loaded: LoadedExecutable, description: bytes, options: bytes) -> None:
        self.loaded = loaded
        self.description = description
        self.options = options
        self.fingerprint = hashlib.sha256(description).hexdigest()
        module = loaded.module
        self._parameters = [p.shape for p in module.entry.parameters]
        self._results = [leaf for _, leaf in module.entry.root.shape.leaves()]
        self._count = loaded.num_devices
        entry = loaded.native_entry if self._count == 1 else None
        run, context = (_python_run_address, id(self)) if entry is None else entry
        # Python's way goes through arrays, which are not given away.
        donors = dict(loaded.in_place) if entry is not None else {}
        donated = {entry.parameter_number for entry in (*module.input_output_alias, *module.buffer_donor)}
        self.record = Words(
            EXECUTABLE,
            references=1,
            run=run,
            context=context,
            num_args=len(self._parameters),
            donated=[int(number in donated) for number in range(len(self._parameters))],
            devices=[devices.places[device.id].device.address for device in loaded.local_devices()],
            num_devices=self._count,
            name=module.name,
            num_replicas=loaded.num_replicas,
            num_partitions=loaded.num_partitions,
            num_outputs=len(self._results),
            fingerprint=self.fingerprint,
        )
        self.properties: NamedFloats | None = None
        self._describe_results(donors)

    def text(self) -> str | None:
        """The program after the compiler's passes; None where there are none."""
        as_text = getattr(self.loaded.compiled, "as_text", None)
        return None if as_text is None else as_text()

    def cost_properties(self) -> NamedFloats:
        """What a call costs, as the interface's named values."""
        if self.properties is None:
            self.properties = NamedFloats(self._analysed("cost_analysis"))
        return self.properties

    def _analysed(self, what: str) -> Any:
        analyse = getattr(self.loaded.compiled, what, None)
        if analyse is None:
            raise UnsupportedError(f"{what} of a program that the interpreter runs")
        return analyse()

    def memory_stats(self) -> dict[str, int]:
        """The bytes that a call needs, by the interface's names."""
        found = self._analysed("memory_analysis")
        return {
            "generated_code": found.generated_code_size_in_bytes,
            "argument": found.argument_size_in_bytes,
            "output": found.output_size_in_bytes,
            "alias": found.alias_size_in_bytes,
            "temp": found.temp_size_in_bytes,
            "peak": found.peak_memory_in_bytes,
            # There is no memory but the host's, and it is counted above.
            **dict.fromkeys(("host_generated_code", "host_argument", "host_output", "host_alias", "host_temp"), 0),
        }

    def _describe_results(self, donors: dict[int, int]) -> None:
        record, shapes = self.record, self._results
        self._dims = [words_of(shape.dimensions) for shape in shapes]
        words: list[int] = []
        for number, shape in enumerate(shapes):
            dims = ctypes.addressof(self._dims[number])
            fields = {
                "type": TYPE_NUMBERS[shape.element_type],
                "num_dims": len(shape.dimensions),
                "size": _bytes_of(shape),
                "dims": dims,
                "donor": donors.get(number, -1),
            }
            words += [fields[name] for name in RESULT.names]
        record.set(results=words)
        kinds = ctypes.create_string_buffer(MEMORY_KIND.encode())
        self._kind = kinds
        record.set(kinds=[ctypes.addressof(kinds)] * len(shapes), kind_sizes=[len(MEMORY_KIND)] * len(shapes))
        types = [TYPE_NUMBERS[shape.element_type] for shape in shapes]
        record.hold("types", (ctypes.c_int32 * max(1, len(types)))(*types))
        record["num_types"] = len(types)
        record.set(dims=[size for shape in shapes for size in shape.dimensions])
        record.set(dim_sizes=[len(shape.dimensions) for shape in shapes])

    def run(self, arguments: int, results: int) -> None:
        """Run it with Python: from the arrays at addresses, in a table of them, to others, device after device."""
        given = _arrays(arguments, self._parameters * self._count)
        made = _arrays(results, self._results * self._count)
        values = self._run_on_one(given) if self._count == 1 else self._run_on_all(given)
        for target, value in zip(made, values, strict=True):
            if target is not None:
                np.copyto(target, np.asarray(value))

    def _run_on_one(self, given: Sequence[Array | None]) -> list[Any]:
        # On this thread, and not in a device's order: a callback may call the next program.
        return _leaves(self.loaded.compiled(*given))

    def _run_on_all(self, given: Sequence[Array | None]) -> list[Any]:
        remaining = iter(given)
        devices = self.loaded.local_devices()
        buffers = [[_put(device, next(remaining)) for _ in self._parameters] for device in devices]
        values = self.loaded.execute_sharded(buffers, donate=())
        # Tokens hold nothing, and a program may have no results: there is only the end to wait for.
        for device in devices:
            device.synchronize_all_activity()
        return [leaf for value in values for leaf in _leaves(value)]

    def __repr__(self) -> str:
        return f"<Program {self.loaded!r}>"


def _put(device: Device, array: Array | None) -> Any:
    return None if array is None else device.put(array, host_buffer_semantics=HostBufferSemantics.ZERO_COPY)


def _bytes_of(shape: Shape) -> int:
    if shape.is_token:
        return 0
    return math.prod(shape.dimensions) * shape.element_type.dtype.itemsize


def _leaves(value: Any) -> list[Any]:
    return [leaf for part in value for leaf in _leaves(part)] if isinstance(value, tuple) else [value]


def _arrays(table: int, shapes: Sequence[Shape]) -> list[Array | None]:
    """The arrays whose addresses stand in a table; None for tokens."""
    addresses = (ctypes.c_int64 * len(shapes)).from_address(table) if shapes else ()
    return [_array_at(address, shape) for address, shape in zip(addresses, shapes, strict=True)]


def _array_at(address: int, shape: Shape) -> Array | None:
    if shape.is_token:
        return None
    size, dtype = _bytes_of(shape), shape.element_type.dtype
    if not size:
        return np.empty(shape.dimensions, dtype)
    memory: Any = (ctypes.c_uint8 * size).from_address(address)
    return np.ndarray(shape.dimensions, dtype, memory)


def _run_with_python(context: int, arguments: int, results: int) -> int:
    try:
        program: Program = ctypes.cast(context, ctypes.py_object).value
        program.run(arguments, results)
    except BaseException as error:  # Native code is in between; see take_error.
        _errors.error = error
        return _RAISED
    return 0


def take_error() -> BaseException | None:
    """What the last program on this thread has raised, once."""
    error: BaseException | None = getattr(_errors, "error", None)
    _errors.error = None
    return error


_python_run = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)(_run_with_python)
keep_for_ever(_python_run)
_python_run_address = ctypes.cast(_python_run, ctypes.c_void_p).value or 0
