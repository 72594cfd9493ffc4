"""Runs programs on jaxlib's CPU backend, for comparison.

jaxlib is optional: nothing else in the package needs it. A program is converted from HLO to StableHLO, which jaxlib
compiles, so programs with operations that StableHLO lacks are unsupported (see UnsupportedError's text).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np

from xlakit.data.literal import Array
from xlakit.errors import ArgumentError, UnsupportedError, headline
from xlakit.ir.instruction import HloModule, Instruction
from xlakit.ir.operation import TOKEN
from xlakit.ops.communication.asynchronous import AsyncDone, CopyDone
from xlakit.ops.communication.transfer import Infeed, Outfeed
from xlakit.ops.control import Call, Fusion
from xlakit.ops.custom_call import CustomCall
from xlakit.ops.dynamic import AT_SIZES
from xlakit.ops.elementwise.convert import Bitcast
from xlakit.passes.core.framework import change_computations
from xlakit.passes.pipeline import run_pipeline


def require_jaxlib() -> None:
    """Load jaxlib. Raises UnsupportedError where it is not installed."""
    try:
        import jaxlib.xla_client  # noqa: F401 # pyright: ignore
    except ImportError as error:
        raise UnsupportedError(
            f"jaxlib cannot be imported: {error}", hint="pip install 'xlakit[jax]' brings it"
        ) from None


class JaxlibBackend:
    """jaxlib's CPU client. Make one and keep it: a client takes a while to start."""

    def __init__(self, device_count: int = 1) -> None:
        """Start a client with so many devices; raises UnsupportedError where jaxlib is not installed."""
        # Read when jaxlib is loaded: suppresses its log messages about its start.
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
        require_jaxlib()
        from jaxlib import _hlo, _jax, xla_client  # pyright: ignore

        # Extension modules without typing.
        self._hlo: Any = _hlo
        self._jax: Any = _jax
        self._client_module: Any = xla_client
        self._client = self._client_module.make_cpu_client(num_devices=device_count)
        _register_lapack()

    def run(self, module: HloModule | str | bytes, arguments: Sequence[Any]) -> Any:
        """The result of a module for one device, as the interpreter gives it.

        module: an HloModule, HLO text, or a serialized HloModuleProto.
        arguments: one NumPy array for each parameter, or a nested tuple of them for a parameter that is a tuple.

        Gives an array or a nested tuple of arrays. Raises UnsupportedError where jaxlib refuses the program.
        """
        return self.run_replicas(module, [arguments])[0]

    def run_replicas(self, module: HloModule | str | bytes, arguments: Sequence[Sequence[Any]]) -> list[Any]:
        """The result of each replica of a module, each given its own arguments. Raises UnsupportedError."""
        return self.prepare(module, arguments)()

    def prepare(self, module: HloModule | str | bytes, arguments: Sequence[Sequence[Any]]) -> Callable[[], list[Any]]:
        """Compile a module and copy each replica's arguments to its device; gives a function that runs it. Raises
        UnsupportedError.
        """
        return self.compile(module, len(arguments))(arguments)

    def compile(
        self, module: HloModule | str | bytes, count: int
    ) -> Callable[[Sequence[Sequence[Any]]], Callable[[], list[Any]]]:
        """Compile a module for so many replicas; gives a function that copies each replica's arguments to its device,
        which gives one that runs the module. Raises UnsupportedError, as both of them do.
        """
        devices = self._client.local_devices()[:count]
        if count == 0 or len(devices) < count:
            raise ArgumentError(
                f"{count} devices are needed, the client has {len(devices)}",
                hint=f"set XLA_FLAGS=--xla_force_host_platform_device_count={max(count, 1)}",
            )
        with _refusals():
            hlo = self._read(module)
            executable = self._compile(hlo, devices)
            result = self._hlo.XlaComputation(hlo.as_serialized_hlo_module_proto()).program_shape().result_shape()

        def put(arguments: Sequence[Sequence[Any]]) -> Callable[[], list[Any]]:
            with _refusals():
                on_devices = self._put_on_devices([list(_leaves(values)) for values in arguments], devices)

            def execute() -> list[Any]:
                with _refusals():
                    outputs = executable.execute_sharded(on_devices).disassemble_into_single_device_arrays()
                    return [self._all_gather(result, iter(outputs), device) for device in range(count)]

            return execute

        return put

    def parse(self, text: str) -> Any:
        """The module that jaxlib's own parser gives. Raises UnsupportedError where its parser refuses it."""
        with _refusals():
            return self._hlo.hlo_module_from_text(text)

    def _read(self, module: HloModule | str | bytes) -> Any:
        if isinstance(module, str):
            return self._hlo.hlo_module_from_text(module)
        if isinstance(module, HloModule):
            if any(isinstance(i.op, Infeed | Outfeed) for i in module.instructions):
                raise UnsupportedError(
                    "jaxlib's CPU has nothing at the other end of an infeed or outfeed, and waits",
                    hint="compare with the interpreter",
                )
            # Its results are new ones here, and those of a tuple of one element no tuple to jaxlib.
            module = module.replace(input_output_alias=(), buffer_donor=())
            if any(isinstance(i.op, AsyncDone | CopyDone) for i in module.instructions):
                # StableHLO has no asynchronous calls, and jaxlib's CPU no asynchronous copies.
                module = run_pipeline(module, ["expand", "inline-calls"])
            if any(isinstance(i.op, Fusion | Bitcast) for i in module.instructions):
                # The conversion to StableHLO drops layouts: jaxlib refuses bitcasts that depend on them, and aborts if
                # they are missing in a fusion.
                module = run_pipeline(_with_calls(module), ["inline-calls", "normalize-layouts"])
                if any(
                    i.op.custom_call_target == AT_SIZES for i in module.instructions if isinstance(i.op, CustomCall)
                ):
                    raise UnsupportedError(
                        "a bitcast between arrays of different tiles is not given to jaxlib",
                        hint="compare with the interpreter",
                    )
        data = module.to_proto() if isinstance(module, HloModule) else module
        return self._hlo.HloModule.from_serialized_hlo_module_proto(data)

    def _compile(self, hlo: Any, devices: Sequence[Any]) -> Any:
        computation = self._hlo.XlaComputation(hlo.as_serialized_hlo_module_proto())
        mlir = self._jax.mlir.xla_computation_to_mlir_module(computation)
        options = self._client_module.CompileOptions()
        options.num_replicas = len(devices)
        numbers = np.arange(len(devices)).reshape(-1, 1)
        options.device_assignment = self._client_module.DeviceAssignment.create(numbers)
        options.executable_build_options.debug_options.xla_cpu_enable_fast_math = False
        return self._client.compile_and_load(mlir, self._client_module.DeviceList(tuple(devices)), options)

    def _put_on_devices(self, values: Sequence[Sequence[Array]], devices: Sequence[Any]) -> list[Any]:
        """One array of jaxlib for each parameter, holding each device's value."""
        alone = [self._sharding([device]) for device in devices]
        everywhere = self._sharding(devices)
        whole_arrays: list[Any] = []
        for shards in zip(*values, strict=True):
            aval = _Aval(shards[0])
            # Put on each device separately: a put with a replicated sharding would copy the first value to all devices.
            parts = [
                self._jax.batched_device_put(aval, sharding, [shard], [device], enable_x64=True)
                for shard, sharding, device in zip(shards, alone, devices, strict=True)
            ]
            whole_arrays.append(
                parts[0] if len(parts) == 1 else self._jax.ArrayImpl(aval, everywhere, parts, True, True)
            )
        return whole_arrays

    def _sharding(self, devices: Sequence[Any]) -> Any:
        hlo, base = self._hlo, self._jax.GSPMDSharding

        class Replicated(base):
            """A whole value on each device, with the two members that jaxlib reads of JAX's sharding classes."""

            memory_kind = None

            def _to_xla_hlo_sharding(self, num_dimensions: int) -> Any:
                return hlo.HloSharding.replicate()

        return Replicated(self._client_module.DeviceList(tuple(devices)), hlo.HloSharding.replicate())

    def _all_gather(self, shape: Any, outputs: Iterator[Any], device: int) -> Any:
        """The value of a shape, from the flat list of outputs."""
        if shape.is_tuple():
            return tuple(self._all_gather(element, outputs, device) for element in shape.tuple_shapes())
        output = next(outputs)[device]
        if not shape.is_array():
            return None  # a token, as the interpreter gives it
        array, _ = output._single_device_array_to_np_array_did_copy()  # pyright: ignore[reportPrivateUsage]
        return array


def _with_calls(module: HloModule) -> HloModule:
    """The module with calls in place of fusions, which compute the same."""

    def change(old: Instruction, operands: tuple[Instruction, ...]) -> Instruction:
        if not isinstance(old.op, Fusion):
            return old if operands == old.operands else old.replace(operands=operands)
        return old.replace(op=Call(to_apply=old.op.calls), operands=operands)

    return change_computations(module, lambda computation: computation.rebuild(change))


@cache
def _register_lapack() -> None:
    """Register LAPACK's functions with jaxlib, as JAX does when it is imported."""
    from jaxlib import lapack, xla_client  # pyright: ignore

    # An extension module without typing.
    library: Any = lapack._lapack  # pyright: ignore[reportPrivateUsage, reportPrivateImportUsage]
    # JAX does this when it first needs one of them; called before, they would end the process.
    library.initialize()
    if "jax" in sys.modules:
        return
    for name, function, version in lapack.registrations()["cpu"]:
        xla_client.register_custom_call_target(name, function, platform="cpu", api_version=version)


@contextmanager
def _refusals() -> Generator[None]:
    """Convert jaxlib's exceptions to UnsupportedError with the headlines of their messages."""
    try:
        yield
    except UnsupportedError:
        raise
    # IndexError: a program names devices that the client has not.
    except (RuntimeError, ValueError, IndexError, NotImplementedError) as error:
        raise UnsupportedError(
            f"jaxlib does not run this program: {headline(error)}", hint="run it with xlakit alone"
        ) from None


class _Aval:
    """The attributes of an array's type that jaxlib reads when the array is put on devices."""

    def __init__(self, array: Array) -> None:
        self.shape, self.dtype, self.ndim = array.shape, array.dtype, array.ndim
        self.weak_type = False


def _leaves(value: Any) -> Iterator[Array]:
    if isinstance(value, (tuple, list)):
        for element in value:  # pyright: ignore[reportUnknownVariableType]
            yield from _leaves(element)
    elif value is TOKEN:
        raise UnsupportedError("tokens are not given to jaxlib", hint="leave the tokens out of the entry's parameters")
    else:
        yield np.array(value, order="C")
