"""``x[index]`` on an XlaOp: NumPy's basic indexing, made of slices, reverses and reshapes.

Indices must be known while the program is built. For indices that the program computes there are other operations,
which the errors name.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Collection, Iterator, Sequence
from typing import cast

import numpy as np

from xlakit.data.shape import Shape
from xlakit.errors import ArgumentError, ShapeError
from xlakit.ops.handle import XlaOp, building
from xlakit.ops.shared.checks import need_array

# A range of elements along a dimension: start, limit, stride, and whether it is reversed.
_Part = tuple[int, int, int, bool]


@building
def subscript(operand: XlaOp, index: object) -> XlaOp:
    """The element of a tuple; or of an array what NumPy gives for integers, slices, ``...`` and None."""
    if operand.shape.is_tuple:
        return _element(operand, index)
    shape = need_array(operand.shape)
    items: list[object] = list(cast("tuple[object, ...]", index)) if isinstance(index, tuple) else [index]
    parts: list[_Part] = []
    sizes: list[int] = []
    for item in _spelled_out(items, shape):
        if item is None:
            sizes.append(1)
            continue
        dimension = len(parts)
        part, size = _part(item, shape, dimension)
        parts.append(part)
        sizes += [] if size is None else [size]
    return _cut(operand, parts, sizes)


def _element(operand: XlaOp, index: object) -> XlaOp:
    from xlakit.ops.data import get_tuple_element

    count = len(operand.shape.tuple_shapes)
    number = _integer(index)
    if number is None:
        raise ArgumentError(
            f"a tuple has elements by number, not by {index!r}", hint="write x[0], or unpack it: first, second = x"
        )
    if not -count <= number < count:
        raise ShapeError(f"index {number} is out of range for a tuple of {count}", hint="numbers count from 0")
    return get_tuple_element(operand, number % count)


def _spelled_out(items: Sequence[object], shape: Shape) -> Iterator[object]:
    """The index with ``...`` expanded: an item for each dimension, and None for each new dimension."""
    given = sum(item is not None and item is not Ellipsis for item in items)
    if sum(item is Ellipsis for item in items) > 1:
        raise ArgumentError("an index has more than one '...'", hint="say with ':' which dimensions are whole")
    if given > shape.rank:
        raise ShapeError(
            f"{given} indices are given for rank {shape.rank}", hint=f"give at most {shape.rank}, one for a dimension"
        )
    rest = [slice(None)] * (shape.rank - given)
    for item in items if any(item is Ellipsis for item in items) else [*items, Ellipsis]:
        if item is Ellipsis:
            yield from rest
        else:
            yield item


def _part(item: object, shape: Shape, dimension: int) -> tuple[_Part, int | None]:
    """The range that an item selects along a dimension, and its size, or None if the dimension is removed."""
    size = shape.dimensions[dimension]
    if isinstance(item, slice) and item.start is item.stop is item.step is None:
        return (0, size, 1, False), size
    if shape.is_dynamic:
        raise ShapeError(
            "an array of dynamic size has no elements at fixed indices",
            hint="use xlakit.dynamic_slice or xlakit.slice, or fix its size with remove_dynamic_dimension",
        )
    if isinstance(item, slice):
        chosen = range(size)[_checked(item)]
        if not chosen:
            return (0, 0, 1, False), 0
        low, high = min(chosen[0], chosen[-1]), max(chosen[0], chosen[-1])
        return (low, high + 1, abs(chosen.step), chosen.step < 0), len(chosen)
    number = _integer(item)
    if number is None:
        raise _unfit(item)
    if not -size <= number < size:
        raise ShapeError(
            f"index {number} is out of range for dimension {dimension} of size {size}",
            hint=f"give a number from {-size} to {size - 1}" if size else "it has no elements",
        )
    return (number % size, number % size + 1, 1, False), None


def _checked(item: slice) -> slice:
    bounds = [item.start, item.stop, item.step]
    for bound in bounds:
        if bound is not None and _integer(bound) is None:
            raise _unfit(bound)
    if _integer(item.step) == 0:
        raise ArgumentError("the step of a slice is 0", hint="give a step of 1 or more, or below 0 to go backwards")
    return slice(*(None if bound is None else _integer(bound) for bound in bounds))


def _integer(value: object) -> int | None:
    if isinstance(value, (bool, np.bool_, XlaOp, np.ndarray)):
        return None
    try:
        return operator.index(cast("int", value))
    except TypeError:
        return None


def _unfit(item: object) -> ArgumentError:
    if isinstance(item, XlaOp):
        hint = (
            "for an index that the program computes, write xlakit.dynamic_slice(x, [i, ..], sizes), for many of them "
            "xlakit.gather, and to choose by a mask xlakit.select"
        )
    else:
        hint = "an index has integers, slices, '...' and None; for arrays of indices use xlakit.gather"
    return ArgumentError(f"cannot index with {type(item).__name__}", hint=hint)


def _cut(operand: XlaOp, parts: Sequence[_Part], sizes: Sequence[int]) -> XlaOp:
    from xlakit.ops import movement

    shape, made = operand.shape, operand
    if any(part[:3] != (0, size, 1) for part, size in zip(parts, shape.dimensions, strict=True)):
        starts, limits, strides, _ = zip(*parts, strict=True)
        made = movement.slice(made, starts, limits, strides)
    turned = [dimension for dimension, part in enumerate(parts) if part[3]]
    if turned:
        made = movement.rev(made, turned)
    return made if tuple(sizes) == made.shape.dimensions else movement.reshape(made, sizes)


@building
def length(operand: XlaOp) -> int:
    """How many elements a tuple has, or how many rows an array."""
    shape = operand.shape
    if shape.is_tuple:
        return len(shape.tuple_shapes)
    if not shape.is_array or not shape.rank:
        raise ArgumentError(f"a value of shape {shape} has no length", hint="only tuples and arrays of rank 1 on have")
    if shape.dynamic_dimensions[0]:
        raise ArgumentError(
            "how long dimension 0 is, is known when the program runs",
            hint="write xlakit.get_dimension_size(x, 0); its bound is x.shape.dimensions[0]",
        )
    return shape.dimensions[0]


@building
def reshaped(operand: XlaOp, sizes: Sequence[int]) -> XlaOp:
    """The elements in their order in other dimensions, one of which may be -1: what is left."""
    from xlakit.ops.movement import reshape

    shape, wanted = need_array(operand.shape), list(sizes)
    if wanted.count(-1) > 1:
        raise ShapeError("more than one size is -1", hint="at most one size can follow from the others")
    if -1 in wanted:
        known = math.prod(size for size in wanted if size != -1)
        if not known or shape.num_elements % known:
            raise ShapeError(
                f"{shape.num_elements} elements do not divide into {wanted}", hint="give sizes whose product divides it"
            )
        wanted[wanted.index(-1)] = shape.num_elements // known
    return reshape(operand, wanted)


@building
def transposed(operand: XlaOp) -> XlaOp:
    """The dimensions in the opposite order."""
    from xlakit.ops.movement import transpose

    rank = need_array(operand.shape).rank
    return operand if rank < 2 else transpose(operand, range(rank)[::-1])


# The replacements for attributes of NumPy arrays that handles lack, for error messages; x is the operand.
_INSTEAD = {
    "astype": "xlakit.convert_element_type(x, xlakit.F32)",
    "dtype": "x.shape.element_type",
    "ndim": "x.shape.rank",
    "size": "x.shape.num_elements",
    "sum": "xlakit.reduce(x, 0, xlakit.add, dimensions=[..])",
    "prod": "xlakit.reduce(x, 1, xlakit.mul, dimensions=[..])",
    "mean": "xlakit.reduce(x, 0, xlakit.add, dimensions=[..]) and divide",
    "any": "xlakit.reduce(x, False, xlakit.or_, dimensions=[..])",
    "all": "xlakit.reduce(x, True, xlakit.and_, dimensions=[..])",
    "flatten": "x.reshape(-1)",
    "ravel": "x.reshape(-1)",
    "at": "xlakit.dynamic_update_slice or xlakit.scatter",
    "item": "xlakit.compile(builder.build()), and call it: values are there when a program runs",
    "tolist": "xlakit.compile(builder.build()), and call it: values are there when a program runs",
    "swapaxes": "xlakit.transpose(x, permutation)",
    "squeeze": "x.reshape(..)",
}

# The same for functions of NumPy and JAX that the package lacks.
_FUNCTIONS_INSTEAD = {
    **{name: _INSTEAD[name] for name in ("sum", "prod", "mean", "any", "all", "ravel", "swapaxes", "squeeze")},
    **dict.fromkeys(("array", "asarray"), "xlakit.constant(builder, values)"),
    **dict.fromkeys(("zeros", "ones", "full"), "xlakit.broadcast(xlakit.constant(builder, 0.0), sizes)"),
    "arange": "xlakit.iota(builder, xlakit.make_shape(xlakit.S32, [n]), 0)",
    "argmax": "xlakit.lib.arg_max",
    "argmin": "xlakit.lib.arg_min",
    "einsum": "xlakit.lib.einsum",
    "float16": "xlakit.F16",
    "float32": "xlakit.F32",
    "float64": "xlakit.F64",
    "int32": "xlakit.S32",
    "int64": "xlakit.S64",
    "bool_": "xlakit.PRED",
    "jit": "xlakit.compile(builder.build())",
    "bfloat16": "xlakit.BF16",
    "build": "builder.build()",
    **dict.fromkeys(("cond", "switch"), "xlakit.conditional"),
    **dict.fromkeys(("constant_literal", "constant_from_array", "constant_r0_with_type"), "xlakit.constant"),
    "exponential_minus_one": "xlakit.expm1",
    "log_plus_one": "xlakit.log1p",
    "matmul": "xlakit.dot or xlakit.dot_general",
    "negative": "xlakit.neg",
    "padding_config": "a list of (low, high, interior), or of xlakit.PaddingDimension",
    "recv_done": "xlakit.recv, which waits",
    "send_done": "xlakit.send, which waits",
    "shape_util": "xlakit.make_shape",
    "literal_util": "xlakit.Literal",
    "layout_util": "xlakit.Layout",
    "index_util": "xlakit.multidimensional_index_to_linear_index",
    "where": "xlakit.select(condition, x, y)",
}


def function_instead_of(name: str, known: Collection[str]) -> str:
    """What to write instead of a name that the package does not have; empty where that is not known.

    name: such as NumPy, JAX, XLA's C++ or HLO have. known: the names of the package.
    """
    from difflib import get_close_matches  # loaded with the first of these errors

    from xlakit.ops.registry import OPERATIONS

    snake = in_snake_case(name)
    if own := own_name(snake, known):
        return f"; did you mean '{own}'?"
    if snake in _FUNCTIONS_INSTEAD:
        return f"; write {_FUNCTIONS_INSTEAD[snake]}"
    opcode = snake.replace("_", "-")
    operations = [o for o in OPERATIONS.values() if o.opcode == opcode or name in o.documents]
    found = [n for o in operations for d in o.documents if (n := own_name(in_snake_case(d), known))]
    found = found or [n for n in known if n.startswith(f"{snake}_")]
    if found:
        return f"; write {' or '.join(f'xlakit.{n}' for n in found[:3])}"
    near = get_close_matches(snake, known, 1, 0.75)
    return f"; did you mean '{near[0]}'?" if near else ""


def in_snake_case(name: str) -> str:
    """A name as Python spells functions: broadcast_in_dim for BroadcastInDim."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def own_name(name: str, known: Collection[str]) -> str:
    """A name in lower case as the package has it, where Python has a keyword or a type of it, too, or ""."""
    return next((n for n in (name, f"{name}_", name.upper()) if n in known), "")


def instead_of(name: str) -> str:
    """What to write instead of an attribute that handles do not have; empty where that is not known."""
    if name in _INSTEAD:
        return f"; write {_INSTEAD[name]}"
    return f"; write xlakit.{function}(x, ..)" if (function := function_of(name)) else ""


def function_of(name: str) -> str:
    """The function of an operation that has this name, spelled as here or in C++; "" if there is none."""
    from xlakit.ops.registry import PAGES

    # Functions that a person calls are those that convert their arguments.
    known = {n for page in PAGES for n, value in vars(page).items() if hasattr(value, "__wrapped__")}
    return own_name(in_snake_case(name), known)
