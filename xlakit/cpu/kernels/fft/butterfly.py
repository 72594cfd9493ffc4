"""Butterflies: unrolled transforms of a few points.

A real transform of even length is computed by a complex one of half the length: the even and odd elements of a row are
the real and imaginary parts of its points.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from xlakit.cpu.llvm import Value
from xlakit.cpu.scalars.complex_arithmetic import plain_product

# The real and the imaginary parts of one point of several transforms.
Point = tuple[Value, Value]


def add(a: Point, b: Point) -> Point:
    """The sum of two points."""
    return a[0] + b[0], a[1] + b[1]


def subtract(a: Point, b: Point) -> Point:
    """The difference of two points."""
    return a[0] - b[0], a[1] - b[1]


def swapped(a: Point) -> Point:
    """A point with its parts exchanged."""
    return a[1], a[0]


def _minus_i(a: Point) -> Point:
    return a[1], -a[0]


def butterfly(points: Sequence[Point]) -> list[Point]:
    """The forward transform of 2, 4, 8 or an odd number of points."""
    count = len(points)
    if count == 2:
        return [add(*points), subtract(*points)]
    if count == 4:
        return _four(points)
    if count == 8:
        return _eight(points)
    return _odd(points)


def _four(points: Sequence[Point]) -> list[Point]:
    a, b, c, d = points
    sum_even, rest_even, sum_odd = add(a, c), subtract(a, c), add(b, d)
    rest_odd = subtract(b, d)
    (r, i), (s, j) = rest_even, rest_odd
    return [add(sum_even, sum_odd), (r + j, i - s), subtract(sum_even, sum_odd), (r - j, i + s)]


def _eight(points: Sequence[Point]) -> list[Point]:
    even, odd = _four(points[::2]), _four(points[1::2])
    diagonal = math.sqrt(0.5)
    (r, i), (s, j) = odd[1], odd[3]
    turned = [
        odd[0],
        ((r + i) * diagonal, (i - r) * diagonal),
        _minus_i(odd[2]),
        ((j - s) * diagonal, (s + j) * -diagonal),
    ]
    pairs = list(zip(even, turned, strict=True))
    return [add(a, b) for a, b in pairs] + [subtract(a, b) for a, b in pairs]


def _odd(points: Sequence[Point]) -> list[Point]:
    """The transform of an odd number of points; points k and count - k share their cosines and sines."""
    count = len(points)
    half = (count - 1) // 2
    first = points[0]
    sums = [add(points[k], points[count - k]) for k in range(1, half + 1)]
    rests = [subtract(points[k], points[count - k]) for k in range(1, half + 1)]
    total = first
    for point in sums:
        total = add(total, point)
    result: list[Point] = [total] * count
    for j in range(1, half + 1):
        even, odd = first, None
        for k in range(1, half + 1):
            angle = 2 * math.pi * (j * k % count) / count
            cosine, sine = math.cos(angle), math.sin(angle)
            (r, i), (s, t) = sums[k - 1], rests[k - 1]
            even = even[0] + r * cosine, even[1] + i * cosine
            odd = (s * sine, t * sine) if odd is None else (odd[0] + s * sine, odd[1] + t * sine)
        if odd is not None:
            result[j] = even[0] + odd[1], even[1] - odd[0]
            result[count - j] = even[0] - odd[1], even[1] + odd[0]
    return result


def untangle_point(point: Point, mirrored: Point, root: Point) -> Point:
    """Point k of a real row's spectrum, from points k and h - k of the spectrum of h pairs; ``root`` is w^k."""
    even = (point[0] + mirrored[0]) * 0.5, (point[1] - mirrored[1]) * 0.5
    odd = (point[1] + mirrored[1]) * 0.5, (mirrored[0] - point[0]) * 0.5
    return add(even, plain_product(odd, root))


def untangle_ends(first: Point) -> tuple[Point, Point]:
    """The first and the last point of a real row's spectrum."""
    zero = first[0].function.constant(first[0].type, 0.0)
    return (first[0] + first[1], zero), (first[0] - first[1], zero)


def tangle_point(point: Point, mirrored: Point, root: Point) -> Point:
    """Twice the point of the complex spectrum: the inverse of :func:`untangle_point`."""
    even = point[0] + mirrored[0], point[1] - mirrored[1]
    odd = plain_product((point[0] - mirrored[0], point[1] + mirrored[1]), (root[0], -root[1]))
    return even[0] - odd[1], even[1] + odd[0]


def tangle_ends(first: Point, last: Point) -> Point:
    """Twice the first point of the complex spectrum; the ends of a real row's spectrum are taken as real."""
    return first[0] + last[0], first[0] - last[0]
