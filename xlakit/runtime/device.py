"""Device: where buffers live and programs run, one after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from xlakit.arguments import name_type
from xlakit.data.immutable import Immutable
from xlakit.runtime import transfer
from xlakit.runtime.execution import Queue
from xlakit.runtime.transfer import HostBufferSemantics, semantics_of

if TYPE_CHECKING:
    from xlakit.runtime.buffer import Buffer
    from xlakit.runtime.client import Client


class Device(Immutable):
    """One of the devices of a :class:`xlakit.Client`. All of them are the processors of this machine.

    A device executes requests in order, on a thread of its own. Devices run concurrently.
    """

    __slots__ = ("_client", "_queue")

    def __init__(self, client: Client, queue: Queue) -> None:
        self._client = client
        self._queue = queue

    def __reduce__(self) -> tuple[Any, ...]:
        return _device_of, (self._client, self.id)

    @property
    def client(self) -> Client:
        """The client whose device this is."""
        return self._client

    @property
    def id(self) -> int:
        """Its number among the client's devices, from 0."""
        return self._queue.number

    @property
    def local_hardware_id(self) -> int:
        """The same number as :attr:`id`."""
        return self._queue.number

    @property
    def process_index(self) -> int:
        """The number of its process: 0, unless the client is distributed."""
        return self._client.process_of(self.id)

    @property
    def platform(self) -> str:
        """``"cpu"``."""
        return "cpu"

    @property
    def device_kind(self) -> str:
        """``"cpu"``."""
        return "cpu"

    @property
    def queue(self) -> Queue:
        """Its queue; for the runtime."""
        return self._queue

    def put(
        self,
        value: object,
        *,
        host_buffer_semantics: HostBufferSemantics | str = HostBufferSemantics.IMMUTABLE_ONLY_DURING_CALL,
    ) -> Any:
        """A value of the host as a Buffer here; a tuple as a (nested) tuple of Buffers.

        value: an array or what NumPy makes one of (a Python float is a float64), a Literal, a Buffer of another device.
        host_buffer_semantics: what the caller promises of an array's memory; one of :class:`HostBufferSemantics`, or
            its name.

            - ``immutable_only_during_call``, the default: nothing. The array is copied before the call returns; only an
              array that is read-only, as is all that it is a view of, is read in place.
            - ``immutable_until_transfer_completes``: that it does not change until the buffer is ready. A large array
              is copied by the device, after the work that the device was given before.
            - ``zero_copy``: that it does not change as long as the buffer, a view of it or a program that reads it
              exists. The buffer is the array's own memory where that lies major to minor and is aligned to its
              elements, and a copy otherwise.

        Raises UnsupportedError for a dtype that no primitive type holds.
        """
        return transfer.put(value, self, semantics_of(host_buffer_semantics))

    def from_dlpack(self, tensor: object, *, copy: bool | None = None) -> Buffer:
        """A Buffer of a tensor of another library, by the DLPack protocol (``__dlpack__``).

        copy: None to read the tensor in place where its memory lies major to minor, and copy it otherwise; True to copy
            it, False never to. In place means that the tensor must not be written to while the buffer exists.

        Raises ArgumentError for what is no tensor, is on another kind of device, or would have to be copied.
        """
        return transfer.from_dlpack(tensor, self, copy=copy)

    def transfer_to_infeed(self, value: object) -> None:
        """Append an array, or a tuple of arrays, to the infeed that programs on this device read."""
        self._client.execution_context.infeed(self.id, value)

    def transfer_from_outfeed(self) -> Any:
        """The next value of this device's outfeed: an array, or a tuple of them. Waits while a program may bring it."""
        return self._client.execution_context.outfeed(self.id)

    def synchronize_all_activity(self) -> None:
        """Wait for all submitted work of the device.

        Raises the first error of a program without results, which no result could report.
        """
        self._client.schedule.wait_for_all(self._queue)

    def __str__(self) -> str:
        return f"cpu:{self.id}"

    def __repr__(self) -> str:
        return f"<Device {self}>"


name_type(Device, "a device", "devices", "take one of client.devices()")


def _device_of(client: Client, number: int) -> Device:
    return client.devices()[number]
