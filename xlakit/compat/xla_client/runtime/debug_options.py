"""DebugOptions: XLA's flags as fields, which are stored; only those for dumps have an effect on xlakit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from xlakit.compat.xla_client.binding import MisfitError, convert_of, incompatible, no_constructor
from xlakit.compat.xla_client.enums import AutotuneCacheMode

_DEFAULTS: dict[str, Any] = {
    "xla_backend_optimization_level": 3,
    "xla_cpu_enable_fast_math": False,
    "xla_cpu_enable_xprof_traceme": False,
    "xla_cpu_fast_math_honor_division": True,
    "xla_cpu_fast_math_honor_functions": True,
    "xla_cpu_fast_math_honor_infs": True,
    "xla_cpu_fast_math_honor_nans": True,
    "xla_detailed_logging": True,
    "xla_disable_hlo_passes": "",
    "xla_dump_compress_protos": False,
    "xla_dump_disable_metadata": False,
    "xla_dump_fusion_visualization": False,
    "xla_dump_hlo_as_dot": False,
    "xla_dump_hlo_as_html": False,
    "xla_dump_hlo_as_long_text": True,
    "xla_dump_hlo_as_proto": False,
    "xla_dump_hlo_as_text": False,
    "xla_dump_hlo_as_url": False,
    "xla_dump_hlo_module_re": "",
    "xla_dump_hlo_pass_re": "",
    "xla_dump_hlo_pipeline_re": "",
    "xla_dump_hlo_snapshots": False,
    "xla_dump_max_hlo_modules": -1,
    "xla_dump_module_metadata": False,
    "xla_dump_to": "",
    "xla_enable_dumping": True,
    "xla_enable_hlo_passes_only": "",
    "xla_force_host_platform_device_count": 1,
    "xla_gpu_cuda_data_dir": "./cuda_sdk_lib",
    "xla_gpu_dump_autotune_logs_to": "",
    "xla_gpu_dump_autotune_results_to": "",
    "xla_gpu_enable_fast_min_max": False,
    "xla_gpu_enable_llvm_module_compilation_parallelism": False,
    "xla_gpu_experimental_autotune_cache_mode": AutotuneCacheMode.UPDATE,
    "xla_gpu_kernel_cache_file": "",
    "xla_gpu_load_autotune_results_from": "",
    "xla_gpu_per_fusion_autotune_cache_dir": "",
    "xla_llvm_disable_expensive_passes": False,
    "xla_test_all_input_layouts": False,
}


class DebugOptions:
    """XLA's flags that jaxlib lets programs set; they are a part of the options of an executable.

    A value that does not fit the type of the default raises TypeError; numbers have 32 bits.
    """

    __slots__ = tuple(_DEFAULTS)

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

    __init__ = no_constructor

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _DEFAULTS:
            kind = type(_DEFAULTS[name])
            try:
                value = _converted(kind, value)
            except MisfitError:
                raise incompatible(name, f"{name} is {kind.__name__}, got {value!r}") from None
        object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        return "".join(f"{name}: {_text(getattr(self, name))}\n" for name in _DEFAULTS if getattr(self, name))


def default_debug_options() -> DebugOptions:
    """The options as XLA has them by default."""
    made = DebugOptions.__new__(DebugOptions)
    for name, value in _DEFAULTS.items():
        setattr(made, name, value)
    return made


def _converted(kind: type, value: Any) -> Any:
    """A value of this type: numbers are of 32 bits, or those of the members of an enumeration. Raises MisfitError."""
    if kind is AutotuneCacheMode and not isinstance(value, AutotuneCacheMode):
        try:
            return AutotuneCacheMode(convert_of(int)(value))
        except ValueError:
            raise MisfitError from None
    made = convert_of(kind)(value)
    if kind is int and not -(2**31) <= made < 2**31:
        raise MisfitError
    return made


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else getattr(value, "name", str(value))
