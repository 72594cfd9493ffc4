"""``python -m benchmarks.first_second [PROGRAMS]``: what programs take to their first result, beside jaxlib's CPU.

Each program of benchmarks/programs/first.py runs in processes of its own, the platforms in turn: with nothing on disk
(``empty``: the runtime and all that programs share are compiled, too, as once on each machine), with a compile cache
that other programs have filled (``common``: what they share is there), and with one that has this program (``full``;
jaxlib with JAX's own). What is counted is processor time, of all threads, from ``import jax`` being done to the first
result, and how much of it is compiling; the wall clock is shown for it all. Ratios are of medians, to jaxlib's.

``--libraries`` has programs of JAX's libraries instead (fuzz/library_programs/), and beside the first result what a
call takes after it, on the wall clock. ``--python`` names a Python that has the libraries, such as
``python -m fuzz.libraries --install`` makes. Importing them is not counted. xlakit is JAX's ``cpu`` there, which some
of them ask for.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from benchmarks.choice import with_parts

_Runner = Callable[[str, str, Path], dict[str, float]]
_ROOT: Final = Path(__file__).parents[1]
_STATES: Final = ("empty", "common", "full")
_OWN, _XLA = "xlakit", "cpu"
# How often a program of a library is called after its first result, or how long, whatever ends first.
_CALLS: Final = 10
_CALL_SECONDS: Final = 1.0
# Programs of libraries by their names, and the files of fuzz/library_programs/ that have them: of each library those
# that people begin with.
_LIBRARIES: Final = {
    "optax/lbfgs": "optax_optimizers",
    "flax.linen/cnn_training": "flax_linen",
    "flax.linen/transformer_scan_remat": "flax_linen",
    "flax.nnx/training": "flax_nnx",
    "equinox/mlp_training": "equinox_models",
    "numpyro/nuts": "numpyro_inference",
    "blackjax/window_adaptation": "blackjax_sampling",
    "diffrax/adaptive_tsit5": "diffrax_solves",
    "diffrax/neural_ode_batch": "diffrax_solves",
    "mjx/contacts": "mjx_physics",
    "mjx/pendulum_batch": "mjx_physics",
    "tinygp/likelihood_gradients": "tinygp_processes",
    "jaxopt/lasso": "jaxopt_solves",
    "distrax/normalizing_flow": "distrax_distributions",
    "training/ppo": "training",
    "linear_algebra/robot_arm": "jax_alone.linear_algebra",
    "control/kalman_filter": "jax_alone.control",
}
# The programs that fill the cache of common functions: between them they use a product, a sort, random numbers, and a
# factorization.
_FILLED_BY: Final = ("tiny", "gaussian_process", "convolutions", "transformer_scan")


def _processor() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def _child(name: str) -> dict[str, float]:
    """Run a program in this process; how long it took, in seconds."""
    import jax
    from jax._src import compiler

    compiling = 0.0
    compile_: Any = compiler.backend_compile_and_load

    def timed(*arguments: Any, **named: Any) -> Any:
        nonlocal compiling
        begin = _processor()
        try:
            return compile_(*arguments, **named)
        finally:
            compiling += _processor() - begin

    replaced: Any = compiler
    replaced.backend_compile_and_load = timed
    begin, clock = _processor(), time.perf_counter()
    if os.environ["XLAKIT_AS"]:
        import xlakit.jax

        xlakit.jax.initialize()
    jax.devices()
    started, wall = _processor() - begin, time.perf_counter() - clock
    program = _program(name)
    compiling = 0.0
    begin, clock = _processor(), time.perf_counter()
    jax.block_until_ready(program())
    first, wall = started + _processor() - begin, wall + time.perf_counter() - clock
    found = {"start": started, "compile": compiling, "first": first, "wall": wall}
    if name in _LIBRARIES:
        found["steady"] = _steady(lambda: jax.block_until_ready(program()))
    return found


def _program(name: str) -> Callable[[], Any]:
    """A program as a function without arguments; what it imports is imported."""
    if name not in _LIBRARIES:
        from benchmarks.programs.first import PROGRAMS

        return PROGRAMS[name]
    import jax

    from fuzz.library_programs.registry import programs

    (program,) = (found for found in programs(_LIBRARIES[name]) if found.name == name)
    jax.config.update("jax_enable_x64", program.x64)
    function = jax.jit(program.function) if program.jit else program.function
    return lambda: function(jax.random.key(0))


def _steady(call: Callable[[], Any]) -> float:
    """The least time of some calls, in seconds of the clock."""
    times: list[float] = []
    end = time.perf_counter() + _CALL_SECONDS
    while not times or (len(times) < _CALLS and time.perf_counter() < end):
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return min(times)


def _run(name: str, platform: str, folder: Path, python: str = sys.executable) -> dict[str, float]:
    of_library = platform == _OWN and name in _LIBRARIES
    environment = {
        **os.environ,
        "JAX_PLATFORMS": _XLA if of_library else platform,
        "XLAKIT_AS": _XLA if of_library else "",
        "XLAKIT_CACHE": "on",
        "XLAKIT_CACHE_DIR": str(folder / "xlakit"),
        # The package of the programs has it on.
        "XLAKIT_CHECK_MEMORY": "0",
        "JAX_COMPILATION_CACHE_DIR": str(folder / "jax"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        # Packages are installed with their bytecode.
        "PYTHONDONTWRITEBYTECODE": "",
        "PYTHONPATH": os.pathsep.join([str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]),
        "TF_CPP_MIN_LOG_LEVEL": "1",
    }
    if platform == _OWN:
        del environment["JAX_COMPILATION_CACHE_DIR"]
    command = [python, "-m", "benchmarks.first_second", "--child", name]
    done = subprocess.run(command, env=environment, cwd=_ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{name} on {platform} ended with {done.returncode}:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def measured(
    name: str, states: Sequence[str], rounds: int, folder: Path, run: _Runner
) -> dict[str, dict[str, list[dict[str, float]]]]:
    """What a program took, by the state of the caches and the platform, once for each round."""
    found: dict[str, dict[str, list[dict[str, float]]]] = {state: {_OWN: [], _XLA: []} for state in states}
    for _ in range(rounds):
        for state, of_platforms in found.items():
            for platform, rows in of_platforms.items():
                own = folder / "one"
                shutil.rmtree(own, ignore_errors=True)
                if state == "common":
                    shutil.copytree(folder / "common", own)
                if state == "full":
                    run(name, platform, own)
                rows.append(run(name, platform, own))
    return found


def _median(rows: Sequence[Mapping[str, float]], what: str) -> float:
    return statistics.median(row[what] for row in rows)


def _fill(folder: Path, run: _Runner) -> None:
    """Fill a compile cache with the functions that programs share, but no programs, and compile imported bytecode."""
    for name in _FILLED_BY:
        run(name, _OWN, folder)
    run(_FILLED_BY[0], _XLA, folder / "bytecode")
    for path in (folder / "xlakit").glob("*"):
        if path.name.startswith(("program-", "source-")):
            path.unlink()


class _Report:
    """Prints rows as they are measured, and at the end their means."""

    def __init__(self, *, of_libraries: bool) -> None:
        # The quantities shown with both platforms' seconds; of the others only the ratios are shown.
        self._shown = ("first", "compile", "steady") if of_libraries else ("start", "first", "compile")
        self._ratios: dict[tuple[str, str], dict[str, float]] = {}
        print("seconds of the processor, xlakit's / jaxlib's, and the ratio; steady and wall are of the clock")
        head = "".join(f" {what:>15}" + f" {'ratio':>6}" * (what != "start") for what in self._shown)
        print(f"{'':34} {'cache':8}{head} {'wall':>6}")

    def add(self, name: str, state: str, found: Mapping[str, Sequence[Mapping[str, float]]]) -> None:
        """A program with a state of the caches."""
        row = f"{name:34} {state:8}"
        for what in (*self._shown, "wall"):
            ours, theirs = (_median(found[platform], what) for platform in (_OWN, _XLA))
            ratio = ours / max(theirs, 1e-6)
            if what != "start":
                self._ratios.setdefault((state, what), {})[name] = ratio
            row += f" {ours:7.4f} {theirs:7.4f}" * (what != "wall") + f" {ratio:6.2f}" * (what != "start")
        print(row, flush=True)

    def end(self) -> None:
        """Means over all programs, and the worst of them."""
        for (state, what), ratios in self._ratios.items():
            mean = math.exp(statistics.fmean(math.log(ratio) for ratio in ratios.values()))
            worst = sorted(ratios, key=lambda name: -ratios[name])[:3]
            listed = ", ".join(f"{name} {ratios[name]:.2f}" for name in worst)
            above = sum(ratio > 1 for ratio in ratios.values())
            print(f"{state:8} {what:8} geometric mean {mean:5.2f}, {above} of {len(ratios)} above 1; worst: {listed}")


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.first_second", description=(__doc__ or "").split("\n\n", 1)[0], allow_abbrev=False
    )
    parser.add_argument("names", nargs="*", help="parts of names of programs (all)")
    parser.add_argument("--rounds", type=int, default=3, help="processes of each kind, for a median (3)")
    parser.add_argument(
        "--state", choices=_STATES, action="append", help="of the caches; may be repeated (all; of libraries: common)"
    )
    parser.add_argument("--libraries", action="store_true", help="programs of JAX's libraries")
    parser.add_argument("--python", default=sys.executable, help="a Python that has JAX and, for those, the libraries")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.child:
        print(json.dumps(_child(options.child)))
        return 0
    if options.libraries:
        names: Sequence[str] = list(_LIBRARIES)
    else:
        from benchmarks.programs.first import PROGRAMS

        names = list(PROGRAMS)
    names = with_parts(parser, options.names, names)
    states = options.state or (["common"] if options.libraries else list(_STATES))
    run = partial(_run, python=options.python)
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        if "common" in states:
            _fill(folder / "common", run)
        report = _Report(of_libraries=options.libraries)
        for name in names:
            for state, found in measured(name, states, options.rounds, folder, run).items():
                report.add(name, state, found)
    report.end()
    return 0


if __name__ == "__main__":
    sys.exit(main())
