"""The attributes of operations in HloInstructionProto: one reader and one writer for each Kind.

``Attribute.proto`` is the location of an attribute: a field, or a dotted path through messages. The schema determines
the rest: an int in a repeated field is a list of one, an enumeration in a string field is its word.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from functools import cache
from typing import Any

from xlakit.data.shape import Shape
from xlakit.dataclass import dataclass
from xlakit.errors import FormatError, UnsupportedError, XlakitError
from xlakit.formats.hlo_proto import schema
from xlakit.formats.hlo_proto.literals import read_literal, write_literal
from xlakit.formats.hlo_proto.metadata import bytes_of, text_of
from xlakit.formats.hlo_proto.shapes import read_shape, write_shape
from xlakit.formats.hlo_proto.shardings import (
    read_replica_groups,
    read_sharding,
    write_replica_groups,
    write_sharding,
)
from xlakit.ir.attributes import (
    ConvolutionDimensionNumbers,
    OutputOperandAliasing,
    PaddingDimension,
    ResultAccuracy,
    Sharding,
    SliceDimension,
    SparsityConfig,
    SparsitySide,
    Window,
    WindowDimension,
)
from xlakit.ir.enums import HloEnum, Precision
from xlakit.ir.instruction import Computation
from xlakit.ir.operation import Attribute, Kind, Op

# The value of a reader for an absent field.
_OMITTED: Any = object()


@dataclass(frozen=True, slots=True)
class _Slot:
    """The location of an attribute in HloInstructionProto."""

    spec: Attribute
    parents: tuple[str, ...]
    leaf: str
    repeated: bool
    presence: bool

    def holder(self, instruction: Any) -> Any:
        """The message that has the field, or None if it is absent."""
        for name in self.parents:
            if not instruction.HasField(name):
                return None
            instruction = getattr(instruction, name)
        return instruction

    def made_holder(self, instruction: Any) -> Any:
        """The message that has the field, created if it is absent."""
        for name in self.parents:
            instruction = getattr(instruction, name)
            instruction.SetInParent()
        return instruction


_MOST_DIMENSIONS = 1 << 10

# The reader and the writer of an attribute.
_Codec = tuple[Callable[[Any, _Slot], Any], Callable[[Any, _Slot, Any], None]]


@cache
def _slots(cls: type[Op]) -> tuple[_Slot, ...]:
    return tuple(_slot(cls, spec) for spec in cls.attributes if spec.proto and spec.kind not in _COMPUTATIONS)


def _slot(cls: type[Op], spec: Attribute) -> _Slot:
    *parents, leaf = spec.proto.split(".")
    message = schema.new("HloInstructionProto")
    for name in parents:
        message = getattr(message, name, None)
    field = message.DESCRIPTOR.fields_by_name.get(leaf) if message is not None else None
    if field is None:
        raise UnsupportedError(f"{cls.opcode} declares {spec.name} as '{spec.proto}', which HloInstructionProto lacks")
    repeated = hasattr(getattr(message, leaf), "extend")
    return _Slot(spec, tuple(parents), leaf, repeated, not repeated and field.has_presence)


def read_operation(cls: type[Op], instruction: Any, operands: Sequence[Shape], called: Sequence[Computation]) -> Op:
    """The operation of a HloInstructionProto on ``operands`` that calls ``called``. Raises FormatError, ShapeError."""
    slots = _slots(cls)
    if not slots and not called and not cls.can_call:
        return _without_attributes(cls).canonical(operands)
    values = _distribute(cls, called) if called or cls.can_call else {}
    for slot in slots:
        try:
            holder = slot.holder(instruction)
            value: Any = _OMITTED if holder is None else _READERS[slot.spec.kind](holder, slot)
            if slot.spec.kind is Kind.INT64_LIST_LIST and value is not _OMITTED:
                value = _regrouped(value, operands)
        except XlakitError as error:
            error.rule = f"{slot.spec.proto}: {error.rule}"
            raise
        if value is not _OMITTED:
            values[slot.spec.name] = value
        elif slot.spec.required:
            raise FormatError(f"{slot.spec.proto} is missing")
    return cls(**values).canonical(operands)


@cache
def _without_attributes(cls: type[Op]) -> Op:
    """The instance of a class without attributes; one is enough, as operations are immutable."""
    return cls()


def write_operation(op: Op, instruction: Any, operands: Sequence[Shape]) -> None:
    """Fill the attributes of a HloInstructionProto; computations are not among them. Raises FormatError."""
    for slot in _slots(type(op)):
        value = getattr(op, slot.spec.name)
        holder = slot.made_holder(instruction)
        if slot.spec.kind is Kind.INT64_LIST_LIST and value:
            _check_grouping(value, slot.spec.name, operands)
        if value is not None and not (slot.repeated and value == slot.spec.default):
            _WRITERS[slot.spec.kind](holder, slot, value)


_COMPUTATIONS = frozenset({Kind.COMPUTATION, Kind.COMPUTATION_LIST})


def _distribute(cls: type[Op], called: Sequence[Computation]) -> dict[str, Any]:
    """The called computations as attributes; a list of them may be empty."""
    values: dict[str, Any] = {spec.name: () for spec in cls.attributes if spec.kind is Kind.COMPUTATION_LIST}
    for name, computation in zip(_call_order(cls, len(called)), called, strict=True):
        kind = next(spec.kind for spec in cls.attributes if spec.name == name)
        values[name] = computation if kind is Kind.COMPUTATION else (*values[name], computation)
    return values


@cache
def _call_order(cls: type[Op], count: int) -> tuple[str, ...]:
    """The attribute that each of ``count`` called computations belongs to, in the order of the proto.

    Each attribute takes one, and a list takes the rest. The order is that of ``Op.called_computations``, which is
    evaluated on an instance whose attributes are their own names.
    """
    asked: Any = object.__new__(cls)
    left = count
    for spec in cls.attributes:
        if spec.kind is Kind.COMPUTATION_LIST:
            object.__setattr__(asked, spec.name, (spec.name,) * left)
            left = 0
        elif spec.kind is Kind.COMPUTATION:
            if not left and spec.required:
                raise FormatError(f"called_computation_ids has {count} entries; there is none for {spec.name}")
            object.__setattr__(asked, spec.name, spec.name if left else None)
            left -= bool(left)
    if left:
        raise FormatError(f"called_computation_ids has {count} entries, {left} too many")
    return asked.called_computations


# -- scalars and lists ---------------------------------------------------------------------------


def _read_scalar(holder: Any, slot: _Slot) -> Any:
    value = getattr(holder, slot.leaf)
    if slot.repeated:
        if len(value) > 1:
            raise FormatError(f"has {len(value)} entries, at most one is allowed")
        return value[0] if value else _OMITTED
    if slot.presence:
        return value if holder.HasField(slot.leaf) else _OMITTED
    if isinstance(value, bytes):
        value = text_of(value)
    # A field without presence is zero when it is absent: zero counts as omitted, but False only if the default is None.
    is_omitted = not value and not slot.spec.required and (value is not False or slot.spec.default is None)
    return _OMITTED if is_omitted else value


def _write_scalar(holder: Any, slot: _Slot, value: Any) -> None:
    if slot.repeated:
        getattr(holder, slot.leaf).append(value)
    elif isinstance(getattr(holder, slot.leaf), bytes):
        setattr(holder, slot.leaf, bytes_of(value))
    else:
        setattr(holder, slot.leaf, value)


def _read_list(holder: Any, slot: _Slot) -> Any:
    values = tuple(getattr(holder, slot.leaf))
    return values if values or slot.spec.required else _OMITTED


def _write_list(holder: Any, slot: _Slot, value: Sequence[int]) -> None:
    getattr(holder, slot.leaf).extend(value)


def _read_enum(holder: Any, slot: _Slot) -> Any:
    kind: Any = slot.spec.enum
    value = getattr(holder, slot.leaf)
    if isinstance(value, str):
        return kind.of(value) if value else _OMITTED
    member_of_value = next((member for member in kind if member.value == value), None)
    if member_of_value is None and value:
        raise FormatError(f"{kind.__name__} has no value {value}")
    return _OMITTED if member_of_value is None else member_of_value


def _write_enum(holder: Any, slot: _Slot, value: HloEnum) -> None:
    is_word = isinstance(getattr(holder, slot.leaf), str)
    setattr(holder, slot.leaf, value.text if is_word else value.value)


def _read_precisions(holder: Any, slot: _Slot) -> Any:
    values = getattr(holder, slot.leaf)
    numbers = values if slot.repeated else values.operand_precision
    if not any(numbers) and not slot.spec.required:
        return _OMITTED
    return tuple(Precision.of(number) for number in numbers)


def _write_precisions(holder: Any, slot: _Slot, value: Sequence[Precision]) -> None:
    values = getattr(holder, slot.leaf)
    (values if slot.repeated else values.operand_precision).extend(p.value for p in value)


def _write_lists(holder: Any, slot: _Slot, value: Sequence[Sequence[int]]) -> None:
    for numbers in value:
        getattr(holder, slot.leaf).extend(numbers)


def _regrouped(flat: tuple[int, ...], operands: Sequence[Shape]) -> tuple[tuple[int, ...], ...]:
    """The lists of an attribute that the proto concatenates to one list of numbers.

    Each array of operand 0 has the same number of lists, each as long as the array's rank. Raises FormatError.
    """
    arrays = (operands[0].tuple_shapes or operands[:1]) if operands else ()
    ranks = [shape.rank for shape in arrays]
    if not sum(ranks) or len(flat) % sum(ranks):
        raise FormatError(f"{len(flat)} numbers do not make lists for arrays of ranks {ranks}")
    rest = iter(flat)
    times = len(flat) // sum(ranks)
    return tuple(tuple(next(rest) for _ in range(rank)) for rank in ranks for _ in range(times))


def _check_grouping(lists: Sequence[Sequence[int]], name: str, operands: Sequence[Shape]) -> None:
    """Raise FormatError for lists that :func:`_regrouped` would not recover from their concatenation."""
    try:
        is_same = _regrouped(tuple(n for numbers in lists for n in numbers), operands) == lists
    except FormatError:
        is_same = False
    if not is_same:
        raise FormatError(f"{name} {[list(numbers) for numbers in lists]} do not fit operand 0, {operands[0]}")


# -- messages ------------------------------------------------------------------------------------


def _message(read: Callable[[Any], Any], write: Callable[[Any, Any], None]) -> _Codec:
    """A reader and a writer of one message, or of a list of them where the field is repeated."""

    def reader(holder: Any, slot: _Slot) -> Any:
        value = getattr(holder, slot.leaf)
        if slot.repeated:
            return tuple(read(item) for item in value) if value or slot.spec.required else _OMITTED
        return read(value) if holder.HasField(slot.leaf) else _OMITTED

    def writer(holder: Any, slot: _Slot, value: Any) -> None:
        proto = getattr(holder, slot.leaf)
        if slot.repeated:
            for item in value:
                write(item, proto.add())
            return
        proto.SetInParent()
        write(value, proto)

    return reader, writer


def _fields_codec(cls: type[Any], *names: str) -> tuple[Callable[[Any], Any], Callable[[Any, Any], None]]:
    """The reader and the writer of a dataclass; names: of the message's fields, by default those of the dataclass."""
    own = [field.name for field in fields(cls)]
    pairs = list(zip(own, names or own, strict=True))

    def read(proto: Any) -> Any:
        values = [getattr(proto, name) for _, name in pairs]
        return cls(*(tuple(v) if hasattr(v, "extend") else v for v in values))

    def write(value: Any, proto: Any) -> None:
        for field, name in pairs:
            part = getattr(value, field)
            if isinstance(part, tuple):
                getattr(proto, name).extend(part)
            else:
                setattr(proto, name, part)

    return read, write


def _dimensions_codec(
    cls: type[Any], whole: Callable[[tuple[Any, ...]], Any], dimensions_of: Callable[[Any], Iterable[Any]]
) -> tuple[Callable[[Any], Any], Callable[[Any, Any], None]]:
    """The reader and the writer of a message that has another one, of ``cls``, for each dimension of an array."""
    read_one, write_one = _fields_codec(cls)

    def read(proto: Any) -> Any:
        return whole(tuple(read_one(d) for d in proto.dimensions))

    def write(value: Any, proto: Any) -> None:
        for dimension in dimensions_of(value):
            write_one(dimension, proto.dimensions.add())

    return read, write


_read_labels, _write_labels = _fields_codec(ConvolutionDimensionNumbers)


def _read_dimension_numbers(proto: Any) -> ConvolutionDimensionNumbers:
    n: ConvolutionDimensionNumbers = _read_labels(proto)
    for array, dimensions in (
        ("input", (n.input_batch_dimension, n.input_feature_dimension, *n.input_spatial_dimensions)),
        ("kernel", (n.kernel_input_feature_dimension, n.kernel_output_feature_dimension, *n.kernel_spatial_dimensions)),
        ("output", (n.output_batch_dimension, n.output_feature_dimension, *n.output_spatial_dimensions)),
    ):
        # HLO text has a letter for every dimension up to the largest.
        if not all(0 <= d < _MOST_DIMENSIONS for d in dimensions):
            raise FormatError(f"no array has the dimensions {list(dimensions)} of the {array}")
        if len(set(dimensions)) < len(dimensions):
            raise FormatError(f"a dimension stands twice in {list(dimensions)} of the {array}")
    if not len(n.input_spatial_dimensions) == len(n.kernel_spatial_dimensions) == len(n.output_spatial_dimensions):
        raise FormatError("input, kernel and output have different numbers of spatial dimensions")
    return n


_read_sparsity_side, _write_sparsity_side = _fields_codec(SparsitySide)


def _read_accuracy(proto: Any) -> Any:
    if proto.WhichOneof("specs") == "tolerance":
        tolerance = proto.tolerance
        return ResultAccuracy(tolerance=(tolerance.atol, tolerance.rtol, tolerance.ulps))
    if proto.mode not in (0, 1):
        raise FormatError(f"mode {proto.mode} is not a mode")
    return ResultAccuracy(("DEFAULT", "HIGHEST")[proto.mode])


def _write_accuracy(accuracy: ResultAccuracy, proto: Any) -> None:
    if accuracy.tolerance is not None:
        proto.tolerance.SetInParent()
        proto.tolerance.atol, proto.tolerance.rtol, proto.tolerance.ulps = accuracy.tolerance
    elif accuracy.mode != "DEFAULT":
        proto.mode = proto.Mode.Value(accuracy.mode)


def _read_sparsity(proto: Any) -> SparsityConfig | None:
    sides = [_read_sparsity_side(getattr(proto, s)) if proto.HasField(s) else None for s in ("lhs", "rhs")]
    return SparsityConfig(*sides) if any(sides) else None


def _write_sparsity(config: SparsityConfig, proto: Any) -> None:
    for name in ("lhs", "rhs"):
        side = getattr(config, name)
        if side is not None:
            getattr(proto, name).SetInParent()
            _write_sparsity_side(side, getattr(proto, name))


def _read_pair(proto: Any) -> tuple[int, int]:
    return proto.source, proto.target


def _write_pair(pair: tuple[int, int], proto: Any) -> None:
    proto.source, proto.target = pair


# -- kinds that look at several fields -----------------------------------------------------------


def _read_constraints(holder: Any, slot: _Slot) -> Any:
    return tuple(read_shape(shape) for shape in getattr(holder, slot.leaf)) if holder.constrain_layout else _OMITTED


def _write_constraints(holder: Any, slot: _Slot, value: Sequence[Shape]) -> None:
    holder.constrain_layout = True
    for shape in value:
        write_shape(shape, getattr(holder, slot.leaf).add())


def _read_domain(holder: Any, slot: _Slot) -> Any:
    # XLA's proto calls the operand's side the entry, and HLO text calls it the exit.
    sides = ("domain_exit_sharding", "domain_entry_sharding")
    return tuple(read_sharding(getattr(holder, side)) if holder.HasField(side) else None for side in sides)


def _write_domain(holder: Any, slot: _Slot, value: tuple[Sharding | None, Sharding | None]) -> None:
    entry, exit = value
    if entry is not None:
        write_sharding(entry, holder.domain_exit_sharding)
    if exit is not None:
        write_sharding(exit, holder.domain_entry_sharding)


_SCALAR = (_read_scalar, _write_scalar)
_GROUPS: _Codec = (lambda holder, _: read_replica_groups(holder), lambda holder, _, v: write_replica_groups(v, holder))

_CODECS: Mapping[Kind, _Codec] = {
    Kind.BOOL: _SCALAR,
    Kind.INT64: _SCALAR,
    Kind.FLOAT: _SCALAR,
    Kind.STRING: _SCALAR,
    Kind.SINGLE_DIMENSION: _SCALAR,
    Kind.INT64_LIST: (_read_list, _write_list),
    Kind.INT64_LIST_LIST: (_read_list, _write_lists),
    Kind.ENUM: (_read_enum, _write_enum),
    Kind.PRECISION_LIST: (_read_precisions, _write_precisions),
    Kind.LITERAL: _message(read_literal, write_literal),
    Kind.WINDOW: _message(*_dimensions_codec(WindowDimension, Window, lambda window: window.dimensions)),
    Kind.CONVOLUTION_DIMENSION_NUMBERS: _message(_read_dimension_numbers, _write_labels),
    Kind.PADDING_CONFIG: _message(*_dimensions_codec(PaddingDimension, tuple, tuple)),
    Kind.SLICE_RANGES: _message(*_fields_codec(SliceDimension)),
    Kind.REPLICA_GROUPS: _GROUPS,
    Kind.SOURCE_TARGET_PAIRS: _message(_read_pair, _write_pair),
    Kind.SHAPE: _message(read_shape, write_shape),
    Kind.SHAPE_LIST: (_read_constraints, _write_constraints),
    Kind.DOMAIN: (_read_domain, _write_domain),
    Kind.OUTPUT_OPERAND_ALIASING: _message(
        *_fields_codec(OutputOperandAliasing, "output_shape_index", "operand_index", "operand_shape_index")
    ),
    Kind.RESULT_ACCURACY: _message(_read_accuracy, _write_accuracy),
    Kind.SPARSITY_CONFIG: _message(_read_sparsity, _write_sparsity),
}
_READERS: Mapping[Kind, Callable[[Any, _Slot], Any]] = {kind: codec[0] for kind, codec in _CODECS.items()}
_WRITERS = {kind: codec[1] for kind, codec in _CODECS.items()}
