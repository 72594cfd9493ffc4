"""ShapeProto, LayoutProto and ProgramShapeProto."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

import ml_dtypes
import numpy as np

from xlakit.data.layout import Layout, LevelKind, LevelType, SplitConfig, Tile
from xlakit.data.primitive import PrimitiveType
from xlakit.data.shape import ProgramShape, Shape
from xlakit.errors import FormatError, UnsupportedError
from xlakit.formats.hlo_proto import schema

_PRIMITIVES = {member.value: member for member in PrimitiveType}
_LEVEL_KINDS = frozenset(LevelKind)

# Source: PaddingValue of the document "Shapes and layout"; lowest and highest depend on the element type.
_PADDING_NUMBERS = {0: 1, 1: 2}
_LOWEST, _HIGHEST = 3, 4


def read_primitive(number: int) -> PrimitiveType:
    """The primitive type of a number of the proto's enumeration; raises FormatError."""
    primitive = _PRIMITIVES.get(number)
    if primitive is None:
        raise FormatError(f"element_type {number} is not a primitive type")
    return primitive


# A module has few shapes and uses each often.
_CACHE = 1024


def read_shape(proto: Any) -> Shape:
    """A Shape from a ShapeProto. Raises FormatError, ShapeError."""
    return _shape_of(proto.SerializeToString())


def read_plain_shape(proto: Any) -> Shape:
    """A Shape from a ShapeProto, without layouts where all are major to minor. Raises FormatError, ShapeError."""
    return _plain_shape_of(proto.SerializeToString())


def write_shape(shape: Shape, proto: Any) -> None:
    """Fill a ShapeProto; an array without layout gets the default, as HLO text gives it one."""
    proto.MergeFromString(_bytes_of(shape))


@lru_cache(_CACHE)
def _shape_of(data: bytes) -> Shape:
    return _read_shape(schema.parse("ShapeProto", data))


@lru_cache(_CACHE)
def _plain_shape_of(data: bytes) -> Shape:
    shape = _shape_of(data)
    layouts = [leaf.layout for _, leaf in shape.leaves()]
    return shape.without_layout() if all(layout is None or layout.is_default for layout in layouts) else shape


@lru_cache(_CACHE)
def _bytes_of(shape: Shape) -> bytes:
    proto = schema.new("ShapeProto")
    _write_shape(shape, proto)
    return proto.SerializeToString()


def _read_shape(proto: Any) -> Shape:
    kind = read_primitive(proto.element_type)
    if not kind.is_array:
        if proto.dimensions or proto.HasField("layout"):
            raise FormatError(f"a shape of type {kind.hlo_name} has no dimensions and no layout")
        return Shape(kind, tuple_shapes=tuple(_read_shape(s) for s in proto.tuple_shapes))
    dimensions, dynamic = tuple(proto.dimensions), tuple(proto.is_dynamic_dimension)
    if dynamic and len(dynamic) != len(dimensions):
        raise FormatError(f"is_dynamic_dimension has {len(dynamic)} entries for {len(dimensions)} dimensions")
    layout = read_layout(proto.layout, kind) if proto.HasField("layout") else None
    return Shape(kind, dimensions, layout, dynamic)


def _write_shape(shape: Shape, proto: Any) -> None:
    proto.element_type = shape.element_type.value
    if not shape.is_array:
        for element in shape.tuple_shapes:
            _write_shape(element, proto.tuple_shapes.add())
        return
    proto.dimensions.extend(shape.dimensions)
    proto.is_dynamic_dimension.extend(shape.dynamic_dimensions)
    write_layout(shape.layout_or_default, proto.layout, shape.element_type)


def read_layout(proto: Any, kind: PrimitiveType) -> Layout:
    """A Layout from a LayoutProto of an array of ``kind``. Raises FormatError, ShapeError."""
    order = tuple(proto.minor_to_major)
    alignment = proto.tail_padding_alignment_in_elements or 1
    if alignment < 0:
        raise FormatError(f"tail_padding_alignment_in_elements {alignment} is negative")
    return Layout(
        order,
        padded_dimensions=tuple(proto.padded_dimensions),
        padding_value=_read_padding(proto.padding_value, kind),
        tiles=tuple(Tile(tuple(tile.dimensions)) for tile in proto.tiles),
        element_size_in_bits=proto.element_size_in_bits,
        memory_space=proto.memory_space,
        tail_padding_alignment_in_elements=alignment,
        index_primitive_type=read_primitive(proto.index_primitive_type) if proto.index_primitive_type else None,
        pointer_primitive_type=read_primitive(proto.pointer_primitive_type) if proto.pointer_primitive_type else None,
        split_configs=tuple(SplitConfig(s.dimension, tuple(s.split_indices)) for s in proto.split_configs),
        physical_shape=read_shape(proto.physical_shape) if proto.HasField("physical_shape") else None,
        dynamic_shape_metadata_prefix_bytes=proto.dynamic_shape_metadata_prefix_bytes,
        level_types=_read_levels(proto),
    )


def _read_levels(proto: Any) -> tuple[LevelType, ...]:
    """The types of the dimensions' levels; without flags their indices are unique and sorted."""
    kinds = tuple(proto.dim_level_types)
    flags = [tuple(given) or (True,) * len(kinds) for given in (proto.dim_unique, proto.dim_ordered)]
    if any(len(given) != len(kinds) for given in flags):
        raise FormatError(f"a layout has {len(kinds)} dim_level_types and flags of other numbers")
    unknown = next((kind for kind in kinds if kind not in _LEVEL_KINDS), None)
    if unknown is not None:
        raise FormatError(f"dim_level_types has no meaning for {unknown}")
    return tuple(LevelType(LevelKind(kind), *given) for kind, *given in zip(kinds, *flags, strict=True))


def write_layout(layout: Layout, proto: Any, kind: PrimitiveType) -> None:
    """Fill a LayoutProto."""
    proto.SetInParent()
    proto.minor_to_major.extend(layout.minor_to_major)
    proto.tail_padding_alignment_in_elements = layout.tail_padding_alignment_in_elements
    if layout.is_default:
        return
    proto.padded_dimensions.extend(layout.padded_dimensions)
    if layout.padding_value is not None:
        proto.padding_value = _padding_number(layout.padding_value, kind)
    for tile in layout.tiles:
        proto.tiles.add(dimensions=tile.dimensions)
    proto.element_size_in_bits = layout.element_size_in_bits
    proto.memory_space = layout.memory_space
    if layout.index_primitive_type is not None:
        proto.index_primitive_type = layout.index_primitive_type.value
    if layout.pointer_primitive_type is not None:
        proto.pointer_primitive_type = layout.pointer_primitive_type.value
    for split in layout.split_configs:
        proto.split_configs.add(dimension=split.dimension, split_indices=split.split_indices)
    if layout.physical_shape is not None:
        write_shape(layout.physical_shape, proto.physical_shape)
    proto.dynamic_shape_metadata_prefix_bytes = layout.dynamic_shape_metadata_prefix_bytes
    for level in layout.level_types:
        proto.dim_level_types.append(level.kind)
        proto.dim_unique.append(level.unique)
        proto.dim_ordered.append(level.ordered)


def _bounds(kind: PrimitiveType) -> tuple[float, float]:
    if kind.is_integral:
        limits = ml_dtypes.iinfo(kind.dtype)
        return int(limits.min), int(limits.max)
    return (0, 1) if kind is PrimitiveType.PRED else (-np.inf, np.inf)


def _read_padding(number: int, kind: PrimitiveType) -> float | None:
    lowest, highest = _bounds(kind)
    return {1: 0, 2: 1, _LOWEST: lowest, _HIGHEST: highest}.get(number)


def _padding_number(value: float, kind: PrimitiveType) -> int:
    lowest, highest = _bounds(kind)
    number = _PADDING_NUMBERS.get(int(value)) if value in _PADDING_NUMBERS else None
    number = number or {lowest: _LOWEST, highest: _HIGHEST}.get(value)
    if number is None:
        raise UnsupportedError(
            f"LayoutProto cannot hold padding_value {value}", hint="it knows 0, 1, the lowest and the highest value"
        )
    return number


def plainly_laid_out(shape: Shape) -> Shape:
    """The shape with its layouts reduced to the order of dimensions, as in a LiteralProto."""
    if shape.is_array:
        return shape.with_layout(Layout(shape.layout_or_default.minor_to_major))
    return replace(shape, tuple_shapes=tuple(plainly_laid_out(s) for s in shape.tuple_shapes))


def read_program_shape(proto: Any) -> ProgramShape:
    """A ProgramShape from a ProgramShapeProto. Raises FormatError, ShapeError."""
    names = tuple(proto.parameter_names)
    if names and len(names) != len(proto.parameters):
        raise FormatError(f"{len(names)} parameter_names for {len(proto.parameters)} parameters")
    if not proto.HasField("result"):
        raise FormatError("result is missing")
    return ProgramShape(tuple(read_shape(p) for p in proto.parameters), read_shape(proto.result), names)


def write_program_shape(shape: ProgramShape, proto: Any) -> None:
    """Fill a ProgramShapeProto."""
    for parameter in shape.parameters:
        write_shape(parameter, proto.parameters.add())
    write_shape(shape.result, proto.result)
    # Readers want as many names as parameters.
    proto.parameter_names.extend(shape.parameter_names or ("",) * len(shape.parameters))
