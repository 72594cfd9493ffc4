"""The form of a node's value while code is emitted: a scalar of one iteration, or a vector of several.

An :class:`xlakit.cpu.loops.emit.emitter.Emitter` walks nodes in the same way for both, and asks one of the two classes
wherever the code differs. In vectors, a node that does not depend on the loop's variable stays a scalar until a node
that does depend on it reads it; then it is spread to all lanes::

    a[i] * b + i        Iterations         VectorIterations(i, 4)
    a[i]                one element        <a[i], a[i+1], a[i+2], a[i+3]>
    b                   a scalar           a scalar, spread to <b, b, b, b> for the product
    i                   the index          <i, i+1, i+2, i+3>
"""

from __future__ import annotations

from typing import Protocol

from xlakit.cpu.llvm import Function, Value
from xlakit.cpu.loops.ir.index import Affine, Node, Variable
from xlakit.cpu.loops.ir.nodes import Apply, Load, Position
from xlakit.cpu.scalars import Scalar
from xlakit.cpu.scalars.memory import parts
from xlakit.errors import InternalError


class Values(Protocol):
    """Gives an emitter the value of a node for all iterations that are emitted at once."""

    def value(self, node: Node) -> Scalar:
        """The value of a node: a vector if it depends on the variable of the lanes, else a scalar."""
        ...

    def spread(self, node: Node, width: int) -> Scalar:
        """A vector with the scalar value of a node in each lane."""
        ...


class Iterations:
    """The iterations that are emitted at once: a single one, whose values are scalars; a subclass has several."""

    # The number of iterations: the lanes of vectors, or 1.
    width: int = 1
    # The number of first iterations whose results have been stored before.
    stored: int = 0

    def width_of(self, node: Node) -> int:
        """The number of elements of a node's value: ``width`` if it differs between the iterations, else 1."""
        return 1

    def stride_of(self, node: Load) -> int:
        """The distance, in memory, between the elements that a load reads for neighboring iterations."""
        return 1

    def step_of(self, offset: Affine) -> int:
        """The distance, in memory, between the elements that neighboring iterations write."""
        return 1

    def everywhere(self, values: Values, node: Node) -> Scalar:
        """The value of a node for each of the iterations, although it may be the same in all of them."""
        return values.value(node)

    def operand(self, values: Values, node: Node, operand: Node) -> Scalar:
        """The value of an operand in the form in which ``node`` needs it: a vector for a vector."""
        return values.value(operand)

    def position(self, fn: Function, node: Position, first: Value) -> Value:
        """The value of an index, given its value in the first iteration."""
        return first

    def check(self, node: Apply, made: Scalar) -> None:
        """Raise InternalError if the value of a node does not have ``width_of`` elements; LLVM checks scalars."""


class VectorIterations(Iterations):
    """Vectors: the values of ``width`` consecutive iterations of the loop of a variable."""

    def __init__(self, variable: Variable, width: int, stored: int = 0) -> None:
        self.variable = variable
        self.width = width
        self.stored = stored

    def width_of(self, node: Node) -> int:
        """``width`` if the node depends on the variable, else 1."""
        return self.width if self.variable in node.variables else 1

    def stride_of(self, node: Load) -> int:
        """The distance between the elements of neighboring lanes; 1 if the load does not depend on the variable."""
        return node.offset.factor_of(self.variable) if self.variable in node.variables else 1

    def step_of(self, offset: Affine) -> int:
        """The distance between the elements of neighboring lanes."""
        return offset.factor_of(self.variable)

    def everywhere(self, values: Values, node: Node) -> Scalar:
        """A vector: the value itself, or the scalar spread to all lanes."""
        return values.value(node) if self.variable in node.variables else values.spread(node, self.width)

    def operand(self, values: Values, node: Node, operand: Node) -> Scalar:
        """A vector if ``node`` is one, else the value itself."""
        return self.everywhere(values, operand) if self.variable in node.variables else values.value(operand)

    def position(self, fn: Function, node: Position, first: Value) -> Value:
        """The indices of the lanes, from the index of the first lane."""
        if self.variable not in node.variables:
            return first
        step = node.index.factor_of(self.variable)
        return fn.splat(first, self.width) + fn.counted(first.type, self.width, step)

    def check(self, node: Apply, made: Scalar) -> None:
        """Raise InternalError if a vector has another number of lanes."""
        if self.variable in node.variables and any(part.type.lanes != self.width for part in parts(made)):
            # To store such a vector would leave the elements of other lanes unchanged.
            raise InternalError(f"{node.op.opcode} gives no vector of {self.width} lanes")


ONE_ITERATION = Iterations()
