"""``python -m fuzz.special_functions``: the errors of ``xlakit.lib.special``, compared with mpmath, as a table.

Points are drawn over the domain of each function, many of them where it changes its method or its result vanishes.
The error is in units in the last place of the result's type; of numbers below the smallest normal one, in its units.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import ml_dtypes
import mpmath
import numpy as np

import xlakit as xla
from fuzz.support.numbered import command, names_of
from xlakit.lib import special

Array = np.ndarray[Any, np.dtype[Any]]
Rng = np.random.Generator
TYPES: dict[str, Any] = {"f64": np.float64, "f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}
# mpmath keeps digits after the point for zeta, which is small: below 1e-60 for large q.
DIGITS = {"zeta": 90}
DIGITS_OF_OTHERS = 50
# Fewer points are repeated up to a multiple of this number, so that few programs are compiled of a function.
LENGTH = 64


class Function(NamedTuple):
    """A function of the library: what mpmath says, the domain in words, and points of it."""

    exact: Callable[..., Any]
    domain: str
    points: Callable[[Rng, int], tuple[Array, ...]]


def _spread(rng: Rng, n: int, low: float, high: float) -> Array:
    """Numbers of all sizes between two powers of ten."""
    return 10.0 ** rng.uniform(low, high, n)


def _gamma_points(rng: Rng, n: int) -> tuple[Array, ...]:
    near = np.concatenate([1 + _spread(rng, n // 8, -8, -1), 2 - _spread(rng, n // 8, -8, -1)])
    return (np.concatenate([_spread(rng, n // 4, -30, 30), rng.uniform(0, 12, n // 2), near]),)


def _error_points(rng: Rng, n: int) -> tuple[Array, ...]:
    return (np.concatenate([rng.uniform(-6, 27, n // 2), rng.uniform(-1.5, 1.5, n // 2)]),)


def _inverse_points(rng: Rng, n: int) -> tuple[Array, ...]:
    return (
        np.concatenate([rng.uniform(-1, 1, n // 2), 1 - _spread(rng, n // 4, -15, 0), _spread(rng, n // 4, -30, 0)]),
    )


def _bessel_points(rng: Rng, n: int) -> tuple[Array, ...]:
    return (np.concatenate([rng.uniform(-12, 12, n // 2), _spread(rng, n // 2, -8, 4)]),)


def _gamma_pairs(rng: Rng, n: int) -> tuple[Array, ...]:
    a = _spread(rng, n, -1, 3)
    return a, np.abs(a + rng.normal(size=n) * np.sqrt(a) * 2) + 1e-3


def _beta_triples(rng: Rng, n: int) -> tuple[Array, ...]:
    a, b = _spread(rng, n, -1, 2), _spread(rng, n, -1, 2)
    return a, b, np.clip(a / (a + b) + rng.normal(size=n) * np.sqrt(a * b / (a + b + 1)) / (a + b), 0.01, 0.99)


def _zeta_points(rng: Rng, n: int) -> tuple[Array, ...]:
    return 1 + _spread(rng, n, -2, 1.5), _spread(rng, n, -1, 2)


def _polygamma_points(rng: Rng, n: int) -> tuple[Array, ...]:
    return rng.integers(0, 9, n).astype(float), _spread(rng, n, -0.5, 2)


def _lower(a: Any, x: Any) -> Any:
    return mpmath.gammainc(a, 0, x, regularized=True)


def _grad_a(a: Any, x: Any) -> Any:
    return mpmath.diff(lambda a: _lower(a, x), a)


def _sample_grad(a: Any, x: Any) -> Any:
    return -_grad_a(a, x) / (x ** (a - 1) * mpmath.exp(-x) / mpmath.gamma(a))


def _scaled_bessel(order: int) -> Callable[[Any], Any]:
    return lambda x: mpmath.exp(-abs(x)) * mpmath.besseli(order, x)


FUNCTIONS: dict[str, Function] = {
    "lgamma": Function(lambda x: mpmath.loggamma(x).real, "x > 0", _gamma_points),
    "digamma": Function(mpmath.digamma, "x > 0", _gamma_points),
    "erfc": Function(mpmath.erfc, "-6 to 27", _error_points),
    "erf_inv": Function(mpmath.erfinv, "-1 to 1", _inverse_points),
    "bessel_i0e": Function(_scaled_bessel(0), "to 10000", _bessel_points),
    "bessel_i1e": Function(_scaled_bessel(1), "to 10000", _bessel_points),
    "igamma": Function(_lower, "a to 1000, x near a", _gamma_pairs),
    "igammac": Function(
        lambda a, x: mpmath.gammainc(a, x, mpmath.inf, regularized=True), "a to 1000, x near a", _gamma_pairs
    ),
    "igamma_grad_a": Function(_grad_a, "a to 1000, x near a", _gamma_pairs),
    "random_gamma_grad": Function(_sample_grad, "a to 1000, x near a", _gamma_pairs),
    "regularized_incomplete_beta": Function(
        lambda a, b, x: mpmath.betainc(a, b, 0, x, regularized=True), "a, b to 100, x near the mean", _beta_triples
    ),
    "zeta": Function(mpmath.zeta, "x to 30, q to 100", _zeta_points),
    "polygamma": Function(lambda n, x: mpmath.polygamma(int(n), x), "n to 8, x to 100", _polygamma_points),
}
# mpmath takes long for these.
SLOW = ("igamma_grad_a", "random_gamma_grad", "regularized_incomplete_beta")


class Errors(NamedTuple):
    """Errors in units in the last place, and where the greatest is."""

    median: float
    most: float  # 99 of 100 are at most this
    worst: float
    arguments: tuple[float, ...]


@cache
def program(name: str, shapes: tuple[xla.Shape, ...], backend: str = "cpu") -> xla.Executable:
    """The function of arrays of such shapes: some take a second to write and to compile."""
    builder = xla.XlaBuilder(name)
    parameters = [xla.parameter(builder, i, shape, f"p{i}") for i, shape in enumerate(shapes)]
    return xla.compile(builder.build(getattr(special, name)(*parameters)), backend=backend)


def results_of(name: str, arrays: Sequence[Array], backend: str = "cpu") -> Array:
    """The function's results."""
    count = arrays[0].size
    given = [np.resize(a, -(-count // LENGTH) * LENGTH) for a in arrays]
    shapes = tuple(xla.make_shape(a.dtype, a.shape) for a in given)
    return np.asarray(program(name, shapes, backend)(*given))[:count]


def measure(name: str, kind: str, points: int, seed: int = 0, backend: str = "cpu") -> Errors:
    """The errors at so many points."""
    function, dtype = FUNCTIONS[name], np.dtype(TYPES[kind])
    with np.errstate(over="ignore"):
        arrays = [a.astype(dtype) for a in function.points(np.random.default_rng(seed), points)]
        given = np.all([np.isfinite(a) & (np.abs(a) > 0) for a in arrays], axis=0)
    if name == "erf_inv":
        given &= np.abs(arrays[0]) < 1
    arrays = [a[given] for a in arrays]
    results = results_of(name, arrays, backend)
    errors = np.zeros(results.size)
    with mpmath.workdps(DIGITS.get(name, DIGITS_OF_OTHERS)):
        for i, result in enumerate(results):
            arguments = [mpmath.mpf(float(a[i])) for a in arrays]
            errors[i] = _error(float(result), function.exact(*arguments), dtype)
    worst = int(np.argmax(errors))
    return Errors(
        float(np.median(errors)),
        float(np.quantile(errors, 0.99)),
        float(errors[worst]),
        tuple(float(a[worst]) for a in arrays),
    )


def _error(result: float, exact: Any, dtype: np.dtype[Any]) -> float:
    info = ml_dtypes.finfo(dtype)
    if not np.isfinite(result):
        overflows = np.isinf(result) and abs(exact) >= float(info.max) and (exact > 0) == (result > 0)
        return 0.0 if overflows else np.inf
    exponent = max(mpmath.frexp(exact)[1] - 1 if exact else info.minexp, info.minexp)
    return float(abs(mpmath.mpf(result) - exact) / mpmath.ldexp(1, int(exponent) - int(info.nmant)))


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table in Markdown."""
    parser = command("fuzz.special_functions", __doc__)
    parser.add_argument("names", nargs="*", help="functions; all if none is given")
    parser.add_argument(
        "--points", type=int, default=2000, help="points for each function and type; a tenth where mpmath is slow"
    )
    parser.add_argument("--types", default="f64,f32,f16,bf16", help="element types, with commas")
    options = parser.parse_args(arguments)
    names = names_of(parser, options.names, FUNCTIONS, "function")
    kinds = names_of(parser, options.types.split(","), TYPES, "type")
    print("| function | domain | type | median | 99 of 100 | worst | at |\n|---|---|---|---|---|---|---|")
    for name in names:
        for kind in kinds:
            points = options.points // 10 if name in SLOW else options.points
            found = measure(name, kind, points)
            place = ", ".join(f"{a:.6g}" for a in found.arguments)
            numbers = " | ".join(f"{e:.2f}" for e in found[:3])
            print(f"| `{name}` | {FUNCTIONS[name].domain} | {kind} | {numbers} | {place} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
