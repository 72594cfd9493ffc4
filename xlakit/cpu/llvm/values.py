"""Value: a typed result of LLVM code, with Python's operators to compute with it."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Final, Union

from xlakit.cpu.llvm.types import I1, Type, integer
from xlakit.errors import InternalError

if TYPE_CHECKING:
    from collections.abc import Callable

    from xlakit.cpu.llvm.function import Function

Operand = Union["Value", int, float]


class Value:
    """A typed value inside a function. ``constant`` is its number if that is known while code is written.

    ``+ - * / %`` are the operations of the type (integer division and remainder are signed), ``& | ^ << >>`` take
    integers (``>>`` is logical), and comparisons are signed and ordered. Unsigned and other operations, minima and
    maxima are methods.
    """

    __slots__ = ("constant", "function", "text", "type")

    def __init__(self, function: Function, type: Type, text: str, constant: float | None = None) -> None:
        self.function = function
        self.type = type
        self.text = text
        self.constant = constant

    def __repr__(self) -> str:
        return f"{self.type.name} {self.text}"

    @property
    def number(self) -> int | None:
        """The integer that all lanes of this value are; None if it is not known."""
        if self.type.is_float:
            return None
        if self.constant is not None:
            return int(self.constant)
        _, splat, number = self.text.partition("splat (")
        return int(number.rstrip(")").split()[1]) if splat else None

    # -- arithmetic ------------------------------------------------------------------------------

    def __add__(self, other: Operand) -> Value:
        return self._arithmetic("add", "fadd", other)

    def __radd__(self, other: Operand) -> Value:
        return self._arithmetic("add", "fadd", other)

    def __sub__(self, other: Operand) -> Value:
        return self._arithmetic("sub", "fsub", other)

    def __rsub__(self, other: Operand) -> Value:
        return self._lift(other)._arithmetic("sub", "fsub", self)

    def __mul__(self, other: Operand) -> Value:
        return self._arithmetic("mul", "fmul", other)

    def __rmul__(self, other: Operand) -> Value:
        return self._arithmetic("mul", "fmul", other)

    def __truediv__(self, other: Operand) -> Value:
        return self._arithmetic("sdiv", "fdiv", other)

    def __rtruediv__(self, other: Operand) -> Value:
        return self._lift(other)._arithmetic("sdiv", "fdiv", self)

    def __floordiv__(self, other: Operand) -> Value:
        return self.integer("sdiv", other)

    def __mod__(self, other: Operand) -> Value:
        return self._arithmetic("srem", "frem", other)

    def __neg__(self) -> Value:
        if self.type.is_float:
            return self.function.emit(self.type, f"fneg {self.type.name} {self.text}")
        return self._lift(0) - self

    def __and__(self, other: Operand) -> Value:
        return self.integer("and", other)

    def __or__(self, other: Operand) -> Value:
        return self.integer("or", other)

    def __xor__(self, other: Operand) -> Value:
        return self.integer("xor", other)

    def __invert__(self) -> Value:
        return self.integer("xor", 1 if self.type.element is I1 else -1)

    def __lshift__(self, other: Operand) -> Value:
        return self.integer("shl", other)

    def __rshift__(self, other: Operand) -> Value:
        return self.integer("lshr", other)

    def integer(self, opcode: str, other: Operand) -> Value:
        """An integer instruction, given LLVM's name of it: ``udiv``, ``urem``, ``ashr``."""
        if not self.type.is_int:
            raise InternalError(f"{opcode} of {self.type}")
        return self._binary(opcode, other)

    def smin(self, other: Operand) -> Value:
        """The lesser of two signed integers."""
        return self._min_max("smin", other)

    def smax(self, other: Operand) -> Value:
        """The greater of two signed integers."""
        return self._min_max("smax", other)

    def umin(self, other: Operand) -> Value:
        """The lesser of two unsigned integers."""
        return self._min_max("umin", other)

    def umax(self, other: Operand) -> Value:
        """The greater of two unsigned integers."""
        return self._min_max("umax", other)

    def _min_max(self, name: str, other: Operand) -> Value:
        value = self._lift(other)
        if self.constant is not None and value.constant is not None:
            chosen = max if name.endswith("max") else min
            key = _unsigned if name.startswith("u") else _signed
            return chosen(self, value, key=key)
        return self.function.intrinsic(f"llvm.{name}", self.type, self, value)

    def _arithmetic(self, of_integers: str, of_floats: str, other: Operand) -> Value:
        return self._binary(of_floats if self.type.is_float else of_integers, other)

    def _binary(self, opcode: str, other: Operand) -> Value:
        value = self._lift(other)
        if self.constant is not None or value.constant is not None:
            known = _fold(opcode, self, value)
            if known is not None:
                return known
        return self.function.emit(
            self.type, f"{opcode}{self.function.flags(self.type)} {self.type.name} {self.text}, {value.text}"
        )

    def _lift(self, other: Operand) -> Value:
        if not isinstance(other, Value):
            return self.function.constant(self.type, other)
        if other.type is not self.type:
            raise InternalError(f"the operands of an operation are {self.type} and {other.type}")
        return other

    # -- comparisons -----------------------------------------------------------------------------

    def __lt__(self, other: Operand) -> Value:
        return self.compare("olt" if self.type.is_float else "slt", other)

    def __le__(self, other: Operand) -> Value:
        return self.compare("ole" if self.type.is_float else "sle", other)

    def __gt__(self, other: Operand) -> Value:
        return self.compare("ogt" if self.type.is_float else "sgt", other)

    def __ge__(self, other: Operand) -> Value:
        return self.compare("oge" if self.type.is_float else "sge", other)

    def eq(self, other: Operand) -> Value:
        """Whether two values are equal (false if one is NaN)."""
        return self.compare("oeq" if self.type.is_float else "eq", other)

    def ne(self, other: Operand) -> Value:
        """Whether two values differ (true if one is NaN)."""
        return self.compare("une" if self.type.is_float else "ne", other)

    def is_nan(self) -> Value:
        """Whether this float is NaN."""
        return self.compare("uno", self)

    def compare(self, predicate: str, other: Operand) -> Value:
        """A comparison, given LLVM's name of the predicate: ``ult``, ``ugt``, ``uno``."""
        value = self._lift(other)
        if self.constant is not None and value.constant is not None and self.type.is_int:
            key = _unsigned if predicate.startswith("u") else _signed
            return self.function.constant(I1, _COMPARISONS[predicate[-2:]](key(self), key(value)))
        opcode = "fcmp" if self.type.is_float else "icmp"
        return self.function.emit(
            self.type.with_element(I1), f"{opcode} {predicate} {self.type.name} {self.text}, {value.text}"
        )

    def any_lane(self) -> Value:
        """Whether a condition holds in any lane of a vector."""
        return self.bits_as(integer(self.type.lanes)).ne(0)

    # -- conversions -----------------------------------------------------------------------------

    def cast(self, opcode: str, type: Type) -> Value:
        """A conversion, given LLVM's name of it: ``sext``, ``zext``, ``trunc``, ``sitofp``, ``fpext``, ``bitcast``."""
        if type is self.type:
            return self
        if self.constant is not None and opcode in ("sext", "zext") and self.type is not I1 and self.constant >= 0:
            return self.function.constant(type, self.constant)
        return self.function.emit(type, f"{opcode} {self.type.name} {self.text} to {type.name}")

    def resized(self, element: Type, *, signed: bool = False) -> Value:
        """Integers in another width: their low bits, or extended by zeros, or by their signs if they are ``signed``."""
        wider = "sext" if signed else "zext"
        return self.cast("trunc" if element.bits < self.type.element.bits else wider, self.type.with_element(element))

    def bits_as(self, type: Type) -> Value:
        """The same bits, as another type of the same width."""
        return self.cast("bitcast", type)


# Keyed by the last two letters of a predicate.
_COMPARISONS: Final[dict[str, Callable[[int, int], bool]]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}


def _signed(value: Value) -> int:
    """An integer constant, as a signed number."""
    bits = value.type.bits
    number = int(value.constant or 0) & ((1 << bits) - 1)
    return number - (1 << bits) if number >> (bits - 1) else number


def _unsigned(value: Value) -> int:
    """An integer constant, as an unsigned number."""
    return int(value.constant or 0) & ((1 << value.type.bits) - 1)


def _fold(opcode: str, a: Value, b: Value) -> Value | None:
    """The result of integer arithmetic with a constant, as in index computations; None if it is not simple."""
    if a.type is I1:
        return _fold_conditions(opcode, a, b)
    if a.type.is_float or a.type.lanes > 1:
        return None
    x, y = a.constant, b.constant
    if x is not None and y is not None:
        number = {"add": x + y, "sub": x - y, "mul": x * y}.get(opcode)
        least, limit = -(2 ** (a.type.bits - 1)), 2 ** (a.type.bits - 1)
        if 0 <= x < limit and 0 < y < limit:
            # The same for signed and unsigned numbers.
            number = {"sdiv": x // y, "udiv": x // y, "srem": x % y, "urem": x % y}.get(opcode, number)
        if number is None or not least <= number < limit:
            return None
        return a.function.constant(a.type, number)
    if y == 0 and opcode in ("add", "sub", "or", "xor", "shl", "lshr", "ashr"):
        return a
    if x == 0 and opcode == "add":
        return b
    if y == 1 and opcode in ("mul", "sdiv", "udiv"):
        return a
    if x == 1 and opcode == "mul":
        return b
    if opcode == "mul" and 0 in (x, y):
        return a if x == 0 else b
    return None


def _fold_conditions(opcode: str, a: Value, b: Value) -> Value | None:
    """The result of a logical operation on conditions one of which is a constant; None if it is not simple."""
    known, other = (a, b) if a.constant is not None else (b, a)
    if opcode == "and":
        return other if known.constant else known
    if opcode == "or":
        return known if known.constant else other
    if opcode == "xor" and not known.constant:
        return other
    if opcode == "xor" and other.constant is not None:
        return a.function.constant(I1, not other.constant)
    return None
