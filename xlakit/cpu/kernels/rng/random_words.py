"""The words of Threefry2x32 and Philox4x32 for many counters at once.

Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xlakit.cpu.llvm import I32, I64, Function, Value, vector
from xlakit.target import vector_bytes

# Cycles for a block of two words (Threefry) or four (Philox).
THREEFRY_CYCLES, PHILOX_CYCLES = 6.0, 12.0

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)

# Gives the 32-bit words of blocks, given the blocks' numbers: a vector of the first words, one of the second words, ..
Words = Callable[[Value], Sequence[Value]]


def lane_count() -> int:
    """The number of blocks computed at once: two vector registers of words, to hide the latency of the rounds."""
    return 2 * vector_bytes() // 4


def counters(fn: Function, first: Value) -> Value:
    """The numbers of the blocks computed at once, from ``first`` on: one in each lane of a vector."""
    lanes = lane_count()
    steps = fn.undefined(vector(I64, lanes))
    for lane in range(lanes):
        steps = fn.with_lane(steps, lane, fn.i64(lane))
    return fn.splat(first, lanes) + steps


def threefry(fn: Function, state: Value) -> Words:
    """The two words of each block; the state is a key and a counter."""
    key, counter = (fn.splat(fn.load(I64, fn.at(state, I64, n)), lane_count()) for n in (0, 1))
    first, second = halves(key)
    schedule = (first, second, first ^ second ^ _PARITY)

    def words(numbers: Value) -> Sequence[Value]:
        low, high = halves(counter + numbers)
        x, y = low + schedule[0], high + schedule[1]
        for group in range(5):
            for distance in _ROTATIONS[group % 2]:
                x = x + y
                y = x ^ fn.intrinsic("llvm.fshl", y.type, y, y, fn.constant(y.type, distance))
            x = x + schedule[(group + 1) % 3]
            y = y + (schedule[(group + 2) % 3] + (group + 1))
        return x, y

    return words


def philox(fn: Function, state: Value, length: int) -> Words:
    """The four words of each block; the state is a key and the halves of a counter, whose upper half may be missing."""
    key, low = (fn.splat(fn.load(I64, fn.at(state, I64, n)), lane_count()) for n in (0, 1))
    # If the state is short, the key is also the upper half of the counter.
    high = fn.splat(fn.load(I64, fn.at(state, I64, 2)), lane_count()) if length > 2 else key
    keys = [
        [(half + number * step % 2**32).cast("zext", low.type) for number in range(10)]
        for half, step in zip(halves(key), _KEY_STEPS, strict=True)
    ]

    def words(numbers: Value) -> Sequence[Value]:
        counter = low + numbers
        upper = high + counter.compare("ult", low).cast("zext", low.type)
        # The words are kept in the lower halves of 64-bit numbers, for the products.
        a, b, c, d = (part for both in (counter, upper) for part in (both & 0xFFFFFFFF, both >> 32))
        for first, second in zip(*keys, strict=True):
            left, right = a * _MULTIPLIERS[0], c * _MULTIPLIERS[1]
            a, b = (right >> 32) ^ b ^ first, right & 0xFFFFFFFF
            c, d = (left >> 32) ^ d ^ second, left & 0xFFFFFFFF
        return [halves(word)[0] for word in (a, b, c, d)]

    return words


def halves(words: Value) -> tuple[Value, Value]:
    """The lower and the upper half of each word."""
    half = words.type.with_element(I32)
    return words.cast("trunc", half), (words >> 32).cast("trunc", half)


def joined(words: Sequence[Value]) -> list[Value]:
    """Pairs of words as 64-bit words, the lower half first."""
    wide = words[0].type.with_element(I64)
    pairs = zip(words[::2], words[1::2], strict=True)
    return [low.cast("zext", wide) | (high.cast("zext", wide) << 32) for low, high in pairs]
