"""Programs as MLIR modules, which :meth:`Client.compile` takes.

The conversions are jaxlib's, where one is installed. Without it a program travels as its HLO: a module with the
attribute ``xlakit.hlo``, the serialized HloModuleProto in base64. Text that was made here remembers its program, so
that compiling it needs neither a conversion back nor jaxlib.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import Any

from xlakit.compat.xla_client.binding import bound
from xlakit.compat.xla_client.computation import XlaComputation
from xlakit.compat.xla_client.errors import as_status
from xlakit.compat.xla_client.text.numbering import converted_module
from xlakit.errors import FormatError, XlakitError
from xlakit.formats import stablehlo
from xlakit.ir.instruction import HloModule as OurModule

_CARRIED = re.compile(r'xlakit\.hlo\s*=\s*"([A-Za-z0-9+/=]*)"')


class ModuleText(str):
    """The text of an MLIR module, and the program that it was made of."""

    __slots__ = ("program",)

    program: OurModule


@bound
def xla_computation_to_mlir_module(computation: XlaComputation) -> str:
    """The text of a StableHLO module with a function ``main``; without jaxlib, of a module that carries the HLO."""
    made = ModuleText(_text(computation.wrapped))
    made.program = computation.wrapped
    return made


def _text(module: OurModule) -> str:
    try:
        return stablehlo.stablehlo_text(module)
    except XlakitError:
        # jaxlib is not there, or StableHLO lacks what the program has.
        data = base64.b64encode(module.to_proto()).decode()
        return f'module @{_symbol(module.name)} attributes {{xlakit.hlo = "{data}"}} {{\n}}\n'


def _symbol(name: str) -> str:
    return re.sub(r"[^\w.$-]", "_", name) or "main"


def program_of(module: str | bytes) -> OurModule:
    """The program of an MLIR module, as text or bytecode. Raises XlaRuntimeError."""
    if isinstance(module, ModuleText):
        return module.program
    text = module if isinstance(module, str) else module.decode("utf-8", "replace")
    if text.lstrip().startswith("HloModule"):
        return OurModule.from_text(text)
    carried = _carried(text)
    return _read(module) if carried is None else carried


def _carried(text: str) -> OurModule | None:
    """The program that a text carries as HLO; None if it carries none."""
    found = _CARRIED.search(text)
    if found is None:
        return None
    try:
        return OurModule.from_proto(base64.b64decode(found[1], validate=True))
    except binascii.Error as error:
        raise FormatError(f"the attribute xlakit.hlo is damaged: {error}", hint="convert the program again") from None


@bound
def mlir_module_to_xla_computation(
    mlir_module: str | bytes, use_tuple_args: bool = False, return_tuple: bool = False
) -> XlaComputation:
    """The computation of a StableHLO module, with one tuple of its arguments, or of its results, where asked for."""
    text = mlir_module if isinstance(mlir_module, str) else mlir_module.decode("utf-8", "replace")
    if not use_tuple_args and not return_tuple and (carried := _carried(text)) is not None:
        return XlaComputation.of(carried)
    made = _read(mlir_module, use_tuple_args=use_tuple_args, return_tuple=return_tuple)
    return XlaComputation.of(converted_module(made))


def _read(module: str | bytes, **options: Any) -> OurModule:
    try:
        return stablehlo.read_stablehlo(module, **options)
    except FormatError as error:
        # MLIR's parser has no status: all of its errors are of this one.
        raise as_status(error, code="UNKNOWN") from error


@bound
def hlo_to_stablehlo(computation: bytes) -> bytes:
    """The StableHLO bytecode of a serialized HloModuleProto."""
    return stablehlo.stablehlo_bytecode(OurModule.from_proto(computation))


def mhlo_to_stablehlo(mlir_module: str | bytes) -> bytes:
    """MHLO as StableHLO: the dialect is gone from jaxlib, so that only StableHLO is left to give back."""
    return serialize_portable_artifact(mlir_module, "")


@bound
def serialize_portable_artifact(mlir_module: str | bytes, target: str) -> bytes:
    """A portable artifact of a StableHLO module for a version of StableHLO, by default the current one."""
    return stablehlo.portable_artifact(mlir_module, target)


@bound
def deserialize_portable_artifact(mlir_module: bytes) -> str:
    """The text of a portable artifact."""
    return stablehlo.artifact_text(mlir_module)


@bound
def refine_polymorphic_shapes(
    mlir_module: bytes,
    enable_shape_assertions: bool = True,
    validate_static_shapes: bool = True,
    enable_shardy: bool = False,
) -> bytes:
    """A module whose dimensions of unknown size are known from those of its arguments."""
    return stablehlo.refine_shapes(
        mlir_module,
        enable_shape_assertions=enable_shape_assertions,
        validate_static_shapes=validate_static_shapes,
        enable_shardy=enable_shardy,
    )
