"""``python -m fuzz.special_coefficients``: writes ``xlakit/lib/special/coefficients.py``.

Each table holds the Chebyshev series of a function that is smooth on its interval, to the accuracy of F64. mpmath
evaluates the function at the Chebyshev nodes, and the cosine transform of its values gives the coefficients. Terms
below a twentieth of the last place of the sum are cut off.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import mpmath
from mpmath import mpf

from fuzz.support.numbered import command

Function = Callable[[Any], Any]
FILE = Path(__file__).parent.parent / "xlakit" / "lib" / "special" / "coefficients.py"


class Table(NamedTuple):
    """A function of t in [-1, 1], and what it is in words."""

    function: Function
    words: str


def _between(low: float, high: float, function: Function) -> Function:
    middle, radius = (mpf(low) + high) / 2, (mpf(high) - low) / 2
    return lambda t: function(middle + radius * t)


def _lgamma_over_d(d: Any) -> Any:
    return mpmath.loggamma(2 + d) / d if d else mpmath.digamma(2)


def digamma_root() -> Any:
    """The positive root of the digamma function."""
    return mpmath.findroot(mpmath.digamma, mpf("1.4616321449683623"))


def _digamma_over_distance(x: Any) -> Any:
    root = digamma_root()
    return mpmath.digamma(x) / (x - root) if abs(x - root) > mpf(10) ** -30 else mpmath.polygamma(1, root)


def _scaled_erfc(t: Any) -> Any:
    # t = (x - 4) / (x + 4) takes all positive x to [-1, 1]; (1 + 2x) takes away the decay like 1/x.
    if t == 1:
        return 2 / mpmath.sqrt(mpmath.pi)
    x = 4 * (1 + t) / (1 - t)
    scaled = mpmath.exp(x * x) * mpmath.erfc(x) if x < 200 else _erfcx_of_large(x)
    return (1 + 2 * x) * scaled


def _erfcx_of_large(x: Any) -> Any:
    total = term = mpf(1)
    for k in range(1, 12):
        term *= -(2 * k - 1) / (2 * x * x)
        total += term
    return total / (x * mpmath.sqrt(mpmath.pi))


def _erf_inv_over_x(w: Any) -> Any:
    if not w:
        return mpmath.sqrt(mpmath.pi) / 2
    # erfinv(x) = y where erfc(y) = 1 - x; Newton's steps on the logarithm of erfc keep the digits of small 1 - x.
    rest = -mpmath.expm1(mpmath.log1p(-mpmath.exp(-w)) / 2) if w > 1 else 1 - mpmath.sqrt(-mpmath.expm1(-w))
    y = mpmath.sqrt(max(-mpmath.log(rest), mpf("0.01"))) * mpf("0.9") if rest < mpf("0.5") else mpf("0.3")
    for _ in range(60):
        tail = mpmath.erfc(y)
        step = mpmath.log(tail / rest) * tail * mpmath.sqrt(mpmath.pi) / 2 * mpmath.exp(y * y)
        y += step
        if abs(step) < mpf(10) ** -35 * y:
            break
    return y / (1 - rest)


def _bessel_tail(order: int) -> Function:
    def function(t: Any) -> Any:
        # t = 16/x - 1, for x from 8 on.
        if t == -1:
            return 1 / mpmath.sqrt(2 * mpmath.pi)
        x = 16 / (t + 1)
        return mpmath.exp(-x) * mpmath.sqrt(x) * mpmath.besseli(order, x)

    return function


TABLES = {
    "LGAMMA": Table(_between(-0.5, 0.5, _lgamma_over_d), "log(gamma(2 + d)) / d, of 2d"),
    "DIGAMMA": Table(_between(1, 2, _digamma_over_distance), "digamma(x) / (x - DIGAMMA_ROOT), of 2x - 3"),
    "ERFC": Table(_scaled_erfc, "(1 + 2x) exp(x^2) erfc(x), of (x - 4) / (x + 4)"),
    "ERF_INV_CENTER": Table(
        _between(0, 6.25, _erf_inv_over_x), "erf_inv(x) / x, of w / 3.125 - 1, w = -log(1 - x^2) up to 6.25"
    ),
    "ERF_INV_MIDDLE": Table(
        _between(2.5, 4, lambda s: _erf_inv_over_x(s * s)), "the same, of (sqrt(w) - 3.25) / 0.75 up to w = 16"
    ),
    "ERF_INV_TAIL": Table(
        _between(4, 6.25, lambda s: _erf_inv_over_x(s * s)), "the same, of (sqrt(w) - 5.125) / 1.125 above"
    ),
    "BESSEL_I0E": Table(
        _between(0, 8, lambda x: mpmath.exp(-x) * mpmath.besseli(0, x)), "exp(-x) I0(x), of x/4 - 1, up to 8"
    ),
    "BESSEL_I0E_TAIL": Table(_bessel_tail(0), "exp(-x) sqrt(x) I0(x), of 16/x - 1, from 8 on"),
    "BESSEL_I1E": Table(
        _between(0, 8, lambda x: mpmath.exp(-x) * mpmath.besseli(1, x) / x if x else mpf("0.5")),
        "exp(-x) I1(x) / x, of x/4 - 1, up to 8",
    ),
    "BESSEL_I1E_TAIL": Table(_bessel_tail(1), "exp(-x) sqrt(x) I1(x), of 16/x - 1, from 8 on"),
}


def chebyshev_series(function: Function) -> list[Any]:
    """The coefficients of T0, T1, ... of a function on [-1, 1], as many as F64 needs."""
    size = 64
    # Of all multiples of the smallest angle, as far as they differ.
    cosines = [mpmath.cos(mpmath.pi * i / (2 * size)) for i in range(4 * size)]
    nodes = [2 * i + 1 for i in range(size)]
    values = [function(cosines[node]) for node in nodes]
    found = [
        2 * mpmath.fsum(v * cosines[k * node % len(cosines)] for v, node in zip(values, nodes, strict=True)) / size
        for k in range(size)
    ]
    found[0] /= 2
    least = min(abs(v) for v in values) * mpf(2) ** -53 / 20
    while len(found) > 1 and abs(found[-1]) < least:
        found.pop()
    return found


def text() -> str:
    """The module as it is written."""
    lines = ['"""Chebyshev series of the special functions; written by ``python -m fuzz.special_coefficients``."""', ""]
    root = digamma_root()
    high = float(root)
    lines += [f"DIGAMMA_ROOT = {high!r}", f"DIGAMMA_ROOT_REST = {float(root - high)!r}"]
    for name, table in TABLES.items():
        lines += ["", f"# {table.words}", f"{name} = ("]
        lines += [f"    {float(c)!r}," for c in chebyshev_series(table.function)] + [")"]
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the module; with ``--check``, give 1 where it is not what would be written."""
    parser = command("fuzz.special_coefficients", __doc__)
    parser.add_argument("--check", action="store_true", help="compare, and write nothing")
    options = parser.parse_args(arguments)
    with mpmath.workprec(200):
        new = text()
    if options.check:
        return int(new != FILE.read_text(encoding="utf-8"))
    FILE.write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
