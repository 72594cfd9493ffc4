"""The attributes of operations in VHLO: for each Kind, how it is read from a property.

Properties are passed in the alphabetical order of their names in VHLO, after the computations of the regions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from xlakit.formats.stablehlo.adaptor import Adaptor, Rule
from xlakit.formats.stablehlo.bytecode import ForeignProgram
from xlakit.formats.stablehlo.values import Dense
from xlakit.ir.attributes import ReplicaGroups
from xlakit.ir.enums import Precision
from xlakit.ir.instruction import Instruction
from xlakit.ir.operation import Attribute, Kind, Op


def one(make: Callable[..., Op]) -> Rule:
    """The rule of an operation that is a single one of HLO; ``make`` is called with its computations and properties."""

    def rule(x: Adaptor) -> Sequence[Instruction]:
        op = make(*map(x.module.region_computation, x.operation.regions), *x.properties())
        return x.results(op.canonical([operand.shape for operand in x.operands]))

    return rule


def named(cls: type[Op], *names: str | None) -> Rule:
    """The rule of an operation that is one of this class; its computations and properties are these attributes.

    None stands for a property that HLO's operation lacks, and which is absent in a program that can be read.
    """
    return one(operation_of(cls, *names))


def operation_of(cls: type[Op], *names: str | None) -> Callable[..., Op]:
    """What makes an operation from the values of these attributes, as VHLO has them; see :func:`named`."""
    specs = {spec.name: spec for spec in cls.attributes}

    def make(*values: Any) -> Op:
        found: dict[str, Any] = {}
        for name, value in zip(names, values, strict=True):
            if name is not None:
                found[name] = _read(specs[name], value)
            elif value is not None:
                raise ForeignProgram(f"{cls.opcode} with a property that HLO lacks")
        return cls(**found)

    return make


def _read(spec: Attribute, value: Any) -> Any:
    if spec.name == "channel_id":
        return _channel(value)
    if spec.enum is not None:
        return spec.enum(value)
    read = _READERS.get(spec.kind)
    return value if read is None else read(value)


def _channel(number: int) -> int | None:
    """The number of a channel; StableHLO has 0 and less for none."""
    return number if number > 0 else None


def precisions_of(numbers: tuple[int, ...]) -> tuple[Precision, ...]:
    """The precisions of operands, of which none is written if all are the default."""
    return tuple(map(Precision, numbers)) if any(numbers) else ()


def _groups(dense: Dense) -> ReplicaGroups:
    """The replica groups in the rows of a matrix, in which short groups are padded with -1."""
    return ReplicaGroups(tuple(tuple(number for number in row if number >= 0) for row in _rows(dense)))


def _rows(dense: Dense) -> tuple[tuple[int, ...], ...]:
    """The rows of a matrix of integers."""
    numbers, (count, size) = dense.integers(), dense.shape.dimensions
    return tuple(numbers[row * size : (row + 1) * size] for row in range(count))


_READERS: Final[Mapping[Kind, Callable[[Any], Any]]] = {
    Kind.INT64_LIST: Dense.integers,
    Kind.PRECISION_LIST: precisions_of,
    Kind.REPLICA_GROUPS: _groups,
    Kind.SOURCE_TARGET_PAIRS: _rows,
}
