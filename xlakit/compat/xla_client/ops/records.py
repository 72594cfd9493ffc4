"""Records of this package as the values that xlakit's functions take."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from xlakit.compat.xla_client.binding import fields_of
from xlakit.errors import ArgumentError
from xlakit.ir.attributes import ConvolutionDimensionNumbers, PaddingDimension, ResultAccuracy
from xlakit.ir.enums import Precision
from xlakit.ops.dot import DotDimensionNumbers, PrecisionConfig
from xlakit.ops.gather import GatherDimensionNumbers
from xlakit.ops.scatter import ScatterDimensionNumbers


def precision_of(config: Any, operands: int = 2) -> PrecisionConfig | None:
    """A PrecisionConfig: a record of one, or one precision for all operands."""
    if config is None:
        return None
    given: Sequence[Any] = getattr(config, "operand_precision", None) or ()
    if not hasattr(config, "operand_precision"):
        given = [fields_of(config, "value")] * operands
    return PrecisionConfig(tuple(Precision(fields_of(p, "value").value) for p in given)) if given else None


def accuracy_of(accuracy: Any) -> ResultAccuracy | None:
    """A ResultAccuracy: tolerances where one is set, and otherwise the mode."""
    if accuracy is None:
        return None
    fields_of(accuracy, "atol", "rtol", "ulps", "mode")
    if accuracy.atol or accuracy.rtol or accuracy.ulps:
        return ResultAccuracy(tolerance=(float(accuracy.atol), float(accuracy.rtol), int(accuracy.ulps)))
    return ResultAccuracy(accuracy.mode.name)


def dot_numbers_of(numbers: Any) -> DotDimensionNumbers:
    """The dimension numbers of a product."""
    fields_of(
        numbers,
        "lhs_contracting_dimensions",
        "rhs_contracting_dimensions",
        "lhs_batch_dimensions",
        "rhs_batch_dimensions",
    )
    return DotDimensionNumbers(
        tuple(numbers.lhs_contracting_dimensions),
        tuple(numbers.rhs_contracting_dimensions),
        tuple(numbers.lhs_batch_dimensions),
        tuple(numbers.rhs_batch_dimensions),
    )


def convolution_numbers_of(numbers: Any) -> ConvolutionDimensionNumbers:
    """The dimension numbers of a convolution."""
    fields_of(
        numbers,
        *(f"{kind}_spatial_dimensions" for kind in ("input", "kernel", "output")),
        *(f"{kind}_feature_dimension" for kind in ("input", "kernel_input", "kernel_output", "output")),
        "input_batch_dimension",
        "output_batch_dimension",
    )
    return ConvolutionDimensionNumbers(
        numbers.input_batch_dimension,
        numbers.input_feature_dimension,
        tuple(numbers.input_spatial_dimensions),
        numbers.kernel_input_feature_dimension,
        numbers.kernel_output_feature_dimension,
        tuple(numbers.kernel_spatial_dimensions),
        numbers.output_batch_dimension,
        numbers.output_feature_dimension,
        tuple(numbers.output_spatial_dimensions),
    )


def gather_numbers_of(numbers: Any) -> GatherDimensionNumbers:
    """The dimension numbers of a gather."""
    fields_of(numbers, "offset_dims", "collapsed_slice_dims", "start_index_map", "index_vector_dim")
    return GatherDimensionNumbers(
        offset_dims=tuple(numbers.offset_dims),
        collapsed_slice_dims=tuple(numbers.collapsed_slice_dims),
        start_index_map=tuple(numbers.start_index_map),
        index_vector_dim=numbers.index_vector_dim,
    )


def scatter_numbers_of(numbers: Any) -> ScatterDimensionNumbers:
    """The dimension numbers of a scatter."""
    fields_of(numbers, "update_window_dims", "inserted_window_dims", "scatter_dims_to_operand_dims", "index_vector_dim")
    return ScatterDimensionNumbers(
        update_window_dims=tuple(numbers.update_window_dims),
        inserted_window_dims=tuple(numbers.inserted_window_dims),
        scatter_dims_to_operand_dims=tuple(numbers.scatter_dims_to_operand_dims),
        index_vector_dim=numbers.index_vector_dim,
    )


def padding_of(config: Any) -> list[PaddingDimension]:
    """The padding of each dimension."""
    for dimension in fields_of(config, "dimensions").dimensions:
        fields_of(dimension, "edge_padding_low", "edge_padding_high", "interior_padding")
    return [PaddingDimension(d.edge_padding_low, d.edge_padding_high, d.interior_padding) for d in config.dimensions]


def groups_of(groups: Iterable[Any]) -> list[list[int]]:
    """Groups of replicas: records, or lists of numbers."""
    return [list(getattr(group, "replica_ids", group)) for group in groups]


def channel_of(channel: Any) -> int | None:
    """The number of a channel: a number, or a record with a ``handle``; None where there is none."""
    if channel is None or isinstance(channel, int):
        return channel
    handle = getattr(channel, "handle", None)
    if not isinstance(handle, int):
        raise ArgumentError(f"{channel!r} is no channel", hint="give a number, or a record with the attribute handle")
    return handle
