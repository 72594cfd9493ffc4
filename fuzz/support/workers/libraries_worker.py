"""Runs one file's programs for fuzz.libraries.

    python -m fuzz.support.workers.libraries_worker FILE FOLDER SEED SAMPLE [NAMES]

For each program two lines of JSON are added to ``FOLDER/FILE.jsonl``: one as it begins, so that a crash tells which it
was, and one as it ends, with times or with an error. Its arrays are in ``FOLDER/NAME.npz``. A program that has ended is
not run again.
"""

from __future__ import annotations

import functools
import json
import os
import random
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from fuzz.library_programs.registry import Program, programs

# A program is repeated so often, or so long, whatever ends first.
_REPEATS = 5
_REPEAT_SECONDS = 0.5


def read(path: Path) -> dict[str, dict[str, Any]]:
    """What stands in a file of results, by program: the last word on each."""
    lines = path.read_text().splitlines() if path.is_file() else []
    return dict(map(json.loads, lines))


def write(path: Path, name: str, found: dict[str, Any]) -> None:
    """Add a line to a file of results."""
    with path.open("a") as file:
        file.write(json.dumps([name, found]) + "\n")


def arrays_file(folder: Path, name: str) -> Path:
    """Where the arrays of a program are."""
    return folder / f"{name.replace('/', '.')}.npz"


def _run(program: Program, seed: int, folder: Path, compiled: list[float]) -> dict[str, Any]:
    import jax

    with jax.enable_x64(program.x64):
        key = jax.random.key(seed)
        function = jax.jit(program.function) if program.jit else program.function
        jax.block_until_ready(key)
        compiled.clear()
        begin = time.perf_counter()
        result = jax.block_until_ready(function(key))
        found = {"outcome": "ran", "first": time.perf_counter() - begin, "compile": sum(compiled)}
        found["tolerance"] = program.tolerance
        found["types"] = _keep(result, arrays_file(folder, program.name))
        end, steady = time.perf_counter() + _REPEAT_SECONDS, []
        while not steady or (len(steady) < _REPEATS and time.perf_counter() < end):
            begin = time.perf_counter()
            jax.block_until_ready(function(key))
            steady.append(time.perf_counter() - begin)
        found["steady"] = min(steady)
    return found


def _keep(result: Any, path: Path) -> list[str]:
    """Write a tree's arrays to a file, by where they are in it; gives their types."""
    import jax
    import jax.numpy as jnp

    types: list[str] = []
    arrays: dict[str, np.ndarray] = {}
    for index, (where, leaf) in enumerate(jax.tree_util.tree_flatten_with_path(result)[0]):
        if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            leaf = jax.random.key_data(leaf)
        array = np.asarray(leaf)
        types.append(f"{array.dtype}{list(array.shape)}")
        # NumPy's files know no 16-bit floats but its own.
        narrow = jnp.issubdtype(array.dtype, jnp.floating) and array.dtype.itemsize <= 2
        arrays[f"{index:04} {jax.tree_util.keystr(where)}"] = array.astype(np.float32) if narrow else array
    np.savez(path, **arrays)
    return types


def _chosen(name: str, parts: list[str]) -> bool:
    return not parts or any(name == part[1:] if part.startswith("=") else part in name for part in parts)


def _nudge() -> None:
    """Have jax.random's normal and uniform numbers be the next ones towards 0."""
    import jax
    import jax.numpy as jnp

    def nudged(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*arguments: Any, **named: Any) -> Any:
            x = function(*arguments, **named)
            return jnp.nextafter(x, jnp.zeros_like(x)) if x.dtype in (jnp.float32, jnp.float64) else x

        return call

    for name in ("normal", "uniform"):
        setattr(jax.random, name, nudged(getattr(jax.random, name)))


def main() -> None:
    """Run what is not done yet."""
    file, folder, seed, sample, names = sys.argv[1], Path(sys.argv[2]), *map(int, sys.argv[3:5]), sys.argv[5:]
    import xlakit.jax

    xlakit.jax.initialize()
    import jax

    compiled: list[float] = []

    def listen(event: str, seconds: float, **_: Any) -> None:
        if event.endswith("backend_compile_duration"):
            compiled.append(seconds)

    jax.monitoring.register_event_duration_secs_listener(listen)
    output = folder / f"{file}.jsonl"
    if os.environ.get("NUDGED"):
        _nudge()
    try:
        found = list(programs(file))
    except ImportError as error:
        write(output, file, {"outcome": "failed", "error": f"{type(error).__name__}: {error}"})
        return
    found = [program for program in found if _chosen(program.name, names)]
    if 0 < sample < len(found):
        found = random.Random(f"{seed} {file}").sample(found, sample)
    for program in found:
        if read(output).get(program.name, {}).get("outcome", "begun") != "begun":
            continue
        write(output, program.name, {"outcome": "begun"})
        try:
            outcome = _run(program, seed, folder, compiled)
        except Exception as error:
            if os.environ.get("TRACEBACK"):
                traceback.print_exc()
            outcome = {"outcome": "failed", "error": f"{type(error).__name__}: {error}"[:2000]}
        write(output, program.name, outcome)


if __name__ == "__main__":
    main()
