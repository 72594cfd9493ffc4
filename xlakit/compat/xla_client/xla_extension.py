"""The names of jaxlib's ``xla_extension`` of release 0.6.0, which programs reach as ``xla_client._xla``."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from typing import Any

import numpy as np

from xlakit.compat.xla_client import guard_lib as guard_lib
from xlakit.compat.xla_client import mlir as mlir
from xlakit.compat.xla_client import ops as ops
from xlakit.compat.xla_client import profiler as profiler
from xlakit.compat.xla_client import sharding_util
from xlakit.compat.xla_client.computation import (
    FrontendAttributes as FrontendAttributes,
)
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
    custom_call_targets as custom_call_targets,
)
from xlakit.compat.xla_client.custom_calls import (
    encode_inspect_sharding_callback as encode_inspect_sharding_callback,
)
from xlakit.compat.xla_client.custom_calls import (
    register_custom_call_as_batch_partitionable as register_custom_call_as_batch_partitionable,
)
from xlakit.compat.xla_client.custom_calls import (
    register_custom_call_partitioner as register_custom_call_partitioner,
)
from xlakit.compat.xla_client.custom_calls import (
    register_custom_type_id as register_custom_type_id,
)
from xlakit.compat.xla_client.custom_calls import (
    register_on_host,
)
from xlakit.compat.xla_client.enums import (
    ArrayCopySemantics as ArrayCopySemantics,
)
from xlakit.compat.xla_client.enums import (
    AutotuneCacheMode as AutotuneCacheMode,
)
from xlakit.compat.xla_client.enums import (
    FftType as FftType,
)
from xlakit.compat.xla_client.enums import (
    HostBufferSemantics as HostBufferSemantics,
)
from xlakit.compat.xla_client.enums import (
    OpSharding_ShardGroupType as OpSharding_ShardGroupType,
)
from xlakit.compat.xla_client.enums import (
    OpSharding_Type as OpSharding_Type,
)
from xlakit.compat.xla_client.enums import (
    PrecisionConfig_Precision as PrecisionConfig_Precision,
)
from xlakit.compat.xla_client.enums import (
    PrimitiveType as PrimitiveType,
)
from xlakit.compat.xla_client.enums import (
    ResultAccuracy_Mode as ResultAccuracy_Mode,
)
from xlakit.compat.xla_client.errors import XlaRuntimeError as XlaRuntimeError
from xlakit.compat.xla_client.errors import with_status
from xlakit.compat.xla_client.hlo_module import (
    CallInliner as CallInliner,
)
from xlakit.compat.xla_client.hlo_module import (
    FlattenCallGraph as FlattenCallGraph,
)
from xlakit.compat.xla_client.hlo_module import (
    HloComputation as HloComputation,
)
from xlakit.compat.xla_client.hlo_module import (
    HloDCE as HloDCE,
)
from xlakit.compat.xla_client.hlo_module import (
    HloModule as HloModule,
)
from xlakit.compat.xla_client.hlo_module import (
    HloModuleGroup as HloModuleGroup,
)
from xlakit.compat.xla_client.hlo_module import (
    HloPassInterface as HloPassInterface,
)
from xlakit.compat.xla_client.hlo_module import (
    HloPrintOptions as HloPrintOptions,
)
from xlakit.compat.xla_client.hlo_module import (
    TupleSimplifier as TupleSimplifier,
)
from xlakit.compat.xla_client.hlo_module import (
    hlo_module_cost_analysis as hlo_module_cost_analysis,
)
from xlakit.compat.xla_client.hlo_module import (
    hlo_module_from_text as hlo_module_from_text,
)
from xlakit.compat.xla_client.hlo_module import (
    hlo_module_to_dot_graph as hlo_module_to_dot_graph,
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
from xlakit.compat.xla_client.runtime.array import (
    buffer_to_dlpack_managed_tensor as buffer_to_dlpack_managed_tensor,
)
from xlakit.compat.xla_client.runtime.array import (
    cuda_array_interface_to_buffer as cuda_array_interface_to_buffer,
)
from xlakit.compat.xla_client.runtime.array import (
    dlpack_managed_tensor_to_buffer as dlpack_managed_tensor_to_buffer,
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
from xlakit.compat.xla_client.runtime.client import Client as Client
from xlakit.compat.xla_client.runtime.client import make_cpu_client
from xlakit.compat.xla_client.runtime.debug_options import DebugOptions as DebugOptions
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
from xlakit.compat.xla_client.runtime.executable import (
    ExecuteResults as ExecuteResults,
)
from xlakit.compat.xla_client.runtime.executable import (
    LoadedExecutable as LoadedExecutable,
)
from xlakit.compat.xla_client.runtime.executable import (
    ShardedToken as ShardedToken,
)
from xlakit.compat.xla_client.runtime.executable import (
    Token as Token,
)
from xlakit.compat.xla_client.runtime.memory_stats import CompiledMemoryStats as CompiledMemoryStats
from xlakit.compat.xla_client.runtime.options import (
    CompileOptions as CompileOptions,
)
from xlakit.compat.xla_client.runtime.options import (
    DeviceAssignment as DeviceAssignment,
)
from xlakit.compat.xla_client.runtime.options import (
    ExecutableBuildOptions as ExecutableBuildOptions,
)
from xlakit.compat.xla_client.runtime.pjrt_layout import PjRtLayout as PjRtLayout
from xlakit.compat.xla_client.runtime.topology import (
    DeviceTopology as DeviceTopology,
)
from xlakit.compat.xla_client.runtime.topology import (
    get_topology_for_devices as get_topology_for_devices,
)
from xlakit.compat.xla_client.runtime.topology import (
    initialize_pjrt_plugin as initialize_pjrt_plugin,
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
    replace_thread_exc_traceback as replace_thread_exc_traceback,
)
from xlakit.compat.xla_client.shapes import (
    Layout as Layout,
)
from xlakit.compat.xla_client.shapes import (
    Literal as Literal,
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
from xlakit.compat.xla_client.weakref_lru_cache import (
    WeakrefLRUCache as WeakrefLRUCache,
)
from xlakit.compat.xla_client.weakref_lru_cache import (
    weakref_lru_cache as weakref_lru_cache,
)
from xlakit.errors import UnsupportedError

Executable = LoadedExecutable
ifrt_version_number = 5
get_tfrt_cpu_client = make_cpu_client
register_custom_call_target = register_on_host
hlo_sharding_util = sharding_util


def collect_garbage() -> None:
    """Run Python's garbage collector."""
    gc.collect()


def is_optimized_build() -> bool:
    """Whether this is built with optimization: yes."""
    return True


def is_asan() -> bool:
    """Whether this is built with a sanitizer: no."""
    return False


is_msan = is_tsan = is_sanitized = is_asan


@with_status
def batched_device_put(
    aval: Any,
    sharding: Any,
    xs: Sequence[Any],
    devices: Sequence[Device],
    committed: bool = True,
    force_copy: bool = False,
    host_buffer_semantics: HostBufferSemantics = HostBufferSemantics.ZERO_COPY,
) -> ArrayImpl:
    """An array on one device. Arrays of several devices are JAX's: those raise XlaRuntimeError."""
    if len(devices) != 1 or len(xs) != 1:
        raise UnsupportedError(
            f"an array on {len(devices)} devices is not supported", hint="put an array on each device, or use JAX"
        )
    value = xs[0] if isinstance(xs[0], ArrayImpl) else np.asarray(xs[0])
    made = devices[0].client.buffer_from_pyval(value, devices[0], force_copy, host_buffer_semantics)
    made.aval = aval
    return made


@with_status
def batched_copy_array_to_devices_with_sharding(
    arrays: Sequence[ArrayImpl],
    devices: Sequence[Sequence[Device]],
    shardings: Sequence[Any],
    array_copy_semantics: Sequence[ArrayCopySemantics],
    /,
) -> list[ArrayImpl]:
    """Copies of arrays, each on one device. Arrays of several devices are JAX's: those raise XlaRuntimeError."""
    if any(len(targets) != 1 for targets in devices):
        raise UnsupportedError("arrays on several devices are not supported", hint="copy them device by device")
    copies = [array.copy_to_device(targets[0]) for array, targets in zip(arrays, devices, strict=True)]
    for array, semantics in zip(arrays, array_copy_semantics, strict=True):
        if semantics is ArrayCopySemantics.DONATE_INPUT:
            array.delete()
    return copies


@with_status
def reorder_shards(x: ArrayImpl, dst_sharding: Any, array_copy_semantics: ArrayCopySemantics) -> ArrayImpl:
    """Raises XlaRuntimeError: arrays of several devices are JAX's."""
    raise UnsupportedError("arrays on several devices are not supported", hint="use JAX for those")


@with_status
def array_result_handler(aval: Any, sharding: Any, committed: bool, _skip_checks: bool = False) -> Any:
    """Raises XlaRuntimeError: the arrays of JAX, which have avals and shardings, are not made here."""
    raise UnsupportedError(
        "arrays with avals and shardings are not made here", hint="take the arrays of ExecuteResults as they are"
    )
