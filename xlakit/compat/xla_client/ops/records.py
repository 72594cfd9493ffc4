"""Records of this package as the values that xlakit's functions take."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import Any, TypeVar

from xlakit.compat.xla_client import records
from xlakit.compat.xla_client.binding import fields_of
from xlakit.errors import ArgumentError
from xlakit.ir.attributes import ConvolutionDimensionNumbers, PaddingDimension, ResultAccuracy
from xlakit.ir.enums import Precision
from xlakit.ops.dot import DotDimensionNumbers, PrecisionConfig
from xlakit.ops.gather import GatherDimensionNumbers
from xlakit.ops.scatter import ScatterDimensionNumbers

_Kind = TypeVar("_Kind")


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


def _read(kind: type[_Kind], like: type, record: Any) -> _Kind:
    """Xlakit's record of a kind from one that has the fields of a class of this package."""
    names = [field.name for field in fields(like)]
    values = {name: getattr(fields_of(record, *names), name) for name in names}
    return kind(**{name: tuple(value) if isinstance(value, Iterable) else value for name, value in values.items()})


def dot_numbers_of(numbers: Any) -> DotDimensionNumbers:
    """The dimension numbers of a product."""
    return _read(DotDimensionNumbers, records.DotDimensionNumbers, numbers)


def convolution_numbers_of(numbers: Any) -> ConvolutionDimensionNumbers:
    """The dimension numbers of a convolution."""
    return _read(ConvolutionDimensionNumbers, records.ConvolutionDimensionNumbers, numbers)


def gather_numbers_of(numbers: Any) -> GatherDimensionNumbers:
    """The dimension numbers of a gather."""
    return _read(GatherDimensionNumbers, records.GatherDimensionNumbers, numbers)


def scatter_numbers_of(numbers: Any) -> ScatterDimensionNumbers:
    """The dimension numbers of a scatter."""
    return _read(ScatterDimensionNumbers, records.ScatterDimensionNumbers, numbers)


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
