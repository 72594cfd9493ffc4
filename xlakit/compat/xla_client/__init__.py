"""``xla_client`` as it was in jaxlib 0.6.0, the last release with XlaBuilder, on xlakit.

    from xlakit.compat import xla_client

The page "From xla_client" of the documentation lists what is different.
"""

from __future__ import annotations

import logging

from xlakit.compat.xla_client import ops as ops
from xlakit.compat.xla_client import profiler as profiler
from xlakit.compat.xla_client import xla_extension as xla_extension
from xlakit.compat.xla_client.computation import (
    XlaBuilder as XlaBuilder,
)
from xlakit.compat.xla_client.computation import (
    XlaComputation as XlaComputation,
)
from xlakit.compat.xla_client.computation import (
    XlaOp as XlaOp,
)
from xlakit.compat.xla_client.custom_calls import (
    CustomCallHandler as CustomCallHandler,
)
from xlakit.compat.xla_client.custom_calls import (
    CustomTypeIdHandler as CustomTypeIdHandler,
)
from xlakit.compat.xla_client.custom_calls import (
    custom_call_targets as custom_call_targets,
)
from xlakit.compat.xla_client.custom_calls import (
    encode_inspect_sharding_callback as encode_inspect_sharding_callback,
)
from xlakit.compat.xla_client.custom_calls import (
    register_custom_call_as_batch_partitionable as register_custom_call_as_batch_partitionable,
)
from xlakit.compat.xla_client.custom_calls import (
    register_custom_call_handler as register_custom_call_handler,
)
from xlakit.compat.xla_client.custom_calls import (
    register_custom_call_partitioner as register_custom_call_partitioner,
)
from xlakit.compat.xla_client.custom_calls import (
    register_custom_call_target as register_custom_call_target,
)
from xlakit.compat.xla_client.custom_calls import (
    register_custom_type_id as register_custom_type_id,
)
from xlakit.compat.xla_client.custom_calls import (
    register_custom_type_id_handler as register_custom_type_id_handler,
)
from xlakit.compat.xla_client.custom_calls import (
    xla_platform_names as xla_platform_names,
)
from xlakit.compat.xla_client.element_types import (
    DTYPE_TO_XLA_ELEMENT_TYPE as DTYPE_TO_XLA_ELEMENT_TYPE,
)
from xlakit.compat.xla_client.element_types import (
    XLA_ELEMENT_TYPE_TO_DTYPE as XLA_ELEMENT_TYPE_TO_DTYPE,
)
from xlakit.compat.xla_client.element_types import (
    dtype_to_etype as dtype_to_etype,
)
from xlakit.compat.xla_client.enums import (
    ArrayCopySemantics as ArrayCopySemantics,
)
from xlakit.compat.xla_client.enums import (
    AutotuneCacheMode as AutotuneCacheMode,
)
from xlakit.compat.xla_client.enums import (
    CustomCallTargetTraits as CustomCallTargetTraits,
)
from xlakit.compat.xla_client.enums import (
    FftType as FftType,
)
from xlakit.compat.xla_client.enums import (
    HostBufferSemantics as HostBufferSemantics,
)
from xlakit.compat.xla_client.enums import (
    PaddingType as PaddingType,
)
from xlakit.compat.xla_client.enums import (
    PrimitiveType as PrimitiveType,
)
from xlakit.compat.xla_client.enums import (
    ResultAccuracy_Mode as ResultAccuracy_Mode,
)
from xlakit.compat.xla_client.errors import XlaRuntimeError as XlaRuntimeError
from xlakit.compat.xla_client.records import (
    ConvolutionDimensionNumbers as ConvolutionDimensionNumbers,
)
from xlakit.compat.xla_client.records import (
    CurrentSourceInfoMetadata as CurrentSourceInfoMetadata,
)
from xlakit.compat.xla_client.records import (
    DotDimensionNumbers as DotDimensionNumbers,
)
from xlakit.compat.xla_client.records import (
    GatherDimensionNumbers as GatherDimensionNumbers,
)
from xlakit.compat.xla_client.records import (
    OpMetadata as OpMetadata,
)
from xlakit.compat.xla_client.records import (
    PaddingConfig as PaddingConfig,
)
from xlakit.compat.xla_client.records import (
    PaddingConfigDimension as PaddingConfigDimension,
)
from xlakit.compat.xla_client.records import (
    PrecisionConfig as PrecisionConfig,
)
from xlakit.compat.xla_client.records import (
    ReplicaGroup as ReplicaGroup,
)
from xlakit.compat.xla_client.records import (
    ResultAccuracy as ResultAccuracy,
)
from xlakit.compat.xla_client.records import (
    ScatterDimensionNumbers as ScatterDimensionNumbers,
)
from xlakit.compat.xla_client.records import (
    make_convolution_dimension_numbers as make_convolution_dimension_numbers,
)
from xlakit.compat.xla_client.records import (
    make_dot_dimension_numbers as make_dot_dimension_numbers,
)
from xlakit.compat.xla_client.records import (
    make_padding_config as make_padding_config,
)
from xlakit.compat.xla_client.records import (
    make_replica_groups as make_replica_groups,
)
from xlakit.compat.xla_client.records import (
    shape_from_pyval as shape_from_pyval,
)
from xlakit.compat.xla_client.records import (
    window_padding_type_to_pad_values as window_padding_type_to_pad_values,
)
from xlakit.compat.xla_client.runtime import ifrt_programs as ifrt_programs
from xlakit.compat.xla_client.runtime.array import (
    Array as Array,
)
from xlakit.compat.xla_client.runtime.array import (
    ArrayImpl as ArrayImpl,
)
from xlakit.compat.xla_client.runtime.array import (
    batched_block_until_ready as batched_block_until_ready,
)
from xlakit.compat.xla_client.runtime.array_shardings import (
    GSPMDSharding as GSPMDSharding,
)
from xlakit.compat.xla_client.runtime.array_shardings import (
    NamedSharding as NamedSharding,
)
from xlakit.compat.xla_client.runtime.array_shardings import (
    PmapSharding as PmapSharding,
)
from xlakit.compat.xla_client.runtime.array_shardings import (
    Sharding as Sharding,
)
from xlakit.compat.xla_client.runtime.array_shardings import (
    SingleDeviceSharding as SingleDeviceSharding,
)
from xlakit.compat.xla_client.runtime.client import (
    Client as Client,
)
from xlakit.compat.xla_client.runtime.client import (
    execute_with_python_values as execute_with_python_values,
)
from xlakit.compat.xla_client.runtime.client import (
    execute_with_python_values_replicated as execute_with_python_values_replicated,
)
from xlakit.compat.xla_client.runtime.client import (
    heap_profile as heap_profile,
)
from xlakit.compat.xla_client.runtime.client import (
    make_cpu_client as make_cpu_client,
)
from xlakit.compat.xla_client.runtime.device import (
    Device as Device,
)
from xlakit.compat.xla_client.runtime.device import (
    DeviceList as DeviceList,
)
from xlakit.compat.xla_client.runtime.device import (
    Memory as Memory,
)
from xlakit.compat.xla_client.runtime.device import (
    check_and_canonicalize_memory_kind as check_and_canonicalize_memory_kind,
)
from xlakit.compat.xla_client.runtime.executable import LoadedExecutable as LoadedExecutable
from xlakit.compat.xla_client.runtime.options import (
    CompileOptions as CompileOptions,
)
from xlakit.compat.xla_client.runtime.options import (
    DeviceAssignment as DeviceAssignment,
)
from xlakit.compat.xla_client.runtime.pjrt_layout import PjRtLayout as PjRtLayout
from xlakit.compat.xla_client.runtime.topology import (
    DeviceTopology as DeviceTopology,
)
from xlakit.compat.xla_client.runtime.topology import (
    generate_pjrt_gpu_plugin_options as generate_pjrt_gpu_plugin_options,
)
from xlakit.compat.xla_client.runtime.topology import (
    get_topology_for_devices as get_topology_for_devices,
)
from xlakit.compat.xla_client.runtime.topology import (
    initialize_pjrt_plugin as initialize_pjrt_plugin,
)
from xlakit.compat.xla_client.runtime.topology import (
    load_pjrt_plugin_dynamically as load_pjrt_plugin_dynamically,
)
from xlakit.compat.xla_client.runtime.topology import (
    load_pjrt_plugin_with_c_api as load_pjrt_plugin_with_c_api,
)
from xlakit.compat.xla_client.runtime.topology import (
    make_c_api_client as make_c_api_client,
)
from xlakit.compat.xla_client.runtime.topology import (
    make_c_api_device_topology as make_c_api_device_topology,
)
from xlakit.compat.xla_client.runtime.topology import (
    make_tfrt_tpu_c_api_device_topology as make_tfrt_tpu_c_api_device_topology,
)
from xlakit.compat.xla_client.runtime.topology import (
    make_tpu_client as make_tpu_client,
)
from xlakit.compat.xla_client.runtime.topology import (
    pjrt_plugin_initialized as pjrt_plugin_initialized,
)
from xlakit.compat.xla_client.runtime.topology import (
    pjrt_plugin_loaded as pjrt_plugin_loaded,
)
from xlakit.compat.xla_client.runtime.tracebacks import (
    Frame as Frame,
)
from xlakit.compat.xla_client.runtime.tracebacks import (
    Traceback as Traceback,
)
from xlakit.compat.xla_client.runtime.tracebacks import (
    tracebacks as tracebacks,
)
from xlakit.compat.xla_client.shapes import (
    Layout as Layout,
)
from xlakit.compat.xla_client.shapes import (
    ProgramShape as ProgramShape,
)
from xlakit.compat.xla_client.shapes import (
    Shape as Shape,
)
from xlakit.compat.xla_client.shapes import (
    ShapeIndex as ShapeIndex,
)
from xlakit.compat.xla_client.sharding import HloSharding as HloSharding
from xlakit.compat.xla_client.sharding import OpSharding as OpSharding
from xlakit.compat.xla_client.xla_extension import (
    array_result_handler as array_result_handler,
)
from xlakit.compat.xla_client.xla_extension import (
    batched_copy_array_to_devices_with_sharding as batched_copy_array_to_devices_with_sharding,
)
from xlakit.compat.xla_client.xla_extension import (
    batched_device_put as batched_device_put,
)
from xlakit.compat.xla_client.xla_extension import (
    hlo_sharding_util as hlo_sharding_util,
)
from xlakit.compat.xla_client.xla_extension import (
    reorder_shards as reorder_shards,
)

ResultAccuracyMode = ResultAccuracy_Mode
LoadedExecutable_execute = LoadedExecutable.execute
LoadedExecutable_execute_with_token = LoadedExecutable.execute_with_token

# jaxlib 0.6.0's numbers.
_version = 330
_ifrt_version = 5
mlir_api_version = 58

_xla = xla_extension
bfloat16 = XLA_ELEMENT_TYPE_TO_DTYPE[PrimitiveType.BF16].type
logger = logging.getLogger(__name__)
