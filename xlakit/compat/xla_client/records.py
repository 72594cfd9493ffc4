"""Plain records of numbers that operations take, and the functions that make them.

The records are mutable and take no arguments, as the protocol buffers that they stand for. Operations read them by the
names of their attributes, so that any object with those serves.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterable, Sequence
from dataclasses import field
from typing import Any, ClassVar

import numpy as np

from xlakit.compat.xla_client.enums import PaddingType, PrecisionConfig_Precision, ResultAccuracy_Mode
from xlakit.compat.xla_client.shapes import Shape
from xlakit.dataclass import dataclass


@dataclass(slots=True, eq=False)
class OpMetadata:
    """Where an operation comes from. Lines count from 1, 0 is unknown."""

    op_type: str | None = ""
    op_name: str | None = ""
    source_file: str = ""
    source_line: int = 0


def CurrentSourceInfoMetadata(
    op_type: str | None = None, op_name: str | None = None, skip_frames: int = 1
) -> OpMetadata:
    """Metadata with the name of the caller's file and its line; ``skip_frames`` counts callers from here."""
    frame = inspect.stack()[skip_frames]
    return OpMetadata(op_type, op_name, os.path.basename(frame.filename), frame.lineno)


def shape_from_pyval(pyval: Any, layout: Sequence[int] | None = None) -> Shape:
    """The shape of an array or of a (nested) tuple of arrays; ``layout`` is the minor_to_major of an array."""
    if isinstance(pyval, tuple):
        if layout is not None:
            raise NotImplementedError("shape_from_pyval does not support layouts for tuple shapes, only for arrays")
        return Shape.tuple_shape([shape_from_pyval(part) for part in pyval])  # pyright: ignore
    return Shape.array_shape(pyval.dtype, np.shape(pyval), layout)


@dataclass(slots=True, eq=False)
class PaddingConfigDimension:
    """The padding of one dimension: at its edges, and between elements."""

    edge_padding_low: int = field(init=False, default=0)
    edge_padding_high: int = field(init=False, default=0)
    interior_padding: int = field(init=False, default=0)


@dataclass(slots=True, eq=False)
class PaddingConfig:
    """A PaddingConfigDimension for each dimension."""

    dimensions: list[PaddingConfigDimension] = field(init=False, default_factory=list)


def make_padding_config(padding_config: PaddingConfig | Sequence[tuple[int, int, int]]) -> PaddingConfig:
    """A PaddingConfig of triples (low, high, interior); one that is given as such is passed on."""
    if isinstance(padding_config, PaddingConfig):
        return padding_config
    made = PaddingConfig()
    for low, high, interior in padding_config:
        dimension = PaddingConfigDimension()
        dimension.edge_padding_low, dimension.edge_padding_high = low, high
        dimension.interior_padding = interior
        made.dimensions.append(dimension)
    return made


@dataclass(slots=True, eq=False)
class DotDimensionNumbers:
    """Which dimensions of the operands of a product are contracted, and which are batch dimensions."""

    lhs_contracting_dimensions: list[int] = field(init=False, default_factory=list)
    rhs_contracting_dimensions: list[int] = field(init=False, default_factory=list)
    lhs_batch_dimensions: list[int] = field(init=False, default_factory=list)
    rhs_batch_dimensions: list[int] = field(init=False, default_factory=list)


def make_dot_dimension_numbers(dimension_numbers: Any) -> DotDimensionNumbers:
    """DotDimensionNumbers of ((lhs contracting, rhs contracting), (lhs batch, rhs batch)); a record is passed on."""
    if not isinstance(dimension_numbers, (list, tuple)):
        return dimension_numbers
    contracting, batch = dimension_numbers
    made = DotDimensionNumbers()
    made.lhs_contracting_dimensions, made.rhs_contracting_dimensions = map(list, contracting)
    made.lhs_batch_dimensions, made.rhs_batch_dimensions = map(list, batch)
    return made


@dataclass(slots=True, eq=False)
class ConvolutionDimensionNumbers:
    """The roles of the dimensions of a convolution's input, kernel and output."""

    input_batch_dimension: int = field(init=False, default=0)
    input_feature_dimension: int = field(init=False, default=0)
    input_spatial_dimensions: list[int] = field(init=False, default_factory=list)
    kernel_input_feature_dimension: int = field(init=False, default=0)
    kernel_output_feature_dimension: int = field(init=False, default=0)
    kernel_spatial_dimensions: list[int] = field(init=False, default_factory=list)
    output_batch_dimension: int = field(init=False, default=0)
    output_feature_dimension: int = field(init=False, default=0)
    output_spatial_dimensions: list[int] = field(init=False, default_factory=list)


def make_convolution_dimension_numbers(
    dimension_numbers: ConvolutionDimensionNumbers | tuple[str, str, str] | None, num_spatial_dimensions: int
) -> ConvolutionDimensionNumbers:
    """The roles of dimensions from three strings, such as ("NHWC", "HWIO", "NHWC"); a record is passed on.

    N is the batch and C the feature of input and output, I and O are the features of the kernel, and all other
    characters name spatial dimensions, whose order is that of the kernel. None is batch, feature, then spatial
    dimensions, with the kernel's output feature first.
    """
    if dimension_numbers is not None and not isinstance(dimension_numbers, tuple):
        return dimension_numbers
    if dimension_numbers is None:
        axes = "".join(chr(0x100 + i) for i in range(num_spatial_dimensions))
        dimension_numbers = (f"NC{axes}", f"OI{axes}", f"NC{axes}")
    lhs, rhs, out = dimension_numbers
    made = ConvolutionDimensionNumbers()
    made.input_batch_dimension, made.input_feature_dimension = lhs.index("N"), lhs.index("C")
    made.output_batch_dimension, made.output_feature_dimension = out.index("N"), out.index("C")
    made.kernel_output_feature_dimension, made.kernel_input_feature_dimension = rhs.index("O"), rhs.index("I")
    made.kernel_spatial_dimensions = [i for i, c in enumerate(rhs) if c not in "IO"]

    def spatial(text: str) -> list[int]:
        """The places of spatial dimensions in the kernel's order. Raises ValueError for one that the kernel lacks."""
        missing = [c for c in text if c not in "NC" and c not in rhs]
        if missing:
            raise ValueError(f"substring not found: the kernel's '{rhs}' lacks the dimensions {missing} of '{text}'")
        return sorted((i for i, c in enumerate(text) if c not in "NC"), key=lambda i: rhs.index(text[i]))

    made.input_spatial_dimensions, made.output_spatial_dimensions = spatial(lhs), spatial(out)
    return made


@dataclass(slots=True, eq=False)
class PrecisionConfig:
    """How exactly a product is wanted, for each operand."""

    Precision: ClassVar[type[PrecisionConfig_Precision]] = PrecisionConfig_Precision

    operand_precision: list[PrecisionConfig_Precision] = field(init=False, default_factory=list)


@dataclass(slots=True, eq=False)
class ResultAccuracy:
    """How exactly an elementary function is wanted: a mode, or tolerances."""

    mode: ResultAccuracy_Mode = field(init=False, default=ResultAccuracy_Mode.DEFAULT)
    atol: float = field(init=False, default=0.0)
    rtol: float = field(init=False, default=0.0)
    ulps: int = field(init=False, default=0)


@dataclass(slots=True, eq=False)
class GatherDimensionNumbers:
    """The roles of dimensions of a gather."""

    offset_dims: list[int] = field(init=False, default_factory=list)
    collapsed_slice_dims: list[int] = field(init=False, default_factory=list)
    start_index_map: list[int] = field(init=False, default_factory=list)
    index_vector_dim: int = field(init=False, default=0)


@dataclass(slots=True, eq=False)
class ScatterDimensionNumbers:
    """The roles of dimensions of a scatter."""

    update_window_dims: list[int] = field(init=False, default_factory=list)
    inserted_window_dims: list[int] = field(init=False, default_factory=list)
    scatter_dims_to_operand_dims: list[int] = field(init=False, default_factory=list)
    index_vector_dim: int = field(init=False, default=0)


@dataclass(slots=True, eq=False)
class ReplicaGroup:
    """The numbers of replicas that take part in a collective together."""

    replica_ids: list[int] = field(init=False, default_factory=list)


def make_replica_groups(replica_groups: Iterable[Iterable[int]] | None) -> list[ReplicaGroup]:
    """A ReplicaGroup for each list of numbers; none for None, which means all replicas together."""
    made: list[ReplicaGroup] = []
    for ids in replica_groups or ():
        group = ReplicaGroup()
        group.replica_ids.extend(ids)
        made.append(group)
    return made


def window_padding_type_to_pad_values(
    padding_type: PaddingType | str, lhs_dims: Sequence[int], rhs_dims: Sequence[int], window_strides: Sequence[int]
) -> list[tuple[int, int]]:
    """The (low, high) padding of each dimension for PaddingType.VALID or SAME, or their names in any case.

    Raises TypeError or ValueError for another padding type.
    """
    if not isinstance(padding_type, (str, PaddingType)):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"the padding is a str or a PaddingType, not {type(padding_type)}")
    name = padding_type.upper() if isinstance(padding_type, str) else padding_type.name
    if name not in PaddingType.__members__:
        raise ValueError(f'there is no padding "{padding_type}"; known: "VALID" and "SAME"')
    if name == "VALID":
        return [(0, 0)] * len(window_strides)
    pairs: list[tuple[int, int]] = []
    for size, window, stride in zip(lhs_dims, rhs_dims, window_strides, strict=False):
        total = max((-(-size // stride) - 1) * stride + window - size, 0)
        pairs.append((total // 2, total - total // 2))
    return pairs
