"""``python -m benchmarks.first_second [PROGRAMS]``: what programs take to their first result, beside jaxlib's CPU.

Each program of benchmarks/first_programs.py runs in processes of its own, the platforms in turn: with nothing on disk
(``empty``: the runtime and all that programs share are compiled, too, as once on each machine), with a compile cache
that other programs have filled (``common``: what they share is there), and with one that has this program (``full``;
jaxlib with JAX's own). What is counted is processor time, of all threads, from ``import jax`` being done to the first
result, and how much of it is compiling; the wall clock is shown for it all. Ratios are of medians, to jaxlib's.
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
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

_ROOT: Final = Path(__file__).parents[1]
_STATES: Final = ("empty", "common", "full")
_OWN, _XLA = "xlakit", "cpu"
# What a program of its own fills the common functions with: a product, a sort, random numbers, a factor.
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
    from benchmarks.first_programs import PROGRAMS

    begin, clock = _processor(), time.perf_counter()
    jax.devices()
    started = _processor() - begin
    jax.block_until_ready(PROGRAMS[name]())
    first, wall = _processor() - begin, time.perf_counter() - clock
    return {"start": started, "compile": compiling, "first": first, "wall": wall}


def _run(name: str, platform: str, folder: Path) -> dict[str, float]:
    environment = {
        **os.environ,
        "JAX_PLATFORMS": platform,
        "XLAKIT_AS": "",
        "XLAKIT_CACHE": "on",
        "XLAKIT_CACHE_DIR": str(folder / "xlakit"),
        "JAX_COMPILATION_CACHE_DIR": str(folder / "jax"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        # Packages are installed with their bytecode.
        "PYTHONDONTWRITEBYTECODE": "",
        "TF_CPP_MIN_LOG_LEVEL": "1",
    }
    if platform == _OWN:
        del environment["JAX_COMPILATION_CACHE_DIR"]
    command = [sys.executable, "-m", "benchmarks.first_second", "--child", name]
    done = subprocess.run(command, env=environment, cwd=_ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{name} on {platform} ended with {done.returncode}:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def measured(
    name: str, states: Sequence[str], rounds: int, folder: Path
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
                    _run(name, platform, own)
                rows.append(_run(name, platform, own))
    return found


def _median(rows: Sequence[Mapping[str, float]], what: str) -> float:
    return statistics.median(row[what] for row in rows)


def _fill(folder: Path) -> None:
    """A compile cache that has what programs share, and bytecode for all that is imported."""
    for name in _FILLED_BY:
        _run(name, _OWN, folder)
    _run(_FILLED_BY[0], _XLA, folder / "bytecode")
    for path in (folder / "xlakit").glob("*"):
        if path.name.startswith(("program-", "source-")):
            path.unlink()


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.first_second", description=(__doc__ or "").split("\n\n", 1)[0], allow_abbrev=False
    )
    parser.add_argument("names", nargs="*", help="parts of names of programs (all)")
    parser.add_argument("--rounds", type=int, default=3, help="processes of each kind, for a median (3)")
    parser.add_argument("--state", choices=_STATES, action="append", help="of the caches; may be repeated (all)")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.child:
        print(json.dumps(_child(options.child)))
        return 0
    from benchmarks.first_programs import PROGRAMS

    names = [name for name in PROGRAMS if not options.names or any(part in name for part in options.names)]
    states = options.state or list(_STATES)
    ratios: dict[tuple[str, str], list[float]] = {}
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        if "common" in states:
            _fill(folder / "common")
        print("seconds of the processor, xlakit's / jaxlib's, and the ratio; compile and wall as ratios")
        print(f"{'':24} {'cache':8} {'start':>15} {'first':>15} {'ratio':>7} {'compile':>15} {'ratio':>7} {'wall':>7}")
        for name in names:
            for state, found in measured(name, states, options.rounds, folder).items():
                ours, theirs = found[_OWN], found[_XLA]
                pairs = {w: (_median(ours, w), _median(theirs, w)) for w in ("start", "first", "compile", "wall")}
                for what in ("first", "compile", "wall"):
                    ratios.setdefault((state, what), []).append(pairs[what][0] / max(pairs[what][1], 1e-6))
                cells = [f"{a:7.3f} {b:7.3f}" for a, b in (pairs["start"], pairs["first"], pairs["compile"])]
                last = {what: ratios[state, what][-1] for what in ("first", "compile", "wall")}
                print(
                    f"{name:24} {state:8} {cells[0]} {cells[1]} {last['first']:7.2f} {cells[2]} {last['compile']:7.2f}"
                    f" {last['wall']:7.2f}",
                    flush=True,
                )
    for (state, what), values in ratios.items():
        mean = math.exp(statistics.fmean(math.log(value) for value in values))
        print(f"{state:8} {what:8} geometric mean {mean:5.2f}, greatest {max(values):5.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
