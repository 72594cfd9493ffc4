"""Checks of shapes and numbers that many operations make."""

from __future__ import annotations

from collections.abc import Sequence

from xlakit.data.shape import Shape
from xlakit.errors import ShapeError
from xlakit.ops.shared.hints import below


def need_array(shape: Shape) -> Shape:
    """``shape``, known to be an array; raises ShapeError otherwise."""
    if not shape.is_array:
        raise ShapeError(f"takes an array, got {shape}", hint="take an array out of a tuple with get_tuple_element")
    return shape


def need_declared(declared: Shape | None) -> Shape:
    """The declared shape of an operation whose operands do not determine it."""
    if declared is None:
        raise ShapeError(
            "the result shape must be given; it does not follow from the operands",
            hint="declare it: shape=..., or before the opcode in text",
        )
    return declared


def need_declared_like(operand: Shape, declared: Shape | None) -> Shape:
    """The declared shape, without its layout, of an operation that gives an array of its operand's type."""
    result = need_array(need_declared(declared)).without_layout()
    if result.element_type is not operand.element_type:
        raise ShapeError(
            f"the result must have the operand's type, not {result.element_type.hlo_name}",
            hint=f"declare it of {operand.element_type.hlo_name}; convert_element_type changes types",
        )
    return result


def check_channel(channel_id: int | None, *, least: int = 0) -> None:
    """Raise ShapeError unless there is no channel, or its number is ``least`` or more."""
    if channel_id is not None and channel_id < least:
        raise ShapeError(
            f"channel_id must be at least {least}, is {channel_id}",
            hint="number channels from 1 on: a serialized module has 0 and less for none",
        )


def check_dimension(what: str, dimension: int, shape: Shape) -> None:
    """Raise ShapeError unless this is the number of a dimension of ``shape``."""
    if not 0 <= dimension < shape.rank:
        raise ShapeError(f"{what} {dimension} is out of range for {shape}", hint=below(shape.rank))


def check_distinct(what: str, dimensions: Sequence[int], rank: int) -> None:
    """Raise ShapeError unless these are different dimension numbers of an array of ``rank``."""
    for dimension in dimensions:
        if not 0 <= dimension < rank:
            raise ShapeError(f"{what}: {dimension} is out of range for rank {rank}", hint=below(rank))
    if len(set(dimensions)) != len(dimensions):
        raise ShapeError(f"{what}: {list(dimensions)} names a dimension twice", hint="name each dimension once")
