"""rng-bit-generator in machine code: the interpreter's bits."""

import itertools

import numpy as np
import pytest
from cpu.agreeing import agree

import xlakit as xla

STATE = np.array([2**63 + 12345, 2**64 - 70], np.uint64)
SIZES = [(), (1,), (7,), (3, 5), (3, 101), (5, 64), (2, 33, 65), (33, 4, 3), (7, 7, 129), (20_001,)]


# The default one is Philox.
@pytest.mark.parametrize(
    ("algorithm", "sizes"), [*itertools.product(["RNG_THREE_FRY", "RNG_PHILOX"], SIZES), ("RNG_DEFAULT", (7, 7, 129))]
)
def test_orders_of_words(algorithm, sizes):
    for kind in (xla.U32, xla.U64, xla.S16):
        agree(lambda s, k=kind: xla.rng_bit_generator(algorithm, s, xla.Shape(k, sizes)), STATE)


@pytest.mark.parametrize("algorithm", ["RNG_THREE_FRY", "RNG_PHILOX"])
@pytest.mark.parametrize("kind", [xla.U8, xla.S8, xla.S4, xla.U4, xla.F16, xla.BF16, xla.F32, xla.F64, xla.F8E4M3FN])
def test_element_types(algorithm, kind):
    agree(lambda s: xla.rng_bit_generator(algorithm, s, xla.Shape(kind, (3, 50))), STATE)


def test_a_counter_of_128_bits():
    state = np.array([7, 2**64 - 3, 2**64 - 1], np.uint64)
    agree(lambda s: xla.rng_bit_generator("RNG_PHILOX", s, xla.Shape(xla.U32, (100,))), state)


def test_no_bits_at_all():
    agree(lambda s: xla.rng_bit_generator("RNG_PHILOX", s, xla.Shape(xla.U32, (0, 3))), STATE)
