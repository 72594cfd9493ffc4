"""The base class of all operations, which the pages of ``xlakit.ops`` declare.

An operation is an immutable value: its class declares the opcode, the attributes, the shape rule and the meaning; an
instance holds the attributes of one instruction. The parser, the printer, the proto converter, the verifier, the
builder and the interpreter are driven by these classes.
"""

from __future__ import annotations

import dataclasses
import enum
import importlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol, TypeVar, dataclass_transform

import numpy as np

from xlakit.data.immutable import Immutable
from xlakit.data.shape import Shape
from xlakit.dataclass import dataclass
from xlakit.errors import InternalError, ShapeError, UnsupportedError

if TYPE_CHECKING:
    import numpy as np

    from xlakit.ir.attributes import CollectiveGroups
    from xlakit.ir.instruction import Computation, Instruction

# The same as numpy.typing.NDArray[Any]; importing numpy.typing would take a millisecond.
Array = np.ndarray[Any, np.dtype[Any]]


class Token:
    """The value of a token; there is one, TOKEN."""

    def __repr__(self) -> str:
        return "TOKEN"


TOKEN: Final = Token()

# What an instruction evaluates to. An array with bounded dynamic dimensions holds just the elements that are there.
Value = Any  # Array | Token | tuple[Value, ...]; recursive unions make every page cast.


class Kind(enum.Enum):
    """The types of attributes; each format has one codec for each kind."""

    BOOL = enum.auto()
    INT64 = enum.auto()
    FLOAT = enum.auto()
    STRING = enum.auto()
    INT64_LIST = enum.auto()  # {1,2}
    SINGLE_DIMENSION = enum.auto()  # an int in Python, a list of one in text: dimensions={1}
    LITERAL = enum.auto()
    COMPUTATION = enum.auto()
    COMPUTATION_LIST = enum.auto()
    ENUM = enum.auto()  # with enum=...
    PRECISION_LIST = enum.auto()
    WINDOW = enum.auto()
    CONVOLUTION_DIMENSION_NUMBERS = enum.auto()
    PADDING_CONFIG = enum.auto()
    SLICE_RANGES = enum.auto()
    REPLICA_GROUPS = enum.auto()
    SOURCE_TARGET_PAIRS = enum.auto()
    INT64_LIST_LIST = enum.auto()  # {{1,2},{3}}
    SHAPE = enum.auto()
    SHAPE_LIST = enum.auto()
    DOMAIN = enum.auto()
    OUTPUT_OPERAND_ALIASING = enum.auto()
    RESULT_ACCURACY = enum.auto()
    SPARSITY_CONFIG = enum.auto()


@dataclass(frozen=True, slots=True)
class Attribute:
    """One attribute of an operation.

    ``text`` is its name in HLO text ("" where it stands inside the operand parentheses, as a constant's value
    does); ``proto`` the dotted path of its field in HloInstructionProto (an int in a repeated field is a list of
    one). It is printed when it differs from its default, or ``always``.
    """

    name: str
    kind: Kind
    text: str
    proto: str
    required: bool
    default: Any
    always: bool
    enum: type[enum.Enum] | None


def attribute(
    kind: Kind,
    *,
    default: Any = dataclasses.MISSING,
    text: str | None = None,
    proto: str | None = None,
    always: bool = False,
    enum: type[enum.Enum] | None = None,
) -> Any:
    """Declare an attribute of an operation; ``text`` and ``proto`` default to the field's own name."""
    spec = {"kind": kind, "text": text, "proto": proto, "always": always, "enum": enum}
    return dataclasses.field(default=default, metadata={"xlakit": spec})


class Evaluation(Protocol):
    """The interface of the interpreter to ``Op.evaluate`` while it runs one instruction."""

    @property
    def instruction(self) -> Instruction:
        """The instruction that runs."""
        ...

    @property
    def shape(self) -> Shape:
        """Its declared shape."""
        ...

    @property
    def replica_id(self) -> int:
        """The replica that runs it."""
        ...

    @property
    def partition_id(self) -> int:
        """The partition that runs it."""
        ...

    @property
    def num_replicas(self) -> int:
        """How many replicas run the program."""
        ...

    @property
    def num_partitions(self) -> int:
        """How many partitions run the program."""
        ...

    def new_result(self, number: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """Memory for array ``number`` of the result: its final location if the caller has fixed one, else new."""
        ...

    def draw(self) -> tuple[int, int]:
        """The key of this device's random numbers, and the number of earlier draws."""
        ...

    def advance_rng_state(self, delta: int) -> Array:
        """The 128-bit random state of this device as U64[2], low half first; ``delta`` is added to it afterwards."""
        ...

    def call(self, computation: Computation, *arguments: Value) -> Value:
        """Run a computation."""
        ...

    def apply(self, computation: Computation, *arrays: Array) -> tuple[Array, ...]:
        """Run a computation on scalars for every element of ``arrays``, which broadcast against each other.

        Gives the leaves of the result (one array where the computation gives a scalar), broadcast to the
        common dimensions.
        """
        ...

    def all_gather(self, groups: CollectiveGroups, payload: Value) -> tuple[list[Value], int]:
        """The payloads of all members of this device's group, in the group's order, and this device's index.

        A device in no group gets nothing, and -1.
        """
        ...

    def index_in_group(self, groups: CollectiveGroups) -> tuple[int, int]:
        """This device's index in its group, and the number of members; -1 and 0 for a device in no group."""
        ...

    def all_to_all(self, groups: CollectiveGroups, payloads: Sequence[Value]) -> list[Value]:
        """As :meth:`all_gather`, but ``payloads`` has one for each member; gives those addressed to this device."""
        ...

    def broadcast(self, groups: CollectiveGroups, payload: Value, root: int) -> Value:
        """As :meth:`all_gather`, but gives the payload of member ``root``; a device in no group gets its own."""
        ...

    def reduce(self, groups: CollectiveGroups, arrays: Sequence[Array], computation: Computation) -> list[Array] | None:
        """As :meth:`all_gather`, but the arrays combined in the group's order; None for a device in no group."""
        ...

    def permute(
        self, pairs: Sequence[tuple[int, int]], payloads: Sequence[Value], *, channel_id: int | None = None
    ) -> dict[int, Value]:
        """Send ``payloads[i]`` along ``pairs[i]`` where this device is its source.

        Gives the payloads that arrived here, by the number of the pair; payloads of pairs with another source are
        ignored.
        """
        ...

    def infeed(self, shape: Shape) -> Value:
        """The next value of this device's infeed queue."""
        ...

    def outfeed(self, value: Value, shape: Shape) -> None:
        """Append to this device's outfeed queue; ``shape`` has the layout in which the host may want it."""
        ...

    def start_send(self, channel_id: int | None, value: Value, *, is_host_transfer: bool) -> int:
        """Put a value into a channel; gives the number of the request."""
        ...

    def finish_send(self, request: int) -> None:
        """Wait until the value of the request has arrived at a recv."""
        ...

    def start_recv(self, channel_id: int | None, shape: Shape, *, is_host_transfer: bool) -> int:
        """Ask for the next value of a channel; gives the number of the request."""
        ...

    def finish_recv(self, request: int) -> Value:
        """Wait for the value of a request."""
        ...

    def custom_call(self, target: str, *operands: Value) -> Value:
        """The result of the function registered under a name, checked against the declared shape."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Op(Immutable):
    """The base of all operations.

    Subclasses are made with :func:`operation`; their fields are the attributes.
    """

    opcode: ClassVar[str] = ""
    # How many operands; None for any number.
    arity: ClassVar[int | None] = None
    # The result at an index depends only on the operands at the same index, and evaluate() broadcasts as NumPy does.
    pointwise: ClassVar[bool] = False
    # The same, but only if operands and result are scalars: evaluate() may then be given arrays in their place.
    batches_scalars: ClassVar[bool] = False
    # The names of the operation in the documents that it comes from ("Add", "CrossReplicaSum").
    documents: ClassVar[tuple[str, ...]] = ()
    attributes: ClassVar[tuple[Attribute, ...]] = ()
    # Whether the class has attributes that are computations.
    can_call: ClassVar[bool] = False
    # Whether the class overrides has_side_effect.
    can_have_effect: ClassVar[bool] = False

    def __reduce__(self) -> tuple[Any, ...]:
        # Pickled by page and opcode, since classes that are generated from a table have no name in their module.
        attributes = {spec.name: getattr(self, spec.name) for spec in self.attributes}
        return _operation_of, (type(self).__module__, self.opcode, attributes)

    def result_shape(self, operands: Sequence[Shape], declared: Shape | None) -> Shape:
        """The shape rule: the result's shape, or ShapeError naming the rule that is broken.

        ``declared`` is the shape in the program text, or None when a builder infers it. Operations whose result does
        not follow from their operands (parameter, reshape, iota) check and return ``declared``. Layouts are ignored,
        and the result has none.
        """
        raise InternalError(f"{self.opcode} has no shape rule", hint="define result_shape in its class")

    def canonical(self, operands: Sequence[Shape]) -> Op:
        """The operation in its canonical form, where the operands imply attributes: one form for each meaning."""
        return self

    def evaluate(self, context: Evaluation, *operands: Value) -> Value:
        """The meaning: the result for these operand values."""
        raise UnsupportedError(
            f"the interpreter does not run {self.opcode}",
            operation=self.opcode,
            hint="see docs/support.md for what runs",
        )

    @property
    def is_pointwise(self) -> bool:
        """Whether the class is ``pointwise``; for an operation that calls a computation, whether the computation is."""
        return self.pointwise

    @property
    def has_side_effect(self) -> bool:
        """Whether the instruction must run, once and in order, even if its result is not used."""
        return False

    @property
    def called_computations(self) -> tuple[Computation, ...]:
        """The computations that this operation calls, in the order of HloInstructionProto."""
        if not self.can_call:
            return ()
        called: list[Computation] = []
        for spec in self.attributes:
            if spec.kind is Kind.COMPUTATION:
                value = getattr(self, spec.name)
                called.extend([value] if value is not None else [])
            elif spec.kind is Kind.COMPUTATION_LIST:
                called.extend(getattr(self, spec.name))
        return tuple(called)

    def map_computations(self, change: Callable[[Computation], Computation]) -> Op:
        """The same operation calling other computations."""
        changes: dict[str, Any] = {}
        for spec in self.attributes:
            value = getattr(self, spec.name)
            if spec.kind is Kind.COMPUTATION and value is not None:
                changes[spec.name] = change(value)
            elif spec.kind is Kind.COMPUTATION_LIST:
                changes[spec.name] = tuple(change(c) for c in value or ())
        return dataclasses.replace(self, **changes) if changes else self  # pyright: ignore


OPERATIONS: dict[str, type[Op]] = {}

_T = TypeVar("_T", bound=Op)


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(attribute,))
def operation(
    opcode: str,
    *,
    arity: int | None = None,
    pointwise: bool = False,
    documents: Sequence[str] = (),
    variant: bool = False,
) -> Callable[[type[_T]], type[_T]]:
    """Make a class an operation and enter it in OPERATIONS under its HLO opcode name.

    variant: the class is a second one for an opcode that another class has entered; readers of HLO choose between them.
    """

    def decorate(cls: type[_T]) -> type[_T]:
        made = _inheriting(cls) or dataclass(frozen=True, slots=True, kw_only=True)(cls)
        made.opcode, made.arity, made.pointwise = opcode, arity, pointwise
        made.documents = tuple(documents)
        made.attributes = tuple(_attribute(f) for f in dataclasses.fields(made) if "xlakit" in f.metadata)  # pyright: ignore
        made.can_call = any(spec.kind in (Kind.COMPUTATION, Kind.COMPUTATION_LIST) for spec in made.attributes)
        made.can_have_effect = made.has_side_effect is not Op.has_side_effect
        if variant:
            return made
        if opcode in OPERATIONS:
            raise ShapeError(f"the operation {opcode} is declared twice", hint="give the class an opcode of its own")
        OPERATIONS[opcode] = made
        return made

    return decorate


def _inheriting(cls: type[_T]) -> type[_T] | None:
    """``cls`` with empty slots, so that it inherits its base's dataclass methods; None if it has fields of its own.

    Generating the methods of a dataclass is the slowest part of importing a page, and half of the operations have no
    attributes of their own.
    """
    inherited = cls.__dataclass_fields__.keys()
    bases = [vars(base).get("__dataclass_fields__", {}).keys() for base in cls.__mro__[1:]]
    if vars(cls).get("__annotations__") or any(not fields <= inherited for fields in bases):
        return None
    members = {name: value for name, value in vars(cls).items() if name not in ("__dict__", "__weakref__")}
    made: Any = type(cls)(cls.__name__, cls.__bases__, {**members, "__slots__": ()})
    made.__qualname__ = cls.__qualname__
    return made


def _operation_of(page: str, opcode: str, attributes: dict[str, Any]) -> Op:
    importlib.import_module(page)
    return OPERATIONS[opcode](**attributes)


def _attribute(field: dataclasses.Field[Any]) -> Attribute:
    spec = field.metadata["xlakit"]
    return Attribute(
        field.name,
        spec["kind"],
        field.name if spec["text"] is None else spec["text"],
        field.name if spec["proto"] is None else spec["proto"],
        field.default is dataclasses.MISSING,
        None if field.default is dataclasses.MISSING else field.default,
        spec["always"],
        spec["enum"],
    )
