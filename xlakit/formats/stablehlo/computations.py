"""Construction of an HLO computation from a function or a region: its instructions and the values they compute."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from xlakit.data.literal import Literal
from xlakit.data.primitive import PrimitiveType
from xlakit.data.shape import Shape
from xlakit.dataclass import dataclass
from xlakit.formats.stablehlo.bytecode import ForeignProgram
from xlakit.formats.stablehlo.values import Dense
from xlakit.formats.unique_names import sanitized
from xlakit.ir.attributes import NO_ANNOTATIONS, Annotations
from xlakit.ir.instruction import Computation, Instruction, post_order
from xlakit.ir.operation import Op
from xlakit.ops.data import Constant, GetTupleElement, Parameter, Tuple
from xlakit.ops.movement import Broadcast

OF_SHARDY: Final = "xla.sdy."
"""How frontend attributes begin that HLO has of Shardy."""
_SCALAR: Final = ()


class Names:
    """Unique names in a module: the last part of an operation's name in the program, and a number."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._plain: dict[str, str] = {}

    def of(self, annotations: Annotations, otherwise: str) -> str:
        """A unique name for an instruction, from ``op_name`` of its metadata, or else from ``otherwise``."""
        metadata = annotations.metadata
        said = metadata.op_name if metadata is not None and metadata.op_name else otherwise
        plain = self._plain.get(said)
        if plain is None:
            plain = self._plain[said] = sanitized(said.rpartition("/")[2] or otherwise)
        return self.numbered(plain)

    def numbered(self, name: str) -> str:
        """The name with the next number."""
        count = self._counts[name] = self._counts.get(name, 0) + 1
        return f"{name}.{count}"


@dataclass(frozen=True, slots=True)
class ConstantValue:
    """A constant of the program, of which each computation that uses it gets an instruction."""

    number: int
    dense: Dense
    shape: Shape


class Draft:
    """A computation under construction; values are identified by their numbers in the bytecode."""

    def __init__(self, names: Names, constants: dict[int, ConstantValue], same: dict[int, int]) -> None:
        """``same``: the numbers of values that are equal to other values, with the numbers of these."""
        self._names, self._constants, self._same = names, constants, same
        self._instructions: list[Instruction] = []
        self._values: dict[int, Instruction] = {}
        self._made: dict[int, Instruction] = {}

    def value(self, number: int) -> Instruction:
        """The instruction that computes a value. Raises ForeignProgram for one of another computation."""
        number = self._same.get(number, number)
        found = self._values.get(number)
        if found is not None:
            return found
        constant = self._constants.get(number)
        if constant is None:
            raise ForeignProgram("a region uses a value of the program around it")
        found = self._made.get(constant.number)
        if found is None:
            found = self._made[constant.number] = self._constant(constant)
        return found

    def define(self, number: int, value: Instruction) -> None:
        """Make an instruction the definition of a value."""
        self._values[self._same.get(number, number)] = value

    def emit(
        self,
        op: Op,
        operands: Sequence[Instruction],
        shape: Shape,
        annotations: Annotations = NO_ANNOTATIONS,
        name: str = "",
    ) -> Instruction:
        """A new instruction."""
        instruction = Instruction(
            op, operands, shape, self._names.of(annotations, name or op.opcode), annotations=annotations
        )
        self._instructions.append(instruction)
        return instruction

    def parameter(self, number: int, shape: Shape, annotations: Annotations, name: str) -> Instruction:
        """A parameter."""
        return self.emit(Parameter(number=number), (), shape, annotations, name)

    def element(self, whole: Instruction, index: int, annotations: Annotations = NO_ANNOTATIONS) -> Instruction:
        """An element of a tuple."""
        shape = whole.shape.tuple_shapes[index].without_layout()
        return self.emit(GetTupleElement(index=index), (whole,), shape, annotations)

    def results(
        self, op: Op, operands: Sequence[Instruction], shapes: Sequence[Shape], annotations: Annotations
    ) -> Sequence[Instruction]:
        """The results of a new instruction, which gives a tuple of them where there are several."""
        if len(shapes) == 1:
            return [self.emit(op, operands, shapes[0], annotations)]
        whole = self.emit(op, operands, tuple_of(shapes), annotations)
        if annotations.sharding is not None or annotations.frontend_attributes:
            # The sharding annotates the tuple; the get-tuple-elements have none.
            frontend_attributes = tuple(
                pair for pair in annotations.frontend_attributes if not pair[0].startswith(OF_SHARDY)
            )
            annotations = replace(annotations, sharding=None, frontend_attributes=frontend_attributes)
        return [self.element(whole, index, annotations) for index in range(len(shapes))]

    def bundle(self, values: Sequence[Instruction], annotations: Annotations = NO_ANNOTATIONS) -> Instruction:
        """A tuple."""
        return self.emit(Tuple(), values, tuple_of([value.shape for value in values]), annotations)

    def _constant(self, constant: ConstantValue) -> Instruction:
        shape, array = constant.shape, _elements(constant.dense)
        if array.shape == _SCALAR and shape.dimensions:
            scalar = self.emit(
                Constant(literal=Literal(Shape(shape.element_type), array)), (), Shape(shape.element_type)
            )
            return self.emit(Broadcast(dimensions=()), (scalar,), shape)
        return self.emit(Constant(literal=Literal(shape, array)), (), shape)

    def computation(self, name: str, root: Instruction) -> Computation:
        """The computation with all that was emitted, as XLA orders it: depth first from instructions without users."""
        used = {operand for instruction in self._instructions for operand in instruction.operands}
        return Computation(name, tuple(post_order(i for i in self._instructions if i not in used)), root)


def tuple_of(shapes: Sequence[Shape]) -> Shape:
    """The shape of a tuple."""
    return Shape(PrimitiveType.TUPLE, tuple_shapes=tuple(shapes))


def _elements(dense: Dense) -> Any:
    """The elements of a constant; a scalar where all are the same."""
    kind, dimensions = dense.shape.element_type, dense.shape.dimensions
    if kind is PrimitiveType.PRED:
        return _truths(dense)
    if kind.is_integral and kind.bit_width < 8:
        # A byte for each, in its lower bits.
        unused = 8 - kind.bit_width
        array = np.frombuffer(dense.data, np.int8 if kind.is_signed else np.uint8) << unused >> unused
        array = array.astype(kind.dtype)
    else:
        array = np.frombuffer(dense.data, kind.dtype)
    return array.reshape(_SCALAR if array.size == 1 else dimensions)


def _truths(dense: Dense) -> Any:
    """Truth values: all the same in one byte, otherwise one bit each."""
    count = dense.shape.num_elements
    if len(dense.data) == 1 and (count == 1 or dense.data in (b"\0", b"\xff")):
        return np.array(dense.data != b"\0")
    # Another single byte is ambiguous: a splat value, or the bits of up to eight elements.
    if len(dense.data) != -(-count // 8) or len(dense.data) == 1:
        raise ForeignProgram("truth values whose form is not plain to see")
    bits = np.unpackbits(np.frombuffer(dense.data, np.uint8), count=count, bitorder="little")
    return bits.astype(bool).reshape(dense.shape.dimensions)
