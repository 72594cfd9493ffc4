"""ArrayImpl: an array on a device; and DLPack."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Self

import numpy as np

from xlakit.compat.xla_client.binding import bound, incompatible
from xlakit.compat.xla_client.errors import as_status, status_errors
from xlakit.compat.xla_client.runtime.array_arithmetic import ArrayArithmetic
from xlakit.compat.xla_client.runtime.array_values import ArrayValues, can_be_shared
from xlakit.compat.xla_client.runtime.device import Device
from xlakit.compat.xla_client.runtime.pjrt_layout import PjRtLayout
from xlakit.compat.xla_client.runtime.requested_layouts import from_memory, in_memory, leaf_layouts
from xlakit.compat.xla_client.runtime.tracebacks import Traceback
from xlakit.compat.xla_client.shapes import Shape
from xlakit.data.layout import Layout as OurLayout
from xlakit.data.shape import Shape as OurShape
from xlakit.errors import ArgumentError, DeletedBufferError, UnsupportedError
from xlakit.runtime import dlpack as dlpack_format
from xlakit.runtime.buffer import Buffer


class Array:
    """The base of arrays."""

    __slots__ = ()


class ArrayImpl(ArrayArithmetic, ArrayValues, Array):
    """An array on a device, there or still to come. ``np.asarray`` reads it without a copy where it can."""

    __slots__ = (
        *("__dict__", "__weakref__", "_committed", "_device", "_given_sharding", "_lease", "_npy_value", "_traceback"),
        *("aval", "order", "wrapped"),
    )

    @bound
    def __init__(
        self,
        aval: Any,
        sharding: Any,
        arrays: Annotated[Any, list],
        committed: bool,
        _skip_checks: bool = False,
    ) -> None:
        """The array of these parts, one on each device of the sharding, whose memory it shares; here that is one.

        aval: what has the ``shape`` and the ``dtype``. Raises ValueError for another number of parts than of devices,
        TypeError for parts that are no arrays, XlaRuntimeError for several devices and for parts that do not fit.
        """
        part = self._only_part(aval, sharding._internal_device_list, arrays)
        self._begin(part._device, part.wrapped, part.order)
        self.aval, self._given_sharding, self._committed = aval, sharding, committed

    @classmethod
    def of(cls, device: Device, wrapped: Buffer, order: tuple[int, ...] | None = None) -> ArrayImpl:
        """The array of a buffer. Its dimensions are those of the array in this order; None: in their own."""
        made = cls.__new__(cls)
        made._begin(device, wrapped, order)
        return made

    def _begin(self, device: Device, wrapped: Buffer, order: tuple[int, ...] | None) -> None:
        self._device = device
        self.wrapped = wrapped
        self.order = order
        self.aval: Any = None
        self._given_sharding: Any = None
        self._committed = False
        self._npy_value: Any = None
        self._lease: weakref.ref[np.ndarray[Any, Any]] | None = None
        self._traceback = Traceback.get_traceback()
        device.client.track(self)

    @staticmethod
    def _only_part(aval: Any, devices: Any, arrays: Sequence[object]) -> ArrayImpl:
        """The part that an array on these devices is made of. Raises as the constructor does."""
        shape, dtype = tuple(aval.shape), np.dtype(aval.dtype)
        parts = [array for array in arrays if isinstance(array, ArrayImpl)]
        if len(parts) != len(arrays):
            other = next(array for array in arrays if not isinstance(array, ArrayImpl))
            raise TypeError(f"`arrays` has a {type(other)}, and takes arrays of this package")
        if len({part._device for part in parts}) != len(parts):
            raise ValueError("two of the arrays are on one device; give one for each device")
        if len(parts) != len(devices):
            raise ValueError(
                "INVALID_ARGUMENT: Number of addressable output shards must match the number of single-shard arrays: "
                f"{len(devices)} vs. {len(parts)}"
            )
        if len(parts) > 1:
            raise UnsupportedError(
                f"an array in parts on {len(parts)} devices",
                hint="keep the parts: execute_sharded takes and gives them",
            )
        (part,) = parts
        if (part.shape, part.dtype, part._device) != (shape, dtype, devices[0]):
            raise ArgumentError(
                f"a part of {part.dtype.name}{list(part.shape)} on {part._device} is not an array of {dtype.name}"
                f"{list(shape)} on {devices[0]}",
                hint="give the array the shape, the dtype and the device of its part",
            )
        return part

    def __repr__(self) -> str:
        return "Array(token)" if self.wrapped.shape.is_token else super().__repr__()

    # -- properties ------------------------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, ...]:
        """The dimensions."""
        sizes = self.wrapped.shape.dimensions
        return sizes if self.order is None else tuple(sizes[self.order.index(d)] for d in range(len(sizes)))

    @property
    def dtype(self) -> np.dtype[Any]:
        """The NumPy dtype."""
        with status_errors():
            return self.wrapped.dtype

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return self.wrapped.shape.num_elements

    @property
    def nbytes(self) -> int:
        """The bytes of the elements."""
        return self.wrapped.shape.byte_size

    @property
    def traceback(self) -> Traceback | None:
        """Where the array was made; None where tracebacks are not enabled."""
        return self._traceback

    @property
    def client(self) -> Any:
        """The client of its device."""
        return self._device.client

    @property
    def _arrays(self) -> list[Self]:
        return [self]

    @property
    def _sharding(self) -> Any:
        if self._given_sharding is not None:
            return self._given_sharding
        from xlakit.compat.xla_client.runtime.array_shardings import SingleDeviceSharding

        return SingleDeviceSharding(self._device)

    @property
    def _pjrt_layout(self) -> PjRtLayout:
        return PjRtLayout.of(leaf_layouts([self._shape])[0])

    @property
    def _shape(self) -> OurShape:
        """The shape with its layout."""
        held = self.wrapped.shape
        order = self.order or range(held.rank)
        return OurShape(held.element_type, self.shape).with_layout(OurLayout(tuple(order)[::-1]))

    @property
    def __cuda_array_interface__(self) -> Any:
        raise AttributeError("__cuda_array_interface__ is only defined for NVidia GPU buffers.")

    @property
    def device(self) -> Device:
        """Its device. Older releases had a method of this name: a device that is called gives itself."""
        return self._device

    def devices(self) -> set[Device]:
        """Its device, in a set."""
        return {self._device}

    @property
    def sharding(self) -> Any:
        """Where it is: on a single device."""
        return self._sharding

    @property
    def weak_type(self) -> bool:
        """Whether JAX would let another operand's type prevail: where the array was made so."""
        return bool(getattr(self.aval, "weak_type", False))

    @property
    def is_fully_addressable(self) -> bool:
        """Whether this process can read all of it: yes."""
        return True

    @property
    def is_fully_replicated(self) -> bool:
        """Whether each of its devices has all of it: yes, as it has one."""
        return True

    def addressable_data(self, index: int) -> Self:
        """The part on a device of this process, by number: the array itself. Raises IndexError for other numbers."""
        return self._arrays[index]

    def xla_shape(self) -> Shape:
        """Its shape."""
        return Shape.of(self._shape)

    def platform(self) -> str:
        """``"cpu"``."""
        return self._device.platform

    def on_device_size_in_bytes(self) -> int:
        """The bytes that it takes."""
        self._check("GetOnDeviceSizeInBytes")
        return self.wrapped.on_device_size_in_bytes()

    def unsafe_buffer_pointer(self) -> int:
        """The address of the first element, once it is there."""
        self._check("UnsafeBufferPointer")
        with status_errors():
            return self.wrapped.unsafe_buffer_pointer()

    # -- readiness and the end -------------------------------------------------------------------

    def block_until_ready(self) -> Self:
        """Wait for the values; gives the array. Raises XlaRuntimeError with the error of the program."""
        self._check("BlockHostUntilReady")
        with status_errors():
            self.wrapped.block_until_ready()
        return self

    def is_ready(self) -> bool:
        """Whether the values are there, so that reading them does not wait."""
        self._check("IsReady")
        with status_errors():
            return self.wrapped.is_ready()

    def delete(self) -> None:
        """Free the memory, as soon as no program and no view reads it."""
        self.wrapped.delete()
        self._npy_value = None

    def is_deleted(self) -> bool:
        """Whether it was deleted, or donated to a program."""
        return self.wrapped.is_deleted()

    def _check(self, method: str = "") -> None:
        """Raise XlaRuntimeError where it was deleted or donated, in jaxlib's words: with or without its method."""
        try:
            self.wrapped.check_usable()
        except DeletedBufferError as error:
            dimensions = ",".join(map(str, self.shape))
            text = f"Array has been deleted with shape={self.dtype.name}[{dimensions}]"
            if method:
                text = f"{method}() called on deleted or donated buffer"
            raise as_status(error, text) from error

    # -- values ----------------------------------------------------------------------------------

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        return self.values(dtype, copy)

    def values(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        """The values as an array of NumPy, in place where it can be."""
        self._check()
        with status_errors():
            held = self.wrapped.__array__(None if dtype is None else np.dtype(dtype), copy)
        return from_memory(held if held.flags.owndata else self._leased(held), self.order)

    def _leased(self, view: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """The same memory, by an array that lives as long as any view of it does."""
        lease = None if self._lease is None else self._lease()
        if lease is None:
            # Views of an array hold its base instead where that is an array. A memoryview is none; types that NumPy
            # does not know by itself have no memoryview.
            plain: Any = view if view.dtype.isbuiltin == 1 else view.view(f"u{view.itemsize}")
            lease = np.asarray(memoryview(plain))
            self._lease = weakref.ref(lease)
        return lease.view(view.dtype)

    def is_viewed(self) -> bool:
        """Whether there are arrays of NumPy or DLPack tensors in the memory of this array: it is not donated then."""
        return self._lease is not None and self._lease() is not None

    def to_py(self) -> np.ndarray[Any, Any]:
        """The values as an array of NumPy."""
        return self.values()

    def made_of(self, values: Any) -> ArrayImpl:
        """An array of values of the host on the same device."""
        with status_errors():
            return ArrayImpl.of(self._device, self._device.wrapped.put(np.array(values)))

    def __iter__(self) -> Iterator[ArrayImpl]:
        return (self.made_of(row) for row in self.values())

    def copy(self) -> ArrayImpl:
        """A copy of the values."""
        return self.made_of(self.values())

    __copy__ = copy

    def __deepcopy__(self, memo: Any) -> ArrayImpl:
        return self.copy()

    def copy_to_host_async(self) -> None:
        """Begin to bring the values to the host, where those of processors are already."""
        self._check()

    _copy_single_device_array_to_host_async = copy_to_host_async

    def _single_device_array_to_np_array_did_copy(self) -> tuple[np.ndarray[Any, Any], bool]:
        # Programs put functions that call this instead of __array__.
        return self.values(), False

    def _fully_replicated_shard(self) -> ArrayImpl:
        return self.clone()

    def _replace_with(self, other: ArrayImpl, /) -> None:
        self.wrapped, self.order, self._lease = other.wrapped, other.order, other._lease

    def clone(self) -> ArrayImpl:
        """Another name for the same values; deleting one leaves the other."""
        self._check("Clone")
        with status_errors():
            return ArrayImpl.of(self._device, self.wrapped.copy_to_device(self._device.wrapped), self.order)

    def copy_to_device(self, device: Device) -> ArrayImpl:
        """The values on another device."""
        self._check("CopyToDevice")
        with status_errors():
            return ArrayImpl.of(device, self.wrapped.copy_to_device(device.wrapped), self.order)

    def in_order(self, order: tuple[int, ...] | None) -> ArrayImpl:
        """The same array with its dimensions in another order in memory; itself where it lies so already."""
        if order == self.order or self.wrapped.is_deleted():
            return self
        with status_errors():
            return ArrayImpl.of(self._device, self._device.wrapped.put(in_memory(self.values(), order)), order)

    def __dlpack__(self, **options: Any) -> Any:
        self._check()
        with status_errors():
            if self.order is not None:
                return self.values().__dlpack__(**options)
            return self.wrapped.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.wrapped.__dlpack_device__()


class _Capsule:
    """A DLPack capsule as an object that knows the protocol."""

    def __init__(self, capsule: object) -> None:
        self._capsule = capsule

    def __dlpack__(self, **_: object) -> object:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


def buffer_to_dlpack_managed_tensor(buffer: ArrayImpl, stream: int | None = None) -> Any:
    """A DLPack capsule with the memory of an array."""
    if not isinstance(buffer, ArrayImpl):  # pyright: ignore[reportUnnecessaryIsInstance]
        if buffer is None:
            raise incompatible("buffer_to_dlpack_managed_tensor", "buffer is None")
        # The error of C++'s cast, as in jaxlib.
        raise RuntimeError(f"std::bad_cast: the tensor is made of an array, not of a {type(buffer).__name__}")
    if buffer.is_deleted():
        raise as_status(UnsupportedError("a deleted array has no memory for DLPack", hint="keep the array"))
    if stream is not None:
        raise as_status(UnsupportedError("processors have no streams", hint="leave stream out"))
    with status_errors():
        shared = _shared(buffer.values())
        return dlpack_format.exported(shared, shared, None, None, None)


def _shared(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The same memory, which may be written to: jaxlib's tensors are not marked as read-only, and are no copies."""
    memory: Any = (ctypes.c_char * values.nbytes).from_address(values.ctypes.data)
    memory.owner = values
    return np.ndarray(values.shape, values.dtype, memory, strides=values.strides)


def dlpack_managed_tensor_to_buffer(
    dlpack: Any,
    device: Any = None,
    stream: int | None = None,
    *,
    cpu_backend: Any = None,
    gpu_backend: Any = None,
) -> ArrayImpl:
    """An array in the memory of a DLPack capsule, on a device, or on the first device of a client.

    Raises XlaRuntimeError for a capsule that was used before, or without a device.
    """
    if type(dlpack).__name__ != "PyCapsule":
        raise TypeError(
            f"incompatible function arguments: the tensor is a PyCapsule, not a {type(dlpack).__name__}; "
            "give what __dlpack__() returns"
        )
    given = device if device is not None else cpu_backend
    where = given if given is None or isinstance(given, Device) else given.local_devices()[0]
    if where is None:
        error = ArgumentError("there is no device for the tensor", hint="give a device, or cpu_backend")
        raise as_status(error)
    if "used_dltensor" in repr(dlpack):
        text = "this capsule was used before; a DLPack tensor may be consumed at most once"
        raise as_status(ArgumentError(text, hint="ask the tensor for another one"))
    with status_errors():
        values = dlpack_format.imported(_Capsule(dlpack))
        _check_compact(values)
        made = where.wrapped.put(
            values, host_buffer_semantics="zero_copy" if can_be_shared(values) else "immutable_only_during_call"
        )
        return ArrayImpl.of(where, made)


def _check_compact(values: np.ndarray[Any, Any]) -> None:
    """Raise UnsupportedError for elements that do not lie side by side, in some order of the dimensions."""
    step = values.itemsize
    for stride, size in sorted(zip(values.strides, values.shape, strict=True)):
        if size > 1 and values.size:
            if stride != step:
                raise UnsupportedError(
                    "the elements of a DLPack tensor must lie side by side (compact strides): "
                    f"the dimensions are {list(values.shape)}, the strides in bytes {list(values.strides)}",
                    hint="copy the tensor first",
                )
            step *= size


def cuda_array_interface_to_buffer(
    cai: dict[str, Any], gpu_backend: Any = None, device_id: int | None = None
) -> ArrayImpl:
    """Raises XlaRuntimeError: there are no GPUs."""
    raise as_status(ArgumentError("there is no GPU backend", hint="bring the array to the host, or use DLPack"))


@bound
def batched_block_until_ready(arrays: Sequence[object], /) -> None:
    """Wait for the values of arrays."""
    for array in arrays:
        if not isinstance(array, ArrayImpl):
            raise ArgumentError(f"a {type(array).__name__} is no array of this package", hint="leave it out")
        array.block_until_ready()
