"""XlaOp: a handle of an instruction in a builder, with Python's operators.

The functions on the pages of ``xlakit.ops`` take and give handles. They use the builder through the Protocol below, so
that ``xlakit.ops`` does not import ``xlakit.builder``.
"""

from __future__ import annotations

import functools
import importlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeAlias, TypeVar, cast, runtime_checkable

import numpy as np

from xlakit.arguments import Parameters, name_type
from xlakit.data.literal import Literal
from xlakit.data.primitive import PrimitiveType
from xlakit.data.shape import Shape
from xlakit.errors import ArgumentError, Location, XlakitError
from xlakit.ir.instruction import Computation, Instruction
from xlakit.ir.operation import Op


@runtime_checkable
class Builder(Protocol):
    """The interface of a builder to the pages; ``xlakit.builder.XlaBuilder`` implements it."""

    @property
    def name(self) -> str: ...

    def append(
        self,
        op: Op,
        operands: Sequence[XlaOp],
        shape: Shape | None = None,
        name: str = "",
        *,
        backend_config: str = "",
        frontend_attributes: Sequence[tuple[str, str]] = (),
    ) -> XlaOp:
        """Add an instruction. The shape is inferred; ``shape`` is the declared one where a rule needs it.

        ``backend_config`` and ``frontend_attributes`` are added to the annotations that the builder gives.
        """
        ...

    def subcomputation(self, source: ComputationLike, parameters: Sequence[Shape]) -> Computation:
        """``source`` as a Computation: itself, that of an XlaComputation, or the trace of a function on handles."""
        ...


@runtime_checkable
class HasComputation(Protocol):
    """Something built that holds a computation (XlaComputation)."""

    @property
    def computation(self) -> Computation:
        """The computation."""
        ...


# A computation as a caller of the builder may pass it.
ComputationLike: TypeAlias = HasComputation | Computation | Callable[..., Any]


def _page(name: str) -> Any:
    """A page of operations; imported on use, as pages import this file."""
    return importlib.import_module(f"xlakit.ops.{name}")


def _operator(page: str, name: str, *, swapped: bool = False) -> Callable[[XlaOp, OperandLike], XlaOp]:
    """The method for an operator: a function of a page of elementwise operations."""

    def apply(self: XlaOp, other: OperandLike) -> XlaOp:
        function = getattr(_page(f"elementwise.{page}"), name)
        return function(other, self) if swapped else function(self, other)

    return apply


def _both(name: str) -> tuple[Callable[[XlaOp, OperandLike], XlaOp], Callable[[XlaOp, OperandLike], XlaOp]]:
    """The methods for a binary operator with the handle on its left and on its right."""
    return _operator("binary", name), _operator("binary", name, swapped=True)


class XlaOp:
    """A handle of an instruction that a builder has added: operand and result of all functions of this interface."""

    __slots__ = ("builder", "instruction")

    def __init__(self, builder: Builder, instruction: Instruction) -> None:
        self.builder = builder
        self.instruction = instruction

    @property
    def shape(self) -> Shape:
        """The shape of the result."""
        return self.instruction.shape

    def __repr__(self) -> str:
        return f"XlaOp({self.instruction!r})"

    # -- as arrays and tuples of Python and NumPy --------------------------------------------------

    def __getitem__(self, index: object) -> XlaOp:
        """The element of a tuple; or a part of an array, by integers, slices, ``...`` and None, as in NumPy."""
        return _page("shared.subscript").subscript(self, index)

    def __len__(self) -> int:
        """How many elements a tuple has, or how many rows an array."""
        return _page("shared.subscript").length(self)

    def __iter__(self) -> Iterator[XlaOp]:
        """The elements of a tuple, or the rows of an array."""
        return iter([self[i] for i in range(len(self))])

    @property
    def T(self) -> XlaOp:  # noqa: N802 - NumPy's name
        """The array with its dimensions in the opposite order."""
        return _page("shared.subscript").transposed(self)

    def reshape(self, *sizes: int | Sequence[int]) -> XlaOp:
        """The elements in their order in other dimensions: ``x.reshape(2, 3)``; one of them may be -1."""
        only = sizes[0] if len(sizes) == 1 else sizes
        return _page("shared.subscript").reshaped(self, [only] if isinstance(only, int) else only)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            more = "" if name.startswith("__") else _page("shared.subscript").instead_of(name)
            raise AttributeError(f"'XlaOp' object has no attribute '{name}'{more}")

        def __setitem__(self, index: object, value: object) -> None:
            raise ArgumentError(
                "operations do not change arrays, they give new ones",
                hint="write xlakit.dynamic_update_slice(x, update, start_indices), or xlakit.scatter",
            )

    def __array__(self, *_: object, **__: object) -> Any:
        raise ArgumentError(
            "the elements of an XlaOp are not known while the program is built",
            hint="use xlakit's functions on it, or compile the program and call it",
        )

    def __array_ufunc__(self, function: np.ufunc, method: str, *inputs: object, **options: object) -> XlaOp:
        # NumPy leaves `array + op` to this, too.
        return _page("shared.ufuncs").apply_ufunc(function, method, inputs, options)

    def __array_function__(
        self, function: Callable[..., object], _: object, inputs: tuple[object, ...], options: dict[str, object]
    ) -> XlaOp:
        return _page("shared.ufuncs").apply_function(function, inputs, options)

    def __bool__(self) -> bool:
        raise ArgumentError(
            "the value of an XlaOp is not known while the program is built",
            hint="use xlakit.conditional, while_ or select; for max, min, and, or of Python xlakit.max, min, and_, or_",
        )

    def __float__(self) -> float:
        raise ArgumentError(
            "the value of an XlaOp is not known while the program is built",
            hint="convert with xlakit.convert_element_type, or compile the program and call it",
        )

    def __int__(self) -> int:
        return int(float(self))

    def __floordiv__(self, _: object) -> XlaOp:
        raise ArgumentError(
            "XLA has no division that rounds down",
            hint="write xlakit.floor(x / y), or x / y of integers, which truncates",
        )

    __rfloordiv__ = __divmod__ = __rdivmod__ = __floordiv__

    def __hash__(self) -> int:
        return id(self)

    __add__, __radd__ = _both("add")
    __sub__, __rsub__ = _both("sub")
    __mul__, __rmul__ = _both("mul")
    __truediv__, __rtruediv__ = _both("div")
    __mod__, __rmod__ = _both("rem")
    __pow__, __rpow__ = _both("pow")
    __and__, __rand__ = _both("and_")
    __or__, __ror__ = _both("or_")
    __xor__, __rxor__ = _both("xor")
    __lshift__, __rlshift__ = _both("shift_left")

    def __rshift__(self, other: OperandLike) -> XlaOp:
        return self._shift_right(self, other)

    def __rrshift__(self, other: OperandLike) -> XlaOp:
        return self._shift_right(other, self)

    def _shift_right(self, lhs: OperandLike, rhs: OperandLike) -> XlaOp:
        # As in C++: arithmetic for signed types, logical for unsigned ones.
        kind = "arithmetic" if self.shape.element_type.is_signed else "logical"
        return getattr(_page("elementwise.binary"), f"shift_right_{kind}")(lhs, rhs)

    def __neg__(self) -> XlaOp:
        return _page("elementwise.unary").neg(self)

    def __invert__(self) -> XlaOp:
        return _page("elementwise.unary").not_(self)

    def __abs__(self) -> XlaOp:
        return _page("elementwise.unary").abs(self)

    def __matmul__(self, other: OperandLike) -> XlaOp:
        return _page("dot").dot(self, other)

    def __rmatmul__(self, other: OperandLike) -> XlaOp:
        return _page("dot").dot(other, self)

    # Comparisons give XlaOps, as in C++; `is` compares handles.
    __eq__ = _operator("compare", "eq")  # pyright: ignore[reportAssignmentType]
    __ne__ = _operator("compare", "ne")  # pyright: ignore[reportAssignmentType]
    __lt__, __le__ = _operator("compare", "lt"), _operator("compare", "le")
    __gt__, __ge__ = _operator("compare", "gt"), _operator("compare", "ge")


# An operand as a caller of the builder may pass it; numbers become constants of a fitting type.
OperandLike: TypeAlias = XlaOp | bool | int | float | complex | np.ndarray | np.generic | Literal


_HOW_TO_MAKE = "make one with xlakit.parameter or xlakit.constant"
name_type(XlaOp, "an XlaOp", "XlaOps", _HOW_TO_MAKE, is_sequence=False)
name_type(Builder, "an XlaBuilder", "XlaBuilders", "make one with xlakit.XlaBuilder; it is the first argument")
_HOW_TO_COMPUTE = "give a function of XlaOps, such as xlakit.add or lambda x, y: x + y"
name_type(HasComputation, "an XlaComputation", "XlaComputations", _HOW_TO_COMPUTE)


def emit(op: Op, *operands: XlaOp, shape: Shape | None = None) -> XlaOp:
    """Add ``op`` to the builder that its operands belong to."""
    return common_builder(operands).append(op, operands, shape)


def common_builder(operands: Sequence[object]) -> Builder:
    """The one builder of all handles among ``operands``; raises ArgumentError where there is none, or two."""
    found: Builder | None = None
    for operand in operands:
        if isinstance(operand, XlaOp):
            if found is not None and operand.builder is not found:
                raise ArgumentError(
                    f"operands belong to different builders, '{found.name}' and '{operand.builder.name}'",
                    hint="pass values into a sub-computation as parameters; it cannot see its surroundings",
                )
            found = operand.builder
    if found is None:
        raise ArgumentError("no operand is an XlaOp", hint=_HOW_TO_MAKE)
    return found


def as_op(builder: Builder, value: OperandLike, like: PrimitiveType | None = None) -> XlaOp:
    """``value`` as a handle: itself, or a constant of a number or array. A number gets the type ``like`` if given.

    Raises ArgumentError for a NumPy array of another floating point type than ``like``: NumPy's default is float64, in
    which HLO would then compute.
    """
    if isinstance(value, XlaOp):
        return value
    from xlakit.ops import data

    if not isinstance(value, (np.ndarray, np.generic)):
        return data.constant(builder, value, like)
    made = data.constant(builder, value)
    kind = made.shape.element_type
    if like is not None and kind is not like and kind.is_floating and like.is_floating:
        what = "array" if isinstance(value, np.ndarray) else "scalar"
        narrowed = f"{what}.astype({_dtype_name(like)})" if what == "array" else "float(scalar)"
        raise ArgumentError(
            f"NumPy's {what} of {value.dtype} meets an operand of {like.hlo_name}; XLA converts nothing by itself",
            hint=f"write {narrowed}, or convert the operand with convert_element_type(x, xlakit.{kind.name})",
        )
    return made


def _dtype_name(kind: PrimitiveType) -> str:
    dtype = kind.dtype
    return f"{'np' if dtype.type.__module__ == 'numpy' else 'ml_dtypes'}.{dtype.name}"


def as_ops(*values: OperandLike) -> list[XlaOp]:
    """Handles for all; numbers take the element type of the first handle among them, arrays must have it."""
    builder = common_builder(values)
    like = next(v.shape.element_type for v in values if isinstance(v, XlaOp))
    return [as_op(builder, v, like) for v in values]


def as_sequence(values: XlaOp | OperandLike | Sequence[OperandLike]) -> list[OperandLike]:
    """One operand, or several, as a list."""
    return list(values) if isinstance(values, (list, tuple)) else [values]  # pyright: ignore


def scalar_shapes(operands: Sequence[XlaOp]) -> list[Shape]:
    """The scalar shape of each operand's element type."""
    return [Shape(o.shape.element_type) for o in operands]


_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_P = ParamSpec("_P")
_R = TypeVar("_R")


def caller_location() -> Location | None:
    """The location of the nearest caller outside of this package."""
    frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    return Location(frame.f_code.co_filename, frame.f_lineno) if frame is not None else None


def _handles(values: Sequence[object]) -> list[XlaOp]:
    """The handles among arguments, those in lists and tuples too."""
    found: list[XlaOp] = []
    for value in values:
        inside = cast("Sequence[object]", value) if isinstance(value, (list, tuple)) else (value,)
        found.extend(v for v in inside if isinstance(v, XlaOp))
    return found


def building(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Decorate a public function that takes handles.

    Its arguments are converted by its annotations; its errors name it, the operands' shapes and the caller's line.
    """
    parameters = Parameters(function)

    @functools.wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            given, named = parameters.converted(args, kwargs)
            return cast("Any", function)(*given, **named)
        except XlakitError as error:
            shapes = [a.shape for a in _handles((*args, *kwargs.values()))]
            raise error.at(operation=function.__name__, shapes=shapes, location=caller_location()) from None

    return call
