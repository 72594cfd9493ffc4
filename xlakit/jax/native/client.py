"""Functions of the client and its devices, and functions that do nothing."""

from __future__ import annotations

from typing import Final

from xlakit.cpu.llvm import I32, I64, PTR, VOID, Module
from xlakit.jax.api.arguments import slot_function
from xlakit.jax.api.numbers import Code
from xlakit.jax.native.errors import fail_if
from xlakit.jax.native.events import ready_event
from xlakit.jax.native.records import CLIENT

# Functions that do nothing: clients and topologies live as long as the process, and the other objects are never made.
_NOTHING_TO_DO: Final = (
    "Client_Destroy",
    "TopologyDescription_Destroy",
    "ExecuteContext_Destroy",
    "CopyToDeviceStream_Destroy",
    "Plugin_Initialize",
    # Receives data about all processes, which they have exchanged already; jaxlib aborts the process if it fails.
    "Client_UpdateGlobalProcessInfo",
)


def emit_client(module: Module) -> None:
    """Emit the functions, and ``make_bytes(ptr data, i64 size) -> ptr``, which copies, and ``destroy_bytes(ptr)``."""
    fn, data, size = module.begin("make_bytes", PTR, [PTR, I64], external=True)
    copy = fn.call("xlakit_allocate", PTR, size)
    with fn.if_(copy.ne(fn.null()), likely=True):
        fn.copy(copy, data, size)
    fn.ret(copy)

    fn = module.function("destroy_bytes", VOID, [PTR], external=True)
    fn.call("xlakit_release", VOID, fn.parameters[0])

    for slot in _NOTHING_TO_DO:
        fn = module.function(slot, PTR, [PTR], external=True)
        fn.ret(fn.null())

    # The context is unused, but must not be null.
    fn, given = slot_function(module, "ExecuteContext_Create")
    fn.store(ready_event(fn), given.at("context"))

    fn, given = slot_function(module, "Client_AddressableDevices")
    client = given.pointer("client")
    for name in ("devices", "num_devices"):
        given.store(name, CLIENT.load(fn, client, name.replace("devices", "local_devices")))

    # LookupDevice takes a device's number among all, LookupAddressableDevice its number among those of this process.
    for slot, which in (("Client_LookupDevice", "devices"), ("Client_LookupAddressableDevice", "local_devices")):
        fn, given = slot_function(module, slot)
        client, number = given.pointer("client"), given.load("id")
        is_none = number.compare("uge", CLIENT.load(fn, client, f"num_{which}"))
        fail_if(fn, is_none, Code.INVALID_ARGUMENT, "there is no device of this number; XLAKIT_DEVICES says how many")
        devices = fn.load(PTR, CLIENT.at(fn, client, which))
        fn.store(fn.load(PTR, fn.at(devices, PTR, number)), given.at("device"))

    fn, given = slot_function(module, "Client_DefaultDeviceAssignment")
    count = given.load("num_replicas") * given.load("num_partitions")
    has_room = (count <= given.load("size")) & (count > 0)
    fail_if(fn, ~has_room, Code.INVALID_ARGUMENT, "there is no room for the devices of all replicas and partitions")
    devices = CLIENT.load(fn, given.pointer("client"), "num_devices")
    fail_if(fn, count > devices, Code.INVALID_ARGUMENT, "there are too few devices; XLAKIT_DEVICES says how many")
    # By default a program runs on the devices of this process, if there are enough.
    client = given.pointer("client")
    first = fn.select(
        count <= CLIENT.load(fn, client, "num_local_devices"), CLIENT.load(fn, client, "first_local"), fn.i64(0)
    )
    with fn.loop(0, count) as iteration:
        number = (first + iteration.index).cast("trunc", I32)
        fn.store(number, fn.at(given.pointer("assignment"), I32, iteration.index))
