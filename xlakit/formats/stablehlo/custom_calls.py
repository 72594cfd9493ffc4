"""Custom calls: functions from outside the program, with layouts, aliases and a configuration."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from xlakit.data.layout import Layout
from xlakit.data.shape import Shape
from xlakit.formats.stablehlo.adaptor import Adaptor
from xlakit.formats.stablehlo.bytecode import ForeignProgram
from xlakit.formats.stablehlo.values import text_of
from xlakit.ir.enums import CustomCallApiVersion
from xlakit.ir.instruction import Instruction
from xlakit.ops.custom_call import CustomCall

_CONFIG: Final = "mhlo.backend_config"
# Targets that jaxlib's conversion to HLO turns into other operations; such programs are left to jaxlib.
_NOT_CALLS: Final = r"(mhlo|chlo|stablehlo)\.|shape_assertion$"


def custom_call(x: Adaptor) -> Sequence[Instruction]:
    """The rule of custom calls."""
    version, config, target, called, has_effect, of_operands, aliases, of_results = x.properties()
    if called or re.match(_NOT_CALLS, target):
        raise ForeignProgram(f"a custom call of {target}")
    # The configuration of a typed FFI call is a dictionary, which HLO holds as MLIR text.
    typed = x.operation.attributes.get(_CONFIG, x.operation.properties[1] if isinstance(config, dict) else None)
    if typed is not None:
        version, config = CustomCallApiVersion.API_VERSION_TYPED_FFI, text_of(x.module.code, typed)
    constraints = None
    if of_operands or of_results:
        constraints = _laid_out([operand.shape.without_layout() for operand in x.operands], of_operands)
        x.shapes = _laid_out(x.shapes, of_results)
    x.annotations = replace(x.annotations, backend_config=config)
    op = CustomCall(
        custom_call_target=target,
        custom_call_has_side_effect=has_effect,
        api_version=CustomCallApiVersion(version),
        operand_layout_constraints=constraints,
        output_to_operand_aliasing=aliases,
    )
    return x.results(op)


def _laid_out(shapes: Sequence[Shape], orders: Sequence[Any]) -> tuple[Shape, ...]:
    return tuple(
        shape.with_layout(Layout(order.integers())) if shape.is_array else shape
        for shape, order in zip(shapes, orders, strict=True)
    )
