"""Calls of functions that are registered by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from xlakit.compat.xla_client.enums import CustomCallApiVersion
from xlakit.compat.xla_client.ops.operations import Builder, Computation, Op, Ops, Record, Shaped, operation
from xlakit.compat.xla_client.shapes import laid_out
from xlakit.data.literal import Literal
from xlakit.errors import ArgumentError
from xlakit.ir.attributes import OutputOperandAliasing
from xlakit.ir.enums import CustomCallApiVersion as OurVersion, CustomCallSchedule
from xlakit.ops.custom_call import custom_call

# Pairs of an output's index, and an operand's number and index.
Aliasing = Sequence[tuple[Any, tuple[int, Any]]]

_NO_SCHEDULE = CustomCallSchedule.SCHEDULE_NONE
_ORIGINAL = CustomCallApiVersion.API_VERSION_ORIGINAL


@operation
def CustomCall(
    builder: Builder,
    call_target_name: bytes,
    operands: Ops,
    shape: Shaped,
    opaque: bytes = b"",
    has_side_effect: bool = False,
    schedule: Record = _NO_SCHEDULE,
    api_version: Record = _ORIGINAL,
) -> Op:
    """The result of a registered function, of the given shape."""
    return _call(builder, call_target_name, operands, shape, opaque, has_side_effect, schedule, api_version)


@operation
def CustomCallWithLayout(
    builder: Builder,
    call_target_name: bytes,
    operands: Ops,
    shape_with_layout: Shaped,
    operand_shapes_with_layout: Sequence[Any],
    opaque: bytes = b"",
    has_side_effect: bool = False,
    schedule: Record = _NO_SCHEDULE,
    api_version: Record = _ORIGINAL,
) -> Op:
    """The result of a registered function that takes its operands in the given layouts."""
    return _call(
        builder,
        call_target_name,
        operands,
        shape_with_layout,
        opaque,
        has_side_effect,
        schedule,
        api_version,
        operand_shapes_with_layout=[laid_out(shape) for shape in operand_shapes_with_layout],
    )


@operation
def CustomCallWithAliasing(
    builder: Builder,
    call_target_name: bytes,
    operands: Ops,
    shape_with_layout: Shaped,
    operand_shapes_with_layout: Sequence[Any],
    opaque: bytes = b"",
    has_side_effect: bool = False,
    output_operand_aliasing: Aliasing = (),
    literal: Any = None,
    schedule: Record = _NO_SCHEDULE,
    api_version: Record = _ORIGINAL,
) -> Op:
    """The result of a registered function, parts of which lie in the memory of operands."""
    return _call(
        builder,
        call_target_name,
        operands,
        shape_with_layout,
        opaque,
        has_side_effect,
        schedule,
        api_version,
        operand_shapes_with_layout=[laid_out(shape) for shape in operand_shapes_with_layout],
        output_operand_aliasing=_aliasing(output_operand_aliasing),
        literal=_literal(literal),
    )


@operation
def CustomCallWithComputation(
    builder: Builder,
    call_target_name: bytes,
    operands: Ops,
    computation: Computation,
    shape: Shaped,
    opaque: bytes = b"",
    has_side_effect: bool = False,
    output_operand_aliasing: Aliasing = (),
    literal: Any = None,
    schedule: Record = _NO_SCHEDULE,
    api_version: Record = _ORIGINAL,
) -> Op:
    """The result of a registered function that gets a computation."""
    return _call(
        builder,
        call_target_name,
        operands,
        shape,
        opaque,
        has_side_effect,
        schedule,
        api_version,
        computation=computation,
        output_operand_aliasing=_aliasing(output_operand_aliasing),
        literal=_literal(literal),
    )


def _call(
    builder: Any,
    target: bytes,
    operands: Sequence[Any],
    shape: Any,
    opaque: bytes,
    has_side_effect: bool,
    schedule: Any,
    api_version: Any,
    **more: Any,
) -> Any:
    name = _text(target)
    if name.startswith("$"):
        raise ArgumentError(
            f"the name {name!r} of a custom call begins with $: XLA has such names for calls of its own",
            hint="give another name",
        )
    return custom_call(
        builder,
        name,
        list(operands),
        laid_out(shape),
        _text(opaque),
        has_side_effect=has_side_effect,
        schedule=CustomCallSchedule(schedule.value),
        api_version=OurVersion(int(api_version)),
        **more,
    )


def _text(data: bytes | str) -> str:
    # As the reader of protos takes bytes that are no text.
    return data if isinstance(data, str) else data.decode("utf-8", "surrogateescape")


def _aliasing(pairs: Aliasing) -> list[OutputOperandAliasing]:
    return [OutputOperandAliasing(tuple(output), number, tuple(index)) for output, (number, index) in pairs]


def _literal(literal: Any) -> Literal | None:
    return None if literal is None else Literal.from_numpy(np.asarray(literal))
