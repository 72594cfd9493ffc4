"""Arguments: checks the buffers that a program is called with, and takes their arrays for its execution."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast

from xlakit.data.literal import Literal
from xlakit.data.shape import Shape
from xlakit.dataclass import dataclass
from xlakit.errors import ArgumentError, Location
from xlakit.execution.values import describe, to_device
from xlakit.ir.instruction import HloModule
from xlakit.ir.operation import TOKEN, Array
from xlakit.runtime.buffer import Buffer

if TYPE_CHECKING:
    from xlakit.runtime.device import Device


@dataclass(frozen=True, slots=True)
class DeviceInputs:
    """The inputs of one device: ``arrays``, with a Buffer for each array that is still pending; the indices in
    ``arrays`` of those that the program may overwrite; and the tokens.
    """

    arrays: list[Array | Buffer]
    donated: frozenset[int]
    tokens: list[Buffer]


class Arguments:
    """The parameters of a program."""

    def __init__(self, module: HloModule) -> None:
        self._module = module
        self._shapes = [p.shape for p in module.entry.parameters]
        self._names = [f"parameter {n} '{p.name}' of '{module.name}'" for n, p in enumerate(module.entry.parameters)]
        pairs = zip(self._shapes, self._names, strict=True)
        leaves = [(leaf, name) for shape, name in pairs for _, leaf in shape.leaves() if leaf.is_array]
        # The leaves with dynamic dimensions, with their index among all arrays.
        self._dynamic = [(n, leaf, name) for n, (leaf, name) in enumerate(leaves) if leaf.is_dynamic]

    @property
    def count(self) -> int:
        """The number of parameters."""
        return len(self._shapes)

    def check_sizes(self, arrays: Sequence[Array]) -> None:
        """Raise ArgumentError if the current sizes of arrays do not fit the dynamic dimensions of parameters."""
        for number, shape, name in self._dynamic:
            to_device(arrays[number], shape, name)

    def put(self, values: Sequence[object], device: Device) -> list[Any]:
        """Put host values on a device as arguments; they are checked as for a program of :func:`xlakit.compile`."""
        self._check_count(values)
        parameters = zip(values, self._shapes, self._names, strict=True)
        return [_put(value, shape, name, device) for value, shape, name in parameters]

    def flatten(self, arguments: Sequence[object], device: Device) -> list[list[Buffer]]:
        """For each parameter the buffers of its argument. Raises ArgumentError where one does not fit."""
        self._check_count(arguments)
        parameters = zip(arguments, self._shapes, self._names, strict=True)
        return [list(_buffers(argument, shape, name, device)) for argument, shape, name in parameters]

    def _check_count(self, arguments: Sequence[object]) -> None:
        if isinstance(arguments, Buffer) or not hasattr(arguments, "__len__") or len(arguments) != self.count:
            got = str(len(arguments)) if isinstance(arguments, (list, tuple)) else describe(arguments)
            raise ArgumentError(
                f"'{self._module.name}' takes {self.count} argument{'s' * (self.count != 1)}, got {got}",
                hint=f"the program is {self._module.entry.program_shape.to_string(with_layout=False)}",
            )

    def take(
        self, arguments: Sequence[Sequence[Sequence[Buffer]]], donate: Sequence[int], location: Location | None
    ) -> list[DeviceInputs]:
        """The inputs of each device, taken from its buffers; donated buffers are unusable afterwards.

        The caller holds the schedule's lock. Raises DeletedBufferError for a buffer that is deleted or donated, and
        ArgumentError for one that is donated and also given for another parameter.
        """
        for buffers in arguments:
            self._check(buffers, donate)
        inputs = [_device_inputs(buffers, donate) for buffers in arguments]
        for buffers in arguments:
            for number in donate:
                for buffer in buffers[number]:
                    buffer.invalidate(f"donated to {self._names[number]}", location)
        return inputs

    def _check(self, arguments: Sequence[Sequence[Buffer]], donate: Sequence[int]) -> None:
        owners: dict[Buffer, int] = {}
        for number, buffers in enumerate(arguments):
            for buffer in buffers:
                buffer.check_usable()
                before = owners.get(buffer)
                owners[buffer] = number
                if before is None or (before not in donate and number not in donate):
                    continue
                donated, other = (before, number) if before in donate else (number, before)
                raise ArgumentError(
                    f"{buffer.describe()} is donated to {self._names[donated]}, and given to {self._names[other]} too",
                    hint="pass a donated buffer as one argument only, or do not donate it",
                )


def _put(value: object, shape: Shape, name: str, device: Device) -> Any:
    """A host value as buffers on a device; buffers in it are passed through."""
    if isinstance(value, Buffer):
        return value
    if isinstance(value, Literal) and shape.is_tuple:
        value = value.elements
    if shape.is_tuple and isinstance(value, (tuple, list)):
        parts = cast("tuple[object, ...]", value)
        if len(parts) == len(shape.tuple_shapes):
            pairs = enumerate(zip(parts, shape.tuple_shapes, strict=True))
            return tuple(_put(part, inner, f"element {n} of {name}", device) for n, (part, inner) in pairs)
    array = to_device(value, shape, name)
    return None if array is TOKEN else device.put(array)


def _device_inputs(arguments: Sequence[Sequence[Buffer]], donate: Sequence[int]) -> DeviceInputs:
    arrays: list[Array | Buffer] = []
    donated: set[int] = set()
    tokens: list[Buffer] = []
    for number, buffers in enumerate(arguments):
        for buffer in buffers:
            if buffer.shape.is_token:
                tokens.append(buffer)
                continue
            if number in donate and buffer.is_ours:
                donated.add(len(arrays))
            # A failed buffer is passed on, so that the program fails with the same error.
            arrays.append(buffer.claim())
    return DeviceInputs(arrays, frozenset(donated), tokens)


def _buffers(argument: object, shape: Shape, name: str, device: Device) -> Iterator[Buffer]:
    """The buffers of an argument, in order; a token that is None needs none."""
    if shape.is_tuple:
        parts = cast("tuple[object, ...]", argument)
        if not isinstance(argument, (tuple, list)) or len(parts) != len(shape.tuple_shapes):
            raise ArgumentError(f"{name} takes {shape.without_layout()}, got {describe(argument)}", hint="give a tuple")
        for number, (part, inner) in enumerate(zip(parts, shape.tuple_shapes, strict=True)):
            yield from _buffers(part, inner, f"element {number} of {name}", device)
    elif argument is not None or not shape.is_token:
        yield _checked(argument, shape, name, device)


def _checked(argument: object, shape: Shape, name: str, device: Device) -> Buffer:
    if not isinstance(argument, Buffer):
        raise ArgumentError(
            f"{name} takes a buffer, got {describe(argument)}",
            hint="put values on the device with device.put(values), or call execute_replicated, which does that",
        )
    if argument.device is not device:
        if argument.device.client is not device.client:
            raise ArgumentError(
                f"{argument.describe()} is of another client than the program",
                hint="copy it with buffer.copy_to_device(device)",
            )
        raise ArgumentError(
            f"{argument.describe()} is given for {name}, which reads it on device {device.id}",
            hint=f"copy it with buffer.copy_to_device(client.devices()[{device.id}]), "
            f"or compile the program for device {argument.device.id} with device_assignment",
        )
    if not _fits(argument.shape, shape):
        raise ArgumentError(f"{name} takes {shape.without_layout()}, got {argument.shape.without_layout()}")
    if shape.is_dynamic and argument.contents is not None:
        to_device(argument.contents, shape, name)
    return argument


def _fits(actual: Shape, expected: Shape) -> bool:
    if actual.element_type is not expected.element_type or len(actual.dimensions) != len(expected.dimensions):
        return False
    if not actual.is_dynamic and not expected.is_dynamic:
        return actual.dimensions == expected.dimensions
    # The current sizes of dynamic dimensions are checked when the program runs.
    return all(
        unknown or size == bound or (bounded and (size < bound or bound < 0))
        for size, unknown, bound, bounded in zip(
            actual.dimensions, actual.dynamic_dimensions, expected.dimensions, expected.dynamic_dimensions, strict=True
        )
    )
