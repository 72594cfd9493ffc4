"""How a Fourier transform is done: its axis, its radices, its factors, the length that replaces a prime."""

from __future__ import annotations

from functools import cache

from xlakit.cpu.llvm import I8, PTR, Function, Type, Value
from xlakit.dataclass import dataclass

# Lengths with a greater prime factor go through a convolution (Bluestein).
LARGEST_PRIME = 31
# Up to this length the points of a lane transform stay near the processor.
LONGEST_LANES = 1024


@cache
def prime_factors(n: int) -> tuple[int, ...]:
    """The prime factors, in order."""
    found: list[int] = []
    p = 2
    while p * p <= n:
        while n % p == 0:
            found.append(p)
            n //= p
        p += 1
    return (*found, n) if n > 1 else tuple(found)


def is_smooth(n: int) -> bool:
    """Whether there are butterflies for all factors."""
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
    """About how many cycles a transform takes for one lane of eight."""
    if not is_smooth(n):
        return 2.5 * work(convolution_length(n))
    cycles = {2: 1.0, 4: 1.4, 8: 2.0}
    return 1.6 * n + sum(n * cycles.get(r, 0.8 + 0.4 * r) for r in radices(n))


@cache
def convolution_length(n: int) -> int:
    """A length with small factors only, at least 2n - 1, that is fast to transform."""
    least = 2 * n - 1
    best, candidates = 1 << (least - 1).bit_length(), [1]
    for p in (2, 3, 5):
        candidates = [c * p**e for c in candidates for e in range(best.bit_length()) if c * p**e <= best]
    return min((c for c in candidates if c >= least), key=work)


def lane_points(n: int) -> int:
    """How many points the memory of a lane transform has."""
    return n if is_smooth(n) else convolution_length(n)


@cache
def four_step_factors(n: int, lanes: int) -> tuple[int, int] | None:
    """Two factors of a smooth length that are both at least ``lanes``, best the same; None if there are none."""
    pairs = [(a, n // a) for a in _divisors(n) if min(a, n // a) >= lanes]
    return min(pairs, key=lambda pair: _pair_work(pair, lanes), default=None) if is_smooth(n) else None


def _pair_work(pair: tuple[int, int], lanes: int) -> tuple[float, int]:
    a, b = pair
    total = -(-b // lanes) * work(a) + -(-a // lanes) * work(b)
    # Equal factors need the least memory.
    return total * (1.5 if max(pair) > LONGEST_LANES and min(pair) < LONGEST_LANES else 1.0), max(pair)


def _divisors(n: int) -> list[int]:
    found = [1]
    for p in set(prime_factors(n)):
        found = [d * p**e for d in found for e in range(prime_factors(n).count(p) + 1)]
    return sorted(found)


@dataclass(frozen=True, slots=True)
class Storage:
    """An array: a number of the kernel's table, and how many bytes after its start."""

    array: int
    offset: int = 0

    def pointer(self, fn: Function, table: Value) -> Value:
        """Where it is."""
        found = fn.load(PTR, fn.at(table, PTR, self.array))
        return fn.at(found, I8, self.offset) if self.offset else found


@dataclass(frozen=True, slots=True)
class Axis:
    """``outer`` times ``inner`` transforms of ``length`` points, ``inner`` complex numbers apart.

    part: the type of the parts of complex numbers. is_inverse: without the division, which is ``scale``.
    reads_real, writes_real: real rows in, or out; ``inner`` is 1 then, and the spectrum has length // 2 + 1 points.
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
        """Whether a complex transform of half the length does it."""
        return (self.reads_real or self.writes_real) and self.length % 2 == 0

    @property
    def points(self) -> int:
        """The length of the complex transform."""
        return self.length // 2 if self.is_halved else self.length

    @property
    def spectrum(self) -> int:
        """How many points the spectrum has."""
        return self.length // 2 + 1 if self.reads_real or self.writes_real else self.length

    @property
    def source_row(self) -> int:
        """How many real numbers a row of the source has."""
        return self.length if self.reads_real else 2 * self.spectrum

    @property
    def target_row(self) -> int:
        """How many real numbers a row of the target has."""
        return self.length if self.writes_real else 2 * self.spectrum
