"""``python -m benchmarks.factorizations``: how exact and how fast factorizations of matrices are, beside jaxlib's.

Errors are those of LAPACK's own tests, with the 1-norm and in units of n epsilon: of what is factored the residual
|A - product| / |A|, and of orthogonal factors |I - Q^H Q|. Products are calculated in a longer type, where that is not
too slow. The two libraries take turns in one process; times are those of each one's fastest calls. jaxlib's calls wait
for the threads of LAPACK's library, which takes long where others want the processors: ``--threads 1`` leaves them out.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

from benchmarks.machine import describe, limit_threads

SIZES = (16, 32, 64, 128, 256, 512, 1024)
TYPES = {"f32": "float32", "f64": "float64", "c64": "complex64", "c128": "complex128"}
Clock: TypeAlias = Callable[[], float]
# Calls are timed together so that they take at least this long, in seconds.
_LEAST_SECONDS = 5e-4
# The largest error allowed, in units of n epsilon.
LARGEST_ERROR = 10.0
NAMES = ("cholesky", "lu", "qr", "eigh", "svd")


class Measured(NamedTuple):
    """A factorization of one size: errors in n epsilon, and the fastest calls in seconds."""

    residual: float
    orthogonality: float
    peer_residual: float
    seconds: float
    peer_seconds: float


def _matrix(name: str, dtype: str, size: int) -> Any:
    import numpy as np

    rng = np.random.default_rng(size)
    a = rng.normal(size=(size, size))
    if dtype.startswith("complex"):
        a = a + 1j * rng.normal(size=(size, size))
    if name == "eigh":
        a = (a + a.conj().T) / 2
    if name == "cholesky":
        a = a @ a.conj().T / size + np.eye(size)
    return a.astype(dtype)


def _ours(name: str, a: Any) -> Callable[[], Sequence[Any]]:
    """A call of the library's function in a compiled program."""
    import xlakit as xla
    from xlakit import lib

    functions = {
        "cholesky": lambda x: [xla.cholesky(x, True)],
        "lu": lib.lu,
        "qr": lib.qr,
        "eigh": lib.eigh,
        "svd": lib.svd,
    }
    builder = xla.XlaBuilder(name)
    operand = xla.parameter(builder, 0, xla.make_shape(a.dtype, a.shape), "a")
    program = xla.compile(builder.build(xla.tuple_(builder, list(functions[name](operand)))))
    return lambda: program(a)


def _theirs(name: str, a: Any) -> Callable[[], Sequence[Any]]:
    """A call of JAX's function of the same name on jaxlib's CPU."""
    import jax
    import jax.numpy as jnp

    def svd(x: Any) -> Any:
        u, d, vh = jnp.linalg.svd(x)
        return u, d, vh.conj().T

    functions = {
        "cholesky": lambda x: [jax.lax.linalg.cholesky(x, symmetrize_input=False)],
        "lu": jax.lax.linalg.lu,
        "qr": jnp.linalg.qr,
        "eigh": lambda x: jax.lax.linalg.eigh(x, symmetrize_input=False),
        "svd": svd,
    }
    program = jax.jit(functions[name])
    given = jax.device_put(a, jax.devices("cpu")[0])
    return lambda: jax.block_until_ready(program(given))


def _errors(name: str, a: Any, results: Sequence[Any]) -> tuple[float, float]:
    """Residual and distance from orthogonality, in n epsilon; 0 where there is no orthogonal factor."""
    import numpy as np

    wide = np.clongdouble if np.iscomplexobj(a) else np.longdouble
    # Long products are slow, and F64 is long for F32.
    if a.real.dtype == np.float32:
        wide = np.complex128 if np.iscomplexobj(a) else np.float64
    elif len(a) > 256:
        wide = a.dtype
    x = a.astype(wide)
    parts = [np.asarray(r) for r in results]
    exact = [p.astype(wide) if p.dtype.kind in "fc" else p for p in parts]
    orthogonal: list[Any] = []
    if name == "cholesky":
        lower = np.tril(exact[0])
        rest = x - lower @ lower.conj().T
    elif name == "lu":
        lower = np.tril(exact[0], -1) + np.eye(len(a))
        rest = x[parts[2]] - lower @ np.triu(exact[0])
    elif name == "qr":
        rest, orthogonal = x - exact[0] @ exact[1], [exact[0]]
    elif name == "eigh":
        rest, orthogonal = x @ exact[0] - exact[0] * exact[1], [exact[0]]
    else:
        rest, orthogonal = x - (exact[0] * exact[1]) @ exact[2].conj().T, [exact[0], exact[2]]
    unit = len(a) * float(np.finfo(a.dtype).eps)
    residual = _norm(rest) / (_norm(x) * unit)
    return residual, max((_norm(np.eye(len(a)) - q.conj().T @ q) / unit for q in orthogonal), default=0.0)


def _norm(a: Any) -> float:
    return float(abs(a).sum(0).max())


def measure(name: str, kind: str, size: int, seconds: float, clock: Clock = time.perf_counter) -> Measured:
    """The errors of both libraries, and their fastest calls while they take turns for ``seconds``."""
    a = _matrix(name, TYPES[kind], size)
    ours, theirs = _ours(name, a), _theirs(name, a)
    residual, orthogonality = _errors(name, a, ours())
    peer_residual, _ = _errors(name, a, theirs())
    times: list[tuple[float, float]] = []
    end = time.perf_counter() + seconds
    calls = max(1, int(_LEAST_SECONDS / _time(ours, time.perf_counter, 1)))
    while len(times) < 3 or time.perf_counter() < end:
        times.append((_time(ours, clock, calls), _time(theirs, clock, calls)))
    fastest = [min(column) for column in zip(*times, strict=True)]
    return Measured(residual, orthogonality, peer_residual, fastest[0], fastest[1])


def _time(work: Callable[[], Any], clock: Clock, calls: int) -> float:
    """The mean seconds of a call, over ``calls`` calls."""
    start = clock()
    for _ in range(calls):
        work()
    return (clock() - start) / calls


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table in Markdown: worst errors, times and their ratios to jaxlib's; 1 if an error is too large."""
    parser = argparse.ArgumentParser(
        allow_abbrev=False, prog="python -m benchmarks.factorizations", description=__doc__
    )
    parser.add_argument("names", nargs="*", choices=(*NAMES, []), help="factorizations; all if none is given")
    parser.add_argument("--types", default="f32,f64", help="element types, with commas: f32, f64, c64, c128")
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)), help="numbers of rows, with commas")
    parser.add_argument("--seconds", type=float, default=1.0, help="how long the calls of one size take at least")
    parser.add_argument("--threads", type=int, help="how many processors both may use")
    parser.add_argument(
        "--processor-seconds", action="store_true", help="time what processors do, on a machine that others use, too"
    )
    options = parser.parse_args(arguments)
    clock = time.process_time if options.processor_seconds else time.perf_counter
    limit_threads(options.threads)
    import jax

    machine = describe(measure=False)
    print(f"{machine.processor}, {machine.threads} threads, load {machine.load:.1f}\n")
    with jax.enable_x64(True):
        return int(_has_fault(options, clock))


def _has_fault(options: argparse.Namespace, clock: Clock) -> bool:
    """Print the table; gives whether an error is too large."""
    from xlakit.data.text_table import duration

    sizes = [int(size) for size in options.sizes.split(",")]
    print("| | type | residual | orthogonality | jaxlib's residual |" + "".join(f" n = {n} |" for n in sizes))
    print("|---" * (5 + len(sizes)) + "|")
    fault = False
    for name in options.names or NAMES:
        for kind in options.types.split(","):
            found = [measure(name, kind, size, options.seconds, clock) for size in sizes]
            worst = [max(column) for column in list(zip(*found, strict=True))[:3]]
            fault |= not max(worst[:2]) <= LARGEST_ERROR
            errors = " | ".join(f"{e:.2f}" for e in worst)
            times = " | ".join(f"{duration(m.seconds * 1e9)}, {m.seconds / m.peer_seconds:.2f}" for m in found)
            print(f"| `{name}` | {kind} | {errors} | {times} |", flush=True)
    return fault


if __name__ == "__main__":
    sys.exit(main())
