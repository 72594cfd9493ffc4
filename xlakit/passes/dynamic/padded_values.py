"""Padded values: arrays at their bounds with scalars for their sizes, and the builder that rules use.

An element is valid if its index is below the size in each dimension. All others are padding, which may hold any value.
A rule for an operation whose result depends on the padding first replaces it, for example by the operation's identity.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import TypeAlias

import numpy as np

from xlakit.data.primitive import PrimitiveType
from xlakit.data.shape import UNBOUNDED, Shape, ShapeIndex
from xlakit.dataclass import dataclass
from xlakit.errors import UnsupportedError
from xlakit.ir.attributes import WindowDimension
from xlakit.ir.instruction import Computation, Instruction
from xlakit.ir.operation import Op
from xlakit.ops.control import Conditional
from xlakit.ops.custom_call import CustomCall
from xlakit.ops.movement import Concatenate
from xlakit.passes.core.computation_builder import ComputationBuilder, ReplacementBuilder
from xlakit.passes.core.rules import opcodes_of

# The index of an array in nested tuples, and one of its dimensions.
DynamicDimension: TypeAlias = tuple[ShapeIndex, int]
# A number of elements: an S32 scalar, or an int if it is known at compile time.
Size: TypeAlias = "Instruction | int"

_GREATEST = 2**31 - 1


def static_shape(shape: Shape) -> Shape:
    """The shape with every dimension static, at its bound; raises UnsupportedError for one without a bound."""
    if shape.tuple_shapes:
        return dataclasses.replace(shape, tuple_shapes=tuple(map(static_shape, shape.tuple_shapes)))
    if UNBOUNDED in shape.dimensions:
        raise UnsupportedError(
            f"{shape} has a dimension without a bound", hint="give the dimension a bound, such as <=1024"
        )
    return dataclasses.replace(shape, dynamic_dimensions=()) if any(shape.dynamic_dimensions) else shape


def dynamic_dimensions(shape: Shape) -> list[DynamicDimension]:
    """The dimensions that are declared dynamic, in order."""
    return [
        (path, d)
        for path, leaf in shape.leaves()
        if leaf.is_array
        for d, mark in enumerate(leaf.dynamic_dimensions)
        if mark
    ]


@dataclass(frozen=True, slots=True)
class Padded:
    """A value with static shapes, and the sizes, S32 scalars, of the dimensions that may have padding."""

    value: Instruction
    sizes: Mapping[DynamicDimension, Instruction] = field(default_factory=dict[DynamicDimension, Instruction])

    @property
    def shape(self) -> Shape:
        """The static shape."""
        return self.value.shape

    @property
    def dims(self) -> dict[int, Instruction]:
        """The sizes of an array, by dimension."""
        return {d: size for (path, d), size in self.sizes.items() if not path}

    def element_sizes(self, number: int) -> dict[DynamicDimension, Instruction]:
        """The sizes inside an element of a tuple."""
        return {(path[1:], d): size for (path, d), size in self.sizes.items() if path and path[0] == number}


def array(value: Instruction, dims: Mapping[int, Instruction]) -> Padded:
    """An array with sizes by dimension."""
    return Padded(value, {((), d): dims[d] for d in sorted(dims)})


def bundle(value: Instruction, elements: Sequence[Mapping[int, Instruction]]) -> Padded:
    """A tuple of arrays, or the one array itself where ``value`` is no tuple, with the sizes of each."""
    if not value.shape.is_tuple:
        return array(value, elements[0])
    return Padded(value, {((i,), d): size for i, dims in enumerate(elements) for d, size in dims.items()})


class Padder(ReplacementBuilder):
    """Makes the instructions that replace the instruction ``old``.

    made: the replacements of the instructions before it.
    """

    def __init__(self, builder: ComputationBuilder, old: Instruction, made: Mapping[Instruction, Instruction]) -> None:
        super().__init__(builder, old)
        self._made = made
        self._numbers: dict[int, Instruction] = {}

    # -- instructions ----------------------------------------------------------------------------

    def at_bounds(self, operands: Sequence[Instruction], op: Op | None = None) -> Instruction:
        """The old instruction on other operands, with all its dimensions at their bounds."""
        return self.append_after_control(self.old.replace(op=op, operands=operands, shape=static_shape(self.old.shape)))

    def append_after_control(self, new: Instruction) -> Instruction:
        """Append an instruction made from the old one, with control predecessors mapped to the new computation."""
        if new.control_predecessors:
            new = new.replace(control_predecessors=[self._made[p] for p in new.control_predecessors])
        return self.builder.append(new)

    def number(self, number: int) -> Instruction:
        """An S32 constant."""
        if number not in self._numbers:
            self._numbers[number] = self.scalar(number, PrimitiveType.S32)
        return self._numbers[number]

    def positions(self, sizes: Sequence[int], dimension: int) -> Instruction:
        """An S32 iota: each element of an array of ``sizes`` is its own index along a dimension."""
        return self.iota(Shape(PrimitiveType.S32, tuple(sizes)), dimension)

    # -- arithmetic of sizes ---------------------------------------------------------------------

    def instruction(self, size: Size) -> Instruction:
        """The size as an S32 scalar."""
        return self.number(size) if isinstance(size, int) else size

    def _arithmetic(self, opcode: str, known: Callable[[int, int], int], a: Size, b: Size) -> Size:
        if isinstance(a, int) and isinstance(b, int):
            return known(a, b)
        return self.apply(opcode, self.instruction(a), self.instruction(b))

    def plus(self, a: Size, b: Size) -> Size:
        """The sum."""
        if a == 0 or b == 0:
            return b if a == 0 else a
        return self._arithmetic("add", int.__add__, a, b)

    def minus(self, a: Size, b: Size) -> Size:
        """The difference."""
        return a if b == 0 else self._arithmetic("subtract", int.__sub__, a, b)

    def times(self, a: Size, b: Size) -> Size:
        """The product."""
        if a == 1 or b == 1:
            return b if a == 1 else a
        return self._arithmetic("multiply", int.__mul__, a, b)

    def over(self, a: Size, b: Size) -> Size:
        """The quotient towards zero, by a number above 0."""
        return a if b == 1 else self._arithmetic("divide", lambda x, y: int(x / y), a, b)

    def modulo(self, a: Size, b: Size) -> Size:
        """The remainder, by a number above 0."""
        return 0 if b == 1 else self._arithmetic("remainder", int.__mod__, a, b)

    def least(self, a: Size, b: Size) -> Size:
        """The smaller one."""
        return a if a is b else self._arithmetic("minimum", min, a, b)

    def most(self, a: Size, b: Size) -> Size:
        """The greater one."""
        return a if a is b else self._arithmetic("maximum", max, a, b)

    def product(self, factors: Iterable[Size]) -> Size:
        """The product of all."""
        total: Size = 1
        for factor in factors:
            total = self.times(total, factor)
        return total

    def size(self, x: Padded, dimension: int) -> Size:
        """The number of valid elements of an array along a dimension."""
        return x.dims.get(dimension, x.shape.dimensions[dimension])

    def common_dims(self, arrays: Iterable[Padded]) -> dict[int, Instruction]:
        """The smallest sizes of several arrays, by dimension."""
        dims: dict[int, Instruction] = {}
        for x in arrays:
            for d, size in x.dims.items():
                dims[d] = self.instruction(self.least(dims.get(d, size), size))
        return dims

    def placements(self, size: Size, window: WindowDimension) -> Size:
        """The number of placements of a window along a dimension, the formula of ``WindowDimension.output_size``."""
        base = self.most(0, self.plus(self.times(self.minus(size, 1), window.base_dilation), 1))
        room = self.plus(base, window.padding_low + window.padding_high - window.dilated_size)
        return self.most(0, self.over(self.plus(room, window.stride), window.stride))

    def row(self, sizes: Sequence[Size]) -> Instruction:
        """An S32 vector of these numbers."""
        known = [size for size in sizes if isinstance(size, int)]
        if len(known) == len(sizes):
            return self.constant(np.asarray(known, np.int32))
        parts = [self.reshape(self.instruction(size), (1,)) for size in sizes]
        return parts[0] if len(parts) == 1 else self.add(Concatenate(dimension=0), *parts)

    def saturated(self, x: Instruction) -> Instruction:
        """Integers as S32; those beyond its range are clamped."""
        kind = x.shape.element_type
        if kind.bit_width >= 32 and kind is not PrimitiveType.S32:
            low = self.scalar(0 if kind.is_unsigned else -_GREATEST, kind)
            high = self.scalar(_GREATEST, kind)
            sizes = x.shape.dimensions
            x = self.apply("minimum", self.apply("maximum", x, self.broadcast(low, sizes)), self.broadcast(high, sizes))
        return self.convert(x, PrimitiveType.S32)

    def checked(self, holds: Instruction, size: Instruction, target: str, *facts: Instruction) -> Instruction:
        """The size if ``holds`` is true at run time; else the custom call ``target``, given ``facts``, raises an error.

        The ``backend_config`` of the call names the operation that the error is about, and the shapes of its operands.
        """
        given, name = self.tuple(*facts), f"{self.old.name}_check"
        op = CustomCall(custom_call_target=target, custom_call_has_side_effect=True)
        about = "; ".join((self.old.opcode, *(str(operand.shape) for operand in self.old.operands)))
        annotations = dataclasses.replace(self.old.annotations, backend_config=about)

        def fail(inner: Padder, facts: Instruction) -> Instruction:
            fault = Instruction(op, inner.elements(facts), size.shape, self.old.name, annotations=annotations)
            return inner.builder.append(fault)

        passed = self.function(name, [size.shape], lambda _, size: size)
        failed = self.function(name, [given.shape], fail)
        return self.add(Conditional(branch_computations=(passed, failed)), holds, size, given)

    # -- valid elements and padding --------------------------------------------------------------

    def valid(self, sizes: Sequence[int], dims: Mapping[int, Size]) -> Instruction | None:
        """Whether each element of an array of ``sizes`` is below all of ``dims``, as a PRED array; None without any."""
        found: Instruction | None = None
        for d, size in dims.items():
            below = self.compare(self.positions(sizes, d), self.broadcast(self.instruction(size), sizes), "LT")
            found = below if found is None else self.apply("and", found, below)
        return found

    def chosen(self, test: Instruction | None, x: Instruction, otherwise: Instruction) -> Instruction:
        """``x`` where the test holds, or everywhere without one; else ``otherwise``, an array or a scalar."""
        if test is None:
            return x
        return self.apply("select", test, x, self.broadcast(otherwise, x.shape.dimensions))

    def filled(self, x: Padded, scalar: Instruction, dimensions: Iterable[int] | None = None) -> Instruction:
        """The array with ``scalar`` instead of the padding along ``dimensions``, by default along all."""
        dims = x.dims if dimensions is None else {d: x.dims[d] for d in dimensions if d in x.dims}
        return self.chosen(self.valid(x.shape.dimensions, dims), x.value, scalar)

    def zeroed(self, x: Padded, dimensions: Iterable[int] | None = None) -> Instruction:
        """The array with zeros instead of its padding."""
        if not x.dims:
            return x.value
        return self.filled(x, self.zero(x.shape.element_type), dimensions)

    def zero(self, kind: PrimitiveType) -> Instruction:
        """The zero of a type."""
        return self.scalar(0, kind)

    # -- computations ----------------------------------------------------------------------------

    def function(self, name: str, shapes: Iterable[Shape], body: Callable[..., Instruction]) -> Computation:
        """A computation with parameters of these shapes, whose name begins with ``name``.

        body: gives its root, from a padder that makes its instructions and from its parameters.
        """
        inner = Padder(ComputationBuilder(self.context), self.old, {})
        root = body(inner, *(inner.builder.parameter(number, shape) for number, shape in enumerate(shapes)))
        return inner.builder.computation(name, root)


class NoRuleError(Exception):
    """Raised by rules: the operation has no rule for these padded arrays; a host call then evaluates it."""


# Makes the replacement of an instruction on padded operands.
PaddedRule: TypeAlias = Callable[[Instruction, Sequence[Padded], Padder], Padded]


class PaddedRules(dict[str, PaddedRule]):
    """Rules by opcode."""

    def rule(self, *roots: str | type) -> Callable[[PaddedRule], PaddedRule]:
        """Enter a function under these opcodes, classes or traits of operations."""
        opcodes = opcodes_of(roots)

        def enter(function: PaddedRule) -> PaddedRule:
            self.update(dict.fromkeys(opcodes, function))
            return function

        return enter
