"""Buffer: an array on a device.

A buffer is immutable. It may be pending: the program that computes it still runs, or waits in a queue. Reading a
pending buffer waits, and raises the program's error if that failed.

Arrays inside of buffers are major to minor. An array that the host has got a view of is read-only from then on; a
program overwrites a donated buffer only if nothing else refers to its array.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from xlakit.arguments import name_type
from xlakit.data.primitive import PrimitiveType
from xlakit.data.shape import Shape
from xlakit.errors import ArgumentError, DeletedBufferError, Location, UnsupportedError
from xlakit.ir.operation import Array
from xlakit.ops.handle import caller_location
from xlakit.runtime import dlpack
from xlakit.runtime.execution import Execution

if TYPE_CHECKING:
    from xlakit.runtime.device import Device


class Buffer:
    """An array on a device, ready or pending. Programs and devices make buffers; see :class:`xlakit.Client`.

    ``np.asarray(buffer)`` gives its values, without a copy, as an array that cannot be written to.
    """

    # _array: None while the buffer is pending, for tokens, and after deletion or donation.
    # _execution: the producer; None once it is done without an error.
    # _invalidation: the reason why the buffer is unusable (deleted or donated), or None.
    # _is_ours: whether only buffers and their views can refer to the memory.
    # _pending_array: the computed array while the producer is not done yet; or, if the buffer is gone by then, until
    # all programs that claimed it before have redeemed it.
    # _claims: the number of programs that have claimed the pending array and not redeemed it yet.
    __slots__ = (
        "__weakref__", "_array", "_claims", "_device", "_execution", "_invalidation", "_is_ours",
        "_origin", "_pending_array", "_shape",
    )  # fmt: skip

    def __init__(
        self,
        device: Device,
        shape: Shape,
        origin: str,
        array: Array | None,
        *,
        execution: Execution | None = None,
        is_ours: bool = True,
    ) -> None:
        self._device = device
        self._shape = shape
        self._origin = origin
        self._array = array
        self._execution = execution
        self._is_ours = is_ours
        self._invalidation: _Invalidation | None = None
        self._pending_array: Array | None = None
        self._claims = 0

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles the values and the device; another process loads them to its device that represents this one."""
        if self._shape.is_dynamic or not self._shape.is_array:
            raise UnsupportedError(f"a buffer of shape {self._shape} cannot be pickled", hint="pickle its values")
        return _put, (self._device, np.array(self._get()))

    # -- properties ------------------------------------------------------------------------------

    @property
    def shape(self) -> Shape:
        """The shape, with its layout: always major to minor. A bounded dimension is its bound here."""
        return self._shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """The NumPy dtype of the elements."""
        return self._shape.element_type.dtype

    @property
    def device(self) -> Device:
        """The device whose memory has the array."""
        return self._device

    def on_device_size_in_bytes(self) -> int:
        """The bytes that it takes; for bounded dimensions, those that it may take."""
        return self._shape.byte_size

    def unsafe_buffer_pointer(self) -> int:
        """The address of its first element, after waiting for it. Do not write there, or read there after the buffer is
        deleted.
        """
        return self._get().ctypes.data

    # -- readiness -------------------------------------------------------------------------------

    def is_ready(self) -> bool:
        """Whether its execution is done or has failed: then reading its values does not wait."""
        self.check_usable()
        execution = self._execution
        return execution is None or execution.is_done

    def block_until_ready(self) -> Self:
        """Wait until the values are computed; gives the buffer itself. Raises the error of the program that computes
        it.

        Raises DeletedBufferError where it was deleted or donated.
        """
        self.check_usable()
        self._wait()
        return self

    def _wait(self) -> None:
        execution = self._execution
        if execution is not None:
            self._device.client.schedule.wait(execution)
            execution.raise_error()

    def _get(self) -> Array:
        array = self._array
        if array is not None:
            return array
        if self._shape.is_token:
            raise ArgumentError("a token holds no values", hint="block_until_ready() waits for one")
        self.check_usable()
        self._wait()
        array = self._array
        if array is None:
            # It was deleted while this thread waited.
            self.check_usable()
            raise DeletedBufferError(f"{self.describe()} is gone")
        return array

    # -- values for the host ---------------------------------------------------------------------

    def __array__(self, dtype: np.dtype[Any] | None = None, copy: bool | None = None) -> Array:
        """The values: a read-only view of the buffer's memory, or a copy where one is asked for or needed."""
        view = self._read_only_view()
        if dtype is not None and dtype != view.dtype:
            if copy is False:
                raise ValueError(f"a {view.dtype} buffer as {dtype} is a copy")
            return view.astype(dtype)
        return view.copy() if copy else view

    def __dlpack__(
        self,
        *,
        stream: object = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> object:
        """The DLPack capsule of the buffer's memory, for ``from_dlpack`` of NumPy, PyTorch, JAX and others.

        The protocol's older form cannot say that memory is read-only; its consumer must not write to it either.
        """
        if stream is not None:
            raise ArgumentError(f"stream is {stream!r}", hint="memory of processors has no streams; leave it out")
        return dlpack.exported(
            self._read_only_view(), self._array if self._is_ours else None, max_version, dl_device, copy
        )

    def __dlpack_device__(self) -> tuple[int, int]:
        """The processor, in DLPack's numbers."""
        return dlpack.CPU

    # -- copies and the end ----------------------------------------------------------------------

    def copy_to_device(self, device: Device) -> Buffer:
        """The same values on another device of this client, or of another; does not wait within one client.

        On the buffer's own device nothing is copied: the new buffer is another name for the same values.
        Raises DeletedBufferError where it was deleted or donated.
        """
        from xlakit.runtime.device import Device
        from xlakit.runtime.transfer import copy_to_device

        if not isinstance(device, Device):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ArgumentError(f"device must be a Device, got {device!r}", hint="take one of client.devices()")
        return copy_to_device(self, device)

    def delete(self) -> None:
        """Free the memory as soon as no program that was called before reads it; a second call has no effect."""
        if self._invalidation is None:
            with self._device.client.schedule.changing():
                self.invalidate("deleted", caller_location())

    def is_deleted(self) -> bool:
        """Whether it was deleted or donated, and so cannot be used any more."""
        return self._invalidation is not None

    def describe(self) -> str:
        """A description for errors: its shape, its device, and its origin."""
        return f"the buffer {self._shape.without_layout()} on device {self._device.id} ({self._origin})"

    def _read_only_view(self) -> Array:
        """A view of the array that cannot be made writable."""
        array = self._get()
        if self._is_ours and array.flags.writeable:
            array.setflags(write=False)
        return array.view()

    def __repr__(self) -> str:
        state = ""
        if self._invalidation is not None:
            state = f", {self._invalidation.how}"
        elif self._execution is not None:
            state = ", failed" if self._execution.is_done else ", not there yet"
        return f"<Buffer {self._shape} on {self._device}{state}>"

    # -- for the schedule and for programs ---------------------------------------------------------

    @staticmethod
    def ready_arrays(buffers: Sequence[object], device: Device) -> list[Array] | None:
        """The arrays of buffers, if all are ready and on ``device``; else None."""
        if not isinstance(buffers, (list, tuple)):
            return None
        arrays: list[Array] = []
        for buffer in buffers:
            if type(buffer) is not Buffer or buffer._device is not device or buffer._array is None:
                return None
            arrays.append(buffer._array)
        return arrays

    @property
    def producer(self) -> Execution | None:
        """The execution that computes the array, if it is not done or has failed; else None."""
        return self._execution

    @property
    def contents(self) -> Array | None:
        """The array, once the producer has computed it; None before, and for a token."""
        return self._array if self._array is not None else self._pending_array

    def claim(self) -> Array | Buffer:
        """The array, for a program that is called now; if it is pending, the buffer itself, for :meth:`redeem` later.

        The caller holds the schedule's lock. A claim keeps the array alive even if the buffer is deleted meanwhile.
        """
        array = self.contents if self._execution is None else None
        if array is not None:
            return array
        self._claims += 1
        return self

    def redeem(self) -> Array | None:
        """The claimed array, once it is computed; ends the claim. The caller holds the schedule's lock."""
        array = self.contents
        self._claims -= 1
        if self._invalidation is not None and not self._claims:
            self._pending_array = None
        return array

    @property
    def is_ours(self) -> bool:
        """Whether only buffers and views of them can refer to the memory."""
        return self._is_ours

    def check_usable(self) -> None:
        """Raise DeletedBufferError if the buffer was deleted or donated."""
        if self._invalidation is not None:
            raise self._invalidation.error(self)

    def store_result(self, array: Array | None) -> None:
        """Store the array before the producer is done; until `resolve` only the schedule's waiting parts read it."""
        self._pending_array = array

    def resolve(self) -> None:
        """Make the stored array the buffer's value: the producer is done. No effect if the producer failed."""
        execution = self._execution
        if execution is None or execution.error is not None:
            return
        if self._invalidation is None:
            self._array = self._pending_array
        if self._invalidation is None or not self._claims:
            self._pending_array = None
        self._execution = None

    def invalidate(self, how: str, location: Location | None) -> None:
        """Make the buffer unusable; programs that have claimed the array keep it. The schedule's lock is held."""
        self._invalidation = _Invalidation(how, location)
        self._array = None


name_type(Buffer, "a buffer", "buffers", "put values on a device with device.put(values)")


class _Invalidation:
    """Why a buffer is unusable."""

    __slots__ = ("how", "location")

    def __init__(self, how: str, location: Location | None) -> None:
        self.how = how
        self.location = location

    def error(self, buffer: Buffer) -> DeletedBufferError:
        donated = self.how.startswith("donated")
        return DeletedBufferError(
            f"{buffer.describe()} was {self.how}",
            location=self.location,
            hint="go on with the program's results; with donate=() it takes nothing" if donated else "",
        )


def array_shape(array: Array) -> Shape:
    """The shape of an array as a buffer holds it."""
    return _buffer_shape(array.dtype, array.shape)


# Cached, as each call of a program on several devices needs the same few shapes.
@lru_cache(maxsize=1024)
def _buffer_shape(dtype: np.dtype[Any], dimensions: tuple[int, ...]) -> Shape:
    return Shape(PrimitiveType.from_dtype(dtype), dimensions).with_default_layout()


def _put(device: Device, array: Array) -> Any:
    return device.put(array)
