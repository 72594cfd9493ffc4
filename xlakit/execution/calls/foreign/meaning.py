"""Foreign calls as ordinary HLO: a function builds the computation of a call once, and the interpreter runs it.

A function behind the custom call serves both backends and all tools; a rewrite by a pass would not serve the
interpreter, which has no passes. Sums of 16-bit floats, and the operations on these sums, are in f32, as in the
libraries, and rounded to the result's type once.
"""

from __future__ import annotations

from collections.abc import Sequence

from xlakit.builder import XlaBuilder
from xlakit.data.primitive import PrimitiveType
from xlakit.data.shape import Shape
from xlakit.dataclass import dataclass
from xlakit.errors import ShapeError, UnsupportedError
from xlakit.execution.calls.foreign.config import Config
from xlakit.ops.custom_call import CustomCall
from xlakit.ops.data import constant, tuple_
from xlakit.ops.elementwise.convert import convert_element_type
from xlakit.ops.handle import XlaOp
from xlakit.ops.movement import broadcast

_F16_AND_MORE = (PrimitiveType.F16, PrimitiveType.BF16, PrimitiveType.F32, PrimitiveType.F64)


@dataclass(frozen=True, slots=True)
class Foreign:
    """A call under construction as HLO: its operands, which are parameters of a computation, and its config."""

    builder: XlaBuilder
    op: CustomCall
    declared: Shape
    operands: tuple[XlaOp, ...]
    config: Config

    @property
    def results(self) -> tuple[Shape, ...]:
        """The shapes of the results; the first is that of the value, others are workspaces and the like."""
        return self.declared.tuple_shapes_or_self

    @property
    def result(self) -> Shape:
        """The shape of the value. Raises ShapeError where there is none."""
        if not self.results or not self.results[0].is_array:
            raise ShapeError(
                f"the result must be an array, or a tuple that starts with one, got {self.declared}",
                hint="compare it with the text that XLA printed",
            )
        return self.results[0]

    def need_operands(self, names: Sequence[str]) -> tuple[XlaOp, ...]:
        """The operands. Raises ShapeError where there are more or fewer than names."""
        if len(self.operands) != len(names):
            raise ShapeError(
                f"with this backend_config it takes {len(names)} operands ({', '.join(names)}), "
                f"got {len(self.operands)}",
                hint="give the operands that backend_config asks for",
            )
        return self.operands

    def sum_type(self) -> PrimitiveType:
        """The type in which the call computes. Raises UnsupportedError for operands or results of other types."""
        kinds = [o.shape.element_type for o in self.operands if o.shape.is_array] + [self.result.element_type]
        for kind in kinds:
            known = kind in _F16_AND_MORE or kind.is_complex or kind in (PrimitiveType.S8, PrimitiveType.S32)
            if not known:
                raise UnsupportedError(
                    f"'{self.op.custom_call_target}' of {kind.hlo_name} has no meaning here",
                    hint="8-bit floats are not supported; types may be s8, s32, f16, bf16, f32, f64, c64 and c128",
                )
        wide = self.result.element_type
        if wide.is_complex or wide.is_integral:
            return wide
        return PrimitiveType.F64 if PrimitiveType.F64 in kinds else PrimitiveType.F32

    def scalar(self, value: complex, like: XlaOp) -> XlaOp:
        """A constant as large as another array, of its type."""
        kind = like.shape.element_type
        number = value if kind.is_complex else value.real
        return broadcast(constant(self.builder, number, kind), like.shape.dimensions)

    def finished(self, value: XlaOp, last: XlaOp | None = None) -> XlaOp:
        """The value in the result's type and tuple, with zeros for workspaces, and ``last`` after them.

        Raises ShapeError where the declared shape is another.
        """
        result = self.result
        if value.shape.dimensions != result.dimensions:
            raise ShapeError(
                f"its operands and backend_config give the dimensions {list(value.shape.dimensions)}, "
                f"the declared shape is {result}",
                hint="compare shapes and dimension numbers with the text that XLA printed",
            )
        value = convert_element_type(value, result.element_type)
        if not self.declared.is_tuple:
            return value
        others = [] if last is None else [last]
        zeros = [self.zeros(shape) for shape in self.results[1 : len(self.results) - len(others)]]
        return tuple_([value, *zeros, *others])

    def all_finished(self, values: Sequence[XlaOp]) -> XlaOp:
        """Several values in the types of the first results, with zeros for the others.

        Raises ShapeError where the declared shapes are others.
        """
        if not self.declared.is_tuple or len(values) > len(self.results):
            raise ShapeError(
                f"it has {len(values)} results, the declared shape is {self.declared}",
                hint="compare it with the text that XLA printed",
            )
        converted: list[XlaOp] = []
        for number, (value, shape) in enumerate(zip(values, self.results, strict=False)):
            if not shape.is_array or value.shape.dimensions != shape.dimensions:
                raise ShapeError(
                    f"result {number} has the dimensions {list(value.shape.dimensions)}, the declared shape is {shape}",
                    hint="compare shapes and dimension numbers with the text that XLA printed",
                )
            converted.append(convert_element_type(value, shape.element_type))
        return tuple_([*converted, *(self.zeros(shape) for shape in self.results[len(values) :])])

    def zeros(self, shape: Shape) -> XlaOp:
        """Zeros for a work space. Raises UnsupportedError for what is no array."""
        if not shape.is_array:
            raise UnsupportedError(f"a result of shape {shape} has no meaning here", hint="results may be arrays")
        return broadcast(constant(self.builder, 0, shape.element_type), shape.dimensions)
