"""``python -m fuzz.minimax``: the polynomials of ``xlakit/cpu/math/coefficients.py``, computed and compared.

Remez' exchange finds the polynomial whose greatest weighted error is least. Where leading terms are exact (the 1 of
e^r, the r after it), what is fitted is the rest divided by its power, so that rounding coefficients costs little.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, NamedTuple

import mpmath
import numpy as np
from mpmath import mpf

from fuzz.support.numbered import command, names_of
from xlakit.cpu.math import coefficients

Function = Callable[[Any], Any]


class Fit(NamedTuple):
    """A function to be approximated between two bounds; the error times the weight is what counts."""

    function: Function
    weight: Function
    low: Any
    high: Any


def remez(fit: Fit, degree: int) -> list[Any]:
    """The coefficients, from the constant upwards."""
    middle, radius = (fit.low + fit.high) / 2, (fit.high - fit.low) / 2
    points = [middle - radius * mpmath.cos(mpmath.pi * i / (degree + 1)) for i in range(degree + 2)]
    found: list[Any] = []
    for _ in range(12):
        system = mpmath.matrix(degree + 2, degree + 2)
        right = mpmath.matrix(degree + 2, 1)
        for i, x in enumerate(points):
            for k in range(degree + 1):
                system[i, k] = x**k
            system[i, degree + 1] = (-1) ** i / fit.weight(x)
            right[i] = fit.function(x)
        solution = mpmath.lu_solve(system, right)
        found = [solution[k] for k in range(degree + 1)]
        extremes = _extremes(fit, found, middle, radius)
        if len(extremes) < degree + 2:
            break
        while len(extremes) > degree + 2:
            extremes.pop(0 if abs(extremes[0][1]) < abs(extremes[-1][1]) else -1)
        points = [x for x, _ in extremes]
        if max(abs(e) for _, e in extremes) < abs(solution[degree + 1]) * mpf("1.001"):
            break
    return found


def rounded(fit: Fit, degree: int, kind: type[np.float32 | np.float64]) -> list[float]:
    """Coefficients rounded to a type in turn, from the constant upwards: what is left is fitted again each time.

    Far from 0, where the powers are nearly multiples of each other, later ones make up for what rounding took.
    """
    found: list[float] = []
    for rest in range(degree, -1, -1):
        taken = float(kind(float(remez(fit, rest)[0])))
        found.append(taken)
        fit = _without_constant(fit, mpf(taken))
    return found


def _without_constant(fit: Fit, constant: Any) -> Fit:
    return fit._replace(function=lambda x: (fit.function(x) - constant) / x, weight=lambda x: fit.weight(x) * x)


def error(fit: Fit, polynomial: Sequence[Any], x: Any) -> Any:
    """The weighted error at a point."""
    # mpmath's own function takes the coefficients in an order that depends on its version.
    value = reduce(lambda total, coefficient: total * x + coefficient, reversed(polynomial), mpf(0))
    return (value - fit.function(x)) * fit.weight(x)


def _extremes(fit: Fit, polynomial: Sequence[Any], middle: Any, radius: Any) -> list[tuple[Any, Any]]:
    """Where the error is greatest between its changes of sign, with the errors there."""
    steps = 40 * (len(polynomial) + 1)
    found: list[tuple[Any, Any]] = []
    for i in range(steps + 1):
        x = middle - radius * mpmath.cos(mpmath.pi * i / steps)
        here = error(fit, polynomial, x)
        if not found or found[-1][1] * here < 0:
            found.append((x, here))
        elif abs(here) > abs(found[-1][1]):
            found[-1] = (x, here)
    return found


# -- the functions -------------------------------------------------------------------------------


def _odd(function: Function, third: Any, high: Any) -> Fit:
    """(f(x)/x - 1) / z of z = x^2, by the relative error of f."""

    def quotient(z: Any) -> Any:
        x = mpmath.sqrt(z)
        return (function(x) / x - 1) / z if z > _TINY else third

    def weight(z: Any) -> Any:
        x = mpmath.sqrt(z)
        return z * x / function(x) if z > _TINY else z + _TINY**2

    return Fit(quotient, weight, mpf(0), high)


def _cosine(z: Any) -> Any:
    return (mpmath.cos(mpmath.sqrt(z)) - 1 + z / 2) / z**2 if z > _TINY else mpf(1) / 24 - z / 720


def _exponential(relative_to: Function) -> Fit:
    bound = mpmath.log(2) / 2 * mpf("1.001")
    return Fit(
        lambda r: (mpmath.expm1(r) - r) / r**2 if abs(r) > _TINY else mpf(1) / 2 + r / 6,
        lambda r: abs(r**2 / relative_to(r)) if abs(r) > _TINY else _TINY,
        -bound,
        bound,
    )


def _exponential_of_two() -> Fit:
    # By what tanh makes of the error, which is greatest at 0.6.
    bound, share = mpf("0.501"), (1 - mpmath.tanh(mpf("0.6")) ** 2) / 2
    return Fit(
        lambda t: (mpf(2) ** t - 1) / t if abs(t) > _TINY else mpmath.log(2),
        lambda t: share * abs(t) / mpf(2) ** t + _TINY,
        -bound,
        bound,
    )


def _artanh(z: Any, terms: int) -> Any:
    """What is left of log((1 + s) / (1 - s)) / s after some terms of its series, divided by the next power of z."""
    if z < mpf("1e-3"):
        return 2 * sum(z**k / (2 * (k + terms) + 1) for k in range(16))
    s = mpmath.sqrt(z)
    known = sum(2 * z**k / (2 * k + 1) for k in range(terms))
    return (2 * mpmath.atanh(s) / s - known) / z**terms


def fits() -> dict[str, Fit]:
    """What each polynomial of the coefficients' names approximates."""
    root, angle = mpmath.sqrt(2), (mpmath.pi / 4 * mpf("1.002")) ** 2
    wider_angle = (mpmath.pi / 4 * mpf("1.009")) ** 2
    sine, wider_sine = (_odd(mpmath.sin, mpf(-1) / 6, a) for a in (angle, wider_angle))
    cosine = Fit(_cosine, lambda z: z**2 / mpmath.cos(mpmath.sqrt(z)) + _TINY**2, mpf(0), angle)
    wider_cosine = cosine._replace(high=wider_angle)
    log = Fit(
        lambda f: (mpmath.log1p(f) - f + f**2 / 2) / f**3 if abs(f) > mpf("1e-8") else mpf(1) / 3 - f / 4,
        lambda f: f**2 + _TINY**2,
        1 / root - 1 - mpf("1e-6"),
        root - 1 + mpf("1e-6"),
    )
    odd_log = Fit(lambda z: _artanh(z, 1), lambda z: z + _TINY**2, mpf("1e-10"), mpf("0.02945"))
    pow_log = Fit(lambda z: _artanh(z, 2), lambda z: z**2 / 2 + _TINY**3, mpf("1e-9"), mpf("0.02945"))
    arcsine, arctangent = _odd(mpmath.asin, mpf(1) / 6, mpf("0.2501")), _odd(mpmath.atan, mpf(-1) / 3, mpf("0.1717"))
    erf = Fit(lambda z: _erf_quotient(z) - 1, lambda z: 1 / _erf_quotient(z), mpf(0), mpf(1))
    # 1 - p^4 is the result, and the error of p^4 that of erf.
    erfc_root = Fit(
        lambda x: mpmath.erfc(x) ** mpf("0.25"), lambda x: 4 * mpmath.erfc(x) ** mpf("0.75"), mpf("1.1"), mpf("4.05")
    )
    log_erfc = Fit(
        lambda x: mpmath.log(mpmath.erfc(x)), lambda x: mpmath.erfc(x) / mpmath.erf(x), mpf("0.998"), mpf("5.93")
    )
    return {
        "EXP_SINGLE": _exponential(mpmath.exp),
        "EXP_DOUBLE": _exponential(mpmath.expm1),
        "EXP_WIDE": _exponential(mpmath.exp),
        "EXP2_SINGLE": _exponential_of_two(),
        "EXPM1_SINGLE": _exponential(mpmath.expm1),
        "LOG_SINGLE": log,
        "LOG_DOUBLE": odd_log,
        "LOG_WIDE": odd_log,
        "POW_LOG": pow_log,
        "TANH_SINGLE": _odd(mpmath.tanh, mpf(-1) / 3, mpf("0.36")),
        "SIN_SINGLE": wider_sine,
        "COS_SINGLE": wider_cosine,
        "SIN_WIDE": wider_sine,
        "COS_WIDE": wider_cosine,
        "SIN_DOUBLE": sine,
        "COS_DOUBLE": cosine,
        "ASIN_WIDE": arcsine,
        "ASIN_DOUBLE": arcsine,
        "ATAN_WIDE": arctangent,
        "ATAN_DOUBLE": arctangent,
        "ERF_SINGLE": erf._replace(low=mpf("1e-5"), high=mpf("1.1") ** 2),
        "ERF_DOUBLE": erf,
        "ERFC_ROOT_SINGLE": erfc_root,
        "LOG_ERFC_DOUBLE": log_erfc,
        **_half_precision(log.low, log.high),
    }


def _half_precision(least: Any, most: Any) -> dict[str, Fit]:
    """The polynomials of results that are rounded to F16 or BF16; logarithms are those of 1 + f, least <= f <= most."""
    erf = _without_constant(
        Fit(_erf_quotient, lambda z: 1 / _erf_quotient(z), mpf("1e-5"), mpf("2.63") ** 2),
        mpf(float(np.float32(2 / np.sqrt(np.pi)))),
    )
    log = Fit(_log_quotient, lambda f: 1 / _log_quotient(f), least, most)
    tanh = Fit(_tanh_divisor, lambda z: 1 / _tanh_divisor(z), mpf(0), mpf("4.53") ** 2)
    return {
        "ERF_F16": erf,
        "ERF_BF16": erf._replace(high=mpf("2.2") ** 2),
        "EXP2_F16": Fit(lambda t: mpf(2) ** t, lambda t: mpf(2) ** -t, mpf("-0.501"), mpf("0.501")),
        "LOG_F16": log,
        "LOG_BF16": log,
        "TANH_F16": tanh,
        "TANH_BF16": tanh._replace(high=mpf("3.5") ** 2),
    }


def _erf_quotient(z: Any) -> Any:
    x = mpmath.sqrt(z)
    return mpmath.erf(x) / x if z > _TINY else 2 / mpmath.sqrt(mpmath.pi) * (1 - z / 3)


def _log_quotient(f: Any) -> Any:
    return mpmath.log1p(f) / f if abs(f) > _TINY else 1 - f / 2


def _tanh_divisor(z: Any) -> Any:
    x = mpmath.sqrt(z)
    return x / mpmath.tanh(x) if z > _TINY else 1 + z / 3


_TINY = mpf("1e-12")


def bits(fit: Fit, polynomial: Sequence[float], steps: int = 1000) -> float:
    """How many bits of the result a polynomial leaves right, by the error at so many points."""
    at = (fit.low + (fit.high - fit.low) * (i + mpf("0.5")) / steps for i in range(steps))
    exact = [mpf(c) for c in polynomial]
    return float(-mpmath.log(max(abs(error(fit, exact, x)) for x in at), 2))


_ROUNDED_IN_TURN = ("ERF_SINGLE", "ERFC_ROOT_SINGLE")


def computed(name: str, fit: Fit, degree: int) -> list[float]:
    """The coefficients of a polynomial, as their type has them."""
    kind = np.float32 if name.endswith(("SINGLE", "F16")) else np.float64
    if name in _ROUNDED_IN_TURN:
        return rounded(fit, degree, kind)
    return [float(kind(float(c))) for c in remez(fit, degree)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print for each polynomial how good it is, and how good a new one would be; with --write also the new one."""
    parser = command("fuzz.minimax", __doc__)
    parser.add_argument("names", nargs="*", help="polynomials; all if none is given")
    parser.add_argument("--write", action="store_true", help="print the coefficients")
    options = parser.parse_args(arguments)
    names = names_of(parser, options.names, fits(), "polynomial")
    with mpmath.workdps(50):
        for name, fit in fits().items():
            if name not in names:
                continue
            present: tuple[float, ...] = getattr(coefficients, name)
            new = computed(name, fit, len(present) - 1)
            print(f"{name:16} {bits(fit, present):6.1f} bits, a new one {bits(fit, new):6.1f}", flush=True)
            if options.write:
                print("   ", ", ".join(map(repr, new)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
