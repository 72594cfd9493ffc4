"""Replacements of functions of JAX that PJRT's interface does not support.

Text of an executable: JAX parses a proto with jaxlib, which cannot read all fusions and calls of our passes.
Module of an executable: for shapes and shardings jaxlib gets an outline of the program; other requests need all of it.
Cost analysis of a program that is not compiled: jaxlib supports its own clients only.
Client of a process of jax.distributed: jaxlib's watches the other processes for a plugin, which is told of them by its
own exchange, and logs an error when the job ends during the watch.
DLPack import: jaxlib takes tensors of any layout. Here a tensor that is not major to minor is copied.

The others depend on the name of the platform, and are not needed if that is ``cpu``:

DLPack export: jaxlib's function supports only its own platforms. A device of xlakit is the processor, so its arrays are
exported like NumPy's.
NumPy's arrays: ``jnp.asarray(a, copy=False)`` accepts only platforms that JAX knows to share NumPy's memory.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from xlakit.jax.identity import CPU as CPU_PLATFORM

if TYPE_CHECKING:
    from xlakit.ir.operation import Array

Text = Callable[[str], str | None]
# kDLCPU, device 0.
_CPU: Final = (1, 0)


def replace(
    text_of: Text, whole: Callable[[], AbstractContextManager[None]], platform: str, *, is_default: bool
) -> None:
    """Replace them; the new functions act on arrays and executables of our platform, and call JAX's for all others.

    text_of: gives the text of the program with a fingerprint, or None if it is not ours. whole: a context in which
    jaxlib gets whole programs instead of outlines. is_default: whether arrays without an explicit device are on our
    platform; then DLPack tensors in the processor's memory are imported to it, too.
    """
    _replace_text(text_of)
    _replace_module(whole)
    _replace_cost_analysis(platform)
    _replace_client(platform)
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


def _replace_client(platform: str) -> None:
    from jax._src import lib

    library: Any = lib
    client = library.xla_client
    theirs: Callable[..., Any] = client.make_c_api_client

    def make_c_api_client(name: str, options: Any, service: Any, *more: Any) -> Any:
        """A plugin's client; ours does not get the coordination service."""
        return theirs(name, options, None if name == platform else service, *more)

    client.make_c_api_client = make_c_api_client


def _replace_module(whole: Callable[[], AbstractContextManager[None]]) -> None:
    from jax._src import lib

    library: Any = lib
    executable = library.xla_client._xla.LoadedExecutable

    def asking(theirs: Any) -> Any:
        def asked(self: Any) -> Any:
            with whole():
                return theirs(self)

        return asked

    executable.hlo_modules = asking(executable.hlo_modules)
    executable.get_hlo_text = asking(executable.get_hlo_text)


def _replace_cost_analysis(platform: str) -> None:
    from jax._src.interpreters import pxla

    computation: Any = pxla.MeshComputation
    theirs: Any = computation.cost_analysis

    def cost_analysis(self: Any) -> dict[str, float]:
        """The cost of a call before the compiler's passes, by the cost analysis that is used after them."""
        if self.compile_args["backend"].platform != platform:
            return theirs(self)
        # Imported here, so that importing JAX takes no longer.
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
            is_there = dl_device is not None and dl_device[0] == _CPU[0] and platform == CPU_PLATFORM
            return their_export(x, stream, src_device, None if is_there else dl_device, **options)
        if stream is not None:
            raise BufferError("the processor has no streams; DLPack's stream is None for it")
        view = np.asarray(x)
        target = None if dl_device is None else (int(dl_device[0]), int(dl_device[1]))
        from xlakit.runtime.dlpack import exported

        return exported(view, _shared(view), options.get("max_version"), target, options.get("copy"))

    def __dlpack_device__(self: Any) -> tuple[Any, int]:  # noqa: N807
        return _CPU if self.platform() == ours else their_device(self)

    module.to_dlpack = to_dlpack
    implementation.__dlpack_device__ = __dlpack_device__


def _replace_platform(ours: str) -> None:
    """JAX's array constructors ask for the platform only if no copy is allowed."""
    from jax._src.numpy import array_constructors

    module: Any = array_constructors
    theirs: Any = module._get_platform

    def platform_of(device: Any) -> str:
        platform: str = theirs(device)
        return CPU_PLATFORM if platform == ours else platform

    module._get_platform = platform_of


def _replace_import(ours: str) -> None:
    """JAX's own function imports tensors that are major to minor; others are copied first."""
    import jax.dlpack
    from jax._src import dlpack

    module: Any = dlpack
    theirs: Any = module.from_dlpack
    module._DL_DEVICE_TO_PLATFORM[module.DLDeviceType.kDLCPU] = ours

    def from_dlpack(external_array: Any, device: Any = None, copy: bool | None = None) -> Any:
        if hasattr(external_array, "__dlpack_device__") and tuple(external_array.__dlpack_device__()) == _CPU:
            from xlakit.runtime.dlpack import imported

            array = imported(external_array)
            is_plain = array.flags.c_contiguous and array.flags.aligned
            if copy is False and not is_plain:
                raise ValueError("the tensor does not lie major to minor, and copy is False")
            if copy or not is_plain:
                return jax.device_put(np.array(array, order="C"), device)
        return theirs(external_array, device, copy)

    owners: list[Any] = [module, jax.dlpack]
    for owner in owners:
        owner.from_dlpack = functools.wraps(theirs)(from_dlpack)


def _shared(view: Array) -> Array:
    """A read-only array over a view's memory that can be made writable, for consumers that know no read-only arrays."""
    memory: Any = (ctypes.c_uint8 * view.nbytes).from_address(view.ctypes.data)
    # Keeps the view alive: while it exists, no program may write to the memory.
    memory.owner = view
    array = np.ndarray(view.shape, view.dtype, memory)
    array.setflags(write=False)
    return array
