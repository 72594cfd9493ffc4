"""``xlakit run``: a program executed, timed and compared."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from xlakit.child_process import Limits
from xlakit.data.primitive import PrimitiveType
from xlakit.formats.npz import write_arrays
from xlakit.ir.instruction import HloModule
from xlakit.tools.compare import LeafComparison, compare, format_table
from xlakit.tools.dumps import given_values
from xlakit.tools.inputs import compiled, flatten, made_up
from xlakit.tools.jaxlib_child import run_on_jaxlib
from xlakit.tools.numerics.statistics import statistics_of
from xlakit.tools.replicas import as_replicas
from xlakit.tools.shards import Devices, on_devices, run_each

# The results of a module's devices, each given its arguments; the last is the seed.
_Reference = Callable[[HloModule, list[list[Any]], int], list[Any]]


@dataclass(frozen=True, slots=True)
class RunResult:
    """The outcome of ``xlakit run``: the result, joined over devices; the seconds of each run; and, if it was compared
    with another result, the comparison of each output.
    """

    result: Any
    seconds: tuple[float, ...]
    comparison: tuple[LeafComparison, ...] | None

    @property
    def agrees(self) -> bool:
        """Whether all outputs agree with those that they were compared with, if with any."""
        return all(leaf.agrees for leaf in self.comparison or ())

    def as_dict(self) -> dict[str, Any]:
        """For JSON: outputs by what their numbers are, since they may be large."""
        fields: dict[str, Any] = {
            "outputs": [
                {"name": name, "type": PrimitiveType.from_dtype(array.dtype).hlo_name, "dimensions": list(array.shape)}
                | statistics_of(array).as_dict()
                for name, array in flatten(self.result).items()
            ],
            "runs": len(self.seconds),
            "seconds": statistics.median(self.seconds),
        }
        if self.comparison is not None:
            fields["comparison"] = [leaf.as_dict() for leaf in self.comparison]
        return fields


class ComparedWith(NamedTuple):
    """What the results of a run are compared with.

    what: ``interpreter``, ``jaxlib`` or ``snapshot``. recorded: the result in the snapshot. limits: those of jaxlib.
    """

    what: str
    recorded: Any
    limits: Limits


def run(
    module: HloModule,
    *,
    input_path: str | None,
    seed: int,
    output_path: str | None,
    iterations: int,
    backend: str | None,
    compared_with: ComparedWith | None,
) -> RunResult:
    """Run a module, and save what it gives where a path is given.

    Arguments and results are whole arrays, of a program that is split over devices, too. Raises NothingToCompareError
    where jaxlib gives nothing within its limits.
    """
    if output_path is not None:
        check_writable(Path(output_path))
    devices = on_devices(module)
    if input_path is not None:
        devices, values = given_values(devices, input_path, seed)
        executable = compiled(devices.module, backend, seed)
    else:
        executable = compiled(devices.module, backend, seed)
        # Made after the compilation, which refuses programs that are too large for this machine.
        values = made_up(devices.module.entry, devices.program, seed)
    arguments = devices.arguments(values)
    times: list[float] = []
    results: list[Any] = []
    for done in range(iterations):
        start = time.perf_counter()
        results = run_each(executable, arguments)
        times.append(time.perf_counter() - start)
        _progress(done + 1, iterations, sum(times))
    result = devices.joined(results)
    if output_path is not None:
        write_arrays(Path(output_path), flatten(result))
    if compared_with is None:
        return RunResult(result, tuple(times), None)
    if compared_with.what == "snapshot":
        return RunResult(result, tuple(times), tuple(compare(result, compared_with.recorded)))
    reference = _on_interpreter if compared_with.what == "interpreter" else _on_jaxlib(compared_with.limits)
    return RunResult(result, tuple(times), tuple(compare(result, _reference(devices, values, reference, seed))))


def format_run(result: RunResult, *, is_saved: bool) -> str:
    """The result, unless it is saved or compared, and the comparison."""
    if result.comparison is not None:
        return format_table(list(result.comparison))
    return "" if is_saved else format_result(result.result)


def check_writable(path: Path) -> None:
    """Raise OSError where results cannot be saved, before the program runs."""
    existed = path.exists() or path.is_symlink()
    if path.exists() and not path.is_file() and not path.is_dir():
        return  # opening a pipe would be heard at its other end
    with path.open("ab"):
        pass
    if not existed:
        path.unlink()


def _reference(devices: Devices, values: list[Any], run: _Reference, seed: int) -> Any:
    """What another backend gives: of the whole program on one device, where it can run there."""
    if devices.whole is not None:
        results = run(devices.whole, [values] * devices.whole.replica_count, seed)
        return results[0] if len(results) == 1 else tuple(results)
    return devices.joined(run(devices.module, devices.arguments(values), seed))


def _on_interpreter(module: HloModule, arguments: list[list[Any]], seed: int) -> list[Any]:
    return run_each(compiled(module, "interpreter", seed), arguments)


def _on_jaxlib(limits: Limits) -> _Reference:
    return lambda module, arguments, _: run_on_jaxlib(as_replicas(module), arguments, limits)


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
