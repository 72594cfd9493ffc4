"""Random bits against published vectors and jaxlib's; distributions by their range and moments."""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from both_backends import plain, run

import xlakit as xla
from xlakit.lib import prng

U64 = np.uint64


def words(*parts):
    """64-bit numbers of 32-bit words, low word first."""
    return [U64(low | high << 32) for low, high in zip(parts[::2], parts[1::2], strict=True)]


def test_published_blocks():
    """Known answers of the paper's library: counters and keys of zeros, ones, and the digits of pi."""
    vectors = [
        ([0, 0], [0, 0], [0x6B200159, 0x99BA4EFE]),
        ([2**32 - 1] * 2, [2**32 - 1] * 2, [0x1CB996FC, 0xBB002BE7]),
        ([0x243F6A88, 0x85A308D3], [0x13198A2E, 0x03707344], [0xC4923A9C, 0x483DF7A0]),
    ]
    for counter, key, expected in vectors:
        shape = xla.make_shape(xla.U32, [2])
        found = run(lambda k, c, s=shape: list(prng.three_fry_bit_generator(k, c, s)), *words(*key), *words(*counter))
        assert found[0].tolist() == expected
        assert found[1] == U64((int(words(*counter)[0]) + 1) % 2**64)
    vectors = [
        ([0] * 4, [0, 0], [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
        ([2**32 - 1] * 4, [2**32 - 1] * 2, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
    ]
    for counter, key, expected in vectors:
        shape, given = xla.make_shape(xla.F32, [4]), np.array(words(*counter))
        found = run(lambda k, c, s=shape: list(prng.philox_bit_generator(k, c, s)), *words(*key), given)
        assert found[0].tolist() == expected and found[0].dtype == np.uint32
        carried = run(prng.philox_increase_counter, given, U64(1))
        np.testing.assert_array_equal(found[1], carried)
    # Beyond the low half.
    far = run(prng.philox_increase_counter, np.array([2**64 - 2, 5], U64), U64(3))
    assert far.tolist() == [1, 6]


@pytest.mark.parametrize(
    ("kind", "sizes"), [(np.float32, (3, 5)), (np.int64, (2, 3)), (np.uint16, ()), (np.uint8, (0, 2))]
)
def test_bits_are_those_of_jaxlib(kind, sizes):
    key, shape = U64(0x123456789ABCDEF0), xla.make_shape(kind, sizes)
    unsigned = f"uint{np.dtype(kind).itemsize * 8}"
    with jax.enable_x64():
        for algorithm, generator, state in (
            ("three_fry", prng.three_fry_bit_generator, U64(77)),
            ("philox", prng.philox_bit_generator, np.array([77, key], U64)),
        ):
            bits, after = run(lambda k, s, g=generator: list(g(k, s, shape)), key, state)
            # JAX's short state of Philox has the key as the high half of its counter.
            seed = jnp.array([key, U64(77)])
            name = jax.lax.RandomAlgorithm[f"RNG_{algorithm.upper()}"]
            theirs = jax.lax.rng_bit_generator(seed, sizes, unsigned, algorithm=name)
            np.testing.assert_array_equal(bits, theirs[1])
            assert np.atleast_1d(after)[0] == theirs[0][1]


def test_scrambled_keys():
    """Philox's first block for the key's halves, under a key that is always the same."""
    state, key = run(prng.scramble_philox_key, U64(0xFEDCBA9876543210))
    fixed = U64(0x02461E293EC8F720)
    counter = np.array([0x76543210, 0xFEDCBA98], U64)
    block = run(lambda k, c: prng.philox_bit_generator(k, c, xla.make_shape(xla.U32, [4]))[0], fixed, counter)
    assert words(*map(int, block)) == [key, state[1]] and state[0] == 0


def drawn(distribution, shape, *bounds, key=5):
    def program(k, s, *b):
        return list(distribution(k, s, prng.three_fry_bit_generator, *b, shape))

    return run(program, U64(key), U64(9), *bounds, exact=False)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, ml_dtypes.bfloat16])
def test_floating_point_distributions(dtype):
    shape = xla.make_shape(dtype, [40, 51])
    value, state = drawn(prng.uniform_floating_point_distribution, shape, dtype(-3), dtype(5))
    numbers = plain(value).astype(np.float64)
    assert value.dtype == dtype and value.shape == (40, 51) and state > 9
    assert numbers.min() >= -3 and numbers.max() < 5
    assert abs(numbers.mean() - 1) < 0.25 and abs(numbers.std() - 8 / 12**0.5) < 0.1
    # An interval of one number, which sums are rounded to the end of.
    eps = ml_dtypes.finfo(dtype).eps
    narrow, _ = drawn(prng.uniform_floating_point_distribution, shape, dtype(1), dtype(1 + float(eps)))
    assert (plain(narrow) == 1).all()
    normal, _ = drawn(prng.normal_floating_point_distribution, shape)
    numbers = plain(normal).astype(np.float64).reshape(-1)
    assert normal.dtype == dtype and normal.shape == (40, 51) and np.isfinite(numbers).all()
    moments = [np.mean(numbers**k) for k in range(1, 5)]
    np.testing.assert_allclose(moments, [0, 1, 0, 3], atol=0.35)
    assert abs(np.corrcoef(numbers[:1020], numbers[1020:])[0, 1]) < 0.1


@pytest.mark.parametrize("sizes", [(), (3,), (0, 2)])
def test_few_numbers(sizes):
    value, state = drawn(prng.normal_floating_point_distribution, xla.make_shape(np.float32, sizes))
    assert value.shape == sizes and state == 9 + -(-int(np.prod(sizes)) // 2)


@pytest.mark.parametrize(
    ("dtype", "bounds"),
    [(np.int8, (-128, 127)), (np.uint8, (3, 9)), (np.int64, (-(2**62), 2**62)), (np.int32, (-2, 2))],
)
def test_integers(dtype, bounds):
    value, _ = drawn(prng.uniform_int_distribution, xla.make_shape(dtype, [4000]), *map(dtype, bounds))
    least, greatest = bounds
    assert value.dtype == dtype and value.min() >= least and value.max() < greatest
    relative = (value.astype(np.float64) - least) / (greatest - least)
    assert abs(relative.mean() - 0.5 * (1 - 1 / (greatest - least))) < 0.02
    if greatest - least < 10:
        counts = np.bincount(value.astype(int) - least, minlength=greatest - least)
        assert counts.min() > 0.8 * 4000 / (greatest - least)
    same, _ = drawn(prng.uniform_int_distribution, xla.make_shape(dtype, [3]), dtype(least), dtype(least))
    assert (same == least).all()


def test_what_cannot_be_drawn():
    f32, pred = xla.make_shape(np.float32, [2]), xla.make_shape(np.bool_, [2])
    for function, shape, bounds in (
        (prng.uniform_floating_point_distribution, f32, (np.float32(0), np.float64(1))),
        (prng.uniform_floating_point_distribution, xla.make_shape(np.int32, [2]), (np.int32(0), np.int32(1))),
        (prng.uniform_int_distribution, f32, (np.float32(0), np.float32(1))),
        (prng.uniform_int_distribution, xla.make_shape(xla.S4, [2]), (np.int8(0), np.int8(1))),
        (prng.normal_floating_point_distribution, pred, ()),
    ):
        with pytest.raises(xla.ShapeError):
            drawn(function, shape, *bounds)
    with pytest.raises(xla.ShapeError, match="takes a key"):
        run(lambda k, s: prng.philox_bit_generator(k, s, f32)[0], U64(1), U64(2))
    with pytest.raises(xla.ShapeError, match="no random bits"):
        run(lambda k, s: prng.three_fry_bit_generator(k, s, pred)[0], U64(1), U64(2))
