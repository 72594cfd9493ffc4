"""The names of jaxlib's ``xla_extension`` of release 0.6.0, which programs reach as ``xla_client._xla``."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from typing import Any

import numpy as np

from xlakit.compat.xla_client import (
    config as config,
    guard_lib as guard_lib,
    jax_jit as jax_jit,
    mlir as mlir,
    ops as ops,
    profiler as profiler,
    pytree as pytree,
    sharding_util,
)
from xlakit.compat.xla_client.computation import (
    FrontendAttributes as FrontendAttributes,
    XlaBuilder as XlaBuilder,
    XlaComputation as XlaComputation,
    XlaOp as XlaOp,
)
from xlakit.compat.xla_client.custom_calls import (
    custom_call_targets as custom_call_targets,
    encode_inspect_sharding_callback as encode_inspect_sharding_callback,
    register_custom_call_as_batch_partitionable as register_custom_call_as_batch_partitionable,
    register_custom_call_partitioner as register_custom_call_partitioner,
    register_on_host,
    register_type_on_host,
)
from xlakit.compat.xla_client.enums import (
    ArrayCopySemantics as ArrayCopySemantics,
    AutotuneCacheMode as AutotuneCacheMode,
    HostBufferSemantics as HostBufferSemantics,
    OpSharding_ShardGroupType as OpSharding_ShardGroupType,
    OpSharding_Type as OpSharding_Type,
    PrecisionConfig_Precision as PrecisionConfig_Precision,
    PrimitiveType as PrimitiveType,
    ResultAccuracy_Mode as ResultAccuracy_Mode,
)
from xlakit.compat.xla_client.errors import XlaRuntimeError as XlaRuntimeError, with_status
from xlakit.compat.xla_client.hlo_module import (
    CallInliner as CallInliner,
    FlattenCallGraph as FlattenCallGraph,
    HloComputation as HloComputation,
    HloDCE as HloDCE,
    HloModule as HloModule,
    HloModuleGroup as HloModuleGroup,
    HloPassInterface as HloPassInterface,
    HloPrintOptions as HloPrintOptions,
    TupleSimplifier as TupleSimplifier,
    hlo_module_cost_analysis as hlo_module_cost_analysis,
    hlo_module_from_text as hlo_module_from_text,
    hlo_module_to_dot_graph as hlo_module_to_dot_graph,
)
from xlakit.compat.xla_client.runtime import ifrt_programs as ifrt_programs
from xlakit.compat.xla_client.runtime.array import (
    Array as Array,
    ArrayImpl as ArrayImpl,
    batched_block_until_ready as batched_block_until_ready,
    buffer_to_dlpack_managed_tensor as buffer_to_dlpack_managed_tensor,
    cuda_array_interface_to_buffer as cuda_array_interface_to_buffer,
    dlpack_managed_tensor_to_buffer as dlpack_managed_tensor_to_buffer,
)
from xlakit.compat.xla_client.runtime.array_shardings import (
    GSPMDSharding as GSPMDSharding,
    NamedSharding as NamedSharding,
    PmapSharding as PmapSharding,
    Sharding as Sharding,
    SingleDeviceSharding as SingleDeviceSharding,
)
from xlakit.compat.xla_client.runtime.client import Client as Client, make_cpu_client
from xlakit.compat.xla_client.runtime.debug_options import DebugOptions as DebugOptions
from xlakit.compat.xla_client.runtime.device import (
    Device as Device,
    DeviceList as DeviceList,
    Memory as Memory,
    check_and_canonicalize_memory_kind as check_and_canonicalize_memory_kind,
)
from xlakit.compat.xla_client.runtime.executable import (
    ExecuteResults as ExecuteResults,
    LoadedExecutable as LoadedExecutable,
    ShardedToken as ShardedToken,
    Token as Token,
)
from xlakit.compat.xla_client.runtime.heap_profile import (
    json_to_pprof_profile as json_to_pprof_profile,
    pprof_profile_to_json as pprof_profile_to_json,
)
from xlakit.compat.xla_client.runtime.memory_stats import CompiledMemoryStats as CompiledMemoryStats
from xlakit.compat.xla_client.runtime.options import (
    CompileOptions as CompileOptions,
    DeviceAssignment as DeviceAssignment,
    ExecutableBuildOptions as ExecutableBuildOptions,
)
from xlakit.compat.xla_client.runtime.pjrt_layout import PjRtLayout as PjRtLayout
from xlakit.compat.xla_client.runtime.topology import (
    CompileOnlyPyClient as CompileOnlyPyClient,
    DeviceTopology as DeviceTopology,
    get_topology_for_devices as get_topology_for_devices,
    initialize_pjrt_plugin as initialize_pjrt_plugin,
    pjrt_plugin_initialized as pjrt_plugin_initialized,
    pjrt_plugin_loaded as pjrt_plugin_loaded,
)
from xlakit.compat.xla_client.runtime.tracebacks import (
    Frame as Frame,
    Traceback as Traceback,
    replace_thread_exc_traceback as replace_thread_exc_traceback,
)
from xlakit.compat.xla_client.shapes import (
    Layout as Layout,
    ProgramShape as ProgramShape,
    Shape as Shape,
    ShapeIndex as ShapeIndex,
)
from xlakit.compat.xla_client.sharding import HloSharding as HloSharding, OpSharding as OpSharding
from xlakit.compat.xla_client.text.literals import Literal as Literal
from xlakit.compat.xla_client.weakref_lru_cache import (
    WeakrefLRUCache as WeakrefLRUCache,
    weakref_lru_cache as weakref_lru_cache,
)
from xlakit.errors import UnsupportedError
from xlakit.ir.enums import FftType as FftType

Executable = LoadedExecutable
ifrt_version_number = 5
get_tfrt_cpu_client = make_cpu_client
register_custom_call_target = register_on_host
register_custom_type_id = register_type_on_host
hlo_sharding_util = sharding_util


def __getattr__(name: str) -> Any:
    if name == "PyTreeRegistry":
        return pytree.PyTreeRegistry
    raise AttributeError(f"xla_extension has no attribute '{name}'")


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
