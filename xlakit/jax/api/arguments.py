"""The argument structures of the functions of PJRT's C interface, and some structures that these point to.

Each begins with its size and a pointer to extensions; the other fields are named here in their order. A field is a word
of 8 bytes, or with ``:i`` an int of 4 bytes, or with ``:b`` a bool of one byte; each is aligned to its size. The
structure of an older caller may lack the last fields.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

from xlakit.cpu import llvm

if TYPE_CHECKING:
    from xlakit.cpu.llvm import Function, Module, Type, Value

_PREFIX: Final = "struct_size extension_start"

_FIELDS: Final = {
    # -- structures that other structures point to
    "NamedValue": "name name_size type:i value value_size",
    "Program": "code code_size format format_size",
    "ExecuteOptions": "send_callbacks recv_callbacks num_send_ops num_recv_ops launch_id:i "
    "non_donatable_input_indices num_non_donatable_input_indices context call_location",
    "MemoryLayout": "tiled_size tiled_extension minor_to_major minor_to_major_size tile_dims tile_dim_sizes "
    "num_tiles type:i",
    "ShapeSpec": "dims num_dims type:i",
    # -- errors, the plugin, events
    "Error_Destroy": "error",
    "Error_Message": "error message message_size",
    "Error_GetCode": "error code:i",
    "Plugin_Initialize": "",
    "Plugin_Attributes": "attributes num_attributes",
    "Event_Destroy": "event",
    "Event_IsReady": "event is_ready:b",
    "Event_Error": "event",
    "Event_Await": "event",
    "Event_OnReady": "event callback user_arg",
    # -- the client
    "Client_Create": "create_options num_options kv_get_callback kv_get_user_arg kv_put_callback kv_put_user_arg "
    "client",
    "Client_Destroy": "client",
    "Client_PlatformName": "client platform_name platform_name_size",
    "Client_ProcessIndex": "client process_index:i",
    "Client_PlatformVersion": "client platform_version platform_version_size",
    "Client_TopologyDescription": "client topology",
    "Client_Devices": "client devices num_devices",
    "Client_AddressableDevices": "client devices num_devices",
    "Client_LookupDevice": "client id:i device",
    "Client_LookupAddressableDevice": "client id:i device",
    "Client_AddressableMemories": "client memories num_memories",
    "Client_Compile": "client program compile_options compile_options_size executable",
    "Client_DefaultDeviceAssignment": "client num_replicas:i num_partitions:i size assignment",
    "Client_BufferFromHostBuffer": "client data type:i dims num_dims byte_strides num_byte_strides semantics:i "
    "device memory device_layout done_with_host_buffer buffer",
    "Client_CreateViewOfDeviceBuffer": "client data dims num_dims type:i layout device on_delete on_delete_argument "
    "stream buffer memory",
    "Client_CreateUninitializedBuffer": "client dims num_dims type:i layout device memory buffer",
    "Client_CreateBuffersForAsyncHostToDevice": "client shape_specs num_shape_specs device_layouts num_device_layouts "
    "memory manager",
    # -- transfer managers
    "AsyncHostToDeviceTransferManager_Destroy": "manager",
    "AsyncHostToDeviceTransferManager_TransferData": "manager buffer_index:i data offset size is_last:b event",
    "AsyncHostToDeviceTransferManager_RetrieveBuffer": "manager buffer_index:i buffer",
    "AsyncHostToDeviceTransferManager_Device": "manager device",
    "AsyncHostToDeviceTransferManager_BufferCount": "manager count",
    "AsyncHostToDeviceTransferManager_BufferSize": "manager buffer_index:i size",
    "AsyncHostToDeviceTransferManager_SetBufferError": "manager buffer_index:i code:i message message_size",
    # -- devices and memories
    "DeviceDescription_Id": "description id:i",
    "DeviceDescription_ProcessIndex": "description process_index:i",
    "DeviceDescription_Attributes": "description num_attributes attributes",
    "DeviceDescription_Kind": "description kind kind_size",
    "DeviceDescription_DebugString": "description debug_text debug_text_size",
    "DeviceDescription_ToString": "description text text_size",
    "Device_GetDescription": "device description",
    "Device_IsAddressable": "device is_addressable:b",
    "Device_LocalHardwareId": "device local_hardware_id:i",
    "Device_AddressableMemories": "device memories num_memories",
    "Device_DefaultMemory": "device memory",
    "Memory_Id": "memory id:i",
    "Memory_Kind": "memory kind kind_size",
    "Memory_Kind_Id": "memory kind_id:i",
    "Memory_DebugString": "memory text text_size",
    "Memory_ToString": "memory text text_size",
    "Memory_AddressableByDevices": "memory devices num_devices",
    "TopologyDescription_Destroy": "topology",
    "TopologyDescription_PlatformName": "topology platform_name platform_name_size",
    "TopologyDescription_PlatformVersion": "topology platform_version platform_version_size",
    "TopologyDescription_GetDeviceDescriptions": "topology descriptions num_descriptions",
    "TopologyDescription_Attributes": "topology attributes num_attributes",
    # -- executables
    "Executable_Destroy": "executable",
    "Executable_Name": "executable name name_size",
    "Executable_NumReplicas": "executable num_replicas",
    "Executable_NumPartitions": "executable num_partitions",
    "Executable_NumOutputs": "executable num_outputs",
    "Executable_SizeOfGeneratedCodeInBytes": "executable size",
    "Executable_GetCostAnalysis": "executable num_properties properties",
    "Executable_OutputMemoryKinds": "executable num_outputs kinds kind_sizes",
    "Executable_OutputElementTypes": "executable types num_types",
    "Executable_OutputDimensions": "executable num_outputs dims dim_sizes",
    "Executable_OptimizedProgram": "executable program",
    "Executable_Serialize": "executable bytes bytes_size serialized deleter",
    "Executable_DeserializeAndLoad": "client bytes bytes_size executable options options_size load_options",
    "Executable_Fingerprint": "executable fingerprint fingerprint_size",
    "Executable_GetCompiledMemoryStats": "executable generated_code argument output alias temp host_generated_code "
    "host_argument host_output host_alias host_temp peak total",
    "LoadedExecutable_Destroy": "executable",
    "LoadedExecutable_GetExecutable": "executable unloaded",
    "LoadedExecutable_AddressableDevices": "executable devices num_devices",
    "LoadedExecutable_Delete": "executable",
    "LoadedExecutable_IsDeleted": "executable is_deleted:b",
    "LoadedExecutable_Fingerprint": "executable fingerprint fingerprint_size",
    "LoadedExecutable_Execute": "executable options argument_lists num_devices num_args output_lists "
    "device_complete_events execute_device",
    "LoadedExecutable_GetDeviceAssignment": "executable bytes bytes_size holder deleter",
    "ExecuteContext_Create": "context",
    "ExecuteContext_Destroy": "context",
    # -- buffers
    "Buffer_Destroy": "buffer",
    "Buffer_ElementType": "buffer type:i",
    "Buffer_Dimensions": "buffer dims num_dims",
    "Buffer_UnpaddedDimensions": "buffer dims num_dims",
    "Buffer_DynamicDimensionIndices": "buffer indices num_indices",
    "Buffer_GetMemoryLayout": "buffer layout_size layout_extension tiled_size tiled_extension minor_to_major "
    "minor_to_major_size tile_dims tile_dim_sizes num_tiles type:i",
    "Buffer_OnDeviceSizeInBytes": "buffer size",
    "Buffer_Device": "buffer device",
    "Buffer_Memory": "buffer memory",
    "Buffer_Delete": "buffer",
    "Buffer_IsDeleted": "buffer is_deleted:b",
    "Buffer_CopyToDevice": "buffer device copy",
    "Buffer_CopyToMemory": "buffer memory copy",
    "Buffer_ToHostBuffer": "buffer host_layout data size event",
    "Buffer_CopyRawToHost": "buffer data offset size event",
    "Buffer_CopyRawToHostFuture": "buffer offset size event callback_data callback",
    "CopyRawToHostFuture_Callback": "code:i message message_size target",
    "Buffer_IsOnCpu": "buffer is_on_cpu:b",
    "Buffer_ReadyEvent": "buffer event",
    "Buffer_UnsafePointer": "buffer address",
    "Buffer_IncreaseExternalReferenceCount": "buffer",
    "Buffer_DecreaseExternalReferenceCount": "buffer",
    "Buffer_OpaqueDeviceMemoryDataPointer": "buffer address",
    # -- the extension for layouts
    "Layouts_MemoryLayout_Destroy": "layout",
    "Layouts_MemoryLayout_Serialize": "layout bytes bytes_size holder deleter",
    "Layouts_Client_GetDefaultLayout": "client type:i dims num_dims layout",
    "Layouts_Buffer_MemoryLayout": "buffer layout",
    "Layouts_Topology_GetDefaultLayout": "topology type:i dims num_dims layout",
    # -- destructors of objects that are never made
    "CopyToDeviceStream_Destroy": "stream",
}

_BYTES: Final = {"": 8, "i": 4, "b": 1}


class Arguments:
    """The layout of one structure: the offset and size of each field."""

    def __init__(self, fields: str) -> None:
        self._fields: dict[str, tuple[int, int]] = {}
        end = 0
        for field in f"{_PREFIX} {fields}".split():
            name, _, kind = field.partition(":")
            size = _BYTES[kind]
            begin = -(-end // size) * size
            self._fields[name] = begin, size
            end = begin + size
        self.size = -(-end // 8) * 8

    def offset_and_size(self, name: str) -> tuple[int, int]:
        """The offset of a field, and its size, in bytes."""
        return self._fields[name]

    @property
    def first(self) -> str:
        """The first field after size and extensions: in most structures the object that the function works on."""
        return list(self._fields)[2]

    @property
    def results(self) -> list[str]:
        """The fields after :attr:`first`."""
        return list(self._fields)[3:]


@cache
def arguments_of(function: str) -> Arguments:
    """The structure that a function of the interface takes, or one of those that others point at, by its name."""
    return Arguments(_FIELDS[function])


class NativeStruct:
    """The structure at an address, for native code that reads and writes its fields."""

    def __init__(self, fn: Function, structure: str, address: Value) -> None:
        self._fn, self.address, self._layout = fn, address, arguments_of(structure)

    def at(self, name: str) -> Value:
        """The address of a field."""
        return self._fn.at(self.address, llvm.I8, self._layout.offset_and_size(name)[0])

    def load(self, name: str) -> Value:
        """A field as an integer, extended to 8 bytes."""
        value = self._fn.load(self._integer(name), self.at(name))
        return value if value.type is llvm.I64 else value.cast("sext", llvm.I64)

    def pointer(self, name: str) -> Value:
        """A field as a pointer."""
        return self._fn.load(llvm.PTR, self.at(name))

    def store(self, name: str, value: Value) -> None:
        """Write a field, cut to its size."""
        kind = self._integer(name)
        self._fn.store(value if kind is llvm.I64 else value.cast("trunc", kind), self.at(name))

    def _integer(self, name: str) -> Type:
        return llvm.integer(8 * self._layout.offset_and_size(name)[1])


def slot_function(module: Module, name: str, structure: str = "") -> tuple[Function, NativeStruct]:
    """Begin a function of the interface, which reports no error if it reaches its end; gives it and its arguments.

    structure: the name of the arguments' structure, if it is not that of the function.
    """
    fn = module.function(name, llvm.PTR, [llvm.PTR], external=True)
    fn.result_at_end = fn.null()
    return fn, NativeStruct(fn, structure or name, fn.parameters[0])
