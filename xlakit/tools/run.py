"""``xlakit run``: a program executed, timed and compared."""

from __future__ import annotations

import statistics
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from xlakit.api import compile
from xlakit.data.primitive import PrimitiveType
from xlakit.errors import UnsupportedError
from xlakit.ir.instruction import HloModule
from xlakit.tools.compare import compare, format_table
from xlakit.tools.inputs import flatten, make_inputs, read_inputs


def run(
    module: HloModule,
    *,
    input_path: str | None,
    seed: int,
    output_path: str | None,
    iterations: int,
    backend: str | None,
    compare_with: str | None,
) -> int:
    """Run a module and print or save what it gives; the exit status is 1 where a comparison differs."""
    if output_path:
        _check_writable(Path(output_path))
    program = module.entry.program_shape
    given = read_inputs(input_path, program) if input_path else None
    executable = compile(module, backend=backend, seed=seed)
    # A program that is too large for this machine has been refused by now.
    arguments = make_inputs(program, seed) if given is None else given
    times: list[float] = []
    result: Any = None
    for done in range(iterations):
        start = time.perf_counter()
        result = _value(executable(*arguments))
        times.append(time.perf_counter() - start)
        _progress(done + 1, iterations, sum(times))
    if output_path:
        # Opened here, since savez puts .npz behind a path that does not end so.
        with Path(output_path).open("wb") as file:
            np.savez(file, **flatten(result))  # pyright: ignore[reportArgumentType]
    elif not compare_with:
        print(format_result(result))
    if iterations > 1:
        print(f"median of {iterations} runs: {format_time(statistics.median(times))}", file=sys.stderr)
    if compare_with is None:
        return 0
    leaves = compare(result, _reference(module, arguments, compare_with, seed))
    print(format_table(leaves))
    return 0 if all(leaf.agrees for leaf in leaves) else 1


def _check_writable(path: Path) -> None:
    """Raise OSError where results cannot be saved, before anybody waits for them."""
    existed = path.exists() or path.is_symlink()
    if path.exists() and not path.is_file() and not path.is_dir():
        return  # opening a pipe would be heard at its other end
    with path.open("ab"):
        pass
    if not existed:
        path.unlink()


def _value(result: Any) -> Any:
    """The results of several devices, which come as a list, as a tuple with an element for each device."""
    return tuple(result) if isinstance(result, list) else result  # pyright: ignore[reportUnknownArgumentType]


def _reference(module: HloModule, arguments: list[Any], name: str, seed: int) -> Any:
    if name == "interpreter":
        return _value(compile(module, backend="interpreter", seed=seed)(*arguments))
    from xlakit.tools.jaxlib_backend import JaxlibBackend

    if module.num_partitions > 1:
        raise UnsupportedError(
            "programs of several partitions are not compared with jaxlib", hint="run it without --compare"
        )
    count = module.replica_count
    results = JaxlibBackend(count).run_replicas(module, [arguments] * count)
    return results[0] if count == 1 else tuple(results)


def _progress(done: int, total: int, seconds: float) -> None:
    """One line that rewrites itself, on a terminal and only when the wait is long enough to ask."""
    if seconds > 1 and sys.stderr.isatty():
        print(f"\r{done}/{total} runs, {seconds:.0f} s", end="\n" if done == total else "", file=sys.stderr)


def format_result(value: Any) -> str:
    """A result as NumPy prints it; elements of tuples (and devices) one after the other, by index."""
    if not isinstance(value, tuple):
        return _format_array(value)
    parts = [
        f"# {name}: {array.dtype}{list(array.shape)}\n{_format_array(array)}" for name, array in flatten(value).items()
    ]
    return "\n".join(parts) if parts else "()"


def _format_array(value: Any) -> str:
    if value is None:
        return "token"
    array = np.asarray(value)
    # ml_dtypes' own printing is slow for large arrays, and NumPy's types of more bits show the same values.
    kind = PrimitiveType.from_dtype(array.dtype)
    if array.dtype.isbuiltin != 1:
        array = array.astype(np.float32 if kind.is_floating else np.int8 if kind.is_signed else np.uint8)
    return str(array)


def format_time(seconds: float) -> str:
    """A time with a unit that suits it."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"
