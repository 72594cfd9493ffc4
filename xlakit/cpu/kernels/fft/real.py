"""Real transforms of even length: the even and odd numbers of a row are the parts of half as many complex ones."""

from __future__ import annotations

from xlakit.cpu.kernels.fft.butterfly import Point, add
from xlakit.cpu.scalars.complex_arithmetic import plain_product


def untangle_point(one: Point, other: Point, root: Point) -> Point:
    """Point k of a real row's spectrum, from points k and h - k of that of the h complex ones; ``root`` is w^k."""
    even = (one[0] + other[0]) * 0.5, (one[1] - other[1]) * 0.5
    odd = (one[1] + other[1]) * 0.5, (other[0] - one[0]) * 0.5
    return add(even, plain_product(odd, root))


def untangle_ends(first: Point) -> tuple[Point, Point]:
    """The first and the last point."""
    zero = first[0].function.constant(first[0].type, 0.0)
    return (first[0] + first[1], zero), (first[0] - first[1], zero)


def tangle_point(one: Point, other: Point, root: Point) -> Point:
    """The way back, twice the point."""
    even = one[0] + other[0], one[1] - other[1]
    odd = plain_product((one[0] - other[0], one[1] + other[1]), (root[0], -root[1]))
    return even[0] - odd[1], even[1] + odd[0]


def tangle_ends(first: Point, last: Point) -> Point:
    """Twice the first point; the ends of a real row's spectrum are real, whatever is given."""
    return first[0] + last[0], first[0] - last[0]
