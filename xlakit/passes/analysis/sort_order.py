"""Recognizes comparators of sort that order by keys, so that the bits of the keys can be sorted without comparator.

A comparator is decomposed into comparisons f(a) < f(b) of one function of both elements. Such a function may only keep
or reverse the order: take a part of a complex number, negate or widen a number, replace NaN or zero by a constant. The
effect on NaN and zero is found by symbolic evaluation of the function for the two NaNs and the two zeros (by sign), so
it does not depend on how the program writes the function.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final, NamedTuple, TypeAlias

import numpy as np

from xlakit.data.primitive import PrimitiveType
from xlakit.dataclass import dataclass
from xlakit.ir.enums import ComparisonDirection, ComparisonType
from xlakit.ir.instruction import Computation, Instruction, post_order
from xlakit.ir.operation import Op
from xlakit.ops.data import Constant, Copy, Iota, Parameter
from xlakit.ops.elementwise.binary import And, Or
from xlakit.ops.elementwise.compare import Compare
from xlakit.ops.elementwise.convert import Convert
from xlakit.ops.elementwise.select import Select
from xlakit.ops.elementwise.unary import Imag, Negate, Not, Real
from xlakit.ops.movement import Broadcast


class NanOrder(enum.Enum):
    """The position of NaN in the ascending order of a key."""

    BITS = "bits"  # by sign and payload: negative NaNs before -Inf, positive NaNs after Inf
    LOW = "low"  # all NaNs are equal and before all numbers
    HIGH = "high"  # all NaNs are equal and after all numbers


class Part(enum.Enum):
    """The part of an element that is the key."""

    WHOLE = "whole"
    REAL = "real"
    IMAG = "imag"


_PARTS: Final[Mapping[type[Op], Part]] = {Real: Part.REAL, Imag: Part.IMAG}


@dataclass(frozen=True, slots=True)
class SortKey:
    """One key of an order: the elements of an operand, or a part of them, ascending or descending.

    ``kind`` is the type of the key; if the key is a part of a complex element, the type of that part. ``nan`` is the
    position of NaN before ``descending`` reverses the order. If ``zeros_equal``, -0 and +0 compare equal.
    """

    operand: int
    kind: PrimitiveType
    part: Part = Part.WHOLE
    descending: bool = False
    nan: NanOrder = NanOrder.BITS
    zeros_equal: bool = False

    @property
    def merges(self) -> bool:
        """Whether keys of different bits can compare equal."""
        return self.zeros_equal or self.nan is not NanOrder.BITS

    def encoded(self) -> str:
        """The order of elements of the key's type in full, without the operand."""
        return f"{self.kind.hlo_name}_{self.nan.value}_{int(self.descending)}{int(self.zeros_equal)}"

    @staticmethod
    def decoded(text: str) -> SortKey:
        """The key whose ``encoded`` is ``text``, of whole elements of operand 0."""
        kind, nan, flags = text.split("_")
        descending, zeros_equal = (flag == "1" for flag in flags)
        found = next(k for k in PrimitiveType if k.hlo_name == kind)
        return SortKey(0, found, descending=descending, nan=NanOrder(nan), zeros_equal=zeros_equal)


# A lexicographic order: a key decides if all keys before it are equal.
KeyOrder = tuple[SortKey, ...]


def recognize_order(comparator: Computation) -> KeyOrder | None:
    """The keys that a comparator orders by; None if it is not recognized and has to be called.

    Parameters 2k and 2k + 1 of the comparator are two elements of operand k; the result says whether the first goes
    before the second. If the comparator does not order NaN (a plain comparison of floats), NaN goes last.
    """
    keys: list[SortKey] = []
    remaining: Instruction | None = comparator.root
    while remaining is not None:
        split = _split(remaining)
        if split is None:
            return None
        key, remaining = split
        before = next((k for k in keys if (k.operand, k.part) == (key.operand, key.part)), None)
        if before is None:
            keys.append(key)
        elif before.merges and replace(before, descending=key.descending) != key:
            return None
    return tuple(keys)


def counts_along(operand: Instruction, dimension: int) -> bool:
    """Whether each element of an operand is its own index along a dimension: an iota, or a broadcast of one."""
    op = operand.op
    if isinstance(op, Broadcast):
        dimensions = list(op.dimensions)
        return dimension in dimensions and counts_along(operand.operands[0], dimensions.index(dimension))
    return isinstance(op, Iota) and op.iota_dimension == dimension


def _split(root: Instruction) -> tuple[SortKey, Instruction | None] | None:
    """The first key of a comparator, and the comparator for elements with equal first keys; that is None at the end."""
    whole = _comparison(root)
    if whole is not None:
        return None if whole.key is None else (whole.key, None)
    for before, different, remaining in _lexicographic_forms(root):
        first, second = _comparison(before), _comparison(different.condition)
        if first is None or second is None or first.key is None or not first.strict:
            continue
        if first.subject == second.subject and second.direction is different.direction:
            return first.key, remaining
    return None


class _Test(NamedTuple):
    """A condition that must be a comparison with this direction for a lexicographic form to hold."""

    condition: Instruction
    direction: ComparisonDirection


def _lexicographic_forms(root: Instruction) -> Iterator[tuple[Instruction, _Test, Instruction]]:
    """The ways to read an instruction as "before, or equal and the rest": (before, equal, rest)."""
    equal, different = ComparisonDirection.EQ, ComparisonDirection.NE
    if isinstance(root.op, Select):
        condition, yes, no = root.operands
        yield no, _Test(condition, equal), yes
        yield yes, _Test(condition, different), no
    if isinstance(root.op, Or):
        for before, both in (root.operands, root.operands[::-1]):
            if isinstance(both.op, And):
                a, b = both.operands
                yield before, _Test(a, equal), b
                yield before, _Test(b, equal), a


class _Comparison(NamedTuple):
    """``compare(f(a), f(b))``: the function (``subject``), and the key unless the direction is EQ or NE.

    subject: the operand, the form of f, and whether the comparison is of the total order.
    """

    subject: tuple[int, _Form, bool]
    direction: ComparisonDirection
    strict: bool
    key: SortKey | None


_DESCENDING: Final = (ComparisonDirection.GT, ComparisonDirection.GE)
_STRICT: Final = (ComparisonDirection.LT, ComparisonDirection.GT)
_EQUALITIES: Final = (ComparisonDirection.EQ, ComparisonDirection.NE)


def _comparison(root: Instruction) -> _Comparison | None:
    compare = root.op
    if not isinstance(compare, Compare):
        return None
    sides = [_parameter_function(side) for side in root.operands]
    if sides[0] is None or sides[1] is None or sides[0].form != sides[1].form:
        return None
    if sides[0].parameter ^ 1 != sides[1].parameter:
        return None
    form, total = sides[0].form, compare.type is ComparisonType.TOTALORDER
    operand, exchanged = divmod(sides[0].parameter, 2)
    key = None
    if compare.direction not in _EQUALITIES:
        key = _key(form, operand, total, (compare.direction in _DESCENDING) is not bool(exchanged))
    return _Comparison((operand, form, total), compare.direction, compare.direction in _STRICT, key)


def _key(form: _Form, operand: int, total: bool, descending: bool) -> SortKey:
    """The key by which the elements are ordered if values of a function of this form are compared."""
    zeros_equal, nan = form.zeros_equal, form.nan
    if not total and form.kind.is_floating:
        zeros_equal, nan = True, NanOrder.LOW if descending else NanOrder.HIGH
    if form.negated:
        descending = not descending
        nan = {NanOrder.LOW: NanOrder.HIGH, NanOrder.HIGH: NanOrder.LOW}.get(nan, nan)
    return SortKey(operand, form.kind, form.part, descending, nan, zeros_equal)


# -- functions of one element ------------------------------------------------------------------------


class _Form(NamedTuple):
    """The effect of a function on an element: the part that it takes, whether it negates, and how NaN and zero order.

    kind: the type of the part.
    """

    kind: PrimitiveType
    part: Part
    negated: bool
    nan: NanOrder
    zeros_equal: bool


class _ParameterFunction(NamedTuple):
    parameter: int
    form: _Form


class _Symbol(NamedTuple):
    """A symbolic number: its ``sort`` is ``nan``, ``zero`` or ``other``.

    ``negative``: the sign; of the sort ``other``, whether the element has been negated. ``own``: whether the number is
    the element (or its negative), not a constant.
    """

    sort: str
    negative: bool
    own: bool


_Known: TypeAlias = _Symbol | bool | None

_ELEMENT: Final = _Symbol("other", False, True)
_NANS: Final = (_Symbol("nan", True, True), _Symbol("nan", False, True))
_ZEROS: Final = (_Symbol("zero", True, True), _Symbol("zero", False, True))


def _parameter_function(root: Instruction) -> _ParameterFunction | None:
    """The function of one parameter that an instruction computes, if it keeps or reverses the order; else None."""
    nodes = list(post_order([root]))
    parameters = [n for n in nodes if isinstance(n.op, Parameter)]
    parts = {_PARTS[type(n.op)] for n in nodes if type(n.op) in _PARTS}
    if len(parameters) != 1 or len(parts) > 1:
        return None
    element = parameters[0].shape.element_type
    if element.is_complex is not bool(parts):
        return None
    element_after = _follow(nodes, _ELEMENT)
    if not isinstance(element_after, _Symbol) or not element_after.own:
        return None
    negated = element_after.negative
    nan, zeros_equal = NanOrder.BITS, False
    kind = element.real_part
    if kind.is_floating:
        only_low = kind.has_nan_for_negative_zero
        order = _nan_order([_follow(nodes, symbol) for symbol in _NANS], negated, only_low)
        zeros = [_follow(nodes, symbol) for symbol in _ZEROS]
        if order is None or not all(isinstance(z, _Symbol) and z.sort == "zero" for z in zeros):
            return None
        signs = [z.negative is not negated for z in zeros if isinstance(z, _Symbol)]
        if signs == [False, True] or (negated and kind is PrimitiveType.F8E8M0FNU):
            return None
        nan, zeros_equal = order, signs[0] is signs[1]
    part = parts.pop() if parts else Part.WHOLE
    number = parameters[0].op_as(Parameter).number
    return _ParameterFunction(number, _Form(kind, part, negated, nan, zeros_equal))


def _nan_order(results: list[_Known], negated: bool, only_low: bool) -> NanOrder | None:
    """The position of NaN, given the results of a function for the negative and the positive NaN; None if unclear."""
    first, second = results
    if not isinstance(first, _Symbol) or not isinstance(second, _Symbol) or not first.sort == second.sort == "nan":
        return None
    if only_low:
        return NanOrder.LOW
    if first.own and second.own:
        return NanOrder.BITS if (first.negative, second.negative) == (not negated, negated) else None
    if first.own or second.own or first.negative is not second.negative:
        return None
    return NanOrder.LOW if first.negative else NanOrder.HIGH


def _follow(nodes: list[Instruction], element: _Symbol) -> _Known:
    """The symbolic value of the last node if the parameter is ``element``; None if it is unknown."""
    values: dict[Instruction, _Known] = {}
    for node in nodes:
        values[node] = _known_result(node, element, [values[o] for o in node.operands])
    return values[nodes[-1]]


def _known_result(node: Instruction, element: _Symbol, operands: list[_Known]) -> _Known:
    """The symbolic value of an instruction, given the element and the symbolic values of its operands."""
    op = node.op
    if isinstance(op, Parameter):
        return element
    if isinstance(op, Constant):
        return _constant(op, node.shape.element_type)
    if isinstance(op, Compare):
        return _compare(op, operands[0], operands[1])
    if isinstance(node.op, Select):
        condition = operands[0]
        return operands[1 if condition else 2] if isinstance(condition, bool) else None
    first = operands[0] if operands else None
    if isinstance(node.op, (Real, Imag, Copy)):
        return first
    kind = node.operands[0].shape.element_type if operands else node.shape.element_type
    if isinstance(node.op, Convert):
        return first if _widens(kind, node.shape.element_type) else None
    turns_around = isinstance(op, Negate if kind.is_floating else Not)
    if isinstance(first, _Symbol) and turns_around:
        return first._replace(negative=not first.negative)
    return _logic(op, operands)


def _logic(op: Op, operands: list[_Known]) -> _Known:
    known = [o for o in operands if isinstance(o, bool)]
    if isinstance(op, Not) and known:
        return not known[0]
    if not isinstance(op, (And, Or)):
        return None
    decisive = isinstance(op, Or)
    if decisive in known:
        return decisive
    return (not decisive) if len(known) == len(operands) else None


def _constant(op: Constant, kind: PrimitiveType) -> _Known:
    if op.literal.shape.rank != 0 or not (kind is PrimitiveType.PRED or kind.is_floating):
        return None
    if kind is PrimitiveType.PRED:
        return bool(op.literal.array)
    number = float(op.literal.array)
    if np.isnan(number):
        negative = kind.has_nan_for_negative_zero or bool(np.signbit(op.literal.array.astype(np.float64)))
        return _Symbol("nan", negative, False)
    return _Symbol("zero", bool(np.signbit(number)), False) if number == 0 else None


def _compare(op: Compare, a: _Known, b: _Known) -> bool | None:
    """A plain comparison of symbols; None if it is undecided. The sort ``other`` is any number but NaN and zero."""
    if not isinstance(a, _Symbol) or not isinstance(b, _Symbol) or op.type is ComparisonType.TOTALORDER:
        return None
    direction = op.direction
    if "nan" in (a.sort, b.sort):
        return direction is ComparisonDirection.NE
    if a.sort == b.sort == "zero" or (a == b and a.own):
        return direction in (ComparisonDirection.EQ, ComparisonDirection.LE, ComparisonDirection.GE)
    if a.sort != b.sort and direction in _EQUALITIES:
        return direction is ComparisonDirection.NE
    return None


def _widens(source: PrimitiveType, target: PrimitiveType) -> bool:
    """Whether a conversion keeps every value, and the sign of NaN."""
    if source is target:
        return True
    if source.is_floating and target.is_floating:
        plain = (PrimitiveType.F16, PrimitiveType.BF16, PrimitiveType.F32)
        return source in plain and target in (PrimitiveType.F32, PrimitiveType.F64)
    if source.is_integral and target.is_integral and source.bit_width < target.bit_width:
        return source.is_signed is target.is_signed or source.is_unsigned
    return False
