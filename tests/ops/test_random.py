"""Random numbers: the generators against their published vectors and against XLA, the distributions, the state."""

import ml_dtypes
import numpy as np
import pytest
from evaluating import evaluate, infer, refused, same, shape

import xlakit as xla
from xlakit.ops.shared.random_bits import philox4x32, threefry2x32


def words(text):
    return [np.array([int(word, 16)], np.uint32) for word in text.split()]


# Known answers that the authors of both generators publish with Random123.
@pytest.mark.parametrize(
    ("counter", "key", "result"),
    [
        ("00000000 00000000", "00000000 00000000", "6b200159 99ba4efe"),
        ("ffffffff ffffffff", "ffffffff ffffffff", "1cb996fc bb002be7"),
        ("243f6a88 85a308d3", "13198a2e 03707344", "c4923a9c 483df7a0"),
    ],
)
def test_threefry(counter, key, result):
    first, second = (int(w[0]) for w in words(key))
    assert list(threefry2x32((first, second), *words(counter))) == words(result)


@pytest.mark.parametrize(
    ("counter", "key", "result"),
    [
        ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
    ],
)
def test_philox(counter, key, result):
    first, second = (int(w[0]) for w in words(key))
    assert philox4x32((first, second), words(counter)) == words(result)


def bits(algorithm, kind, *dimensions):
    return lambda state: xla.rng_bit_generator(algorithm, state, shape(kind, *dimensions))


STATE = np.array([123456789123, 2**64 - 2], np.uint64)


# What XLA's CPU backend gives for this state.
@pytest.mark.parametrize(
    ("algorithm", "kind", "values", "counter"),
    [
        ("RNG_THREE_FRY", xla.U8, [239, 152, 231], 0),
        ("RNG_THREE_FRY", xla.U16, [52975, 28312, 45799], 0),
        ("RNG_THREE_FRY", xla.U32, [800706287, 623865496, 844608231], 0),
        ("RNG_THREE_FRY", xla.U64, [2679481903223525103, 749590536957440743, 5808676213471863586], 1),
        ("RNG_PHILOX", xla.U8, [135, 15, 79], 2**64 - 1),
        ("RNG_PHILOX", xla.U32, [4044053127, 3620820239, 1736755279], 2**64 - 1),
        ("RNG_PHILOX", xla.U64, [15551304515243956871, 16680101766062458959, 7371218799377853367], 0),
        ("RNG_DEFAULT", xla.U32, [4044053127, 3620820239, 1736755279], 2**64 - 1),
    ],
)
def test_bits_are_those_of_xla(algorithm, kind, values, counter):
    state, data = evaluate(bits(algorithm, kind, 3), STATE)
    same(data, np.array(values, kind.dtype))
    same(state, np.array([STATE[0], counter], np.uint64))


def test_the_long_state_of_philox_carries():
    state, data = evaluate(bits("RNG_PHILOX", xla.U32, 5), np.array([5, 2**64 - 1, 7], np.uint64))
    same(state, np.array([5, 1, 8], np.uint64))
    same(data, np.array([408654879, 156914071, 4246078289, 2550873154, 1414544935], np.uint32))


@pytest.mark.parametrize("dimensions", [(), (1,), (7,), (8,), (3, 5), (3, 4, 5), (5, 3, 5), (0,), (2, 0, 3)])
@pytest.mark.parametrize("algorithm", ["RNG_THREE_FRY", "RNG_PHILOX", "RNG_DEFAULT"])
def test_every_shape_is_filled_as_by_xla(algorithm, dimensions):
    jax = pytest.importorskip("jax")
    named = getattr(jax.lax.RandomAlgorithm, algorithm)
    key = np.array([1, 2, 2**32 - 1, 2**32 - 1], np.uint32)
    after, expected = jax.lax.rng_bit_generator(key, dimensions, np.uint32, algorithm=named)
    state, data = evaluate(bits(algorithm, xla.U32, *dimensions), key.view(np.uint64))
    same(data, np.asarray(expected))
    same(state, np.asarray(after).view(np.uint64))


@pytest.mark.parametrize("name", ["S4", "U4", "S8", "S16", "S64", "F16", "BF16", "F32", "F64", "F8E4M3FN", "F4E2M1FN"])
def test_other_types_hold_the_same_bits(name):
    kind = getattr(xla, name)
    _, data = evaluate(bits("RNG_PHILOX", kind, 100), STATE)
    unsigned = {4: "U8", 8: "U8", 16: "U16", 32: "U32", 64: "U64"}[kind.bit_width]
    _, plain = evaluate(bits("RNG_PHILOX", getattr(xla, unsigned), 100), STATE)
    assert data.dtype == kind.dtype
    held = data.view(plain.dtype)
    mask = plain.dtype.type((1 << kind.bit_width) - 1)
    np.testing.assert_array_equal(held & mask, plain & mask)


def test_rules_of_bits():
    refused("u64\\[2\\]", bits("RNG_THREE_FRY", xla.U32, 4), shape(xla.U64, 3))
    refused("u64\\[2\\] or u64\\[3\\]", bits("RNG_PHILOX", xla.U32, 4), shape(xla.U32, 4))
    refused("not pred", bits("RNG_PHILOX", xla.PRED, 4), shape(xla.U64, 2))
    refused("unknown RandomAlgorithm", bits("RNG_OTHER", xla.U32, 4), shape(xla.U64, 2))
    assert infer(bits("RNG_PHILOX", xla.S8, 4), shape(xla.U64, 3)) == "(u64[3], s8[4])"


# -- distributions --------------------------------------------------------------------------------


def uniform(kind, size):
    return lambda a, b: xla.rng_uniform(a, b, shape(kind, size))


@pytest.mark.parametrize(
    "kind", [np.uint8, np.int16, np.int32, np.uint32, np.int64, np.uint64, ml_dtypes.int4, ml_dtypes.uint4]
)
def test_uniform_integers(kind):
    values = evaluate(uniform(kind, 6000), kind(1), kind(4))
    assert values.dtype == kind
    counts = np.bincount(values.astype(np.int64), minlength=4)
    assert counts[0] == 0
    assert np.all(np.abs(counts[1:] - 2000) < 200)
    same(evaluate(uniform(kind, 3), kind(4), kind(4)), np.full(3, 4).astype(kind))


def test_uniform_integers_of_the_whole_range():
    values = evaluate(uniform(np.int64, 1000), np.int64(-(2**63)), np.int64(2**63 - 1))
    assert values.min() < -(2**62)
    assert values.max() > 2**62


@pytest.mark.parametrize("kind", [ml_dtypes.bfloat16, np.float16, np.float32, np.float64, ml_dtypes.float8_e4m3fn])
def test_uniform_floats_stay_below_the_upper_bound(kind):
    values = evaluate(uniform(kind, 20000), kind(1), kind(3))
    assert values.dtype == kind
    wide = values.astype(np.float64)
    assert wide.min() >= 1
    assert wide.max() < 3
    assert abs(wide.mean() - 2) < 0.05


def test_uniform_booleans_are_coins():
    values = evaluate(uniform(np.bool_, 4000), np.False_, np.True_)
    assert abs(values.mean() - 0.5) < 0.05
    assert evaluate(uniform(np.bool_, 10), np.True_, np.True_).all()


@pytest.mark.parametrize("kind", [ml_dtypes.bfloat16, np.float16, np.float32, np.float64])
def test_normal(kind):
    values = evaluate(lambda m, s: xla.rng_normal(m, s, shape(kind, 50, 400)), kind(3), kind(0.5))
    assert values.dtype == kind
    assert values.shape == (50, 400)
    assert abs(values.astype(np.float64).mean() - 3) < 0.05
    assert abs(values.astype(np.float64).std() - 0.5) < 0.05


def test_the_seed_decides():
    def program(seed):
        return evaluate(uniform(np.float32, 8), np.float32(0), np.float32(1), seed=seed)

    same(program(3), program(3))
    assert not np.array_equal(program(3), program(4))


def test_rules_of_distributions():
    f32, s32 = shape(xla.F32), shape(xla.S32)
    refused("not a f32 scalar", uniform(np.float32, 4), s32, f32)
    refused("not a f32 scalar", uniform(np.float32, 4), shape(xla.F32, 1), f32)
    refused("floating-point", lambda m, s: xla.rng_normal(m, s, shape(xla.S32, 4)), s32, s32)
    refused("uniform", uniform(np.complex64, 4), shape(xla.C64), shape(xla.C64))


def test_the_state_of_the_device_moves_on():
    def program(builder):
        return xla.tuple_(
            xla.rng_get_and_update_state(builder, 3),
            xla.rng_get_and_update_state(builder, 5),
            xla.rng_get_and_update_state(builder, 0),
        )

    first, second, third = evaluate(program)
    assert first.dtype == np.uint64
    assert [int(second[0] - first[0]), int(third[0] - second[0])] == [3, 5]
