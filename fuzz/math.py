"""``python -m fuzz.math``: the errors of the elementary functions of the compiler, measured on many points.

NumPy in a wider type finds the points with the greatest errors; what is reported is what mpmath says of these, and of
a sample of all.
"""

from __future__ import annotations

import ctypes
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import mpmath
import numpy as np
from scipy import special

from fuzz.support.numbered import command, names_of
from xlakit.cpu.llvm import F32, F64, I64, PTR, VOID, Module, Type, Value, engine, vector
from xlakit.cpu.llvm.library import Library
from xlakit.cpu.math import FUNCTION_NAMES, ULP_BOUNDS, math_function
from xlakit.target import vector_bytes

Array = np.ndarray[Any, np.dtype[Any]]

_DTYPES = {F32: np.dtype(np.float32), F64: np.dtype(np.float64)}
_WIDER = {F32: np.dtype(np.float64), F64: np.dtype(np.longdouble)}
BINARY = ("atan2", "pow")
_numbers = count()


# -- the functions to prove ----------------------------------------------------------------------


def loop_over(name: str, kind: Type, lanes: int) -> Module:
    """A function ``run`` that applies an elementary one to arrays: to so many elements at once, and the rest singly."""
    arity = 2 if name in BINARY else 1
    module = Module("math")
    run = module.function("run", VOID, [PTR] * (arity + 1) + [I64], external=True)
    *sources, target, length = run.parameters
    begin: Value | int = 0
    for width, end in ((lanes, length & -lanes), (1, length)):
        type = vector(kind, width)
        with run.loop(begin, end, width, independent=True) as loop:
            arguments = [run.load(type, run.at(source, kind, loop.index), align=kind.bytes) for source in sources]
            run.store(math_function(run, name, *arguments), run.at(target, kind, loop.index), align=kind.bytes)
        begin = end
    run.ret()
    return module


class Compiled:
    """A loop over one function, as machine code; called with arrays of equal length, gives an array."""

    def __init__(self, name: str, kind: Type) -> None:
        arity = 2 if name in BINARY else 1
        with engine.optimized_module(loop_over(name, kind, vector_bytes() // kind.bytes).text()) as optimized:
            data = engine.emit_object(optimized)
        self.dtype = _DTYPES[kind]
        self._library = Library(f"math.{next(_numbers)}", data, ["run"], {})
        types = [ctypes.c_void_p] * (arity + 1) + [ctypes.c_int64]
        self._run = ctypes.CFUNCTYPE(None, *types)(self._library.address("run"))

    def __call__(self, *arguments: Array, out: Array | None = None) -> Array:
        given = [np.ascontiguousarray(a, self.dtype) for a in arguments]
        result = np.empty_like(given[0]) if out is None else out
        self._run(*(a.ctypes.data for a in given), result.ctypes.data, result.size)
        return result

    def nanoseconds(self, *arguments: Array) -> float:
        """The time of one element, at best."""
        out, best = np.empty_like(arguments[0]), np.inf
        for _ in range(40):
            start = time.perf_counter()
            for _ in range(10):
                self(*arguments, out=out)
            best = min(best, time.perf_counter() - start)
        return float(best / 10 / out.size * 1e9)


# -- what they should give -----------------------------------------------------------------------


def _logistic(x: Array) -> Array:
    e = np.exp(-np.abs(x))
    return np.where(x < 0, e, 1) / (1 + e)


def _erf(x: Array) -> Array:
    return special.erf(x.astype(np.float64)).astype(x.dtype)


_NUMPY: dict[str, Callable[..., Array]] = {
    "acos": np.arccos,
    "acosh": np.arccosh,
    "asin": np.arcsin,
    "asinh": np.arcsinh,
    "atan": np.arctan,
    "atan2": np.arctan2,
    "atanh": np.arctanh,
    "erf": _erf,
    "logistic": _logistic,
    "pow": np.power,
    "rsqrt": lambda x: 1 / np.sqrt(x),
}


def _cube_root(x: Any) -> Any:
    return mpmath.sign(x) * mpmath.cbrt(abs(x))


_MPMATH: dict[str, Callable[..., Any]] = {
    "cbrt": _cube_root,
    "logistic": lambda x: 1 / (1 + mpmath.exp(-x)),
    "pow": mpmath.power,
    "rsqrt": lambda x: 1 / mpmath.sqrt(x),
}


def roughly(name: str, kind: Type, *arguments: Array) -> Array:
    """The function by NumPy in a wider type."""
    function = _NUMPY.get(name) or getattr(np, name)
    with np.errstate(all="ignore"):
        return np.asarray(function(*(a.astype(_WIDER[kind]) for a in arguments)), _WIDER[kind])


def exactly(name: str, *arguments: float) -> Any:
    """The function by mpmath, with bits enough for the angle that is left of a great argument."""
    # 1 + x and the like must keep what is far below 1; angles, what is left of 2^1024.
    with mpmath.workprec(1400 if name in ("sin", "cos", "tan") or min(map(abs, arguments)) < 1e-20 else 250):
        return (_MPMATH.get(name) or getattr(mpmath, name))(*(mpmath.mpf(float(a)) for a in arguments))


# -- errors --------------------------------------------------------------------------------------


def _unit(exact: Array, kind: Type) -> Array:
    """The unit of the last place of numbers, as wide floats."""
    info = np.finfo(_DTYPES[kind])
    bounded = np.minimum(np.abs(exact), _WIDER[kind].type(info.max))
    exponent = np.frexp(bounded)[1] - 1
    return np.ldexp(_WIDER[kind].type(1), np.maximum(exponent, info.minexp) - info.nmant)


def rough_errors(name: str, kind: Type, results: Array, *arguments: Array) -> Array:
    """Errors by NumPy's measure; infinite where one is NaN and the other not, or zeros have other signs."""
    exact = roughly(name, kind, *arguments)
    # Infinity stands for the first power of two that is not a number any more.
    beyond = np.ldexp(_WIDER[kind].type(1), int(np.finfo(_DTYPES[kind]).maxexp))
    with np.errstate(all="ignore"):
        wide, nearest = results.astype(_WIDER[kind]), exact.astype(_DTYPES[kind])
        errors = np.abs(np.clip(wide, -beyond, beyond) - np.clip(exact, -beyond, beyond)) / _unit(exact, kind)
    both_nan = np.isnan(wide) & np.isnan(exact)
    other_sign = (wide == 0) & (nearest == 0) & (np.signbit(wide) != np.signbit(nearest))
    wrong = (np.isnan(wide) != np.isnan(exact)) | other_sign
    return np.where(both_nan, 0, np.where(wrong, np.inf, errors))


def exact_error(name: str, kind: Type, result: float, *arguments: float) -> float:
    """The error of one finite result by mpmath."""
    exact = exactly(name, *arguments)
    unit = _unit(np.asarray(float(exact) if kind is F64 else np.float64(float(exact)), _WIDER[kind]), kind)
    limit = mpmath.mpf(2) ** int(np.finfo(_DTYPES[kind]).maxexp)
    value = mpmath.mpf(result) if np.isfinite(result) else mpmath.sign(result) * limit
    exact = max(-limit, min(limit, exact))
    with mpmath.workprec(300):
        return float(abs(value - exact) / mpmath.mpf(float(unit)))


@dataclass(frozen=True, slots=True)
class Worst:
    """The greatest error that was found, and the arguments that have it."""

    error: float
    arguments: tuple[float, ...]


def measure(name: str, kind: Type, compiled: Compiled, points: int, checked: int, seed: int = 0) -> Worst:
    """The worst of so many points; mpmath looks at ``checked`` of them for each region of arguments."""
    worst = Worst(0.0, ())
    rng = np.random.default_rng(seed)
    for arguments in regions(name, kind, points, rng):
        results = compiled(*arguments)
        errors = rough_errors(name, kind, results, *arguments)
        finite = np.all([np.isfinite(a) for a in arguments], axis=0) & (errors > 0) & np.isfinite(errors)
        picked = np.argsort(np.where(finite, errors, -1))[-checked:]
        picked = np.union1d(picked, rng.choice(errors.size, min(checked, errors.size), replace=False))
        wrong = np.flatnonzero(np.isinf(errors))[:1]
        for i in (*wrong, *picked[finite[picked]]):
            at = tuple(float(a[i]) for a in arguments)
            error = np.inf if np.isinf(errors[i]) else exact_error(name, kind, float(results[i]), *at)
            if error > worst.error:
                worst = Worst(float(error), at)
    return worst


# -- points --------------------------------------------------------------------------------------


def edges(kind: Type) -> Array:
    """Numbers at the ends of the ranges of a type, and others that functions treat in their own ways."""
    info = np.finfo(_DTYPES[kind])
    positive = [0, 1, 2, 3, 0.5, 1.5, info.max, info.tiny, info.smallest_subnormal, 2.0**24, 2.0**24 + 1, 2.0**53]
    positive += [2.0**53 - 1, 1 - info.epsneg, 1 + info.eps, np.inf, np.nan]
    return np.array([s * p for p in positive for s in (1, -1)], _DTYPES[kind])


def _random_bits(kind: Type, points: int, rng: np.random.Generator) -> Array:
    word = np.dtype(f"u{kind.bytes}")
    return rng.integers(0, np.iinfo(word).max, points, dtype=word, endpoint=True).view(_DTYPES[kind])


def regions(name: str, kind: Type, points: int, rng: np.random.Generator) -> Sequence[tuple[Array, ...]]:
    """Arguments for a function: about so many points, spread over all that differs in it."""
    if name in BINARY:
        return _pairs(name, kind, points, rng)
    share, dtype = points // 8, _DTYPES[kind]
    numbers = [edges(kind), _random_bits(kind, 2 * share, rng)]
    numbers += [rng.uniform(-size, size, share) for size in (1, 12, 120 if kind is F32 else 800)]
    # Near 0, 1 and -1, where results vanish.
    tiny = rng.choice([-1, 1], share) * 10.0 ** rng.uniform(-9 if kind is F32 else -17, 0, share)
    numbers += [tiny, 1 + tiny, tiny - 1]
    # Near multiples of pi/2.
    half_pi = (np.longdouble(np.pi) + np.longdouble(1.2246467991473532e-16)) / 2
    numbers.append(np.rint(2 ** rng.uniform(0, 60, share)) * half_pi)
    return [(np.asarray(x).astype(dtype),) for x in numbers]


def _pairs(name: str, kind: Type, points: int, rng: np.random.Generator) -> Sequence[tuple[Array, Array]]:
    share, dtype = points // 6, _DTYPES[kind]
    first, second = np.meshgrid(edges(kind), edges(kind))
    pairs = [(first.ravel(), second.ravel())]
    pairs.append((_random_bits(kind, share, rng), _random_bits(kind, share, rng)))
    pairs.append((rng.uniform(-20, 20, share), rng.integers(-30, 30, share)))
    pairs.append((rng.uniform(0, 10, share), rng.uniform(-5, 5, share)))
    if name == "pow":
        # Results over the whole range and a little beyond, of bases of all sizes and of those near 1.
        limit = int(np.finfo(dtype).maxexp) * 1.1
        near = 1 + rng.standard_normal(share) * 10.0 ** rng.uniform(-7 if kind is F32 else -16, -1, share)
        for base in (np.abs(_random_bits(kind, share, rng)), near.astype(dtype)):
            with np.errstate(all="ignore"):
                pairs.append((base, rng.uniform(-limit, limit, share) / np.log2(base.astype(np.longdouble))))
    return [(np.asarray(a).astype(dtype), np.asarray(b).astype(dtype)) for a, b in pairs]


# -- the command ---------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; gives 1 where an error is beyond its bound."""
    parser = command("fuzz.math", __doc__)
    parser.add_argument("names", nargs="*", help="functions; all if none is given")
    parser.add_argument("--points", type=int, default=1 << 21, help="points for each function and type")
    parser.add_argument("--checked", type=int, default=100, help="points of each region that mpmath looks at")
    options = parser.parse_args(arguments)
    names = names_of(parser, options.names, FUNCTION_NAMES, "function")
    failed = False
    print(f"{'function':10} {'type':7} {'worst':>7} {'bound':>6} {'ns':>6}  at")
    for name in names:
        for kind in (F32, F64):
            compiled = Compiled(name, kind)
            worst = measure(name, kind, compiled, options.points, options.checked)
            bound = ULP_BOUNDS[name, kind]
            ordinary = [np.linspace(0.01, 0.99, 16384, dtype=_DTYPES[kind])] * (2 if name in BINARY else 1)
            failed |= worst.error > bound
            mark = "  BEYOND THE BOUND" if worst.error > bound else ""
            place = ", ".join(f"{a!r}" for a in worst.arguments)
            took = compiled.nanoseconds(*ordinary)
            print(f"{name:10} {kind.name:7} {worst.error:7.3f} {bound:6.2f} {took:6.2f}  {place}{mark}", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
