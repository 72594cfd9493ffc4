"""Programs and options in the form that ``Client.compile_ifrt_program`` takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from xlakit.compat.xla_client.binding import bound
from xlakit.compat.xla_client.errors import with_status
from xlakit.compat.xla_client.mlir import program_of
from xlakit.compat.xla_client.runtime.options import CompileOptions as _CompileOptions
from xlakit.errors import UnsupportedError
from xlakit.ir.instruction import HloModule as OurModule


class Program:
    """A program."""

    __slots__ = ("module",)

    def __init__(self, module: OurModule) -> None:
        self.module = module


class XlaCompileOptions:
    """Options of a program, and its callbacks of the host."""

    __slots__ = ("host_callbacks", "options")

    def __init__(self, options: _CompileOptions, host_callbacks: Sequence[Any]) -> None:
        self.options = options
        self.host_callbacks = list(host_callbacks)


CompileOptions = XlaCompileOptions


@bound
def make_hlo_program(mlir_module: str | bytes) -> Program:
    """A program of an MLIR module. Raises XlaRuntimeError for what is none."""
    return Program(program_of(mlir_module))


@bound
def make_xla_compile_options(options: _CompileOptions, host_callbacks: Sequence[Any] = ()) -> XlaCompileOptions:
    """Options for :func:`make_hlo_program`'s programs."""
    return XlaCompileOptions(options, host_callbacks)


@with_status
def make_plugin_program(data: str | bytes) -> Program:
    """Raises XlaRuntimeError: programs of other plugins cannot run here."""
    raise UnsupportedError("a program in a plugin's own form is not supported", hint="use make_hlo_program")


@with_status
def make_plugin_compile_options() -> XlaCompileOptions:
    """Raises XlaRuntimeError: options of other plugins have no meaning here."""
    raise UnsupportedError("options in a plugin's own form are not supported", hint="use make_xla_compile_options")


@with_status
def make_colocated_python_program(
    name: str,
    pickled_function: bytes,
    devices: Sequence[Any],
    input_avals: Sequence[Any],
    output_avals: Sequence[Any],
) -> Program:
    """Raises XlaRuntimeError: Python functions run by custom calls."""
    raise UnsupportedError("Python programs are not supported", hint="use xlakit.register_custom_call")


@with_status
def make_colocated_python_compile_options() -> XlaCompileOptions:
    """Raises XlaRuntimeError: Python functions run by custom calls."""
    raise UnsupportedError("Python programs are not supported", hint="use xlakit.register_custom_call")
