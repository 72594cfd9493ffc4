"""Transfers from the host to buffers, and between devices.

A buffer may use the caller's memory only if that does not change. So by default a value is copied before the call
returns, unless the array and all arrays that it is a view of are read-only. A caller that guarantees more passes a
:class:`HostBufferSemantics`.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from xlakit.data.literal import Literal
from xlakit.data.primitive import PrimitiveType
from xlakit.errors import ArgumentError, UnsupportedError
from xlakit.ir.operation import Array
from xlakit.runtime import dlpack
from xlakit.runtime.buffer import Buffer, array_shape
from xlakit.runtime.execution import Execution, Part, Work

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xlakit.data.shape import Shape
    from xlakit.runtime.device import Device

# Copying less than this takes no longer than waking another thread.
_SMALL_BYTES = 1 << 18

_FROM_HOST = "put there by the host"
_ALIAS = "another name of one there"


class HostBufferSemantics(enum.Enum):
    """What a caller promises of the memory of an array that becomes a buffer; the names are XLA's."""

    # No promise beyond the call: the values are copied before it returns, unless the array is read-only.
    IMMUTABLE_ONLY_DURING_CALL = "immutable_only_during_call"
    # The array does not change until the buffer is ready: larger arrays are copied meanwhile.
    IMMUTABLE_UNTIL_TRANSFER_COMPLETES = "immutable_until_transfer_completes"
    # The array does not change while the buffer, or a reader of it, exists: the buffer uses the array's memory if
    # layout and alignment allow it.
    ZERO_COPY = "zero_copy"


def semantics_of(value: HostBufferSemantics | str) -> HostBufferSemantics:
    """The semantics of this name, in upper or lower case."""
    if isinstance(value, HostBufferSemantics):
        return value
    try:
        return HostBufferSemantics(value.lower())
    except (ValueError, AttributeError):
        known = ", ".join(s.value for s in HostBufferSemantics)
        raise ArgumentError(f"host_buffer_semantics is {value!r}", hint=f"known: {known}") from None


def put(value: object, device: Device, semantics: HostBufferSemantics) -> Any:
    """A value of the host as a buffer on a device; a tuple as a tuple of them."""
    device.client.schedule.check_open()
    if device.process_index != device.client.process_index():
        raise ArgumentError(
            f"device {device.id} is in process {device.process_index}, this is process {device.client.process_index()}",
            hint="use client.local_devices(); values go to other processes in collectives and on channels",
        )
    if isinstance(value, Buffer):
        return copy_to_device(value, device)
    if isinstance(value, Literal):
        if value.shape.is_tuple:
            return tuple(put(element, device, semantics) for element in value.elements)
        value = value.array
    if isinstance(value, tuple):
        return tuple(put(element, device, semantics) for element in cast("tuple[object, ...]", value))
    array = _native(np.asarray(value))
    shape = array_shape(array)
    readable = array.flags.c_contiguous and array.flags.aligned
    if readable and (semantics is HostBufferSemantics.ZERO_COPY or _cannot_change(array)):
        return Buffer(device, shape, _FROM_HOST, _read_only(array), is_ours=False)
    if semantics is HostBufferSemantics.IMMUTABLE_ONLY_DURING_CALL or array.nbytes <= _SMALL_BYTES:
        return Buffer(device, shape, _FROM_HOST, _copy(array))
    return _later(device, shape, _FROM_HOST, array, _copies)


def from_dlpack(tensor: object, device: Device, *, copy: bool | None) -> Buffer:
    """A buffer in the memory of another library's tensor, or with a copy of it."""
    device.client.schedule.check_open()
    if isinstance(tensor, Buffer):
        return copy_to_device(tensor, device)
    array = dlpack.imported(tensor)
    shape = array_shape(array)
    readable = array.flags.c_contiguous and array.flags.aligned
    if copy is False and not readable:
        raise ArgumentError(
            f"the memory of this {shape.without_layout()} does not lie as buffers do, major to minor and aligned",
            hint="allow a copy with copy=None",
        )
    if copy or not readable:
        return Buffer(device, shape, _FROM_HOST, _copy(array))
    return Buffer(device, shape, _FROM_HOST, _read_only(array), is_ours=False)


def copy_to_device(buffer: Buffer, device: Device) -> Buffer:
    """See :meth:`Buffer.copy_to_device`."""
    buffer.check_usable()
    device.client.schedule.check_open()
    if device.client is not buffer.device.client:
        return put(np.asarray(buffer), device, HostBufferSemantics.IMMUTABLE_ONLY_DURING_CALL)
    with device.client.schedule.changing():
        buffer.check_usable()
        source = buffer if buffer.shape.is_token else buffer.claim()
    if device is buffer.device:
        if isinstance(source, Buffer):
            return _later(device, buffer.shape, _ALIAS, source, list)
        return Buffer(device, buffer.shape, _ALIAS, source, is_ours=buffer.is_ours)
    origin = f"a copy of that on device {buffer.device.id}"
    if not isinstance(source, Buffer) and source.nbytes <= _SMALL_BYTES:
        return Buffer(device, buffer.shape, origin, _copy(source))
    return _later(device, buffer.shape, origin, source, _copies)


def _later(device: Device, shape: Shape, origin: str, source: Array | Buffer, work: Work) -> Buffer:
    """A pending buffer, which ``work`` in the queue of the device computes from ``source``."""
    execution = Execution(f"the making of {shape.without_layout()} on device {device.id}")
    buffer = Buffer(device, shape, origin, None, execution=execution)
    if shape.is_token:
        Part(execution, device.queue, list, [], [buffer], also_after=[cast("Buffer", source)])
    else:
        Part(execution, device.queue, work, [source], [buffer])
    device.client.schedule.submit(execution)
    return buffer


def fresh(dimensions: Sequence[int], dtype: np.dtype[Any]) -> Array:
    """An uninitialized array from the allocator of programs' results."""
    from xlakit.cpu.runtime.call import allocate_array

    try:
        return allocate_array(dimensions, dtype)
    except UnsupportedError:
        # The native allocator is missing; then there is no machine code that needs its alignment.
        return np.empty(tuple(dimensions), dtype)


def _native(array: Array) -> Array:
    """The array in this machine's byte order, if it is of a type that a program can have."""
    kind = PrimitiveType.from_dtype(array.dtype)
    return array if array.dtype == kind.dtype else array.astype(kind.dtype)


def _cannot_change(array: Array) -> bool:
    """Whether the array and all arrays that it is a view of are read-only."""
    owner: Any = array
    while isinstance(owner, np.ndarray):
        if owner.flags.writeable:
            return False
        owner = owner.base
    return owner is None or isinstance(owner, bytes)


def _read_only(array: Array) -> Array:
    view = array.view()
    view.setflags(write=False)
    return view


def _copy(array: Array) -> Array:
    copied = fresh(array.shape, array.dtype)
    np.copyto(copied, array)
    return copied


def _copies(arrays: list[Array]) -> list[Array]:
    return [_copy(array) for array in arrays]
