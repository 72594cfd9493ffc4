"""Programs of libraries on JAX, on xlakit and on jaxlib's CPU: ``python -m fuzz.libraries [PROGRAMS]``.

The libraries are installed from the registry in an environment of their own, which the command makes in a cache folder
(``--environment``) the first time. The programs are ours (fuzz/library_programs/): optimizers, solvers, samplers,
networks, physics. Those of a file run in one process for each platform; one that crashes has failed, and the others
run in the next process. Packages have their bytecode there, and xlakit's compile cache has what programs share and
none of the programs. For each program is printed how far its numbers are from jaxlib's, and for both platforms the time
to the first result, the part of it that is compiling, and the time of a call after that.

A program that is further apart than it may be runs on jaxlib's CPU again with other roundings: for an older processor,
without fusions, with random numbers that are one bit off. How far jaxlib's own results are apart then is the column
``own``; where that is half as far or more, the program is ill-conditioned and says nothing about xlakit. Else it is
wrong.

PROGRAMS are parts of names, such as ``optax/`` or ``numpyro/nuts``. With ``--keep FOLDER`` results stay, and the next
run does what is not done; ``--again`` has those that failed run again. Ends with 1 where a program crashes, fails,
gives other numbers or takes much longer to compile than with XLA. The platform is ``cpu`` for both, with XLAKIT_AS=cpu
for xlakit; ``--on xlakit`` has it as a platform of its own.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from pathlib import Path
from typing import Any, Final

import numpy as np

from fuzz.jax_tests import add_platform_options, platforms_of, size_of, wait
from fuzz.library_programs.registry import DEVICES, FILES
from fuzz.support.numbered import command
from fuzz.support.workers.libraries_worker import arrays_file, read, write

PACKAGES: Final = (
    "jax==0.10.2", "jaxlib==0.10.2", "optax==0.2.8", "flax==0.12.8", "equinox==0.13.8", "diffrax==0.7.2",
    "optimistix==0.1.0", "lineax==0.1.1", "numpyro==0.22.0", "blackjax==1.7.1", "jaxopt==0.8.5", "tinygp==0.3.1",
    "mujoco-mjx==3.17.0", "distrax==0.1.9", "chex==0.1.92", "dm-haiku==0.0.17", "ott-jax==0.6.0",
    "keras==3.15.1", "rlax==0.1.9", "mctx==0.0.71", "gymnax==1.0.1", "pgx==2.6.0", "dynamax==1.0.3", "evosax==0.3.2",
    "jraph==0.0.6.dev0", "e3nn-jax==0.21.0", "jaxlie==1.5.0", "s2fft==1.5.0", "orthax==0.2.11", "interpax==0.3.16",
    "flashbax==0.1.3", "jumanji==1.1.2", "pennylane==0.45.1", "dm-pix==0.4.5",
    "exponax==0.2.0", "quax==0.4.6", "distreqx==0.0.3",
    # What xlakit needs, jax.export and the libraries' own tests (fuzz.library_tests).
    "llvmlite>=0.50", "protobuf>=5.26", "flatbuffers", "pytest", "scikit-learn", "networkx", "matplotlib", "beartype",
)  # fmt: skip
# The last is what the others are compared with.
PLATFORMS: Final = {
    "as-cpu": {"JAX_PLATFORMS": "cpu", "XLAKIT_AS": "cpu"},
    "xlakit": {"JAX_PLATFORMS": "xlakit", "XLAKIT_AS": ""},
    "cpu": {"JAX_PLATFORMS": "cpu", "XLAKIT_AS": ""},
}
# jaxlib's CPU with other roundings, each of which is as right: for a processor without fused multiply-add, without
# fusions, with random numbers that are the next ones in their type.
ROUNDINGS: Final = {
    "cpu-older": {"XLA_FLAGS": "--xla_cpu_max_isa=SSE4_2"},
    "cpu-unfused": {"XLA_FLAGS": "--xla_disable_hlo_passes=fusion"},
    "cpu-nudged": {"NUDGED": "1"},
}
_ROOT = Path(__file__).parents[1]
# Relative to the largest number of an array: some hundred roundings.
_TOLERANCE: Final = {"float64": 1e-12, "complex128": 1e-12, "float32": 3e-5, "complex64": 3e-5}
_TOLERANCE_OF_16_BITS: Final = 2e-2
# An array whose numbers are smaller than this, relative to the program's largest, may be made of roundings alone: that
# is a gradient that is 0 in exact arithmetic.
_NOISE: Final = 1e-2
# jaxlib's own results are the draws of few roundings: another one may well be further from them than they are apart.
_BEYOND_OWN: Final = 2.0
_NUMBERS: Final = "numbers"
# Compiling may take so much longer than XLA takes, and what is faster than so many seconds is no matter.
_SLOWER: Final = 5.0
_NO_MATTER: Final = 5.0


@dataclass(frozen=True)
class Options:
    """What runs, and for how long."""

    python: Path
    folder: Path
    names: tuple[str, ...]
    seed: int
    sample: int
    seconds_each: float
    end: float


def environment(folder: Path) -> Path:
    """Python in an environment that has the libraries; made where it is not there, or has others."""
    python, list_of_packages = folder / "bin" / "python", folder / "packages"
    wanted = "\n".join(PACKAGES)
    if not list_of_packages.exists() or list_of_packages.read_text() != wanted:
        print(f"installing {len(PACKAGES)} packages in {folder}", flush=True)
        venv.create(folder, clear=True, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *PACKAGES], check=True)
        list_of_packages.write_text(wanted)
    return python


def run_file(file: str, platform: str, options: Options) -> dict[str, dict[str, Any]]:
    """What the programs of a file gave on a platform."""
    folder = options.folder / platform
    folder.mkdir(parents=True, exist_ok=True)
    output = folder / f"{file}.jsonl"
    command = [str(options.python), "-m", "fuzz.support.workers.libraries_worker", file, str(folder)]
    command += [str(options.seed), str(options.sample), *options.names]
    variables = _environment(platform, folder)
    devices = str(DEVICES.get(file, 1))
    variables |= {"JAX_NUM_CPU_DEVICES": devices, "XLAKIT_DEVICES": devices}
    while (left := options.end - time.monotonic()) > 0:
        before = size_of(output)
        status = wait(subprocess.Popen(command, env=variables), left, options.seconds_each, output)
        running = _running(output) if size_of(output) > before else ""
        if status is None or not running:
            break
        how = "took too long" if status == -signal.SIGKILL else f"the process ended with {status}"
        write(output, running, {"outcome": "crashed", "error": how})
    return {name: what for name, what in read(output).items() if what["outcome"] != "begun"}


def _environment(platform: str, folder: Path) -> dict[str, str]:
    """The environment of a process: as where packages are installed, and other programs have run before.

    So xlakit has its bytecode, as jaxlib's packages have, and its compile cache has what programs share.
    """
    cache = folder / "cache"
    for path in cache.glob("*"):
        if path.name.startswith(("program-", "source-")):
            path.unlink()
    return {
        **os.environ,
        **_variables(platform),
        "PYTHONPATH": str(_ROOT),
        "PYTHONDONTWRITEBYTECODE": "",
        "XLAKIT_CACHE": "on",
        "XLAKIT_CACHE_DIR": str(cache),
    }


def run_before(platform: str, options: Options) -> None:
    """Run a small program, so that what is compiled and written once on each machine counts for none."""
    folder = options.folder / platform
    folder.mkdir(parents=True, exist_ok=True)
    program = "import xlakit.jax, jax; xlakit.jax.initialize(); jax.random.normal(jax.random.key(0), (3,))"
    subprocess.run([options.python, "-c", program], env=_environment(platform, folder), check=True)


def _variables(platform: str) -> dict[str, str]:
    if platform not in ROUNDINGS:
        return PLATFORMS[platform]
    flags = " ".join(filter(None, (os.environ.get("XLA_FLAGS"), ROUNDINGS[platform].get("XLA_FLAGS"))))
    return {**PLATFORMS["cpu"], **ROUNDINGS[platform], "XLA_FLAGS": flags}


def _running(output: Path) -> str:
    """The program that was the last to begin, if it has not ended."""
    name, found = json.loads(output.read_text().splitlines()[-1])
    return name if found["outcome"] == "begun" else ""


def difference(ours: Path, theirs: Path) -> tuple[float, str]:
    """How far the arrays of two files are apart, in the largest number of their array; and where."""
    worst, where = 0.0, ""
    with np.load(ours) as left, np.load(theirs) as right:
        if left.files != right.files:
            return math.inf, "other results"
        largest = max((_largest(right[name]) for name in right.files), default=0.0)
        for name in left.files:
            apart = _apart(left[name], right[name], _NOISE * largest)
            if not apart <= worst:
                worst, where = apart, name
    return worst, where


def _largest(array: np.ndarray) -> float:
    """The largest finite number of an array of floats."""
    if array.dtype.kind not in "fc":
        return 0.0
    return float(np.max(np.abs(array), where=np.isfinite(array), initial=0.0))


def _apart(ours: np.ndarray, theirs: np.ndarray, least_scale: float) -> float:
    if ours.dtype != theirs.dtype or ours.shape != theirs.shape:
        return math.inf
    if not ours.size:
        return 0.0
    if ours.dtype.kind not in "fc":
        return 0.0 if np.array_equal(ours, theirs) else math.inf
    finite = np.isfinite(theirs)
    if not np.array_equal(ours[~finite], theirs[~finite], equal_nan=True):
        return math.inf
    scale = max(_largest(theirs), least_scale)
    apart = float(np.max(np.abs(ours[finite] - theirs[finite]), initial=0.0))
    return apart / scale if scale else apart


def spread(file: str, name: str, options: Options) -> float:
    """How far a program's results on jaxlib's CPU are from each other where it rounds in other ways."""
    found = [arrays_file(options.folder / "cpu", name)]
    for platform in ROUNDINGS:
        results = run_file(file, platform, replace(options, names=(f"={name}",), sample=0))
        if results.get(name, {}).get("outcome") == "ran":
            found.append(arrays_file(options.folder / platform, name))
    return max((difference(*pair)[0] for pair in permutations(found, 2)), default=0.0)


def verdict(name: str, results: dict[str, dict[str, Any]], options: Options) -> tuple[str, float]:
    """Describe the fault of a program, "" if there is none; and how far its numbers are apart."""
    for platform, found in results.items():
        if found["outcome"] != "ran":
            return f"{platform}: {found['outcome']}: {found['error']}", math.nan
    if len(results) < 2:
        return "", math.nan
    ours, theirs = results.values()
    if ours["types"] != theirs["types"]:
        return f"types: {ours['types']} and {theirs['types']}"[:500], math.nan
    apart, where = difference(*(arrays_file(options.folder / platform, name) for platform in results))
    floats = {
        kind for kind in (text.partition("[")[0] for text in ours["types"]) if "float" in kind or "complex" in kind
    }
    allowed = ours["tolerance"] or max((_TOLERANCE.get(kind, _TOLERANCE_OF_16_BITS) for kind in floats), default=0.0)
    if not apart <= allowed:
        return f"{_NUMBERS}: {apart:.1e} apart, {allowed:.1e} allowed, in {where}", apart
    if ours["compile"] > max(_NO_MATTER, _SLOWER * theirs["compile"]):
        return f"compiling took {ours['compile']:.1f} s, with XLA {theirs['compile']:.1f} s", apart
    return "", apart


def report(file: str, results: dict[str, dict[str, dict[str, Any]]], options: Options) -> int:
    """Print a line for each program of a file; gives how many have failed."""
    failed = 0
    names = dict.fromkeys(name for found in results.values() for name in found)
    for name in names:
        of_it = {platform: found[name] for platform, found in results.items() if name in found}
        if len(of_it) < len(results):
            continue
        wrong, apart = verdict(name, of_it, options)
        own = spread(file, name, options) if wrong.startswith(_NUMBERS) else math.nan
        cells = [
            "".join(f"{found[key]:>9.3f}" if key in found else f"{'-':>9}" for key in ("first", "compile", "steady"))
            for found in of_it.values()
        ]
        print(f"{name:<44} {apart:>8.1e} {'' if math.isnan(own) else f'{own:.1e}':>8} {' '.join(cells)}", flush=True)
        if apart <= _BEYOND_OWN * own:
            print(f"    ILL-CONDITIONED: on jaxlib's CPU {own:.1e} apart where it rounds in other ways", flush=True)
        elif wrong:
            failed += 1
            print(f"    WRONG: {wrong}", flush=True)
    return failed


def _forget_failed(folder: Path) -> None:
    for path in folder.glob("*/*.jsonl"):
        found = read(path)
        path.write_text("")
        for name, what in found.items():
            if what["outcome"] == "ran":
                write(path, name, what)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the programs on both platforms."""
    parser = command("fuzz.libraries", __doc__)
    parser.add_argument("names", nargs="*", help="parts of names of programs, or =NAME")
    parser.add_argument("--file", choices=FILES, nargs="+", default=FILES, help="files of programs; all by default")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    parser.add_argument(
        "--environment", type=Path, default=cache / "xlakit-libraries", help="a folder for the libraries"
    )
    parser.add_argument("--python", type=Path, help="a Python that has the libraries already")
    add_platform_options(parser)
    parser.add_argument("--seconds", type=float, default=math.inf, help="for all: what is not begun then is left out")
    parser.add_argument("--seconds-each", type=float, default=180, help="for one program")
    parser.add_argument("--sample", type=int, default=0, help="how many programs of a file, by the seed; 0 for all")
    parser.add_argument("--seed", type=int, default=0, help="of the random numbers that programs are given")
    parser.add_argument("--install", action="store_true", help="make the environment, say which Python it has, and end")
    options = parser.parse_args(arguments)
    python = options.python or environment(options.environment)
    if options.install:
        print(python)
        return 0
    folder = options.keep or Path(tempfile.mkdtemp())
    if options.again:
        _forget_failed(folder)
    end = time.monotonic() + options.seconds
    choice = Options(
        python, folder.resolve(), tuple(options.names), options.seed, options.sample, options.seconds_each, end
    )
    platforms = platforms_of(options)
    print(f"seed {options.seed}; seconds to the first result, of it compiling, and of a call after that")
    print(f"{'':<44} {'apart':>8} {'own':>8} " + " ".join(f"{platform:>27}" for platform in platforms))
    try:
        for platform in platforms:
            run_before(platform, choice)
        failed, met = 0, False
        for file in options.file:
            found = {platform: run_file(file, platform, choice) for platform in platforms}
            met = met or any(found.values())
            failed += report(file, found, choice)
    finally:
        if not options.keep:
            shutil.rmtree(folder)
    if options.names and not met and options.seconds == math.inf:
        parser.error(f"no program in {', '.join(options.file)} has {' or '.join(options.names)} in its name")
    print(f"{failed} programs are wrong")
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
