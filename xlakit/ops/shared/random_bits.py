"""Threefry2x32 and Philox4x32: random bits as a function of a key and a counter, and how XLA lays them out.

Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011); the order in which the words of a
block fill an array is XLA's, so that the bits are the same.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from xlakit.ir.operation import Array

_MASK64 = (1 << 64) - 1

_THREEFRY_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_THREEFRY_PARITY = np.uint32(0x1BD11BDA)

_PHILOX_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_PHILOX_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)


def threefry2x32(key: tuple[int, int], low: Array, high: Array) -> tuple[Array, Array]:
    """Twenty rounds of Threefry on counters of two 32-bit words; gives two words for each."""
    with np.errstate(over="ignore"):
        return threefry_rounds(np.uint32(key[0]), np.uint32(key[1]), low, high)


def threefry_rounds(first: Any, second: Any, x: Any, y: Any) -> tuple[Any, Any]:
    """The same on whatever has the operators of 32-bit words: arrays, or XlaOps of U32."""
    schedule = (first, second, first ^ second ^ _THREEFRY_PARITY)
    x, y = x + schedule[0], y + schedule[1]
    for group in range(5):
        for distance in _THREEFRY_ROTATIONS[group % 2]:
            x = x + y
            y = x ^ ((y << np.uint32(distance)) | (y >> np.uint32(32 - distance)))
        x = x + schedule[(group + 1) % 3]
        y = y + schedule[(group + 2) % 3] + np.uint32(group + 1)
    return x, y


def philox4x32(key: tuple[int, int], words: Sequence[Array]) -> list[Array]:
    """Ten rounds of Philox on counters of four 32-bit words, least significant first; gives four words for each."""
    a, b, c, d = words
    for number in range(10):
        first, second = (np.uint32((k + number * s) % 2**32) for k, s in zip(key, _PHILOX_KEY_STEPS, strict=True))
        products = [w.astype(np.uint64) * m for w, m in zip((a, c), _PHILOX_MULTIPLIERS, strict=True)]
        (high0, low0), (high1, low1) = ((_high(p), _low(p)) for p in products)
        a, b, c, d = high1 ^ b ^ first, low1, high0 ^ d ^ second, low0
    return [a, b, c, d]


def threefry_bits(key: int, counter: int, dimensions: Sequence[int], width: int) -> tuple[Array, int]:
    """Unsigned integers of 32 bits (64 for ``width`` 64) filling ``dimensions``, and the next counter.

    An element of 64 bits is one block. Of 32 bits, a block fills two elements that are neighbors along one
    dimension: the first even one, else the first longest; where that is odd, one column of blocks is half used.
    """
    if width == 64:
        x, y = _threefry_blocks(key, counter, dimensions)
        return _join(x, y), (counter + math.prod(dimensions)) & _MASK64
    if not dimensions:
        x, _ = _threefry_blocks(key, counter, (1,))
        return x.reshape(()), (counter + 1) & _MASK64
    even = [d for d, size in enumerate(dimensions) if size % 2 == 0]
    split = even[0] if even else list(dimensions).index(max(dimensions))
    size = dimensions[split]
    halved = (*dimensions[:split], (size + 1) // 2, *dimensions[split + 1 :])
    pairs = np.stack(_threefry_blocks(key, counter, halved), axis=split + 1)
    paired = pairs.reshape(*halved[:split], 2 * halved[split], *halved[split + 1 :])
    keep = tuple(slice(0, n) for n in dimensions)
    return paired[keep], (counter + math.prod(halved)) & _MASK64


def _threefry_blocks(key: int, counter: int, dimensions: Sequence[int]) -> tuple[Array, Array]:
    with np.errstate(over="ignore"):
        counters = np.arange(math.prod(dimensions), dtype=np.uint64) + np.uint64(counter)
    x, y = threefry2x32(_halves(key), _low(counters), _high(counters))
    return x.reshape(dimensions), y.reshape(dimensions)


def philox_bits(key: int, counter: int, dimensions: Sequence[int], width: int) -> tuple[Array, int]:
    """Unsigned integers of 32 bits (64 for ``width`` 64) filling ``dimensions``, and the next 128-bit counter.

    A block fills four elements of 32 bits, or two of 64, in row-major order; what the last block has left is lost.
    """
    total = math.prod(dimensions)
    blocks = -(-total // (2 if width == 64 else 4))
    low, high = counter & _MASK64, counter >> 64
    with np.errstate(over="ignore"):
        lows = np.arange(blocks, dtype=np.uint64) + np.uint64(low)
        highs = np.uint64(high) + (lows < np.uint64(low)).astype(np.uint64)
    words = philox4x32(_halves(key), [_low(lows), _high(lows), _low(highs), _high(highs)])
    if width == 64:
        words = [_join(words[0], words[1]), _join(words[2], words[3])]
    bits = np.stack(words, axis=-1).reshape(-1)[:total].reshape(dimensions)
    return bits, (counter + blocks) % 2**128


def _halves(word: int) -> tuple[int, int]:
    return word & 0xFFFFFFFF, word >> 32


def _low(words: Array) -> Array:
    return words.astype(np.uint32)


def _high(words: Array) -> Array:
    return (words >> np.uint64(32)).astype(np.uint32)


def _join(low: Array, high: Array) -> Array:
    return low.astype(np.uint64) | (high.astype(np.uint64) << np.uint64(32))
