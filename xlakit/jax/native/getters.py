"""Functions that only return fields of a record."""

from __future__ import annotations

from typing import Final

from xlakit.cpu.llvm import Module
from xlakit.cpu.runtime.record import Record
from xlakit.jax.api.arguments import arguments_of, slot_function
from xlakit.jax.native.records import BUFFER, CLIENT, DESCRIPTION, DEVICE, EVENT, EXECUTABLE, MEMORY, TOPOLOGY

GETTERS: Final[list[tuple[Record, str]]] = [
    (CLIENT, "Client_PlatformName Client_ProcessIndex Client_PlatformVersion Client_TopologyDescription"),
    (CLIENT, "Client_Devices Client_AddressableMemories"),
    (TOPOLOGY, "TopologyDescription_PlatformName TopologyDescription_PlatformVersion"),
    (TOPOLOGY, "TopologyDescription_GetDeviceDescriptions TopologyDescription_Attributes"),
    (DESCRIPTION, "DeviceDescription_Id DeviceDescription_ProcessIndex DeviceDescription_Attributes"),
    (DESCRIPTION, "DeviceDescription_Kind DeviceDescription_DebugString DeviceDescription_ToString"),
    (DEVICE, "Device_GetDescription Device_IsAddressable Device_LocalHardwareId"),
    (DEVICE, "Device_AddressableMemories Device_DefaultMemory"),
    (MEMORY, "Memory_Id Memory_Kind Memory_Kind_Id Memory_DebugString Memory_ToString Memory_AddressableByDevices"),
    (EXECUTABLE, "Executable_Name Executable_NumReplicas Executable_NumPartitions Executable_NumOutputs"),
    (EXECUTABLE, "Executable_SizeOfGeneratedCodeInBytes Executable_OutputMemoryKinds Executable_OutputElementTypes"),
    (EXECUTABLE, "Executable_OutputDimensions Executable_Fingerprint LoadedExecutable_Fingerprint"),
    (EXECUTABLE, "LoadedExecutable_AddressableDevices LoadedExecutable_IsDeleted"),
    (BUFFER, "Buffer_ElementType Buffer_OnDeviceSizeInBytes Buffer_Device Buffer_Memory Buffer_IsDeleted"),
    (EVENT, "Event_IsReady"),
]


def emit_getters(module: Module) -> None:
    """Emit the getters: each field of the arguments, except the object, gets the record's field of that name."""
    for record, slots in GETTERS:
        for slot in slots.split():
            fields = arguments_of(slot)
            fn, given = slot_function(module, slot)
            handle = given.pointer(fields.first)
            for name in fields.results:
                given.store(name, record.load(fn, handle, name))
