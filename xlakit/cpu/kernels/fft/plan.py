"""The plan of a Fourier transform: its axis, radices, four-step factors, and the length of Bluestein's convolution."""

from __future__ import annotations

from functools import cache

from xlakit.cpu.llvm import I8, Function, Type, Value
from xlakit.dataclass import dataclass

# Lengths with a larger prime factor are transformed by a convolution (Bluestein).
LARGEST_PRIME = 31
# Up to this length the points of a lane transform stay in the near caches.
LONGEST_LANES = 1024


@cache
def prime_factors(n: int) -> tuple[int, ...]:
    """The prime factors in ascending order."""
    factors: list[int] = []
    p = 2
    while p * p <= n:
        while n % p == 0:
            factors.append(p)
            n //= p
        p += 1
    return (*factors, n) if n > 1 else tuple(factors)


def is_smooth(n: int) -> bool:
    """Whether there are butterflies for all prime factors."""
    return all(p <= LARGEST_PRIME for p in prime_factors(n))


@cache
def radices(n: int) -> tuple[int, ...]:
    """The sizes of the butterflies of a smooth length, in the order of the passes."""
    odd = [p for p in prime_factors(n) if p > 2]
    twos = prime_factors(n).count(2)
    eights = 1 if twos % 2 and twos > 1 else 0
    twos -= 3 * eights
    return (*[8] * eights, *[4] * (twos // 2), *[2] * (twos % 2), *odd)


def work(n: int) -> float:
    """The estimated cycles of a transform for one lane of eight."""
    if not is_smooth(n):
        return 2.5 * work(convolution_length(n))
    cycles = {2: 1.0, 4: 1.4, 8: 2.0}
    return 1.6 * n + sum(n * cycles.get(r, 0.8 + 0.4 * r) for r in radices(n))


@cache
def convolution_length(n: int) -> int:
    """The length of at least 2n - 1 with only small prime factors that is the fastest to transform."""
    least = 2 * n - 1
    best, candidates = 1 << (least - 1).bit_length(), [1]
    for p in (2, 3, 5):
        candidates = [c * p**e for c in candidates for e in range(best.bit_length()) if c * p**e <= best]
    return min((c for c in candidates if c >= least), key=work)


def lane_points(n: int) -> int:
    """The number of points of the memory of a lane transform."""
    return n if is_smooth(n) else convolution_length(n)


@cache
def four_step_factors(n: int, lanes: int) -> tuple[int, int] | None:
    """The best two factors of a smooth length, both at least ``lanes``; None if there are none."""
    pairs = [(a, n // a) for a in _divisors(n) if min(a, n // a) >= lanes]
    return min(pairs, key=lambda pair: _pair_work(pair, lanes), default=None) if is_smooth(n) else None


def _pair_work(pair: tuple[int, int], lanes: int) -> tuple[float, int]:
    a, b = pair
    total = -(-b // lanes) * work(a) + -(-a // lanes) * work(b)
    # The more equal the factors, the less memory is needed.
    return total * (1.5 if max(pair) > LONGEST_LANES and min(pair) < LONGEST_LANES else 1.0), max(pair)


def _divisors(n: int) -> list[int]:
    divisors = [1]
    for p in set(prime_factors(n)):
        divisors = [d * p**e for d in divisors for e in range(prime_factors(n).count(p) + 1)]
    return sorted(divisors)


@dataclass(frozen=True, slots=True)
class Storage:
    """An array: its number in the kernel's table, and an offset in bytes."""

    array: int
    offset: int = 0

    def pointer(self, fn: Function, table: Value) -> Value:
        """The address of the array."""
        address = fn.pointer(table, self.array)
        return fn.at(address, I8, self.offset) if self.offset else address


@dataclass(frozen=True, slots=True)
class Axis:
    """``outer`` times ``inner`` transforms of ``length`` points; the points are ``inner`` complex numbers apart.

    part: the type of the parts of complex numbers. is_inverse: the inverse transform, whose division is in ``scale``.
    reads_real, writes_real: whether the input or the output rows are real; then ``inner`` is 1, and the spectrum has
    length // 2 + 1 points.
    """

    part: Type
    source: Storage
    target: Storage
    outer: int
    length: int
    inner: int
    is_inverse: bool
    scale: float = 1.0
    reads_real: bool = False
    writes_real: bool = False

    @property
    def is_halved(self) -> bool:
        """Whether a complex transform of half the length computes it."""
        return (self.reads_real or self.writes_real) and self.length % 2 == 0

    @property
    def points(self) -> int:
        """The length of the complex transform."""
        return self.length // 2 if self.is_halved else self.length

    @property
    def spectrum(self) -> int:
        """The number of points of the spectrum."""
        return self.length // 2 + 1 if self.reads_real or self.writes_real else self.length

    @property
    def source_row(self) -> int:
        """The number of real numbers of a row of the source."""
        return self.length if self.reads_real else 2 * self.spectrum

    @property
    def target_row(self) -> int:
        """The number of real numbers of a row of the target."""
        return self.length if self.writes_real else 2 * self.spectrum
