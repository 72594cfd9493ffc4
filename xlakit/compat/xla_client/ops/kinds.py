"""The kinds of parameters of operations, and the records among them as the values that xlakit's functions take."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import Any, TypeVar

import numpy as np

from xlakit.compat.xla_client import records
from xlakit.compat.xla_client.binding import fields_of, member_of
from xlakit.compat.xla_client.computation import XlaBuilder, XlaComputation, XlaOp
from xlakit.compat.xla_client.enums import CustomCallApiVersion, PrimitiveType, TriangularSolveOptions_Transpose
from xlakit.compat.xla_client.ops.operations import Kind
from xlakit.compat.xla_client.shapes import Shape
from xlakit.data.literal import Literal
from xlakit.errors import ArgumentError, UnsupportedError
from xlakit.ir.attributes import ConvolutionDimensionNumbers, OutputOperandAliasing, PaddingDimension, ResultAccuracy
from xlakit.ir.enums import (
    CustomCallApiVersion as OurVersion,
    CustomCallSchedule,
    FftType,
    Precision,
    RandomAlgorithm,
    Transpose,
)
from xlakit.ops.dot import DotDimensionNumbers, PrecisionConfig
from xlakit.ops.gather import GatherDimensionNumbers
from xlakit.ops.scatter import ScatterDimensionNumbers

_Record = TypeVar("_Record")


def _precision(config: Any, operands: int = 2) -> PrecisionConfig | None:
    """A PrecisionConfig: a record of one, or one precision for all operands."""
    if config is None:
        return None
    given: Sequence[Any] = getattr(config, "operand_precision", None) or ()
    if not hasattr(config, "operand_precision"):
        given = [fields_of(config, "value")] * operands
    if not given:
        return None
    shown = [Precision(fields_of(precision, "value").value) for precision in given]
    # Operands without a given precision have the default one.
    return PrecisionConfig((*shown, *[Precision.DEFAULT] * (operands - len(shown))))


def _accuracy(accuracy: Any) -> ResultAccuracy | None:
    """A ResultAccuracy: tolerances where one is set, also none for the default mode, and otherwise the mode."""
    if accuracy is None:
        return None
    fields_of(accuracy, "atol", "rtol", "ulps", "mode")
    if accuracy.atol or accuracy.rtol or accuracy.ulps or accuracy.mode.name == "DEFAULT":
        return ResultAccuracy(tolerance=(float(accuracy.atol), float(accuracy.rtol), int(accuracy.ulps)))
    return ResultAccuracy(accuracy.mode.name)


def _read(kind: type[_Record], like: type, record: Any) -> _Record:
    """Xlakit's record of a kind from one that has the fields of a class of this package."""
    names = [field.name for field in fields(like)]
    values = {name: getattr(fields_of(record, *names), name) for name in names}
    return kind(**{name: tuple(value) if isinstance(value, Iterable) else value for name, value in values.items()})


def _numbers(kind: type[Any], like: type) -> Kind:
    """The kind of the dimension numbers that a class of this package has."""
    return Kind(like.__name__, Any, lambda numbers: _read(kind, like, numbers))


def _padding(config: Any) -> list[PaddingDimension]:
    """The padding of each dimension."""
    for dimension in fields_of(config, "dimensions").dimensions:
        fields_of(dimension, "edge_padding_low", "edge_padding_high", "interior_padding")
    return [PaddingDimension(d.edge_padding_low, d.edge_padding_high, d.interior_padding) for d in config.dimensions]


def _groups(groups: Iterable[Any]) -> list[list[int]]:
    """Groups of replicas: records, or lists of numbers."""
    return [list(getattr(group, "replica_ids", group)) for group in groups]


def _channel(channel: Any) -> int | None:
    """The number of a channel: a number, or a record with a ``handle``; None where there is none."""
    if channel is None or isinstance(channel, int):
        return channel
    handle = getattr(channel, "handle", None)
    if not isinstance(handle, int):
        raise ArgumentError(f"{channel!r} is no channel", hint="give a number, or a record with the attribute handle")
    return handle


def _refuse_in_place(inplace: bool) -> None:
    if inplace:
        raise UnsupportedError(
            "inplace=True needs operands that this form does not have",
            hint="leave it out, or use xlakit.collective_permute_in_place",
        )


def _text(data: bytes | str) -> str:
    # As the reader of protos takes bytes that are no text.
    return data if isinstance(data, str) else data.decode("utf-8", "surrogateescape")


def _aliases(pairs: Any) -> list[OutputOperandAliasing]:
    return [OutputOperandAliasing(tuple(output), number, tuple(index)) for output, (number, index) in pairs]


def _literal(value: Any) -> Literal | None:
    return None if value is None else Literal.from_numpy(np.asarray(value))


def _transpose(kind: Any) -> Transpose:
    return Transpose(member_of(kind, TriangularSolveOptions_Transpose).value)


# -- values of the program, and types ----------------------------------------------------------------

Op = Kind("Op", XlaOp)
Ops = Kind("Ops", Sequence[XlaOp], list)
Builder = Kind("Builder", XlaBuilder)
Computation = Kind("Computation", XlaComputation)
OptionalComputation = Kind("Computation | None", XlaComputation | None, default=None)
Computations = Kind("Computations", Sequence[XlaComputation], list)
ShapeOf = Kind("Shape", Shape)
LaidOut = Kind("Shape", Shape, lambda shape: shape.with_implied_layouts())
LaidOuts = Kind("Shapes", Sequence[Shape], lambda shapes: [shape.with_implied_layouts() for shape in shapes])
Type = Kind("PrimitiveType", PrimitiveType)
OptionalType = Kind("PrimitiveType | None", PrimitiveType | None, default=None)

# -- values of Python ----------------------------------------------------------------------------------

Any_ = Kind("Any", Any)
Int = Kind("int", int)
Ints = Kind("Ints", Sequence[int])
OptionalInts = Kind("Ints | None", Sequence[int] | None, lambda dimensions: tuple(dimensions or ()), default=None)
Pairs = Kind("Pairs", Sequence[tuple[int, int]])
Float = Kind("float", float)
Bool = Kind("bool", bool)
OptionalBool = Kind("bool | None", bool | None, bool, default=None)
Bools = Kind("Bools", Sequence[bool])
OptionalBools = Kind("Bools | None", Sequence[bool] | None, lambda marks: tuple(marks or ()), default=None)
Text = Kind("str", str)

# -- records and enumerations --------------------------------------------------------------------------

PrecisionOf = Kind("PrecisionConfig | None", Any, _precision, default=None)
Accuracy = Kind("ResultAccuracy | None", Any, _accuracy, default=None)
DotNumbers = _numbers(DotDimensionNumbers, records.DotDimensionNumbers)
ConvolutionNumbers = _numbers(ConvolutionDimensionNumbers, records.ConvolutionDimensionNumbers)
GatherNumbers = _numbers(GatherDimensionNumbers, records.GatherDimensionNumbers)
ScatterNumbers = _numbers(ScatterDimensionNumbers, records.ScatterDimensionNumbers)
Padding = Kind("PaddingConfig", Any, _padding)
FftKind = Kind("FftType", Any, lambda kind: member_of(kind, FftType))
TransposeKind = Kind("Transpose", Any, _transpose)
Algorithm = Kind("RandomAlgorithm", Any, lambda algorithm: RandomAlgorithm(int(algorithm)))
Groups = Kind("Groups", Sequence[Any], _groups, default=())
Channel = Kind("ChannelHandle | None", Any, _channel, default=None)
ChannelToHost = Kind("ChannelHandle", Any, lambda handle: _channel(handle) or 0)
InPlace = Kind("bool", bool, _refuse_in_place, default=False).unused()

# -- custom calls --------------------------------------------------------------------------------------

TargetName = Kind("bytes", bytes, _text)
Opaque = Kind("bytes", bytes, _text, default=b"")
# Pairs of an output's index, and an operand's number and index.
Aliasing = Kind("Aliasing", Sequence[tuple[Any, tuple[int, Any]]], _aliases, default=()).named()
LiteralOf = Kind("Any", Any, _literal, default=None).named()
Schedule = Kind(
    "CustomCallSchedule",
    Any,
    lambda schedule: CustomCallSchedule(schedule.value),
    default=CustomCallSchedule.SCHEDULE_NONE,
).named()
ApiVersion = Kind(
    "CustomCallApiVersion",
    Any,
    lambda version: OurVersion(int(version)),
    default=CustomCallApiVersion.API_VERSION_ORIGINAL,
).named()
