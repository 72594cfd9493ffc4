"""``xla_client`` as it was in jaxlib 0.6.0, the last release with XlaBuilder, on xlakit.

    from xlakit.compat import xla_client

The page "From xla_client" of the documentation lists what is different.
"""

from __future__ import annotations

import logging
from typing import NoReturn

import ml_dtypes as ml_dtypes

from xlakit.compat.xla_client import xla_extension as xla_extension
from xlakit.compat.xla_client.custom_calls import (
    CustomCallHandler as CustomCallHandler,
    CustomTypeIdHandler as CustomTypeIdHandler,
    register_custom_call_handler as register_custom_call_handler,
    register_custom_call_target as register_custom_call_target,
    register_custom_type_id as register_custom_type_id,
    register_custom_type_id_handler as register_custom_type_id_handler,
    xla_platform_names as xla_platform_names,
)
from xlakit.compat.xla_client.enums import (
    DTYPE_TO_XLA_ELEMENT_TYPE as DTYPE_TO_XLA_ELEMENT_TYPE,
    XLA_ELEMENT_TYPE_TO_DTYPE as XLA_ELEMENT_TYPE_TO_DTYPE,
    CustomCallTargetTraits as CustomCallTargetTraits,
    PaddingType as PaddingType,
    dtype_to_etype as dtype_to_etype,
)
from xlakit.compat.xla_client.records import (
    ConvolutionDimensionNumbers as ConvolutionDimensionNumbers,
    CurrentSourceInfoMetadata as CurrentSourceInfoMetadata,
    DotDimensionNumbers as DotDimensionNumbers,
    GatherDimensionNumbers as GatherDimensionNumbers,
    OpMetadata as OpMetadata,
    PaddingConfig as PaddingConfig,
    PaddingConfigDimension as PaddingConfigDimension,
    PrecisionConfig as PrecisionConfig,
    ReplicaGroup as ReplicaGroup,
    ResultAccuracy as ResultAccuracy,
    ScatterDimensionNumbers as ScatterDimensionNumbers,
    make_convolution_dimension_numbers as make_convolution_dimension_numbers,
    make_dot_dimension_numbers as make_dot_dimension_numbers,
    make_padding_config as make_padding_config,
    make_replica_groups as make_replica_groups,
    shape_from_pyval as shape_from_pyval,
    window_padding_type_to_pad_values as window_padding_type_to_pad_values,
)
from xlakit.compat.xla_client.runtime.client import (
    execute_with_python_values as execute_with_python_values,
    execute_with_python_values_replicated as execute_with_python_values_replicated,
    heap_profile as heap_profile,
    make_cpu_client as make_cpu_client,
)
from xlakit.compat.xla_client.runtime.topology import (
    generate_pjrt_gpu_plugin_options as generate_pjrt_gpu_plugin_options,
    load_pjrt_plugin_dynamically as load_pjrt_plugin_dynamically,
    load_pjrt_plugin_with_c_api as load_pjrt_plugin_with_c_api,
    make_c_api_client as make_c_api_client,
    make_c_api_device_topology as make_c_api_device_topology,
    make_tfrt_tpu_c_api_device_topology as make_tfrt_tpu_c_api_device_topology,
    make_tpu_client as make_tpu_client,
)
from xlakit.compat.xla_client.runtime.tracebacks import tracebacks as tracebacks
from xlakit.compat.xla_client.xla_extension import (
    Array as Array,
    ArrayCopySemantics as ArrayCopySemantics,
    ArrayImpl as ArrayImpl,
    AutotuneCacheMode as AutotuneCacheMode,
    Client as Client,
    CompileOptions as CompileOptions,
    Device as Device,
    DeviceAssignment as DeviceAssignment,
    DeviceList as DeviceList,
    DeviceTopology as DeviceTopology,
    Frame as Frame,
    GSPMDSharding as GSPMDSharding,
    HloSharding as HloSharding,
    HostBufferSemantics as HostBufferSemantics,
    Layout as Layout,
    LoadedExecutable as LoadedExecutable,
    Memory as Memory,
    NamedSharding as NamedSharding,
    OpSharding as OpSharding,
    PjRtLayout as PjRtLayout,
    PmapSharding as PmapSharding,
    PrimitiveType as PrimitiveType,
    ProgramShape as ProgramShape,
    ResultAccuracy_Mode as ResultAccuracy_Mode,
    Shape as Shape,
    ShapeIndex as ShapeIndex,
    Sharding as Sharding,
    SingleDeviceSharding as SingleDeviceSharding,
    Traceback as Traceback,
    XlaBuilder as XlaBuilder,
    XlaComputation as XlaComputation,
    XlaOp as XlaOp,
    XlaRuntimeError as XlaRuntimeError,
    array_result_handler as array_result_handler,
    batched_block_until_ready as batched_block_until_ready,
    batched_copy_array_to_devices_with_sharding as batched_copy_array_to_devices_with_sharding,
    batched_device_put as batched_device_put,
    check_and_canonicalize_memory_kind as check_and_canonicalize_memory_kind,
    custom_call_targets as custom_call_targets,
    encode_inspect_sharding_callback as encode_inspect_sharding_callback,
    get_topology_for_devices as get_topology_for_devices,
    hlo_sharding_util as hlo_sharding_util,
    ifrt_programs as ifrt_programs,
    initialize_pjrt_plugin as initialize_pjrt_plugin,
    ops as ops,
    pjrt_plugin_initialized as pjrt_plugin_initialized,
    pjrt_plugin_loaded as pjrt_plugin_loaded,
    profiler as profiler,
    register_custom_call_as_batch_partitionable as register_custom_call_as_batch_partitionable,
    register_custom_call_partitioner as register_custom_call_partitioner,
    reorder_shards as reorder_shards,
    weakref_lru_cache as weakref_lru_cache,
)
from xlakit.ir.enums import FftType as FftType

ResultAccuracyMode = ResultAccuracy_Mode
LoadedExecutable_execute = LoadedExecutable.execute
LoadedExecutable_execute_with_token = LoadedExecutable.execute_with_token

# The version numbers of jaxlib 0.6.0.
_version = 330
_ifrt_version = 5
mlir_api_version = 58

_xla = xla_extension
bfloat16 = XLA_ELEMENT_TYPE_TO_DTYPE[PrimitiveType.BF16].type
logger = logging.getLogger(__name__)

# Names that releases before 0.6.0 had, and what 0.6.0 has instead.
_INSTEAD = {
    "ComputationBuilder": "XlaBuilder(name), and functions of xla_client.ops for its methods",
    "get_local_backend": "make_cpu_client()",
    "register_cpu_custom_call_target": "register_custom_call_target(name, capsule, platform='cpu')",
}


def __getattr__(name: str) -> NoReturn:
    instead = f"; write {_INSTEAD[name]}" if name in _INSTEAD else ""
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'{instead}")
