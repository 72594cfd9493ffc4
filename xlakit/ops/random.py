"""Random numbers: RngUniform and RngNormal, random bits from a state that the program holds, and the device's state.

Source: XLA's document "Operation semantics", sections RngNormal, RngUniform and RngBitGenerator.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from xlakit.data.primitive import PrimitiveType, same_type_family
from xlakit.data.shape import UNBOUNDED, Shape, make_tuple_shape
from xlakit.errors import ShapeError
from xlakit.ir.enums import RandomAlgorithm, RandomDistribution
from xlakit.ir.operation import Array, Evaluation, Kind, Op, Value, attribute, operation
from xlakit.ops.handle import Builder, OperandLike, XlaOp, as_op, building, common_builder, emit
from xlakit.ops.shared.checks import need_declared


@operation("rng", arity=2, documents=("RngUniform", "RngNormal"))
class Rng(Op):
    """Random numbers of a distribution with two scalar parameters: the bounds, or mean and standard deviation."""

    distribution: RandomDistribution = attribute(Kind.ENUM, enum=RandomDistribution)

    @property
    def has_side_effect(self) -> bool:
        """True: each run draws new numbers, so instructions must not be removed or merged."""
        return True

    def result_shape(self, operands: Sequence[Shape], declared: Shape | None) -> Shape:
        shape = need_declared(declared)
        if not shape.is_array or UNBOUNDED in shape.dimensions:
            raise ShapeError(
                f"the result must be an array of known size, not {shape}",
                hint="give the dimensions as numbers; set_dimension_size makes a result smaller",
            )
        kind = shape.element_type
        for operand in operands:
            if not operand.is_scalar or not same_type_family(operand.element_type, kind):
                raise ShapeError(
                    f"parameter {operand} is not a {kind.hlo_name} scalar, as the result asks",
                    hint=f"give scalars of {kind.hlo_name}",
                )
        if operands[0].element_type is not operands[1].element_type:
            raise ShapeError(
                f"the parameters are of different types, {operands[0]} and {operands[1]}",
                hint=f"convert both to {kind.hlo_name}",
            )
        if self.distribution is RandomDistribution.RNG_NORMAL and not kind.is_floating:
            raise ShapeError(
                f"a normal distribution has a floating-point type, not {kind.hlo_name}",
                hint="draw f32 and convert the result",
            )
        if kind.is_complex:
            raise ShapeError(
                "a uniform distribution has a boolean, integer or floating-point type",
                hint="draw the parts and join them with complex",
            )
        return shape.without_layout()

    def evaluate(self, context: Evaluation, *operands: Value) -> Value:
        # Imported here, as below: a compilation draws no numbers.
        from xlakit.ops.shared.random_numbers import Draw, coins, normals, uniform_floats, uniform_integers

        kind, size = context.shape.element_type, context.shape.dimensions
        first, second = (o[()] for o in operands)
        draw = Draw(*context.draw())
        if self.distribution is RandomDistribution.RNG_NORMAL:
            return normals(draw, first, second, kind, size)
        if kind is PrimitiveType.PRED:
            # The interval [false, true) has one value only; a coin decides between the two bounds instead.
            return np.where(coins(draw, size), second, first)
        if kind.is_integral:
            return uniform_integers(draw, int(first), int(second), kind, size)
        return uniform_floats(draw, first, second, kind, size)


@building
def rng_uniform(a: OperandLike, b: OperandLike, shape: Shape) -> XlaOp:
    """Random numbers of the interval [a, b), each as likely.

    a, b: scalars of the result's type: PRED, an integer or a floating-point type.
    shape: the shape of the result.

    Each device has numbers of its own, which follow from the ``seed`` of :func:`xlakit.compile` and go on from call to
    call; they are the same on every backend and for any number of threads. Floats are rounded once, and never to b.
    Where b <= a the result is a everywhere for integers, and a + (b - a) * u otherwise. Raises ShapeError.
    Source: Operation semantics, RngUniform.
    """
    return _rng(RandomDistribution.RNG_UNIFORM, a, b, shape)


@building
def rng_normal(mu: OperandLike, sigma: OperandLike, shape: Shape) -> XlaOp:
    """Random numbers of the normal distribution N(mu, sigma).

    mu, sigma: scalars of the result's floating-point type: mean and standard deviation.
    shape: the shape of the result.

    They follow from the seed as those of :func:`rng_uniform` do. Raises ShapeError.
    Source: Operation semantics, RngNormal.
    """
    return _rng(RandomDistribution.RNG_NORMAL, mu, sigma, shape)


def _rng(distribution: RandomDistribution, first: OperandLike, second: OperandLike, shape: Shape) -> XlaOp:
    builder = common_builder([first, second])
    operands = [as_op(builder, v, shape.element_type) for v in (first, second)]
    return emit(Rng(distribution=distribution), *operands, shape=shape)


_MAKE_STATE = "bitcast four 32-bit words to u64[2]"


@operation("rng-bit-generator", arity=1, documents=("RngBitGenerator",))
class RngBitGenerator(Op):
    """The state after use, and random bits that are a function of the state before; or, as an array, just the bits."""

    algorithm: RandomAlgorithm = attribute(Kind.ENUM, enum=RandomAlgorithm, proto="rng_algorithm")

    def result_shape(self, operands: Sequence[Shape], declared: Shape | None) -> Shape:
        (state,) = operands
        shape = need_declared(declared)
        if shape.is_tuple and len(shape.tuple_shapes) != 2:
            raise ShapeError(
                f"the result must be a tuple of the state and an array, not {shape}",
                hint=f"declare ({state}, the array)",
            )
        if shape.is_tuple and not shape.tuple_shapes[0].compatible(state):
            raise ShapeError(
                f"the state comes out as {shape.tuple_shapes[0]}, but goes in as {state}",
                hint=f"declare the first element as {state}",
            )
        data = shape.tuple_shapes[1] if shape.is_tuple else shape
        if not data.is_array or UNBOUNDED in data.dimensions:
            raise ShapeError(
                f"the random bits must be an array of known size, not {data}",
                hint="give the dimensions as numbers; set_dimension_size makes a result smaller",
            )
        if state.element_type is not PrimitiveType.U64 or state.rank != 1 or state.dimensions[0] < 2:
            raise ShapeError(f"the state must be u64[2], a key and a counter, or longer, not {state}", hint=_MAKE_STATE)
        if data.element_type is PrimitiveType.PRED or data.element_type.is_complex:
            raise ShapeError(
                f"random bits have an integer or floating-point type, not {data.element_type.hlo_name}",
                hint="draw unsigned integers of the width that is needed, and compare or convert them",
            )
        return shape.without_layout()

    def evaluate(self, context: Evaluation, *operands: Value) -> Value:
        from xlakit.ops.shared.random_bits import philox_bits, threefry_bits

        shape = context.shape.tuple_shapes[1] if context.shape.is_tuple else context.shape
        width = shape.element_type.bit_width
        key, *counters = (int(word) for word in operands[0])
        if self.algorithm is RandomAlgorithm.RNG_THREE_FRY:
            bits, counter = threefry_bits(key, counters[0], shape.dimensions, width)
            state = [key, counter]
        elif len(counters) >= 2:
            bits, counter = philox_bits(key, counters[0] | counters[1] << 64, shape.dimensions, width)
            state = [key, counter % 2**64, counter >> 64]
        else:
            # The counter of the short state has the key as its upper half.
            bits, counter = philox_bits(key, counters[0] | key << 64, shape.dimensions, width)
            state = [key, counter % 2**64]
        values = _as_type(bits, shape.element_type)
        # Words of the state that the algorithm does not use are unchanged.
        after = np.array([*state, *operands[0][len(state) :]], dtype=np.uint64)
        return (after, values) if context.shape.is_tuple else values


def _as_type(bits: Array, kind: PrimitiveType) -> Array:
    """The low bits of each word as an element of a type, whatever they mean there."""
    if kind.bit_width < 8 and kind.is_integral:
        return bits.astype(np.uint8).astype(kind.dtype)
    if kind.bit_width < 8:
        return (bits & np.uint32((1 << kind.bit_width) - 1)).astype(np.uint8).view(kind.dtype)
    return bits.astype(f"uint{kind.bit_width}").view(kind.dtype)


@building
def rng_bit_generator(algorithm: RandomAlgorithm | str, initial_state: XlaOp, shape: Shape) -> XlaOp:
    """Uniformly random bits, as a function of a state.

    algorithm: RNG_THREE_FRY, RNG_PHILOX, or RNG_DEFAULT, which is Philox as on XLA's CPU backend.
    initial_state: u64[2], a key and a counter; for Philox also u64[3], a key and the halves of a counter, low first.
    shape: of the random bits, of an integer or floating-point type.

    Gives a tuple: the state to use next, and the bits; both are those that XLA gives. Raises ShapeError.
    Source: Operation semantics, RngBitGenerator.
    """
    chosen, state = RandomAlgorithm.of(algorithm), initial_state.shape
    lengths = (2,) if chosen is RandomAlgorithm.RNG_THREE_FRY else (2, 3)
    if state.element_type is not PrimitiveType.U64 or state.rank != 1 or state.dimensions[0] not in lengths:
        raise ShapeError(
            f"the state of {chosen.text} must be {' or '.join(f'u64[{n}]' for n in lengths)}, not {state}",
            hint=_MAKE_STATE,
        )
    return emit(RngBitGenerator(algorithm=chosen), initial_state, shape=make_tuple_shape([state, shape]))


@operation("rng-get-and-update-state", arity=0)
class RngGetAndUpdateState(Op):
    """The 128-bit random state of the device, to which ``delta`` is added afterwards."""

    delta: int = attribute(Kind.INT64, always=True)

    @property
    def has_side_effect(self) -> bool:
        """True: it changes the device's state."""
        return True

    def result_shape(self, operands: Sequence[Shape], declared: Shape | None) -> Shape:
        return Shape(PrimitiveType.U64, (2,))

    def evaluate(self, context: Evaluation, *operands: Value) -> Value:
        return context.advance_rng_state(self.delta)


@building
def rng_get_and_update_state(builder: Builder, delta: int) -> XlaOp:
    """The random state of the device as U64[2], low half first; ``delta`` is added to it afterwards.

    Source: HLO's rng-get-and-update-state, which has no page in the documents.
    """
    return builder.append(RngGetAndUpdateState(delta=delta), ())
