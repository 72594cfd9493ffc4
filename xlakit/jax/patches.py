"""What of JAX's own Python asks for more of a platform than its interface lets it say, and what stands there instead.

Text: an executable's text is read back from a proto. Ours has the fusions and calls of our passes, which that reader
does not know all of.
Costs: what a program costs that is not compiled, jaxlib counts for clients of its own alone.
DLPack, from others: jaxlib takes tensors in any order of memory as they are. Ours are copied, but for major to minor.

The rest goes by the platform's name, and is as it should be where that is ``cpu``:

DLPack, to others: jaxlib's own function knows the memory of its platforms by their names, and no other. A device of
ours is the processor, so its arrays are what NumPy makes of them.
NumPy's arrays: ``jnp.asarray(a, copy=False)`` is for platforms that JAX knows to share NumPy's memory.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from xlakit.ir.operation import Array
from xlakit.jax.identity import CPU as CPU_PLATFORM
from xlakit.runtime.dlpack import CPU, exported, imported

Text = Callable[[str], str | None]


def replace(text_of: Text, platform: str, *, is_default: bool) -> None:
    """Put ours in their place, where arrays and executables are of our platform.

    text_of: the text of the program of a fingerprint, if it is ours. is_default: whether arrays without an explicit
    device are on our platform; then what other libraries have in the processor's memory comes to it, too.
    """
    _replace_text(text_of)
    _replace_cost_analysis(platform)
    if is_default or platform == CPU_PLATFORM:
        _replace_import(platform)
    if platform != CPU_PLATFORM:
        _replace_export(platform)
        _replace_platform(platform)


def _replace_text(text_of: Text) -> None:
    from jax._src import stages

    executable: Any = stages.Executable
    theirs: Any = executable.as_text

    def as_text(self: Any) -> str:
        """The program after the compiler's passes, as HLO text."""
        loaded = self.xla_extension_executable()
        fingerprint = getattr(loaded, "fingerprint", None)
        text = None if fingerprint is None else text_of(fingerprint.decode())
        return theirs(self) if text is None else text

    executable.as_text = as_text


def _replace_cost_analysis(platform: str) -> None:
    from jax._src.interpreters import pxla

    computation: Any = pxla.MeshComputation
    theirs: Any = computation.cost_analysis

    def cost_analysis(self: Any) -> dict[str, float]:
        """What a call costs before the compiler's passes, counted as they count behind them."""
        if self.compile_args["backend"].platform != platform:
            return theirs(self)
        # Few programs ask, and JAX begins sooner without.
        from xlakit.formats.hlo_proto import read_module
        from xlakit.passes.analysis.cost import cost_of

        return cost_of(read_module(self.hlo().as_serialized_hlo_module_proto())).as_dict()

    computation.cost_analysis = cost_analysis


def _replace_export(ours: str) -> None:
    from jax._src import array, dlpack

    module: Any = dlpack
    implementation: Any = array.ArrayImpl
    their_export: Any = module.to_dlpack
    their_device: Any = implementation.__dlpack_device__

    def to_dlpack(x: Any, stream: Any = None, src_device: Any = None, dl_device: Any = None, **options: Any) -> object:
        platform = x.platform() if isinstance(x, implementation) else None
        if platform != ours:
            is_there = dl_device is not None and dl_device[0] == CPU[0] and platform == CPU_PLATFORM
            return their_export(x, stream, src_device, None if is_there else dl_device, **options)
        if stream is not None:
            raise BufferError("the processor has no streams; DLPack's stream is None for it")
        view = np.asarray(x)
        place = None if dl_device is None else (int(dl_device[0]), int(dl_device[1]))
        return exported(view, _shared(view), options.get("max_version"), place, options.get("copy"))

    def __dlpack_device__(self: Any) -> tuple[Any, int]:  # noqa: N807
        return CPU if self.platform() == ours else their_device(self)

    module.to_dlpack = to_dlpack
    implementation.__dlpack_device__ = __dlpack_device__


def _replace_platform(ours: str) -> None:
    """What makes arrays of other objects asks for a platform in one place alone: where no copy is allowed."""
    from jax._src.numpy import array_constructors

    module: Any = array_constructors
    theirs: Any = module._get_platform

    def platform_of(place: Any) -> str:
        platform: str = theirs(place)
        return CPU_PLATFORM if platform == ours else platform

    module._get_platform = platform_of


def _replace_import(ours: str) -> None:
    """What lies major to minor, JAX's own function reads where it is; the rest comes as a copy."""
    import jax.dlpack
    from jax._src import dlpack

    module: Any = dlpack
    theirs: Any = module.from_dlpack
    module._DL_DEVICE_TO_PLATFORM[module.DLDeviceType.kDLCPU] = ours

    def from_dlpack(external_array: Any, device: Any = None, copy: bool | None = None) -> Any:
        if hasattr(external_array, "__dlpack_device__") and tuple(external_array.__dlpack_device__()) == CPU:
            array = imported(external_array)
            is_plain = array.flags.c_contiguous and array.flags.aligned
            if copy is False and not is_plain:
                raise ValueError("the tensor does not lie major to minor, and copy is False")
            if copy or not is_plain:
                return jax.device_put(np.array(array, order="C"), device)
        return theirs(external_array, device, copy)

    places: list[Any] = [module, jax.dlpack]
    for place in places:
        place.from_dlpack = functools.wraps(theirs)(from_dlpack)


def _shared(view: Array) -> Array:
    """An array in the memory of one that cannot be written to, for interfaces that cannot say so."""
    memory: Any = (ctypes.c_uint8 * view.nbytes).from_address(view.ctypes.data)
    # As long as the memory is in use there, no program is given it.
    memory.owner = view
    array = np.ndarray(view.shape, view.dtype, memory)
    array.setflags(write=False)
    return array
