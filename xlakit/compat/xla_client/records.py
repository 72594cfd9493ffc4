"""Plain records of numbers that operations take, and the functions that make them.

The records are mutable and take no arguments, as the protocol buffers that they stand for. Operations read them by the
names of their attributes, so that any object with those serves.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from xlakit.compat.xla_client.enums import PaddingType, PrecisionConfig_Precision, ResultAccuracy_Mode
from xlakit.compat.xla_client.shapes import Shape


class _Record:
    """A record whose slots are its fields; equal to nothing but itself, as those of xla_client are."""

    __slots__ = ()

    def __repr__(self) -> str:
        fields = (f"{name}={getattr(self, name, None)!r}" for name in self.__slots__)
        return f"{type(self).__name__}({', '.join(fields)})"


class OpMetadata(_Record):
    """Where an operation comes from. Lines count from 1, 0 is unknown."""

    __slots__ = ("op_name", "op_type", "source_file", "source_line")

    def __init__(
        self, op_type: str | None = "", op_name: str | None = "", source_file: str = "", source_line: int = 0
    ) -> None:
        self.op_type = op_type
        self.op_name = op_name
        self.source_file = source_file
        self.source_line = source_line


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


class PaddingConfigDimension(_Record):
    """The padding of one dimension: at its edges, and between elements."""

    __slots__ = ("edge_padding_high", "edge_padding_low", "interior_padding")

    def __init__(self) -> None:
        self.edge_padding_low = 0
        self.edge_padding_high = 0
        self.interior_padding = 0


class PaddingConfig(_Record):
    """A PaddingConfigDimension for each dimension."""

    __slots__ = ("dimensions",)

    def __init__(self) -> None:
        self.dimensions: list[PaddingConfigDimension] = []


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


class DotDimensionNumbers(_Record):
    """Which dimensions of the operands of a product are contracted, and which are batch dimensions."""

    __slots__ = (
        "lhs_batch_dimensions",
        "lhs_contracting_dimensions",
        "rhs_batch_dimensions",
        "rhs_contracting_dimensions",
    )

    def __init__(self) -> None:
        self.lhs_contracting_dimensions: list[int] = []
        self.rhs_contracting_dimensions: list[int] = []
        self.lhs_batch_dimensions: list[int] = []
        self.rhs_batch_dimensions: list[int] = []


def make_dot_dimension_numbers(dimension_numbers: Any) -> DotDimensionNumbers:
    """DotDimensionNumbers of ((lhs contracting, rhs contracting), (lhs batch, rhs batch)); a record is passed on."""
    if not isinstance(dimension_numbers, (list, tuple)):
        return dimension_numbers
    contracting, batch = dimension_numbers
    made = DotDimensionNumbers()
    made.lhs_contracting_dimensions, made.rhs_contracting_dimensions = map(list, contracting)
    made.lhs_batch_dimensions, made.rhs_batch_dimensions = map(list, batch)
    return made


class ConvolutionDimensionNumbers(_Record):
    """The roles of the dimensions of a convolution's input, kernel and output."""

    __slots__ = (
        "input_batch_dimension",
        "input_feature_dimension",
        "input_spatial_dimensions",
        "kernel_input_feature_dimension",
        "kernel_output_feature_dimension",
        "kernel_spatial_dimensions",
        "output_batch_dimension",
        "output_feature_dimension",
        "output_spatial_dimensions",
    )

    def __init__(self) -> None:
        self.input_batch_dimension = 0
        self.input_feature_dimension = 0
        self.input_spatial_dimensions: list[int] = []
        self.kernel_input_feature_dimension = 0
        self.kernel_output_feature_dimension = 0
        self.kernel_spatial_dimensions: list[int] = []
        self.output_batch_dimension = 0
        self.output_feature_dimension = 0
        self.output_spatial_dimensions: list[int] = []


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
    spatial = [c for c in rhs if c not in "IO"]
    made = ConvolutionDimensionNumbers()
    made.input_batch_dimension, made.input_feature_dimension = lhs.index("N"), lhs.index("C")
    made.kernel_input_feature_dimension, made.kernel_output_feature_dimension = rhs.index("I"), rhs.index("O")
    made.output_batch_dimension, made.output_feature_dimension = out.index("N"), out.index("C")
    made.input_spatial_dimensions = [lhs.index(c) for c in spatial]
    made.kernel_spatial_dimensions = [rhs.index(c) for c in spatial]
    made.output_spatial_dimensions = [out.index(c) for c in spatial]
    return made


class PrecisionConfig(_Record):
    """How exactly a product is wanted, for each operand."""

    __slots__ = ("operand_precision",)

    Precision = PrecisionConfig_Precision

    def __init__(self) -> None:
        self.operand_precision: list[PrecisionConfig_Precision] = []


class ResultAccuracy(_Record):
    """How exactly an elementary function is wanted: a mode, or tolerances."""

    __slots__ = ("atol", "mode", "rtol", "ulps")

    def __init__(self) -> None:
        self.mode = ResultAccuracy_Mode.DEFAULT
        self.atol = 0.0
        self.rtol = 0.0
        self.ulps = 0


class GatherDimensionNumbers(_Record):
    """The roles of dimensions of a gather."""

    __slots__ = ("collapsed_slice_dims", "index_vector_dim", "offset_dims", "start_index_map")

    def __init__(self) -> None:
        self.offset_dims: list[int] = []
        self.collapsed_slice_dims: list[int] = []
        self.start_index_map: list[int] = []
        self.index_vector_dim = 0


class ScatterDimensionNumbers(_Record):
    """The roles of dimensions of a scatter."""

    __slots__ = ("index_vector_dim", "inserted_window_dims", "scatter_dims_to_operand_dims", "update_window_dims")

    def __init__(self) -> None:
        self.update_window_dims: list[int] = []
        self.inserted_window_dims: list[int] = []
        self.scatter_dims_to_operand_dims: list[int] = []
        self.index_vector_dim = 0


class ReplicaGroup(_Record):
    """The numbers of replicas that take part in a collective together."""

    __slots__ = ("replica_ids",)

    def __init__(self) -> None:
        self.replica_ids: list[int] = []


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
