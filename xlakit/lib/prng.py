"""Random numbers as functions of a key and a counter.

Source: ``xla/hlo/builder/lib/prng.h``; Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import ml_dtypes
import numpy as np

from xlakit.data.primitive import PrimitiveType
from xlakit.data.shape import Shape, make_shape
from xlakit.errors import ShapeError
from xlakit.ir.enums import RandomAlgorithm
from xlakit.lib.constants import constant_r0_with_type, one, scalar_like, zero
from xlakit.lib.special.next_after import next_after
from xlakit.ops.elementwise.binary import add, and_, mul, or_, rem, shift_right_logical, sub
from xlakit.ops.elementwise.compare import gt, lt
from xlakit.ops.elementwise.convert import bitcast_convert_type, convert_element_type
from xlakit.ops.elementwise.elementary import cos, log, sin, sqrt
from xlakit.ops.elementwise.select import select
from xlakit.ops.handle import Builder, XlaOp, building
from xlakit.ops.movement import broadcast_in_dim, concat_in_dim, reshape, slice_in_dim
from xlakit.ops.random import rng_bit_generator

_U32, _U64 = PrimitiveType.U32, PrimitiveType.U64
_UNSIGNED = {8: PrimitiveType.U8, 16: PrimitiveType.U16, 32: _U32, 64: _U64}
# What Philox scrambles keys with, as XLA does.
_SCRAMBLING_KEY = 0x02461E293EC8F720


class RngOutput(NamedTuple):
    """Random numbers, and the state for those that follow. Source: RngOutput."""

    value: XlaOp
    state: XlaOp


# (key, initial state, shape) -> random bits, as unsigned integers of the width of the shape's type. Source:
# BitGeneratorTy.
BitGenerator: TypeAlias = Callable[[XlaOp, XlaOp, Shape], RngOutput]


def _bits_of(shape: Shape) -> Shape:
    """The shape of random bits for numbers of a shape."""
    kind = shape.element_type
    fits = shape.is_array and (kind.is_integral or kind.is_floating) and kind.bit_width in _UNSIGNED
    if not fits or shape.is_dynamic:
        raise ShapeError(
            f"no random bits for {shape}", hint="give a static array of integers or floats of 8, 16, 32 or 64 bits"
        )
    return make_shape(_UNSIGNED[kind.bit_width], shape.dimensions)


def _check_state(key: XlaOp, state: XlaOp, wanted: Sequence[int]) -> None:
    expected = make_shape(_U64, wanted)
    if not key.shape.compatible(make_shape(_U64, ())) or not state.shape.compatible(expected):
        raise ShapeError(
            f"takes a key and a state of u64[] and {expected}, got {key.shape} and {state.shape}",
            hint="convert them with convert_element_type",
        )


@building
def three_fry_bit_generator(key: XlaOp, initial_state: XlaOp, shape: Shape) -> RngOutput:
    """Random bits by Threefry 2x32 with 20 rounds.

    key, initial_state: U64[], the state being a counter.
    shape: the sizes, and an integer or floating point type, of what the bits are for.

    Gives unsigned integers of that width and these sizes, and the counter after them: the bits are those of
    ``rng_bit_generator``. Raises ShapeError. Source: ThreeFryBitGenerator.
    """
    _check_state(key, initial_state, [])
    state = concat_scalars(key.builder, [key, initial_state])
    found = rng_bit_generator(RandomAlgorithm.RNG_THREE_FRY, state, _bits_of(shape))
    return RngOutput(found[1], found[0][1])


@building
def philox_bit_generator(key: XlaOp, initial_state: XlaOp, shape: Shape) -> RngOutput:
    """Random bits by Philox 4x32 with 10 rounds.

    key: U64[]. initial_state: U64[2], a counter of 128 bits, its low half first.

    Otherwise as :func:`three_fry_bit_generator`. Source: PhiloxBitGenerator.
    """
    _check_state(key, initial_state, [2])
    state = concat_in_dim([reshape(key, new_sizes=[1]), initial_state], 0)
    found = rng_bit_generator(RandomAlgorithm.RNG_PHILOX, state, _bits_of(shape))
    return RngOutput(found[1], slice_in_dim(found[0], 1, 3, 1, 0))


@building
def scramble_philox_key(key: XlaOp) -> tuple[XlaOp, XlaOp]:
    """A state U64[2] and a key U64[] for Philox, from a key U64[] of which any part may be weak.

    Raises ShapeError. Source: ScramblePhiloxKey.
    """
    low = and_(key, np.uint64(0xFFFFFFFF))
    state = concat_scalars(key.builder, [low, shift_right_logical(key, np.uint64(32))])
    fixed = constant_r0_with_type(key.builder, _U64, _SCRAMBLING_KEY)
    bits, _ = philox_bit_generator(fixed, state, make_shape(_U64, [2]))
    return concat_scalars(key.builder, [zero(key.builder, _U64), bits[1]]), bits[0]


@building
def philox_increase_counter(counter: XlaOp, delta: XlaOp) -> XlaOp:
    """A counter of 128 bits U64[2], low half first, plus U64[]. Raises ShapeError. Source: PhiloxIncreaseCounter."""
    _check_state(delta, counter, [2])
    low = add(counter[0], delta)
    return concat_scalars(counter.builder, [low, add(counter[1], convert_element_type(lt(low, delta), _U64))])


@building
def concat_scalars(builder: Builder, scalars: Sequence[XlaOp]) -> XlaOp:
    """A vector of scalars of one type, at least one. Raises ShapeError. Source: ConcatScalars."""
    del builder
    return concat_in_dim([reshape(s, new_sizes=[1]) for s in scalars], 0)


# -- distributions -----------------------------------------------------------------------------------


@building
def convert_random_bits_to_uniform_floating_point(
    bits: XlaOp, type: PrimitiveType, minval: XlaOp, maxval: XlaOp
) -> XlaOp:
    """Floating point numbers of [minval, maxval) from random bits.

    bits: unsigned integers of the width of ``type``, of which the highest fill the fraction of a number.
    type: F64, F32, F16 or BF16. minval, maxval: scalars of it, with a difference that is finite.

    Gives ``minval + u (maxval - minval)`` with u a multiple of epsilon in [0, 1), never maxval where minval is less.
    Raises ShapeError. Source: ConvertRandomBitsToUniformFloatingPoint.
    """
    _check_type(type, minval, maxval)
    kind = bits.shape.element_type
    if kind is not _UNSIGNED[type.bit_width]:
        raise ShapeError(f"{bits.shape} are no bits of {type.hlo_name}", hint="give unsigned integers of its width")
    fraction = int(ml_dtypes.finfo(type.dtype).nmant)
    leading = int(np.ones((), type.dtype).view(kind.dtype))
    shift, exponent = (constant_r0_with_type(bits.builder, kind, v) for v in (type.bit_width - fraction, leading))
    # A number of [1, 2), from which 1 is subtracted without rounding.
    number = bitcast_convert_type(or_(shift_right_logical(bits, shift), exponent), type)
    unit = sub(number, one(bits.builder, type))
    low, high = (broadcast_in_dim(v, bits.shape.dimensions, ()) for v in (minval, maxval))
    value = add(mul(unit, sub(high, low)), low)
    # The sum may be rounded up to the bound.
    below = broadcast_in_dim(next_after(maxval, minval), bits.shape.dimensions, ())
    return select(lt(value, high), value, select(lt(low, high), below, value))


def _check_type(type: PrimitiveType, *scalars: XlaOp) -> None:
    wide = type.is_floating and type.bit_width >= 16
    if not wide or any(not s.shape.is_scalar or s.shape.element_type is not type for s in scalars):
        raise ShapeError(
            f"{type.hlo_name} with bounds {', '.join(str(s.shape) for s in scalars)}",
            hint="take f64, f32, f16 or bf16, and scalars of that type",
        )


@building
def uniform_floating_point_distribution(
    key: XlaOp, initial_state: XlaOp, bit_generator: BitGenerator, minval: XlaOp, maxval: XlaOp, shape: Shape
) -> RngOutput:
    """Uniformly distributed numbers of [minval, maxval).

    key, initial_state: what ``bit_generator`` takes. minval, maxval: scalars of the shape's type, F64 to BF16.

    Gives an array of ``shape``, and the next state; see convert_random_bits_to_uniform_floating_point.
    Raises ShapeError. Source: UniformFloatingPointDistribution.
    """
    _check_type(shape.element_type, minval, maxval)
    bits, state = bit_generator(key, initial_state, shape)
    value = convert_random_bits_to_uniform_floating_point(bits, shape.element_type, minval, maxval)
    return RngOutput(value, state)


@building
def uniform_int_distribution(
    key: XlaOp, initial_state: XlaOp, bit_generator: BitGenerator, minval: XlaOp, maxval: XlaOp, shape: Shape
) -> RngOutput:
    """Uniformly distributed integers of [minval, maxval), as random bits modulo their number.

    key, initial_state: what ``bit_generator`` takes. minval, maxval: scalars of the shape's type.

    Where maxval is not greater, all are minval. A number of integers that does not divide the range of the type makes
    some likelier than others, by one part in the range over it. Gives an array of ``shape``, and the next state.
    Raises ShapeError. Source: UniformIntDistribution.
    """
    kind = shape.element_type
    unsigned = _bits_of(shape).element_type
    scalars = (minval, maxval)
    if not kind.is_integral or any(not s.shape.is_scalar or s.shape.element_type is not kind for s in scalars):
        raise ShapeError(
            f"integers of {shape} from {minval.shape} to {maxval.shape}",
            hint="all are of one integer type, two scalars",
        )
    bits, state = bit_generator(key, initial_state, shape)
    least, greatest = (bitcast_convert_type(v, unsigned) for v in (minval, maxval))
    count = select(gt(maxval, minval), sub(greatest, least), one(key.builder, unsigned))
    wide = [broadcast_in_dim(v, shape.dimensions, ()) for v in (count, least)]
    # Sums beyond the range of the type come back to where they belong.
    return RngOutput(bitcast_convert_type(add(rem(bits, wide[0]), wide[1]), kind), state)


@building
def normal_floating_point_distribution(
    key: XlaOp, initial_state: XlaOp, bit_generator: BitGenerator, shape: Shape
) -> RngOutput:
    """Numbers of the normal distribution with mean 0 and variance 1, by Box and Muller's method.

    key, initial_state: what ``bit_generator`` takes. shape: of F64, F32, F16 or BF16; the short types are F32 rounded.

    Gives an array of ``shape``, at most 8.5 in size in F64 and 5.7 in others, and the state after an even number of
    draws. Raises ShapeError. Source: NormalFloatingPointDistribution.
    """
    kind = shape.element_type
    _check_type(kind)
    _bits_of(shape)
    wide = kind if kind.bit_width >= 32 else PrimitiveType.F32
    count = math.prod(shape.dimensions)
    half = -(-count // 2)
    bits, state = bit_generator(key, initial_state, make_shape(wide, [2 * half]))
    bounds = zero(key.builder, wide), one(key.builder, wide)
    unit = convert_random_bits_to_uniform_floating_point(bits, wide, *bounds)
    first, second = (slice_in_dim(unit, i * half, (i + 1) * half, 1, 0) for i in range(2))
    # 1 - u is above 0, where the logarithm is finite.
    radius = sqrt(mul(log(sub(scalar_like(first, 1), first)), scalar_like(first, -2.0)))
    angle = mul(second, scalar_like(second, 2 * math.pi))
    both = concat_in_dim([mul(radius, cos(angle)), mul(radius, sin(angle))], 0)
    value = reshape(slice_in_dim(both, 0, count, 1, 0), new_sizes=list(shape.dimensions))
    return RngOutput(value if kind is wide else convert_element_type(value, kind), state)
