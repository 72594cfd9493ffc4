"""Operations that have no single function in xlakit: as in XLA's builder, most are composed of other operations.

Programs then have the opcodes that XLA of jaxlib 0.6.0 knows, and its names and numbers. Python evaluates arguments
from left to right, as they are numbered.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from xlakit.builder import XlaBuilder, XlaComputation
from xlakit.compat.xla_client.binding import incompatible
from xlakit.data.literal import Literal
from xlakit.data.primitive import PrimitiveType
from xlakit.data.shape import Shape
from xlakit.errors import ShapeError, UnsupportedError
from xlakit.ops import control, data, dynamic, movement, random, reduction, sort
from xlakit.ops.communication import collectives
from xlakit.ops.elementwise import binary, compare, convert, elementary, math_library, select, unary

# xlakit's handle of an operation.
_Op = Any

_HALVES = (PrimitiveType.F16, PrimitiveType.BF16)


def broadcast_in_dim(operand: _Op, sizes: Any, dimensions: Any) -> _Op:
    """A broadcast to the dimensions, and a second one where dimensions of size 1 are stretched."""
    first = list(sizes)
    for size, dimension in zip(operand.shape.dimensions, dimensions, strict=False):
        if size == 1 and 0 <= dimension < len(first):
            first[dimension] = 1
    made = movement.broadcast_in_dim(operand, first, dimensions)
    return made if first == list(sizes) else movement.broadcast_in_dim(made, sizes, range(len(first)))


def constant(builder: Any, literal: Literal) -> _Op:
    """A constant; of an array whose elements have the same bits, one element and its broadcast."""
    shape = literal.shape
    if not shape.is_array or shape.num_elements < 2:
        return data.constant(builder, literal)
    values = literal.array
    bits = np.ascontiguousarray(values).view(np.uint8).reshape(shape.num_elements, values.itemsize)
    if not (bits == bits[0]).all():
        return data.constant(builder, literal)
    with builder.sharding(None):
        first = data.constant(builder, Literal.from_numpy(values.ravel()[0]))
    return movement.broadcast(first, shape.dimensions)


def indexed_conditional(branch_index: _Op, branch_computations: Any, branch_operands: Any) -> _Op:
    """The branch that an index chooses; a predicate has the other form."""
    if branch_index.shape.without_layout() != Shape(PrimitiveType.S32):
        raise ShapeError(
            f"the index of a branch is s32[], not {branch_index.shape}",
            hint="give a predicate with the operand and the computation of each of the two cases",
        )
    return control.conditional(branch_index, branch_computations, branch_operands)


def map_elements(operands: Any, computation: Any, dimensions: Any, static_operands: Any) -> _Op:
    """A function of the elements of arrays."""
    if static_operands:
        raise UnsupportedError("static operands of a map are not supported", hint="give them among the operands")
    return reduction.map(operands, computation, dimensions)


def _number(x: _Op, value: float) -> _Op:
    """A scalar of the type of ``x``."""
    kind = x.shape.element_type
    return data.constant(x.builder, Literal.from_numpy(np.asarray(value, kind.dtype)))


def _full(x: _Op, value: float) -> _Op:
    """A number in the dimensions of ``x``."""
    return movement.broadcast(_number(x, value), x.shape.dimensions)


def _square_root_of_largest(x: _Op) -> _Op:
    """The square root of the largest number of the type."""
    return elementary.sqrt(_number(x, float(ml_dtypes.finfo(x.shape.element_type.dtype).max)))


def _is_complex(x: _Op) -> bool:
    return x.shape.is_array and x.shape.element_type.is_complex


def _has_no_rule(x: _Op) -> bool:
    """Whether a type has no composed formula, so that the single instruction is added (which may be an error)."""
    return not x.shape.is_array or not (x.shape.element_type.is_floating or x.shape.element_type.is_complex)


def _in_f32(function: Any, x: _Op) -> _Op:
    kind = x.shape.element_type
    return convert.convert_element_type(function(convert.convert_element_type(x, PrimitiveType.F32)), kind)


def acos(x: _Op) -> _Op:
    """The arc cosine, of the arc tangent of sqrt(1 - x^2) and 1 + x."""
    if _has_no_rule(x) or _is_complex(x):
        return elementary.acos(x)
    inside = compare.ne(x, _full(x, -1))
    two = _number(x, 2)
    sine = elementary.sqrt(binary.sub(_number(x, 1), binary.mul(x, x)))
    angle = binary.atan2(sine, binary.add(_number(x, 1), x))
    return select.select(inside, binary.mul(two, angle), _full(x, np.pi))


def asin(x: _Op) -> _Op:
    """The arc sine, of the arc tangent of x and 1 + sqrt(1 - x^2); also of integers of less than 32 bits, in F32."""
    if x.shape.is_array and x.shape.element_type.bit_width < 32:
        return _in_f32(asin, x)
    if _has_no_rule(x) or _is_complex(x):
        return elementary.asin(x)
    one, two = _number(x, 1), _number(x, 2)
    cosine = elementary.sqrt(binary.mul(binary.sub(one, x), binary.add(one, x)))
    return binary.mul(two, binary.atan2(x, binary.add(one, cosine)))


def acosh(x: _Op) -> _Op:
    """The inverse hyperbolic cosine: log(x + sqrt((x + 1) (x - 1))), or log(2 x) where that overflows."""
    if _has_no_rule(x):
        return elementary.acosh(x)
    one, minus_one, nan = _number(x, 1), _number(x, -1), _full(x, np.nan)
    root = elementary.sqrt(binary.mul(binary.add(x, one), binary.sub(x, one)))
    plain = elementary.log(binary.add(x, root))
    if _is_complex(x):
        return plain
    large = binary.add(elementary.log(x), elementary.log(_number(x, 2)))
    limit = _square_root_of_largest(x)
    below = compare.lt(x, minus_one)
    return select.select(below, nan, select.select(compare.ge(x, limit), large, plain))


def asinh(x: _Op) -> _Op:
    """The inverse hyperbolic sine: log(x + sqrt(x^2 + 1)), without cancellation where x is small."""
    if _has_no_rule(x) or _is_complex(x):
        return elementary.asinh(x)
    if x.shape.element_type in _HALVES:
        return _in_f32(asinh, x)
    one, a = _number(x, 1), unary.abs(x)
    squared = binary.mul(a, a)
    root = elementary.sqrt(binary.add(binary.mul(a, a), one))
    small = elementary.log1p(binary.add(a, binary.div(squared, binary.add(one, root))))
    plain = elementary.log(binary.add(a, elementary.sqrt(binary.add(binary.mul(a, a), one))))
    large = binary.add(elementary.log(unary.abs(a)), elementary.log(_number(x, 2)))
    limit = _square_root_of_largest(x)
    sign, is_large = unary.sign(x), compare.ge(a, limit)
    chosen = select.select(is_large, large, select.select(compare.le(a, one), small, plain))
    return binary.mul(sign, chosen)


def atanh(x: _Op) -> _Op:
    """The inverse hyperbolic tangent: half of log(1 + x) - log(1 - x), and NaN outside of -1 to 1."""
    if _has_no_rule(x):
        return elementary.atanh(x)
    difference = binary.sub(elementary.log1p(x), elementary.log1p(unary.neg(x)))
    plain = binary.mul(difference, _number(x, 0.5))
    if _is_complex(x):
        return plain
    nan = _full(x, np.nan)
    return select.select(compare.gt(unary.abs(x), _number(x, 1)), nan, plain)


def cosh(x: _Op) -> _Op:
    """The hyperbolic cosine, as the sum of exponentials that do not overflow before it does; at least 1."""
    if _has_no_rule(x):
        return elementary.cosh(x)
    if x.shape.element_type in _HALVES:
        return _in_f32(cosh, x)
    half = elementary.log(_number(x, 0.5))
    rising = elementary.exp(binary.add(x, half))
    total = binary.add(rising, elementary.exp(binary.add(unary.neg(x), half)))
    return total if _is_complex(x) else binary.max(total, _number(x, 1))


def sinh(x: _Op) -> _Op:
    """The hyperbolic sine, as the difference of exponentials, and of exp(x) - 1 where x is small."""
    if _has_no_rule(x):
        return elementary.sinh(x)
    if x.shape.element_type in _HALVES:
        return _in_f32(sinh, x)
    factor, half = _number(x, 0.5), elementary.log(_number(x, 0.5))
    rising = elementary.exp(binary.add(x, half))
    large = binary.sub(rising, elementary.exp(binary.add(unary.neg(x), half)))
    if _is_complex(x):
        return large
    grown, one = elementary.expm1(x), _number(x, 1)
    small = binary.mul(factor, binary.add(grown, binary.div(grown, binary.add(grown, one))))
    return select.select(compare.lt(unary.abs(x), one), small, large)


def order(operands: Any, name: str, comparison: Any) -> XlaComputation:
    """The order of the first of several operands, in a computation whose names are XLA's."""
    inner = XlaBuilder(name, source_metadata=False)
    parameters = [
        data.parameter(inner, 2 * i + j, Shape(operand.shape.element_type), f"p.{i}.{side}.0")
        for i, operand in enumerate(operands)
        for j, side in enumerate(("lhs", "rhs"))
    ]
    return inner.build(comparison(parameters[0], parameters[1]))


def top_k(x: _Op, k: int) -> _Op:
    """The first ``k`` of the last dimension in falling order, and their positions: a stable sort, and slices."""
    if not x.shape.is_array or not x.shape.rank or x.shape.is_dynamic or not 0 <= k <= x.shape.dimensions[-1]:
        return sort.top_k(x, k)
    last = x.shape.rank - 1
    positions = data.iota(x.builder, Shape(PrimitiveType.S32, x.shape.dimensions), last)
    falling = order([x, positions], "compare-greater-than", compare.gt_total_order)
    sorted_ = sort.sort([x, positions], falling, last, True)
    parts: list[Any] = []
    for i in range(2):
        part = movement.slice_in_dim(data.get_tuple_element(sorted_, i), 0, k, 1, last)
        parts.append(dynamic.remove_dynamic_dimension(part, last))
    return data.tuple_(x.builder, parts)


# -- operations whose arguments differ from those of xlakit's functions ----------------------------------


def _check_parts(operand: _Op) -> None:
    """Raise UnsupportedError for floating point numbers that complex ones cannot have as parts, as jaxlib does."""
    kind = operand.shape.element_type
    if kind.is_floating and kind.hlo_name not in ("f32", "f64"):
        raise UnsupportedError(
            f"the parts of a complex number are f32 or f64, not {kind.hlo_name}",
            hint="convert the operand to f32",
        )


def conj(x: _Op) -> _Op:
    """The conjugates of complex numbers; f32 and f64 become complex."""
    _check_parts(x)
    return unary.conj(x)


def complex(lhs: _Op, rhs: _Op, broadcast_dimensions: Any) -> _Op:
    """Complex numbers of their real and imaginary parts, which are f32 or f64."""
    _check_parts(lhs)
    kinds = [part.shape.element_type for part in (lhs, rhs)]
    if kinds[0] is not kinds[1] and all(kind.is_floating for kind in kinds):
        raise UnsupportedError(
            f"the parts of a complex number are both f32 or both f64, not {kinds[0].hlo_name} and {kinds[1].hlo_name}",
            hint="convert one of the operands",
        )
    return binary.complex(lhs, rhs, broadcast_dimensions)


def reciprocal(x: _Op) -> _Op:
    """1 / x, of numbers that have one: those of integers are errors in jaxlib, too."""
    kind = x.shape.element_type
    if not (kind.is_floating or kind.is_complex):
        raise ShapeError(f"takes floating point or complex numbers, got {kind.hlo_name}", hint="convert it first")
    return math_library.reciprocal(x)


def clamp(least: _Op, x: _Op, most: _Op) -> _Op:
    """The elements, at least ``least`` and at most ``most``; these are of the same dimensions, or scalars."""
    return select.clamp(_like(least, x), x, _like(most, x))


def select_(predicate: _Op, on_true: _Op, on_false: _Op) -> _Op:
    """Elements of ``on_true`` where the predicate, which may be a scalar, holds, and of ``on_false`` elsewhere."""
    return select.select(_like(predicate, on_true), on_true, on_false)


def _like(scalar: _Op, array: _Op) -> _Op:
    """A scalar in the dimensions of an array, as XLA's builder makes it; anything else as it is."""
    fits = scalar.shape.is_array and array.shape.is_array and not scalar.shape.rank and array.shape.rank
    return movement.broadcast_in_dim(scalar, array.shape.dimensions, ()) if fits else scalar


def constant_of(builder: Any, value: Any) -> _Op:
    """A constant of an array or a number; Python's numbers are S64, F64 and C128."""
    if value is None:
        raise incompatible("Constant", "the literal is an array or a number")
    return constant_of_literal(builder, value)


def constant_of_literal(builder: Any, value: Any) -> _Op:
    """A constant of an array, a number, or a (nested) tuple of them; Python's numbers are S64, F64 and C128."""
    return constant(builder, _literal(value))


def _literal(value: Any) -> Literal:
    if isinstance(value, tuple):
        return Literal.make_tuple([_literal(part) for part in value])  # pyright: ignore
    return Literal.from_numpy(np.asarray(value))


def iota_of_type(builder: Any, kind: PrimitiveType, size: int) -> _Op:
    """0, 1, 2, ... in an array of rank 1."""
    return data.iota(builder, Shape(kind, (size,)), 0)


def after_all(builder: Any, tokens: Any) -> _Op:
    """A token that is there after all of ``tokens``."""
    return data.after_all(tokens) if tokens else data.create_token(builder)


def collapse(x: _Op, dimensions: Any) -> _Op:
    """Consecutive dimensions as one. One alone is left as it is, whatever its number."""
    return x if len(dimensions) < 2 else movement.collapse(x, dimensions)


def get_dimension_size(x: _Op, dimension: int) -> _Op:
    """The size of a dimension as an S32 scalar; a constant where it is static."""
    shape = x.shape
    if shape.is_array and 0 <= dimension < shape.rank and not shape.dynamic_dimensions[dimension]:
        return data.constant(x.builder, Literal.from_numpy(np.int32(shape.dimensions[dimension])))
    return dynamic.get_dimension_size(x, dimension)


def sort_(operands: Any, comparator: Any, dimension: int, is_stable: bool) -> _Op:
    """Arrays sorted along a dimension, the last by default, in the order of the first, or of a comparator."""
    if not operands:
        raise ShapeError("takes at least one array", hint="give the keys first")
    first = comparator or order(operands, "compare-less-than", compare.lt_total_order)
    return sort.sort(operands, first, dimension, is_stable)


def cross_replica_sum(x: _Op, replica_groups: Any) -> _Op:
    """The sum over the replicas of a group, of PRED the disjunction, in a computation whose names are XLA's."""
    inner = XlaBuilder("sum", source_metadata=False)
    kind = next(leaf for _, leaf in x.shape.leaves()).element_type
    a, b = (data.parameter(inner, i, Shape(kind), name) for i, name in enumerate("xy"))
    combined = inner.build(binary.or_(a, b) if kind is PrimitiveType.PRED else binary.add(a, b))
    return collectives.all_reduce(x, combined, replica_groups)


def rng_bit_generator(algorithm: Any, state: _Op, shape: Shape) -> _Op:
    """The next state of a generator and random bits, unsigned integers of the size of the shape's type, as a tuple."""
    bits = PrimitiveType[f"U{shape.element_type.bit_width}"]
    return random.rng_bit_generator(algorithm, state, shape.with_element_type(bits))
