"""``python -m fuzz.interrupts``: Ctrl-C at any moment of compiling and running leaves a process that goes on rightly.

Each generated module is compiled and run; then again, several times, with a KeyboardInterrupt at a moment drawn at
random, behind which all garbage is collected; then once more, undisturbed, which must give the same bits. A process
that dies is the worst that is found; ``--number`` says of which module.

    python -m fuzz.interrupts --seed 7 --seconds 60

With ``--jax`` programs of JAX are compiled and called instead, with a callback and without, where XLAKIT_AS or
JAX_PLATFORMS says that JAX runs on xlakit; an interruption that becomes an error of JAX is a fault as well.
"""

from __future__ import annotations

import gc
import signal
import sys
import time
from argparse import Namespace
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType

import numpy as np

from fuzz.programs.composed.modules import module as generated
from fuzz.programs.draft import Program
from fuzz.support import numbered
from xlakit import compile as compile_program
from xlakit.cpu.debugging.verified import difference
from xlakit.errors import XlakitError
from xlakit.ir.instruction import HloModule
from xlakit.ir.operation import Array
from xlakit.tools.inputs import flatten

_INTERRUPTIONS = 4


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


@contextmanager
def _interrupted_after(seconds: float) -> Generator[None]:
    """A context whose body may be ended by a KeyboardInterrupt after a time, which does not leave the context."""
    before = signal.signal(signal.SIGALRM, _interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except KeyboardInterrupt:
        pass  # It is what was asked for.
    finally:
        signal.signal(signal.SIGALRM, before)


def _run(program: Program) -> dict[str, Array]:
    module = HloModule.from_text(program.text)
    return flatten(compile_program(module, backend="cpu", cache=False)(*program.arguments[0]))


def judge(program: Program, rng: np.random.Generator) -> str:
    """Describe the fault of a program that is compiled and run behind interruptions; "" if there is none."""
    begin = time.perf_counter()
    expected = _run(program)
    takes = time.perf_counter() - begin
    for _ in range(_INTERRUPTIONS):
        with _interrupted_after(max(1e-4, takes * rng.random())):
            _run(program)
        gc.collect()
    try:
        found = _run(program)
    except XlakitError as error:
        return f"after an interruption: {type(error).__name__}: {error}"
    faults = ((name, difference(np.asarray(found[name]), np.asarray(value))) for name, value in expected.items())
    return next((f"result {name} is another one after an interruption: {fault}" for name, fault in faults if fault), "")


def judge_jax(rng: np.random.Generator) -> str:
    """Describe the fault of programs of JAX that are compiled and called behind interruptions; "" if there is none."""
    import jax

    x = rng.standard_normal(int(rng.integers(1, 1 << 18))).astype(np.float32)
    factor, calls = float(rng.integers(2, 9)), int(rng.integers(1, 4))
    has_callback = bool(rng.integers(2))

    def function(x: jax.Array) -> jax.Array:
        if has_callback:
            x = jax.pure_callback(_slowly, jax.ShapeDtypeStruct(x.shape, x.dtype), x)
        return jax.lax.fori_loop(0, 30, lambda _, y: jax.numpy.sin(y) * factor, x)

    def run() -> Array:
        program, y = jax.jit(function).lower(x).compile(), x
        for _ in range(calls):
            y = program(y)
        return np.asarray(y)

    begin = time.perf_counter()
    expected = run()
    takes = time.perf_counter() - begin
    for _ in range(_INTERRUPTIONS):
        try:
            with _interrupted_after(max(1e-4, takes * rng.random())):
                run()
        except RuntimeError as error:
            return f"an interruption became {type(error).__name__}: {error}"
        gc.collect()
    fault = difference(run(), expected)
    return f"the result is another one after an interruption: {fault}" if fault else ""


def _slowly(x: Array) -> Array:
    for _ in range(50):
        time.sleep(1e-3)
    return np.asarray(x)


def _fault_of(options: Namespace, number: int) -> str:
    rng = np.random.default_rng([options.seed, number])
    if options.jax:
        return judge_jax(rng)
    program = generated(options.seed, number)
    numbered.show(options, program.text)
    return judge(program, rng)


main = numbered.net("fuzz.interrupts", __doc__, 500, _fault_of, ("--jax", "programs of JAX, on xlakit"))

if __name__ == "__main__":
    sys.exit(main())
